"""One weighted mean of words, and what linear read-outs can tell from it."""

import numpy as np

from mhalib import checks, experiment_checks

ROLES = ("giver", "thing", "receiver")


def mix(weights, values):
    """The weighted mean of the rows of `values`: what one head brings back.

    Args:
        weights: (..., n) array; along its last axis the weights sum to 1.
        values: (n, d) array, one row per word.

    Returns:
        (..., d) array: weight 0 times row 0, plus weight 1 times row 1, and so on.

    Raises:
        TypeError, ValueError: not arrays, or another number of weights than of rows.
    """
    checks.array(min_rank=1, weights=weights)
    checks.array(rank=2, values=values)
    checks.same("the number of words", weights=weights.shape[-1], values=values.shape[0])
    return weights @ values


def role_readout(mixed, read_out, bias):
    """The number of the name that a linear read-out picks: the one with the highest score.

    Args:
        mixed: (..., d) array, what the verb brought back; one or many.
        read_out: (num_names, d) array, one row per name.
        bias: (num_names,) array, added to the scores.

    Returns:
        (...) integer array: for each vector the row of `read_out` that scores highest.

    Raises:
        TypeError, ValueError: not arrays, or sizes that do not fit.
    """
    checks.array(min_rank=1, mixed=mixed)
    checks.array(rank=2, read_out=read_out)
    checks.array(rank=1, bias=bias)
    checks.same("the width", mixed=mixed.shape[-1], read_out=read_out.shape[1])
    checks.same("the number of names", read_out=len(read_out), bias=len(bias))
    scores = mixed @ read_out.T + bias
    return scores.argmax(axis=-1)


def all_three_right(predicted, roles):
    """The share of sentences in which giver, thing and receiver are all read right.

    Args:
        predicted: (n, 3) integer array, what the read-outs say, a sentence a row.
        roles: (n, 3) integer array, what is true.

    Returns:
        A float between 0 and 1. A sentence with one wrong role counts as wrong.

    Raises:
        TypeError, ValueError: not two arrays of one shape.
    """
    checks.array(rank=2, predicted=predicted, roles=roles)
    checks.same("the shape", predicted=predicted.shape, roles=roles.shape)
    return float((predicted == roles).all(axis=1).mean())


def budget(weights, *, num_names=12, num_things=12, width=12, seed=0):
    """What linear read-outs can tell from a mix whose weights are the same in every sentence.

    Every name and thing is a random vector. For each sentence the three are mixed by `weights`,
    and one linear read-out per role is fitted to all the mixes by least squares.

    Args:
        weights: three shares of 1, for giver, thing and receiver.
        num_names, num_things: sizes of the vocabulary.
        width: length of the vectors; smaller than the vocabulary, so that small shares get lost.
        seed: decides the vectors.

    Returns:
        {"giver": share of sentences read right, "thing": ..., "receiver": ...}.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """
    weights = np.asarray(weights, dtype=float)
    checks.array(rank=1, weights=weights)
    checks.same("the number of roles", weights=len(weights), roles=len(ROLES))
    experiment_checks.shares(weights=weights)
    checks.at_least(2, num_names=num_names)
    checks.positive_int(num_things=num_things, width=width)
    random = np.random.default_rng(seed)
    names, things = (random.normal(size=(n, width)) for n in (num_names, num_things))
    roles = np.indices((num_names, num_things, num_names)).reshape(3, -1)
    giver, thing, receiver = roles = roles[:, roles[0] != roles[2]]
    words = np.stack([names[giver], things[thing], names[receiver]])  # (3, sentences, width)
    mixes = np.tensordot(weights, words, axes=1)
    mixes = np.column_stack([mixes, np.ones(len(mixes))])  # the ones give each read-out its bias
    shares = {}
    for role, truth, count in zip(ROLES, roles, (num_names, num_things, num_names), strict=True):
        read_out = np.linalg.lstsq(mixes, np.eye(count)[truth], rcond=None)[0]
        shares[role] = float(((mixes @ read_out).argmax(axis=1) == truth).mean())
    return shares
