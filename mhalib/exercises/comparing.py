"""The first difference between what was expected and what a run gave, in words."""

import numpy as np

from mhalib.exercises.observing import Part
from mhalib.exercises.values import Difference, close, value_difference


def alike(one, other):
    """Two observations show the same behaviour: how a learner's mistake is matched to a slip."""
    if one.raised or other.raised:
        both = one.raised and other.raised
        return bool(both and one.raised.type_name == other.raised.type_name)
    return (
        _alike_parts(one.result, other.result)
        and one.gradient_problem == other.gradient_problem
        and len(one.gradients or ()) == len(other.gradients or ())
        and all(map(_alike_parts, one.gradients or (), other.gradients or ()))
    )


def _alike_parts(one, other):
    if (one.kind, one.shape) != (other.kind, other.shape) or len(one.items) != len(other.items):
        return False
    if one.items:
        return all(map(_alike_parts, one.items, other.items))
    if one.values is None or other.values is None:
        return one.values is other.values
    kinds = {one.values.dtype.kind, other.values.dtype.kind}
    if len(kinds) > 1 and one.kind != "number":
        return False
    dtypes = {one.dtype, other.dtype}
    if dtypes & {"float16", "bfloat16"}:
        return len(dtypes) == 1 and bool(close(one.values, other.values, one.dtype).all())
    return bool(close(one.values, other.values, "float32" if "f" in kinds else "").all())


def difference(expected, got, exercise):
    """The first `Difference` between two observations, or None."""
    if got.raised:
        return _raised(got.raised)
    found = _result_difference(expected.result, got.result, exercise)
    if found or expected.gradients is None:
        return found
    return _gradient_difference(expected, got, exercise)


def _raised(raised):
    if raised.told:
        return Difference(*raised.told, "raised")
    message = f": {raised.message}" if raised.message else ""
    place = f" ({raised.place})" if raised.place else ""
    what = f"your function stopped with {raised.type_name}{message}{place}"
    if raised.not_written:
        reason = "this part of your function still raises NotImplementedError"
        return Difference(what, reason, "write this part too", "raised")
    advice = {
        "NameError": (
            "a name is used that was never given a value, or its import is missing",
            "compare the spelling with the line that defines the name, and run that cell first",
        ),
        "UnboundLocalError": (
            "a name is used before the line that gives it a value",
            "follow your function line by line and see which path skips that line",
        ),
        "RecursionError": (
            "your function calls itself without an end",
            "check whether a name inside it was meant to be another function",
        ),
        "SystemExit": ("your function asks Python to exit", "return the result instead"),
        "KeyboardInterrupt": (
            "your function raises KeyboardInterrupt, or was interrupted",
            "run the check again",
        ),
    }
    reason, step = advice.get(raised.type_name, ("", ""))
    if "requires grad" in raised.message and "numpy" in raised.message:
        reason = "the tensor leaves PyTorch for NumPy, where no gradient can follow it"
        step = "stay with tensors from the first line to the last"
    elif "scalar type" in raised.message or "same dtype" in raised.message:
        reason = "two tensors of different dtypes met in one operation"
        step = "bring both to the same dtype first; print the .dtype of each just before that line"
    elif "is ambiguous" in raised.message:
        reason = "Python wants one True or False there, and an array has many"
        step = "join comparisons with & or |, each in brackets, and not with and, or, a < b < c"
    elif "a causal mask needs query_offset" in raised.message:
        reason = "the mask has to know where the query stands among the keys"
        step = "give query_offset; a single query behind all keys needs no mask at all"
    elif not reason and raised.type_name in ("ValueError", "RuntimeError", "IndexError"):
        reason = "most often the axes of two arrays do not fit at that line"
        step = "print the .shape of each array just before that line"
    elif not reason and raised.type_name == "TypeError":
        reason = "a value there has another type, or a function other arguments, than you expect"
        step = "print the type of each value on that line; hint() shows the contract"
    elif not reason:
        reason = "the error's own text says most about it"
        step = "call your function by itself on a small input and read the error"
    return Difference(what, reason, step, "raised")


