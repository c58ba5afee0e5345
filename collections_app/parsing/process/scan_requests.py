"""Pages that the child process recognizes or draws when it is asked to."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from collections_app.parsing.process import process
from collections_app.parsing.scans.engines import find_engine
from collections_app.parsing.scans.packing import pack_page
from collections_app.parsing.scans.pictures import encode, open_pages
from collections_app.parsing.scans.words import compose_page
from collections_app.parsing.sniffing import sniff
from collections_app.parsing.types import ParseError


def send_pages(connection: Connection, data: bytes, request: Mapping[str, Any]) -> None:
    """A message for each page of the request."""
    engine = find_engine(request["engine"])
    if engine is None:
        raise ParseError("scanned", "Text recognition is not installed.", pages=request["recognize"])
    with open_pages(data, sniff(data, request["name"])) as pages:
        for number in request["recognize"]:
            try:
                pixels = pages.draw(number, engine.long_side)
                lines = engine.read(pixels)
                page = compose_page(number, pages.size(number), (pixels.shape[1], pixels.shape[0]), lines)
            except MemoryError:
                raise
            except Exception as error:  # of an engine, or of one damaged page among others
                process.send(connection, {"page": number, "failed": f"{type(error).__name__}: {error}"[:200]})
                continue
            process.send(connection, *pack_page(page))


def send_drawing(connection: Connection, data: bytes, request: Mapping[str, Any]) -> None:
    """The page of the request as a picture."""
    with open_pages(data, sniff(data, request["name"])) as pages:
        if not 1 <= request["draw"] <= pages.count:
            raise ParseError("empty", f"The document has {pages.count} pages, and no page {request['draw']}.")
        width, height = pages.size(request["draw"])
        media_type, picture = encode(pages.draw(request["draw"], request["long_side"]))
        head = {"media_type": media_type, "width": width, "height": height, "count": pages.count}
    process.send(connection, head, picture)
