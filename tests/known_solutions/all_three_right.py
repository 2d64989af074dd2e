"""all_three_right: faults in comparing, in deciding about a row, and in counting."""

import numpy as np

WRONG = {
    "compare": {
        "sorted": "the order within the row was given up",
        "giver only": "only the giver was looked at",
        "people only": "the thing was left out",
        "different": "the share of sentences with a fault",
    },
    "decide": {
        "no rows": "single roles were counted",
        "any": "one right role was enough",
        "down": "axis=0 runs down the sentences",
        "everything": "every sentence is right at once",
    },
    "count": {
        "number": "how many sentences are right",
        "by entries": "divided by the number of roles",
        "no count": "there is one answer for each sentence",
    },
}
SAME = ()


def build(*faults):
    def all_three_right(predicted, roles):
        if "sorted" in faults:
            predicted, roles = np.sort(predicted, axis=1), np.sort(roles, axis=1)
        if "giver only" in faults:
            predicted, roles = predicted[:, :1], roles[:, :1]
        elif "people only" in faults:
            predicted, roles = predicted[:, [0, 2]], roles[:, [0, 2]]
        same = np.equal(predicted, roles)

        if "no rows" in faults:
            right = same
        elif "any" in faults:
            right = np.any(same, axis=1)
        elif "down" in faults:
            right = np.all(same, axis=0)
        elif "everything" in faults:
            right = np.all(same)
        else:
            right = np.all(same, axis=1)
        if "different" in faults:
            right = np.logical_not(right)

        if "number" in faults:
            return float(np.sum(right))
        if "by entries" in faults:
            return np.sum(right) / (len(roles) * 3)
        if "no count" in faults:
            return right
        return float(np.mean(right))

    return all_three_right


def loop(predicted, roles):
    right = 0
    for said, true in zip(predicted, roles, strict=True):
        if said[0] == true[0] and said[1] == true[1] and said[2] == true[2]:
            right += 1
    return right / len(roles)


def lists(predicted, roles):
    pairs = zip(predicted.tolist(), roles.tolist(), strict=True)
    return sum(said == true for said, true in pairs) / len(roles)


def three_right(predicted, roles):
    return ((predicted == roles).sum(axis=1) == 3).mean()


def no_difference(predicted, roles):
    return 1 - (predicted != roles).any(axis=1).mean()


def count(predicted, roles):
    return np.count_nonzero((predicted == roles).prod(axis=1)) / predicted.shape[0]


RIGHT = (loop, lists, three_right, no_difference, count)
