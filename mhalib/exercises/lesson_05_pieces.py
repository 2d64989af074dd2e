"""The exercise of lesson 05 that goes from pieces of words to words."""

import torch

from mhalib import heads
from mhalib.exercises.catalogue import Case, Exercise, Slip
from mhalib.exercises.lesson_04 import normal


def _given(*leading, words, seed=0, dtype=torch.float32):
    """Attention maps over len(words) tokens, and the word of each token."""
    n = len(words)
    weights = normal((*leading, n, n), seed=seed, dtype=dtype)[0].softmax(dim=-1)
    return weights, torch.tensor(words)


def _columns_first(weights, word_of_token):
    return weights.mT.contiguous().mT, word_of_token


def _two_words():
    """Numbers that can be added up by eye."""
    rows = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]
    return torch.tensor([[rows]]), torch.tensor([0, 1, 1])


def _pieces(word_of_token):
    """(n, words): 1 where the token is a piece of the word."""
    return (word_of_token[:, None] == torch.arange(int(word_of_token.max()) + 1)).float()


def _mean(pieces):
    return pieces / pieces.sum(dim=0)


def _first(pieces):
    return pieces * (pieces.cumsum(dim=0) == 1)


def _last(pieces):
    return _first(pieces.flip(0)).flip(0)


def _between(*, to=lambda pieces: pieces, of=_mean, words=_pieces, last=lambda x: x):
    """A slip: word attention in which one of the steps is done another way."""

    def wrong(weights, word_of_token):
        pieces = words(word_of_token).to(weights.dtype)
        return last(of(pieces).mT @ (weights @ to(pieces)))

    return wrong


def _largest(weights, word_of_token):
    pieces = _pieces(word_of_token).to(weights.dtype)
    return _mean(pieces).mT @ (weights[..., None] * pieces).amax(dim=-2)


def _one_off_each_end(weights, word_of_token):
    return _between()(weights[..., 1:-1, 1:-1], word_of_token[1:-1])


