"""The exercises of lesson 05, What heads learn: measures. The others are in lesson_05_…"""

import math

import torch

from mhalib import heads
from mhalib.exercises.catalogue import Case, Exercise, Slip, call_in_order
from mhalib.exercises.lesson_04 import normal


def _maps(*shape, seed=0, dtype=torch.float32):
    """Attention maps (..., n, n): positive, and each row sums to 1."""
    return normal(shape, seed=seed, dtype=dtype)[0].softmax(dim=-1)


def _one_head(*rows):
    """A (1, 1, n, n) map: one layer, one head."""
    return torch.tensor([[rows]])


def _causal_map(n):
    """Every token attends to itself and to what came before, all alike."""
    past = torch.ones(1, 1, n, n).tril()
    return past / past.sum(dim=-1, keepdim=True)


def _on_one(*places):
    """A (1, 1, n, n) map: each token puts all its weight on the token at its place."""
    return torch.eye(len(places))[list(places)][None, None]


def _columns_first(weights):
    """The same numbers, but columns and not rows lie side by side in memory."""
    return weights.mT.contiguous().mT


def _bits(weights):
    """-w · log2(w) for each entry, 0 where w is 0."""
    return torch.special.entr(weights) / math.log(2)


def _entropies(weights):
    return _bits(weights).sum(dim=-1)


def _raw(weights):
    """The entropies in which 0 · log2(0) is NaN."""
    return -(weights * weights.log2()).sum(dim=-1)


def _of_scores(function, scores):
    """Rows that sum to 1 whatever the scores are: right solutions may agree only on these."""
    return call_in_order(function, scores.softmax(dim=-1))


