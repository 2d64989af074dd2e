"""The exercises of lesson 02, One head, in torch."""

import math

import numpy as np
import torch

from mhalib import functional, masks
from mhalib.exercises.catalogue import Case, Exercise, Slip


def _inputs(batch, num_heads, query_len, key_len, head_dim, value_dim=None, **options):
    """Query, key and value, the same at every call."""
    seed, size = options.get("seed", 0), options.get("size", 1.0)
    value_dim = head_dim if value_dim is None else value_dim
    rng = np.random.default_rng(seed)
    shapes = ((query_len, head_dim), (key_len, head_dim), (key_len, value_dim))
    return tuple(
        torch.from_numpy(rng.standard_normal((batch, num_heads, *shape)) * size).to(
            options.get("dtype", torch.float32)
        )
        for shape in shapes
    )


def _pattern(*shape, seed=0):
    """A boolean mask in which every row has a True."""
    mask = torch.from_numpy(np.random.default_rng(seed).random(shape) < 0.5)
    mask[..., seed % shape[-1]] = True
    return mask


def _equal_scores():
    query, key, value = _inputs(1, 1, 3, 4, 2, seed=1)
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 1], [0, 1, 1, 1]]).bool()
    return torch.zeros_like(query), key, value, mask


def _split_from_rows():
    """Heads that were split off by view and transpose, as in a real layer: not contiguous."""
    wide = _inputs(2, 4, 3, 4, 5, seed=8)
    return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in wide)


def _attend(*, score=None, scale=None, weigh=None):
    """A slip: attention in which one of the steps is done another way."""

    def wrong(query, key, value, attn_mask=None):
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale(query, key, value)
        scores = query @ key.transpose(-2, -1) * factor
        if score is not None and attn_mask is not None:
            scores = score(scores, attn_mask)
        elif attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        weights = scores.softmax(dim=-1) if weigh is None else weigh(scores, attn_mask)
        return weights @ value, weights

    return wrong


def _right(query, key, value, attn_mask=None):
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


def _averaged(query, key, value, attn_mask=None):
    output, weights = _right(query, key, value, attn_mask)
    return output, weights.mean(dim=1, keepdim=True).expand_as(weights)


def _infinite_times(scores, mask):
    return scores + (~mask).to(scores.dtype) * -math.inf


