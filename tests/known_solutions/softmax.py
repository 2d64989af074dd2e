"""softmax: faults in what is subtracted, in the powers, in the total, and after that."""

import math

import numpy as np

WRONG = {
    "before": {"turned round": "the sign is turned round"},
    "subtract": {
        "nothing": "overflows in exp",
        "one maximum for all": "the largest score of the whole array",
        "maximum of columns": "the maximum of each column",
        "flat maximum": "the maxima are one flat row",
        "minimum": "the minimum was subtracted",
        "mean": "the mean was subtracted",
    },
    "power": {
        "no exp": "exp is missing",
        "powers of two": "powers of 2",
    },
    "total": {
        "first axis": "the sums run along the first axis",
        "axis 1": "with three axes it is the middle one",
        "everything": "the sum was taken over the whole array",
        "flat sums": "the sums are one flat row",
        "none": "the division by the sum is missing",
    },
    "after": {"log": "log-softmax", "winner": "the argmax"},
}
SAME = ()


def build(*faults):
    def softmax(x):
        if "turned round" in faults:
            x = -x
        shift = np.amax(x, -1)[..., None]
        if "nothing" in faults:
            shift = 0
        elif "one maximum for all" in faults:
            shift = np.amax(x)
        elif "maximum of columns" in faults:
            shift = np.amax(x, 0)
        elif "flat maximum" in faults:
            shift = np.amax(x, -1)
        elif "minimum" in faults:
            shift = np.amin(x, -1)[..., None]
        elif "mean" in faults:
            shift = np.mean(x, -1)[..., None]
        x = x - shift

        if "powers of two" in faults:
            x = np.exp2(x)
        elif "no exp" not in faults:
            x = np.exp(x)

        total = np.sum(x, -1)[..., None]
        if "first axis" in faults:
            total = np.sum(x, 0)[None]
        elif "axis 1" in faults and x.ndim > 1:
            total = np.expand_dims(np.sum(x, 1), 1)
        elif "everything" in faults:
            total = np.sum(x)
        elif "flat sums" in faults:
            total = np.sum(x, -1)
        elif "none" in faults:
            total = 1
        x = x / total

        if "log" in faults:
            x = np.log(x)
        elif "winner" in faults:
            x = np.where(x == np.amax(x, -1)[..., None], 1.0, 0.0)
        return x

    return softmax


def row_by_row(x):
    result = np.zeros(x.shape)
    for index in np.ndindex(x.shape[:-1]):
        powers = [math.exp(score - max(x[index])) for score in x[index]]
        result[index] = [power / sum(powers) for power in powers]
    return result


def with_logsumexp(x):
    largest = np.max(x, axis=-1, keepdims=True)
    log_total = largest + np.log(np.sum(np.exp(x - largest), axis=-1, keepdims=True))
    return np.exp(x - log_total)


def with_einsum(x):
    powers = np.exp(x - x.max(-1)[..., np.newaxis])
    return np.einsum("...n,...->...n", powers, 1 / np.einsum("...n->...", powers))


def last_axis_first(x):
    x = np.moveaxis(x, -1, 0)
    powers = np.exp(x - x.max(axis=0))
    return np.moveaxis(powers / powers.sum(axis=0), 0, -1)


def in_a_copy(x):
    x = np.array(x, dtype=float)
    x -= x.max(axis=-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(axis=-1, keepdims=True)
    return x


RIGHT = (row_by_row, with_logsumexp, with_einsum, last_axis_first, in_a_copy)
