"""Where in its document something stands, in words and as cells of a spreadsheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collections_app.domain.overlays import ADD, EDIT, MARK
from ragd.text.tables import address
from ragd.types import Candidate


@dataclass(frozen=True, slots=True)
class Place:
    """label: such as "page 3", "sheet Prices, row 14"; None where nothing is known. cells: such as "Prices!A14:F14".
    page: the label of its page, "page 3"."""

    label: str | None = None
    cells: str | None = None
    page: str | None = None


def place_of(source: Candidate, start: int | None = None, end: int | None = None) -> Place:
    """Of a chunk, or of content[start:end]. Of a chunk that a person wrote, no cells: they are those of other text."""
    known = source.attributes
    label = page = _page_at(source, source.start + (start or 0))
    found = None
    if known.get("cells") and not is_written(source.attributes):
        first = source.start + (start or 0)
        last = source.end if end is None else source.start + end
        found = address([tuple(entry) for entry in known["cells"]], source.content, source.start, first, last)
    if found is not None:
        cells, sheet, (top, bottom) = found
        rows = f"row {top}" if top == bottom else f"rows {top} to {bottom}"
        return Place(f"sheet {sheet}, {rows}" if sheet else rows, cells, page)
    if speaker := known.get("speaker"):
        label = f"{label}, {speaker}" if label else f"speaker {speaker}"
    return Place(label, page=page)


def _page_at(source: Candidate, position: int) -> str | None:
    """The page that holds a character of the document; of a chunk that a person wrote, the page where it begins."""
    begun = [] if is_written(source.attributes) else source.attributes.get("pages", ())
    return next((str(label) for at, label in reversed(begun) if at <= position), page_of(source.attributes))


def path_of(context: str) -> str:
    """The title and heading path of a chunk's context, without the header of a table that stands below them."""
    path = context.partition("\n")[0]
    return "" if path.startswith("|") else path


def page_of(attributes: Mapping[str, Any]) -> str | None:
    label = attributes.get("page_label")
    return None if label is None else str(label)


def is_written(attributes: Mapping[str, Any]) -> bool:
    """Whether a person wrote the chunk's content, so that the document does not have it at the chunk's place."""
    return attributes.get(MARK) in (EDIT, ADD)
