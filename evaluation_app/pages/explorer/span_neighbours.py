"""From one span of a filtered list to the next: what the page of a span shows to those who came from the explorer."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.db import OperationalError
from django.http import QueryDict
from django.urls import reverse

from evaluation_app.models import Span
from evaluation_app.spans.search.search import SpanFilter, neighbours, parse_filter
from ragd.errors import InvalidInput

CAME_FROM = ("from", "spans")
OWN_NAMES = ("from", "tab")


@dataclass(frozen=True, slots=True)
class Nearby:
    """Addresses of the spans beside one in the list, "" at an end: before is newer, after is older. back: the list."""

    before: str
    after: str
    back: str


def span_address(span: Span, span_filter: SpanFilter) -> str:
    """The page of a span of the list, with the filter behind it."""
    address = reverse("evaluation:span", args=[span.trace_id, span.span_id])
    return f"{address}?{urlencode([CAME_FROM, *span_filter.as_params()])}"


def nearby_matches(span: Span, query: QueryDict) -> Nearby | None:
    """None for who came from elsewhere, for a filter that says nothing, and for a search that takes too long."""
    name, origin = CAME_FROM
    if query.get(name) != origin:
        return None
    try:
        span_filter = parse_filter(query, also=OWN_NAMES)
        beside = neighbours(span_filter, span)
    except (InvalidInput, OperationalError):
        return None
    return Nearby(
        before=span_address(beside.newer, span_filter) if beside.newer else "",
        after=span_address(beside.older, span_filter) if beside.older else "",
        back=f"{reverse('evaluation:spans')}?{urlencode(span_filter.as_params())}",
    )
