"""The spans that match a filter, and the traces of queries and ingests. The filter stands whole in the address."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.db import OperationalError
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.domain.expressions import quote
from collections_app.http.lists import read_views
from collections_app.http.page_requests import PageRequest, collection_titles, render_page
from evaluation_app.models import Span
from evaluation_app.telemetry.explorer.span_links import (
    PIPELINE_TYPE,
    STAGE_WORDS,
    SpanTexts,
    draw_histograms,
    read_briefly,
    read_texts,
    span_address,
)
from evaluation_app.telemetry.search.conditions import OFFERED, PREFIX, WRITTEN
from evaluation_app.telemetry.search.filters import ALL, FIELDS
from evaluation_app.telemetry.search.language import complete
from evaluation_app.telemetry.search.search import (  # fmt: skip
    Facets,
    SpanFilter,
    SpanPage,
    environment_counts,
    facet_counts,
    known_attributes,
    parse_filter,
    search_spans,
    slowest_spans,
)
from evaluation_app.telemetry.traces.conversations import show_conversations
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.telemetry import names
from retrieval_app.models import QueryRun
from retrieval_app.runs.views import list_runs

PER_PAGE = 50
CONDITION_FIELDS = ("attr_name", "attr_op", "attr_value", "measure", "score_below", "score_above")
OWN_NAMES = ("cursor", "sort", "from", *CONDITION_FIELDS)
FORM_FIELDS = ("text", "since", "until", "min_ms", "max_ms", "where", "name", "environment")
FACETS_SHOWN = 8
AGES = (
    ("", gettext_lazy("Any time")),
    ("1h", gettext_lazy("Last hour")),
    ("24h", gettext_lazy("24 hours")),
    ("7d", gettext_lazy("7 days")),
    ("30d", gettext_lazy("30 days")),
)
IS_THERE, IS_MISSING = "is not none", "is none"
OPERATOR_WORDS = {
    "=": gettext_lazy("is"),
    "!=": gettext_lazy("is not"),
    ">": ">",
    ">=": "≥",
    "<": "<",
    "<=": "≤",
    "contains": gettext_lazy("contains"),
    "starts with": gettext_lazy("starts with"),
    IS_THERE: gettext_lazy("exists"),
    IS_MISSING: gettext_lazy("is missing"),
}
# what the list on the left offers: field of the address, field of SpanFilter and of Facets, words
FACETS = (
    ("status", "statuses", gettext_lazy("Status")),
    ("type", "types", gettext_lazy("Type")),
    ("collection", "collections", gettext_lazy("Collection")),
    ("model", "models", gettext_lazy("Model")),
    ("api_key", "api_keys", gettext_lazy("API key")),
)
ENVIRONMENT_CHOICES = (*((name, name.capitalize()) for name in telemetry.ENVIRONMENTS), (ALL, gettext_lazy("All")))
ENTRY_TYPES = (PIPELINE_TYPE, telemetry.INGEST)
TOO_SLOW = "The search timed out. Narrow the time range, type or collection, or try again"


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a facet. count: None where it was not counted. href: with it, or without it where it is chosen."""

    value: str
    label: str
    count: int | None
    chosen: bool
    href: str


@dataclass(frozen=True, slots=True)
class Facet:
    name: str
    label: str
    choices: list[Choice]
    rest: list[Choice]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of the filter in words, and the address without it."""

    words: str
    href: str


@needs(READ, EVALUATE)
@require_GET
def activity(request: PageRequest, level: str = "runs") -> HttpResponse:
    """What was done, as query runs, conversations, traces or spans: as far as the reader may see each."""
    shown = {"runs": list_runs, "conversations": show_conversations, "traces": show_traces, "spans": show_spans}
    if level not in shown:
        raise Http404(f"a level of the activity is one of {', '.join(shown)}, not {level}")
    return shown[level](request)


@dataclass(frozen=True, slots=True)
class Row:
    """share: of the longest duration on the page, 0 to 1. href: the span's page, which knows the filter."""

    span: Span
    texts: SpanTexts
    href: str
    share: float


