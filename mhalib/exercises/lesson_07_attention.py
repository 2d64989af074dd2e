"""The exercise of lesson 07 on attention whose heads share keys and values without a copy."""

import math

import numpy as np
import torch

from mhalib import functional, sharing
from mhalib.exercises.catalogue import Case, Exercise, Fault, Slip, call_in_order
from mhalib.exercises.lesson_04 import normal
from mhalib.exercises.observing import describe, made

_IN_LINE = "query.reshape(batch, num_kv_heads, group_size * query_len, head_dim)"


def _shapes(batch, num_heads, num_kv_heads, query_len, key_len, head_dim):
    shared = (batch, num_kv_heads, key_len, head_dim)
    return (batch, num_heads, query_len, head_dim), shared, shared


def _inputs(*sizes, **options):
    """query, key and value, for sizes as in `_shapes`."""
    return normal(*_shapes(*sizes), **options)


def _as_split(query, key, value):
    """The same numbers, as split_heads leaves them: a token's heads side by side in memory."""
    return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, key, value))


def _without_copies(function, query, key, value):
    """The result; where it is right, a Fault if key and value were copied for every query head."""
    output, shapes = made(call_in_order, function, query, key, value)
    seen, right = describe(output), describe(sharing.grouped_attention(query, key, value))
    is_right = seen.shape == right.shape and seen.kind == right.kind and seen.values is not None
    if not is_right or not np.allclose(seen.values, right.values, rtol=1e-4, atol=1e-5):
        return output
    numbers = sum(map(math.prod, shapes))
    if numbers >= query.shape[1] * key[:, 0].numel():
        raise Fault(
            f"the numbers are right, but key and value were copied for the query heads: tensors "
            f"of {numbers:,} numbers were made on the way, and key and value hold "
            f"{2 * key.numel():,}",
            "repeat_interleave copies, and so does a product with an expanded or broadcast tensor, "
            "before it multiplies; with a long cache these copies are most of the work",
            "let the query heads of a group stand in line behind the head they share, as more rows "
            f"of one product: {_IN_LINE}",
        )
    return output


def _heads_for(choose):
    """Key/value heads as query heads meet them: query head h meets choose(h, num_heads, shared)."""

    def repeated(x, num_heads):
        return x[:, [choose(head, num_heads, x.shape[1]) for head in range(num_heads)]]

    return repeated


