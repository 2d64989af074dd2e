"""solution(): the reference's own source, without what a learner need not write."""

import ast
import inspect
import re
import sys
import textwrap
from types import FunctionType, ModuleType

from mhalib.exercises.catalogue import find
from mhalib.exercises.results import SolutionCard


def solution(name):
    """Show the source of the reference in `mhalib`, without its docstring and argument checks.

    Args:
        name: of the exercise, such as "softmax".

    Returns:
        A card that shows the source, with the private helpers it calls below it.
    """
    exercise = find(name)
    reference = exercise.reference
    parts = [_clean(reference), *(_clean(helper, docstring=True) for helper in _helpers(reference))]
    home = f"{reference.__module__}.{reference.__qualname__}"
    return SolutionCard(name, home, "\n\n\n".join(parts), exercise.solution_note)


def solved_source(name):
    """The text of a stub's cell, solved: the reference under the exercise's name, and its imports.

    Args:
        name: of the exercise, such as "softmax".

    Returns:
        Source text that runs by itself.
    """
    exercise = find(name)
    reference = exercise.reference
    helpers = _helpers(reference)
    imports = _imports([reference, *helpers])
    parts = [_clean(helper, docstring=True) for helper in helpers]
    parts.append(_clean(reference, called=exercise.name))
    return "\n\n\n".join(["\n".join(imports), *parts] if imports else parts)


def _clean(thing, *, docstring=False, called=None):
    """Source of a function or class without its checks; with `called`, under that name."""
    source = textwrap.dedent(inspect.getsource(thing))
    tree = ast.parse(source)
    lines = source.splitlines()
    for first, last, replacement in sorted(_edits(tree.body, docstring), reverse=True):
        indent = re.match(r"\s*", lines[first - 1]).group()
        lines[first - 1 : last] = [indent + replacement] if replacement else []
    text = "\n".join(lines)
    if called and called != thing.__name__:
        text = re.sub(rf"(?<![.\w]){thing.__name__}(?=\()", called, text)
    text = re.sub(r"(:\n)\n+", r"\1", text)  # the blank line under what was removed
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _edits(body, keep_docstrings):
    """(first line, last line, replacement) for the statements that go away."""
    edits = []
    for statement in body:
        if _is_check(statement):
            edits.append((statement.lineno, statement.end_lineno, ""))
            continue
        for block in _blocks(statement):
            documented = isinstance(statement, (ast.FunctionDef, ast.ClassDef))
            has_docstring = documented and ast.get_docstring(statement) is not None
            rest = block[1:] if has_docstring and block is statement.body else block
            if rest and all(_is_check(inner) for inner in rest):
                edits.append((rest[0].lineno, rest[-1].end_lineno, "pass"))
            else:
                edits += _edits(rest, keep_docstrings)
            if rest is not block and not keep_docstrings:
                edits.append((block[0].lineno, block[0].end_lineno, "" if rest else "pass"))
    return edits


def _blocks(statement):
    """The lists of statements inside a compound statement."""
    blocks = [getattr(statement, part, None) for part in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", ())]
    return [block for block in blocks if block and isinstance(block, list)]


def _is_check(statement):
    """A `checks.…(...)` statement, or a compound statement that holds nothing else."""
    if isinstance(statement, (ast.If, ast.For, ast.With)):
        return all(_is_check(inner) for block in _blocks(statement) for inner in block)
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and isinstance(statement.value.func.value, ast.Name)
        and statement.value.func.value.id in ("checks", "experiment_checks")
    )


def _globals_used(thing):
    """name -> value of the module's names that the cleaned source uses, in order of appearance."""
    module = vars(sys.modules[thing.__module__])
    nodes = ast.walk(ast.parse(_clean(thing)))
    found = [node.id for node in nodes if isinstance(node, ast.Name) and node.id in module]
    return {name: module[name] for name in found if name != thing.__name__}


def _helpers(thing, known=()):
    """Private functions of the same module that `thing` calls, and those that they call."""
    helpers = []
    for name, value in _globals_used(thing).items():
        if _is_helper(name, value, thing) and value not in (*known, *helpers):
            helpers.append(value)
            helpers += _helpers(value, (*known, *helpers))
    return list(dict.fromkeys(helpers))


def _is_helper(name, value, thing):
    private = name.startswith("_") and isinstance(value, FunctionType)
    return private and value.__module__ == thing.__module__


def _imports(things):
    """Import lines for every name that the sources use and do not define."""
    lines, known = set(), {thing.__name__ for thing in things}
    for thing in things:
        for name, value in _globals_used(thing).items():
            if name not in known and not _is_helper(name, value, thing):
                lines.add(_import_line(name, value, thing.__module__))
    return _in_order(lines)


def _import_line(name, value, home):
    if not isinstance(value, ModuleType):
        origin = getattr(value, "__module__", home) or home
        return f"from {origin} import {name}"
    parent, _, leaf = value.__name__.rpartition(".")
    if leaf == name:
        return f"from {parent} import {name}" if parent else f"import {name}"
    return f"import {value.__name__} as {name}"


def _in_order(lines):
    """Standard library, then other packages, then mhalib, with a blank line between."""
    groups = [[], [], []]
    for line in sorted(lines, key=lambda line: (line.startswith("from"), line)):
        package = line.split()[1].split(".")[0]
        place = 2 if package == "mhalib" else 0 if package in sys.stdlib_module_names else 1
        groups[place].append(line)
    return "\n\n".join("\n".join(group) for group in groups if group).splitlines()
