"""nearest_neighbours: faults in the score, the order, what is taken and what is returned."""

import numpy as np

WRONG = {
    "score": {
        "dot": "ranked by dot product",
        "one length for all": "ranked by dot product",
        "distance": "the distance between the ends",
        "no sign": "the opposite way counts as near",
        "column lengths": "each column was divided",
        "squared lengths": "squared length of its row",
    },
    "order": {
        "worst first": "the lowest cosine first",
        "places": "argsort ran twice",
    },
    "take": {
        "too few": "one row too few",
        "too many": "one row too many",
        "all": "all rows came back",
        "not the first": "the best row was left out",
    },
    "arrange": {
        "best last": "the best one comes last",
        "by row number": "in the order of the table",
    },
    "return": {
        "from one": "counted from 1",
        "vectors": "the vectors themselves",
        "cosines": "the cosines themselves",
    },
}
SAME = (("dot", "one length for all"),)


def build(*faults):
    def nearest_neighbours(vectors, query, k):
        scores = np.array([np.dot(row, query) for row in vectors])
        lengths = np.array([np.sqrt(np.dot(row, row)) for row in vectors])
        cosines = scores / lengths / np.sqrt(np.dot(query, query))
        if "one length for all" in faults:
            scores = scores / np.sqrt(np.sum(vectors**2))
        elif "distance" in faults:
            scores = -np.array([np.sum((row - query) ** 2) for row in vectors])
        elif "column lengths" in faults:
            scores = np.dot(vectors / np.sqrt(np.sum(vectors**2, axis=0)), query)
        elif "squared lengths" in faults:
            scores = scores / lengths**2
        elif "no sign" in faults:
            scores = np.absolute(cosines)
        elif "dot" not in faults:
            scores = cosines

        order = np.argsort(scores if "worst first" in faults else -scores)
        if "places" in faults:
            order = np.argsort(order)

        first, last = 0, k
        if "too few" in faults:
            last = k - 1
        elif "too many" in faults:
            last = k + 1
        elif "all" in faults:
            last = len(order)
        elif "not the first" in faults:
            first, last = 1, k + 1
        rows = order[first:last]

        if "best last" in faults:
            rows = np.flip(rows)
        elif "by row number" in faults:
            rows = np.array(sorted(rows), dtype=int)
        if "from one" in faults:
            rows = rows + 1
        elif "vectors" in faults:
            rows = vectors[rows]
        elif "cosines" in faults:
            rows = cosines[rows]
        return rows

    return nearest_neighbours


def sorted_list(vectors, query, k):
    def cosine(row):
        return vectors[row] @ query / np.linalg.norm(vectors[row]) / np.linalg.norm(query)

    return sorted(range(len(vectors)), key=cosine, reverse=True)[:k]


def without_the_query_length(vectors, query, k):
    return np.argsort((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)) @ query)[::-1][:k]


def partition_then_sort(vectors, query, k):
    cosines = np.einsum("ij,j->i", vectors, query) / np.linalg.norm(vectors, axis=-1)
    rows = np.argpartition(-cosines, k - 1)[:k]
    return rows[np.argsort(-cosines[rows])].astype(np.int32)


def one_at_a_time(vectors, query, k):
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
    rows = []
    for _ in range(k):
        best = int(np.argmax(cosines))
        rows.append(best)
        cosines[best] = -np.inf
    return tuple(rows)


RIGHT = (sorted_list, without_the_query_length, partition_then_sort, one_at_a_time)
