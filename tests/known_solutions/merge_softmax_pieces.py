"""merge_softmax_pieces: faults in the maximum, the factors, the sums and what is returned."""

import math

import torch

WRONG = {
    "maximum": {
        "left kept": "the maximum of the left piece was kept",
        "right taken": "the maximum of the right piece was taken",
        "smaller": "the smaller of the two maxima",
        "added": "the maxima were added",
        "of all rows": "one maximum was taken for all rows",
    },
    "factor": {
        "total not rescaled": "the totals were added as they are",
        "output not rescaled": "the outputs were added as they are",
        "nothing rescaled": "totals and outputs were both added as they are",
        "sides swapped": "each side got the factor of the other",
        "upside down": "the factor is upside down",
        "no maximum subtracted": "exp of its own maximum",
        "no exp": "the difference of the maxima itself",
        "NaN": "-inf minus -inf is NaN",
    },
    "output": {
        "divided": "the output was divided by the total",
        "averaged": "the outputs were averaged",
        "taken for divided": "the outputs were multiplied by their totals",
    },
    "return": {
        "output first": "output and maximum changed places",
        "output only": "only the output came back",
        "float32": "default dtype",
        "detached": "the values left the graph",
        "in place": "writes into the caller's own array",
        "nothing": "returned none",
    },
}
SAME = ()


def build(*faults):
    def merge_softmax_pieces(left, right):
        (left_top, left_sum, left_out), (right_top, right_sum, right_out) = left, right
        top = torch.where(left_top > right_top, left_top, right_top)
        if "left kept" in faults:
            top = left_top
        elif "right taken" in faults:
            top = right_top
        elif "smaller" in faults:
            top = torch.where(left_top > right_top, right_top, left_top)
        elif "added" in faults:
            top = left_top + right_top
        elif "of all rows" in faults:
            top = torch.full_like(top, 1.0) * top.max()

        base = top if "NaN" in faults else top.clamp(min=torch.finfo(top.dtype).min)
        if "no maximum subtracted" in faults:
            base = torch.zeros_like(top)
        left_by, right_by = left_top - base, right_top - base
        if "upside down" in faults:
            left_by, right_by = -left_by, -right_by
        if "no exp" not in faults:
            left_by, right_by = left_by.exp(), right_by.exp()
        if "sides swapped" in faults:
            left_by, right_by = right_by, left_by

        total = left_sum * left_by + right_sum * right_by
        if "total not rescaled" in faults or "nothing rescaled" in faults:
            total = left_sum + right_sum
        if "taken for divided" in faults:
            left_out, right_out = left_out * left_sum, right_out * right_sum
        if "output not rescaled" in faults or "nothing rescaled" in faults:
            left_by = right_by = 1.0
        if "in place" in faults:
            output = left_out.mul_(left_by).add_(right_out * right_by)
        else:
            output = left_out * left_by + right_out * right_by
        if "divided" in faults:
            output = output / total
        elif "averaged" in faults:
            output = output / 2

        if "nothing" in faults:
            return None
        if "output only" in faults:
            return output
        piece = (output, total, top) if "output first" in faults else (top, total, output)
        if "float32" in faults:
            return tuple(part.float() for part in piece)
        return tuple(part.detach() for part in piece) if "detached" in faults else piece

    return merge_softmax_pieces


def with_where(left, right):
    maximum = torch.maximum(left[0], right[0])
    base = torch.where(maximum == -math.inf, torch.zeros_like(maximum), maximum)
    factors = torch.exp(left[0] - base), torch.exp(right[0] - base)
    return maximum, *(left[i] * factors[0] + right[i] * factors[1] for i in (1, 2))


def with_nan_to_num(left, right):
    maximum = torch.max(left[0], right[0])
    left_by = torch.exp(left[0] - maximum).nan_to_num(0.0)
    right_by = torch.exp(right[0] - maximum).nan_to_num(0.0)
    return [
        maximum,
        left[1] * left_by + right[1] * right_by,
        left[2] * left_by + right[2] * right_by,
    ]


def row_by_row(left, right):
    rows = []
    for m1, t1, o1, m2, t2, o2 in zip(*left, *right, strict=True):
        if m1.item() == -math.inf:
            rows.append((m2, t2, o2))
        elif m2.item() == -math.inf:
            rows.append((m1, t1, o1))
        elif m1 >= m2:
            rows.append((m1, t1 + t2 * (m2 - m1).exp(), o1 + o2 * (m2 - m1).exp()))
        else:
            rows.append((m2, t2 + t1 * (m1 - m2).exp(), o2 + o1 * (m1 - m2).exp()))
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def stacked(left, right):
    maxima = torch.stack([left[0], right[0]])
    maximum = maxima.amax(dim=0)
    factors = torch.exp(maxima - maximum.masked_fill(maximum.isinf(), 0))
    totals, outputs = (torch.stack(pair) for pair in zip(left[1:], right[1:], strict=True))
    return maximum, (totals * factors).sum(0), torch.einsum("prk,prd->rd", factors, outputs)


def very_low_base(left, right):
    maximum = left[0].maximum(right[0])
    base = maximum.clamp(min=-1e30)
    left_by, right_by = (left[0] - base).exp(), (right[0] - base).exp()
    return maximum, left_by * left[1] + right_by * right[1], left_by * left[2] + right_by * right[2]


RIGHT = (with_where, with_nan_to_num, row_by_row, stacked, very_low_base)
