"""Links into the span explorer, a span's neighbours there, words for types of spans, the bound of statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.db import OperationalError, connection, transaction
from django.http import QueryDict
from django.urls import reverse
from django.utils.translation import gettext_lazy

from evaluation_app.models import Span
from evaluation_app.spans.search.search import SpanFilter, neighbours, parse_filter
from ragd.errors import InvalidInput
from ragd.telemetry import names

Condition = str | float | datetime | Sequence[str] | None
READ_BRIEFLY = "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '8s'"
CAME_FROM = ("from", "spans")
OWN_NAMES = ("from", "tab")
PIPELINE_TYPE = "aitf.rag.pipeline"
# the stages in the order of the work, and their words; others follow by name
STAGE_WORDS = {
    PIPELINE_TYPE: gettext_lazy("Pipeline (root)"),
    "aitf.rag.query": gettext_lazy("Question"),
    "gen_ai.embeddings": gettext_lazy("Embeddings"),
    "aitf.rag.retrieve": gettext_lazy("Retrieval"),
    names.LEXICAL: gettext_lazy("Keyword search"),
    names.VECTOR: gettext_lazy("Vector search"),
    names.HOP: gettext_lazy("Hop"),
    names.FUSE: gettext_lazy("Fusion"),
    "aitf.rag.rerank": gettext_lazy("Reranking"),
    names.COMPRESS: gettext_lazy("Compression"),
    "gen_ai.inference": gettext_lazy("Chat"),
    "aitf.rag.evaluate": gettext_lazy("Evaluation"),
    names.INGEST: gettext_lazy("Ingest"),
    names.FETCH: gettext_lazy("Fetch"),
    names.UNPACK: gettext_lazy("Extract"),
    names.PARSE: gettext_lazy("Parse"),
    names.CHUNK: gettext_lazy("Chunk"),
    names.STORE: gettext_lazy("Store"),
    names.FILL: gettext_lazy("Build index version"),
    names.BUILD_INDEX: gettext_lazy("Build index"),
    names.PROBE: gettext_lazy("Recall probe"),
}


def explorer_address(**conditions: Condition) -> str:
    """The explorer with these conditions, named as `filters.parse_filter` reads them.

    A sequence stands for any of its values; None and "" leave a condition out.
    """
    pairs = [(name, text) for name, value in conditions.items() for text in _texts(value) if text]
    return f"{reverse('evaluation:spans')}?{urlencode(pairs)}" if pairs else reverse("evaluation:spans")


def step_conditions(begin: datetime, step: timedelta, until: datetime) -> dict[str, Condition]:
    """since and until of one step of a period; the last one ends with the period."""
    return {"since": begin, "until": min(begin + step, until)}


def _texts(value: Condition) -> list[str]:
    if value is None:
        return []
    if isinstance(value, datetime):
        return [value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")]
    if isinstance(value, float | int):
        return [f"{value:g}"]
    return [value] if isinstance(value, str) else list(value)


@contextmanager
def read_briefly() -> Iterator[None]:
    """Statements inside wait for a lock 2 s at most and take 8 s at most; else django.db.OperationalError."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(READ_BRIEFLY)
        yield


@dataclass(frozen=True, slots=True)
class NeighbourLinks:
    """Addresses of the spans beside one in the list, "" at an end: before is newer, after is older. back: the list."""

    before: str
    after: str
    back: str


def span_address(span: Span, span_filter: SpanFilter) -> str:
    """The page of a span of the list, with the filter behind it."""
    address = reverse("evaluation:span", args=[span.trace_id, span.span_id])
    return f"{address}?{urlencode([CAME_FROM, *span_filter.as_params()])}"


def nearby_matches(span: Span, query: QueryDict) -> NeighbourLinks | None:
    """None for who came from elsewhere, for a filter that says nothing, and for a search that takes too long."""
    name, origin = CAME_FROM
    if query.get(name) != origin:
        return None
    try:
        span_filter = parse_filter(query, also=OWN_NAMES)
        beside = neighbours(span_filter, span)
    except (InvalidInput, OperationalError):
        return None
    return NeighbourLinks(
        before=span_address(beside.newer, span_filter) if beside.newer else "",
        after=span_address(beside.older, span_filter) if beside.older else "",
        back=f"{reverse('evaluation:spans')}?{urlencode(span_filter.as_params())}",
    )
