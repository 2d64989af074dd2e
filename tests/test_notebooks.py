"""The form of every lesson: its parts, its cells, its saved outputs, its links and its spelling."""

import ast
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from mhalib import exercises
from tests.nbval_harness import kind

ROOT = Path(__file__).resolve().parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ALLOWED_TAGS = {"exercise", "long", "volatile", "wrong-attempt"}
ABSOLUTE_PATH = re.compile(
    r"(?<![\w.:/~-])/(?:home|root|work|tmp|usr|opt|var|mnt|private|Users)\b|(?<!\w)[A-Z]:\\|file://"
)
MARKDOWN_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^)\s>]+)")


class Lesson:
    def __init__(self, path):
        self.path = path
        self.number = path.name[:2]
        self.notebook = nbformat.read(path, as_version=4)
        self.cells = self.notebook.cells
        self.code = [cell for cell in self.cells if cell.cell_type == "code"]
        self.markdown = [cell for cell in self.cells if cell.cell_type == "markdown"]
        self.stubs = [n for n, c in enumerate(self.cells) if "exercise" in tags(c)]
        self.is_full = self.number != "00"  # 00 shows how the others work

    def place(self, pattern):
        """The place of the first Markdown cell with such a line; the test fails without one."""
        for n, cell in enumerate(self.cells):
            if cell.cell_type == "markdown" and re.search(pattern, cell.source, re.MULTILINE):
                return n
        pytest.fail(f"{self.path.name} has no Markdown cell with {pattern!r}")

    def html(self):
        """(cell id, text) of all HTML that the lesson shows."""
        for cell in self.code:
            for output in cell.outputs:
                if "text/html" in output.get("data", {}):
                    yield cell.id, output.data["text/html"]
        for cell in self.markdown:
            yield cell.id, cell.source


def tags(cell):
    return cell.metadata.get("tags", [])


def tree(cell):
    return ast.parse(re.sub(r"^(\s*)[%!].*", r"\1pass", cell.source, flags=re.MULTILINE))


@pytest.fixture(scope="module", params=PATHS, ids=lambda path: path.stem)
def lesson(request):
    return Lesson(request.param)


def test_it_opens_with_title_goals_minutes_and_prerequisites(lesson):
    first = lesson.cells[0]
    assert first.cell_type == "markdown"
    assert re.match(rf"# {lesson.number} · \S.+\n", first.source)
    opening = first.source + lesson.cells[1].source
    goals = opening.partition("**You will be able to**")[2].strip().partition("\n\n")[0]
    assert 3 <= len(re.findall(r"^- ", goals, re.MULTILINE)) <= 5
    assert re.search(r"\b\d+ minutes\b", opening)
    assert "You need" in opening


def test_it_ends_with_quiz_paragraph_and_sources(lesson):
    paragraph, sources = lesson.place(r"^## In one paragraph$"), lesson.place(r"^## Sources$")
    assert paragraph <= sources == len(lesson.cells) - 1
    if lesson.is_full:
        intro = lesson.place(r"^## Quiz$")
        assert intro < paragraph
        assert f'quiz("{lesson.number}")' in [c.source for c in lesson.cells[intro:paragraph]]
        assert "](https://" in lesson.cells[sources].source


def test_it_has_exercises_a_control_and_a_figure(lesson):
    assert any("mhalib-figure" in text for _, text in lesson.html())
    if lesson.is_full:
        assert 3 <= len(lesson.stubs) <= 6
        assert any(kind(cell) == "view" for cell in lesson.code)


def test_an_exercise_is_announced_then_a_stub_then_its_check(lesson):
    for n in lesson.stubs:
        before, stub, check = lesson.cells[n - 1 : n + 2]
        (definition,) = tree(stub).body
        exercise = exercises.catalogue.find(definition.name)
        to_repair = isinstance(definition, ast.ClassDef)  # written already, with faults
        assert to_repair or "raise NotImplementedError" in stub.source
        assert check.source == f"check({exercise.name})"
        if not lesson.is_full:
            continue
        assert exercise.lesson == lesson.number
        assert re.search("^### Exercise: ", before.source, re.MULTILINE), before.id
        assert f'hint("{exercise.name}")' in before.source
        assert f'solution("{exercise.name}")' in before.source
        assert re.search(rf"\b{exercise.minutes} minutes\b", before.source), before.id
        assert f"difficulty {exercise.difficulty}" in before.source, before.id


def test_every_exercise_of_the_catalogue_is_there_once(lesson):
    if not lesson.is_full:  # 00 borrows one to show how it is used
        return
    names = [tree(lesson.cells[n]).body[0].name for n in lesson.stubs]
    catalogue = [exercises.catalogue.find(name) for name in exercises.names()]
    assert sorted(names) == sorted(e.name for e in catalogue if e.lesson == lesson.number)


def test_no_other_cell_uses_the_learners_function(lesson):
    learners = {tree(lesson.cells[n]).body[0].name for n in lesson.stubs}
    own = {m for n in lesson.stubs for m in (n, n + 1)}
    own |= {n for n, cell in enumerate(lesson.cells) if "wrong-attempt" in tags(cell)}
    for n, cell in enumerate(lesson.cells):
        if cell.cell_type == "code" and n not in own:
            used = {node.id for node in ast.walk(tree(cell)) if isinstance(node, ast.Name)}
            assert not used & learners, cell.id
            assert "NotImplementedError" not in used, f"{cell.id} needs the tag exercise"


