"""What a computation holds, and what it keeps: measured sizes that are known beforehand."""

import os
import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from mhalib import memory

MIB = 2**20


def numbers(mebibytes=1):
    return torch.ones(mebibytes * MIB // 4)


def test_peak_is_the_most_that_is_held_at_one_moment():
    def three_then_one():
        first, second = numbers(), numbers(2)
        total = first.sum() + second.sum()
        del first, second
        return numbers() * total

    assert memory.peak_bytes(three_then_one) == pytest.approx(3 * MIB, abs=10_000)
    assert memory.peak_bytes(lambda: numbers(4)) == pytest.approx(4 * MIB, abs=10_000)


def test_peak_counts_what_is_new():
    there = numbers(8)
    assert memory.peak_bytes(lambda: there.view(2, -1).sum()) < 10_000
    assert memory.peak_bytes(lambda: there.add_(1)) < 10_000


def test_peak_passes_errors_on_and_leaves_the_threads_alone():
    threads = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        memory.peak_bytes(lambda: 1 / 0)
    assert torch.get_num_threads() == threads


def test_the_profiler_is_silent():
    """In a process of its own: the profiler reads how loud to be once, when it is first used."""
    code = "import torch; from mhalib import memory; memory.peak_bytes(lambda: torch.ones(9))"
    environment = {name: text for name, text in os.environ.items() if "KINETO" not in name}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert (done.stdout, done.stderr) == ("", "")


def test_saved_counts_what_autograd_keeps_beside_the_inputs():
    x = numbers().requires_grad_()
    assert memory.saved_bytes(lambda x: x.sin(), x) == 0  # keeps x, which is there anyway
    assert memory.saved_bytes(lambda x: x.view(2, -1).sin(), x) == 0
    assert memory.saved_bytes(lambda x: x.exp(), x) == MIB  # keeps its result
    assert memory.saved_bytes(lambda x: x.exp().square(), x) == MIB  # the same result, twice
    assert memory.saved_bytes(lambda x: x.exp().exp(), x) == 2 * MIB
    assert memory.saved_bytes(lambda x: x + 1, x) == 0


def test_saved_knows_of_checkpoints_and_turns_gradients_on():
    x = numbers().requires_grad_()
    with torch.no_grad():
        assert memory.saved_bytes(lambda x: x.exp().exp(), x) == 2 * MIB
    again = memory.saved_bytes(
        lambda x: checkpoint(lambda x: x.exp().exp(), x, use_reentrant=False), x
    )
    assert again < 10_000
