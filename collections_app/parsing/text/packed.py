"""Packed bytes in a text, such as pictures in base64: nobody reads them, and no search is for them."""

from __future__ import annotations

import re

DATA_URL = re.compile(
    r"(\bdata:[\w.+-]+/[\w.+-]+)(?:;[\w.=+-]+)*;base64,"
    r"(?:[\w+/=-]|%[0-9A-Fa-f]{2}|\\?\r?\n[ \t]*(?=[\w+/=-]{30}))+"
)
LINE = r"[A-Za-z0-9+/]{60,}={0,2}"
LAST_LINE = r"(?:[A-Za-z0-9+/]{1,59}={1,2}|(?=[A-Za-z]*[0-9+/])[A-Za-z0-9+/]{1,59})(?=[ \t]*(?:\r?\n|\Z))"
BLOB = re.compile(rf"(?<![A-Za-z0-9+/=]){LINE}(?:[ \t]*\r?\n[ \t>]*{LINE})*(?:[ \t]*\r?\n[ \t>]*{LAST_LINE})?")
BLOB_CHARS = 400  # shorter ones are keys, tokens and digests, which people do look for
SIGNS_MIN = 40  # of the 64, which sequences of bases and numbers in hexadecimal do not have


def drop_packed(text: str) -> tuple[str, int]:
    """The text without packed bytes, and how many characters they had. A data: URL keeps its media type."""
    if "base64," not in text and not re.search(LINE, text):
        return text, 0
    shorter = BLOB.sub(lambda match: "" if _is_packed(match.group()) else match.group(), DATA_URL.sub(r"\1", text))
    return shorter, len(text) - len(shorter)


def _is_packed(run: str) -> bool:
    signs = set(run)
    return len(run) >= BLOB_CHARS and len(signs) >= SIGNS_MIN and any(sign.isdigit() for sign in signs)
