"""attention_weights: faults in the scores, in the scale, in the softmax, and after that."""

import math

import numpy as np

WRONG = {
    "score": {
        "swapped": "query and key changed places",
        "no transpose": "without the transpose",
        "cosine": "the scores are cosines",
        "turned round": "the sign is turned round",
    },
    "scale": {
        "none": "the scores were not scaled",
        "twice": "divided by head_dim, not by its square root",
        "multiplied": "multiplied by the square root",
        "key_len": "the root of the number of keys",
        "query_len": "the root of the number of queries",
    },
    "softmax": {
        "over queries": "the softmax runs over the queries",
        "over everything": "the softmax runs over the whole table",
        "missing": "the softmax is missing",
        "overflow": "overflows in exp",
        "no exp": "divided by their sum, without exp",
    },
    "after": {
        "scaled late": "divided after the softmax",
        "transposed": "the weights were transposed",
    },
}
SAME = ()


def build(*faults):
    def attention_weights(query, key):
        (query_len, head_dim), key_len = query.shape, key.shape[0]
        if "cosine" in faults:
            query = query / np.sqrt((query**2).sum(1))[:, None]
            key = key / np.sqrt((key**2).sum(1))[:, None]
        if "swapped" in faults:
            query, key = key, query
        scores = np.dot(query, key if "no transpose" in faults else key.transpose())
        if "turned round" in faults:
            scores = -scores

        divisor = head_dim**0.5
        if "none" in faults or "scaled late" in faults or "cosine" in faults:
            divisor = 1
        if "twice" in faults:
            divisor = head_dim**0.5 * head_dim**0.5
        elif "multiplied" in faults:
            divisor = head_dim**-0.5
        elif "key_len" in faults:
            divisor = key_len**0.5
        elif "query_len" in faults:
            divisor = query_len**0.5
        scores = scores / divisor

        axis = 0 if "over queries" in faults else None if "over everything" in faults else 1
        weights = scores
        if "no exp" in faults:
            weights = scores / scores.sum(1)[:, None]
        elif "missing" not in faults:
            largest = 0 if "overflow" in faults else scores.max(axis=axis, keepdims=True)
            weights = np.exp(scores - largest)
            weights = weights / weights.sum(axis=axis, keepdims=True)

        if "scaled late" in faults:
            weights = weights / head_dim**0.5
        if "transposed" in faults:
            weights = weights.transpose()
        return weights

    return attention_weights


def pair_by_pair(query, key):
    rows = []
    for one_query in query:
        scores = [float(np.dot(one_query, one_key)) / math.sqrt(len(one_query)) for one_key in key]
        powers = [math.exp(score - max(scores)) for score in scores]
        rows.append([power / sum(powers) for power in powers])
    return np.array(rows)


def einsum(query, key):
    scores = np.einsum("qd,kd->qk", query, key) * key.shape[-1] ** -0.5
    scores = scores - scores.max(-1, keepdims=True)
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


def scaled_query(query, key):
    scores = (query / np.sqrt(query.shape[1])) @ np.transpose(key)
    largest = np.max(scores, axis=1)[:, None]
    return np.exp(scores - largest - np.log(np.exp(scores - largest).sum(axis=1))[:, None])


def from_the_columns(query, key):
    scores = key @ query.T / math.sqrt(query.shape[1])
    powers = np.exp(scores - scores.max(axis=0))
    return (powers / powers.sum(axis=0)).T


RIGHT = (pair_by_pair, einsum, scaled_query, from_the_columns)
