"""The end of a process that has done its work."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn


def leave(status: int = 0) -> NoReturn:
    """End the process at once, after what was registered for its end.

    Python would first take apart every module and object, which costs a process with all of ragd more than a second.
    Threads are not waited for.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads any more
            stream.flush()
    os._exit(status)


def leave_when_alone() -> None:
    """The same, unless a thread has something to end."""
    if all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        leave()
