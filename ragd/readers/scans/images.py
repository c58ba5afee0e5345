"""Images as documents: a page for each frame, with the text that recognition found on it."""

from __future__ import annotations

from ragd.readers.assembly import Assembly
from ragd.readers.scans.pictures import open_pages
from ragd.readers.scans.words import describe
from ragd.readers.types import ParseError, Source


def read(source: Source, assembly: Assembly) -> None:
    """Raises ParseError: "scanned" with all pages when none was recognized, "empty", "broken", "bomb"."""
    with open_pages(source.data, source.media_type) as pages:
        count = pages.count
    if not source.recognized:
        raise ParseError("scanned", "The file is an image, which holds no text itself.", pages=range(1, count + 1))
    assembly.describe(pages=count)
    for number in range(1, count + 1):
        page = source.recognized.get(number)
        if page is not None:
            assembly.add(page.text, f"page {number}", page=page.layout)
    describe(source.recognized, assembly)
    if left := [number for number in range(1, count + 1) if number not in source.recognized]:
        shown = f"{len(left)} of {count} pages"
        assembly.leave_out(f"{shown} were not read by text recognition (OCR), the first of them page {left[0]}.")
