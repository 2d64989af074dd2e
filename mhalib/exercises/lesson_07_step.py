"""The exercise of lesson 07 on decoding: one more token, with a cache."""

import math

import torch

from mhalib import functional, sharing
from mhalib.exercises.catalogue import Case, Exercise, Slip, call_in_order
from mhalib.exercises.lesson_04 import normal


def _step(batch, cached_len, d_model, num_heads, num_kv_heads, head_dim=None, **options):
    """Arguments whose scores and outputs are of the order of 1."""
    head_dim = d_model // num_heads if head_dim is None else head_dim
    wide, narrow = num_heads * head_dim, num_kv_heads * head_dim
    cache = (batch, num_kv_heads, cached_len, head_dim)
    x, keys, values, w_q, w_k, w_v, w_o = normal(
        (batch, 1, d_model),
        cache,
        cache,
        (d_model, wide),
        (d_model, narrow),
        (d_model, narrow),
        (wide, d_model),
        **options,
    )
    w_q, w_k, w_v = (w / math.sqrt(d_model) for w in (w_q, w_k, w_v))
    return x, keys, values, w_q, w_k, w_v, w_o / math.sqrt(wide), num_heads


def _in_a_buffer(x, keys, values, *weights):
    """The same numbers: the cache is the beginning of a longer buffer, the weights transposed."""
    *weights, num_heads = weights
    keys, values = (torch.cat([x, x + 9], dim=2)[:, :, : x.shape[2]] for x in (keys, values))
    return (x, keys, values, *(w.T.contiguous().T for w in weights), num_heads)


def _many_steps(*sizes, steps, **options):
    """As `_step`, but x holds several tokens, which come one after the other."""
    batch, _, d_model, *_ = sizes
    _, *rest = _step(*sizes, **options)
    return (normal((batch, steps, d_model), seed=99)[0], *rest)


def _one_by_one(function, x, keys, values, *rest):
    """All outputs, and the cache in the end; stops where a step returns something else."""
    outputs = []
    for token in x.split(1, dim=1):
        returned = call_in_order(function, token, keys, values, *rest)
        if not isinstance(returned, (tuple, list)) or len(returned) != 3:
            return returned
        output, keys, values = returned
        outputs.append(output)
    return torch.cat(outputs, dim=1), keys, values


def _appended(cached, new):
    return torch.cat([cached, new], dim=2)


def _softmax(scores):
    return scores.softmax(dim=-1)


