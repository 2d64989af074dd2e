"""cosine_similarity: faults above the line, under it, and after the division."""

import math

import numpy as np

WRONG = {
    "above": {
        "no sign": "the sign was taken away",
        "subtract the mean": "correlation",
        "no sum": "the products were not added up",
    },
    "under": {
        "nothing": "this is the dot product",
        "only a": "length of a only",
        "only b": "length of b only",
        "no brackets": "one length ended up on top",
        "add lengths": "the two lengths were added",
        "squares": "squared lengths",
        "absolute sums": "the absolute entries were added up",
        "sums": "the entries were added up as a length",
    },
    "after": {
        "distance": "cosine distance",
        "angle": "the angle itself",
        "count": "number of entries",
    },
}
SAME = ()


def build(*faults):
    def cosine_similarity(a, b):
        if "subtract the mean" in faults:
            a, b = a - np.mean(a), b - np.mean(b)
        above = a * b if "no sum" in faults else np.dot(a, b)
        if "no sign" in faults:
            above = np.absolute(above)

        length_a, length_b = math.hypot(*a), math.hypot(*b)
        under = length_a * length_b
        if "nothing" in faults:
            under = 1
        elif "only a" in faults:
            under = length_a
        elif "only b" in faults:
            under = length_b
        elif "no brackets" in faults:
            under = length_a / length_b
        elif "add lengths" in faults:
            under = length_a + length_b
        elif "squares" in faults:
            under = under**2
        elif "absolute sums" in faults:
            under = np.absolute(a).sum() * np.absolute(b).sum()
        elif "sums" in faults:
            under = a.sum() * b.sum()

        result = above / under
        if "distance" in faults:
            result = 1 - result
        elif "angle" in faults:
            result = np.arccos(np.minimum(np.maximum(result, -1), 1))
        elif "count" in faults:
            result = result / a.size
        return result

    return cosine_similarity


def unit_vectors(a, b):
    return (a / np.linalg.norm(a)) @ (b / np.linalg.norm(b))


def loop(a, b):
    top = left = right = 0.0
    for x, y in zip(a, b, strict=True):
        top += x * y
        left += x * x
        right += y * y
    return top / math.sqrt(left) / math.sqrt(right)


def tiny_number_under_the_line(a, b):
    return float(np.inner(a, b) / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-9))


def einsum(a, b):
    return np.einsum("i,i", a, b) / np.sqrt(np.einsum("i,i", a, a) * np.einsum("i,i", b, b))


RIGHT = (unit_vectors, loop, tiny_number_under_the_line, einsum)
