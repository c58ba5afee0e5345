"""XML as events from expat. Entities are refused before they can expand or reach for another file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from xml.parsers import expat

from ragd.readers.types import ParseError

PIECE_BYTES = 256 * 1024
SEPARATOR = " "
RELATIONSHIPS = "/relationships"

Attributes = dict[str, str]


class EntitiesError(ParseError):
    """The document declares entities."""

    def __init__(self) -> None:
        super().__init__(
            "bomb",
            "The XML declares entities in a DTD, which could expand without limit or read other files, so it is"
            " refused. Remove the DTD and upload it again.",
        )


def _ignore(_: str) -> None:
    return


def stream_xml(
    data: bytes,
    start: Callable[[str, Attributes], None],
    end: Callable[[str], None] = _ignore,
    text: Callable[[str], None] = _ignore,
    *,
    encoding: str | None = None,
    doctype_allowed: bool = False,
) -> None:
    """Call start(name, attributes), end(name) and text(piece) through a document.

    Names are local names. Attributes too, but those of the relationships namespace keep the prefix "r:" so that r:id
    and id stay apart. Raises ParseError "bomb" for entity declarations (any DTD unless doctype_allowed), "broken" when
    the XML is not well formed.
    """
    parser = expat.ParserCreate(encoding, SEPARATOR)
    parser.buffer_text = True

    @cache
    def local(name: str) -> str:
        return name.rpartition(SEPARATOR)[2]

    @cache
    def key(name: str) -> str:
        uri, _, last = name.rpartition(SEPARATOR)
        return f"r:{last}" if uri.endswith(RELATIONSHIPS) else last

    def on_start(name: str, attributes: Attributes) -> None:
        start(local(name), {key(each): value for each, value in attributes.items()})

    def on_end(name: str) -> None:
        end(local(name))

    def refuse(*_: Any) -> None:
        raise EntitiesError

    parser.StartElementHandler = on_start
    parser.EndElementHandler = on_end
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = refuse
    if not doctype_allowed:
        parser.StartDoctypeDeclHandler = refuse
    try:
        for index in range(0, len(data), PIECE_BYTES):
            parser.Parse(data[index : index + PIECE_BYTES], False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise ParseError("broken", f"The XML inside is not well formed ({error}). Save the document again.") from error
    except (LookupError, ValueError) as error:
        raise ParseError("broken", f"The XML inside names an unknown encoding ({error}).") from error


def elements(data: bytes, *names: str, doctype_allowed: bool = False) -> list[tuple[str, Attributes]]:
    """(name, attributes) of the elements of these names, in the order in which they open. Raises as `stream_xml`."""
    result: list[tuple[str, Attributes]] = []

    def start(name: str, attributes: Attributes) -> None:
        if name in names:
            result.append((name, attributes))

    stream_xml(data, start, doctype_allowed=doctype_allowed)
    return result


def collect_text(data: bytes, requested: frozenset[str], breaks: frozenset[str] = frozenset()) -> list[str]:
    """The text of the elements called `requested`, joined within each element of `breaks` (or each by itself)."""
    lines: list[str] = []
    pieces: list[str] = []
    inside = 0

    def flush() -> None:
        line = "".join(pieces).strip()
        pieces.clear()
        if line:
            lines.append(line)

    def start(name: str, _: Attributes) -> None:
        nonlocal inside
        inside += name in requested

    def end(name: str) -> None:
        nonlocal inside
        inside -= name in requested
        if name in breaks or (not breaks and name in requested):
            flush()

    def text(piece: str) -> None:
        if inside:
            pieces.append(piece)

    stream_xml(data, start, end, text)
    flush()
    return lines
