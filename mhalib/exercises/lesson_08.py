"""The exercises of lesson 08, Long inputs, few bits: two pieces of a softmax made one."""

import math

import numpy as np
import torch

from mhalib import pieces
from mhalib.exercises.catalogue import Case, Exercise, Slip

_PARTS = ("maximum", "total", "output")


def _piece(maxima, seed, head_dim=2, dtype=torch.float32):
    """A piece with these maxima, one a row; None is a row that sees no key."""
    rng = np.random.default_rng(seed)
    total = torch.from_numpy(1 + 2 * rng.random((len(maxima), 1)))
    output = torch.from_numpy(rng.standard_normal((len(maxima), head_dim)))
    empty = torch.tensor([[maximum is None] for maximum in maxima])
    maximum = torch.tensor([[-math.inf if top is None else top] for top in maxima])
    parts = (maximum, total.masked_fill(empty, 0), output.masked_fill(empty, 0))
    return tuple(part.to(dtype) for part in parts)


def _two(left, right, seed=0, **options):
    """The six parts of two pieces, fresh at every call."""
    return lambda: (*_piece(left, seed, **options), *_piece(right, seed + 1, **options))


def _columns_of_one():
    """Pieces cut out of one wide tensor: their rows do not lie side by side in memory."""
    parts = _two([0.5, 2.0, -1.0], [1.5, -0.5, 0.0], seed=9, head_dim=3)()
    wide = torch.cat(parts, dim=1)
    return wide.split([part.shape[1] for part in parts], dim=1)


def _pack(function, *parts):
    """Call with two tuples; as six arguments, changes and gradients of each are seen."""
    return function(parts[:3], parts[3:])


def _case(shows, make, **options):
    return Case(shows, make, call=_pack, **options)


def _merge(
    *,
    peak=torch.maximum,
    factor=lambda own, both: (own - pieces._finite(both)).exp(),
    total=lambda left, right, lf, rf: left * lf + right * rf,
    output=lambda left, right, lf, rf, totals: left * lf + right * rf,
    end=lambda maximum, total, output: (maximum, total, output),
):
    """A slip: the merge with one of the steps done another way."""

    def wrong(left, right):
        maximum = peak(left[0], right[0])
        factors = (factor(left[0], maximum), factor(right[0], maximum))
        both = total(left[1], right[1], *factors)
        totals = (left[1], right[1], both)
        return end(maximum, both, output(left[2], right[2], *factors, totals))

    return wrong


def _plain_sum(left, right, *rest):
    return left + right


def _crossed(left, right, lf, rf, *rest):
    return left * rf + right * lf


def _divided_before(left, right, lf, rf, totals):
    return left * totals[0] * lf + right * totals[1] * rf


