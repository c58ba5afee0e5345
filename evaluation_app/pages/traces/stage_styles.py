"""Which stage of a query or an ingest a span belongs to: the colour and pattern of its bar, and the words beside it."""

from __future__ import annotations

from evaluation_app.models import Span
from ragd.telemetry import names

# the first of these that a span's name begins with decides the colour and pattern of its bar; the name stands beside it
STAGES = (
    (names.QUERY, "embed"),
    (names.EMBEDDINGS, "embed"),
    (names.RETRIEVE, "retrieve"),
    (names.VECTOR, "retrieve"),
    (names.LEXICAL, "retrieve"),
    (names.FUSE, "rank"),
    (names.RERANK, "rank"),
    (names.COMPRESS, "rank"),
    (names.CHAT, "generate"),
    ("text_completion", "generate"),
    (names.EVALUATE, "judge"),
    (names.FETCH, "read"),
    (names.UNPACK, "read"),
    (names.PARSE, "read"),
    (names.CHUNK, "read"),
    (names.FILL, "store"),
    (names.STORE, "store"),
)
STAGE_WORDS = {
    "pipeline": "Root and parent spans",
    "embed": "Embedding",
    "retrieve": "Retrieval",
    "rank": "Ranking",
    "generate": "Generation",
    "judge": "Evaluation",
    "read": "Fetching, parsing, chunking",
    "store": "Storage",
    "failed": "Failed",
}


def stage_of(span: Span, *, failed_below: bool = False) -> str:
    """A key of STAGE_WORDS. A span that only passed on what failed below it keeps its own stage."""
    if span.has_failed and not failed_below:
        return "failed"
    return next((stage for begin, stage in STAGES if span.name.startswith(begin)), "pipeline")
