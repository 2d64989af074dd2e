"""head_entropy: faults in the logarithm, at weights of 0, in the mean, and in what comes back."""

import math

import torch

WRONG = {
    "weights": {
        "softmax again": "a softmax was applied to the weights",
        "mean row": "the rows were averaged first",
    },
    "logarithm": {
        "natural": "these are nats and not bits",
        "base 10": "the one to base 10",
        "weights left out": "added up without their weights",
    },
    "zeros": {
        "NaN": "0 times -inf is NaN",
        "NaN mended too late": "one weight of 0 wipes out its whole row",
        "rows left out": "left out of the mean",
    },
    "mean": {
        "none": "the mean over the rows is missing",
        "sum": "the rows' entropies were added up",
        "along the row too": "within a row the products were averaged",
        "over everything": "one number out of all heads",
        "over the heads": "the mean runs over the heads",
        "first row": "only the first row",
    },
    "result": {
        "no minus": "the minus is missing",
        "share of the largest": "divided by log2(n)",
        "number of tokens": "2 to the power of the entropy",
    },
    "return": {
        "float32": "default dtype",
        "numpy": "NumPy",
        "detached": "no gradient flows back",
    },
}
SAME = ()


def build(*faults):
    def head_entropy(weights):
        n = weights.shape[-1]
        if "softmax again" in faults:
            weights = torch.softmax(weights, dim=-1)
        elif "mean row" in faults:
            weights = weights.mean(dim=-2, keepdim=True)

        bad_zeros = {"NaN", "NaN mended too late", "rows left out"} & set(faults)
        safe = weights if bad_zeros else weights + (weights == 0)
        logs = torch.log(safe)
        if "base 10" in faults:
            logs = logs / math.log(10)
        elif "natural" not in faults:
            logs = logs / math.log(2)
        if "weights left out" in faults:
            products = logs if bad_zeros else torch.log2(weights)
        else:
            products = weights * logs
        if "no minus" not in faults:
            products = -products

        rows = products.mean(dim=-1) if "along the row too" in faults else products.sum(dim=-1)
        if "NaN mended too late" in faults:
            rows = torch.where(rows.isnan(), 0, rows)
        if "sum" in faults:
            result = rows.sum(dim=-1)
        elif "over everything" in faults:
            result = rows.mean()
        elif "over the heads" in faults:
            result = rows.mean(dim=-2)
        elif "first row" in faults:
            result = rows[..., 0]
        elif "none" in faults:
            result = rows
        elif "rows left out" in faults:
            result = rows.nanmean(dim=-1)
        else:
            result = rows.mean(dim=-1)

        if "share of the largest" in faults:
            result = result / torch.log2(torch.tensor(n, dtype=weights.dtype))
        elif "number of tokens" in faults:
            result = 2**result
        if "numpy" in faults:
            return result.detach().numpy()
        if "float32" in faults:
            return result.float()
        return result.detach() if "detached" in faults else result

    return head_entropy


def with_entr(weights):
    return (torch.special.entr(weights) / math.log(2)).sum(-1).mean(-1)


def with_xlogy(weights):
    return -torch.xlogy(weights, weights).sum(dim=-1).mean(dim=-1) / math.log(2)


def with_a_small_number(weights):
    return -(weights * torch.log2(weights + 1e-12)).sum(dim=-1).mean(dim=-1)


def with_clamp(weights):
    return -(weights * weights.clamp(min=1e-12).log2()).sum(-1).mean(-1)


def with_nan_to_num(weights):
    return -torch.nan_to_num(weights * weights.log2()).sum(-1).mean(-1)


def with_nansum(weights):
    return -(weights * weights.log2()).nansum(dim=-1).mean(dim=-1)


def with_where(weights):
    bits = torch.where(weights > 0, weights * torch.log2(weights), torch.zeros_like(weights))
    return -bits.sum(dim=-1).mean(dim=-1)


def divided_by_n(weights):
    bits = weights * torch.where(weights == 0, torch.ones_like(weights), weights).log2()
    return -bits.sum(dim=(-2, -1)) / weights.size(-1)


def columns_first(weights):
    """All entries of a map are added up either way."""
    return torch.special.entr(weights).sum(-2).mean(-1) / math.log(2)


def with_a_distribution(weights):
    return torch.distributions.Categorical(probs=weights).entropy().mean(-1) / math.log(2)


def with_loops(weights):
    maps = weights.reshape(-1, *weights.shape[-2:])
    found = []
    for one in maps:
        total = 0
        for row in one:
            some = row[row > 0]
            total = total - (some * some.log2()).sum()
        found.append(total / len(one))
    return torch.stack(found).reshape(weights.shape[:-2])


RIGHT = (
    with_entr,
    with_xlogy,
    with_a_small_number,
    with_clamp,
    with_nan_to_num,
    with_nansum,
    with_where,
    divided_by_n,
    columns_first,
    with_a_distribution,
    with_loops,
)
