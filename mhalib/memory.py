"""How much memory a computation takes: while it runs, and kept for the way back."""

import json
import os
import tempfile
from pathlib import Path

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from mhalib.threads import one_thread


def peak_bytes(function):
    """The most memory that PyTorch holds at one moment of a call, beyond what it held before.

    Args:
        function: called without arguments, once, on one thread. What it returns counts too.

    Returns:
        int, bytes of tensors and of the kernels' own work space, by the records of PyTorch's
        allocator. What a mathematical library allocates by itself is not seen.

    Raises:
        Whatever `function` raises.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler is else not silent
    with one_thread(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = function()
    del result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    live = peak = 0
    for change in sorted(changes, key=lambda event: event["ts"]):
        live += change["args"]["Bytes"]
        peak = max(peak, live)
    return peak


def saved_bytes(function, *inputs):
    """What autograd keeps after a call, to work out the gradients later.

    Args:
        function: called with `inputs`.
        inputs: tensors of any shape, some of which require gradients. They exist anyway, so they
            and views of them are not counted.

    Returns:
        int, bytes; a storage that is kept more than once counts once.

    Raises:
        Whatever `function` raises.
    """
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address is reused
        return tensor

    with one_thread(), torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        result = function(*inputs)
    own = {x.untyped_storage().data_ptr() for x in inputs if isinstance(x, torch.Tensor)}
    total = sum(x.untyped_storage().nbytes() for place, x in kept.items() if place not in own)
    del result
    return total