_in_order = _heads_for(lambda head, num_heads, shared: head // (num_heads // shared))


def _attention(
    *,
    repeat=_in_order,
    repeat_value=None,
    scale=lambda query, key: 1 / math.sqrt(query.shape[-1]),
    weigh=lambda scores: scores.softmax(dim=-1),
    use=lambda query, key, value: (query, key, value),
    end=lambda output, weights, value: output,
):
    """A slip: grouped attention in which one of the steps is done another way."""

    def wrong(query, key, value):
        query, key, value = use(query, key, value)
        keys = repeat(key, query.shape[1])
        values = (repeat_value or repeat)(value, query.shape[1])
        weights = weigh(query @ keys.transpose(-2, -1) * scale(query, key))
        return end(weights @ values, weights, value)

    return wrong


def _out_of_line(output, weights, value):
    """Rows that stood in line by group, cut as if the groups came last."""
    batch, _, query_len, head_dim = output.shape
    in_line = output.reshape(batch, value.shape[1], -1, query_len, head_dim)
    return in_line.transpose(1, 2).reshape(output.shape)


def _rows_mixed(query, key, value):
    """The query heads of a group put in line with one token of each in turn."""
    batch, _, query_len, head_dim = query.shape
    groups = query.reshape(batch, key.shape[1], -1, query_len, head_dim)
    rows = groups.transpose(2, 3).reshape(batch, key.shape[1], -1, head_dim)
    return sharing.grouped_attention(rows, key, value).reshape(query.shape)


def _softmax_in_line(query, key, value):
    """The query heads of a group in line, and the softmax over that line."""
    rows = query.reshape(*key.shape[:2], -1, key.shape[-1])
    scores = rows @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    return (scores.softmax(dim=-2) @ value).reshape(query.shape)


_grouped_attention = Exercise(
    name="grouped_attention",
    lesson="07",
    minutes=10,
    difficulty=2,
    framework="torch",
    contract=(
        "grouped_attention(query, key, value): (batch, num_heads, query_len, head_dim) tensor, and "
        "two (batch, num_kv_heads, key_len, head_dim) tensors; num_kv_heads divides num_heads\n"
        "-> (batch, num_heads, query_len, head_dim) tensor: attention, scaled and without a mask, "
        "in which the first group_size = num_heads // num_kv_heads query heads use key/value head "
        "0, the next head 1, and so on\n"
        "Key and value must not be copied for each query head"
    ),
    arguments=("query", "key", "value"),
    reference=sharing.grouped_attention,
    returns=("the output",),
    cases=(
        Case("one head and one key", lambda: _inputs(1, 1, 1, 2, 1, 3)),
        Case("one head and three keys", lambda: _inputs(1, 1, 1, 2, 3, 2, seed=1)),
        Case("as many key/value heads as query heads", lambda: _inputs(1, 3, 3, 2, 4, 2, seed=2)),
        Case("one key/value head for all", lambda: _inputs(1, 4, 1, 3, 2, 2, seed=3)),
        Case("eight heads on four", lambda: _inputs(1, 8, 4, 3, 5, 4, seed=4)),
        Case("six heads on two", lambda: _inputs(1, 6, 2, 3, 5, 4, seed=5)),
        Case("as many queries as keys", lambda: _inputs(1, 4, 2, 4, 4, 2, seed=6)),
        Case("two samples", lambda: _inputs(2, 4, 2, 3, 4, 2, seed=7)),
        Case("odd sizes", lambda: _inputs(3, 15, 5, 7, 5, 3, seed=8)),
        Case(
            "heads as split_heads gives them",
            lambda: _as_split(*_inputs(2, 6, 3, 4, 5, 2, seed=9)),
        ),
        Case(
            "features that do not lie side by side in memory",
            lambda: tuple(x[..., ::2] for x in _inputs(2, 4, 2, 3, 4, 6, seed=10)),
        ),
        Case("float64", lambda: _inputs(2, 4, 2, 3, 4, 2, seed=11, dtype=torch.float64)),
        Case(
            "gradients in float64",
            lambda: _inputs(2, 6, 2, 3, 4, 2, seed=12, dtype=torch.float64),
            gradients=True,
        ),
        Case(
            "one new query, a long cache, and sixteen heads on two",
            lambda: _inputs(2, 16, 2, 1, 128, 32, seed=13),
            call=_without_copies,
        ),
    ),
    slips=(
        Slip(
            _attention(repeat=lambda x, num_heads: x.repeat(1, num_heads // x.shape[1], 1, 1)),
            "query head h met key/value head h % num_kv_heads, as after a tiling repeat; "
            "neighbouring query heads share a head",
            "put num_kv_heads before group_size where the heads of the query are cut, or let them "
            f"stand in line: {_IN_LINE}",
        ),
        Slip(
            _attention(
                repeat=_heads_for(lambda head, num_heads, shared: min(head // shared, shared - 1))
            ),
            "query head h met key/value head h // num_kv_heads: the number of groups was used "
            "where the size of one belongs",
            "divide by group_size = num_heads // num_kv_heads",
        ),
        Slip(
            _attention(repeat=_heads_for(lambda head, num_heads, shared: head // shared)),
            "query head h asked for key/value head h // num_kv_heads, which need not exist",
            "divide by group_size = num_heads // num_kv_heads",
        ),
        Slip(
            _attention(repeat=_heads_for(lambda head, num_heads, shared: 0)),
            "all query heads met key/value head 0",
            "let each group of query heads meet its own key/value head",
        ),
        Slip(
            _attention(
                repeat_value=lambda x, num_heads: x.repeat(1, num_heads // x.shape[1], 1, 1)
            ),
            "the weights are right, but the values are those of another head: they were tiled",
            "let a query head use the key and the value of the same key/value head",
        ),
        Slip(
            lambda query, key, value: sharing.grouped_attention(
                query.unflatten(1, (key.shape[1], -1)).mean(dim=2), key, value
            ),
            "there is one output for each key/value head: the query heads of a group were averaged",
            f"keep every query head: {_IN_LINE}",
        ),
        Slip(
            _rows_mixed,
            "the rows that stand in line, one token of each head in turn, were cut into heads "
            "as if the tokens of a head stood together",
            f"put the heads in line one after the other: {_IN_LINE}",
        ),
        Slip(
            _attention(end=_out_of_line),
            "every query head has a right output, but the heads stand in another order: the one "
            "inside the group came first",
            "undo the cut in the order in which it was made: .reshape(batch, num_heads, query_len, "
            "head_dim)",
        ),
        Slip(
            _attention(scale=lambda query, key: 1 / math.sqrt(query.shape[1] * query.shape[3])),
            "the scores were divided by the root of d_model, the width of all heads together",
            "divide by the root of head_dim",
        ),
        Slip(
            _attention(scale=lambda query, key: 1 / math.sqrt(key.shape[1] * key.shape[3])),
            "the scores were divided by the root of the width of all key/value heads together",
            "divide by the root of head_dim",
        ),
        Slip(
            _attention(scale=lambda query, key: 1),
            "the scores were not scaled",
            "divide the scores by the root of head_dim before the softmax",
        ),
        Slip(
            _attention(scale=lambda query, key: 1 / query.shape[-1]),
            "the scores were scaled twice, or divided by head_dim and not by its root",
            "divide once, by the root of head_dim",
        ),
        Slip(
            _softmax_in_line,
            "the softmax runs over the queries, and where they stand in line over those of all "
            "heads of the group",
            "let it run over the keys: dim=-1",
        ),
        Slip(
            _attention(weigh=lambda scores: scores.softmax(dim=-2)),
            "the softmax runs over the queries",
            "let it run over the keys: dim=-1",
        ),
        Slip(
            _attention(weigh=lambda scores: scores.softmax(dim=1)),
            "the softmax runs over the heads",
            "let it run over the keys: dim=-1",
        ),
        Slip(
            _attention(weigh=lambda scores: scores),
            "the softmax is missing: the values were mixed with the scores themselves",
            "apply softmax(dim=-1) to the scores before they meet the values",
        ),
        Slip(
            _attention(
                weigh=lambda s: s.masked_fill(
                    torch.ones(s.shape[-2:]).triu(1).bool(), -math.inf
                ).softmax(dim=-1)
            ),
            "a causal mask was applied (top-left, as by is_causal=True)",
            "leave the mask out: here every query may attend to every key",
        ),
        Slip(
            _attention(use=lambda query, key, value: (query, key, key)),
            "the keys were mixed, not the values",
            "multiply the weights by value",
        ),
        Slip(
            _attention(end=lambda output, weights, value: functional.merge_heads(output)),
            "the heads were merged",
            "return them as they are: (batch, num_heads, query_len, head_dim)",
        ),
        Slip(
            _attention(
                end=lambda output, weights, value: output.unflatten(1, (value.shape[1], -1))
            ),
            "the heads still have two axes, groups and heads in a group",
            "make one axis of them: .reshape(batch, num_heads, query_len, head_dim)",
        ),
        Slip(
            _attention(end=lambda output, weights, value: (output, weights)),
            "the weights came back as well",
            "return the output alone",
        ),
    ),
    hints=(
        "To a matrix product, the query heads that share a key head are more rows: what is one "
        "row for each query may be group_size rows for each query.",
        f"{_IN_LINE} puts the heads of a group in line behind each other and moves nothing, "
        "because neighbouring heads share a key head. Now query, key and value have num_kv_heads "
        "heads, all three.",
        "Go on as ever: scores = in_line @ key.transpose(-2, -1) / math.sqrt(head_dim), softmax "
        "over the last axis, times value.",
        "In the end .reshape(batch, num_heads, query_len, head_dim) undoes the line.",
    ),
)

EXERCISES = (_grouped_attention,)
