"""How many processor threads PyTorch uses, for a while."""

from contextlib import contextmanager

import torch


@contextmanager
def one_thread():
    """Run on one thread: where each step is small, two only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
