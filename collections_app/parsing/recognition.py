"""Text recognition page by page, and pages drawn for a viewer, both in the parser's child process."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import IO, Any

from collections_app.parsing.process import process
from collections_app.parsing.scans.packing import unpack_page
from collections_app.parsing.types import ParseError, ParseLimits, RecognizedPage

START_S = 30  # for loading the models
ENGINE_MB = 1536  # over what reading a document may take
DRAW_PIXELS_MAX = 3000


@dataclass(frozen=True, slots=True)
class FailedPage:
    """A page that could not be recognized, and why."""

    page: int
    reason: str


@dataclass(frozen=True, slots=True)
class DrawnPage:
    """A page as a picture. width, height: in points. count: pages of the document."""

    data: bytes
    media_type: str
    width: float
    height: float
    count: int


def recognize(
    data: IO[bytes], name: str, pages: Sequence[int], *, engine: str, page_timeout_s: float, limits: ParseLimits
) -> Generator[RecognizedPage | FailedPage, None, None]:
    """Each of the pages, by number from 1, as it is recognized. engine: of `engines.CHOICES`.

    A page on which the child ends, by its time or its memory or otherwise, is a FailedPage, and the rest goes on in
    another child. To leave the loop ends the child.
    """
    left = list(pages)
    while left:
        started = False
        wall_s = START_S + page_timeout_s * len(left)
        hard = replace(limits, timeout_s=4 * wall_s, memory_mb=limits.memory_mb + ENGINE_MB)
        request = {"name": name, "recognize": left, "engine": engine}
        try:
            wait_s = START_S + page_timeout_s
            with process.submit(data, request, hard, wall_s=wall_s, fresh=True, wait_s=wait_s) as connection:
                while left:
                    page = _receive_page(process.receive(connection, hard), connection)
                    started = True
                    left.remove(page.page)
                    yield page
        except (ParseError, process.DisconnectedError) as error:
            if not left:
                return
            reason = "the child process ended" if isinstance(error, process.DisconnectedError) else error.kind
            if isinstance(error, ParseError) and error.kind == "broken" and not started:
                raise
            yield FailedPage(left.pop(0), reason)


def draw_page(data: IO[bytes], name: str, page: int, *, long_side: int, limits: ParseLimits) -> DrawnPage:
    """A page as a picture whose longer side has at most so many pixels. Raises ParseError, "empty" for no such page."""
    request = {"name": name, "draw": page, "long_side": min(long_side, DRAW_PIXELS_MAX)}
    for attempt in range(process.START_ATTEMPTS):
        try:
            with process.submit(data, request, limits, wall_s=limits.timeout_s, fresh=attempt > 0) as connection:
                head = process.receive(connection, limits)
                picture = b"".join(process.receive_pieces(connection, head["sizes"][0]))
                return DrawnPage(picture, head["media_type"], head["width"], head["height"], head["count"])
        except process.DisconnectedError:
            continue
    raise process.ended_twice()


def _receive_page(head: dict[str, Any], connection: Connection) -> RecognizedPage | FailedPage:
    if "failed" in head:
        return FailedPage(head["page"], head["failed"])
    text, words = (b"".join(process.receive_pieces(connection, size)) for size in head["sizes"])
    return unpack_page(head, text, words)
