"""cached_step: faults in what is projected, appended, attended to, weighed, and returned."""

import math

import torch
import torch.nn.functional as F

import mhalib

WRONG = {
    "projected": {
        "x as key": "x itself was appended as the key",
        "w_k for values": "the value was made with w_k",
        "key and value swapped": "key and value are swapped",
        "query and key swapped": "query and key are swapped",
    },
    "appended": {
        "nothing": "the cache did not grow",
        "in front": "the new key and value stand in front",
        "value in front": "the weights meet the values of other tokens",
        "not the value": "stopped with RuntimeError",
        "oldest dropped": "the oldest key and value were dropped",
        "last overwritten": "the last key and value were overwritten",
        "along the heads": "Sizes of tensors must match except in dimension 1",
        "for all heads": "were repeated for all query heads",
        "new alone": "the cache was thrown away",
    },
    "seen": {
        "before appending": "so it does not see itself",
        "itself alone": "the token attends only to itself",
        "first key": "a causal mask aligned top-left",
        "is_causal": "the mask has to know where the query stands among the keys",
    },
    "heads": {
        "tiled": "query head h met key/value head h % num_kv_heads",
        "h // num_kv_heads": "met key/value head h // num_kv_heads",
        "first head": "all query heads met key/value head 0",
    },
    "weights": {
        "root of d_model": "the root of d_model",
        "no scale": "the scores were not scaled",
        "scaled twice": "the scores were scaled twice",
        "over queries": "every weight is 1",
        "over heads": "the softmax runs over the heads",
        "no softmax": "the softmax is missing",
    },
    "output": {
        "no w_o": "w_o plays no part",
        "w_o transposed": "w_o was transposed",
        "merged in turn": "merged in turn",
        "sum of heads": "the heads were added up",
    },
    "return": {
        "old cache": "the cache came back without the new key and value",
        "old keys": "the keys came back without the new one",
        "old values": "the values came back without the new one",
        "repeated cache": "the cache came back with num_heads heads",
        "no token axis": "lost the axis of the token",
        "output last": "the output comes last",
        "output alone": "the output came back alone",
        "in place": "the input keys was changed",
        "float32": "default dtype",
        "detached": "the values left the graph",
    },
}
SAME = ({"not the value", "along the heads"},)


