"""Everything the course reads from `data/`: found, checked against its checksum, loaded."""

import hashlib
from functools import cache
from pathlib import Path

import numpy as np


def data_dir():
    """The folder of the course's data.

    Returns:
        A Path: inside the installed package, or beside it in a checkout.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_data"
    return installed if installed.is_dir() else package.parent / "data"


def path(name):
    """Find a data file and compare its bytes with `SHA256SUMS`.

    Args:
        name: the file's name in `data/`, such as "glove-6b-50d-10k.npz".

    Returns:
        A Path to it.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: the file is damaged, or `SHA256SUMS` does not list it.
    """
    folder = data_dir()
    _verify(folder, name)
    return folder / name


def word_vectors():
    """GloVe 6B, 50 numbers a word, for its 10,000 most frequent words.

    Returns:
        (words, vectors): a list of 10,000 words, most frequent first, and a float32 array of shape
        (10000, 50) with one word a row. Both are yours to change: the next call returns fresh ones.

    Raises:
        FileNotFoundError, ValueError: the file is missing or damaged, with how to mend it.

    Source: Pennington, Socher and Manning 2014; `data/README.md` says how the file was made.
    """
    words, vectors = _word_vectors(path("glove-6b-50d-10k.npz"))
    return list(words), vectors.astype(np.float32)


@cache
def _word_vectors(file):
    with np.load(file, allow_pickle=False) as arrays:
        return tuple(arrays["words"].tobytes().decode("utf-8").split("\n")), arrays["vectors"]


@cache
def _verify(folder, name):
    """Once a process and file: read it whole and compare."""
    expected = _checksums(folder).get(name)
    if expected is None:
        raise ValueError(f"name={name!r} is not listed in {folder / 'SHA256SUMS'}")
    file = folder / name
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing. {_how_to_mend(folder, name)}")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != expected:
        raise ValueError(
            f"{file} is damaged: its sha256 is {found}, but {expected} was expected. "
            f"{_how_to_mend(folder, name)}"
        )


def _checksums(folder):
    """File names and their sha256, from a `SHA256SUMS` as the command `sha256sum` writes it."""
    file = folder / "SHA256SUMS"
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing. {_how_to_mend(folder, file.name)}")
    lines = file.read_text(encoding="utf-8").splitlines()
    return {name.lstrip("*"): digest for digest, name in (line.split(maxsplit=1) for line in lines)}


def _how_to_mend(folder, name):
    if folder.name == "_data":
        return (
            "Reinstall mhalib: `python -m pip install --force-reinstall --no-deps .` in the "
            "course's folder"
        )
    return (
        f"Bring it back with `git checkout -- data/{name}`; data/README.md also gives the command "
        "that rebuilds it"
    )