def _result_difference(expected, got, exercise):
    if got.kind == "None":
        return Difference(
            "your function returned None",
            "most often the return is missing, or stands inside a branch that was not taken",
            "end the function with return and the value it computed",
            "returned",
        )
    if expected.kind == "tuple":
        return _tuple_difference(expected, got, exercise)
    if expected.kind != "tuple" and got.kind == "tuple" and expected.values.dtype.kind == "f":
        return Difference(
            f"your function returned {len(got.items)} values, but one was expected",
            "a comma after the value makes a tuple, or something more is returned",
            f"return {exercise.returns[0]} alone",
            "returned",
        )
    return part_difference(expected, got, exercise.returns[0], exercise)


def _tuple_difference(expected, got, exercise):
    names = exercise.returns
    wanted = f"({', '.join(names)})"
    if got.kind not in ("tuple", "list") or len(got.items) != len(names):
        single = got.kind not in ("tuple", "list")
        given = "one value" if single else f"{got.shape[0]} values"
        return Difference(
            f"your function returned {given}, but {len(names)} were expected: {wanted}",
            f"the contract asks for {' and '.join(names)} together",
            f"end with return {', '.join(names)}",
            "returned",
        )
    pairs = list(zip(names, expected.items, got.items, strict=True))
    found = [part_difference(want, has, name, exercise) for name, want, has in pairs]
    if all(found) and len(names) == 2:
        crossed = [
            part_difference(want, has, "", exercise)
            for want, has in zip(expected.items, got.items[::-1], strict=True)
        ]
        if not any(crossed):
            return Difference(
                f"the two returned values stand in the wrong order: {wanted} was expected",
                f"{names[1]} was returned first",
                f"end with return {', '.join(names)}",
                "returned",
            )
    # the values that come last are made first (weights before output), and show the cause
    return next((one for one in reversed(found) if one), None)


def part_difference(expected, got, name, exercise):
    """The difference between one expected value and one returned value, called `name`."""
    if _is_row_numbers(expected) and got.kind in ("list", "tuple"):
        got = _as_row_numbers(got)
    wrong = _kind_difference(expected, got, name)
    wrong = wrong or _shape_difference(expected, got, name)
    wrong = wrong or _dtype_difference(expected, got, name)
    return wrong or value_difference(expected, got, name, exercise)


def _is_row_numbers(part):
    return part.kind == "array" and part.values.dtype.kind == "i"


def _as_row_numbers(part):
    """A list of whole numbers counts as an array of them."""
    if part.items and all(item.kind == "number" and not item.shape for item in part.items):
        values = np.array([item.values for item in part.items])
        return Part("array", part.type_name, values.shape, str(values.dtype), values)
    return part


_CALLED = {
    "tensor": "a torch.Tensor",
    "array": "a NumPy array",
    "number": "a number",
    "list": "a list",
    "tuple": "a tuple",
    "None": "None",
}


def _kind_difference(expected, got, name):
    kinds = (expected.kind, got.kind)
    if expected.kind == got.kind and got.type_name != "bool":
        return None
    if kinds == ("number", "array") and got.shape == ():
        return None
    if kinds == ("array", "number") and expected.shape == ():
        return None
    is_called = _CALLED.get(got.kind, f"a value of type {got.type_name}")
    if got.kind in ("array", "tensor"):
        is_called += f" of shape {got.shape}"
    elif got.kind == "number":
        is_called = f"a single {got.type_name}"
    what = f"{name} came back as {is_called}, but {_CALLED[expected.kind]} was expected"
    advice = {
        ("tensor", "array"): (
            "the computation went through NumPy on the way",
            "use the tensor's own methods and torch functions throughout",
        ),
        ("array", "tensor"): (
            "this exercise is in NumPy, and torch was used",
            "use @ and np functions on the arrays you are given",
        ),
        ("number", "array"): (
            "one number for each entry was returned where all should be put into one",
            "look for the step that adds the entries up",
        ),
        ("array", "number"): (
            "everything was added up into one number",
            "give the sum an axis, so that it adds along that axis only",
        ),
        ("array", "list"): ("a Python list was built and returned", "return np.array(...) of it"),
        ("tensor", "list"): ("a Python list was built and returned", "join it: torch.stack(...)"),
    }
    reason, step = advice.get(
        kinds, ("something else than the result was returned", f"return the {expected.kind} itself")
    )
    return Difference(what, reason, step, "returned")


