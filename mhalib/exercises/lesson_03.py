"""The exercises of lesson 03, Where one head falls short."""

import numpy as np

from mhalib import mixing
from mhalib.exercises.catalogue import Case, Exercise, Slip


def _floats(*lists):
    return tuple(np.array(numbers, dtype=np.float64) for numbers in lists)


def _normal(*shapes, seed=0, dtype=np.float64):
    """Arrays of normally distributed numbers, the same at every call."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def _weights_and_values(weights_shape, values_shape, seed=0, dtype=np.float64):
    """Positive weights that sum to 1 along the last axis, and values."""
    weights, values = _normal(weights_shape, values_shape, seed=seed)
    weights = np.exp(weights)
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(dtype), values.astype(dtype)


def _every_second(arrays):
    """The same numbers, but not side by side in memory."""
    return tuple(np.repeat(array, 2, axis=-1)[..., ::2] for array in arrays)


def _softmax(x, axis=-1):
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


_mix = Exercise(
    name="mix",
    lesson="03",
    minutes=5,
    difficulty=1,
    framework="numpy",
    contract=(
        "mix(weights, values): (n,) or (m, n) array, its last axis sums to 1, and (n, d) array "
        "-> (d,) or (m, d) array"
    ),
    arguments=("weights", "values"),
    reference=mixing.mix,
    cases=(
        Case("all the weight on one of two words", lambda: _floats([0, 1], [[1, 2, 3], [4, 5, 6]])),
        Case("two words of three numbers", lambda: _floats([0.75, 0.25], [[4, 8, 0], [0, 4, -8]])),
        Case(
            "four words, three of them alike in weight",
            lambda: _floats([0.3, 0.1, 0.3, 0.3], [[1, 0], [0, 9], [2, 2], [5, 1]]),
        ),
        Case("as many words as numbers in a word", lambda: _weights_and_values((3,), (3, 3))),
        Case("five words of eight numbers", lambda: _weights_and_values((5,), (5, 8), seed=1)),
        Case("two rows of weights", lambda: _weights_and_values((2, 5), (5, 3), seed=2)),
        Case(
            "as many rows of weights as words", lambda: _weights_and_values((4, 4), (4, 4), seed=3)
        ),
        Case("float32", lambda: _weights_and_values((5,), (5, 4), seed=4, dtype=np.float32)),
        Case(
            "numbers that do not lie side by side in memory",
            lambda: _every_second(_weights_and_values((2, 3), (3, 4), seed=5)),
        ),
    ),
    slips=(
        Slip(
            lambda weights, values: 0 * weights[..., :1] + values.mean(axis=0),
            "this is the plain mean of the words: the weights play no part",
            "multiply each word by its weight before adding",
        ),
        Slip(
            lambda weights, values: 0 * weights[..., :1] + values.sum(axis=0),
            "the words were added up without their weights",
            "multiply each word by its weight before adding",
        ),
        Slip(
            lambda weights, values: weights[..., None] * values,
            "each word was multiplied by its weight, but the words were not added up",
            "add up over the words, the last axis but one: .sum(axis=-2)",
        ),
        Slip(
            lambda weights, values: (weights[..., None] * values).sum(axis=-1),
            "the numbers of each word were added up, so the result has one number for each word",
            "add up over the words instead: axis=-2, the last axis but one",
        ),
        Slip(
            lambda weights, values: (weights[..., None] * values).sum(),
            "everything was added up, words and numbers, so only one number is left",
            "add up over the words only: axis=-2, the last axis but one",
        ),
        Slip(
            lambda weights, values: (weights[..., None] * values).mean(axis=-2),
            "the weighted words were averaged: their sum was divided by the number of words, "
            "although the weights sum to 1 already",
            "use sum in the place of mean",
        ),
        Slip(
            lambda weights, values: _softmax(weights) @ values,
            "a softmax was applied to the weights, which are shares of 1 already",
            "leave the softmax out: use the weights as they come",
        ),
        Slip(
            lambda weights, values: values[weights.argmax(axis=-1)],
            "only the word with the largest weight came back; the others have a share too",
            "add up all words, each times its weight",
        ),
        Slip(
            lambda weights, values: values @ weights,
            "the weights met the columns of values, the numbers of a word; there is one weight for "
            "each word, so they must meet the rows",
            "turn the two round: weights @ values",
        ),
        Slip(
            lambda weights, values: weights @ values.T,
            "the transpose makes the weights meet the numbers of a word and not the words",
            "leave the transpose out: weights @ values",
        ),
        Slip(
            lambda weights, values: weights * values,
            "weights * values lines the weights up with the columns, because NumPy matches the "
            "last axes; there is one weight for each row",
            "make the weights a column, weights[..., None], or use weights @ values",
        ),
        Slip(
            lambda weights, values: (weights * values).sum(axis=0),
            "weights * values lines the weights up with the columns, because NumPy matches the "
            "last axes; there is one weight for each row",
            "make the weights a column, weights[..., None], or use weights @ values",
        ),
        Slip(
            lambda weights, values: weights.reshape(-1, len(values))[0] @ values,
            "only the first row of weights was used",
            "let the last axis of weights meet the first of values: weights @ values does",
        ),
        Slip(
            lambda weights, values: weights.T @ values,
            "the weights were turned, so that with several rows of them each word's column is used",
            "leave the transpose out: weights @ values",
        ),
    ),
    hints=(
        "The result has as many numbers as one word. Each word gives its share of each number.",
        "Multiply row 0 of values by weights[0], row 1 by weights[1] and so on, then add the rows "
        "up. A loop over the words does it for one row of weights.",
        "@ multiplies along the last axis of the left and the first axis of the right array, and "
        "adds up: weights @ values. It takes one row of weights or many.",
    ),
)

_role_readout = Exercise(
    name="role_readout",
    lesson="03",
    minutes=8,
    difficulty=2,
    framework="numpy",
    contract=(
        "role_readout(mixed, read_out, bias): (d,) or (m, d) array, (num_names, d) array, "
        "(num_names,) array -> the row number of the highest score: one, or (m,) of them"
    ),
    arguments=("mixed", "read_out", "bias"),
    reference=mixing.role_readout,
    cases=(
        Case(
            "three names and a bias of zeros",
            lambda: _floats([1, 2], [[1, 0], [0, 1], [-1, -1]], [0, 0, 0]),
        ),
        Case(
            "scores that are all negative",
            lambda: _floats([-1, -2], [[4, 1], [1, 1], [2, 3]], [0, 0, 0]),
        ),
        Case("a bias that decides", lambda: _floats([1, 0], [[2, 0], [1, 0], [0, 0]], [0, 3, 1])),
        Case(
            "a bias that holds a name back",
            lambda: _floats([1, 1], [[3, 3], [2, 1], [0, 1]], [-5, 0, 0]),
        ),
        Case(
            "rows of different length",
            lambda: _floats([1, 1], [[0.5, 0.5], [9, 0], [0, 0.2]], [0, 0, 0]),
        ),
        Case("as many names as numbers", lambda: _normal((4,), (4, 4), (4,), seed=6)),
        Case("twelve names", lambda: _normal((5,), (12, 5), (12,), seed=2)),
        Case("six mixes at once", lambda: _normal((6, 5), (7, 5), (7,), seed=3)),
        Case("as many mixes as names and numbers", lambda: _normal((5, 5), (5, 5), (5,), seed=4)),
        Case("float32", lambda: _normal((3, 5), (7, 5), (7,), seed=5, dtype=np.float32)),
        Case(
            "numbers that do not lie side by side in memory",
            lambda: _every_second(_normal((3, 5), (7, 5), (7,), seed=6)),
        ),
    ),
    slips=(
        Slip(
            lambda mixed, read_out, bias: (mixed @ read_out.T).argmax(axis=-1),
            "the bias plays no part",
            "add bias to the scores before you look for the highest",
        ),
        Slip(
            lambda mixed, read_out, bias: (mixed @ read_out.T - bias).argmax(axis=-1),
            "the bias was subtracted",
            "add the bias to the scores",
        ),
        Slip(
            lambda mixed, read_out, bias: (mixed @ read_out.T + bias).argmin(axis=-1),
            "the name with the lowest score was picked",
            "use argmax in the place of argmin",
        ),
        Slip(
            lambda mixed, read_out, bias: abs(mixed @ read_out.T + bias).argmax(axis=-1),
            "the scores lost their sign; a score of -9 is lower than one of 1",
            "leave abs out",
        ),
        Slip(
            lambda mixed, read_out, bias: (mixed @ read_out.T + bias).max(axis=-1),
            "the highest score came back, and not the number of the name that has it",
            "use argmax in the place of max",
        ),
        Slip(
            lambda mixed, read_out, bias: mixed @ read_out.T + bias,
            "the scores of all names came back; nobody was picked yet",
            "finish with .argmax(axis=-1), the place of the highest score",
        ),
        Slip(
            lambda mixed, read_out, bias: _softmax(mixed @ read_out.T + bias),
            "the scores were turned into shares of 1; nobody was picked yet",
            "no softmax is needed: .argmax(axis=-1) of the scores gives the name",
        ),
        Slip(
            lambda mixed, read_out, bias: (mixed @ read_out.T + bias).argmax(),
            "argmax without an axis counts through all mixes and names together, so several mixes "
            "get one answer",
            "look along the names only: .argmax(axis=-1)",
        ),
        Slip(
            lambda mixed, read_out, bias: (mixed @ read_out.T + bias).argmax(axis=0),
            "with several mixes, axis=0 runs down the mixes and picks one mix for each name",
            "look along the names, the last axis: .argmax(axis=-1)",
        ),
        Slip(
            lambda mixed, read_out, bias: (mixed @ read_out + bias).argmax(axis=-1),
            "mixed met the columns of read_out; a name's numbers stand in its row",
            "turn read_out with .T: mixed @ read_out.T",
        ),
        Slip(
            lambda mixed, read_out, bias: (mixed @ read_out.T + bias).argmax(axis=-1) + 1,
            "names are counted from 0, and the result counts from 1",
            "leave the + 1 out",
        ),
        Slip(
            lambda mixed, read_out, bias: np.argsort(mixed @ read_out.T + bias)[..., 0],
            "argsort puts the lowest score first",
            "take the last place, [..., -1], or use argmax",
        ),
        Slip(
            lambda mixed, read_out, bias: np.argsort(mixed @ read_out.T + bias)[-1],
            "with several mixes, [-1] takes the last mix and not the last place of each row",
            "write [..., -1], or use argmax(axis=-1)",
        ),
        Slip(
            lambda mixed, read_out, bias: (
                mixed @ read_out.T / np.linalg.norm(read_out, axis=1) + bias
            ).argmax(axis=-1),
            "each name's row was brought to length 1 first, as in a cosine; a read-out uses its "
            "numbers as they are",
            "leave the division out",
        ),
        Slip(
            lambda mixed, read_out, bias: np.linalg.norm(
                mixed[..., None, :] - read_out, axis=-1
            ).argmin(axis=-1),
            "the name whose row lies nearest was picked; a linear read-out multiplies and adds up",
            "score each name by the dot product with its row, plus its bias",
        ),
    ),
    hints=(
        "Every name has a row of read_out and one number of bias. Give every name a score, then "
        "pick the name with the highest.",
        "A score is the dot product of mixed with the name's row, plus the name's bias. "
        "read_out @ mixed + bias gives all scores for one mix; mixed @ read_out.T + bias for many.",
        "scores.argmax(axis=-1) is the place of the highest score along the last axis.",
    ),
)

_all_three_right = Exercise(
    name="all_three_right",
    lesson="03",
    minutes=5,
    difficulty=1,
    framework="numpy",
    contract=(
        "all_three_right(predicted, roles): two (n, 3) arrays of whole numbers -> one float, the "
        "share of rows that agree in all three places"
    ),
    arguments=("predicted", "roles"),
    reference=mixing.all_three_right,
    cases=(
        Case("one sentence, all right", lambda: _numbers([[4, 2, 7]], [[4, 2, 7]])),
        Case("one sentence, one role wrong", lambda: _numbers([[4, 2, 4]], [[4, 2, 7]])),
        Case("giver and receiver swapped", lambda: _numbers([[4, 2, 7]], [[7, 2, 4]])),
        Case(
            "two sentences, one of them right",
            lambda: _numbers([[4, 2, 7], [1, 0, 5]], [[4, 2, 7], [1, 0, 6]]),
        ),
        Case(
            "three sentences, each with another role wrong",
            lambda: _numbers([[0, 2, 7], [1, 9, 5], [3, 3, 8]], [[4, 2, 7], [1, 0, 5], [3, 3, 4]]),
        ),
        Case(
            "four sentences, the faults all in one",
            lambda: _numbers(
                [[1, 1, 2], [2, 2, 1], [5, 5, 5], [0, 3, 1]],
                [[1, 1, 2], [2, 2, 1], [4, 6, 7], [0, 3, 1]],
            ),
        ),
        Case("fifty sentences", lambda: _guesses(50, seed=0)),
        Case(
            "rows that do not lie side by side in memory",
            lambda: tuple(np.asfortranarray(array) for array in _guesses(9, seed=1)),
        ),
    ),
    slips=(
        Slip(
            lambda predicted, roles: float((predicted == roles).mean()),
            "single roles were counted; a sentence with one wrong role still got two thirds",
            "ask for all three in each row first, .all(axis=1), then take the mean",
        ),
        Slip(
            lambda predicted, roles: float((predicted == roles).any(axis=1).mean()),
            "one right role was enough: that is any, where all is asked for",
            "use .all(axis=1) in the place of .any(axis=1)",
        ),
        Slip(
            lambda predicted, roles: float((predicted == roles).mean(axis=0).prod()),
            "the three accuracies were multiplied; that is right only if the roles go wrong "
            "independently of each other, and here they often go wrong together",
            "look at each sentence: .all(axis=1), then the mean",
        ),
        Slip(
            lambda predicted, roles: float((predicted == roles).mean(axis=0).min()),
            "this is the accuracy of the worst role; the roles may fail in different sentences",
            "look at each sentence: .all(axis=1), then the mean",
        ),
        Slip(
            lambda predicted, roles: float((predicted == roles).all(axis=0).mean()),
            "axis=0 runs down the sentences: it asks whether a role is right everywhere",
            "run along the row, axis=1, so that each sentence gets one answer",
        ),
        Slip(
            lambda predicted, roles: float((predicted == roles).all()),
            "all without an axis asks whether every sentence is right at once",
            "ask row by row, .all(axis=1), then take the mean",
        ),
        Slip(
            lambda predicted, roles: float((predicted == roles).all(axis=1).sum()),
            "this is how many sentences are right, and not their share",
            "use mean in the place of sum, or divide by the number of rows",
        ),
        Slip(
            lambda predicted, roles: float((predicted == roles).all(axis=1).sum() / predicted.size),
            "the number of right sentences was divided by the number of roles, thrice as many",
            "divide by the number of rows, len(roles), or use mean",
        ),
        Slip(
            lambda predicted, roles: float((predicted != roles).any(axis=1).mean()),
            "this is the share of sentences with a fault",
            "count the sentences that are right: ==, and .all(axis=1)",
        ),
        Slip(
            lambda predicted, roles: (predicted == roles).all(axis=1),
            "there is one answer for each sentence, and their share is asked for",
            "finish with .mean(): the mean of True and False is the share of True",
        ),
        Slip(
            lambda predicted, roles: float((predicted[:, 0] == roles[:, 0]).mean()),
            "only the giver was looked at",
            "compare whole rows: (predicted == roles).all(axis=1)",
        ),
        Slip(
            lambda predicted, roles: float(
                (np.sort(predicted, axis=1) == np.sort(roles, axis=1)).all(axis=1).mean()
            ),
            "the order within the row was given up, so giver and receiver may be swapped",
            "compare place by place: predicted == roles",
        ),
        Slip(
            lambda predicted, roles: float((predicted.sum(axis=1) == roles.sum(axis=1)).mean()),
            "the rows were added up before comparing, so different rows can look alike",
            "compare place by place: predicted == roles",
        ),
        Slip(
            lambda predicted, roles: float(
                ((predicted == roles)[:, 0] & (predicted == roles)[:, 2]).mean()
            ),
            "giver and receiver were looked at, and the thing was left out",
            "compare whole rows: (predicted == roles).all(axis=1)",
        ),
    ),
    hints=(
        "A sentence counts only if all three of its roles are right. Decide that for each row "
        "first.",
        "predicted == roles compares place by place and gives True and False in the same shape. "
        ".all(axis=1) is True for the rows that hold only True.",
        "The mean of True and False is the share of True: (predicted == roles).all(axis=1).mean().",
    ),
)


def _numbers(*lists):
    return tuple(np.array(numbers) for numbers in lists)


def _guesses(n, seed):
    """(n, 3) predictions of which a part is right, and the truth."""
    rng = np.random.default_rng(seed)
    roles = rng.integers(6, size=(n, 3))
    guesses = np.where(rng.random((n, 3)) < 0.8, roles, rng.integers(6, size=(n, 3)))
    guesses[: n // 5, ::2] = roles[: n // 5, ::-2]  # giver and receiver swapped in some
    return guesses, roles


EXERCISES = (_mix, _role_readout, _all_three_right)
