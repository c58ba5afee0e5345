"""vCard and iCalendar: folded lines joined, quoted-printable values decoded, escapes undone."""

from __future__ import annotations

import binascii
import re

from collections_app.parsing.text.charsets import decode

START = re.compile(r"\ufeff?\s*BEGIN:(?:VCARD|VCALENDAR)\s*\r?\n", re.IGNORECASE)
QUOTED = re.compile(
    r"^([^:\r\n]*;(?:ENCODING=)?QUOTED-PRINTABLE[^:\r\n]*):((?:[^\r\n]*=\r?\n)*[^\r\n]*)(?=\r?\n|\Z)", re.I | re.M
)
PARAMETERS = re.compile(r";(?:(?:ENCODING=)?QUOTED-PRINTABLE|CHARSET=[^;:]*)", re.IGNORECASE)
CHARSET = re.compile(r"CHARSET=\"?([^;:\"]+)", re.IGNORECASE)
FOLD = re.compile(r"\r?\n[ \t]")
ESCAPE = re.compile(r"\\([nN,;\\])")


def unfold(text: str) -> str:
    """The lines as they were meant; text of another kind stays as it is."""
    if not START.match(text):
        return text
    return ESCAPE.sub(_unescaped, FOLD.sub("", QUOTED.sub(_decoded, text)))


def _decoded(match: re.Match[str]) -> str:
    name, value = match.groups()
    charset = CHARSET.search(name)
    data = binascii.a2b_qp(value.encode())
    lines = decode(data, charset.group(1) if charset else "").text.splitlines()
    return f"{PARAMETERS.sub('', name)}:{' '.join(lines)}"


def _unescaped(match: re.Match[str]) -> str:
    return " " if match.group(1) in "nN" else match.group(1)