_attention = Exercise(
    name="scaled_dot_product_attention",
    lesson="02",
    minutes=10,
    difficulty=3,
    framework="torch",
    contract=(
        "scaled_dot_product_attention(query, key, value, attn_mask=None): tensors of shape "
        "(batch, num_heads, query_len, head_dim), (batch, num_heads, key_len, head_dim) and "
        "(batch, num_heads, key_len, value_dim)\nattn_mask: None, or boolean, True = may attend, "
        "of two axes (query_len, key_len) or of four with 1 where it is the same for all; "
        "every query may attend to something\n-> (output, weights) of shape "
        "(batch, num_heads, query_len, value_dim) and (batch, num_heads, query_len, key_len)"
    ),
    arguments=("query", "key", "value", "attn_mask"),
    reference=functional.scaled_dot_product_attention,
    returns=("output", "weights"),
    sums_to_one="weights",
    cases=(
        Case("one token", lambda: _inputs(1, 1, 1, 1, 3)),
        Case("one head and a head_dim of 1", lambda: _inputs(1, 1, 2, 3, 1, seed=1)),
        Case("one head and a head_dim of 4", lambda: _inputs(1, 1, 2, 3, 4, seed=2)),
        Case("as many queries as keys", lambda: _inputs(1, 1, 4, 4, 3, seed=3)),
        Case("two samples and three heads", lambda: _inputs(2, 3, 4, 6, 5, seed=4)),
        Case("values wider than keys", lambda: _inputs(2, 3, 4, 6, 5, 7, seed=5)),
        Case("equal scores and a mask of two axes", _equal_scores),
        Case(
            "a causal mask of two axes",
            lambda: (*_inputs(2, 3, 5, 5, 4, seed=6), torch.ones(5, 5, dtype=torch.bool).tril()),
        ),
        Case(
            "a padding mask of four axes",
            lambda: (*_inputs(2, 3, 3, 5, 4, seed=7), masks.padding([2, 5], 5)),
        ),
        Case(
            "a mask of its own for every head",
            lambda: (*_inputs(2, 3, 3, 4, 5, seed=9), _pattern(2, 3, 3, 4, seed=1)),
        ),
        Case(
            "large scores and a mask",
            lambda: (*_inputs(1, 2, 4, 5, 6, seed=10, size=30.0), _pattern(4, 5, seed=2)),
        ),
        Case("heads that were split off by a transpose", _split_from_rows),
        Case(
            "float64 inputs and a mask",
            lambda: (
                *_inputs(2, 2, 3, 5, 3, seed=11, dtype=torch.float64),
                _pattern(2, 1, 3, 5, seed=3),
            ),
        ),
        Case(
            "gradients in float64",
            lambda: (
                *_inputs(2, 2, 3, 4, 3, seed=12, dtype=torch.float64),
                _pattern(3, 4, seed=1),
            ),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            _attend(scale=lambda q, k, v: 1),
            "the scores were not scaled",
            "divide the scores by math.sqrt(query.shape[-1]) before the softmax",
        ),
        Slip(
            _attend(scale=lambda q, k, v: 1 / q.shape[-1]),
            "the scores were divided by head_dim, not by its root (or by the root twice)",
            "divide once, by math.sqrt(query.shape[-1])",
        ),
        Slip(
            _attend(scale=lambda q, k, v: 1 / math.sqrt(q.shape[1] * q.shape[-1])),
            "the scale uses the width of all heads together (d_model)",
            "use the width of one head: query.shape[-1]",
        ),
        Slip(
            _attend(scale=lambda q, k, v: math.sqrt(q.shape[-1])),
            "the scores were multiplied by the root of head_dim",
            "divide by it: the scale is to make the scores smaller",
        ),
        Slip(
            _attend(scale=lambda q, k, v: 1 / math.sqrt(k.shape[-2])),
            "the scale uses the number of keys",
            "use the numbers in one query: query.shape[-1]",
        ),
        Slip(
            _attend(scale=lambda q, k, v: 1 / math.sqrt(q.shape[-2])),
            "the scale uses the number of queries",
            "use the numbers in one query: query.shape[-1], the last axis",
        ),
        Slip(
            _attend(scale=lambda q, k, v: 1 / math.sqrt(q.shape[1])),
            "the scale uses the number of heads: shape[1] is num_heads here",
            "count from the end: query.shape[-1] is head_dim",
        ),
        Slip(
            _attend(scale=lambda q, k, v: 1 / math.sqrt(v.shape[-1])),
            "the scale uses the width of the values",
            "use the width of query and key: query.shape[-1]",
        ),
        Slip(
            _attend(score=lambda scores, mask: scores.masked_fill(mask, -math.inf)),
            "the mask is read the wrong way round: what may be attended to was hidden",
            "True means may attend, so fill where the mask is False: ~attn_mask",
        ),
        Slip(
            _attend(score=lambda scores, mask: scores + mask.to(scores.dtype)),
            "the mask was added as the numbers 0 and 1, which hides nothing",
            "fill the scores with -inf where the mask is False: masked_fill(~attn_mask, -math.inf)",
        ),
        Slip(
            _attend(score=lambda scores, mask: scores * mask),
            "the hidden scores were set to 0, and exp(0) is 1: they still get a weight",
            "set them to -inf, whose exp is 0",
        ),
        Slip(
            _attend(score=_infinite_times),
            "zero times infinity is NaN: that is what the visible keys got",
            "do not multiply by infinity; use masked_fill(~attn_mask, -math.inf)",
        ),
        Slip(
            _attend(score=lambda scores, mask: scores.masked_fill(~mask, -1.0)),
            "the hidden scores were set to -1, which other scores are below",
            "set them to -inf, which no score is below",
        ),
        Slip(
            _attend(score=lambda scores, mask: scores),
            "the mask was not used",
            "fill the scores with -inf where the mask is False, before the softmax",
        ),
        Slip(
            _attend(
                score=lambda scores, mask: scores,
                weigh=lambda scores, mask: (
                    scores.softmax(-1) if mask is None else scores.softmax(-1) * mask
                ),
            ),
            "the mask came after the softmax: the hidden keys took their share first, "
            "and the rest no longer sums to 1",
            "apply the mask to the scores, before the softmax",
        ),
        Slip(
            _attend(weigh=lambda scores, mask: scores.softmax(dim=-2)),
            "the softmax runs over the queries: the columns sum to 1 where the rows should",
            "let the softmax run over the keys: dim=-1",
        ),
        Slip(
            _attend(weigh=lambda scores, mask: scores.softmax(dim=1)),
            "the softmax runs over the heads: dim=1 is num_heads here",
            "let the softmax run over the keys: dim=-1",
        ),
        Slip(
            _attend(weigh=lambda scores, mask: scores),
            "the softmax is missing: the values were mixed with the scores themselves",
            "apply softmax(dim=-1) to the scores before they meet the values",
        ),
        Slip(
            _attend(weigh=lambda scores, mask: scores.exp() / scores.exp().sum(-1, keepdim=True)),
            "a large score overflows in exp, and infinity divided by infinity is NaN",
            "use scores.softmax(dim=-1), which subtracts the maximum first",
        ),
        Slip(
            lambda q, k, v, attn_mask=None: _right(q, k, v, attn_mask)[0],
            "only the output came back",
            "end with return output, weights",
        ),
        Slip(
            lambda q, k, v, attn_mask=None: _right(q, k, v, attn_mask)[::-1],
            "the weights came first",
            "end with return output, weights",
        ),
        Slip(
            _averaged,
            "the weights of the heads were averaged",
            "return every head's own weights",
        ),
    ),
    hints=(
        "Four moves: a score for each query and key, a scale, a softmax, a mix of the values.",
        "key.transpose(-2, -1) swaps the last two axes, so query @ key.transpose(-2, -1) has the "
        "shape (batch, num_heads, query_len, key_len). Divide by math.sqrt(query.shape[-1]).",
        "Where a mask is given, hide before the softmax: "
        "scores = scores.masked_fill(~attn_mask, -math.inf).",
        "weights = scores.softmax(dim=-1), output = weights @ value, and both are returned.",
    ),
    solution_note=(
        "It does more than the exercise asks: fewer key than query heads, dropout, causal masks, "
        "rows without any allowed key."
    ),
)


