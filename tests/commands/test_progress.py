"""Ctrl-C while a command waits."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from collections_app.commands.progress import heard_interrupts


def test_an_interrupt_that_was_swallowed_is_still_heard() -> None:
    before = signal.getsignal(signal.SIGINT)
    with heard_interrupts() as pressed:
        assert not pressed.is_set()
        with suppress(KeyboardInterrupt):  # as a destructor does
            os.kill(os.getpid(), signal.SIGINT)
        assert pressed.is_set()
    assert signal.getsignal(signal.SIGINT) is before
