"""role_readout: faults in the scores, in the bias, and in picking the name."""

import numpy as np

WRONG = {
    "score": {
        "columns": "mixed met the columns of read_out",
        "cosine": "brought to length 1 first",
        "distance": "the name whose row lies nearest",
    },
    "bias": {
        "no bias": "the bias plays no part",
        "minus bias": "the bias was subtracted",
        "absolute": "the scores lost their sign",
    },
    "pick": {
        "lowest": "the lowest score",
        "score itself": "the highest score came back",
        "all scores": "the scores of all names came back",
        "shares": "turned into shares of 1",
        "no axis": "argmax without an axis",
        "down": "runs down the mixes",
        "from one": "counts from 1",
    },
}
SAME = ()


def build(*faults):
    def role_readout(mixed, read_out, bias):
        if "columns" in faults:
            scores = np.matmul(mixed, read_out)
        elif "cosine" in faults:
            scores = np.inner(mixed, read_out) / np.sqrt(np.sum(read_out**2, axis=1))
        elif "distance" in faults:
            gaps = np.expand_dims(mixed, -2) - read_out
            return _pick(faults, -np.sqrt(np.sum(gaps**2, axis=-1)))
        else:
            scores = np.inner(mixed, read_out)

        if "minus bias" in faults:
            scores = scores - bias
        elif "no bias" not in faults:
            scores = scores + bias
        if "absolute" in faults:
            scores = np.absolute(scores)
        return _pick(faults, scores)

    return role_readout


def _pick(faults, scores):
    if "lowest" in faults:
        return np.argmin(scores, axis=-1)
    if "score itself" in faults:
        return np.max(scores, axis=-1)
    if "all scores" in faults:
        return scores
    if "shares" in faults:
        powers = np.exp(scores)
        return powers / np.sum(powers, axis=-1, keepdims=True)
    if "no axis" in faults:
        return np.argmax(scores)
    if "down" in faults:
        return np.argmax(scores, axis=0)
    return np.argmax(scores, axis=-1) + ("from one" in faults)


def loop(mixed, read_out, bias):
    names = []
    for vector in np.atleast_2d(mixed):
        best = 0
        scores = [sum(row * vector) + b for row, b in zip(read_out, bias, strict=True)]
        for name, score in enumerate(scores):
            if score > scores[best]:
                best = name
        names.append(best)
    return np.array(names) if mixed.ndim == 2 else names[0]


def einsum(mixed, read_out, bias):
    return np.argmax(np.einsum("...d,nd->...n", mixed, read_out) + bias, -1)


def read_out_first(mixed, read_out, bias):
    return ((read_out @ mixed.T).T + bias).argmax(-1)


def bias_as_a_number_more(mixed, read_out, bias):
    ones = np.ones((*mixed.shape[:-1], 1))
    longer = np.concatenate([mixed, ones], axis=-1)
    return (longer @ np.column_stack([read_out, bias]).T).argmax(axis=-1)


def sort(mixed, read_out, bias):
    return np.argsort(mixed @ read_out.T + bias, axis=-1)[..., -1]


RIGHT = (loop, einsum, read_out_first, bias_as_a_number_more, sort)