def _causal(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


_causal_mask = Exercise(
    name="causal_mask",
    lesson="02",
    minutes=4,
    difficulty=1,
    framework="torch",
    contract=(
        "causal_mask(n): number of tokens -> boolean (n, n) tensor; entry [i, j] is True where "
        "query i may attend to key j: itself and what came before"
    ),
    arguments=("n",),
    reference=masks.causal,
    cases=(
        Case("one token", lambda: (1,)),
        Case("two tokens", lambda: (2,)),
        Case("three tokens", lambda: (3,)),
        Case("eight tokens", lambda: (8,)),
        Case("thirteen tokens", lambda: (13,)),
    ),
    slips=(
        Slip(
            lambda n: _causal(n).T,
            "rows and columns are swapped: every query sees itself and what comes after",
            "keep the lower triangle: row i may see the columns up to i",
        ),
        Slip(
            lambda n: _causal(n).tril(-1),
            "the diagonal is False, so no query sees itself, and the first one sees nothing",
            "include the diagonal: j <= i, not j < i",
        ),
        Slip(
            lambda n: ~_causal(n),
            "True marks what is hidden here (other libraries read masks so)",
            "turn the mask round: True = may attend",
        ),
        Slip(
            lambda n: torch.ones(n, n).tril(),
            "the mask holds the numbers 0 and 1; added to scores they would hide nothing",
            "make it boolean: dtype=torch.bool, or compare two positions with <=",
        ),
        Slip(
            lambda n: torch.ones(n, n).tril().long(),
            "the mask holds the whole numbers 0 and 1",
            "make it boolean: dtype=torch.bool, or compare two positions with <=",
        ),
        Slip(
            lambda n: torch.zeros(n, n).masked_fill(~_causal(n), -math.inf),
            "this is an additive mask: 0 where a query may look, -inf where not",
            "return True and False in their place: mask == 0",
        ),
        Slip(
            lambda n: _causal(n).flip(0),
            "the rows are upside down: the first query sees everything",
            "let row 0, the first query, see only column 0",
        ),
        Slip(
            lambda n: _causal(n).flip(1),
            "the columns are mirrored: the first query sees only the last key",
            "let column 0 be the first key",
        ),
        Slip(
            lambda n: torch.ones(n, n, dtype=torch.bool).tril(1),
            "every query also sees the key after it",
            "stop at the diagonal: j <= i",
        ),
        Slip(
            lambda n: torch.ones(n, n, dtype=torch.bool),
            "every query sees every key",
            "keep the lower triangle only: .tril(), or compare two positions with <=",
        ),
        Slip(
            lambda n: torch.eye(n, dtype=torch.bool),
            "every query sees only itself",
            "what came before is visible too: <= in the place of ==",
        ),
        Slip(
            lambda n: _causal(n)[None, None],
            "there are two axes more than asked for, for batch and heads",
            "return (n, n); it broadcasts by itself",
        ),
        Slip(
            lambda n: _causal(n).numpy(),
            "this is a NumPy array",
            "make it with torch: torch.ones(n, n, dtype=torch.bool), torch.arange(n)",
        ),
    ),
    hints=(
        "Write down the table for three tokens: which of the nine entries are True?",
        "Number queries and keys from 0. Key j is visible to query i when j <= i.",
        "torch.arange(n) holds the positions; [:, None] makes a column of them. Or: .tril() keeps "
        "the lower triangle of a table of ones.",
    ),
    solution_note=(
        "It also serves different lengths. For n queries and n keys it comes down to "
        "torch.arange(n) <= torch.arange(n)[:, None]."
    ),
)

EXERCISES = (_attention, _causal_mask)
