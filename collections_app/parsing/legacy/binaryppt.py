"""The text of a PowerPoint 97-2003 presentation, slide by slide, straight from its records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import olefile

from collections_app.parsing.assembly import Assembly
from collections_app.parsing.types import ParseError

STREAM, CURRENT_USER = "PowerPoint Document", "Current User"
DOCUMENT, SLIDE, NOTES, MAIN_MASTER = 1000, 1006, 1008, 1016
SLIDE_LIST, SLIDE_PERSIST = 4080, 1011
TEXT_CHARS, TEXT_BYTES, TEXT_HEADER, COMMENT_TEXT = 4000, 4008, 3999, 4026
COMMENT = 12000
USER_EDIT, PERSIST_DIRECTORY, ENCRYPTION = 4085, 6002, 12052
ENCRYPTED_TOKEN = 0xF3D1C4DF
SLIDES_INSTANCE, NOTES_INSTANCE = 0, 2
CONTAINER = 0xF
DEPTH_LIMIT = 30
EDIT_LIMIT = 1000
CHARACTERS = str.maketrans({"\r": "\n", "\x0b": "\n"})


@dataclass(frozen=True, slots=True)
class Record:
    kind: int
    instance: int
    is_container: bool
    start: int
    end: int


def check_readable(container: olefile.OleFileIO[Any]) -> None:
    """ParseError "encrypted" or "broken" when the text cannot be reached."""
    if not container.exists(STREAM):
        raise ParseError("broken", "The presentation is of PowerPoint 95 or damaged. Save it again as PPTX.")
    encrypted = container.exists("EncryptedSummary")
    if container.exists(CURRENT_USER):
        with container.openstream(CURRENT_USER) as stream:
            head = stream.read(20)
        encrypted = encrypted or (len(head) >= 16 and struct.unpack_from("<I", head, 12)[0] == ENCRYPTED_TOKEN)
    if encrypted:
        raise ParseError("encrypted", "The presentation is locked by a password. Save it without one and upload that.")


def read_text(container: olefile.OleFileIO[Any], assembly: Assembly) -> None:
    """Add every slide with its label "slide N": the outline's text, then text boxes, comments and notes."""
    with container.openstream(STREAM) as stream:
        data: bytes = stream.read()
    places = _persist_places(container, data)
    document = next((record for record in _records(data, 0, len(data)) if record.kind == DOCUMENT), None)
    outline = list(_outline(data, document, SLIDES_INSTANCE)) if document else []
    notes = list(_outline(data, document, NOTES_INSTANCE)) if document else []
    for number, (identifier, texts) in enumerate(outline, 1):
        lines = dict.fromkeys(texts)
        lines.update(dict.fromkeys(_texts_at(data, places.get(identifier), SLIDE)))
        if number <= len(notes):
            spoken = (
                list(_texts_at(data, places.get(notes[number - 1][0]), NOTES)) if len(notes) == len(outline) else []
            )
            lines.update(dict.fromkeys(f"Notes: {line}" for line in spoken))
        assembly.add("\n\n".join(line for line in lines if line.strip()), f"slide {number}")
    if not assembly.length:
        found = [
            text
            for record in _records(data, 0, len(data))
            if record.kind in (SLIDE, DOCUMENT)
            for text in _texts(data, record)
        ]
        assembly.add("\n\n".join(dict.fromkeys(found)))


def _records(data: bytes, start: int, end: int) -> Iterator[Record]:
    """The records of one level. Stops where a length leads out of the level."""
    place = start
    while place + 8 <= end:
        head, kind, size = struct.unpack_from("<HHI", data, place)
        stop = place + 8 + size
        if stop > end:
            return
        yield Record(kind, head >> 4, head & 0xF == CONTAINER, place + 8, stop)
        place = stop


def _texts(data: bytes, record: Record) -> Iterator[str]:
    """All text atoms below a record, in order."""
    stack = [iter(_records(data, record.start, record.end))]
    in_comment = [False]
    while stack:
        inner = next(stack[-1], None)
        if inner is None:
            stack.pop()
            in_comment.pop()
        elif inner.is_container and len(stack) < DEPTH_LIMIT:
            stack.append(iter(_records(data, inner.start, inner.end)))
            in_comment.append(inner.kind == COMMENT)
        elif inner.kind in (TEXT_CHARS, TEXT_BYTES):
            yield _decode(data, inner)
        elif inner.kind == COMMENT_TEXT and in_comment[-1] and inner.instance == 1:
            yield f"Comment: {_decode(data, inner)}"


def _decode(data: bytes, record: Record) -> str:
    raw = data[record.start : record.end]
    text = raw.decode("latin-1") if record.kind == TEXT_BYTES else raw.decode("utf-16-le", "replace")
    return text.translate(CHARACTERS).strip()


def _outline(data: bytes, document: Record, instance: int) -> Iterator[tuple[int, list[str]]]:
    """(persist identifier, outline texts) of each slide or notes page, in the order of the show."""
    for part in _records(data, document.start, document.end):
        if part.kind != SLIDE_LIST or part.instance != instance:
            continue
        current: tuple[int, list[str]] | None = None
        for atom in _records(data, part.start, part.end):
            if atom.kind == SLIDE_PERSIST and atom.end - atom.start >= 4:
                if current:
                    yield current
                current = (struct.unpack_from("<I", data, atom.start)[0], [])
            elif atom.kind in (TEXT_CHARS, TEXT_BYTES) and current:
                current[1].append(_decode(data, atom))
        if current:
            yield current


def _texts_at(data: bytes, place: int | None, kind: int) -> Iterator[str]:
    if place is None:
        return
    record = next(iter(_records(data, place, len(data))), None)
    if record is not None and record.kind == kind:
        yield from _texts(data, record)


def _persist_places(container: olefile.OleFileIO[Any], data: bytes) -> dict[int, int]:
    """Where the newest version of each object lies. Older edits only fill gaps."""
    places: dict[int, int] = {}
    if not container.exists(CURRENT_USER):
        return places
    with container.openstream(CURRENT_USER) as stream:
        head = stream.read(20)
    edit = struct.unpack_from("<I", head, 16)[0] if len(head) >= 20 else 0
    seen: set[int] = set()
    while edit and edit not in seen and len(seen) < EDIT_LIMIT and edit + 28 <= len(data):
        seen.add(edit)
        if struct.unpack_from("<H", data, edit + 2)[0] != USER_EDIT:
            break
        previous, directory = struct.unpack_from("<II", data, edit + 16)
        record = next(iter(_records(data, directory, len(data))), None)
        if record is not None and record.kind == PERSIST_DIRECTORY:
            _read_directory(data, record, places)
        edit = previous
    return places


def _read_directory(data: bytes, record: Record, places: dict[int, int]) -> None:
    place = record.start
    while place + 4 <= record.end:
        head = struct.unpack_from("<I", data, place)[0]
        first, count = head & 0xFFFFF, head >> 20
        place += 4
        for number in range(min(count, (record.end - place) // 4)):
            places.setdefault(first + number, struct.unpack_from("<I", data, place + 4 * number)[0])
        place += 4 * count
