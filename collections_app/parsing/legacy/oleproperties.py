"""Title, author and dates of an old Office document, from its summary property set and nothing else of it."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import olefile

from collections_app.parsing.assembly import Assembly
from collections_app.parsing.text.charsets import known_charset

STREAM = "\x05SummaryInformation"
CODE_PAGE, TITLE, AUTHOR, CREATED, SAVED = 1, 2, 4, 12, 13
TYPE_SHORT, TYPE_TEXT, TYPE_TIME = 2, 30, 64
SECTION_PLACE = 44
PROPERTY_LIMIT = 200
TEXT_BYTES = 4000
UTF_8_PAGE = 65001
EPOCH = datetime(1601, 1, 1, tzinfo=UTC)


def read_properties(container: olefile.OleFileIO[Any], assembly: Assembly) -> None:
    """Note what the property set says. Damage there costs only what it damages."""
    if not container.exists(STREAM):
        return
    try:
        with container.openstream(STREAM) as stream:
            values = _values(stream.read())
    except (struct.error, OSError):
        return
    page = values.get(CODE_PAGE)
    label = "utf-8" if page == UTF_8_PAGE else f"cp{page}" if isinstance(page, int) else ""
    charset = known_charset(label) or "cp1252"
    texts = {key: value.decode(charset, "replace") for key, value in values.items() if isinstance(value, bytes)}
    assembly.entitle(texts.get(TITLE))
    assembly.describe(
        author=texts.get(AUTHOR),
        created_at=values.get(CREATED) if isinstance(values.get(CREATED), str) else None,
        modified_at=values.get(SAVED) if isinstance(values.get(SAVED), str) else None,
    )


def _values(content: bytes) -> dict[int, int | bytes | str]:
    """The wanted properties by number: a code page, undecoded text, times in ISO form."""
    section = struct.unpack_from("<I", content, SECTION_PLACE)[0]
    count = min(PROPERTY_LIMIT, struct.unpack_from("<I", content, section + 4)[0])
    values: dict[int, int | bytes | str] = {}
    for at in range(count):
        number, offset = struct.unpack_from("<II", content, section + 8 + 8 * at)
        if number not in (CODE_PAGE, TITLE, AUTHOR, CREATED, SAVED) or number in values:
            continue
        value = _value(content, section + offset)
        if value is not None:
            values[number] = value
    return values


def _value(content: bytes, place: int) -> int | bytes | str | None:
    try:
        kind = struct.unpack_from("<I", content, place)[0]
        if kind == TYPE_SHORT:
            return int(struct.unpack_from("<H", content, place + 4)[0])
        if kind == TYPE_TEXT:
            size = min(TEXT_BYTES, struct.unpack_from("<I", content, place + 4)[0])
            return content[place + 8 : place + 8 + size].rstrip(b"\x00")
        if kind == TYPE_TIME:
            ticks = struct.unpack_from("<Q", content, place + 4)[0]
            return (EPOCH + timedelta(microseconds=ticks // 10)).isoformat(timespec="seconds") if ticks else None
    except (struct.error, OverflowError):
        return None
    return None
