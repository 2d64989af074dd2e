"""Right form, wrong numbers: what the pattern of the differences says."""

from dataclasses import dataclass

import numpy as np

RELATIVE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-6}
ABSOLUTE = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-8}


@dataclass(frozen=True)
class Difference:
    """What differs, with a likely reason and a next step."""

    what: str
    reason: str
    next: str
    form: str = ""  # raised, returned, shape, dtype or values: how far the result got


def close(expected, got, dtype):
    """Entrywise equality within the tolerance of the dtype; equal infinities are close."""
    tolerances = {"rtol": RELATIVE.get(dtype, 0), "atol": ABSOLUTE.get(dtype, 0)}
    with np.errstate(all="ignore"):
        return np.isclose(
            got.astype(np.float64), expected.astype(np.float64), equal_nan=True, **tolerances
        )


def value_difference(expected, got, name, exercise):
    """The difference between two parts of one kind, shape and dtype, or None."""
    want, has = expected.values, got.values
    dtype = expected.dtype if expected.dtype in ("float16", "bfloat16", "float32") else "float64"
    exact = want.dtype.kind in "bi"
    right = want == has if exact else close(want, has, dtype)
    if right.all():
        return None
    what = _where(want, has, right, name)
    finite = np.isfinite(has.astype(np.float64))
    if not finite.all():
        kind = "NaN (not a number)" if np.isnan(has).any() else "infinity"
        return Difference(
            f"there is {kind} in {name}{_count(finite, '')}",
            "a number grew beyond what a float can hold (exp of a large score), "
            "or zero or infinity was divided or multiplied by such a one",
            "find the first line whose result holds it, with np.isfinite or torch.isfinite",
            "values",
        )
    for pattern in (_rows_pattern, _boolean_pattern, _order_pattern, _factor_pattern):
        reason, step = pattern(want, has, name, exercise) or ("", "")
        if reason:
            return Difference(what, reason, step, "values")
    return Difference(
        what,
        "the form is right, so the formula itself differs somewhere",
        "compute this small input by hand, step by step, and compare with what each line gives",
        "values",
    )


def _where(want, has, right, name):
    """The first entry that differs: "entry [0, 1] of weights is 0.5, but 0.25 was expected"."""
    if want.ndim == 0:
        return f"{name} is {_number(has)}, but {_number(want)} was expected"
    index = tuple(int(position) for position in np.argwhere(~right)[0])
    return (
        f"entry {list(index)} of {name} is {_number(has[index])}, but {_number(want[index])} "
        f"was expected{_count(right, ' differ')}"
    )


def _count(right, verb):
    if right.size < 2:
        return ""
    return f" ({int((~right).sum())} of {right.size} entries{verb})"


def _number(value):
    return f"{value:.4g}" if np.asarray(value).dtype.kind == "f" else str(value)


def _rows_pattern(want, has, name, exercise):
    if name != exercise.sums_to_one or want.ndim == 0:
        return None
    if (has < 0).any():
        return "weights are never negative", "make every score positive with exp before dividing"
    sums = has.sum(axis=-1)
    if close(np.ones_like(sums), sums, "float32").all():
        return None
    worst = sums.flat[np.argmax(np.abs(sums - 1))]
    if has.ndim > 1 and close(np.ones_like(has.sum(axis=-2)), has.sum(axis=-2), "float32").all():
        return (
            "the columns sum to 1 where the rows should: the softmax runs along the wrong axis",
            "let both the maximum and the sum run over the last axis, axis=-1",
        )
    return (
        f"a row sums to {worst:.4g} where it should sum to 1",
        "divide each row by its own sum, as the last thing done to the weights",
    )


def _boolean_pattern(want, has, name, exercise):
    if want.dtype.kind != "b":
        return None
    if (has != want).all():
        return "every entry is the opposite of what was expected", "swap True and False: ~"
    if want.ndim == 2 and np.array_equal(want.T, has):
        return "rows and columns are swapped", "let rows stand for queries and columns for keys"
    return None


def _order_pattern(want, has, name, exercise):
    if want.ndim == 2 and want.shape[0] == want.shape[1] and _same(want.T, has):
        return "rows and columns are swapped", "look for a transpose too many or too few"
    if want.ndim == 1 and want.size > 1 and _same(want[::-1], has):
        return "the entries stand in reverse order", "turn the order round"
    if want.size > 1 and want.ndim and _same(np.sort(want, axis=None), np.sort(has, axis=None)):
        return (
            "the numbers are right, but they stand in other places",
            "look for an order, a reshape or an axis that mixes them",
        )
    return None


def _factor_pattern(want, has, name, exercise):
    if want.dtype.kind != "f":
        return None
    nonzero = want != 0
    if not nonzero.any():
        return None
    factor = float(np.median(has[nonzero] / want[nonzero]))
    if factor == -1 and _same(-want, has):
        return "the sign is turned round", "look for a minus too many or too few"
    if factor != 0 and _same(want * factor, has):
        return (
            f"every number is {factor:.4g} times what was expected",
            "look for a factor or a division too many or too few",
        )
    if want.size > 1 and _same(want + (has - want).flat[0], has):
        return (
            f"every number is off by the same {float((has - want).flat[0]):.4g}",
            "look for something added or subtracted",
        )
    return None


def _same(want, has):
    return bool(close(np.asarray(want), np.asarray(has), "float32").all())
