"""previous_token_score: faults in which weights are taken, in the mean, in what comes back."""

import torch

WRONG = {
    "weights": {
        "next": "the weight to the next token",
        "itself": "each token to itself",
        "last for the first": "Python counts -1 from the end",
        "itself for the first": "counted with its weight to itself",
        "two before": "two places before",
        "all before": "all earlier tokens were counted",
        "after as well": "the token after was counted as well",
        "how often": "how often the token before gets the largest weight",
        "layers and heads": "runs along the first two axes",
        "without the last": "the last token was left out as well",
    },
    "mean": {
        "over n": "the sum was divided by n",
        "sum": "the weights were added up",
        "none": "the mean over the tokens is missing",
        "over everything": "one number out of all heads",
    },
    "return": {
        "float32": "default dtype",
        "numpy": "NumPy",
        "detached": "no gradient flows back",
    },
}
SAME = ()


def build(*faults):
    def previous_token_score(weights):
        taken = _taken(faults, weights)
        if "over n" in faults:
            score = taken.sum(dim=-1) / weights.size(-1)
        elif "sum" in faults:
            score = taken.sum(dim=-1)
        elif "none" in faults:
            score = taken
        elif "over everything" in faults:
            score = taken.mean()
        else:
            score = taken.sum(dim=-1) / taken.size(-1) if taken.size(-1) else taken.mean(dim=-1)
        if "numpy" in faults:
            return score.detach().numpy()
        if "float32" in faults:
            return score.float()
        return score.detach() if "detached" in faults else score

    return previous_token_score


def _taken(faults, weights):
    n = weights.size(-1)
    tokens = torch.arange(1, n)
    if "next" in faults:
        return weights[..., tokens - 1, tokens]
    if "itself" in faults:
        return weights[..., torch.arange(n), torch.arange(n)]
    if "last for the first" in faults:
        return torch.stack([weights[..., i, i - 1] for i in range(n)], dim=-1)
    if "itself for the first" in faults:
        return torch.stack([weights[..., i, max(i - 1, 0)] for i in range(n)], dim=-1)
    if "two before" in faults:
        return weights[..., tokens[1:], tokens[1:] - 2]
    if "all before" in faults:
        return torch.stack([weights[..., i, :i].sum(dim=-1) for i in range(1, n)], dim=-1)
    if "after as well" in faults:
        before = torch.eye(n, dtype=weights.dtype).roll(-1, 1).tril(-1)
        return (weights * (before + before.T)).sum(dim=-1)
    if "how often" in faults:
        return (weights.argmax(dim=-1)[..., 1:] == tokens - 1).to(weights.dtype)
    if "layers and heads" in faults:
        return torch.diagonal(weights, -1)
    if "without the last" in faults:
        return weights[..., tokens[:-1], tokens[:-1] - 1]
    return weights[..., tokens, tokens - 1]


def with_diagonal(weights):
    return torch.diagonal(weights, offset=-1, dim1=-2, dim2=-1).mean(-1)


def with_the_first_row_cut_off(weights):
    return weights[..., 1:, :].diagonal(dim1=-2, dim2=-1).mean(dim=-1)


def with_arange(weights):
    tokens = torch.arange(1, weights.shape[-1])
    return weights[..., tokens, tokens - 1].mean(dim=-1)


def with_a_loop(weights):
    n = weights.shape[-1]
    total = torch.zeros_like(weights[..., 0, 0])
    for i in range(1, n):
        total = total + weights[..., i, i - 1]
    return total / (n - 1)


def with_a_mask(weights):
    n = weights.shape[-1]
    places = torch.arange(n)
    is_before = places[:, None] - places == 1
    return (weights * is_before).sum(dim=(-2, -1)) / (n - 1)


def with_einsum(weights):
    return torch.einsum("...ii->...", weights[..., 1:, :-1]) / (weights.shape[-1] - 1)


def with_heads_one_by_one(weights):
    maps = weights.reshape(-1, *weights.shape[-2:])
    scores = [one.diagonal(-1).mean() for one in maps]
    return torch.stack(scores).reshape(weights.shape[:-2])


RIGHT = (
    with_diagonal,
    with_the_first_row_cut_off,
    with_arange,
    with_a_loop,
    with_a_mask,
    with_einsum,
    with_heads_one_by_one,
)
