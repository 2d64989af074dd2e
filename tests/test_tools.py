"""`tools/notebooks.py` overwrites nobody's work, its files are stable, its solutions right."""

import importlib.util
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import mhalib

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))

specification = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
notebooks = importlib.util.module_from_spec(specification)
specification.loader.exec_module(notebooks)

WIDGET = """\
import sys
import ipywidgets
from IPython.display import display

slider = ipywidgets.interactive(lambda heads: print(heads), heads=3)
print("before")
print("warned", file=sys.stderr)
display(slider)
print("after")
"""


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def notebook(*sources):
    cells = [new_code_cell(source, id=f"code-{n}") for n, source in enumerate(sources)]
    return new_notebook(cells=[new_markdown_cell("# 01 · Lesson", id="title"), *cells])


@pytest.fixture
def lesson(tmp_path):
    """A lesson that git holds, in a repository of its own."""
    path = tmp_path / "01_lesson.ipynb"
    nbformat.write(notebook("print(1 + 1)"), path)
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "Add a lesson")
    return path


def edit(path):
    path.write_text(path.read_text().replace("1 + 1", "2 + 2"))


def stage(path):
    edit(path)
    git(path.parent, "add", ".")


def untrack(path):
    git(path.parent, "rm", "--cached", path.name)
    git(path.parent, "commit", "-m", "Remove it")


def ignore(path):
    untrack(path)
    (path.parent / ".gitignore").write_text("*.ipynb\n")


def leave_git(path):
    (path.parent / ".git").rename(path.parent / "git")


@pytest.mark.parametrize(
    ("happened", "reason"),
    [
        (edit, "01_lesson.ipynb has changes that are not committed"),
        (stage, "01_lesson.ipynb has changes that are not committed"),
        (untrack, "01_lesson.ipynb is not under git's control"),
        (ignore, "01_lesson.ipynb is not under git's control"),
        (leave_git, "git cannot tell whether it holds changes (fatal: not a git repository"),
    ],
)
def test_execute_refuses_what_git_could_not_bring_back(lesson, happened, reason, capsys):
    happened(lesson)
    before = lesson.read_bytes()
    assert notebooks.main(["execute", str(lesson)]) == 1
    said = capsys.readouterr().err
    assert reason in said
    assert "Nothing was executed" in said
    assert "--overwrite" in said
    assert lesson.read_bytes() == before


def test_one_changed_lesson_keeps_all_from_being_executed(lesson, capsys):
    other = lesson.with_name("02_other.ipynb")
    other.write_bytes(lesson.read_bytes())
    before = lesson.read_bytes()
    assert notebooks.main(["execute", str(lesson), str(other)]) == 1
    assert lesson.read_bytes() == before
    assert "01_lesson" not in capsys.readouterr().err


def test_execute_saves_outputs_in_place_and_overwrites_when_told(lesson):
    assert notebooks.main(["execute", str(lesson)]) == 0
    assert nbformat.read(lesson, 4).cells[1].outputs[0].text == "2\n"
    edit(lesson)
    assert notebooks.main(["execute", "--overwrite", str(lesson)]) == 0
    assert nbformat.read(lesson, 4).cells[1].outputs[0].text == "4\n"
    assert {p.name for p in lesson.parent.iterdir()} == {".git", lesson.name}


def test_executing_again_gives_the_same_bytes(tmp_path):
    path = tmp_path / "widget.ipynb"
    content = notebook(WIDGET, "print('a'); print('b')")
    content.metadata.widgets = {"state": {}}
    content.cells[1].metadata = {
        "tags": ["long"],
        "collapsed": True,
        "execution": {"time": "12:00"},
    }
    nbformat.write(content, path)
    assert notebooks.main(["execute", "--overwrite", str(path)]) == 0
    first = path.read_bytes()
    assert notebooks.main(["execute", "--overwrite", str(path)]) == 0
    assert path.read_bytes() == first

    saved = nbformat.read(path, as_version=4)
    nbformat.validate(saved)
    assert saved.metadata == notebooks.METADATA
    assert [cell.id for cell in saved.cells] == ["title", "code-0", "code-1"]
    assert [cell.metadata for cell in saved.cells] == [{}, {"tags": ["long"]}, {}]
    assert [cell.execution_count for cell in saved.cells[1:]] == [1, 2]
    widget, text = saved.cells[1:]
    assert [output.get("name", "view") for output in widget.outputs] == ["stdout", "stderr", "view"]
    assert [output.text for output in text.outputs] == ["a\nb\n"]


def test_a_failing_cell_leaves_the_file_as_it_was(lesson, capsys):
    nbformat.write(notebook("print(1)", "raise ValueError('no such head')"), lesson)
    before = lesson.read_bytes()
    assert notebooks.main(["execute", "--overwrite", str(lesson)]) == 1
    said = capsys.readouterr().err
    assert "01_lesson.ipynb: not saved, since a cell failed" in said
    assert "no such head" in said
    assert lesson.read_bytes() == before


