"""What one run of a function did, as plain data that is safe to look at.

Whatever a learner's function returns is turned into `Part`s *inside* the time-limited thread,
so that odd objects (an `==` that raises, a lazy tensor, a list that contains itself) do their
harm there. Everything after this module handles NumPy arrays, numbers and text only.
"""

import contextlib
import random
import sys
import sysconfig
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mhalib.exercises.catalogue import Fault

MOST_ENTRIES = 5_000_000  # of a returned array; no right answer comes near it
MOST_ITEMS = 1_000  # of a returned list

_NOT_THEIRS = tuple(
    str(Path(folder))
    for folder in {
        Path(__file__).parents[1],
        *(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")),
    }
)


@dataclass(frozen=True)
class Part:
    """One returned value. `kind`: tensor, array, number, list, tuple, None or other."""

    kind: str
    type_name: str
    shape: tuple = ()
    dtype: str = ""
    values: np.ndarray | None = None
    items: tuple = ()


@dataclass(frozen=True)
class Raised:
    """An exception, with the place in the learner's code that raised it; `told` by a `Fault`."""

    type_name: str
    message: str
    place: str
    not_written: bool = False
    told: tuple = ()


@dataclass(frozen=True)
class Observation:
    """What one run did: `result` or `raised`; `gradients` where asked for; `changed` arguments."""

    result: Part | None = None
    raised: Raised | None = None
    gradients: tuple | None = None
    gradient_problem: str = ""
    changed: tuple = field(default=())


def observe(function, case):
    """Run `function` on the case; everything it returns or raises becomes plain data."""
    with _modes_of_this_thread():
        try:
            arguments = case.make()
            leaves = _leaves(arguments) if case.gradients else []
            given = _through_leaves(arguments, leaves) if case.gradients else arguments
            returned = case.call(function, *given)
            result = describe(returned)
            changed = () if case.gradients else _changed(arguments, case.make())
            if not case.gradients:
                return Observation(result=result, changed=changed)
            gradients, problem = _gradients(returned, leaves)
            return Observation(result=result, gradients=gradients, gradient_problem=problem)
        except BaseException as error:
            return Observation(raised=_raised(error, function))


def describe(value, depth=0):
    """The returned value as plain data."""
    kind = type(value)
    name = kind.__name__
    if value is None:
        return Part("None", name)
    if issubclass(kind, (bool, int, float, np.bool_, np.integer, np.floating)):
        values = np.asarray(value)
        if values.dtype.kind == "O":
            return Part("other", f"{name} too large for an array")
        return Part("number", name, dtype=str(values.dtype), values=values.copy())
    if issubclass(kind, np.ndarray):
        return _describe_array(np.asarray(value), "array", name)
    if "torch" in sys.modules and issubclass(kind, sys.modules["torch"].Tensor):
        return _describe_tensor(value, name)
    if issubclass(kind, (list, tuple)):
        base = list if issubclass(kind, list) else tuple
        length = base.__len__(value)
        items = ()
        if depth < 2 and length <= MOST_ITEMS:
            items = tuple(describe(item, depth + 1) for item in base.__iter__(value))
        return Part(base.__name__, name, shape=(length,), items=items)
    return Part("other", name)


def _describe_array(array, kind, name):
    if array.dtype.kind not in "biuf":
        return Part("other", f"{name} of dtype {array.dtype}")
    values = np.array(array) if array.size <= MOST_ENTRIES else None
    return Part(kind, name, array.shape, str(array.dtype), values)


def _describe_tensor(tensor, name):
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(tensor.shape)
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_complex():
            return Part("other", f"{name} of dtype {dtype} that holds no plain numbers")
        if tensor.numel() > MOST_ENTRIES:
            return Part("tensor", name, shape, dtype)
        plain = tensor.detach().cpu()
        if plain.is_floating_point():
            plain = plain.to(torch.float64)
        return Part("tensor", name, shape, dtype, np.array(plain.numpy()))


def largest_new(function, *arguments):
    """Call a function, and measure the largest tensor that it makes on the way.

    Args:
        function: called with the arguments.

    Returns:
        (result, elements): what it returned, and how many numbers the largest storage holds that
        it newly made; 0 if it made none. Views, `expand` and operations in place cost nothing;
        the copy that a product of expanded tensors makes is counted. What leaves torch (NumPy),
        runs in another thread or stays inside one kernel is not seen.
    """
    result, storages = _storages_made(function, arguments)
    return result, max((elements for _, elements in storages), default=0)


def made(function, *arguments):
    """As `largest_new`, but (result, shapes): the shape of every tensor whose storage is new."""
    result, storages = _storages_made(function, arguments)
    return result, [shape for shape, _ in storages]


def _storages_made(function, arguments):
    """(result, [(shape, elements), ...]): every new storage, seen as torch's operations run."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            given = (args, kwargs or {})
            if operation is torch.ops.aten.lift_fresh.default:
                given = ()  # torch.tensor(...) shows itself only here
            known = {place: size for place, size, _ in _storages(given)}
            returned = operation(*args, **(kwargs or {}))
            for place, size, tensor in _storages(returned):
                if size > known.get(place, 0):  # new, or grown in place
                    known[place] = size
                    found.append((tuple(tensor.shape), size // tensor.itemsize))
            return returned

    with Watch():
        return function(*arguments), found


def _storages(values):
    """(address, bytes, tensor) of every tensor in nested tuples, lists and dictionaries."""
    from torch import Tensor, strided
    from torch.utils._pytree import tree_leaves

    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor) and leaf.layout is strided:
            storage = leaf.untyped_storage()
            yield storage._cdata, storage.nbytes(), leaf


def _leaves(arguments):
    """Detached floating-point tensors that collect gradients."""
    import torch

    return [
        argument.detach().requires_grad_()
        for argument in arguments
        if isinstance(argument, torch.Tensor) and argument.is_floating_point()
    ]


def _through_leaves(arguments, leaves):
    """The arguments, each floating-point tensor replaced by a copy of its leaf."""
    import torch

    remaining = iter(leaves)
    return tuple(
        next(remaining).clone()
        if isinstance(argument, torch.Tensor) and argument.is_floating_point()
        else argument
        for argument in arguments
    )


def _gradients(returned, leaves):
    """Gradients of a fixed weighted sum of the returned tensors, or why there are none."""
    import torch

    outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
    rng = np.random.default_rng(7)
    total = 0
    for output in outputs:
        if not isinstance(output, torch.Tensor) or not output.is_floating_point():
            return None, "no tensor"
        if not output.requires_grad:
            return None, "cut off"
        weights = torch.from_numpy(rng.standard_normal(tuple(output.shape))).to(output.dtype)
        total = total + (output * weights).sum()
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    if any(gradient is None for gradient in gradients):
        return None, "cut off in part"
    return tuple(describe(gradient) for gradient in gradients), ""


def _changed(arguments, fresh):
    """Positions of the arguments that the run changed."""
    pairs = enumerate(zip(arguments, fresh, strict=True))
    return tuple(index for index, (now, before) in pairs if not _equal(now, before))


def _equal(now, before):
    now, before = describe(now), describe(before)
    if now.kind not in ("tensor", "array"):
        return True
    same_form = now.shape == before.shape and now.dtype == before.dtype
    return same_form and np.array_equal(now.values, before.values, equal_nan=True)


def _raised(error, function):
    try:
        message = " ".join(str(error).split())
    except BaseException:  # an exception whose text cannot be made
        message = ""
    if len(message) > 300:
        message = message[:300] + " …"
    try:
        place = _place(error, function)
    except BaseException:  # no place is better than no answer
        place = ""
    not_written = isinstance(error, NotImplementedError)
    told = error.told if isinstance(error, Fault) else ()
    return Raised(type(error).__name__, message, place, not_written, told)


def _place(error, function):
    """Where in the learner's own code it happened, such as: line 3 of your function, `a @ b`."""
    frames = [
        (frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((*_NOT_THEIRS, "<frozen", "<__array"))
    ]
    if not frames:
        return ""
    code, line = frames[-1]
    own = code is getattr(function, "__code__", None)
    where = "your function" if own else f"`{code.co_name}`"
    place = f"line {line - code.co_firstlineno + 1} of {where}"
    text = traceback.linecache.getline(code.co_filename, line).strip()
    return f"{place}: {text}" if text else place


@contextlib.contextmanager
def _modes_of_this_thread():
    """Gradients on and NumPy's warnings off; both belong to the thread, so nothing leaks."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(np.errstate(all="ignore"))
        if "torch" in sys.modules:
            torch = sys.modules["torch"]
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
        yield


@contextlib.contextmanager
def state_put_back():
    """Put back the random states and torch's default dtype, which learner code may change."""
    torch = sys.modules.get("torch")
    python_state, numpy_state = random.getstate(), np.random.get_state()
    if torch is not None:
        torch_state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if torch is not None:
            torch.set_rng_state(torch_state)
            torch.set_default_dtype(dtype)
