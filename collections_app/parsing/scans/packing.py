"""Recognized pages: packed for their way between processes, and what is said of how surely they were read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from collections_app.parsing.assembly import Assembly
from collections_app.parsing.layout import PackedWords, pack_words
from collections_app.parsing.types import RecognizedPage

UNSURE = 0.6  # a word of less confidence is marked
POOR = 0.85  # a page of less on average is warned of


def pack_page(page: RecognizedPage) -> tuple[dict[str, Any], bytes, bytes]:
    """(head, text, words) of a page, as it is sent."""
    words = pack_words(page.words, page.width, page.height)
    return {"page": page.page, "width": page.width, "height": page.height}, page.text.encode(), words.data


def unpack_page(head: Mapping[str, Any], text: bytes, words: bytes) -> RecognizedPage:
    size = float(head["width"]), float(head["height"])
    return RecognizedPage(int(head["page"]), *size, text.decode(), PackedWords(words, *size))


def pack_recognized(pages: Mapping[int, RecognizedPage]) -> bytes:
    """Pages on their way to the reader of their document."""
    packed = [pack_page(page) for page in pages.values()]
    heads = [head | {"sizes": [len(text), len(words)]} for head, text, words in packed]
    body = b"".join(text + words for _, text, words in packed)
    return json.dumps(heads).encode() + b"\n" + body


def unpack_recognized(data: bytes) -> dict[int, RecognizedPage]:
    first, _, body = data.partition(b"\n")
    pages: dict[int, RecognizedPage] = {}
    position = 0
    for head in json.loads(first):
        middle = position + head["sizes"][0]
        end = middle + head["sizes"][1]
        pages[head["page"]] = unpack_page(head, body[position:middle], body[middle:end])
        position = end
    return pages


def mean_confidence(pages: Mapping[int, RecognizedPage]) -> float | None:
    """Over all words; None where there are none."""
    known = [word.confidence for page in pages.values() for word in page.words if word.confidence is not None]
    return sum(known) / len(known) if known else None


def describe(pages: Mapping[int, RecognizedPage], assembly: Assembly) -> None:
    """Say in the document's metadata that pages were recognized and how surely, and warn where it is poor."""
    mean = mean_confidence(pages)
    if mean is None:
        return
    unsure = sum(word.confidence is not None and word.confidence < UNSURE for p in pages.values() for word in p.words)
    assembly.describe(recognized_pages=sorted(pages), confidence=round(mean, 3), unsure_words=unsure)
    poor = [number for number, page in sorted(pages.items()) if (mean_confidence({0: page}) or 1) < POOR]
    if poor:
        shown = ", ".join(map(str, poor[:20])) + (f" and {len(poor) - 20} more" if len(poor) > 20 else "")
        assembly.warn(
            f"Text recognition is unsure of {'page' if len(poor) == 1 else 'pages'} {shown}: a mean confidence below"
            f" {POOR:.0%}. Compare the text with the page, or upload a sharper scan."
        )