def show_spans(request: PageRequest) -> HttpResponse:
    """The filter of `filters.parse_filter`; cursor=, sort=slowest; attr_name=, attr_op=, attr_value= and measure=,
    score_below=, score_above= add one more condition each, for the form. 422 with the form as it was for a filter that
    says nothing, or a name that is unknown."""
    query = with_condition(request.GET)
    context: dict[str, Any] = {"slowest": query.get("sort") == "slowest", "attribute_names": sorted(WRITTEN)}
    status = 200
    try:
        with read_briefly():
            span_filter = of_production(parse_filter(query, also=OWN_NAMES))
            query = _spelled_out(span_filter, query)
            context |= _found(span_filter, query) | {"attribute_names": known_attributes()}
    except InvalidInput as error:
        context |= {"error": error.message, "error_field": error.field, "is_wrong": True}
        status = 422
    except OperationalError:
        context |= {"error": TOO_SLOW, "error_field": ""}
        status = 503
    context |= {"environment": shown_environment(query), "list_views": read_views(request, "spans")}
    context |= {"given": query, "form": _form_values(query), "kept": _kept_values(query)}
    context["completions"] = complete(str(query.get("where", "")))
    context |= {"conditions": conditions_of(query), "is_filtered": is_narrowed(query)}
    parts = {"spans": "evaluation/parts/spans.html"}
    context |= {"level": "spans"} | _choices()
    return render_page(request, "evaluation/activity.html", context, parts=parts, status=status)


@needs(READ, EVALUATE)
@require_GET
def completions(request: PageRequest) -> HttpResponse:
    """What may stand next in where=, as the options of the expression's field."""
    return render(request, "components/options.html", {"completions": complete(request.GET.get("where", ""))})


def _found(span_filter: SpanFilter, query: QueryDict) -> dict[str, Any]:
    slowest = query.get("sort") == "slowest"
    page = SpanPage(slowest_spans(span_filter, PER_PAGE), None) if slowest else _page(span_filter, query)
    counts, texts = facet_counts(span_filter), read_texts(page.spans)
    longest = max((span.duration_ms for span in page.spans), default=0.0) or 1.0
    histograms = draw_histograms(span_filter, partial(_address, query))
    older = _address(query, cursor=page.next_cursor) if page.next_cursor else ""
    return {
        "wanted": span_filter,
        "page": page,
        "histograms": histograms,
        "rows": [
            Row(span, texts.get(span.pk, SpanTexts()), _href(span, span_filter, slowest), span.duration_ms / longest)
            for span in page.spans
        ],
        "older": older,
        "newest": _address(query) if query.get("cursor") else "",
        "others": _other_environments(span_filter, query, page),
        "counts": counts,
        "facets": facets_of(span_filter, query, counts),
    }


def _other_environments(span_filter: SpanFilter, query: QueryDict, page: SpanPage) -> list[tuple[str, int, str]]:
    """(label, spans, address) of the environments with spans that match, where the filter's own has none."""
    if page.spans or query.get("cursor") or not span_filter.environments or ALL in span_filter.environments:
        return []
    counts = environment_counts(span_filter)
    return [
        (str(label), counts[name], _address(query, environment=name))
        for name, label in ENVIRONMENT_CHOICES
        if counts.get(name)
    ]


def _href(span: Span, span_filter: SpanFilter, slowest: bool) -> str:
    """The list by duration has no next one: its spans lead to their neighbours in the trace."""
    plain = reverse("evaluation:span", args=[span.trace_id, span.span_id])
    return plain if slowest else span_address(span, span_filter)


def _page(span_filter: SpanFilter, query: QueryDict) -> SpanPage:
    return search_spans(span_filter, query.get("cursor") or None, PER_PAGE)


def of_production(span_filter: SpanFilter) -> SpanFilter:
    """The filter of a page: of production, unless it names environments, a trace or a run."""
    states_one = span_filter.environments or span_filter.trace_id or span_filter.run_id
    return span_filter if states_one else replace(span_filter, environments=(telemetry.PRODUCTION,))


