"""The data files: found, whole, and mended when they are not."""

import hashlib
import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

from mhalib import data
from mhalib.reference import cosine_similarity

VECTORS = "glove-6b-50d-10k.npz"


@pytest.fixture(scope="module")
def vector_of():
    words, vectors = data.word_vectors()
    return dict(zip(words, vectors, strict=True))


@pytest.fixture
def copied_data(tmp_path, monkeypatch):
    """A copy of the data folder that a test may damage."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("SHA256SUMS", VECTORS):
        shutil.copy(data.data_dir() / name, folder)
    monkeypatch.setattr(data, "data_dir", lambda: folder)
    return folder


def test_words_and_vectors_fit():
    words, vectors = data.word_vectors()
    assert words[:4] == ["the", ",", ".", "of"]
    assert len(words) == len(set(words)) == 10_000
    assert vectors.shape == (10_000, 50)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1).min() > 2


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("cat dog", 0.922),
        ("cat car", 0.364),
        ("king queen", 0.784),
        ("paris france", 0.803),
        ("good bad", 0.796),
        ("doctor nurse", 0.798),
        ("bank river", 0.414),
        ("bank money", 0.636),
        ("monday tuesday", 0.998),
    ],
)
def test_cosines_are_those_of_glove(vector_of, pair, expected):
    a, b = pair.split()
    assert cosine_similarity(vector_of[a], vector_of[b]) == pytest.approx(expected, abs=0.001)


def test_each_caller_gets_words_and_vectors_of_its_own():
    words, vectors = data.word_vectors()
    words[0], vectors[0] = "changed", 0.0
    words, vectors = data.word_vectors()
    assert words[0] == "the"
    assert vectors[0].any()


def test_the_script_writes_the_shipped_bytes(tmp_path):
    spec = importlib.util.spec_from_file_location(
        "script", data.data_dir() / "make_word_vectors.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.write(tmp_path / VECTORS, *data.word_vectors())
    assert (tmp_path / VECTORS).read_bytes() == (data.data_dir() / VECTORS).read_bytes()


def test_every_data_file_is_listed_with_its_checksum():
    listed = dict(
        reversed(line.split(maxsplit=1))
        for line in (data.data_dir() / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    )
    texts = {".md", ".toml", ".py"}
    files = {
        file.relative_to(data.data_dir()).as_posix(): file
        for file in data.data_dir().rglob("*")
        if file.is_file() and file.suffix not in texts and "__pycache__" not in file.parts
    }
    del files["SHA256SUMS"]
    assert set(listed) == set(files)
    for name, file in files.items():
        assert hashlib.sha256(file.read_bytes()).hexdigest() == listed[name]
        assert data.path(name) == file


def test_a_damaged_file_is_named_with_how_to_mend_it(copied_data):
    content = bytearray((copied_data / VECTORS).read_bytes())
    content[500_000] ^= 1
    (copied_data / VECTORS).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{VECTORS} is damaged.*git checkout -- data/{VECTORS}"):
        data.word_vectors()


def test_a_mended_file_is_accepted_in_the_same_process(copied_data):
    whole = (copied_data / VECTORS).read_bytes()
    (copied_data / VECTORS).write_bytes(whole[:1000])
    with pytest.raises(ValueError, match="damaged"):
        data.word_vectors()
    (copied_data / VECTORS).write_bytes(whole)
    assert len(data.word_vectors()[0]) == 10_000


@pytest.mark.parametrize("name", [VECTORS, "SHA256SUMS"])
def test_a_missing_file_is_named_with_how_to_mend_it(copied_data, name):
    (copied_data / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name} is missing.*git checkout -- data/{name}"):
        data.word_vectors()


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"name='no-such-file' is not listed in .*SHA256SUMS"):
        data.path("no-such-file")


def test_an_installed_package_reads_its_own_copy(tmp_path, monkeypatch):
    installed = tmp_path / "mhalib" / "_data"
    shutil.copytree(data.data_dir(), installed)
    monkeypatch.setattr(data, "__file__", str(installed.parent / "data.py"))
    assert data.data_dir() == installed.resolve()
    assert data.path(VECTORS) == installed.resolve() / VECTORS
    Path(installed, VECTORS).unlink()
    data._verify.cache_clear()
    with pytest.raises(FileNotFoundError, match="Reinstall mhalib"):
        data.path(VECTORS)
