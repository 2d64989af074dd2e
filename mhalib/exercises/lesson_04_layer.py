"""The exercise of lesson 04 that puts all parts together."""

import math

import torch

from mhalib import functional
from mhalib.exercises.catalogue import Case, Exercise, Slip
from mhalib.exercises.lesson_04 import collected, cut, dealt, normal, reshaped


def _projections(batch, seq_len, d_model, num_heads, **options):
    """x, four square matrices, and num_heads; scores and outputs are of the order of 1."""
    x, *weights = normal((batch, seq_len, d_model), *[(d_model, d_model)] * 4, **options)
    return (x, *(w / math.sqrt(d_model) for w in weights), num_heads)


def _turned(x, *weights):
    """The same numbers, but with rows and columns swapped in memory."""
    *weights, num_heads = weights
    x = x.transpose(0, 1).contiguous().transpose(0, 1)
    return (x, *(w.T.contiguous().T for w in weights), num_heads)


def _layer(
    *,
    split=functional.split_heads,
    scale=lambda d_model, head_dim: 1 / math.sqrt(head_dim),
    weigh=lambda scores: scores.softmax(dim=-1),
    merge=functional.merge_heads,
    use=lambda q, k, v, o: (q, k, v, o),
    end=lambda output, x, weights: output,
):
    """A slip: multi-head attention in which one of the steps is done another way."""

    def wrong(x, w_q, w_k, w_v, w_o, num_heads):
        w_q, w_k, w_v, w_o = use(w_q, w_k, w_v, w_o)
        query, key, value = (split(x @ w, num_heads) for w in (w_q, w_k, w_v))
        scores = query @ key.transpose(-2, -1) * scale(x.shape[-1], x.shape[-1] // num_heads)
        weights = weigh(scores)
        output = merge(weights @ value)
        return end(output if w_o is None else output @ w_o, x, weights)

    return wrong


def _split_before(x, w_q, w_k, w_v, w_o, num_heads):
    """The input cut into pieces: head h projects its own features of x only."""
    head_dim = x.shape[-1] // num_heads
    blocks = [slice(h * head_dim, (h + 1) * head_dim) for h in range(num_heads)]
    pieces = [
        torch.stack([x[..., block] @ w[block, block] for block in blocks], dim=1)
        for w in (w_q, w_k, w_v)
    ]
    return functional.merge_heads(functional.scaled_dot_product_attention(*pieces)[0]) @ w_o


_multi_head_attention = Exercise(
    name="multi_head_attention",
    lesson="04",
    minutes=10,
    difficulty=3,
    framework="torch",
    contract=(
        "multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads): (batch, seq_len, d_model) tensor, "
        "four (d_model, d_model) tensors, each used as x @ w, and a number of heads that divides "
        "d_model\n-> (batch, seq_len, d_model) tensor; head h uses the columns h * head_dim to "
        "(h + 1) * head_dim of w_q, w_k and w_v, scores are divided by the root of head_dim, the "
        "heads stand side by side before w_o"
    ),
    arguments=("x", "w_q", "w_k", "w_v", "w_o", "num_heads"),
    reference=functional.multi_head_attention,
    returns=("the output",),
    cases=(
        Case("one token and one head", lambda: _projections(1, 1, 3, 1)),
        Case("one token and two heads", lambda: _projections(1, 1, 4, 2, seed=1)),
        Case("one head", lambda: _projections(1, 3, 4, 1, seed=2)),
        Case("two heads", lambda: _projections(1, 3, 4, 2, seed=3)),
        Case("as many tokens as heads", lambda: _projections(1, 3, 6, 3, seed=4)),
        Case("two samples and three heads", lambda: _projections(2, 5, 12, 3, seed=5)),
        Case("heads of one feature", lambda: _projections(1, 4, 5, 5, seed=6)),
        Case("odd sizes", lambda: _projections(3, 7, 15, 5, seed=7)),
        Case(
            "inputs whose numbers do not lie side by side in memory",
            lambda: _turned(*_projections(2, 4, 6, 2, seed=8)),
        ),
        Case("float64", lambda: _projections(2, 3, 8, 4, seed=9, dtype=torch.float64)),
        Case(
            "gradients in float64",
            lambda: _projections(2, 3, 6, 3, seed=10, dtype=torch.float64),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            _layer(use=lambda q, k, v, o: (q, k, v, None)),
            "w_o plays no part: the heads stand side by side, but nothing mixes them",
            "multiply the merged heads by w_o at the end",
        ),
        Slip(
            _layer(use=lambda q, k, v, o: (q, k, v, o.T)),
            "w_o was transposed",
            "use it as it comes: merged @ w_o",
        ),
        Slip(
            _layer(use=lambda q, k, v, o: (q.T, k.T, v.T, o.T)),
            "every matrix was transposed, as nn.Linear does with its weight",
            "use them as they come: x @ w",
        ),
        Slip(
            _layer(use=lambda q, k, v, o: (q.T, k.T, v.T, o)),
            "w_q, w_k and w_v were transposed, as nn.Linear does with its weight",
            "use them as they come: x @ w_q",
        ),
        Slip(
            _layer(use=lambda q, k, v, o: (q, k, k, o)),
            "the values were made with w_k",
            "use w_v for the values",
        ),
        Slip(
            _layer(use=lambda q, k, v, o: (k, q, v, o)),
            "query and key are swapped, so a score says how much the key looks for the query",
            "make the query with w_q and the key with w_k; rows of the scores belong to queries",
        ),
        Slip(
            _layer(split=reshaped),
            "the split has no transpose: reshape alone gives a head a stretch of tokens, not its "
            "features of every token",
            "use split_heads: .reshape(batch, seq_len, num_heads, head_dim), then .transpose(1, 2)",
        ),
        Slip(
            _layer(merge=lambda x: x.reshape(x.shape[0], x.shape[2], -1)),
            "the merge has no transpose back: reshape alone fills a row from several tokens",
            "use merge_heads: .transpose(1, 2) first, then .reshape",
        ),
        Slip(
            _layer(merge=lambda x: x.sum(dim=1)),
            "what met w_o is not d_model features wide: the heads were added up, or joined along "
            "another axis",
            "put the heads' features side by side, with merge_heads, before w_o",
        ),
        Slip(
            _layer(merge=lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1)),
            "after a transpose the numbers no longer lie in this order in memory, and view never "
            "moves them",
            "use .reshape, which copies where it must, or merge_heads",
        ),
        Slip(
            _layer(split=reshaped, merge=lambda x: x.reshape(x.shape[0], x.shape[2], -1)),
            "neither the split nor the merge has its transpose: reshape alone does not cut the "
            "features of every token",
            "use split_heads and merge_heads",
        ),
        Slip(
            _layer(split=cut, merge=lambda x: x.flatten(2)),
            "the heads still stand behind the tokens, so the heads of one token attend to each "
            "other, and no token sees another",
            "move the heads in front of the tokens, .transpose(1, 2), and back in the merge",
        ),
        Slip(
            _layer(split=dealt, merge=collected),
            "the features were dealt out in turn, feature f to head f % num_heads",
            "let head h have the h-th stretch of features: num_heads before head_dim in the cut",
        ),
        Slip(
            _layer(split=dealt),
            "the split deals the features out in turn, feature f to head f % num_heads",
            "write num_heads before head_dim where split cuts the last axis",
        ),
        Slip(
            _layer(merge=collected),
            "the merge collects the features in turn, one of every head",
            "keep the features of a head side by side: num_heads before head_dim",
        ),
        Slip(
            _layer(split=lambda x, num_heads: x[:, None], merge=lambda x: x[:, 0]),
            "nothing was split: this is one head as wide as d_model",
            "split query, key and value into num_heads heads before they meet",
        ),
        Slip(
            _split_before,
            "the input was cut before the projections, so a head sees only its piece of x",
            "project the whole x first, and split what comes out",
        ),
        Slip(
            _layer(scale=lambda d_model, head_dim: 1 / math.sqrt(d_model)),
            "the scores were divided by the root of d_model, the width of all heads together",
            "divide by the root of head_dim, the width of one head",
        ),
        Slip(
            _layer(scale=lambda d_model, head_dim: 1),
            "the scores were not scaled",
            "divide the scores by the root of head_dim before the softmax",
        ),
        Slip(
            _layer(scale=lambda d_model, head_dim: 1 / head_dim),
            "the scores were scaled twice, or divided by head_dim and not by its root",
            "divide once, by the root of head_dim; scaled_dot_product_attention does it already",
        ),
        Slip(
            _layer(scale=lambda d_model, head_dim: math.sqrt(head_dim / d_model)),
            "the scores were divided by the root of num_heads",
            "divide by the root of head_dim, the width of one head",
        ),
        Slip(
            _layer(weigh=lambda scores: scores.softmax(dim=-2)),
            "the softmax runs over the queries",
            "let it run over the keys: dim=-1",
        ),
        Slip(
            _layer(weigh=lambda scores: scores.softmax(dim=1)),
            "the softmax runs over the heads: dim=1 is num_heads here",
            "let it run over the keys: dim=-1",
        ),
        Slip(
            _layer(weigh=lambda scores: scores),
            "the softmax is missing: the values were mixed with the scores themselves",
            "apply softmax(dim=-1) to the scores before they meet the values",
        ),
        Slip(
            _layer(weigh=lambda s: s.softmax(-1).mean(1, keepdim=True).expand_as(s)),
            "the weights were averaged over the heads before they met the values",
            "let every head use its own weights",
        ),
        Slip(
            _layer(weigh=lambda s: s.masked_fill(s[0, 0].triu(1) != 0, -math.inf).softmax(-1)),
            "a causal mask was applied: no token sees those after it",
            "leave the mask out: here every token may attend to every token",
        ),
        Slip(
            _layer(end=lambda output, x, weights: output + x),
            "the input was added to the output, as a transformer block does around attention",
            "return what w_o gives alone",
        ),
        Slip(
            _layer(end=lambda output, x, weights: (output, weights)),
            "the weights came back as well",
            "return the output alone",
        ),
    ),
    hints=(
        "Five moves: project x three times, split into heads, attend, merge the heads, project "
        "once more with w_o.",
        "query = split_heads(x @ w_q, num_heads), and key and value likewise: project the whole x "
        "first, split then.",
        "mhalib.functional.scaled_dot_product_attention(query, key, value) attends in every head "
        "at once and returns (output, weights).",
        "The last line is merge_heads(output) @ w_o.",
    ),
)

EXERCISES = (_multi_head_attention,)
