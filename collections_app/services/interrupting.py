"""A run that lost its job is stopped in the middle of what it waits for: a parser, an endpoint, a pause.

A thread beside the run notices the loss (`workers.hold_lease`) and signals the main thread, where the handler raises
JobLostError if the run has said that it may be interrupted there. Elsewhere, such as in a transaction, nothing is
raised: the next write of the run finds out by itself.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNAL = signal.SIGUSR2


class JobLostError(Exception):
    """This run no longer owns its job: it was cancelled, superseded, taken over or deleted."""


_run = {"is_lost": False, "may_raise": False}


@contextmanager
def watched() -> Iterator[None]:
    """Around a run, which begins with nothing lost. In another thread than the main one the signal does nothing."""
    _run.update(is_lost=False, may_raise=False)
    if threading.current_thread() is threading.main_thread():
        # never taken back: a signal that comes a moment after the run would otherwise end the process
        signal.signal(SIGNAL, _on_signal)
    yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Around what may take long and holds nothing: the loss of the job raises JobLostError in it, at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _run["may_raise"] = True
    try:
        if _run["is_lost"]:
            raise JobLostError
        yield
    finally:
        _run["may_raise"] = False


def interrupt(run: threading.Thread) -> None:
    """From another thread: the job of the run in this thread is lost."""
    if run is threading.main_thread() and run.ident is not None:
        _run["is_lost"] = True
        signal.pthread_kill(run.ident, SIGNAL)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    if _run["may_raise"]:
        _run["may_raise"] = False  # once: what cleans up is left in peace
        raise JobLostError
