"""The exercises of lesson 01, Words as vectors."""

import numpy as np

from mhalib import reference
from mhalib.exercises.catalogue import Case, Exercise, Slip


def _vectors(*shapes, seed=0, dtype=np.float64):
    """Arrays of normally distributed numbers, the same at every call."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def _floats(*lists):
    return tuple(np.array(numbers, dtype=np.float64) for numbers in lists)


def _every_second(*shapes, seed=0):
    """Vectors whose numbers do not lie side by side in memory."""
    doubled = [(*shape[:-1], 2 * shape[-1]) for shape in shapes]
    return tuple(array[..., ::2] for array in _vectors(*doubled, seed=seed))


_norm = np.linalg.norm

_dot_product = Exercise(
    name="dot_product",
    lesson="01",
    minutes=5,
    difficulty=1,
    framework="numpy",
    contract="dot_product(a, b): two (d,) arrays of the same length -> one float",
    arguments=("a", "b"),
    reference=reference.dot_product,
    cases=(
        Case("vectors of one number", lambda: _floats([3], [4])),
        Case("vectors of three numbers", lambda: _floats([1, 2, 3], [4, -5, 6])),
        Case("vectors at right angles", lambda: _floats([1, 0, 2], [0, 3, 0])),
        Case("a negative result", lambda: _floats([1, 2], [-3, -1])),
        Case("vectors of fifty numbers", lambda: _vectors((50,), (50,))),
        Case("float32 vectors", lambda: _vectors((7,), (7,), seed=1, dtype=np.float32)),
        Case("every second number of longer vectors", lambda: _every_second((5,), (5,))),
        Case("whole numbers", lambda: (np.array([2, 0, 1]), np.array([1, 5, 3]))),
    ),
    slips=(
        Slip(
            lambda a, b: a * b,
            "the sign * gives one product for each entry; they are not added up",
            "add the products up: .sum(), or a @ b, which does both",
        ),
        Slip(
            lambda a, b: np.outer(a, b),
            "every entry of a met every entry of b: that is the outer product",
            "only entries in the same place meet: multiply place by place, then add up",
        ),
        Slip(
            lambda a, b: float(a @ b / (_norm(a) * _norm(b))),
            "the result was divided by the lengths of the vectors: that is the cosine",
            "leave the division out; the next exercise needs it",
        ),
        Slip(
            lambda a, b: float((a * b).mean()),
            "the products were averaged where they should be added up",
            "use sum in the place of mean",
        ),
        Slip(
            lambda a, b: float(a.sum() * b.sum()),
            "each vector was added up first, and then the two sums were multiplied",
            "multiply first, place by place, and add up at the end",
        ),
        Slip(
            lambda a, b: float((a + b).sum()),
            "the entries were added where they should be multiplied",
            "use * between a and b, and keep the sum for the end",
        ),
        Slip(
            lambda a, b: float(abs(a @ b)),
            "the sign was taken away, but a dot product can be negative",
            "leave abs out",
        ),
        Slip(
            lambda a, b: float(np.abs(a * b).sum()),
            "each product lost its sign before the sum",
            "add the products up with their signs: leave abs out",
        ),
        Slip(
            lambda a, b: float(((a - b) ** 2).sum()),
            "the squared distance was computed: it measures how far apart the ends are",
            "multiply the entries, do not subtract them",
        ),
        Slip(
            lambda a, b: float(_norm(a) * _norm(b)),
            "the lengths were multiplied, so the directions play no part",
            "multiply place by place and add up",
        ),
        Slip(
            lambda a, b: float((a * b).max()),
            "only the largest product was kept",
            "add all the products up: sum in the place of max",
        ),
        Slip(
            lambda a, b: float((a * b)[:-1].sum()),
            "the last entry plays no part",
            "let the loop or the slice run to the end: range(len(a))",
        ),
        Slip(
            lambda a, b: float((a * b)[0]),
            "only the first product came back: the return may stand inside the loop",
            "move the return out of the loop, so that it comes after the last product",
        ),
    ),
    hints=(
        "Take the two vectors place by place: first with first, second with second, and so on.",
        "Multiply the two numbers in each place, then add all the products up.",
        "a * b multiplies place by place, .sum() adds up, and a @ b does both at once.",
    ),
)

_cosine_similarity = Exercise(
    name="cosine_similarity",
    lesson="01",
    minutes=8,
    difficulty=1,
    framework="numpy",
    contract=(
        "cosine_similarity(a, b): two (d,) arrays of the same length, neither all zeros "
        "-> one float between -1 and 1"
    ),
    arguments=("a", "b"),
    reference=reference.cosine_similarity,
    cases=(
        Case("two equal vectors of length 1", lambda: _floats([1, 0], [1, 0])),
        Case("vectors at right angles", lambda: _floats([2, 0, 0], [0, 3, 1])),
        Case("one direction, two lengths", lambda: _floats([3, 4], [6, 8])),
        Case("opposite directions", lambda: _floats([1, 2, 2], [-2, -4, -4])),
        Case("vectors of three numbers", lambda: _floats([1, 2, 3], [4, -5, 7])),
        Case("vectors of fifty numbers", lambda: _vectors((50,), (50,), seed=2)),
        Case("float32 vectors", lambda: _vectors((7,), (7,), seed=3, dtype=np.float32)),
        Case("every second number of longer vectors", lambda: _every_second((5,), (5,), seed=1)),
        Case("whole numbers", lambda: (np.array([2, 0, 1]), np.array([1, 5, 3]))),
    ),
    slips=(
        Slip(
            lambda a, b: float(a @ b),
            "this is the dot product: long vectors score high whatever their direction",
            "divide by the lengths of both vectors, np.linalg.norm of each",
        ),
        Slip(
            lambda a, b: float(a @ b / _norm(a)),
            "the dot product was divided by the length of a only",
            "divide by the length of b as well",
        ),
        Slip(
            lambda a, b: float(a @ b / _norm(b)),
            "the dot product was divided by the length of b only",
            "divide by the length of a as well",
        ),
        Slip(
            lambda a, b: float(a @ b / _norm(a) * _norm(b)),
            "in a / b * c Python divides by b and then multiplies by c: one length ended up on top",
            "put brackets round the product of the two lengths",
        ),
        Slip(
            lambda a, b: float(a @ b / (_norm(a) + _norm(b))),
            "the two lengths were added",
            "multiply the two lengths",
        ),
        Slip(
            lambda a, b: float(a @ b / ((a @ a) * (b @ b))),
            "the dot product was divided by the squared lengths",
            "take the square root of each sum of squares",
        ),
        Slip(
            lambda a, b: float(a @ b / (np.abs(a).sum() * np.abs(b).sum())),
            "the absolute entries were added up as a length",
            "the length is the square root of the sum of squares: np.linalg.norm",
        ),
        Slip(
            lambda a, b: float(a @ b / (a.sum() * b.sum())),
            "the entries were added up as a length",
            "the length is the square root of the sum of squares: np.linalg.norm",
        ),
        Slip(
            lambda a, b: float(1 - a @ b / (_norm(a) * _norm(b))),
            "one minus the cosine is the cosine distance: 0 for the same direction",
            "leave out the 1 -",
        ),
        Slip(
            lambda a, b: float(np.arccos(np.clip(a @ b / (_norm(a) * _norm(b)), -1, 1))),
            "this is the angle itself, in radians",
            "return the cosine of the angle: leave arccos out",
        ),
        Slip(
            lambda a, b: float(abs(a @ b) / (_norm(a) * _norm(b))),
            "the sign was taken away, so opposite directions count as the same",
            "leave abs out",
        ),
        Slip(
            lambda a, b: float(
                (a - a.mean()) @ (b - b.mean()) / (_norm(a - a.mean()) * _norm(b - b.mean()))
            ),
            "the mean was subtracted first: that is the correlation",
            "use the vectors as they are",
        ),
        Slip(
            lambda a, b: float(_norm(a - b)),
            "this is the distance between the ends of the vectors",
            "use the dot product, divided by both lengths",
        ),
        Slip(
            lambda a, b: float(a @ b / (_norm(a) * _norm(b)) / len(a)),
            "the result was divided by the number of entries as well",
            "divide by the two lengths only",
        ),
        Slip(
            lambda a, b: a * b / (_norm(a) * _norm(b)),
            "the products were not added up: there is still one number for each entry",
            "use a @ b, or add the products up with .sum()",
        ),
    ),
    hints=(
        "Vectors of different length can point the same way. The cosine looks at the way only.",
        "Start from the dot product, and divide by the length of a and by the length of b.",
        "np.linalg.norm(a) is the length of a. Put the product of both lengths in brackets.",
    ),
)


def _by(score):
    """A slip for nearest_neighbours that ranks by another score, highest first."""
    return lambda vectors, query, k: np.argsort(-score(vectors, query), kind="stable")[:k]


def _cosines(vectors, query):
    return vectors @ query / (_norm(vectors, axis=1) * _norm(query))


def _ranked(vectors, query):
    return np.argsort(-_cosines(vectors, query), kind="stable")


def _query_among(seed=5):
    (vectors,) = _vectors((9, 6), seed=seed)
    return vectors, vectors[4].copy(), 3


_nearest_neighbours = Exercise(
    name="nearest_neighbours",
    lesson="01",
    minutes=10,
    difficulty=2,
    framework="numpy",
    contract=(
        "nearest_neighbours(vectors, query, k): (n, d) array with one vector a row, (d,) array, "
        "a whole number up to n\n-> the k row numbers whose vectors have the highest cosine "
        "with the query, best first"
    ),
    arguments=("vectors", "query", "k"),
    reference=reference.nearest_neighbours,
    cases=(
        Case(
            "one neighbour among three vectors of length 1",
            lambda: (*_floats([[0, 1], [-1, 0], [0.6, 0.8]], [0.8, 0.6]), 1),
        ),
        Case(
            "two neighbours among four vectors of length 1",
            lambda: (*_floats([[0, 1], [0.6, 0.8], [1, 0], [-0.8, -0.6]], [0.96, 0.28]), 2),
        ),
        Case(
            "all rows put in order",
            lambda: (*_floats([[0, 1], [0.6, 0.8], [-0.8, -0.6], [1, 0]], [0.96, 0.28]), 4),
        ),
        Case(
            "a long vector that points another way",
            lambda: (*_floats([[1, 1], [50, 0], [0.1, 0.2], [-3, 1]], [1, 2]), 2),
        ),
        Case(
            "a vector that points the opposite way",
            lambda: (*_floats([[-1, -2, 0], [0, 0, 1], [1, 1, 1]], [1, 2, 0]), 2),
        ),
        Case("a query that is one of the rows", _query_among),
        Case("forty vectors", lambda: (*_vectors((40, 7), (7,), seed=4), 5)),
        Case(
            "float32 vectors of very different lengths",
            lambda: (
                _vectors((12, 5), seed=6, dtype=np.float32)[0]
                * np.geomspace(0.01, 100, 12, dtype=np.float32)[:, None],
                _vectors((5,), seed=7, dtype=np.float32)[0],
                4,
            ),
        ),
        Case(
            "rows and a query that do not lie side by side in memory",
            lambda: (*_every_second((6, 8), (8,), seed=8), 6),
        ),
    ),
    slips=(
        Slip(
            _by(lambda vectors, query: vectors @ query),
            "the rows were ranked by dot product (divided by one number or not): long vectors win",
            "divide each dot product by the length of its own row",
        ),
        Slip(
            _by(lambda vectors, query: -_cosines(vectors, query)),
            "the rows come back with the lowest cosine first: argsort sorts upwards",
            "sort the negative cosines, or turn the order round with [::-1] before taking k",
        ),
        Slip(
            lambda vectors, query, k: _ranked(vectors, query)[:k][::-1],
            "the right rows, but the best one comes last",
            "turn the order round with [::-1], so that the best comes first",
        ),
        Slip(
            _by(lambda vectors, query: -_norm(vectors - query, axis=1)),
            "the rows were ranked by the distance between the ends of the vectors",
            "rank them by cosine: the direction counts, the length does not",
        ),
        Slip(
            _by(lambda vectors, query: np.abs(_cosines(vectors, query))),
            "the sign was taken away, so a vector that points the opposite way counts as near",
            "rank by the cosine itself: leave abs out",
        ),
        Slip(
            lambda vectors, query, k: np.sort(_cosines(vectors, query))[::-1][:k],
            "the cosines themselves came back",
            "return the row numbers: np.argsort gives them where np.sort gives the values",
        ),
        Slip(
            lambda vectors, query, k: vectors[_ranked(vectors, query)[:k]],
            "the vectors themselves came back",
            "return their row numbers",
        ),
        Slip(
            lambda vectors, query, k: _ranked(vectors, query)[1 : k + 1],
            "the best row was left out, as if it were always the query itself",
            "take the first k of the order: [:k]",
        ),
        Slip(
            lambda vectors, query, k: np.sort(_ranked(vectors, query)[:k]),
            "the right rows, but in the order of the table",
            "keep them in the order of their cosines, best first (argpartition does not sort)",
        ),
        Slip(
            lambda vectors, query, k: _ranked(vectors, query),
            "all rows came back, not k of them",
            "take the first k of the order: [:k]",
        ),
        Slip(
            lambda vectors, query, k: _ranked(vectors, query)[: k - 1],
            "one row too few came back",
            "[:k] takes k entries, those numbered 0 to k - 1",
        ),
        Slip(
            lambda vectors, query, k: _ranked(vectors, query)[: k + 1],
            "one row too many came back",
            "[:k] takes k entries, those numbered 0 to k - 1",
        ),
        Slip(
            lambda vectors, query, k: _ranked(vectors, query)[:k] + 1,
            "the rows were counted from 1",
            "count from 0, as Python and NumPy do",
        ),
        Slip(
            _by(lambda vectors, query: (vectors / _norm(vectors, axis=0)) @ query),
            "each column was divided by its length",
            "divide each row by its length: np.linalg.norm(vectors, axis=1, keepdims=True)",
        ),
        Slip(
            _by(lambda vectors, query: vectors @ query / (vectors**2).sum(axis=1)),
            "each dot product was divided by the squared length of its row",
            "take the square root of the sum of squares, or use np.linalg.norm(vectors, axis=1)",
        ),
        Slip(
            lambda vectors, query, k: np.argsort(_ranked(vectors, query))[:k],
            "these are places (which place each row takes), not row numbers: argsort ran twice",
            "apply argsort once",
        ),
    ),
    hints=(
        "First compute one cosine for each row, then put the row numbers in order.",
        "vectors @ query gives all dot products at once. np.linalg.norm(vectors, axis=1) gives the "
        "length of each row.",
        "np.argsort gives the row numbers from the lowest value to the highest: sort the negative "
        "cosines, and take the first k.",
    ),
)

EXERCISES = (_dot_product, _cosine_similarity, _nearest_neighbours)