def _cached(
    *,
    project=lambda x, w, num_heads: functional.split_heads(x @ w, num_heads),
    project_key=None,
    use=lambda q, k, v, o: (q, k, v, o),
    append_key=_appended,
    append_value=_appended,
    see=lambda old, new, grown: grown,
    repeat=lambda x, num_heads: x.repeat_interleave(num_heads // x.shape[1], dim=1),
    scale=lambda head_dim, d_model: 1 / math.sqrt(head_dim),
    weigh=_softmax,
    merge=functional.merge_heads,
    end=lambda output, keys, values: (output, keys, values),
):
    """A slip: a step with a cache in which one of the moves is done another way."""

    def wrong(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
        w_q, w_k, w_v, w_o = use(w_q, w_k, w_v, w_o)
        query = project(x, w_q, num_heads)
        key = (project_key or project)(x, w_k, keys.shape[1])
        value = project(x, w_v, values.shape[1])
        all_keys, all_values = append_key(keys, key), append_value(values, value)
        seen_keys = repeat(see(keys, key, all_keys), num_heads)
        seen_values = repeat(see(values, value, all_values), num_heads)
        scores = query @ seen_keys.transpose(-2, -1) * scale(query.shape[-1], x.shape[-1])
        output = merge(weigh(scores) @ seen_values)
        return end(output if w_o is None else output @ w_o, all_keys, all_values)

    return wrong


def _repeated_before(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
    """Keys and values of the new token repeated for every query head before they are appended."""
    group_size = num_heads // keys.shape[1]
    step = _cached(**_both(lambda old, new: _appended(old, new.repeat_interleave(group_size, 1))))
    return step(x, keys, values, w_q, w_k, w_v, w_o, num_heads)


def _repeated_cache(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
    """The whole cache repeated for every query head, and returned so."""
    output, *grown = _cached()(x, keys, values, w_q, w_k, w_v, w_o, num_heads)
    return (output, *(c.repeat_interleave(num_heads // c.shape[1], dim=1) for c in grown))


def _tiled(x, num_heads):
    return x.repeat(1, num_heads // x.shape[1], 1, 1)


def _by_num_kv_heads(x, num_heads):
    """Query head h on key/value head h // num_kv_heads, as far as that exists."""
    return x[:, [min(head // x.shape[1], x.shape[1] - 1) for head in range(num_heads)]]


def _first_slots(x, num_heads):
    return x[:, :1].expand(-1, num_heads, -1, -1)


def _both(change):
    """Keys and values appended in this way."""
    return {"append_key": change, "append_value": change}


def _top_left(scores):
    """Added to the scores of one query, it hides all keys but the first."""
    hidden = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
    return torch.zeros_like(scores[0, 0]).masked_fill(hidden, -math.inf)


_cached_step = Exercise(
    name="cached_step",
    lesson="07",
    minutes=10,
    difficulty=2,
    framework="torch",
    contract=(
        "cached_step(x, keys, values, w_q, w_k, w_v, w_o, num_heads): the new token (batch, 1, "
        "d_model); the keys and values of all tokens before it, (batch, num_kv_heads, cached_len, "
        "head_dim) each, cached_len may be 0; four matrices used as x @ w, of which w_k and w_v "
        "have num_kv_heads * head_dim columns; the number of query heads\n"
        "-> (output, keys, values): the token's output (batch, 1, d_model), and new keys and "
        "values (batch, num_kv_heads, cached_len + 1, head_dim), its own at the end\n"
        "The token attends to all before it and to itself; the tensors given stay as they are"
    ),
    arguments=("x", "keys", "values", "w_q", "w_k", "w_v", "w_o", "num_heads"),
    reference=sharing.cached_step,
    returns=("output", "keys", "values"),
    cases=(
        Case("the first token and one head", lambda: _step(1, 0, 3, 1, 1)),
        Case("the first token and two heads", lambda: _step(1, 0, 4, 2, 2, seed=1)),
        Case("one token in the cache", lambda: _step(1, 1, 3, 1, 1, seed=2)),
        Case("three tokens in the cache", lambda: _step(1, 3, 4, 1, 1, seed=3)),
        Case("three tokens and two heads", lambda: _step(1, 3, 4, 2, 2, seed=4)),
        Case("one key/value head for all", lambda: _step(1, 3, 8, 4, 1, seed=5)),
        Case("eight heads on four", lambda: _step(1, 3, 16, 8, 4, seed=6)),
        Case("six heads on two", lambda: _step(1, 5, 12, 6, 2, seed=7)),
        Case("two samples", lambda: _step(2, 4, 8, 4, 2, seed=8)),
        Case("heads together wider than d_model", lambda: _step(3, 5, 7, 6, 3, head_dim=5, seed=9)),
        Case(
            "four steps, one after the other",
            lambda: _many_steps(2, 0, 8, 4, 2, steps=4, seed=10),
            call=_one_by_one,
        ),
        Case(
            "a cache that is the beginning of a longer buffer",
            lambda: _in_a_buffer(*_step(2, 3, 8, 4, 2, seed=11)),
        ),
        Case("float64", lambda: _step(2, 3, 8, 4, 2, seed=12, dtype=torch.float64)),
        Case(
            "gradients in float64",
            lambda: _step(2, 3, 8, 4, 2, seed=13, dtype=torch.float64),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            _cached(**_both(lambda cached, new: cached)),
            "the cache did not grow: the new key and value were not appended",
            "append them first, torch.cat([keys, key], dim=2), and attend to the result",
        ),
        Slip(
            _cached(
                **_both(lambda cached, new: cached),
                see=lambda old, new, grown: _appended(old, new),
            ),
            "the output is right, but the cache came back without the new key and value, so the "
            "next token would not see this one",
            "return the tensors to which they were appended",
        ),
        Slip(
            _cached(append_key=lambda cached, new: cached, see=lambda o, n, grown: _appended(o, n)),
            "the keys came back without the new one; the values have grown",
            "return the keys to which the new one was appended",
        ),
        Slip(
            _cached(
                append_value=lambda cached, new: cached, see=lambda o, n, grown: _appended(o, n)
            ),
            "the values came back without the new one; the keys have grown",
            "return the values to which the new one was appended",
        ),
        Slip(
            _cached(see=lambda old, new, grown: old),
            "the token attends before its own key and value are appended, so it does not see "
            "itself (and the first token sees nothing)",
            "append first, attend then: a token sees all before it and itself",
        ),
        Slip(
            _cached(see=lambda old, new, grown: new),
            "the token attends only to itself: what is in the cache plays no part",
            "attend to the keys and values after the new ones were appended",
        ),
        Slip(
            _cached(**_both(lambda cached, new: new), see=lambda o, n, grown: n),
            "the cache was thrown away, and only the new key and value are left",
            "append them: torch.cat([keys, key], dim=2)",
        ),
        Slip(
            _cached(weigh=lambda scores: (scores + _top_left(scores)).softmax(dim=-1)),
            "only the first key is seen: a causal mask aligned top-left (is_causal=True) takes the "
            "new token for token 0 and hides the rest of its history",
            "leave the mask out: the cache holds only what lies in the token's past",
        ),
        Slip(
            _cached(**_both(lambda cached, new: _appended(new, cached))),
            "the new key and value stand in front of those in the cache",
            "the new ones come last: torch.cat([keys, key], dim=2)",
        ),
        Slip(
            _cached(append_value=lambda cached, new: _appended(new, cached)),
            "the new key was appended at the end and the new value in front, so the weights meet "
            "the values of other tokens",
            "let both come last",
        ),
        Slip(
            _cached(**_both(lambda cached, new: _appended(cached[:, :, 1:], new))),
            "the oldest key and value were dropped, as by a sliding window",
            "keep all of them: the cache grows by one",
        ),
        Slip(
            _cached(**_both(lambda cached, new: _appended(cached[:, :, :-1], new))),
            "the last key and value were overwritten by the new ones",
            "write behind them: the cache grows by one",
        ),
        Slip(
            _repeated_before,
            "the new key and value were repeated for all query heads, and do not fit into a cache "
            "of num_kv_heads heads",
            "append them as they are; heads are shared when the query meets them",
        ),
        Slip(
            _repeated_cache,
            "the cache came back with num_heads heads: repeated, it is as large as without sharing",
            "return the keys and values with num_kv_heads heads, as they were appended",
        ),
        Slip(
            _cached(
                project_key=lambda x, w, num_heads: functional.split_heads(x, num_heads),
            ),
            "x itself was appended as the key",
            "project it first: x @ w_k, then split it into num_kv_heads heads",
        ),
        Slip(
            _cached(use=lambda q, k, v, o: (q, k, k, o)),
            "the value was made with w_k",
            "use w_v for the value",
        ),
        Slip(
            _cached(use=lambda q, k, v, o: (q, v, k, o)),
            "key and value are swapped",
            "make the key with w_k and the value with w_v",
        ),
        Slip(
            _cached(use=lambda q, k, v, o: (k, q, v, o)),
            "query and key are swapped: the key was made with w_q",
            "make the query with w_q and the key with w_k",
        ),
        Slip(
            _cached(repeat=_tiled),
            "query head h met key/value head h % num_kv_heads, as after a tiling repeat; "
            "neighbouring query heads share a head",
            "use grouped_attention, or repeat_kv, from mhalib",
        ),
        Slip(
            _cached(repeat=_by_num_kv_heads),
            "query head h met key/value head h // num_kv_heads: the number of groups was used "
            "where the size of one belongs",
            "divide by group_size = num_heads // num_kv_heads",
        ),
        Slip(
            _cached(repeat=_first_slots),
            "all query heads met key/value head 0",
            "let each group of query heads meet its own key/value head",
        ),
        Slip(
            _cached(scale=lambda head_dim, d_model: 1 / math.sqrt(d_model)),
            "the scores were divided by the root of d_model",
            "divide by the root of head_dim",
        ),
        Slip(
            _cached(scale=lambda head_dim, d_model: 1),
            "the scores were not scaled",
            "divide the scores by the root of head_dim before the softmax",
        ),
        Slip(
            _cached(scale=lambda head_dim, d_model: 1 / head_dim),
            "the scores were scaled twice, or divided by head_dim and not by its root",
            "divide once, by the root of head_dim",
        ),
        Slip(
            _cached(weigh=lambda scores: scores.softmax(dim=-2)),
            "the softmax runs over the queries; there is one, so every weight is 1 and the values "
            "were added up",
            "let it run over the keys: dim=-1",
        ),
        Slip(
            _cached(weigh=lambda scores: scores.softmax(dim=1)),
            "the softmax runs over the heads",
            "let it run over the keys: dim=-1",
        ),
        Slip(
            _cached(weigh=lambda scores: scores),
            "the softmax is missing: the values were mixed with the scores themselves",
            "apply softmax(dim=-1) to the scores before they meet the values",
        ),
        Slip(
            _cached(use=lambda q, k, v, o: (q, k, v, None)),
            "w_o plays no part: the heads stand side by side, but nothing mixes them",
            "multiply the merged heads by w_o at the end",
        ),
        Slip(
            _cached(use=lambda q, k, v, o: (q, k, v, o.T)),
            "w_o was transposed",
            "use it as it comes: merged @ w_o",
        ),
        Slip(
            _cached(merge=lambda x: x.permute(0, 2, 3, 1).flatten(2)),
            "the features were merged in turn, one of every head",
            "keep the features of a head side by side: merge_heads",
        ),
        Slip(
            _cached(merge=lambda x: x.sum(dim=1)),
            "what met w_o is not num_heads * head_dim features wide: the heads were added up",
            "put the heads' features side by side, with merge_heads, before w_o",
        ),
        Slip(
            _cached(end=lambda output, keys, values: (output[:, 0], keys, values)),
            "the output has lost the axis of the token",
            "keep it: (batch, 1, d_model)",
        ),
        Slip(
            _cached(end=lambda output, keys, values: (keys, values, output)),
            "the output comes last",
            "end with return output, keys, values",
        ),
        Slip(
            _cached(end=lambda output, keys, values: output),
            "the output came back alone, and with it the new key and value are lost",
            "end with return output, keys, values",
        ),
    ),
    hints=(
        "Four moves: project x three times and split the heads, append, attend, merge and project "
        "with w_o.",
        "The query has num_heads heads; key and value have as many as the cache, keys.shape[1]. "
        "mhalib.functional.split_heads(x @ w_k, keys.shape[1]) has the shape of one more slot.",
        "torch.cat([keys, key], dim=2) makes a new tensor, with the new key behind the others; "
        "likewise the values. Attend to these, so that the token sees itself.",
        "No mask: all that is in the cache lies in the past. grouped_attention(query, keys, "
        "values) in mhalib.sharing attends; merge_heads(…) @ w_o ends it.",
    ),
)


EXERCISES = (_cached_step,)
