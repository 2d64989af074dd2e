"""The course as a learner meets it: in JupyterLab, in a browser that reaches nothing else.

Needs Chromium or Chrome on the PATH and the `browser` extra; skipped with the reason elsewhere.
"""

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parent.parent
BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
IDLE = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
EXECUTED = """() => {
    const panel = jupyterapp.shell.currentWidget;
    const code = [...panel.content.model.cells].filter(cell => cell.type === 'code');
    return code.every(cell => cell.executionCount)
        && panel.sessionContext.session.kernel.status === 'idle';
}"""
ERRORS = """() => [...jupyterapp.shell.currentWidget.content.model.cells]
    .filter(cell => cell.type === 'code').flatMap(cell => cell.outputs.toJSON())
    .filter(output => output.output_type === 'error').map(output => output.evalue)"""
ABORTED = re.compile(r"kernels|sessions|events|/api/")  # polls that a reload interrupts
EXPLORER = """
from mhalib import pretrained, widgets

texts = ["The teacher read the book.", "It rained, so nobody went out."]
explorer = widgets.head_explorer(pretrained.load_encoder(), texts, layer=2)
explorer
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab on a copy of the lessons."""
    pytest.importorskip("playwright", reason="needs the browser extra")
    if not BROWSER:
        pytest.skip("no Chromium or Chrome on the PATH")
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    code = EXPLORER, "print(explorer.text, explorer.measure, explorer.layer, explorer.head)"
    notebook = nbformat.v4.new_notebook(
        cells=[*map(nbformat.v4.new_code_cell, code)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, folder / "notebooks" / "explorer.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    options = [
        f"--port={port}",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", *options]
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(folder / "config")}
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            if socket.socket().connect_ex(("127.0.0.1", port)) == 0:
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab/tree/notebooks", token
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def opened(lab):
    """A function that opens a lesson and gives its page and what the browser complained of."""
    from playwright.sync_api import sync_playwright

    address, token = lab
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=BROWSER,
            args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"],
        )
        page = browser.new_page(viewport={"width": 1250, "height": 1600})
        complaints = []
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(request.url))

        def open_lesson(stem):
            page.goto(f"{address}/{stem}.ipynb?reset&token={token}")
            page.wait_for_function(IDLE, timeout=120_000)
            return page, complaints

        yield open_lesson
        browser.close()


@pytest.mark.parametrize("stem", LESSONS)
def test_a_lesson_runs_to_its_end_and_asks_nobody_outside(opened, stem):
    page, complaints = opened(stem)
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(EXECUTED, timeout=300_000)
    assert page.evaluate(ERRORS) == []
    assert [text for text in complaints if not ABORTED.search(text)] == []


def test_the_keyboard_moves_a_control(opened):
    page, _ = opened("00_start_here")
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(EXECUTED, timeout=120_000)
    handle = page.locator(".widget-slider [role=slider]").first
    handle.scroll_into_view_if_needed()
    picture = page.locator(".widget-html-content img.mhalib-figure").first
    before = picture.get_attribute("alt")
    handle.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "old => document.querySelector('.widget-html-content img.mhalib-figure').alt !== old",
        arg=before,
        timeout=20_000,
    )


@pytest.fixture
def explorer(opened):
    """The head explorer in a notebook of its own, and what its last cell prints when run."""
    page, complaints = opened("explorer")
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(EXECUTED, timeout=120_000)
    page.wait_for_selector(".mhalib-heads .map svg", timeout=30_000)

    def in_python():
        page.evaluate("""async () => {
            jupyterapp.shell.currentWidget.content.activeCellIndex = 1;
            await jupyterapp.commands.execute('notebook:run-cell');
        }""")
        code = "jupyterapp.shell.currentWidget.content.model.cells.get(1).outputs.toJSON()[0].text"
        return page.evaluate(code).strip()

    yield page, in_python
    assert [text for text in complaints if not ABORTED.search(text)] == []