def test_a_file_saved_meanwhile_is_left_alone(lesson, capsys):
    nbformat.write(notebook(f"open({lesson.name!r}, 'w').write('mine')"), lesson)
    assert notebooks.main(["execute", "--overwrite", str(lesson)]) == 1
    assert lesson.read_text() == "mine"
    assert "saved by someone else" in capsys.readouterr().err


STUB = '''\
def softmax(x):
    """(..., n) array -> same shape; each row of the last axis is positive and sums to 1."""
    raise NotImplementedError
'''


@pytest.fixture
def exercise(tmp_path):
    path = tmp_path / "02_lesson.ipynb"
    content = notebook("from mhalib import check", STUB, "check(softmax)")
    content.cells[2].metadata["tags"] = ["exercise"]
    nbformat.write(content, path)
    return path


def build(exercise, *options):
    return notebooks.main(
        ["solutions", "--out", str(exercise.parent / "out"), *options, str(exercise)]
    )


def test_solutions_rights_a_wrong_attempt_and_keeps_its_other_lines(exercise):
    content = nbformat.read(exercise, as_version=4)
    wrong = "print('before')\n\n\ndef softmax(x):\n    return x\n\n\ncheck(softmax)"
    content.cells.append(new_code_cell(wrong, metadata={"tags": ["wrong-attempt"]}))
    nbformat.write(content, exercise)
    assert build(exercise) == 0
    solved = nbformat.read(exercise.parent / "out" / exercise.name, as_version=4).cells[-1]
    assert solved.source.startswith("print('before')\n\n\n")
    assert solved.source.endswith("\n\n\ncheck(softmax)")
    assert "softmax: right" in solved.outputs[1].data["text/plain"]


def test_solutions_fills_the_stubs_and_leaves_the_lesson_alone(exercise):
    before = exercise.read_bytes()
    assert build(exercise) == 0
    assert exercise.read_bytes() == before
    solved = nbformat.read(exercise.parent / "out" / exercise.name, as_version=4)
    assert "NotImplementedError" not in solved.cells[2].source
    assert "softmax: right" in solved.cells[3].outputs[0].data["text/plain"]
    assert build(exercise) == 0  # its own work it may replace


@pytest.mark.parametrize("content", ["my notes", None])
def test_solutions_overwrites_no_other_file(exercise, content, capsys):
    target = exercise.parent / "out" / exercise.name
    target.parent.mkdir()
    target.write_text(content or exercise.read_text())
    before = target.read_bytes()
    assert build(exercise) == 1
    assert target.read_bytes() == before
    said = capsys.readouterr().err
    assert "differs from what would be written" in said
    assert "--overwrite" in said
    assert build(exercise, "--overwrite") == 0
    assert target.read_bytes() != before


@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_solutions_never_replaces_the_lesson_itself(exercise, options, capsys):
    before = exercise.read_bytes()
    out = ["--out", str(exercise.parent)]
    assert notebooks.main(["solutions", *out, *options, str(exercise)]) == 1
    assert exercise.read_bytes() == before
    assert "is the lesson itself" in capsys.readouterr().err


def test_solutions_saves_nothing_that_scores_less_than_full_marks(exercise, capsys):
    content = nbformat.read(exercise, as_version=4)
    content.cells[
        3
    ].source = "softmax_of_one = softmax\ndef softmax(x):\n    return x\ncheck(softmax)"
    nbformat.write(content, exercise)
    assert build(exercise) == 1
    assert "CheckFailed" in capsys.readouterr().err
    assert not (exercise.parent / "out" / exercise.name).exists()


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_filled_stub_of_a_lesson_scores_full_marks(path):
    """The filled cells alone, in a namespace as bare as a fresh kernel's."""
    filled = [
        cell.source
        for cell in notebooks.solved(path).cells
        if "exercise" in cell.metadata.get("tags", [])
    ]
    assert filled
    for source in filled:
        namespace = {"__name__": "__main__"}
        exec(source, namespace)
        name = list(namespace)[-1]
        assert mhalib.check(namespace[name]).score == 1, name


@pytest.mark.thorough
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_solved_edition_of_a_lesson_runs_and_scores_full_marks(path, tmp_path):
    """Strict mode raises at the first check that is not all right."""
    assert notebooks.main(["solutions", "--out", str(tmp_path), str(path)]) == 0
    solved = nbformat.read(tmp_path / path.name, as_version=4)
    stubs = [cell for cell in solved.cells if "exercise" in cell.metadata.get("tags", [])]
    checks = [
        cell.outputs[0].data["text/plain"]
        for cell in solved.cells
        if cell.cell_type == "code" and re.fullmatch(r"check\(\w+\)", cell.source)
    ]
    assert len(checks) == len(stubs)
    assert all(": right." in shown for shown in checks)
