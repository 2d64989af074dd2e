"""scaled_dot_product_attention: faults in the scale, the mask, the softmax and what is returned."""

import math

import numpy as np
import torch
import torch.nn.functional as F

WRONG = {
    "scale": {
        "no scale": "the scores were not scaled",
        "scale twice": "divided by head_dim, not by its root",
        "d_model": "the width of all heads together",
        "multiply": "multiplied by the root",
        "key_len": "the number of keys",
        "query_len": "the number of queries",
        "heads": "the number of heads",
        "value_dim": "the width of the values",
    },
    "mask": {
        "reversed": "the wrong way round",
        "added as 0 and 1": "added as the numbers 0 and 1",
        "multiplied in": "exp(0) is 1",
        "filled with 1e-9": "exp(0) is 1",
        "zero times infinity": "zero times infinity is NaN",
        "filled with -1": "set to -1",
        "ignored": "the mask was not used",
        "after the softmax": "the mask came after the softmax",
    },
    "softmax": {
        "over queries": "the softmax runs over the queries",
        "over heads": "the softmax runs over the heads",
        "missing": "the softmax is missing",
        "overflow": "overflows in exp",
    },
    "return": {
        "output only": "only the output came back",
        "weights first": "the weights came first",
        "heads averaged": "the weights of the heads were averaged",
        "detached": "the values left the graph",
        "float32": "default dtype",
    },
}
# set to 0 or to 1e-9: the same to six digits
SAME = (("multiplied in", "filled with 1e-9"),)


def build(*faults):
    def scaled_dot_product_attention(query, key, value, attn_mask=None):
        num_heads, query_len, head_dim = query.shape[1:]
        squares = {
            "no scale": 1,
            "scale twice": head_dim**2,
            "d_model": num_heads * head_dim,
            "multiply": 1 / head_dim,
            "key_len": key.shape[2],
            "query_len": query_len,
            "heads": num_heads,
            "value_dim": value.shape[3],
        }
        square = next((squares[fault] for fault in faults if fault in squares), head_dim)
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / square**0.5

        if attn_mask is not None:
            shown = attn_mask.to(scores.dtype)
            if "reversed" in faults:
                scores[attn_mask.expand_as(scores)] = float("-inf")
            elif "added as 0 and 1" in faults:
                scores = scores + shown
            elif "multiplied in" in faults:
                scores = scores * shown
            elif "filled with 1e-9" in faults:
                scores = torch.where(attn_mask, scores, 1e-9)
            elif "zero times infinity" in faults:
                scores = scores + (1 - shown) * float("-inf")
            elif "filled with -1" in faults:
                scores = torch.where(attn_mask, scores, -1.0)
            elif "ignored" not in faults and "after the softmax" not in faults:
                scores = torch.where(attn_mask, scores, float("-inf"))

        dim = 2 if "over queries" in faults else 1 if "over heads" in faults else 3
        if "missing" in faults:
            weights = scores
        elif "overflow" in faults:
            weights = torch.exp(scores) / torch.exp(scores).sum(dim, keepdim=True)
        else:
            weights = torch.softmax(scores, dim)
        if attn_mask is not None and "after the softmax" in faults:
            weights = torch.where(attn_mask, weights, 0.0)

        output = torch.einsum("bhqk,bhkd->bhqd", weights, value)
        if "heads averaged" in faults:
            weights = torch.stack([weights.mean(1)] * num_heads, dim=1)
        if "detached" in faults:
            output, weights = output.detach(), weights.detach()
        elif "float32" in faults:
            output, weights = output.float(), weights.float()
        if "output only" in faults:
            return output
        return (weights, output) if "weights first" in faults else (output, weights)

    return scaled_dot_product_attention


def fill_and_softmax(query, key, value, attn_mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    return weights @ value, weights


def very_negative_fill(query, key, value, attn_mask=None):
    scores = torch.matmul(query, key.mT) * query.shape[-1] ** -0.5
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -1e9)
    weights = scores.softmax(-1)
    return weights.matmul(value), weights


def additive_bias(query, key, value, attn_mask=None):
    bias = 0
    if attn_mask is not None:
        bias = torch.zeros_like(attn_mask, dtype=query.dtype)
        bias = bias.masked_fill(attn_mask.logical_not(), float("-inf"))
    scores = torch.einsum("bhqd,bhkd->bhqk", query / math.sqrt(query.shape[-1]), key) + bias
    weights = scores.softmax(dim=-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, value), weights


def with_logsumexp(query, key, value, mask=None):
    scores = query @ key.transpose(2, 3) / np.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.where(mask, torch.tensor(-torch.inf, dtype=scores.dtype))
    weights = (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()
    return weights @ value, weights


def head_by_head(query, key, value, attn_mask=None):
    batch, num_heads, query_len, head_dim = query.shape
    outputs, maps = [], []
    for sample in range(batch):
        for head in range(num_heads):
            scores = query[sample, head] @ key[sample, head].T / head_dim**0.5
            if attn_mask is not None:
                full = attn_mask.expand(batch, num_heads, query_len, key.shape[2])
                scores = scores.masked_fill(~full[sample, head], -torch.inf)
            maps.append(scores.softmax(dim=1))
            outputs.append(maps[-1] @ value[sample, head])
    shape = (batch, num_heads, query_len, -1)
    return torch.stack(outputs).view(shape), torch.stack(maps).view(shape)


def fused_output(query, key, value, attn_mask=None):
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)
    identity = torch.eye(key.shape[2], dtype=key.dtype).expand(*key.shape[:3], -1)
    weights = F.scaled_dot_product_attention(query, key, identity, attn_mask=attn_mask)
    return [output, weights]


def mask_then_rescale(query, key, value, *, attn_mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        visible = scores.masked_fill(~attn_mask, -torch.inf)
        powers = (scores - visible.amax(-1, keepdim=True)).clamp(max=0).exp() * attn_mask
        weights = powers / powers.sum(-1, keepdim=True)
    else:
        weights = scores.softmax(-1)
    return weights @ value, weights


RIGHT = (
    fill_and_softmax,
    very_negative_fill,
    additive_bias,
    with_logsumexp,
    head_by_head,
    fused_output,
    mask_then_rescale,
)