def build(*faults):
    given = set(faults)

    def append(cached, new, num_heads, is_value):
        if "nothing" in given or (is_value and "not the value" in given):
            return cached
        if "in front" in given or (is_value and "value in front" in given):
            return torch.cat((new, cached), 2)
        if "oldest dropped" in given:
            cached = cached[:, :, 1:]
        elif "last overwritten" in given:
            cached = cached.narrow(2, 0, max(cached.shape[2] - 1, 0))
        elif "new alone" in given:
            cached = cached.narrow(2, 0, 0)
        elif "for all heads" in given:
            new = new.repeat_interleave(num_heads // new.shape[1], dim=1)
        return torch.cat((cached, new), 1 if "along the heads" in given else 2)

    def met(x, num_heads):
        shared = x.shape[1]
        heads = torch.arange(num_heads)
        if "tiled" in given:
            return x[:, heads % shared]
        if "h // num_kv_heads" in given:
            return x[:, (heads // shared).clamp(max=shared - 1)]
        return x[:, heads * 0 if "first head" in given else heads // (num_heads // shared)]

    def weigh(scores, d_model, head_dim):
        squares = {"root of d_model": d_model, "no scale": 1, "scaled twice": head_dim**2}
        square = next((squares[f] for f in faults if f in squares), head_dim)
        scores = scores / math.sqrt(square)
        if "first key" in given:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~seen, float("-inf"))
        if "no softmax" in given:
            return scores
        axis = {"over queries": 2, "over heads": 1}
        return F.softmax(scores, next((axis[f] for f in faults if f in axis), 3))

    def cached_step(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
        batch, _, d_model = x.shape
        if "key and value swapped" in given:
            w_k, w_v = w_v, w_k
        elif "query and key swapped" in given:
            w_q, w_k = w_k, w_q
        elif "w_k for values" in given:
            w_v = w_k
        query = (x @ w_q).view(batch, num_heads, 1, -1)
        key = x if "x as key" in given else x @ w_k
        key = key.reshape(batch, keys.shape[1], 1, -1)
        value = (x @ w_v).view(batch, keys.shape[1], 1, -1)
        grown = append(keys, key, num_heads, False), append(values, value, num_heads, True)

        seen = grown
        if "before appending" in given:
            seen = keys, values
        elif "itself alone" in given:
            seen = key, value
        if "is_causal" in given:
            mhalib.scaled_dot_product_attention(query, *seen, is_causal=True)
        seen_keys, seen_values = (met(part, num_heads) for part in seen)
        weights = weigh(query @ seen_keys.mT, d_model, query.shape[-1])
        output = weights @ seen_values  # (batch, num_heads, 1, head_dim)

        if "sum of heads" in given:
            output = output.sum(1)
        elif "merged in turn" in given:
            output = output.permute(0, 2, 3, 1).reshape(batch, 1, -1)
        else:
            output = output.permute(0, 2, 1, 3).reshape(batch, 1, -1)
        if "no w_o" not in given:
            output = output @ (w_o.mT if "w_o transposed" in given else w_o)

        if "in place" in given:
            keys.data = grown[0].data
        if "old cache" in given:
            grown = keys, values
        elif "old keys" in given:
            grown = keys, grown[1]
        elif "old values" in given:
            grown = grown[0], values
        elif "repeated cache" in given:
            grown = tuple(met(part, num_heads) for part in grown)
        if "no token axis" in given:
            output = output.squeeze(1)
        if "float32" in given:
            return output.float(), *grown
        if "detached" in given:
            return output.detach(), *(part.detach() for part in grown)
        if "output last" in given:
            return *grown, output
        return output if "output alone" in given else (output, *grown)

    return cached_step


def step_by_step(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
    batch, num_kv_heads, _, head_dim = keys.shape
    query = (x @ w_q).view(batch, 1, num_heads, head_dim).transpose(1, 2)
    key = (x @ w_k).view(batch, 1, num_kv_heads, head_dim).transpose(1, 2)
    value = (x @ w_v).view(batch, 1, num_kv_heads, head_dim).transpose(1, 2)
    keys = torch.cat([keys, key], dim=2)
    values = torch.cat([values, value], dim=2)
    every_key = keys.repeat_interleave(num_heads // num_kv_heads, dim=1)
    every_value = values.repeat_interleave(num_heads // num_kv_heads, dim=1)
    weights = torch.softmax(query @ every_key.transpose(-2, -1) / math.sqrt(head_dim), dim=-1)
    output = (weights @ every_value).transpose(1, 2).reshape(batch, 1, -1)
    return output @ w_o, keys, values


def head_by_head(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
    head_dim, size = keys.shape[-1], num_heads // keys.shape[1]
    new_keys = torch.stack((x @ w_k).split(head_dim, dim=-1), dim=1)
    new_values = torch.stack((x @ w_v).split(head_dim, dim=-1), dim=1)
    keys, values = torch.cat([keys, new_keys], 2), torch.cat([values, new_values], 2)
    output = 0
    for head in range(num_heads):
        mine = slice(head * head_dim, (head + 1) * head_dim)
        scores = x @ w_q[:, mine] @ keys[:, head // size].mT / head_dim**0.5
        output = output + scores.softmax(-1) @ values[:, head // size] @ w_o[mine]
    return output, keys, values


def with_the_fused_kernel(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
    new = (x @ w for w in (w_k, w_v))
    new_key, new_value = (part.unflatten(-1, (keys.shape[1], -1)).swapaxes(1, 2) for part in new)
    keys = torch.cat([keys, new_key], dim=-2)
    values = torch.cat([values, new_value], dim=-2)
    query = (x @ w_q).unflatten(-1, (num_heads, -1)).swapaxes(1, 2)
    output = F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
    return output.swapaxes(1, 2).flatten(2) @ w_o, keys, values


def with_longer_buffers(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
    batch, num_kv_heads, cached_len, head_dim = keys.shape
    longer = []
    for cached, w in ((keys, w_k), (values, w_v)):
        buffer = cached.new_zeros(batch, num_kv_heads, cached_len + 1, head_dim)
        buffer[:, :, :cached_len] = cached
        buffer[:, :, cached_len] = (x @ w).view(batch, num_kv_heads, head_dim)
        longer.append(buffer)
    query = (x @ w_q).view(batch, num_kv_heads, -1, head_dim)
    weights = (query @ longer[0].mT / head_dim**0.5).softmax(dim=-1)
    return (weights @ longer[1]).view(batch, 1, -1) @ w_o, *longer


def returns_a_list(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
    return list(step_by_step(x, keys, values, w_q, w_k, w_v, w_o, num_heads))


RIGHT = (step_by_step, head_by_head, with_the_fused_kernel, with_longer_buffers, returns_a_list)
