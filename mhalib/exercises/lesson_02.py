"""The exercises of lesson 02, One head, in NumPy. Those in torch are in lesson_02_torch."""

import math

import numpy as np

from mhalib import reference
from mhalib.exercises.catalogue import Case, Exercise, Slip
from mhalib.reference import softmax


def _normal(*shapes, seed=0, size=1.0):
    """Arrays of normally distributed numbers, the same at every call."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape) * size for shape in shapes)


def _shares(numbers, axis=-1):
    return numbers / numbers.sum(axis=axis, keepdims=True)


def _rows_shared(x, axis):
    """The maximum of each row is subtracted, but the sum runs along another axis."""
    return _shares(np.exp(x - x.max(axis=-1, keepdims=True)), axis)


def _softmax_along(x, axis):
    """A right softmax along an axis that is chosen wrongly; None is all entries at once."""
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return _shares(exponentials, axis)


_softmax = Exercise(
    name="softmax",
    lesson="02",
    minutes=5,
    difficulty=2,
    framework="numpy",
    contract=(
        "softmax(x): (..., n) array with any number of axes -> array of the same shape; "
        "each row of the last axis is positive and sums to 1, large scores included"
    ),
    arguments=("x",),
    reference=reference.softmax,
    cases=(
        Case("one score", lambda: (np.array([2.0]),)),
        Case("one row of three scores", lambda: (np.array([1.0, 2.0, 3.0]),)),
        Case("one row with negative scores", lambda: (np.array([-1.5, 0.0, 0.5, -3.0]),)),
        Case("two rows of three scores", lambda: _normal((2, 3))),
        Case("as many rows as scores in a row", lambda: _normal((4, 4), seed=1)),
        Case("three axes", lambda: _normal((2, 3, 5), seed=2)),
        Case("scores around a thousand", lambda: (np.array([1000.0, 1001.0, 999.0]),)),
        Case("one score far above the others", lambda: (np.array([800.0, 0.0, 1.0]),)),
        Case(
            "rows of very different size",
            lambda: (np.array([[1.0, 2.0, 3.0], [-2000.0, -2001.0, -2003.0]]),),
        ),
        Case(
            "columns of very different size",
            lambda: (np.array([[2000.0, -2000.0, 1999.0], [-2000.0, 2001.0, 2000.0]]),),
        ),
        Case("rows that do not lie side by side in memory", lambda: (_normal((5, 3))[0].T,)),
        Case("float32 scores", lambda: (_normal((3, 7), seed=3)[0].astype(np.float32),)),
        Case("whole numbers", lambda: (np.array([[1, 2, 0], [4, 4, 1]]),)),
    ),
    slips=(
        Slip(
            lambda x: _shares(np.exp(x)),
            "a large score overflows in exp: exp(1000) is infinite, and infinity divided by "
            "infinity is NaN",
            "subtract the maximum of each row before exp; the shares stay the same",
        ),
        Slip(
            lambda x: _softmax_along(x, 0),
            "the softmax runs along the first axis: the columns sum to 1 where the rows should",
            "let the maximum and the sum run over the last axis: axis=-1, keepdims=True",
        ),
        Slip(
            lambda x: _softmax_along(x, 1 if x.ndim > 1 else 0),
            "for a table axis=1 is the last axis, but with three axes it is the middle one",
            "count from the end: axis=-1 is the last axis, however many there are",
        ),
        Slip(
            lambda x: _softmax_along(x, None),
            "all entries together sum to 1: the sum was taken over the whole array",
            "give the sum an axis, so that every row has its own: axis=-1, keepdims=True",
        ),
        Slip(
            lambda x: _rows_shared(x, 0),
            "the sums run along the first axis, so each column shares one",
            "let the sum run over the last axis, as the maximum does: axis=-1, keepdims=True",
        ),
        Slip(
            lambda x: _rows_shared(x, 1 if x.ndim > 1 else 0),
            "for a table axis=1 is the last axis, but with three axes it is the middle one",
            "count from the end in the sum too: axis=-1 is the last axis, however many there are",
        ),
        Slip(
            lambda x: _rows_shared(x, None),
            "the sum was taken over the whole array",
            "give the sum an axis, so that every row has its own: axis=-1, keepdims=True",
        ),
        Slip(
            lambda x: _shares(np.exp(x - x.max())),
            "the largest score of the whole array was subtracted: in a row far below exp gives 0 "
            "everywhere, and 0 / 0 is NaN",
            "subtract each row's own maximum: x.max(axis=-1, keepdims=True)",
        ),
        Slip(
            lambda x: np.exp(x - x.max(axis=-1)) / np.exp(x - x.max(axis=-1)).sum(axis=-1),
            "without keepdims=True the maxima are one flat row, lined up with the columns",
            "give max and sum keepdims=True, so that each row meets its own number",
        ),
        Slip(
            lambda x: _shares(np.exp(x - x.max(axis=-1))),
            "without keepdims=True the maxima are one flat row, lined up with the columns",
            "give max keepdims=True as well, so that each row meets its own number",
        ),
        Slip(
            lambda x: (
                np.exp(x - x.max(axis=-1, keepdims=True))
                / np.exp(x - x.max(axis=-1, keepdims=True)).sum(axis=-1)
            ),
            "without keepdims=True the sums are one flat row, lined up with the columns",
            "give the sum keepdims=True, so that each row is divided by its own number",
        ),
        Slip(
            lambda x: _shares(np.exp(x - x.max(axis=0, keepdims=True))),
            "the maximum of each column was subtracted, so a row's scores changed unequally",
            "subtract one number from a whole row: its own maximum, axis=-1",
        ),
        Slip(
            lambda x: _shares(np.exp(x - x.min(axis=-1, keepdims=True))),
            "the minimum was subtracted, so the large scores stay large and exp overflows",
            "subtract the maximum: then no score is above 0",
        ),
        Slip(
            lambda x: _shares(np.exp(x - x.mean(axis=-1, keepdims=True))),
            "the mean was subtracted, so a score far above it still overflows exp",
            "subtract the maximum: then no score is above 0",
        ),
        Slip(
            lambda x: _shares(np.abs(x)),
            "the absolute scores were divided by their sum, without exp",
            "apply np.exp first: it makes every score positive and keeps their order",
        ),
        Slip(
            lambda x: _shares(x),
            "the scores were divided by their sum, without exp",
            "apply np.exp first: it makes every score positive",
        ),
        Slip(
            lambda x: _shares(x - x.max(axis=-1, keepdims=True)),
            "the maximum was subtracted, but exp is missing",
            "apply np.exp before you divide by the sum",
        ),
        Slip(
            lambda x: np.exp(x - x.max(axis=-1, keepdims=True)),
            "the exponentials are right, but the division by the sum is missing",
            "divide each row by its own sum",
        ),
        Slip(
            lambda x: np.exp(x),
            "the exponentials are right, but the division by the sum is missing",
            "divide each row by its own sum, and subtract its maximum before exp",
        ),
        Slip(
            lambda x: np.log(softmax(x)),
            "these are the logarithms of the weights (log-softmax)",
            "return the weights themselves, without the log",
        ),
        Slip(
            lambda x: softmax(-x),
            "the sign is turned round: the lowest score gets the largest weight",
            "leave out the minus inside exp",
        ),
        Slip(
            lambda x: _shares(2.0 ** (x - x.max(axis=-1, keepdims=True))),
            "powers of 2 were taken where powers of e belong",
            "use np.exp",
        ),
        Slip(
            lambda x: 1 / (1 + np.exp(-x)),
            "this is the sigmoid: each entry by itself, so the rows do not sum to 1",
            "divide exp of each score by the sum of all exp in its row",
        ),
        Slip(
            lambda x: (x == x.max(axis=-1, keepdims=True)) * 1.0,
            "the largest score took everything (that is the argmax)",
            "use exp and the sum: the softmax gives every score a share",
        ),
    ),
    hints=(
        "First make every score positive with np.exp, then divide by the sum of the row.",
        "axis=-1 means along the last axis. keepdims=True keeps that axis with length 1, so that "
        "each row meets its own maximum or sum.",
        "Subtract x.max(axis=-1, keepdims=True) before np.exp. The weights stay the same, and "
        "exp(1000) never happens.",
    ),
)


def _with_scores(change):
    """A slip for attention_weights: the right softmax of other scores."""
    return lambda query, key: softmax(change(query, key))


def _scores(query, key):
    return query @ key.T


def _lengths(x):
    return np.linalg.norm(x, axis=-1, keepdims=True)


_attention_weights = Exercise(
    name="attention_weights",
    lesson="02",
    minutes=5,
    difficulty=2,
    framework="numpy",
    contract=(
        "attention_weights(query, key): (query_len, head_dim) and (key_len, head_dim) arrays "
        "-> (query_len, key_len) array; row i says how much query i attends to each key, sum 1"
    ),
    arguments=("query", "key"),
    reference=reference.attention_weights,
    cases=(
        Case("one query and one key", lambda: _normal((1, 3), (1, 3))),
        Case(
            "one query, three keys and a head_dim of 1",
            lambda: (np.array([[1.0]]), np.array([[0.0], [1.0], [2.0]])),
        ),
        Case(
            "one query, two keys and a head_dim of 4",
            lambda: (np.array([[1.0, 0.0, 1.0, 2.0]]), np.array([[1.0, 1, 0, 0], [0, 1.0, 1, 1]])),
        ),
        Case("three queries and five keys", lambda: _normal((3, 2), (5, 2), seed=1)),
        Case("as many queries as keys", lambda: _normal((4, 3), (4, 3), seed=2)),
        Case("queries and keys as many as their numbers", lambda: _normal((3, 3), (3, 3), seed=3)),
        Case("a head_dim of 64", lambda: _normal((5, 64), (6, 64), seed=4)),
        Case("very large scores", lambda: _normal((3, 8), (4, 8), seed=5, size=60.0)),
        Case(
            "arrays that do not lie side by side in memory",
            lambda: tuple(x.T for x in _normal((6, 3), (6, 4), seed=6)),
        ),
    ),
    slips=(
        Slip(
            _with_scores(lambda q, k: _scores(q, k)),
            "the scores were not scaled",
            "divide the scores by the square root of head_dim, query.shape[1], before the softmax",
        ),
        Slip(
            _with_scores(lambda q, k: _scores(q, k) / q.shape[1]),
            "the scores were divided by head_dim, not by its square root (or twice by the root)",
            "divide once, by math.sqrt(query.shape[1])",
        ),
        Slip(
            _with_scores(lambda q, k: _scores(q, k) * math.sqrt(q.shape[1])),
            "the scores were multiplied by the square root of head_dim",
            "divide by it: the scale is to make the scores smaller",
        ),
        Slip(
            _with_scores(lambda q, k: _scores(q, k) / math.sqrt(len(k))),
            "the scores were divided by the root of the number of keys",
            "the scale depends on how many numbers a query has: query.shape[1]",
        ),
        Slip(
            _with_scores(lambda q, k: _scores(q, k) / math.sqrt(len(q))),
            "the scores were divided by the root of the number of queries",
            "the scale depends on how many numbers a query has: query.shape[1], not query.shape[0]",
        ),
        Slip(
            lambda q, k: softmax(_scores(q, k)) / math.sqrt(q.shape[1]),
            "the weights were divided after the softmax, so the rows no longer sum to 1",
            "scale the scores first, then apply the softmax",
        ),
        Slip(
            lambda q, k: _softmax_along(_scores(q, k) / math.sqrt(q.shape[1]), 0),
            "the softmax runs over the queries: the columns sum to 1 where the rows should",
            "let the softmax run over the last axis, the keys",
        ),
        Slip(
            lambda q, k: _softmax_along(_scores(q, k) / math.sqrt(q.shape[1]), None),
            "the softmax runs over the whole table: all weights together sum to 1",
            "give every query its own softmax, over the last axis",
        ),
        Slip(
            lambda q, k: _scores(q, k) / math.sqrt(q.shape[1]),
            "these are the scaled scores; the softmax is missing",
            "apply the softmax to the scores",
        ),
        Slip(
            lambda q, k: softmax(_scores(k, q) / math.sqrt(q.shape[1])),
            "query and key changed places: row i belongs to key i",
            "write query @ key.T, so that each row belongs to a query",
        ),
        Slip(
            lambda q, k: softmax(_scores(q, k) / math.sqrt(q.shape[1])).T,
            "the weights were transposed: the columns belong to the queries",
            "leave out the last transpose",
        ),
        Slip(
            lambda q, k: softmax(q @ k / math.sqrt(q.shape[1])),
            "query was multiplied by key without the transpose: it only fits where sizes are equal",
            "write query @ key.T, so that each query meets each key",
        ),
        Slip(
            lambda q, k: _shares(np.exp(_scores(q, k) / math.sqrt(q.shape[1]))),
            "a large score overflows in exp, and infinity divided by infinity is NaN",
            "subtract each row's maximum before exp, or use the softmax you wrote",
        ),
        Slip(
            _with_scores(lambda q, k: _scores(q / _lengths(q), k / _lengths(k))),
            "the scores are cosines: the lengths of query and key were divided out",
            "use the dot products, divided only by the root of head_dim",
        ),
        Slip(
            _with_scores(lambda q, k: -_scores(q, k) / math.sqrt(q.shape[1])),
            "the sign is turned round: the key that fits least gets the largest weight",
            "leave out the minus",
        ),
        Slip(
            lambda q, k: _shares(_scores(q, k) / math.sqrt(q.shape[1])),
            "the scores were divided by their sum, without exp",
            "use the softmax: exp makes every score positive first",
        ),
    ),
    hints=(
        "Three moves: a score for each pair of query and key, a scale, a softmax for each row.",
        "query @ key.T is the table of all dot products: one row for each query.",
        "Divide the scores by math.sqrt(query.shape[1]), then apply the softmax to each row.",
    ),
    solution_note="softmax is the one from the exercise before.",
)

EXERCISES = (_softmax, _attention_weights)
