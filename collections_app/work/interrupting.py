"""An attempt that lost its lease is stopped in the middle of what it waits for: a parser, an endpoint, a pause.

A thread beside the attempt notices the loss (`leases.Lease.hold`) and signals the main thread, where the handler raises
LeaseLostError if the attempt has said that it may be interrupted there. Elsewhere, such as in a transaction, nothing is
raised: the attempt's next write finds out by itself.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNAL = signal.SIGUSR2


class LeaseLostError(Exception):
    """This attempt no longer holds its work: that was cancelled, superseded, taken over or deleted."""


_run = {"is_lost": False, "may_raise": False}


@contextmanager
def watched() -> Iterator[None]:
    """Around an attempt, which begins with nothing lost. The signal does nothing outside of the main thread."""
    _run.update(is_lost=False, may_raise=False)
    if threading.current_thread() is threading.main_thread():
        # never taken back: a signal that comes a moment after the run would otherwise end the process
        signal.signal(SIGNAL, _on_signal)
    yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Around what may take long and holds nothing: the loss of the lease raises LeaseLostError in it, at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _run["may_raise"] = True
    try:
        if _run["is_lost"]:
            raise LeaseLostError
        yield
    finally:
        _run["may_raise"] = False


def interrupt(run: threading.Thread) -> None:
    """From another thread: the lease of the attempt in this thread is lost."""
    if run is threading.main_thread() and run.ident is not None:
        _run["is_lost"] = True
        signal.pthread_kill(run.ident, SIGNAL)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    if _run["may_raise"]:
        _run["may_raise"] = False  # once: what cleans up is left in peace
        raise LeaseLostError