_head_entropy = Exercise(
    name="head_entropy",
    lesson="05",
    minutes=5,
    difficulty=1,
    framework="torch",
    contract=(
        "head_entropy(weights): (..., n, n) tensor, each row sums to 1 -> (...) tensor: how widely "
        "each head spreads, in bits: the mean over its n rows of -Σ w · log2(w)\n"
        "A weight of 0 adds nothing. With weights of shape (num_layers, num_heads, n, n) there is "
        "one number for each head; gradients reach weights where they are above 0"
    ),
    arguments=("weights",),
    reference=heads.head_entropy,
    cases=(
        Case("two tokens", lambda: (_one_head([0.5, 0.5], [0.25, 0.75]),)),
        Case("four tokens that attend to all alike", lambda: (torch.full((1, 1, 4, 4), 0.25),)),
        Case("one token", lambda: (torch.ones(1, 1, 1, 1),)),
        Case("all the weight on one token", lambda: (_on_one(0, 0, 1),)),
        Case("a weight of 0 on all that comes later", lambda: (_causal_map(4),)),
        Case("two layers of three heads", lambda: (_maps(2, 3, 5, 5, seed=1),)),
        Case("as many heads as tokens", lambda: (_maps(3, 4, 4, 4, seed=2),)),
        Case("one map, without axes for layers and heads", lambda: (_maps(6, 6, seed=3),)),
        Case(
            "weights that do not lie side by side in memory",
            lambda: (_columns_first(_maps(2, 2, 7, 7, seed=4)),),
        ),
        Case("float64", lambda: (_maps(2, 3, 5, 5, seed=5, dtype=torch.float64),)),
        Case(
            "gradients in float64, back to the scores of which a softmax makes the weights",
            lambda: normal((2, 2, 4, 4), seed=6, dtype=torch.float64),
            call=_of_scores,
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            lambda weights: torch.special.entr(weights).sum(dim=-1).mean(dim=-1),
            "the logarithm is the natural one (torch.log), so these are nats and not bits",
            "use the logarithm to base 2: torch.log2",
        ),
        Slip(
            lambda weights: _entropies(weights).mean(dim=-1) * math.log10(2),
            "the logarithm is the one to base 10",
            "use the logarithm to base 2: torch.log2",
        ),
        Slip(
            lambda weights: _raw(weights).mean(dim=-1),
            "log2(0) is -inf, and 0 times -inf is NaN, although a weight of 0 adds nothing",
            "give the logarithm a 1 where the weight is 0: torch.where(weights > 0, weights, 1)",
        ),
        Slip(
            lambda weights: _raw(weights).nan_to_num().mean(dim=-1),
            "NaN was turned into 0 after the sum, so one weight of 0 wipes out its whole row",
            "mend each product before it is added up",
        ),
        Slip(
            lambda weights: _raw(weights).nanmean(dim=-1),
            "the rows that hold a weight of 0 were left out of the mean",
            "mend each product before it is added up, and take the mean over all rows",
        ),
        Slip(
            lambda weights: -_entropies(weights).mean(dim=-1),
            "the minus is missing: the logarithm of a share is negative, and entropy is not",
            "put a minus before the sum",
        ),
        Slip(
            _entropies,
            "there is a number for each row: the mean over the rows is missing",
            "finish with .mean(dim=-1)",
        ),
        Slip(
            lambda weights: _bits(weights).sum(dim=(-2, -1)),
            "the rows' entropies were added up, so a longer text looks more spread out",
            "take their mean: .mean(dim=-1)",
        ),
        Slip(
            lambda weights: _bits(weights).mean(dim=(-2, -1)),
            "within a row the products were averaged where they should be added up, so the result "
            "is n times too small",
            "first .sum(dim=-1) along the row, then .mean(dim=-1) over the rows",
        ),
        Slip(
            lambda weights: _entropies(weights).mean(),
            "mean without an axis made one number out of all heads",
            "take the mean over the rows alone: .mean(dim=-1)",
        ),
        Slip(
            lambda weights: _entropies(weights).mean(dim=-2),
            "the mean runs over the heads: after the sum along a row, dim=-2 is num_heads",
            "after the sum the rows are the last axis: .mean(dim=-1)",
        ),
        Slip(
            lambda weights: _bits(weights.mean(dim=-2)).sum(dim=-1),
            "the rows were averaged first, and the entropy is that of the mean row",
            "compute the entropy of each row, then average",
        ),
        Slip(
            lambda weights: _entropies(weights).mean(dim=-1) / math.log2(weights.shape[-1]),
            "the result was divided by log2(n), its largest possible value",
            "leave that division out: the result is to be in bits",
        ),
        Slip(
            lambda weights: _entropies(weights).mean(dim=-1).exp2(),
            "this is 2 to the power of the entropy, the number of tokens as if attended to alike",
            "return the entropy itself",
        ),
        Slip(
            lambda weights: _entropies(weights.softmax(dim=-1)).mean(dim=-1),
            "a softmax was applied to the weights, which are shares of 1 already",
            "leave the softmax out: use the weights as they come",
        ),
        Slip(
            lambda weights: -weights.log2().sum(dim=-1).mean(dim=-1),
            "the logarithms were added up without their weights",
            "multiply each logarithm by its weight before adding",
        ),
        Slip(
            lambda weights: _entropies(weights)[..., 0],
            "only the first row was used",
            "take the mean over all rows: .mean(dim=-1)",
        ),
    ),
    hints=(
        "Look at one row first. All its weight on one token: 0 bits. Alike on four tokens: 2 bits, "
        "as many as it takes to name one of four.",
        "Multiply each weight by its torch.log2, add up along the row, dim=-1, and turn the sign. "
        "Then take the mean over the rows, which are now the last axis.",
        "log2(0) is -inf, and 0 times -inf is NaN. torch.where(weights > 0, weights, 1) puts a 1 "
        "where a weight is 0, and log2(1) is 0: take the logarithm of that.",
    ),
)


def _before(weights):
    """(..., n - 1): the weight of each token but the first to the one before it."""
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1)


def _to(weights, place):
    """(..., n): the weight of each token i to the token at place(i, n)."""
    n = weights.shape[-1]
    rows = torch.arange(n)
    return weights[..., rows, place(rows, n)]


_LEFT = "use the entries [i, i - 1] for i = 1 … n - 1: .diagonal(offset=-1, dim1=-2, dim2=-1)"

