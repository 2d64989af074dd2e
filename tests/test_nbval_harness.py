"""The comparison of saved outputs is proved by planting faults: each must make nbval fail."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.nbval_harness import WIDGET_VIEW, Printed, kind

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))

THREE_LINES = "print('one head: 0.1234')\nprint('two heads: 8')\nprint('three heads')"
TIMES = "print('loop 12.3 ms\\nfused 4.5 ms')"
QUIZ = "from IPython.display import HTML\nHTML('<ol><li>width 64</li><li>width 8</li></ol>')"
FIGURE = (
    "from IPython.display import HTML, display\n"
    'display(HTML(\'<img class="mhalib-figure" alt="Head 1 looks back by 1.0" src="data:N">\'))'
)
WIDGET = f"display({{'{WIDGET_VIEW}': {{}}, 'text/plain': 'b'}}, raw=True)"


def stdout(*lines):
    return [new_output("stream", name="stdout", text="".join(f"{line}\n" for line in lines))]


def html(text, kind="execute_result"):
    data = {"text/html": text, "text/plain": "<IPython.core.display.HTML object>"}
    return [new_output(kind, data=data)]


def img(alt, src="data:M"):
    text = f'<img class="mhalib-figure" alt="{alt}" src="{src}">'
    return html(text, "display_data")


def view(text):
    data = {WIDGET_VIEW: {"model_id": "x"}, "text/plain": text}
    return [new_output("display_data", data=data)]


# name: (code, saved output, tags, whether nbval passes)
CELLS = {
    "untouched": (THREE_LINES, stdout("one head: 0.1234", "two heads: 8", "three heads"), [], True),
    "last digit": (
        THREE_LINES,
        stdout("one head: 0.1235", "two heads: 8", "three heads"),
        [],
        True,
    ),
    "wrong float": (
        THREE_LINES,
        stdout("one head: 0.1236", "two heads: 8", "three heads"),
        [],
        False,
    ),
    "wrong integer": (
        THREE_LINES,
        stdout("one head: 0.1234", "two heads: 9", "three heads"),
        [],
        False,
    ),
    "wrong word": (
        THREE_LINES,
        stdout("one head: 0.1234", "two heads: 8", "three hands"),
        [],
        False,
    ),
    "word and last digit": (
        THREE_LINES,
        stdout("one head: 0.1235", "two heads: 8", "three hands"),
        [],
        False,
    ),
    "missing line": (THREE_LINES, stdout("one head: 0.1234", "two heads: 8"), [], False),
    "additional line": (
        THREE_LINES,
        stdout("one head: 0.1234", "two heads: 8", "three heads", "four"),
        [],
        False,
    ),
    "no saved output": (THREE_LINES, [], [], False),
    "saved output of a silent cell": ("heads = 8", stdout("8"), [], False),
    "other times": (TIMES, stdout("loop 9 ms", "fused 1,234.5 ms"), ["volatile"], True),
    "other times, untagged": (TIMES, stdout("loop 9.1 ms", "fused 4.5 ms"), [], False),
    "other unit": (TIMES, stdout("loop 12.3 s", "fused 4.5 ms"), ["volatile"], False),
    "one time missing": (TIMES, stdout("loop 12.3 ms"), ["volatile"], False),
    "html": (QUIZ, html("<ol><li>width 64</li><li>width 8</li></ol>"), [], True),
    "html, wrong number": (QUIZ, html("<ol><li>width 63</li><li>width 8</li></ol>"), [], False),
    "html, missing item": (QUIZ, html("<ol><li>width 64</li></ol>"), [], False),
    "html, missing": (QUIZ, [], [], False),
    "figure": (FIGURE, img("Head 2 looks back by 1.5"), [], True),
    "figure, wrong word": (FIGURE, img("Head 1 looks ahead by 1.0"), [], False),
    "figure, missing": (FIGURE, [], [], False),
    "figure twice": (FIGURE, img("Head 1 looks back by 1.0") * 2, [], False),
    "widget": (WIDGET, view("a"), [], True),
    "widget that raises": (f"{WIDGET}\nraise ValueError", view("a"), [], False),
    "address": ("print('at 0x7f00aa11')", stdout("at 0x55bb66cc77"), [], True),
    "figure size": (
        "print('<Figure size 6x4>')",
        stdout("<Figure size 640x480 with 1 Axes>"),
        [],
        True,
    ),
}


def run_nbval(notebook, path):
    """The outcome of each code cell of a notebook written to `path`: "PASSED" or "FAILED"."""
    nbformat.write(notebook, path)
    config = path.with_suffix(".ini")
    config.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", config, "-p", "tests.nbval_harness"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "--nbval", "--nbval-current-env"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "-rA", "--tb=no", path],
        env=environment | {"PYTHONPATH": str(ROOT)},
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    outcomes = re.findall(r"^(PASSED|FAILED) .*::Cell (\d+)", done.stdout, re.MULTILINE)
    assert outcomes, done.stdout + done.stderr
    return [outcome for outcome, _ in sorted(outcomes, key=lambda pair: int(pair[1]))]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """All cells run in one notebook and one kernel; nbval goes on after a failed cell."""
    cells = [
        new_code_cell(code, outputs=outputs, execution_count=count, metadata={"tags": tags})
        for count, (code, outputs, tags, _) in enumerate(CELLS.values(), 1)
    ]
    found = run_nbval(new_notebook(cells=cells), tmp_path_factory.mktemp("nb") / "planted.ipynb")
    return dict(zip(CELLS, found, strict=True))


@pytest.mark.parametrize("name", CELLS)
def test_a_planted_fault_fails_and_a_forgivable_difference_passes(outcomes, name):
    assert outcomes[name] == ("PASSED" if CELLS[name][3] else "FAILED")


@pytest.mark.parametrize(
    ("saved", "printed"),
    [
        ("0.123", "0.124"),
        ("-0.00", "0.00"),
        ("-0.01", "0.00"),
        ("9.99 s", "10.00 s"),
        ("+0.50", "+0.51"),
        ("37.5%", "37.4%"),
        ("1.2345e-05", "1.2346e-05"),
        ("9.99e-05", "1.00e-04"),
        ("0.12345678", "0.12345712"),  # printed in full: 1e-5 of the value
        ("0.5", "0.49999997"),
        ("tensor([0.1234, 0.5000])", "tensor([0.1235, 0.5000])"),
        ("[0.25  0.1  ]", "[0.251 0.1  ]"),  # NumPy leaves trailing zeros out
        ("[[0. 1.]\n [1. 0.5]]", "[[-0.   1. ]\n [ 1.   0.5]]"),  # and aligns its columns
        ("(2.5x the 1.30 ms)", "(2.6x the 1.30 ms)"),
    ],
)
def test_forgiven(saved, printed):
    assert Printed(saved) == Printed(printed)
    assert Printed(printed) == Printed(saved)


@pytest.mark.parametrize(
    ("saved", "printed"),
    [
        ("0.123", "0.125"),
        ("0.12", "-0.12"),
        ("0.5", "0.50000512x"),
        ("0.12345678", "0.12346"),  # 1e-5 of the value, not of one
        ("1.2345e-05", "1.2345e-06"),
        ("1e-05", "2e-05"),
        ("3.", "4."),
        ("3", "3.0"),
        ("100", "101"),
        ("The layer has 2359296.", "The layer has 2359297."),
        ("nan", "0.5"),
        ("0.5", "nan"),
        ("inf", "-inf"),
        ("torch 2.13.0", "torch 2.14.0"),
        ("float32", "float64"),
        ("a 0.50", "a  0.50"),  # no digit changed, so the spaces must not either
        ("0.50 a", "0.51 b"),
        ("0.50\n", "0.51\n\n"),
        ("0.50 0.50", "0.50"),
        ("True", "False"),
    ],
)
def test_not_forgiven(saved, printed):
    assert Printed(saved) != Printed(printed)
    assert Printed(printed) != Printed(saved)


def test_a_printed_text_equals_itself_only_where_it_is_text():
    assert Printed("0.5") == "0.5"
    assert Printed("0.5") != 0.5
    assert hash(Printed("head")) == hash("head")


def texts(cell):
    """(container, key) of each text that a code cell printed, figures and widgets left out."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output, "text"
        data = output.get("data", {})
        if "mhalib-figure" not in data.get("text/html", "") and WIDGET_VIEW not in data:
            yield from ((data, key) for key in ("text/html", "text/plain") if key in data)


