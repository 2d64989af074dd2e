"""The exercises of lesson 08, Long inputs, few bits: half precision without its traps."""

import math

import numpy as np
import torch

from mhalib import pieces
from mhalib.exercises.catalogue import Case, Exercise, Slip


def _inputs(batch, num_heads, query_len, key_len, head_dim, **options):
    """Query, key and value in half precision, the same at every call."""
    rng = np.random.default_rng(options.get("seed", 0))
    sizes = (options.get("size", 1.0), options.get("size", 1.0), options.get("value_size", 1.0))
    return tuple(
        torch.from_numpy(rng.standard_normal((batch, num_heads, length, head_dim)) * size).to(
            options.get("dtype", torch.float16)
        )
        for length, size in zip((query_len, key_len, key_len), sizes, strict=True)
    )


def _of(*sizes, **options):
    return lambda: _inputs(*sizes, **options)


def _close_together(sign=1, dtype=torch.float16):
    """Scores of 72,000 that differ by a few: float32 holds them exactly, half precision cannot."""
    query = torch.tensor([[300.0, 1, 0, 0], [300, 2, 0, 0], [300, -1, 0, 0]])
    key = torch.tensor([[240.0, k, 0, 0] for k in (-2, -1, 0, 1, 2)])
    key[:, 0] *= sign
    value = _inputs(1, 1, 1, 5, 4, seed=6)[2]
    return tuple(x.to(dtype).expand(1, 2, *x.shape[-2:]).clone() for x in (query, key, value))


def _ties(dtype=torch.float16):
    """Two keys in different directions with equal scores: 300 * 240 = 200 * 360 = 72,000."""
    query = torch.tensor([[300.0, 200], [200, 300]])
    key = torch.tensor([[240.0, 0], [0, 360]])
    value = torch.tensor([[1.0, 2], [3, -4]])
    return tuple(x.to(dtype)[None, None] for x in (query, key, value))


def _split_from_rows():
    """Heads that were split off by a transpose: not contiguous."""
    wide = _inputs(2, 3, 4, 6, 8, seed=9)
    return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in wide)


def _attend(
    *,
    product=lambda query, key, scale: query.float() @ key.float().mT * scale,
    scale=lambda query: 1 / math.sqrt(query.shape[-1]),
    weigh=lambda scores: scores.softmax(dim=-1),
    mix=lambda weights, value: weights @ value.float(),
    end=lambda output, dtype: output.to(dtype),
):
    """A slip: attention with one of the steps done another way."""

    def wrong(query, key, value):
        weights = weigh(product(query, key, scale(query)))
        return end(mix(weights, value), query.dtype)

    return wrong


def _rounded(query, key, scale):
    return (query.float() @ key.float().mT * scale).to(query.dtype).float()


def _no_maximum(scores):
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


def _divided_last(query, key, value):
    scores = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
    powers = torch.exp(scores - scores.amax(dim=-1, keepdim=True)).to(query.dtype)
    return powers @ value / powers.sum(dim=-1, keepdim=True)


_TRAP = "the largest number of float16 is 65504"

