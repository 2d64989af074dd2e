"""grouped_attention: faults in who meets whom, the scale, the softmax, the end, and in copying."""

import math

import torch
import torch.nn.functional as F

WRONG = {
    "heads": {
        "tiled": "query head h met key/value head h % num_kv_heads",
        "h // num_kv_heads": "met key/value head h // num_kv_heads: the number of groups",
        "h // num_kv_heads, unchecked": "which need not exist",
        "first head": "all query heads met key/value head 0",
        "values tiled": "the values are those of another head",
        "group averaged": "there is one output for each key/value head",
        "rows of tokens": "one token of each head in turn",
        "back in another order": "the heads stand in another order",
    },
    "scale": {
        "d_model": "the root of d_model",
        "shared width": "the root of the width of all key/value heads together",
        "none": "the scores were not scaled",
        "twice": "the scores were scaled twice",
    },
    "softmax": {
        "in line": "where they stand in line over those of all heads of the group",
        "over queries": "the softmax runs over the queries",
        "over heads": "the softmax runs over the heads",
        "missing": "the softmax is missing",
        "causal": "a causal mask was applied",
    },
    "values": {
        "keys mixed": "the keys were mixed, not the values",
    },
    "end": {
        "merged": "the heads were merged",
        "two axes of heads": "the heads still have two axes",
        "weights too": "the weights came back as well",
        "in place": "the input query was changed",
        "detached": "the values left the graph",
        "float32": "default dtype",
    },
    "copies": {
        "repeat_interleave": "key and value were copied for the query heads",
        "expand": "key and value were copied for the query heads",
        "broadcast": "key and value were copied for the query heads",
        "one group at a time": "key and value were copied for the query heads",
        "only the keys": "key and value were copied for the query heads",
    },
}
SAME = (set(WRONG["copies"]),)
CHOICES = {
    "tiled": lambda h, heads, shared: h % shared,
    "h // num_kv_heads": lambda h, heads, shared: min(h // shared, shared - 1),
    "h // num_kv_heads, unchecked": lambda h, heads, shared: h // shared,
    "first head": lambda h, heads, shared: 0,
}


def build(*faults):
    given = set(faults)

    def chosen(x, num_heads):
        """(batch, num_heads, …): the shared head of every query head."""
        shared = x.shape[1]
        choose = next((CHOICES[fault] for fault in faults if fault in CHOICES), None)
        choose = choose or (lambda h, heads, shared: h // (heads // shared))
        return [x[:, choose(head, num_heads, shared)] for head in range(num_heads)]

    def weigh(scores):
        if "missing" in given:
            return scores
        if "causal" in given:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        if "in line" in given:
            lines = scores.unflatten(1, (weigh.shared, -1)).flatten(2, 3)
            return F.softmax(lines, dim=2).reshape(scores.shape)
        axis = {"over queries": 2, "over heads": 1}
        return F.softmax(scores, next((axis[f] for f in faults if f in axis), 3))

    def matched(query, key):
        """query times transposed key, head by head or with a copy."""
        batch, num_heads, _, head_dim = query.shape
        shared, key_len = key.shape[1:3]
        size = num_heads // shared
        if given & set(CHOICES):
            keys = chosen(key, num_heads)
            return torch.stack([query[:, h] @ k.mT for h, k in enumerate(keys)], dim=1)
        if given & {"repeat_interleave", "only the keys"}:
            return query @ torch.repeat_interleave(key, size, dim=1).mT
        if "expand" in given:
            copies = key[:, :, None].expand(batch, shared, size, key_len, head_dim)
            return query @ copies.reshape(batch, num_heads, key_len, head_dim).mT
        if "broadcast" in given:
            return (query.unflatten(1, (shared, size)) @ key.unsqueeze(2).mT).flatten(1, 2)
        if "one group at a time" in given:
            groups = query.chunk(shared, dim=1)
            return torch.cat([q @ key[:, g : g + 1].mT for g, q in enumerate(groups)], dim=1)
        cut = query.unflatten(1, (shared, size))
        return torch.einsum("bgsqd,bgkd->bgsqk", cut, key).flatten(1, 2)

    def mixed(weights, value):
        num_heads, shared = weights.shape[1], value.shape[1]
        size = num_heads // shared
        if given & set(CHOICES) or "values tiled" in given:
            values = chosen(value, num_heads)
            if "values tiled" in given:
                values = [value[:, head % shared] for head in range(num_heads)]
            return torch.stack([weights[:, h] @ v for h, v in enumerate(values)], dim=1)
        if given & {"repeat_interleave", "expand"}:
            return weights @ torch.repeat_interleave(value, size, dim=1)
        if "broadcast" in given:
            return (weights.unflatten(1, (shared, size)) @ value.unsqueeze(2)).flatten(1, 2)
        if "one group at a time" in given:
            groups = weights.chunk(shared, dim=1)
            return torch.cat([w @ value[:, g : g + 1] for g, w in enumerate(groups)], dim=1)
        cut = weights.unflatten(1, (shared, size))
        return torch.einsum("bgsqk,bgkd->bgsqd", cut, value).flatten(1, 2)

    def grouped_attention(query, key, value):
        _, num_heads, _, head_dim = query.shape
        shared = key.shape[1]
        weigh.shared = shared
        if "in place" in given:
            with torch.no_grad():
                query *= 1.5
            query = query / 1.5
        if "group averaged" in given:
            query = query.unflatten(1, (shared, -1)).mean(2)
        elif "rows of tokens" in given:
            query = query.unflatten(1, (shared, -1)).transpose(2, 3).reshape(query.shape)

        squares = {"d_model": num_heads * head_dim, "shared width": shared * head_dim}
        squares |= {"none": 1, "twice": head_dim**2}
        square = next((squares[f] for f in faults if f in squares), head_dim)
        weights = weigh(matched(query, key) / math.sqrt(square))
        output = mixed(weights, key if "keys mixed" in given else value)

        if "back in another order" in given:
            output = output.unflatten(1, (shared, -1)).transpose(1, 2).flatten(1, 2)
        if "merged" in given:
            output = torch.cat(list(output.unbind(1)), dim=-1)
        elif "two axes of heads" in given:
            output = output.unflatten(1, (shared, -1))
        if "float32" in given:
            return output.float()
        if "detached" in given:
            return output.detach()
        return (output, weights) if "weights too" in given else output

    return grouped_attention


def in_line(query, key, value):
    batch, num_heads, query_len, head_dim = query.shape
    rows = query.reshape(batch, key.shape[1], -1, head_dim)
    weights = torch.softmax(rows @ key.mT / math.sqrt(head_dim), dim=-1)
    return (weights @ value).view(batch, num_heads, query_len, head_dim)


def with_the_fused_kernel(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def head_by_head(query, key, value):
    size = query.shape[1] // key.shape[1]
    outputs = []
    for head in range(query.shape[1]):
        shared_key, shared_value = key[:, head // size], value[:, head // size]
        scores = query[:, head] @ shared_key.transpose(1, 2) * query.shape[-1] ** -0.5
        outputs.append(scores.softmax(-1) @ shared_value)
    return torch.stack(outputs, dim=1)


def group_by_group(query, key, value):
    outputs = []
    for group, heads in enumerate(query.chunk(key.shape[1], dim=1)):
        rows = heads.flatten(1, 2)
        scores = torch.bmm(rows, key[:, group].mT) / math.sqrt(query.shape[-1])
        outputs.append(torch.bmm(scores.softmax(-1), value[:, group]).view_as(heads))
    return torch.cat(outputs, dim=1)


def with_einsum(query, key, value):
    groups = query.unflatten(1, (key.shape[1], -1))
    scores = torch.einsum("bgsqd,bgkd->bgsqk", groups, key) / math.sqrt(query.shape[-1])
    return torch.einsum("bgsqk,bgkd->bgsqd", scores.softmax(-1), value).flatten(1, 2)


def with_the_library(query, key, value):
    from mhalib.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(query, key, value)[0]


RIGHT = (
    in_line,
    with_the_fused_kernel,
    head_by_head,
    group_by_group,
    with_einsum,
    with_the_library,
)