def corrupt(cell):
    """Change the first digit that an exact cell printed; whether there was one."""
    if kind(cell) == "exact":
        for container, key in texts(cell):
            if found := re.search(r"\d", container[key]):
                wrong = "7" if found[0] < "5" else "2"
                text = container[key]
                container[key] = text[: found.start()] + wrong + text[found.end() :]
                return True
    return False


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_corrupted_number_in_a_lesson_is_noticed(lesson, tmp_path):
    """The first printed number is corrupted, and the lesson ends there, to be quick."""
    notebook = nbformat.read(lesson, as_version=4)
    last = next(n for n, c in enumerate(notebook.cells) if c.cell_type == "code" and corrupt(c))
    del notebook.cells[last + 1 :]
    *before, corrupted = run_nbval(notebook, tmp_path / lesson.name)
    assert set(before) <= {"PASSED"}
    assert corrupted == "FAILED"


@pytest.mark.thorough
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_corrupted_number_in_any_cell_of_a_lesson_is_noticed(lesson, tmp_path):
    notebook = nbformat.read(lesson, as_version=4)
    expected = [
        "FAILED" if corrupt(cell) else "PASSED"
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert run_nbval(notebook, tmp_path / lesson.name) == expected


@pytest.mark.skipif(not LESSONS, reason="no lessons yet")
def test_nine_in_ten_printing_cells_are_exact():
    cells = [cell for path in LESSONS for cell in nbformat.read(path, as_version=4).cells]
    kinds = [kind(cell) for cell in cells if cell.cell_type == "code" and list(texts(cell))]
    assert kinds.count("exact") >= 0.9 * len(kinds)