_stable_half_precision_attention = Exercise(
    name="stable_half_precision_attention",
    lesson="08",
    minutes=8,
    difficulty=2,
    framework="torch",
    contract=(
        "stable_half_precision_attention(query, key, value): float16 or bfloat16 tensors of shape "
        "(batch, num_heads, query_len, head_dim) and twice (batch, num_heads, key_len, head_dim); "
        "query times key may lie beyond 65504\n"
        "-> (batch, num_heads, query_len, head_dim) tensor of the same dtype, as accurate as with "
        "scores and softmax in float32"
    ),
    arguments=("query", "key", "value"),
    reference=pieces.stable_half_precision_attention,
    returns=("the output",),
    cases=(
        Case("one token", _of(1, 1, 1, 1, 4)),
        Case("one head and small scores", _of(1, 1, 3, 5, 4, seed=1)),
        Case("two samples and three heads", _of(2, 3, 4, 6, 8, seed=2)),
        Case("bfloat16 and small scores", _of(2, 2, 3, 5, 8, seed=3, dtype=torch.bfloat16)),
        Case("query times key beyond 65504, far apart", _of(1, 2, 3, 6, 16, seed=4, size=160.0)),
        Case("query times key around 72000, close together", _close_together),
        Case("query times key around -72000, close together", lambda: _close_together(-1)),
        Case("two keys of equal score, 72000 both", _ties),
        Case("values around 40000", _of(1, 2, 3, 7, 8, seed=8, value_size=20_000.0)),
        Case("heads that were split off by a transpose", _split_from_rows),
        Case(
            "bfloat16 and query times key around 72000",
            lambda: _close_together(dtype=torch.bfloat16),
        ),
        Case("gradients in float16", _of(1, 2, 3, 5, 4, seed=10), gradients=True),
    ),
    slips=(
        Slip(
            _attend(product=lambda q, k, s: (q @ k.mT).float() * s),
            f"the scores were made in half precision, where {_TRAP}: beyond it is infinity, and "
            "infinity minus infinity is NaN. Converting afterwards is too late",
            "convert query and key first: query.float() @ key.float().transpose(-2, -1)",
        ),
        Slip(
            _attend(product=lambda q, k, s: ((q * s) @ k.mT).float()),
            "the query was scaled first, which avoids infinity, but the scores were still made in "
            "half precision: near 36000 its neighbouring numbers are 32 apart",
            "convert query and key to float32 before they meet",
        ),
        Slip(
            _attend(product=lambda q, k, s: (q * s).float() @ k.float().mT),
            "query or key was scaled in half precision, which rounds it to 11 bits: with scores "
            "this large, that moves them by several units",
            "convert first, scale then: query.float() / math.sqrt(query.shape[-1])",
        ),
        Slip(
            _attend(product=_rounded),
            "the scores were made in float32, but rounded to half precision before the softmax: "
            "near 36000 its neighbouring numbers are 32 apart",
            "stay in float32 until the weights have met the values",
        ),
        Slip(
            _attend(product=lambda q, k, s: (q @ k.mT).float().clamp(-65504, 65504) * s),
            "the infinite scores were cut off at 65504: their differences, which the softmax lives "
            "on, are lost",
            "let no score become infinite: convert query and key before they meet",
        ),
        Slip(
            _attend(
                product=lambda q, k, s: (q @ k.mT).float() * s,
                weigh=lambda scores: scores.softmax(dim=-1).nan_to_num(),
            ),
            "scores that became infinite gave NaN, and the NaN was replaced by 0: such a query "
            "gets nothing",
            "let no score become infinite: convert query and key before they meet",
        ),
        Slip(
            _attend(scale=lambda query: 1),
            "the scores were not scaled",
            "divide the scores by math.sqrt(query.shape[-1]) before the softmax",
        ),
        Slip(
            _attend(scale=lambda query: 1 / query.shape[-1]),
            "the scores were divided by head_dim, not by its root",
            "divide once, by math.sqrt(query.shape[-1])",
        ),
        Slip(
            _attend(weigh=_no_maximum),
            "no maximum was subtracted, so exp of a large score is infinite, in float32 too",
            "use scores.softmax(dim=-1), which subtracts the maximum first",
        ),
        Slip(
            _attend(weigh=lambda scores: scores.softmax(dim=-2)),
            "the softmax runs over the queries",
            "let it run over the keys: dim=-1",
        ),
        Slip(
            _divided_last,
            "the values were added up in half precision before the division: exponentials are not "
            f"weights yet, so their sum can be many times a value, and {_TRAP}",
            "divide before the values are mixed, or stay in float32 up to the end",
        ),
        Slip(
            _attend(end=lambda output, dtype: output),
            "the output came back in float32",
            "round it once, at the end: output.to(query.dtype)",
        ),
        Slip(
            _attend(end=lambda output, dtype: output.half()),
            "the output came back in float16, whatever came in",
            "round it to the input's dtype: output.to(query.dtype)",
        ),
        Slip(
            _attend(end=lambda output, dtype: output.bfloat16()),
            "the output came back in bfloat16, whatever came in",
            "round it to the input's dtype: output.to(query.dtype)",
        ),
    ),
    hints=(
        f"Which is the first number on the way that may not fit? {_TRAP[0].upper()}{_TRAP[1:]}.",
        "query.float() is the same tensor in float32, whose largest number is 3.4e38. Converting "
        "the scores afterwards is too late: infinity stays infinity.",
        "Scaling the query first avoids infinity, but half precision holds only 11 bits (bfloat16 "
        "8): near 36000, the next number is 32 away. So scores and softmax need float32.",
        "At the end, output.to(query.dtype) rounds once.",
    ),
    solution_note="A fused kernel does the same block by block, without storing float32 scores.",
)

EXERCISES = (_stable_half_precision_attention,)
