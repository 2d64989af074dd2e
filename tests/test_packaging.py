"""The two lists of packages agree, every version is pinned, and the targets speak up."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAMES = {"torch": "pytorch"}
REQUIREMENT = re.compile(r"^\s*- ([A-Za-z0-9_.-]+) *([><=][^#\s]*)?", re.MULTILINE)


def pip_requirements():
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for requirement in chain.from_iterable(groups):
        name, bound = re.fullmatch(r"([A-Za-z0-9_.-]+)(.*)", requirement).groups()
        yield name, bound


def test_environment_yml_lists_the_same_packages_with_the_same_bounds():
    listed = dict(REQUIREMENT.findall((ROOT / "environment.yml").read_text(encoding="utf-8")))
    assert listed.pop("python") == PROJECT["requires-python"]
    for not_ours in ("conda-forge", "pip", "--editable"):
        listed.pop(not_ours, None)
    assert listed == {CONDA_NAMES.get(name, name): bound for name, bound in pip_requirements()}


def test_constraints_pin_every_package_once_per_marker():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([a-z0-9-]+)==([^ ;]+)( ; .+)?", line) for line in lines]
    assert all(pins), [line for line, pin in zip(lines, pins, strict=True) if not pin]
    versions = {pin[1]: pin[2] for pin in pins}
    assert versions["torch"] == "2.13.0"
    assert {name for name, _ in pip_requirements()} <= versions.keys()


def test_installed_versions_are_the_pinned_ones():
    from importlib.metadata import version

    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for name in ("torch", "nbval", "pytest"):
        assert f"{name}=={version(name).split('+')[0]}" in pinned


def test_windows_lines_are_those_behind_make_test():
    def flags(text):
        return re.search(r"-m pytest.*?(--nbval.*)", text)[1].split()

    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    behind_make = re.search(r"NOTEBOOK_TESTS := (.*)", makefile)[1].split()
    for name in ("README.md", ".github/workflows/tests.yml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert flags(text) == [*behind_make, "-m", '"not', 'thorough"']


def test_the_workflow_runs_three_systems_and_two_pythons():
    text = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    assert "os: [ubuntu-latest, macos-latest, windows-latest]" in text
    assert 'python: ["3.11", "3.14"]' in text


needs_make = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


def run_make(folder, *arguments):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return subprocess.run(
        ["make", "lab", *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )


def python_that(folder, *, version="Python 3.12.0", fails_at=()):
    """A stand-in for an interpreter: fails where the command line holds one of `fails_at`."""
    script = folder / "python-stand-in"
    patterns = "".join(f'case "$*" in *"{text}"*) exit 1;; esac\n' for text in fails_at)
    script.write_text(f'#!/bin/sh\n{patterns}[ "$1" = --version ] && echo "{version}"\nexit 0\n')
    script.chmod(0o755)
    return script


@needs_make
def test_make_lab_names_a_python_that_is_missing(tmp_path):
    result = run_make(tmp_path, "PYTHON=python-nowhere")
    assert result.returncode != 0
    assert "No 'python-nowhere' was found" in result.stdout


@needs_make
def test_make_lab_says_that_python_is_too_old(tmp_path):
    old = python_that(tmp_path, version="Python 3.9.1", fails_at=["sys.version_info"])
    result = run_make(tmp_path, f"PYTHON={old}")
    assert result.returncode != 0
    assert "needs Python 3.11 or newer, but" in result.stdout
    assert "is Python 3.9.1" in result.stdout


@needs_make
def test_make_lab_says_that_venv_is_missing(tmp_path):
    bare = python_that(tmp_path, fails_at=["ensurepip"])
    result = run_make(tmp_path, f"PYTHON={bare}")
    assert result.returncode != 0
    assert "has no venv module" in result.stdout
    assert not (tmp_path / ".venv").exists()


@needs_make
def test_make_lab_uses_an_active_environment_as_it_is(tmp_path):
    (tmp_path / "jupyter").write_text('#!/bin/sh\necho "jupyter $@"\n')
    (tmp_path / "jupyter").chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    result = subprocess.run(
        ["make", "lab", "ACTIVE=1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert "notebooks/00_start_here.ipynb" in result.stdout
    assert not (tmp_path / ".venv").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="the script is for bash")
def test_ci_runs_the_readmes_command():
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert script.splitlines()[-1] == "make test"
    assert "\nmake test\n" in (ROOT / "README.md").read_text(encoding="utf-8")