def _shape_difference(expected, got, name):
    if expected.shape == got.shape:
        return None
    what = f"the shape of {name} is {got.shape}, but {expected.shape} was expected"
    squeezed = tuple(size for size in got.shape if size != 1)
    if sorted(got.shape) == sorted(expected.shape):
        reason = "the axes are in another order"
        step = "look for a transpose too many or too few, or for two arguments that changed places"
    elif len(got.shape) < len(expected.shape):
        reason = "an axis was lost, most often in a sum, max or mean over it, or by an index"
        step = "use keepdims=True (keepdim in torch) where the axis must stay"
    elif squeezed == tuple(size for size in expected.shape if size != 1):
        reason = "there is an axis of length 1 too many"
        step = "look for the line that adds it: keepdims, None in an index, unsqueeze"
    elif len(got.shape) > len(expected.shape):
        reason = "there are more axes than expected: a sum is missing, or broadcasting made one"
        step = "print the .shape after every line and find the first that surprises you"
    else:
        reason = "the sizes were combined along other axes than the contract says"
        step = "print the .shape after every line and compare it with the contract"
    return Difference(what, reason, step, "shape")


def _dtype_difference(expected, got, name):
    whole = "whole numbers"
    kinds = {"b": "booleans", "i": whole, "u": whole, "f": "numbers with decimals"}
    want, has = kinds[expected.values.dtype.kind], kinds[got.values.dtype.kind]
    whole_for_decimal = expected.kind == "number" and has == whole
    if want != has and not whole_for_decimal:
        return Difference(
            f"there are {has} ({got.dtype}) in {name}, but {want} ({expected.dtype}) were expected",
            "the values were made or converted as another kind of number",
            "look at what each line makes: a comparison makes booleans, argsort whole numbers",
            "dtype",
        )
    if expected.kind == "tensor" and expected.dtype != got.dtype:
        return Difference(
            f"the dtype of {name} is {got.dtype}, but {expected.dtype} was expected",
            "a new tensor was made in PyTorch's default dtype, or the values were converted",
            "give new tensors dtype=…, such as the dtype of the first input",
            "dtype",
        )
    return None


def _gradient_difference(expected, got, exercise):
    problems = {
        "no tensor": "the result is not a floating-point tensor, so no gradient can start from it",
        "cut off": "the result is right, but no gradient flows back from it to the inputs",
        "cut off in part": "the result is right, but no gradient reaches some of the inputs",
    }
    if got.gradient_problem:
        return Difference(
            problems[got.gradient_problem],
            "the values left the graph: .detach(), .data, .numpy(), .tolist(), torch.tensor(...) "
            "or torch.no_grad() does this",
            "compute with the tensors you are given from the first line to the last",
            "gradient",
        )
    for number, (want, has) in enumerate(zip(expected.gradients, got.gradients, strict=True)):
        if not close(want.values, has.values, want.dtype).all():
            name = exercise.arguments[number]
            return Difference(
                f"the result is right, but the gradient with respect to {name} differs",
                "part of the computation was cut out of the graph, by .detach() or .data",
                "compute with the tensors you are given from the first line to the last",
                "gradient",
            )
    return None