_previous_token_score = Exercise(
    name="previous_token_score",
    lesson="05",
    minutes=5,
    difficulty=1,
    framework="torch",
    contract=(
        "previous_token_score(weights): (..., n, n) tensor, n at least 2 -> (...) tensor: how much "
        "a token attends to the one before it, the mean over the n - 1 tokens that have one\n"
        "Row i holds the weights of token i. With weights of shape (num_layers, num_heads, n, n) "
        "there is one number for each head; gradients reach weights"
    ),
    arguments=("weights",),
    reference=heads.previous_token_score,
    cases=(
        Case("two tokens", lambda: (_one_head([0.875, 0.125], [0.25, 0.75]),)),
        Case(
            "three tokens",
            lambda: (_one_head([0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.5, 0.4]),),
        ),
        Case("a head that looks at the token before", lambda: (_on_one(0, 0, 1, 2, 3),)),
        Case("a head that looks at the token after", lambda: (_on_one(1, 2, 3, 4, 4),)),
        Case("a head that looks at the same token", lambda: (_on_one(0, 1, 2, 3, 4),)),
        Case("two layers of three heads", lambda: (_maps(2, 3, 5, 5, seed=1),)),
        Case("as many heads as tokens", lambda: (_maps(3, 4, 4, 4, seed=2),)),
        Case("one map, without axes for layers and heads", lambda: (_maps(6, 6, seed=3),)),
        Case(
            "weights that do not lie side by side in memory",
            lambda: (_columns_first(_maps(2, 2, 7, 7, seed=4)),),
        ),
        Case("float64", lambda: (_maps(2, 3, 5, 5, seed=5, dtype=torch.float64),)),
        Case(
            "gradients in float64",
            lambda: (_maps(2, 2, 4, 4, seed=6, dtype=torch.float64),),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            lambda weights: weights.diagonal(1, -2, -1).mean(dim=-1),
            "this is the weight to the next token: the row asks, the column is attended to",
            _LEFT,
        ),
        Slip(
            lambda weights: weights.diagonal(0, -2, -1).mean(dim=-1),
            "this is the weight of each token to itself, the diagonal",
            f"go one column to the left: {_LEFT}",
        ),
        Slip(
            lambda weights: _before(weights).sum(dim=-1) / weights.shape[-1],
            "the sum was divided by n, but the first token has none before it",
            "divide by n - 1, the number of weights that were added up; .mean(dim=-1) does",
        ),
        Slip(
            lambda weights: _before(weights).sum(dim=-1),
            "the weights were added up, so a longer text gets a higher score",
            "take their mean: .mean(dim=-1)",
        ),
        Slip(
            lambda weights: _to(weights, lambda rows, n: rows - 1).mean(dim=-1),
            "for the first token, i - 1 is -1, and Python counts -1 from the end: the last token "
            "was taken for the one before the first",
            "begin with the second token, i = 1, and average n - 1 weights",
        ),
        Slip(
            lambda weights: _to(weights, lambda rows, n: (rows - 1).clamp(min=0)).mean(dim=-1),
            "the first token was counted with its weight to itself",
            "begin with the second token, i = 1, and average n - 1 weights",
        ),
        Slip(
            _before,
            "there is a number for each token: the mean over the tokens is missing",
            "finish with .mean(dim=-1)",
        ),
        Slip(
            lambda weights: _before(weights).mean(),
            "mean without an axis made one number out of all heads",
            "take the mean over the tokens alone: .mean(dim=-1)",
        ),
        Slip(
            lambda weights: weights.diagonal(offset=-1).mean(dim=-1),
            "diagonal without dim1 and dim2 runs along the first two axes, layers and heads",
            "give it the last two axes: .diagonal(offset=-1, dim1=-2, dim2=-1)",
        ),
        Slip(
            lambda weights: _before(weights)[..., :-1].mean(dim=-1),
            "the last token was left out as well; only the first has none before it",
            "let i run from 1 to n - 1: range(1, n)",
        ),
        Slip(
            lambda weights: weights.diagonal(-2, -2, -1).mean(dim=-1),
            "this is the weight to the token two places before",
            _LEFT,
        ),
        Slip(
            lambda weights: weights.tril(-1)[..., 1:, :].sum(dim=-1).mean(dim=-1),
            "all earlier tokens were counted, not only the one before",
            _LEFT,
        ),
        Slip(
            lambda weights: (
                weights.triu(-1).tril(1).sum(dim=-1).mean(dim=-1)
                - weights.diagonal(0, -2, -1).mean(dim=-1)
            ),
            "the token after was counted as well as the one before",
            _LEFT,
        ),
        Slip(
            lambda weights: (
                (weights.argmax(dim=-1) == torch.arange(weights.shape[-1]) - 1)[..., 1:]
                .to(weights.dtype)
                .mean(dim=-1)
            ),
            "this is how often the token before gets the largest weight, not how much it gets",
            "average the weights themselves; leave argmax out",
        ),
    ),
    hints=(
        "Write down a map of three tokens. Row 1 is the second token; its weight to the first is "
        "the entry [1, 0]. Which other entry counts? The first row has none.",
        "These entries form a diagonal, one below the main one. weights.diagonal(offset=-1, "
        "dim1=-2, dim2=-1) takes it from the last two axes and keeps all axes before them.",
        "What is left has the n - 1 weights on its last axis: .mean(dim=-1).",
    ),
)

EXERCISES = (_head_entropy, _previous_token_score)