_word_attention = Exercise(
    name="word_attention",
    lesson="05",
    minutes=12,
    difficulty=3,
    framework="torch",
    contract=(
        "word_attention(weights, word_of_token): (..., n, n) attention between tokens, and (n,) "
        "integer tensor: the number of each token's word, counted from 0, -1 for a token of no "
        "word such as [CLS] and [SEP], wherever it stands\n"
        "-> (..., words, words) tensor, words in order: to a word, the sum over its pieces; from "
        "a word, the mean over its pieces. Tokens of no word drop out, so a row may sum to less "
        "than 1. Every word has a piece; gradients reach weights"
    ),
    arguments=("weights", "word_of_token"),
    reference=heads.word_attention,
    cases=(
        Case("three words of one piece", lambda: _given(1, 1, words=[0, 1, 2])),
        Case(
            "one word of one piece, and two tokens of none", lambda: _given(1, 1, words=[-1, 0, -1])
        ),
        Case("two words, the second of two pieces", _two_words),
        Case("one word of three pieces", lambda: _given(1, 1, words=[0, 0, 0], seed=1)),
        Case(
            "[CLS], a word of three pieces, a word of one, [SEP]",
            lambda: _given(1, 1, words=[-1, 0, 0, 0, 1, -1], seed=2),
        ),
        Case(
            "a [SEP] in the middle as well",
            lambda: _given(1, 1, words=[-1, 0, 1, 1, -1, 2, 2, 3, -1], seed=3),
        ),
        Case(
            "two layers of three heads",
            lambda: _given(2, 3, words=[-1, 0, 1, 1, 2, 3, 3, 3, 4, -1], seed=4),
        ),
        Case("as many heads as tokens", lambda: _given(2, 4, words=[-1, 0, 0, 1], seed=5)),
        Case(
            "one map, without axes for layers and heads",
            lambda: _given(words=[-1, 0, 1, 1, -1], seed=6),
        ),
        Case(
            "weights that do not lie side by side in memory",
            lambda: _columns_first(*_given(2, 2, words=[-1, 0, 0, 1, 2, 2, -1], seed=7)),
        ),
        Case("float64", lambda: _given(2, 2, words=[-1, 0, 1, 1, -1], seed=8, dtype=torch.float64)),
        Case(
            "gradients in float64",
            lambda: _given(2, 2, words=[-1, 0, 1, 1, 1, -1], seed=9, dtype=torch.float64),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            _between(to=_mean),
            "the weights to the pieces of a word were averaged; what a word receives is what all "
            "its pieces receive together",
            "add up over the pieces of the word attended to, the columns",
        ),
        Slip(
            _between(of=lambda pieces: pieces),
            "the rows of a word's pieces were added up, so a word of two pieces attends twice as "
            "much",
            "take the mean over the pieces of the word that asks, the rows",
        ),
        Slip(
            _between(to=_mean, of=lambda pieces: pieces),
            "sum and mean changed places: the rows were added up and the columns averaged",
            "sum over the columns (the pieces attended to), mean over the rows (those that ask)",
        ),
        Slip(
            _between(to=_first, of=_first),
            "only the first piece of each word was used, for rows and for columns",
            "use all pieces: the sum of their columns, the mean of their rows",
        ),
        Slip(
            _between(to=_first),
            "of the word attended to, only the first piece was counted",
            "add up the columns of all its pieces",
        ),
        Slip(
            _between(of=_first),
            "of the word that asks, only the first piece was used",
            "take the mean of the rows of all its pieces",
        ),
        Slip(
            _between(to=_last, of=_last),
            "only the last piece of each word was used, for rows and for columns; perhaps each "
            "piece took the place of the one before",
            "use all pieces: the sum of their columns, the mean of their rows",
        ),
        Slip(
            _between(to=_last),
            "of the word attended to, only the last piece was counted; perhaps each piece took the "
            "place of the one before",
            "add the columns of all its pieces up",
        ),
        Slip(
            _between(of=_last),
            "of the word that asks, only the last piece was used; perhaps each piece took the "
            "place of the one before",
            "take the mean of the rows of all its pieces",
        ),
        Slip(
            _largest,
            "of the pieces attended to, only the one with the largest weight was counted",
            "add them up: sum in the place of max",
        ),
        Slip(
            _between(of=lambda pieces: pieces / len(pieces)),
            "the rows were divided by the number of all tokens, not by the number of the word's "
            "pieces",
            "divide each word's sum by how many pieces it has",
        ),
        Slip(
            _between(words=lambda words: (words[:, None] == torch.unique(words)).float()),
            "the tokens of no word were made into a word of their own, number -1",
            "leave the tokens with -1 out: number the words from 0",
        ),
        Slip(
            _between(words=lambda words: torch.eye(int(words.max()) + 1)[words]),
            "used as an index, -1 counts from the end: [CLS] and [SEP] became pieces of the last "
            "word",
            "leave the tokens with -1 out before you index with word_of_token",
        ),
        Slip(
            _between(words=lambda words: _pieces(words.clamp(min=0))),
            "[CLS] and [SEP] became pieces of the first word",
            "leave the tokens with -1 out",
        ),
        Slip(
            _one_off_each_end,
            "the first and the last token were cut off; which tokens belong to no word is what -1 "
            "says",
            "go by word_of_token, not by place: keep the tokens where it is 0 or more",
        ),
        Slip(
            _between(last=lambda x: x.mT),
            "rows and columns are swapped: a row is to hold the weights of the word that asks",
            "leave the last transpose out, or swap the two axes",
        ),
        Slip(
            _between(last=lambda x: x / x.sum(dim=-1, keepdim=True)),
            "the rows were stretched to sum to 1; what went to [CLS] and [SEP] is to be missing",
            "leave that division out",
        ),
        Slip(
            _between(last=lambda x: x.flip(-2, -1)),
            "the words stand in reverse order",
            "let word 0 be the first row and the first column",
        ),
        Slip(
            _between(of=lambda pieces: torch.eye(len(pieces), dtype=pieces.dtype)),
            "only the columns were brought together: there is still a row for each token",
            "take the mean over the rows of each word's pieces as well",
        ),
        Slip(
            _between(to=lambda pieces: torch.eye(len(pieces), dtype=pieces.dtype)),
            "only the rows were brought together: there is still a column for each token",
            "add up the columns of each word's pieces as well",
        ),
    ),
    hints=(
        "Two steps, one for each axis. Columns are what is attended to: a word receives what all "
        "its pieces receive, their sum. Rows are what asks: a word asks as its pieces do on "
        "average.",
        "Which tokens are pieces of word w? word_of_token == w is True there, and tokens of no "
        "word (-1) are never chosen. weights[..., word_of_token == w].sum(dim=-1) is one column.",
        "Put the columns side by side with torch.stack(…, dim=-1), which leaves one row for each "
        "token. Then do the same with the rows, x[..., word_of_token == w, :].mean(dim=-2), and "
        "stack these with dim=-2.",
        "Without a loop: pieces = (word_of_token[:, None] == torch.arange(words)) is a table "
        "(n, words); as numbers, weights @ pieces adds up columns, and the transposed table, "
        "each word's pieces divided by their number, averages rows.",
    ),
    solution_note="It also serves words without any piece, whose rows and columns are 0.",
)

EXERCISES = (_word_attention,)