_merge_softmax_pieces = Exercise(
    name="merge_softmax_pieces",
    lesson="08",
    minutes=10,
    difficulty=2,
    framework="torch",
    contract=(
        "merge_softmax_pieces(left, right): two pieces; a piece is a tuple (maximum, total, "
        "output), the attention of some rows (queries) to some keys:\n"
        "maximum (rows, 1): the largest score of each row\n"
        "total (rows, 1): the sum of exp(score - maximum)\n"
        "output (rows, head_dim): the sum of exp(score - maximum) * value, not divided yet\n"
        "A row that sees no key has maximum -inf, total 0 and output 0.\n"
        "-> (maximum, total, output) of the same shapes: the piece of both sets of keys together"
    ),
    arguments=tuple(f"{side} {part}" for side in ("left", "right") for part in _PARTS),
    reference=pieces.merge_softmax_pieces,
    returns=_PARTS,
    cases=(
        _case("one row and equal maxima", _two([1.0], [1.0])),
        _case("a larger maximum on the right", _two([1.0], [2.0], seed=2)),
        _case("a larger maximum on the left", _two([2.0], [0.5], seed=4)),
        _case("rows with maxima of their own", _two([0.0, 3.0, -1.0], [1.0, 2.5, -3.0], seed=6)),
        _case("maxima around 1000", _two([1000.0, 999.0], [998.0, 1001.0], seed=11, head_dim=3)),
        _case("maxima around -1000", _two([-1000.0], [-1001.5], seed=13)),
        _case("maxima far apart", _two([2000.0, -2000.0], [-2000.0, 2000.0], seed=15)),
        _case("a row that sees no key on the right", _two([1.0, 2.0], [None, 1.0], seed=17)),
        _case("a row that sees no key on the left", _two([1.0, None], [0.5, -1.0], seed=19)),
        _case("a row that sees no key at all", _two([1.0, None], [3.0, None], seed=21)),
        _case("parts that do not lie side by side in memory", _columns_of_one),
        _case(
            "float64",
            _two([0.0, None, 2.0], [1.0, 0.5, None], seed=23, head_dim=4, dtype=torch.float64),
        ),
        _case(
            "gradients in float64",
            _two([0.0, 2.0], [1.0, 0.5], seed=25, head_dim=3, dtype=torch.float64),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            _merge(total=_plain_sum),
            "the totals were added as they are, though each counts from another maximum",
            "multiply each total by exp(its own maximum - the larger one), then add",
        ),
        Slip(
            _merge(output=_plain_sum),
            "the outputs were added as they are, though each counts from another maximum",
            "multiply each output by the factor of its total, then add",
        ),
        Slip(
            _merge(total=_plain_sum, output=_plain_sum),
            "totals and outputs were both added as they are, though each piece counts from a "
            "maximum of its own",
            "multiply a piece's total and output by exp(its own maximum - the larger one)",
        ),
        Slip(
            _merge(total=_crossed, output=_crossed),
            "each side got the factor of the other",
            "the side that holds the larger maximum keeps its numbers: its factor is exp(0) = 1",
        ),
        Slip(
            _merge(factor=lambda own, both: (pieces._finite(both) - own).exp()),
            "the factor is upside down: exp(larger maximum - own) makes the smaller side larger",
            "subtract the other way round, so that no factor is above 1",
        ),
        Slip(
            _merge(factor=lambda own, both: own.exp()),
            "each side was multiplied by exp of its own maximum, so the result counts from 0, not "
            "from the new maximum (and exp of a large one overflows)",
            "subtract the larger maximum before exp",
        ),
        Slip(
            _merge(factor=lambda own, both: own - both),
            "the difference of the maxima itself was used as the factor",
            "use its exponential: torch.exp(own - larger)",
        ),
        Slip(
            _merge(factor=lambda own, both: (own - both).exp()),
            "where no key is seen on either side, both maxima are -inf, and -inf minus -inf is NaN",
            "subtract 0 there instead: maximum.masked_fill(maximum == -math.inf, 0)",
        ),
        Slip(
            _merge(peak=lambda left, right: left),
            "the maximum of the left piece was kept, where the right one may be larger",
            "take the larger of the two in every row: torch.maximum",
        ),
        Slip(
            _merge(peak=lambda left, right: right),
            "the maximum of the right piece was taken, where the left one may be larger",
            "take the larger of the two in every row: torch.maximum",
        ),
        Slip(
            _merge(peak=torch.minimum),
            "the smaller of the two maxima was taken",
            "take the larger: then no exponential is above 1",
        ),
        Slip(
            _merge(peak=lambda left, right: left + right),
            "the maxima were added",
            "the largest score of both sets is the larger of the two: torch.maximum",
        ),
        Slip(
            _merge(
                peak=lambda left, right: torch.maximum(left, right).amax().expand_as(left),
            ),
            "one maximum was taken for all rows together",
            "every row has its own: torch.maximum compares entry by entry",
        ),
        Slip(
            _merge(output=lambda left, right, lf, rf, totals: (left * lf + right * rf) / totals[2]),
            "the output was divided by the total, but a piece is not divided yet",
            "leave the division to whoever needs the attention itself, after the last merge",
        ),
        Slip(
            _merge(output=lambda left, right, lf, rf, totals: (left * lf + right * rf) / 2),
            "the outputs were averaged",
            "add them: the division by the total makes a mean of them, later",
        ),
        Slip(
            _merge(output=_divided_before),
            "the outputs were multiplied by their totals, as if they had been divided before",
            "an output is a sum already: it needs only the factor of its maximum",
        ),
        Slip(
            _merge(end=lambda maximum, total, output: (output, total, maximum)),
            "output and maximum changed places",
            "end with return maximum, total, output",
        ),
        Slip(
            _merge(end=lambda maximum, total, output: output),
            "only the output came back, and the next merge needs all three",
            "end with return maximum, total, output",
        ),
    ),
    hints=(
        "Both totals are sums of exp(score - maximum), but of different maxima. What do they "
        "become when both count from the larger one?",
        "exp(score - larger) = exp(score - own) * exp(own - larger). So a piece's total and its "
        "output are multiplied by one factor, exp(own - larger); on the side that has the larger "
        "maximum it is 1.",
        "maximum = torch.maximum(left[0], right[0]) takes the larger in every row.",
        "Where both maxima are -inf, -inf minus -inf is NaN. Subtract "
        "maximum.masked_fill(maximum == -math.inf, 0) instead: exp(-inf - 0) is 0.",
    ),
    solution_note="It serves pieces with any axes before the rows: samples and heads.",
)

EXERCISES = (_merge_softmax_pieces,)