def is_narrowed(query: QueryDict) -> bool:
    """Whether the address states more than what the page takes anyway."""
    stated = {(name, value) for name in FIELDS if (value := query.get(name))}
    return bool(stated - {("environment", telemetry.PRODUCTION)})


def shown_environment(query: QueryDict) -> str:
    """The choice that the form shows: a trace or a run is of any environment."""
    is_one = query.get("trace_id") or query.get("run_id")
    return query.get("environment") or (ALL if is_one else telemetry.PRODUCTION)


def with_condition(query: QueryDict) -> QueryDict:
    """The parameters of the address; the fields of the form for one attribute and for a score are put together into
    where."""
    provided = query.copy()
    stated = [provided.pop(field, [""])[-1].strip() for field in CONDITION_FIELDS]
    where = provided.get("where", "").strip()
    if words := " and ".join(filter(None, (_attribute_words(*stated[:3]), _score_words(*stated[3:])))):
        provided["where"] = f"({where}) and {words}" if where else words
    return provided


def _attribute_words(name: str, op: str, value: str) -> str:
    """The condition of an attribute as an expression; "" without a name."""
    words = f"attributes[{quote(name)}] {op or '='}"
    return "" if not name else words if op in (IS_THERE, IS_MISSING) else f"{words} {quote(value)}"


def _score_words(measure: str, below: str, above: str) -> str:
    """The condition of a score as an expression; a bound without a measure is one that the language refuses."""
    name = f"{PREFIX}{measure}" if measure else PREFIX.rstrip(".")
    bounds = [f"{name} {sign} {bound}" for sign, bound in (("<", below), (">", above)) if bound]
    return " and ".join(bounds) or (f"{name} is not none" if measure else "")


def _spelled_out(span_filter: SpanFilter, params: QueryDict) -> QueryDict:
    """The parameters as the filter spells them, so that each value is found again in the lists."""
    query = QueryDict(mutable=True)
    for name, value in span_filter.as_params():
        query.appendlist(name, value)
    for name in ("cursor", "sort"):
        if params.get(name):
            query[name] = str(params[name])
    return query


def _address(params: QueryDict, **changes: str | None) -> str:
    """The page with the same filter, from its newest span on; a value of None leaves a parameter out."""
    query = params.copy()
    for name in ("cursor", *changes):
        query.pop(name, None)
    for name, value in changes.items():
        if value:
            query[name] = value
    selected = [(name, value) for name, values in query.lists() for value in values if value]
    return f"?{urlencode(selected)}" if selected else "?"


def _address_toggled(params: QueryDict, name: str, value: str) -> str:
    """With the value among those of the parameter, or without it where it was there."""
    query = params.copy()
    values = query.getlist(name)
    query.setlist(name, [each for each in values if each != value] if value in values else [*values, value])
    return _address(query)


def facets_of(span_filter: SpanFilter, query: QueryDict, counts: Facets) -> list[Facet]:
    """What can be chosen, what is chosen first, also where nothing has it; then the most frequent."""
    result = []
    for name, field, label in FACETS:
        chosen: tuple[str, ...] = getattr(span_filter, field)
        counted: list[tuple[str, int | None]] = [
            (_facet_value(name, value), count) for value, count in counts.by_field.get(field, ())
        ]
        known = {value for value, _ in counted}
        choices = [
            Choice(value, _facet_label(name, value), count, value in chosen, _address_toggled(query, name, value))
            for value, count in [*((value, None) for value in chosen if value not in known), *counted]
        ]
        choices.sort(key=lambda choice: not choice.chosen)
        if choices:
            result.append(Facet(name, str(label), choices[:FACETS_SHOWN], choices[FACETS_SHOWN:]))
    return result


def _facet_value(name: str, value: str) -> str:
    return value.lower() if name == "status" else value


def _facet_label(name: str, value: str) -> str:
    return str(STAGE_WORDS.get(value, value)) if name == "type" else value


