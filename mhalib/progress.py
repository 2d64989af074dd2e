"""A progress bar for what takes seconds, where somebody watches."""

import os
import sys
from contextlib import contextmanager


@contextmanager
def bar(total, progress, label):
    """A bar, gone when done, where somebody watches: elsewhere it would be stored as output."""
    in_jupyter = "JPY_SESSION_NAME" in os.environ
    if not (progress and (in_jupyter or sys.stderr.isatty())):
        yield lambda: None
        return
    if in_jupyter:
        from tqdm.notebook import tqdm
    else:
        from tqdm import tqdm

    with tqdm(total=total, desc=label, unit="step", leave=False, mininterval=0.2) as shown:
        yield shown.update
