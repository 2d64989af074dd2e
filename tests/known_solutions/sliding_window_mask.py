"""sliding_window_mask: faults in the window's ends, in the offset, and in what the mask holds."""

import torch

WRONG = {
    "ends": {
        "one key more": "the window is one key too long",
        "one key less": "the window is one key too short",
        "shifted back": "the window ends before the query's own position",
        "both ways": "the window reaches as far forward as back",
        "around the query": "the window lies around the query",
        "not causal": "the future was not hidden",
        "forward": "the window looks forward",
        "no window": "the window plays no part",
        "blocks": "the text was cut into blocks",
    },
    "offset": {
        "ignored": "query_offset was ignored",
        "subtracted": "query_offset was subtracted",
        "bottom right": "the last query was taken to stand at the last key",
        "near end only": "at one end of the window only",
        "far end only": "at the far end of the window only",
    },
    "holds": {
        "polarity": "true marks what is hidden",
        "floats": "holds the numbers 0 and 1",
        "whole numbers": "holds the whole numbers 0 and 1",
        "additive": "this is an additive mask",
    },
    "return": {
        "transposed": "rows and columns are swapped",
        "four axes": "two axes more than asked for",
        "numpy": "went through numpy",
        "list": "a python list",
        "nothing": "returned none",
    },
}
SAME = ()


def build(*faults):
    def sliding_window_mask(query_len, key_len, window, query_offset):
        near = far = query_offset
        if "ignored" in faults:
            near = far = 0
        elif "subtracted" in faults:
            near = far = -query_offset
        elif "bottom right" in faults:
            near = far = key_len - query_len
        elif "near end only" in faults:
            far = 0
        elif "far end only" in faults:
            near = 0

        def seen(i, j):
            before_near, before_far = i + near - j, i + far - j  # steps from the key to the query
            if "one key more" in faults:
                return before_near >= 0 and before_far <= window
            if "one key less" in faults:
                return before_near >= 0 and before_far < window - 1
            if "shifted back" in faults:
                return before_near >= 1 and before_far <= window
            if "both ways" in faults:
                return before_near > -window and before_far < window
            if "around the query" in faults:
                return before_near >= -(window // 2) and before_far <= window // 2
            if "not causal" in faults:
                return before_far < window
            if "forward" in faults:
                return before_near > -window and before_far <= 0
            if "no window" in faults:
                return before_near >= 0
            if "blocks" in faults:
                return before_near >= 0 and (i + far) // window == j // window
            return before_near >= 0 and before_far < window

        rows = [[seen(i, j) for j in range(key_len)] for i in range(query_len)]
        mask = torch.tensor(rows)
        if "polarity" in faults:
            mask = mask.logical_not()
        elif "floats" in faults:
            mask = mask * 1.0
        elif "whole numbers" in faults:
            mask = mask * 1
        elif "additive" in faults:
            mask = torch.where(mask, 0.0, float("-inf"))

        if "nothing" in faults:
            return None
        if "transposed" in faults:
            mask = mask.t()
        if "four axes" in faults:
            return mask.view(1, 1, *mask.shape)
        if "numpy" in faults:
            return mask.numpy()
        return mask.tolist() if "list" in faults else mask

    return sliding_window_mask


def two_comparisons(query_len, key_len, window, query_offset):
    position = torch.arange(query_len).unsqueeze(1) + query_offset
    key = torch.arange(key_len).unsqueeze(0)
    return (key <= position) & (position < key + window)


def by_distance(query_len, key_len, window, query_offset):
    distance = torch.arange(query_len)[:, None] + query_offset - torch.arange(key_len)[None, :]
    return (distance >= 0).logical_and(distance < window)


def two_triangles(query_len, key_len, window, query_offset):
    ones = torch.ones(query_len, key_len, dtype=torch.bool)
    return ones.tril(query_offset) & ~ones.tril(query_offset - window)


def triangle_of_a_triangle(query_len, key_len, window, query_offset):
    ones = torch.ones(query_len, key_len)
    return ones.tril(query_offset).triu(query_offset - window + 1).bool()


def filled_in(query_len, key_len, window, query_offset):
    mask = torch.zeros((query_len, key_len), dtype=torch.bool)
    for i in range(query_len):
        mask[i, max(0, i + query_offset - window + 1) : i + query_offset + 1] = True
    return mask


RIGHT = (two_comparisons, by_distance, two_triangles, triangle_of_a_triangle, filled_in)
