"""multi_head_attention: faults in the matrices, the split, the scores, the merge and the end."""

import math

import torch
import torch.nn.functional as F

WRONG = {
    "matrices": {
        "transposed": "every matrix was transposed",
        "inputs transposed": "w_q, w_k and w_v were transposed",
        "w_k for values": "the values were made with w_k",
        "query and key swapped": "query and key are swapped",
        "input cut": "the input was cut before the projections",
    },
    "split": {
        "reshape only": "the split has no transpose",
        "not moved": "the heads of one token attend to each other",
        "dealt": "the split deals the features out in turn",
        "tiled": "the features were dealt out in turn",
        "one wide head": "nothing was split",
        "reshape only, both": "neither the split nor the merge has its transpose",
    },
    "scale": {
        "d_model": "the root of d_model",
        "none": "the scores were not scaled",
        "twice": "the scores were scaled twice",
        "num_heads": "the root of num_heads",
    },
    "softmax": {
        "over queries": "the softmax runs over the queries",
        "over heads": "the softmax runs over the heads",
        "missing": "the softmax is missing",
        "heads averaged": "the weights were averaged over the heads",
        "causal": "a causal mask was applied",
    },
    "merge": {
        "reshape back": "the merge has no transpose back",
        "collected": "the merge collects the features in turn",
        "sum of heads": "not d_model features wide",
        "view": "view never moves them",
    },
    "end": {
        "no w_o": "w_o plays no part",
        "w_o transposed": "w_o was transposed",
        "residual": "the input was added to the output",
        "weights too": "the weights came back as well",
        "detached": "the values left the graph",
        "float32": "default dtype",
    },
}
SAME = ()


def build(*faults):
    def project(x, w, num_heads, head_dim):
        if "input cut" not in faults:
            return x @ (w.mT if {"transposed", "inputs transposed"} & set(faults) else w)
        pieces = []
        for start in range(0, x.shape[2], head_dim):
            stop = start + head_dim
            pieces.append(x[:, :, start:stop] @ w[start:stop, start:stop])
        return torch.cat(pieces, dim=2)

    def split(x, num_heads, head_dim):
        batch, seq_len, _ = x.shape
        if "reshape only" in faults or "reshape only, both" in faults:
            return torch.reshape(x, (batch, num_heads, seq_len, head_dim))
        if "one wide head" in faults:
            return x.unsqueeze(1)
        if "dealt" in faults or "tiled" in faults:
            return torch.stack([x[..., head::num_heads] for head in range(num_heads)], dim=1)
        heads = x.view(batch, seq_len, num_heads, head_dim)
        return heads if "not moved" in faults else heads.permute(0, 2, 1, 3)

    def merge(heads, shape):
        if "sum of heads" in faults:
            return heads.sum(dim=1)
        if {"reshape only, both", "reshape back", "not moved"} & set(faults):
            return torch.reshape(heads, shape)
        if "view" in faults:
            return heads.permute(0, 2, 1, 3).view(shape)
        if "collected" in faults or "tiled" in faults:
            return torch.stack(list(heads.unbind(1)), dim=-1).reshape(shape)
        return torch.cat(list(heads.unbind(1)), dim=-1)

    def weigh(scores):
        if "missing" in faults:
            return scores
        if "causal" in faults:
            scores = scores + torch.full_like(scores, -math.inf).triu(1)
        dim = {"over queries": 2, "over heads": 1}
        weights = F.softmax(scores, next((dim[name] for name in faults if name in dim), 3))
        if "heads averaged" in faults:
            weights = weights.mean(1, keepdim=True).repeat(1, weights.shape[1], 1, 1)
        return weights

    def multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads):
        head_dim = x.shape[2] // num_heads
        matrices = [w_q, w_k, w_v]
        if "w_k for values" in faults:
            matrices[2] = w_k
        elif "query and key swapped" in faults:
            matrices[:2] = w_k, w_q
        query, key, value = (
            split(project(x, w, num_heads, head_dim), num_heads, head_dim) for w in matrices
        )
        square = {"d_model": x.shape[2], "none": 1, "twice": head_dim**2, "num_heads": num_heads}
        square = next((square[fault] for fault in faults if fault in square), head_dim)
        weights = weigh(torch.einsum("...qd,...kd->...qk", query, key) / square**0.5)
        output = merge(torch.einsum("...qk,...kd->...qd", weights, value), x.shape)

        if "no w_o" not in faults:
            turned = "w_o transposed" in faults or "transposed" in faults
            output = output @ (w_o.mT if turned else w_o)
        if "residual" in faults:
            output = output + x
        if "detached" in faults:
            return output.detach()
        if "float32" in faults:
            return output.float()
        return (output, weights) if "weights too" in faults else output

    return multi_head_attention


