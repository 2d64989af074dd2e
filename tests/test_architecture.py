"""The house: which file may import which, how large they are, what `import mhalib` loads."""

import ast
import inspect
import io
import re
import subprocess
import sys
import tokenize
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import mhalib

ROOT = Path(mhalib.__file__).parent
FLOORS = {  # a file imports from its own floor and from those below
    0: {"checks", "reference", "functional", "masks", "cache"},
    1: {"modules", "cost", "data"},
    2: {"experiment_checks", "mixing", "projections", "sharing", "pieces"}  # for the exercises
    | {"lending", "encoder", "pretrained", "heads", "digits", "spelling", "sparse"}
    | {"threads", "progress", "memory"},
    3: {"figures", "diagrams"},
    4: {"exercises", "quizzes", "widgets"},
}
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names}
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
    if path != ROOT / "__init__.py"
}


def floor(module):
    return FLOOR_OF[module.split(".")[0]]


def imported(path):
    """The modules of mhalib that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name} has a relative import: write it in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, _, module = name.partition(".")
            if package == "mhalib":  # the longest part that is a file; the rest is a name in it
                while module not in FILES and "." in module:
                    module = module.rpartition(".")[0]
                assert module in FILES, f"{path.name} imports {name}: import it from its own file"
                yield module


def lines_of_code(path):
    """Lines that are not blank, a comment or a docstring."""
    source = path.read_text(encoding="utf-8")
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent | {tokenize.ENDMARKER}:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def test_every_file_has_a_floor():
    assert {module.split(".")[0] for module in FILES} <= set(FLOOR_OF)


@pytest.mark.parametrize("module", FILES)
def test_imports_come_from_no_higher_floor(module):
    for other in imported(FILES[module]):
        assert floor(other) <= floor(module), f"{module} imports {other}"


def test_no_imports_in_a_circle():
    TopologicalSorter({module: set(imported(path)) for module, path in FILES.items()}).prepare()


def test_a_broken_rule_is_seen(tmp_path):
    path = tmp_path / "masks.py"
    path.write_text("def f():\n    from mhalib.modules import MultiHeadAttention\n")
    assert list(imported(path)) == ["modules"]
    assert floor("modules") > floor("masks")
    path.write_text(
        '"""Doc\nstring."""\n\n# comment\nx = """a\nb"""\n\n\ndef f():\n    """No."""\n'
    )
    assert lines_of_code(path) == 3


def test_the_library_that_people_read_is_small():
    below = {module: lines_of_code(path) for module, path in FILES.items() if floor(module) < 2}
    assert sum(below.values()) < 1000, below


@pytest.mark.parametrize("module", [module for module in FILES if floor(module) >= 2])
def test_no_file_above_is_large(module):
    assert lines_of_code(FILES[module]) <= 400


def fresh_python(code):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT.parent)
    return done.stdout.split()


def test_importing_mhalib_is_quick_and_loads_no_torch():
    code = (
        "import sys, time; start = time.perf_counter(); import mhalib;"
        "print(time.perf_counter() - start, *sys.modules)"
    )
    runs = [fresh_python(code) for _ in range(3)]
    assert not {"torch", "matplotlib"} & set(runs[0])
    assert min(float(run[0]) for run in runs) < 0.2


def test_numpy_alone_is_enough_for_the_oracle():
    loaded = fresh_python("import sys, mhalib.reference; print(*sys.modules)")
    assert not {"torch", "matplotlib"} & set(loaded)


@pytest.mark.parametrize("name", mhalib.__all__)
def test_every_public_name_is_there_and_documented(name):
    found = getattr(mhalib, name)
    assert name in dir(mhalib)
    if name != "__version__":
        assert inspect.getdoc(found)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'mhalib' has no attribute 'split_head'"):
        mhalib.split_head  # noqa: B018


def public_functions():
    """Functions, and methods of classes, that floors 0 and 1 define and do not hide."""
    low = [name for name in FILES if floor(name) <= 1 and name != "checks"]
    for module in [import_module(f"mhalib.{name}") for name in low]:
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(thing):
                yield f"{module.__name__}.{name}", thing
            elif inspect.isclass(thing):
                for method, function in inspect.getmembers(thing):
                    if method in vars(thing) and callable(function) and method[0] != "_":
                        yield f"{module.__name__}.{name}.{method}", function


PUBLIC = {name: thing for name, thing in public_functions() if not name.endswith(".extra_repr")}


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_say_what_goes_in_what_comes_out_and_what_is_refused(name):
    function = PUBLIC[name]
    text = inspect.getdoc(function)
    takes_arguments = set(inspect.signature(function).parameters) - {"self"}
    assert re.search("^Args", text, re.M) or not takes_arguments
    assert re.search("^Returns:", text, re.M)
    assert re.search("^Raises:|^Args, raises", text, re.M) or not takes_arguments
    for argument in takes_arguments:
        assert "Args, raises and source: as" in text or re.search(rf"\b{argument}\b", text)
    if re.search(r"\b(array|tensor)\b", text, re.I):
        assert re.search(r"\((?=[^)]*,)[a-z_., *]+\)", text), "no shape, such as (batch, seq_len)"