def test_code_cells_are_short(lesson):
    """At most 15 lines, not counting blank lines, comments and alt texts."""
    for cell in lesson.code:
        lines = dict(enumerate(cell.source.splitlines(), 1))
        for node in ast.walk(tree(cell)):
            if isinstance(node, ast.keyword) and node.arg == "alt":
                for n in range(node.value.lineno, node.value.end_lineno + 1):
                    lines.pop(n, None)
        counted = [text for text in lines.values() if text.strip() and text.strip()[0] != "#"]
        assert "long" in tags(cell) or len(counted) <= 15, f"{cell.id}: {len(counted)} lines"


def test_its_metadata_is_stable(lesson):
    assert lesson.notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert (lesson.notebook.nbformat, lesson.notebook.nbformat_minor) == (4, 5)
    for cell in lesson.cells:
        assert set(cell.metadata) <= {"tags"}, cell.id
        assert set(tags(cell)) <= ALLOWED_TAGS, cell.id
        assert "attachments" not in cell, cell.id
        assert not any(output.get("metadata") for output in cell.get("outputs", [])), cell.id


def test_its_cells_have_readable_ids(lesson):
    """Words joined by hyphens, never the random ones that an editor gives."""
    ids = [cell.id for cell in lesson.cells]
    assert len(set(ids)) == len(ids)
    for cell_id in ids:
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", cell_id), cell_id
        assert not re.fullmatch(r"(?=.*\d)[0-9a-f]{8}.*", cell_id), cell_id


def test_it_was_executed_from_top_to_bottom(lesson):
    assert [cell.execution_count for cell in lesson.code] == list(range(1, len(lesson.code) + 1))
    for cell in lesson.code:
        assert cell.source.strip(), f"{cell.id} is empty"
        for output in cell.outputs:
            assert output.output_type != "error", cell.id
            assert output.get("name") != "stderr", f"{cell.id} warns: {output.text}"


def test_nothing_is_kept_from_being_compared(lesson):
    """nbval's own ways to leave a cell out are not used; its tags are not among the allowed."""
    for cell in lesson.code:
        assert "NBVAL" not in cell.source.upper(), cell.id
        if kind(cell) == "view":  # what such a cell prints besides would not be compared
            assert len(cell.outputs) == 1, cell.id


def test_it_names_no_path_of_a_machine(lesson):
    for cell in lesson.cells:
        text = cell.source + json.dumps(cell.get("outputs", []), ensure_ascii=False)
        found = ABSOLUTE_PATH.search(re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))
        assert not found, f"{cell.id}: {text[max(0, found.start() - 40) : found.end() + 40]}"


def test_no_cell_saves_more_than_200_kilobytes(lesson):
    for cell in lesson.code:
        size = len(json.dumps(cell.outputs).encode())
        assert size <= 200_000, f"{cell.id}: {size:,} bytes"


class Elements(HTMLParser):
    """The start tags of a text, as (tag, attributes)."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_every_figure_says_in_words_what_it_shows(lesson):
    alts = []
    for cell_id, text in lesson.html():
        images = [attrs for tag, attrs in Elements(text).found if tag == "img"]
        alts += [(cell_id, attributes.get("alt") or "") for attributes in images]
    for cell in lesson.markdown:
        images = [link for link in MARKDOWN_LINK.findall(cell.source) if link[0]]
        alts += [(cell.id, alt) for _, alt, _ in images]
    for cell_id, alt in alts:
        assert len(alt.strip()) > 20, f"{cell_id}: alt={alt!r}"
    for cell in lesson.code:
        assert "plt.show" not in cell.source, f"{cell.id}: use figures.show"
        for output in cell.outputs:
            pictures = [mime for mime in output.get("data", {}) if mime.startswith("image/")]
            assert not pictures, f"{cell.id}: use figures.show, which keeps the alt text"


def anchors(path):
    """The anchors of a page: as JupyterLab makes them, or for Markdown as GitHub does."""
    if path.suffix != ".ipynb":
        headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return {heading.strip().replace(" ", "-") for heading in re.findall(r"(?m)^#+ (.+)$", text)}


def test_every_internal_link_leads_somewhere(lesson):
    links = []
    for cell_id, text in lesson.html():
        links += [(cell_id, a["href"]) for _, a in Elements(text).found if a.get("href")]
    for cell in lesson.markdown:
        links += [(cell.id, target) for _, _, target in MARKDOWN_LINK.findall(cell.source)]
    for cell_id, target in links:
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        page = lesson.path.parent / name if name else lesson.path
        assert page.exists(), f"{cell_id}: {target} is not there"
        assert ROOT in page.resolve().parents, f"{cell_id}: {target} leads out of the course"
        assert not anchor or anchor in anchors(page), f"{cell_id}: {target} has no such heading"


def test_the_readme_lists_the_lessons_in_order():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    row = r"^\| \[(\d\d)\]\(notebooks/([^)]+)\) \| ([^|]+) \| (\d+) \|"
    rows = re.findall(row, readme, re.MULTILINE)
    assert [name for _, name, _, _ in rows] == [path.name for path in PATHS]
    for (number, name, title, minutes), path in zip(rows, PATHS, strict=True):
        lesson = Lesson(path)
        assert number == lesson.number
        assert lesson.cells[0].source.startswith(f"# {number} · {title}\n"), name
        opening = lesson.cells[0].source + lesson.cells[1].source
        assert re.search(r"\b(\d+) minutes", opening)[1] == minutes, name


def test_spelling():
    pages = ["notebooks", "mhalib", "data/quizzes", "README.md", "CONTRIBUTING.md", "docs"]
    there = [page for page in pages if (ROOT / page).exists()]
    command = [sys.executable, "-m", "codespell_lib", *there]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
