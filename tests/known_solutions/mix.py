"""mix: faults in the weights, in how they meet the values, and in adding up."""

import numpy as np

WRONG = {
    "weights": {
        "softmax again": "softmax was applied to the weights",
        "first row only": "only the first row of weights",
        "largest only": "only the word with the largest weight",
    },
    "meet": {
        "ignore weights": "added up without their weights",
        "columns": "lines the weights up with the columns",
    },
    "add": {
        "no sum": "the words were not added up",
        "over numbers": "the numbers of each word were added up",
        "everything": "only one number is left",
        "mean": "their sum was divided by the number of words",
    },
}
SAME = ()


def build(*faults):
    def mix(weights, values):
        if "softmax again" in faults:
            weights = np.exp(weights) / np.sum(np.exp(weights), axis=-1, keepdims=True)
        elif "first row only" in faults:
            weights = np.atleast_2d(weights)[0]
        elif "largest only" in faults:
            weights = np.eye(values.shape[0])[np.argmax(weights, axis=-1)]

        if "ignore weights" in faults:
            shares = np.ones_like(weights)[..., np.newaxis] * values
        elif "columns" in faults:
            shares = np.multiply(weights, values)
        else:
            shares = np.expand_dims(weights, -1) * values

        if "no sum" in faults:
            return shares
        if "over numbers" in faults:
            return np.add.reduce(shares, axis=-1)
        if "everything" in faults:
            return np.sum(shares)
        if "mean" in faults:
            return np.mean(shares, axis=-2)
        return np.sum(shares, axis=-2)

    return mix


def loop(weights, values):
    rows = np.atleast_2d(weights)
    mixes = []
    for row in rows:
        total = np.zeros(values.shape[1], dtype=values.dtype)
        for i in range(len(values)):
            total = total + row[i] * values[i]
        mixes.append(total)
    return np.array(mixes) if weights.ndim == 2 else mixes[0]


def einsum(weights, values):
    return np.einsum("...n,nd->...d", weights, values)


def broadcast(weights, values):
    return (weights[..., None] * values).sum(axis=-2)


def by_columns(weights, values):
    return np.stack([(weights * column).sum(axis=-1) for column in values.T], axis=-1)


def transposed(weights, values):
    return (values.T @ weights.T).T


def dot(weights, values):
    return np.dot(weights, values)


RIGHT = (loop, einsum, broadcast, by_columns, transposed, dot)
