"""causal_mask: faults in the triangle, in its place, in what True means, and in the form."""

import torch

WRONG = {
    "triangle": {
        "strict": "the diagonal is False",
        "one too many": "also sees the key after it",
        "all": "every query sees every key",
        "only itself": "every query sees only itself",
    },
    "place": {
        "transposed": "rows and columns are swapped",
        "upside down": "upside down",
        "mirrored": "the columns are mirrored",
    },
    "meaning": {"hidden": "True marks what is hidden"},
    "form": {
        "float": "the numbers 0 and 1",
        "integer": "the whole numbers 0 and 1",
        "additive": "additive mask",
        "four axes": "two axes more",
        "numpy": "NumPy array",
        "list": "a Python list",
    },
}
SAME = ()


def build(*faults):
    def causal_mask(n):
        last = {"strict": -1, "one too many": 1, "all": n}
        diagonal = next((last[fault] for fault in faults if fault in last), 0)
        rows = [[key <= query + diagonal for key in range(n)] for query in range(n)]
        if "only itself" in faults:
            rows = [[key == query for key in range(n)] for query in range(n)]
        if "transposed" in faults:
            rows = [list(row) for row in zip(*rows, strict=True)]
        elif "upside down" in faults:
            rows = rows[::-1]
        elif "mirrored" in faults:
            rows = [row[::-1] for row in rows]
        mask = torch.tensor(rows)
        if "hidden" in faults:
            mask = mask.logical_not()

        if "float" in faults:
            return mask.float()
        if "integer" in faults:
            return mask.int()
        if "additive" in faults:
            return torch.where(mask, 0.0, float("-inf"))
        if "four axes" in faults:
            return mask.view(1, 1, n, n)
        if "numpy" in faults:
            return mask.numpy()
        return mask.tolist() if "list" in faults else mask

    return causal_mask


def lower_triangle(n):
    return torch.tril(torch.ones(n, n)).bool()


def positions(n):
    return torch.arange(n).unsqueeze(0) <= torch.arange(n).unsqueeze(1)


def not_the_upper_triangle(n):
    return ~torch.ones((n, n), dtype=torch.bool).triu(diagonal=1)


def loop(n):
    mask = torch.zeros(n, n, dtype=torch.bool)
    for query in range(n):
        for key in range(query + 1):
            mask[query, key] = True
    return mask


def running_sum(n):
    return torch.eye(n).flip(1).cumsum(dim=1).flip(1) == 1


RIGHT = (lower_triangle, positions, not_the_upper_triangle, loop, running_sum)
