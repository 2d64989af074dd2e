"""Execute the lessons and save their outputs, or build the solved edition.

    python tools/notebooks.py execute [NOTEBOOK ...]              all lessons unless some are named
    python tools/notebooks.py solutions [--out DIR] [NOTEBOOK ...]

Neither overwrites anybody's work: `execute` refuses a lesson with changes that git does not hold,
`solutions` refuses a file with other cells than it would write, both unless told `--overwrite`.
A notebook is written only after all its cells ran, in one step, and the same cells give the same
file: no timings, no widget state, no metadata but the kernel's name and the cells' tags.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SECONDS_PER_CELL = 600


class NotSavedError(Exception):
    """A notebook was not written; the text says why."""


def execute(paths, *, overwrite=False):
    """Run each notebook top to bottom and save it in place. Returns what went wrong, as texts."""
    problems = [] if overwrite else list(filter(None, map(uncommitted, paths)))
    if problems:  # before the first one runs
        advice = (
            "Commit your changes first, or move your copy elsewhere; --overwrite replaces them."
        )
        return [*problems, f"Nothing was executed. {advice}"]
    for path in paths:
        try:
            before = path.read_bytes()
            notebook = nbformat.reads(before.decode("utf-8"), as_version=4)
            run(notebook, path.stem, path.parent)
            if path.read_bytes() != before:
                raise NotSavedError(
                    "it was saved by someone else meanwhile; that file was left alone"
                )
            write(notebook, path)
        except NotSavedError as reason:
            problems.append(f"{path.name}: {reason}")
    return problems


def uncommitted(path):
    """Why a notebook may hold work that git cannot bring back; None if git holds all of it."""
    command = [
        "git",
        "-C",
        path.parent,
        "--no-optional-locks",
        "status",
        "--porcelain",
        "--ignored",
    ]
    try:
        status = subprocess.run([*command, "--", path.name], capture_output=True, text=True)
    except FileNotFoundError:
        return f"{path.name}: git is not installed, so nobody knows whether it holds changes."
    if status.returncode:
        said = status.stderr.strip().partition("\n")[0]
        return f"{path.name}: git cannot tell whether it holds changes ({said})."
    if status.stdout.startswith(("??", "!!")):
        return f"{path.name} is not under git's control, so its contents could not be brought back."
    if status.stdout:
        return f"{path.name} has changes that are not committed."
    return None


def solutions(paths, out, *, overwrite=False):
    """Fill every stub from its reference, run in strict mode, save in `out`; else as `execute`."""
    problems = []
    edition = [(path, out / path.name, solved(path)) for path in paths]
    for path, target, notebook in edition:
        if target.resolve() == path.resolve():
            return [f"{target} is the lesson itself; name another folder with --out."]
        if not overwrite and target.exists() and cells_of(target) != cells(notebook):
            problems.append(f"{target} differs from what would be written; it may be your work.")
    if problems:
        advice = "Move these files elsewhere, or name another folder with --out"
        return [*problems, f"Nothing was written. {advice}; --overwrite replaces them."]
    out.mkdir(parents=True, exist_ok=True)
    for _, target, notebook in edition:
        try:
            run(notebook, f"{target.stem} solved", out, MHALIB_STRICT="1")
            write(notebook, target)
        except NotSavedError as reason:
            problems.append(f"{target.name}: {reason}")
    return problems


def solved(path):
    """The notebook with the functions of the cells tagged so replaced by their references."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if {"exercise", "wrong-attempt"} & set(cell.metadata.get("tags", [])):
            cell.source = with_solution(cell.source)
    return notebook


def with_solution(source):
    """A cell's source with the one function or class it defines replaced; other lines stay."""
    from mhalib.exercises import solved_source

    kinds = (ast.FunctionDef, ast.ClassDef)
    found = [node for node in ast.parse(source).body if isinstance(node, kinds)]
    if len(found) != 1:
        raise ValueError(f"an exercise's cell must define one function or class:\n{source}")
    lines = source.splitlines()
    lines[found[0].lineno - 1 : found[0].end_lineno] = [solved_source(found[0].name)]
    return "\n".join(lines)


def cells(notebook):
    return [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in notebook.cells]


def cells_of(path):
    try:
        return cells(nbformat.read(path, as_version=4))
    except Exception:  # whatever it is, we did not write it
        return None


def run(notebook, name, folder, **variables):
    """Execute all cells in a fresh kernel and leave stable metadata and outputs behind."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    environment = {k: v for k, v in os.environ.items() if k != "MHALIB_STRICT"} | variables
    with tqdm(total=len(code), desc=name, unit="cell") as bar:
        client = NotebookClient(
            notebook,
            timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            record_timing=False,
            store_widget_state=True,  # without it, output inside a widget fails; stripped below
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
            on_cell_executed=lambda **_: bar.update(),
        )
        try:
            client.execute(env=environment)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise NotSavedError(f"not saved, since a cell failed.\n{error}") from None
    stabilise(notebook)


def stabilise(notebook):
    """Leave nothing in the notebook that changes from one execution to the next."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        for n, output in enumerate(cell.get("outputs", [])):
            if WIDGET_VIEW in output.get("data", {}):  # its id is random, and no state is kept
                stable_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{cell.id} {n}").hex
                output.data[WIDGET_VIEW]["model_id"] = stable_id


def write(notebook, path):
    """Write all of the file or nothing."""
    text = nbformat.writes(notebook).rstrip("\n") + "\n"
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    if path.exists():
        shutil.copymode(path, temporary)
    os.replace(temporary, path)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("execute", help="run lessons in place and save their outputs")
    commands.add_parser("solutions", help="build and check the solved edition").add_argument(
        "--out", type=Path, default=ROOT / "solutions", metavar="DIR", help="default: solutions/"
    )
    for command in commands.choices.values():
        command.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK")
        command.add_argument("--overwrite", action="store_true", help="replace changed files")
    options = parser.parse_args(arguments)
    paths = options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        if not path.is_file():
            parser.error(f"there is no file {path}")
    if options.command == "execute":
        problems = execute(paths, overwrite=options.overwrite)
    else:
        problems = solutions(paths, options.out, overwrite=options.overwrite)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
