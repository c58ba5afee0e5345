"""Content under age (https://age-encryption.org/v1), which `age -d -i KEY_FILE` and `rage` read as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any

from pyrage import DecryptError, IdentityError, decrypt_io, encrypt_io, x25519

from ragd_site.backup.programs import BackupError, DamagedError
from ragd_site.backup.streams import as_file

PREFIX = "AGE-SECRET-KEY-"
NO_KEY = "No matching keys found"


class WrongKeyError(DamagedError):
    """The content is under another key, or the lines that say which were altered."""


class Key:
    """An age identity (X25519). Content is encrypted to its own recipient, which is stored nowhere."""

    def __init__(self, text: str) -> None:
        """text: of a key file, as `age-keygen` writes it. Raises BackupError for one without a key."""
        line = next((line.strip() for line in text.splitlines() if line.strip().startswith(PREFIX)), "")
        try:
            self._identity = x25519.Identity.from_str(line)
        except IdentityError:
            raise BackupError(
                f"the backup key must be an age key, a line that begins with {PREFIX}; `manage.py ragd backup key FILE`"
                " makes one, and so does `age-keygen`"
            ) from None

    @staticmethod
    def generate() -> str:
        """The text of a new key file."""
        identity = x25519.Identity.generate()
        return f"# public key: {identity.to_public()}\n{identity}\n"

    def encrypt(self, content: Iterable[bytes]) -> Iterator[bytes]:
        """The age file of content of any length, cut anyhow."""
        recipient = self._identity.to_public()
        return transform(lambda source, target: encrypt_io(source, target, [recipient]), content)

    def decrypt(self, name: str, content: Iterable[bytes]) -> Iterator[bytes]:
        """The content of an age file, each part proven before it is given out.

        name: of the file, for messages. Raises DamagedError: what came before the damage is good, but the content is
        whole only when the iterator ends without one.
        """
        try:
            yield from transform(lambda source, target: decrypt_io(source, target, [self._identity]), content)
        except DecryptError as error:
            kind = WrongKeyError if NO_KEY in str(error) else DamagedError
            raise kind(f"{name} was altered at its beginning: {error}; take another backup") from None
        except OSError as error:
            raise DamagedError(f"{name} was altered, or its end is missing: {error}; take another backup") from None


def transform(program: Callable[[Any, Any], object], content: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what a function writes into its second file while it reads the content from its first.

    The function runs in a thread, the content is iterated in the caller's: each waits for the other, so that no more
    than a piece of either stands in memory. An error of either ends both.
    """
    pieces = filter(None, content)
    asked_for: SimpleQueue[bytes | None] = SimpleQueue()
    events: SimpleQueue[bytes | BaseException | None] = SimpleQueue()  # written; the end; None where more is needed

    def ask() -> bytes:
        events.put(None)
        piece = asked_for.get()
        if piece is None:
            raise BrokenPipeError
        return piece

    def write(data: bytes) -> int:
        events.put(bytes(data))
        return len(data)

    def work() -> None:
        try:
            program(as_file(iter(ask, b"")), SimpleNamespace(write=write, flush=lambda: None))
            events.put(StopIteration())
        except BaseException as error:
            events.put(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while not isinstance(event := events.get(), StopIteration):
            if isinstance(event, BaseException):
                raise event
            if event is None:
                asked_for.put(next(pieces, b""))
            else:
                yield event
    finally:
        asked_for.put(None)
        thread.join()