def step_by_step(x, w_q, w_k, w_v, w_o, num_heads):
    batch, seq_len, d_model = x.shape
    head_dim = d_model // num_heads
    query = (x @ w_q).view(batch, seq_len, num_heads, head_dim).transpose(1, 2)
    key = (x @ w_k).view(batch, seq_len, num_heads, head_dim).transpose(1, 2)
    value = (x @ w_v).view(batch, seq_len, num_heads, head_dim).transpose(1, 2)
    weights = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(head_dim), dim=-1)
    return (weights @ value).transpose(1, 2).reshape(batch, seq_len, d_model) @ w_o


def head_by_head(x, w_q, w_k, w_v, w_o, num_heads):
    head_dim = x.shape[-1] // num_heads
    heads = []
    for start in range(0, x.shape[-1], head_dim):
        columns = slice(start, start + head_dim)
        query, key, value = x @ w_q[:, columns], x @ w_k[:, columns], x @ w_v[:, columns]
        weights = (query @ key.mT / head_dim**0.5).softmax(dim=2)
        heads.append(weights @ value)
    return torch.cat(heads, dim=-1) @ w_o


def sum_of_projections(x, w_q, w_k, w_v, w_o, num_heads):
    head_dim = x.shape[-1] // num_heads
    total = torch.zeros_like(x)
    for q, k, v, o in zip(
        *(torch.chunk(w, num_heads, dim=1) for w in (w_q, w_k, w_v)),
        torch.chunk(w_o, num_heads, dim=0),
        strict=True,
    ):
        weights = torch.softmax((x @ q) @ (x @ k).mT / math.sqrt(head_dim), -1)
        total = total + weights @ x @ v @ o
    return total


def with_einsum(x, w_q, w_k, w_v, w_o, num_heads):
    query, key, value = (
        torch.einsum("bld,dhe->bhle", x, w.unflatten(1, (num_heads, -1))) for w in (w_q, w_k, w_v)
    )
    scores = torch.einsum("bhqe,bhke->bhqk", query, key) / math.sqrt(query.shape[-1])
    output = torch.einsum("bhqk,bhke->bqhe", scores.softmax(-1), value)
    return torch.einsum("bqhe,hed->bqd", output, w_o.unflatten(0, (num_heads, -1)))


def with_the_fused_kernel(x, w_q, w_k, w_v, w_o, num_heads):
    fused = x @ torch.cat([w_q, w_k, w_v], dim=1)
    parts = (part.unflatten(-1, (num_heads, -1)).swapaxes(1, 2) for part in fused.chunk(3, dim=-1))
    return F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2) @ w_o


def with_torchs_own_layer(x, w_q, w_k, w_v, w_o, num_heads):
    output, _ = F.multi_head_attention_forward(
        *[x.transpose(0, 1)] * 3,
        x.shape[-1],
        num_heads,
        torch.cat([w_q.T, w_k.T, w_v.T]),
        None,
        None,
        None,
        False,
        0.0,
        w_o.T,
        None,
        training=False,
    )
    return output.transpose(0, 1)


RIGHT = (
    step_by_step,
    head_by_head,
    sum_of_projections,
    with_einsum,
    with_the_fused_kernel,
    with_torchs_own_layer,
)
