"""stable_half_precision_attention: faults in the scores, the softmax, the mix and the dtype."""

import math

import torch
import torch.nn.functional as F

WRONG = {
    "scores": {
        "half product": "the scores were made in half precision, where",
        "half product, scaled first": "the scores were still made in half precision",
        "query scaled in half": "query or key was scaled in half precision",
        "key scaled in half": "query or key was scaled in half precision",
        "both scaled in half": "query or key was scaled in half precision",
        "rounded": "rounded to half precision before the softmax",
        "cut off": "the infinite scores were cut off",
        "NaN replaced": "the nan was replaced by 0",
    },
    "scale": {
        "none": "the scores were not scaled",
        "twice": "divided by head_dim, not by its root",
    },
    "softmax": {
        "no maximum": "no maximum was subtracted",
        "over queries": "the softmax runs over the queries",
    },
    "mix": {
        "divided last": "added up in half precision before the division",
    },
    "return": {
        "float32": "came back in float32",
        "float16": "came back in float16, whatever came in",
        "bfloat16": "came back in bfloat16, whatever came in",
        "weights too": "returned 2 values",
        "detached": "the values left the graph",
    },
}
# different roundings of the same 11 bits: each moves the tie by several units
SAME = (("query scaled in half", "key scaled in half", "both scaled in half"),)


def build(*faults):
    def stable_half_precision_attention(query, key, value):
        dtype, head_dim = query.dtype, query.shape[-1]
        scale = 1.0 if "none" in faults else 1 / head_dim if "twice" in faults else head_dim**-0.5
        q32, k32 = query.to(torch.float32), key.to(torch.float32)
        if "half product" in faults or "NaN replaced" in faults or "cut off" in faults:
            scores = torch.matmul(query, key.mT).float()
            if "cut off" in faults:
                scores = scores.nan_to_num(posinf=65504.0, neginf=-65504.0)
            scores = scores * scale
        elif "half product, scaled first" in faults:
            scores = torch.matmul(query * scale, key.mT).float()
        elif "query scaled in half" in faults:
            scores = (query * scale).float() @ k32.mT
        elif "key scaled in half" in faults:
            scores = q32 @ (key * scale).float().mT
        elif "both scaled in half" in faults:
            scores = (query * scale**0.5).float() @ (key * scale**0.5).float().mT
        else:
            scores = torch.einsum("bhqd,bhkd->bhqk", q32, k32) * scale
        if "rounded" in faults:
            scores = scores.to(dtype).float()

        dim = -2 if "over queries" in faults else -1
        if "no maximum" in faults or "divided last" in faults:
            powers = scores
            if "no maximum" not in faults:
                powers = powers - scores.amax(dim, keepdim=True)
            powers = powers.exp()
            total = powers.sum(dim, keepdim=True)
        else:
            powers, total = torch.softmax(scores, dim), 1.0
        if "NaN replaced" in faults:
            powers = torch.where(powers.isnan(), 0.0, powers)
        if "divided last" in faults and dim == -1:
            output = (powers.to(dtype) @ value) / total.to(dtype)
        else:
            output = (powers / total) @ value.float()

        if "float32" in faults:
            return output.float()
        if "float16" in faults:
            return output.to(torch.float16)
        if "bfloat16" in faults:
            return output.to(torch.bfloat16)
        output = output.to(dtype)
        if "weights too" in faults:
            return output, powers
        return output.detach() if "detached" in faults else output

    return stable_half_precision_attention


def float32_whole(query, key, value):
    query32, key32, value32 = query.float(), key.float(), value.float()
    weights = F.softmax(query32 @ key32.transpose(2, 3) / math.sqrt(query.size(-1)), dim=-1)
    return (weights @ value32).to(query.dtype)


def float64_whole(query, key, value):
    scores = query.double() @ key.double().mT / query.shape[-1] ** 0.5
    return (scores.softmax(-1) @ value.double()).type_as(query)


def scaled_before_in_float32(query, key, value):
    scores = (query.float() * query.shape[-1] ** -0.5) @ key.float().mT
    return (scores.softmax(-1) @ value.float()).to(value.dtype)


def root_on_both_sides(query, key, value):
    root = query.shape[-1] ** -0.25
    scores = (query.float() * root) @ (key.float() * root).mT
    return (scores.softmax(-1) @ value.float()).to(value.dtype)


def weights_rounded(query, key, value):
    """As fused kernels do: the weights are rounded before they meet the values."""
    scores = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
    return scores.softmax(-1).to(value.dtype) @ value


def fused(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


def fused_in_float32(query, key, value):
    return F.scaled_dot_product_attention(*(x.float() for x in (query, key, value))).to(query.dtype)


def logsumexp(query, key, value):
    scores = torch.einsum("bhqd,bhkd->bhqk", query.float(), key.float()) / query.shape[-1] ** 0.5
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    return torch.einsum("bhqk,bhkd->bhqd", weights, value.float()).to(query.dtype)


def maximum_by_hand(query, key, value):
    scores = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
    powers = (scores - scores.max(-1, keepdim=True).values).exp()
    return ((powers @ value.float()) / powers.sum(-1, keepdim=True)).to(query.dtype)


RIGHT = (
    float32_whole,
    float64_whole,
    scaled_before_in_float32,
    root_on_both_sides,
    weights_rounded,
    fused,
    fused_in_float32,
    logsumexp,
    maximum_by_hand,
)
