"""Everything the course reads from `data/`: found, checked against its checksum, loaded."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from mhalib import checks

_SPLITS = ("dev", "test")


@dataclass(frozen=True)
class Word:
    """One word of a sentence, with its place in the sentence's tree. Positions count from 0.

    Fields:
        form: the word as it stands: "teacher", "n't", "'s", ".".
        upos: its word class in Universal Dependencies: "NOUN", "VERB", "DET", ...
        head: position of the word it depends on; None for the root of the sentence.
        relation: how it depends on it: "obj", "det", "nsubj", "nsubj:pass", "nmod:poss", ...
        antecedent: position of the word a pronoun stands for; None where that is not marked.
    """

    form: str
    upos: str
    head: int | None
    relation: str
    antecedent: int | None = None


@dataclass(frozen=True)
class Sentence:
    """A sentence as it is written, and its words."""

    text: str
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Context:
    """A sentence that uses an ambiguous word in one of its two senses."""

    word: str
    sense: str
    sentence: str


@dataclass(frozen=True)
class Triple:
    """A sentence, the same event told the other way round, and that with the roles swapped."""

    anchor: str
    right: str
    wrong: str


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


def sentences(split):
    """English sentences written for this course, with their trees.

    Args:
        split: "dev" to choose on (75 sentences), "test" to report on (75 others).

    Returns:
        A list of `Sentence`.

    Raises:
        ValueError: `split` is something else.
        FileNotFoundError, ValueError: the file is missing or damaged, with how to mend it.
    """
    checks.one_of(_SPLITS, split=split)
    return read_conllu(path(f"sentences-{split}.conllu"))


def read_conllu(file):
    """The sentences of a treebank in CoNLL-U, such as a file of Universal Dependencies.

    Args:
        file: a path. Lines for multiword tokens and empty nodes are left out: "don't" is the two
            words "do" and "n't". An antecedent is read from MISC, `Antecedent=ID`.

    Returns:
        A list of `Sentence`.

    Raises:
        FileNotFoundError: there is no such file.
        conllu.exceptions.ParseException: it is not CoNLL-U.
    """
    import conllu  # here, so that the word vectors need only NumPy

    with Path(file).open(encoding="utf-8") as lines:
        return [_sentence(tokens) for tokens in conllu.parse_incr(lines)]


def words_in_context(split):
    """24 ambiguous words, each in 2 senses, each of these in 2 sentences per split.

    Args:
        split: "dev" to choose on (96 sentences), "test" to report on (96 others).

    Returns:
        A list of `Context`. The word stands once in its sentence, in small letters.

    Raises:
        ValueError: `split` is something else.
        FileNotFoundError, ValueError: the file is missing or damaged, with how to mend it.
    """
    checks.one_of(_SPLITS, split=split)
    rows = _rows("words-in-context.tsv")
    return [Context(*fields) for row_split, *fields in rows if row_split == split]


def who_did_it():
    """Who did it to whom? 120 sentences with a paraphrase and its opposite.

    Returns:
        A list of `Triple`, such as ("The dog chased the fox.", "The fox was chased by the dog.",
        "The dog was chased by the fox."). The last two use the same words.

    Raises:
        FileNotFoundError, ValueError: the file is missing or damaged, with how to mend it.
    """
    return [Triple(*fields) for fields in _rows("who-did-it.tsv")]


def _sentence(tokens):
    rows = [token for token in tokens if isinstance(token["id"], int)]
    words = []
    for row in rows:
        antecedent = (row["misc"] or {}).get("Antecedent")
        words.append(
            Word(
                form=row["form"],
                upos=row["upos"],
                head=row["head"] - 1 if row["head"] else None,
                relation=row["deprel"],
                antecedent=int(antecedent) - 1 if antecedent else None,
            )
        )
    text = tokens.metadata.get("text") or " ".join(word.form for word in words)
    return Sentence(text, tuple(words))


def _rows(name):
    """The lines of a .tsv file below its header, as lists of fields."""
    lines = path(name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]


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
    return f"Bring it back with `git checkout -- data/{name}`; data/README.md says how it was made"
