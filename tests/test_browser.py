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


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab on a copy of the lessons."""
    pytest.importorskip("playwright", reason="needs the browser extra")
    if not BROWSER:
        pytest.skip("no Chromium or Chrome on the PATH")
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
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
    aborted = re.compile(r"kernels|sessions|events|/api/")  # polls that a reload interrupts
    assert [text for text in complaints if not aborted.search(text)] == []


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