def conditions_of(query: QueryDict) -> list[Condition]:
    """What the address states and the list on the left does not show, each with the address without it."""
    shown = {*(name for name, _, _ in FACETS), "environment"}
    result = []
    for name in FIELDS:
        if name in shown or name == "text":
            continue
        values = [value for value in query.getlist(name) if value]
        result += [Condition(_condition_words(name, value), _address_toggled(query, name, value)) for value in values]
    return result


def _condition_words(name: str, value: str) -> str:
    words = {
        "min_ms": gettext("at least {} ms"),
        "max_ms": gettext("at most {} ms"),
        "name": gettext("name starts with {}"),
        "since": gettext("since {}"),
        "until": gettext("until {}"),
        "where": "{}",
    }
    return words.get(name, name.replace("_", " ") + " {}").format(value)


def _form_values(query: QueryDict) -> dict[str, str]:
    return {name: query.get(name, "") for name in FORM_FIELDS}


def _kept_values(query: QueryDict) -> list[tuple[str, str]]:
    """What the form sends along unseen: the choices made in the list on the left, and the conditions."""
    selected = [name for name in query if name not in (*FORM_FIELDS, "cursor")]
    return [(name, value) for name in selected for value in query.getlist(name) if value]


def _choices() -> dict[str, Any]:
    return {
        "ages": AGES,
        "operators": OPERATOR_WORDS.items(),
        "environments": ENVIRONMENT_CHOICES,
        "measures": OFFERED,
    }


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One query or ingest. subject: its question or its document, else the name of its span."""

    span: Span
    is_ingest: bool
    subject: str
    run: QueryRun | None


def show_traces(request: PageRequest) -> HttpResponse:
    """The newest queries and ingests, each as one trace. show=queries or ingests, status, collection, cursor."""
    shown = request.GET.get("show", "")
    types = {"queries": ENTRY_TYPES[:1], "ingests": ENTRY_TYPES[1:]}.get(shown, ENTRY_TYPES)
    provided = request.GET.copy()
    context: dict[str, Any] = {"given": provided, "shown": shown, "collections": collection_titles(request)}
    context |= {"environments": ENVIRONMENT_CHOICES, "environment": shown_environment(provided)}
    status = 200
    try:
        with read_briefly():
            requested = replace(of_production(parse_filter(provided, also=("show", "cursor"))), types=types)
            page = _page(requested, provided)
            rows = trace_rows(page.spans)
        context |= {
            "rows": rows,
            "page": page,
            "older": _address(provided, cursor=page.next_cursor) if page.next_cursor else "",
            "newest": _address(provided) if provided.get("cursor") else "",
            "others": _other_environments(requested, provided, page),
        }
    except InvalidInput as error:
        context |= {"error": error.message, "is_wrong": True}
        status = 422
    except OperationalError:
        context |= {"error": TOO_SLOW}
        status = 503
    context["is_filtered"] = is_narrowed(provided) or any(provided.get(name) for name in ("show", "cursor"))
    parts = {"traces": "evaluation/parts/traces.html"}
    context["level"] = "traces"
    return render_page(request, "evaluation/activity.html", context, parts=parts, status=status)


def trace_rows(results: Iterable[Span]) -> list[TraceRow]:
    """Two queries, whatever there is: the runs, and what the ingests were of."""
    entries = list(results)
    runs = QueryRun.objects.filter(pk__in=[span.run_id for span in entries if span.run_id]).for_lists().in_bulk()
    ingests = [span.trace_id for span in entries if span.type == telemetry.INGEST]
    named = Span.objects.filter(trace_id__in=ingests, type=telemetry.INGEST).order_by()
    documents = dict(named.values_list("pk", f"attributes__{names.DOCUMENT_ID}"))
    return [_trace_row(span, runs.get(span.run_id) if span.run_id else None, documents) for span in entries]


def _trace_row(span: Span, run: QueryRun | None, documents: dict[int, Any]) -> TraceRow:
    is_ingest = span.type == telemetry.INGEST
    subject = documents.get(span.pk) if is_ingest else (run.query if run else "")
    return TraceRow(span, is_ingest, str(subject or span.name), run)
