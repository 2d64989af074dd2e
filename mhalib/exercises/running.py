"""Run code that may never return, without hanging the notebook.

Mechanism: the code runs in a daemon thread of its own while the caller waits. When the time
is up, an exception is injected into that thread, again and again for a short while, because a
bare `except:` swallows it. This needs no signal, so it works on Windows and from any thread.

Limits: the exception arrives between two bytecodes, so a single long call into C (one huge
matrix product, `time.sleep(1000)`) goes on until it returns, and so does a loop that swallows
every exception. Such a thread is left behind, the learner is told, and a kernel restart ends it.
Code that ends the whole process (`os._exit`, a crash inside C) ends the kernel too: this is no
sandbox.
"""

import contextvars
import ctypes
import threading
import time

SLICE = 0.05  # seconds between two looks at the thread, so that an interrupt is noticed on Windows
GRACE = 1.0  # seconds during which a thread that ran too long is asked to stop


class _TimeIsUp(SystemExit):
    """Injected into the learner's thread; as a SystemExit it ends a thread without a word."""


class TookTooLong(Exception):  # noqa: N818 - it is a result, not an error of ours
    """The code did not finish in time; `stopped` says whether its thread was ended."""

    def __init__(self, seconds, stopped):
        super().__init__(f"no result after {seconds:g} seconds")
        self.seconds = seconds
        self.stopped = stopped


def run_limited(work, seconds):
    """Call `work()` in a thread of its own and return what it returns.

    Args:
        work: a function without arguments that catches what the learner's code raises.
        seconds: how long to wait.

    Raises:
        TookTooLong: no result in time.
        KeyboardInterrupt: the caller was interrupted while waiting; the thread is stopped first.
    """
    results = []
    done = threading.Lock()  # held while the work is under way
    done.acquire()
    context = contextvars.copy_context()

    def run():
        try:
            results.append(context.run(work))
        finally:
            done.release()

    thread = threading.Thread(target=run, name="mhalib-check", daemon=True)
    thread.start()
    try:
        _wait(done, seconds)
    except KeyboardInterrupt:
        _stop(thread, done)
        raise
    if results:
        return results[0]
    raise TookTooLong(seconds, _stop(thread, done))


def _wait(done, seconds):
    """Wait for the work. Not by Thread.join: once interrupted, it takes the thread for ended."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if done.acquire(timeout=min(SLICE, left)):
            done.release()
            return


def _stop(thread, done):
    """Inject the exception until the work ends or the grace is over; True if it ended."""
    end = time.monotonic() + GRACE
    while thread.is_alive() and done.locked() and time.monotonic() < end:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeIsUp)
        )
        _wait(done, SLICE)
    return not thread.is_alive() or not done.locked()
