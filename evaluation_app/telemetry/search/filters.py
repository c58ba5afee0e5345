"""What spans are wanted: SpanFilter, read from an address or a request, and turned into conditions of a query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from uuid import UUID

from django.db.models import Q

from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.domain.formats import parse_moment
from evaluation_app.telemetry.search.language import parse_expression, seen_types, words_match
from evaluation_app.telemetry.store.exporter import (
    OI_KINDS,
    OTEL_KINDS,
    OWN_TYPES,
    TABLE_TYPES,
    TYPES_BY_PREFIX,
    split_words,
)
from ragd.errors import InvalidInput
from ragd.telemetry import ENVIRONMENTS

STATUSES = ("ok", "error", "unset")
FIELDS = (
    "type", "kind", "collection", "model", "api_key", "status", "service", "name", "min_ms", "max_ms", "since", "until",
    "text", "where", "trace_id", "run_id", "environment",
)  # fmt: skip
ALL = "all"  # environments: as if none was given, where a page would take production
VALUES_MAX = 50
TEXT_MAX = 2000


@dataclass(frozen=True, slots=True)
class SpanFilter:
    """Which spans are wanted. Every field narrows; within one tuple any value will do; the default wants all.

    types: of the span tables or own names. kinds: of OpenInference or OpenTelemetry. statuses: ok, error, unset.
    name: what the span's name begins with. min_ms, max_ms: bounds of the duration, both included. since is included,
    until is not. text: words that all must occur, see `words_match`. where: an expression of the filter language.
    environments: production, evaluation, playground, interface, all. since_text, until_text: as they were given
    ("24h"), for addresses. within: what the caller may see.
    """

    types: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    name: str = ""
    min_ms: float | None = None
    max_ms: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    since_text: str = ""
    until_text: str = ""
    text: str = ""
    where: str = ""
    trace_id: str = ""
    run_id: UUID | None = None
    within: CollectionScope = EVERYTHING

    def as_params(self) -> list[tuple[str, str]]:
        """(name, value) of an address that gives this filter again; [] for the default. `within` is left out."""
        several = {
            "type": self.types, "kind": self.kinds, "collection": self.collections, "model": self.models,
            "api_key": self.api_keys, "status": self.statuses, "service": self.services,
            "environment": self.environments,
        }  # fmt: skip
        pairs = [(name, value) for name, values in several.items() for value in values]
        since = self.since_text or (self.since.isoformat() if self.since else "")
        until = self.until_text or (self.until.isoformat() if self.until else "")
        single = {
            "name": self.name, "min_ms": _plain(self.min_ms), "max_ms": _plain(self.max_ms), "since": since,
            "until": until, "text": self.text, "where": self.where, "trace_id": self.trace_id,
            "run_id": str(self.run_id or ""),
        }  # fmt: skip
        return pairs + [(name, value) for name, value in single.items() if value]

    def without(self, *names: str) -> SpanFilter:
        """The same filter with these fields (of the dataclass) at their defaults."""
        default = SpanFilter()
        return replace(self, **{name: getattr(default, name) for name in names})

    def only_of(self, scope: CollectionScope) -> SpanFilter:
        """The same filter for a caller who may see these collections only."""
        return replace(self, within=scope)


def parse_filter(value: Mapping[str, str | Sequence[str]], *, also: Collection[str] = ()) -> SpanFilter:
    """The filter that an address or request states: name -> value, or values. A QueryDict will do. Empty values count
    as not given.

    type, kind, collection, model, api_key, status, service and environment may be given many times. since and until are
    ISO 8601 (UTC unless stated) or an age: `30m`, `24h`, `7d`. also: names that are the caller's own.
    Raises InvalidInput, naming the field, for an unknown name (and lists the known ones) or an unacceptable value.
    """
    values = {name: result for name in value if name not in also and (result := _values(value, name))}
    for name in values:
        if name not in FIELDS:
            raise InvalidInput(f"spans have no filter {name!r}; there are {', '.join(FIELDS)}", field=name)
    one = {name: result[-1] for name, result in values.items()}
    where = one.get("where", "")
    if where:
        parse_expression(where)
    return SpanFilter(
        types=_types(values.get("type", [])),
        kinds=_known("kind", [kind.upper() for kind in values.get("kind", [])], (*OI_KINDS, *OTEL_KINDS)),
        collections=tuple(values.get("collection", [])),
        models=tuple(values.get("model", [])),
        api_keys=tuple(values.get("api_key", [])),
        statuses=_known("status", [status.lower() for status in values.get("status", [])], STATUSES),
        services=tuple(values.get("service", [])),
        environments=_known("environment", values.get("environment", []), (*ENVIRONMENTS, ALL)),
        name=one.get("name", ""),
        min_ms=_number("min_ms", one.get("min_ms")),
        max_ms=_number("max_ms", one.get("max_ms")),
        since=parse_moment("since", one.get("since", "")),
        until=parse_moment("until", one.get("until", "")),
        since_text=one.get("since", ""),
        until_text=one.get("until", ""),
        text=_text(one.get("text", "")),
        where=where,
        trace_id=one.get("trace_id", "").lower(),
        run_id=_uuid(one.get("run_id", "")),
    )


def filter_condition(span_filter: SpanFilter) -> Q:
    """The whole filter but its times as a condition on Span. Raises InvalidInput for a `where` that does not parse."""
    condition = Q()
    columns = {
        "type": span_filter.types, "collection": span_filter.collections,
        "model": span_filter.models, "api_key": span_filter.api_keys,
        "status_code": [status.upper() for status in span_filter.statuses], "service": span_filter.services,
        "environment": () if ALL in span_filter.environments else span_filter.environments,
    }  # fmt: skip
    for column, values in columns.items():
        if values:
            condition &= Q(**{column: values[0]}) if len(values) == 1 else Q(**{f"{column}__in": list(values)})
    condition &= span_filter.within.by_name("collection", "started_at")
    if span_filter.kinds:
        condition &= kind_is(span_filter.kinds)
    if span_filter.name:
        condition &= Q(name__startswith=span_filter.name)
    if span_filter.min_ms is not None:
        condition &= Q(duration_ms__gte=span_filter.min_ms)
    if span_filter.max_ms is not None:
        condition &= Q(duration_ms__lte=span_filter.max_ms)
    if span_filter.trace_id:
        condition &= Q(trace_id=span_filter.trace_id)
    if span_filter.run_id:
        condition &= Q(run_id=span_filter.run_id)
    if span_filter.text:
        condition &= Q(words_match(span_filter.text))
    return condition & parse_expression(span_filter.where) if span_filter.where else condition


def kind_is(kinds: Iterable[str]) -> Q:
    kinds = list(kinds)
    of_inference, of_telemetry = [k for k in kinds if k in OI_KINDS], [k for k in kinds if k in OTEL_KINDS]
    condition = Q(oi_kind__in=of_inference) if of_inference else Q()
    return condition | Q(kind__in=of_telemetry) if of_telemetry else condition


def _values(values: Mapping[str, str | Sequence[str]], name: str) -> list[str]:
    several = values.getlist(name) if hasattr(values, "getlist") else values[name]
    listed = [several] if isinstance(several, str) else list(several)
    result = [value.replace("\x00", "").strip() for value in listed if value]
    if len(result) > VALUES_MAX or any(len(value) > TEXT_MAX for value in result):
        raise InvalidInput(f"{name} takes at most {VALUES_MAX} values of {TEXT_MAX} characters", field=name)
    return [value for value in dict.fromkeys(result) if value]


def _types(values: Iterable[str]) -> tuple[str, ...]:
    """A type, or the word with which its spans' names begin ("rag.retrieve", "chat")."""
    result = [TYPES_BY_PREFIX.get(each, each) for each in values]
    known = (*TABLE_TYPES, *OWN_TYPES)
    if set(result) - set(known):
        known = tuple(dict.fromkeys((*known, *seen_types())))
    return _known("type", result, known)


def _known(field: str, results: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(results))
    for value in values:
        if value not in known:
            close = get_close_matches(value, known, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise InvalidInput(f"there is no {field} {value!r}; there are {', '.join(known)}{meant}", field=field)
    return values


def _number(field: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise InvalidInput(f"{field} must be a number of milliseconds from 0, not {text!r}", field=field)
    return value


def _text(text: str) -> str:
    if text and not split_words(text):
        raise InvalidInput(f"text must hold a letter or a digit to look for, not only {text!r}", field="text")
    return text


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidInput(f"run_id must be a UUID, not {text!r}", field="run_id") from None


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if value < 1e6 else str(value)
