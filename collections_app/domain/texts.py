"""Texts of any length, gone through a piece at a time: whole copies of a large document cost more than it does."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator

PIECE_CHARS = 1 << 20
LONG_CHARS = 1 << 20  # a text of more is handled in pieces throughout


def text_pieces(text: str) -> Iterator[str]:
    """The text in pieces of PIECE_CHARS characters; one that is short comes as it is."""
    if len(text) <= PIECE_CHARS:
        yield text
        return
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS]


def hash_text(text: str) -> str:
    """SHA-256 (hex) of its UTF-8."""
    digest = hashlib.sha256()
    for piece in text_pieces(text):
        digest.update(piece.encode())
    return digest.hexdigest()


def count_words(text: str) -> int:
    """len(text.split())."""
    words, inside = 0, False
    for piece in text_pieces(text):
        if not piece:
            continue
        words += len(piece.split()) - (inside and not piece[0].isspace())
        inside = not piece[-1].isspace()
    return words


def size_utf8(text: str) -> int:
    """len(text.encode())."""
    return sum(len(piece.encode()) for piece in text_pieces(text))


def give_back_memory() -> None:
    """Return what is free to the operating system, where the C library can: pieces of a long text leave holes."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
