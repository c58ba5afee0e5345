"""An answer while it is written: its message says that a process is at it, and a person can stop it from any page."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone

from collections_app.access_context import system_access
from retrieval_app.llm.chat_completion import stops_with
from retrieval_app.models import ChatMessage

log = logging.getLogger(__name__)

BEAT_S = 1.0
LEASE = timedelta(seconds=20)  # a message that nobody has put off for so long belongs to a process that ended


class Writing:
    """The writing of one answer. stopped: set once a person asked to end it.

    It goes on when its reader leaves. Between two beats it holds no connection to the database.
    """

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._ended = threading.Event()
        self._beat: threading.Thread | None = None
        self._message: ChatMessage | None = None

    def begin(self, message: ChatMessage) -> None:
        """Put the message off until `held` ends. Its `writing_until` is stored with it."""
        self._message = message
        self._beat = threading.Thread(target=self._run, name="ragd-writing", daemon=True)
        self._beat.start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around the work. A chat model that is asked in it stops where a person asked for that."""
        try:
            with stops_with(self.stopped):
                yield
        finally:
            self._ended.set()
            if self._beat is not None and self._message is not None:
                self._beat.join()
                with system_access():
                    ChatMessage.objects.filter(pk=self._message.pk).update(writing_until=None)

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self._put_off()
            except (DatabaseError, InterfaceError):
                log.warning("an answer is written and its message could not be put off", exc_info=True)
            finally:
                connection.close()

    def _put_off(self) -> None:
        assert self._message is not None
        with system_access():
            rows = ChatMessage.objects.filter(pk=self._message.pk)
            rows.update(writing_until=timezone.now() + LEASE)
            if rows.filter(stop_requested=True).exists():
                self.stopped.set()


def request_stop(message: ChatMessage) -> None:
    """End its answer where it is, within about a second, whichever process writes it."""
    ChatMessage.objects.filter(pk=message.pk).update(stop_requested=True)