def says(page, text):
    """Wait until the live region of the head explorer says it."""
    said = (
        "text => document.querySelector('.mhalib-heads [role=status]').textContent.includes(text)"
    )
    page.wait_for_function(said, arg=text, timeout=20_000)


def focused(page):
    return page.evaluate("document.activeElement.getAttribute('aria-label')") or ""


def head(page, layer, number):
    return page.locator(f'.head[aria-label^="layer {layer} head {number},"]')


def test_the_explorer_by_mouse(explorer):
    page, in_python = explorer
    assert in_python() == "0 previous 2 0"
    assert head(page, 3, 1).get_attribute("aria-selected") == "true"
    before = page.locator(".map svg").get_attribute("aria-label")
    head(page, 1, 3).click()
    says(page, "Layer 1 head 3 selected, previous 1.00.")
    assert page.locator(".head[aria-selected=true]").count() == 1
    after = page.locator(".map svg").get_attribute("aria-label")
    assert before.startswith("Attention map of layer 3, head 1. Strongest: ")
    assert after.startswith("Attention map of layer 1, head 3. Strongest: ")
    page.locator(".chips label", has_text="entropy").click()
    says(page, "Coloured by entropy.")
    assert head(page, 1, 3).get_attribute("aria-label") == "layer 1 head 3, entropy 0.00"
    page.locator(".asks .word", has_text="teacher").hover()
    answers = page.locator(".answers .word").all_text_contents()
    assert answers[:4] == ["[CLS]0.00", "the1.00", "teacher0.00", "read0.00"]
    page.locator(".map rect[data-asks='3'][data-answers='2']").hover()
    assert page.locator(".map .readout").text_content() == "read → teacher: 1.00"
    page.locator(".mhalib-heads select").select_option(index=1)
    says(page, "Sentence: It rained, so nobody went out.")
    assert page.locator(".asks .word").count() == 10
    assert in_python() == "1 entropy 0 2"


def test_the_explorer_by_keyboard_leaves_the_cell_where_it_is(explorer):
    page, in_python = explorer
    cell = "jupyterapp.shell.currentWidget.content.activeCellIndex"
    head(page, 3, 1).focus()
    for key, place in {
        "ArrowRight": (3, 2),
        "ArrowDown": (4, 2),
        "End": (4, 12),
        "ArrowUp": (3, 12),
        "ArrowLeft": (3, 11),
        "Control+End": (6, 12),
        "Control+Home": (1, 1),
        "Home": (1, 1),
    }.items():
        page.keyboard.press(key)
        assert focused(page).startswith("layer {} head {}, previous ".format(*place))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    says(page, "Layer 1 head 2 selected")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    says(page, "Layer 1 head 3 selected, previous 1.00.")
    active = page.evaluate(cell)
    page.keyboard.press("Tab")
    assert focused(page).startswith("[CLS] attends to ")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert focused(page).startswith("teacher attends to the 1.00, ")
    assert "the1.00" in page.locator(".answers .word").all_text_contents()
    page.keyboard.press("ArrowRight")
    assert focused(page).startswith("teacher is attended to by read 1.00, ")
    page.locator(".chips input:checked").focus()
    page.keyboard.press("ArrowRight")
    says(page, "Coloured by next.")
    page.locator(".mhalib-heads select").focus()
    page.keyboard.press("ArrowDown")
    says(page, "Sentence: It rained")
    assert page.evaluate(cell) == active
    page.locator(".mhalib-heads select").press("d")
    page.locator(".mhalib-heads select").press("d")
    assert page.evaluate("jupyterapp.shell.currentWidget.content.model.cells.length") == 2
    page.locator(".mhalib-heads input[type=text]").fill("My cat sleeps.")
    page.keyboard.press("Enter")
    says(page, "Sentence: My cat sleeps.")
    assert in_python() == "2 next 0 2"
