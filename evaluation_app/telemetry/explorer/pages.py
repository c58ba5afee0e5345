"""The spans that match a filter, and the traces of queries and ingests. The filter stands whole in the address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.db import OperationalError
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.domain.expressions import quote
from collections_app.http.lists import Entry, Filter, ListKind, ListPage, bounds, list_page, period
from collections_app.http.page_requests import PageRequest, collection_titles, render_page
from evaluation_app.models import Span
from evaluation_app.telemetry.explorer import span_links
from evaluation_app.telemetry.search import search
from evaluation_app.telemetry.search.language import OFFERED, PREFIX, WRITTEN, complete
from evaluation_app.telemetry.traces.views import show_conversations
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.telemetry import names
from retrieval_app.models import QueryRun
from retrieval_app.runs.views import list_runs

PER_PAGE = 50
CONDITION_FIELDS = ("attr_name", "attr_op", "attr_value", "measure", "score_below", "score_above")
OWN_NAMES = ("cursor", "sort", "from", *CONDITION_FIELDS)
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
# the chips with counts: field of the address, field of SpanFilter and of Facets, words
FACETS = (
    ("status", "statuses", gettext_lazy("Status")),
    ("type", "types", gettext_lazy("Type")),
    ("collection", "collections", gettext_lazy("Collection")),
    ("model", "models", gettext_lazy("Model")),
    ("api_key", "api_keys", gettext_lazy("API key")),
)
RARE = {
    "kind": gettext_lazy("Kind"), "service": gettext_lazy("Service"), "trace_id": gettext_lazy("Trace"),
    "run_id": gettext_lazy("Query run"), "type": gettext_lazy("Type"), "model": gettext_lazy("Model"),
    "api_key": gettext_lazy("API key"), "name": gettext_lazy("Name"), "where": gettext_lazy("Expression"),
}  # fmt: skip
ENVIRONMENT_CHOICES = (
    *((name, name.capitalize()) for name in telemetry.ENVIRONMENTS),
    (search.ALL, gettext_lazy("All")),
)
ENTRY_TYPES = (span_links.PIPELINE_TYPE, telemetry.INGEST)
SPANS = ListKind("spans", "", gettext_lazy("Question, answer or error"), views="spans", words="text", is_live=False)
TRACES = ListKind("traces", "", gettext_lazy("Question or error"), words="text", is_live=False)
TOO_SLOW = "The search timed out. Narrow the time range, type or collection, or try again"


@needs(READ, EVALUATE, methods="GET")
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
    texts: span_links.SpanTexts
    href: str
    share: float


def show_spans(request: PageRequest) -> HttpResponse:
    """The filter of `parse_filter`; cursor=, sort=slowest; attr_name=, attr_op=, attr_value= and measure=,
    score_below=, score_above= add one more condition each, for the form. 422 with the form as it was for a filter that
    says nothing, or a name that is unknown."""
    query = with_condition(request.GET)
    context: dict[str, Any] = {"slowest": query.get("sort") == "slowest", "level": "spans"}
    found: tuple[search.SpanFilter, search.SpanPage] | None = None
    facets, attributes, status = search.Facets({}, 0, True), sorted(WRITTEN), 200
    try:
        with span_links.read_briefly():
            span_filter = of_production(search.parse_filter(query, also=OWN_NAMES))
            query = _spelled_out(span_filter, query)
            slowest = search.SpanPage(search.slowest_spans(span_filter, PER_PAGE), None) if context["slowest"] else None
            page = slowest or _page(span_filter, query)
            found, facets, attributes = (span_filter, page), search.facet_counts(span_filter), search.known_attributes()
            context |= {"histograms": span_links.draw_histograms(span_filter, partial(_address, query)), "spans": page}
            context["other_environments"] = _other_environments(span_filter, query, page)
    except InvalidInput as error:
        context |= {"error": error.message}
        status = 422
    except OperationalError:
        context |= {"error": TOO_SLOW}
        status = 503
    listing = replace(list_page(request, SPANS, None, span_filters(query, facets, attributes), query=query), misfits=())
    if found:
        listing = _with_rows(listing, span_rows(*found, slowest=context["slowest"]), query, found[1])
    context |= listing.context() | {"given": query, "counts": facets}
    parts = {"spans": "evaluation/parts/spans.html"}
    return render_page(request, "evaluation/activity.html", context, parts=parts, status=status)


def span_filters(query: QueryDict, facets: search.Facets, attributes: Sequence[str]) -> list[Filter]:
    """The chips with counts: what is set first, also where nothing has it; then the most frequent."""
    mono = {"class": "input mono", "spellcheck": "false"}
    completed = mono | {
        "hx-get": reverse("evaluation:span-completions"), "hx-trigger": "input changed delay:150ms",
        "hx-target": "#id_where-options", "hx-swap": "innerHTML", "hx-push-url": "false",
        "placeholder": "kind == 'RETRIEVER' and latency_ms > 500",
    }  # fmt: skip
    decimal = {"inputmode": "decimal"}
    counted = [
        Filter(name, label, _facet_choices(name, query, facets.by_field.get(field, ())), many=True, free=True)
        for name, field, label in FACETS
    ]
    return [
        *counted[:2],
        Filter("where", RARE["where"], entries=(
            Entry("where", gettext("Expression"), attrs=completed, options=complete(str(query.get("where", "")))),
        )),
        period(),
        bounds("ms", gettext("Latency"), "ms"),
        Filter("sort", gettext("Order"), [("", gettext("Newest")), ("slowest", gettext("Slowest"))]),
        *counted[2:],
        environment_filter(query),
        Filter("attr_name", gettext("Attribute"), entries=(
            Entry("attr_name", gettext("Attribute"), attrs=mono | {"placeholder": "gen_ai.request.model"},
                  options=attributes),
            Entry("attr_op", gettext("Operator"), choices=tuple(OPERATOR_WORDS.items())),
            Entry("attr_value", gettext("Value")),
        )),
        Filter("measure", gettext("Score"), entries=(
            Entry("measure", gettext("Metric"), attrs=mono | {"placeholder": "correctness"}, options=OFFERED),
            Entry("score_below", gettext("Score below"), attrs=decimal),
            Entry("score_above", gettext("Score above"), attrs=decimal),
        )),
        Filter("name", RARE["name"], entries=(
            Entry("name", gettext("Name starts with"), attrs=mono | {"placeholder": "rag.retrieve"}),
        )),
        *rare_filters(query, *(name for name, _, _ in FACETS), "where", "name"),
    ]  # fmt: skip


def _facet_choices(name: str, query: QueryDict, counted: Sequence[tuple[str, int]]) -> list[tuple[str, str, Any]]:
    values = query.getlist(name)
    known = [(value.lower() if name == "status" else value, count) for value, count in counted]
    alone = [(value, None) for value in values if value and value not in dict(known)]
    rows = sorted([*alone, *known], key=lambda row: row[0] not in values)
    return [
        (value, str(span_links.STAGE_WORDS.get(value, value)) if name == "type" else value, count)
        for value, count in rows
    ]


@needs(READ, EVALUATE, methods="GET")
def completions(request: PageRequest) -> HttpResponse:
    """What may stand next in where=, as the options of the expression's field."""
    return render(request, "components/options.html", {"completions": complete(request.GET.get("where", ""))})


def span_rows(span_filter: search.SpanFilter, page: search.SpanPage, *, slowest: bool) -> list[Row]:
    texts = span_links.read_texts(page.spans)
    longest = max((span.duration_ms for span in page.spans), default=0.0) or 1.0
    return [
        Row(
            span,
            texts.get(span.pk, span_links.SpanTexts()),
            _href(span, span_filter, slowest),
            span.duration_ms / longest,
        )
        for span in page.spans
    ]


def _other_environments(
    span_filter: search.SpanFilter, query: QueryDict, page: search.SpanPage
) -> list[tuple[str, int, str]]:
    """(label, spans, address) of the environments with spans that match, where the filter's own has none."""
    if page.spans or query.get("cursor") or not span_filter.environments or search.ALL in span_filter.environments:
        return []
    counts = search.environment_counts(span_filter)
    return [
        (str(label), counts[name], _address(query, environment=name))
        for name, label in ENVIRONMENT_CHOICES
        if counts.get(name)
    ]


def _href(span: Span, span_filter: search.SpanFilter, slowest: bool) -> str:
    """The list by duration has no next one: its spans lead to their neighbours in the trace."""
    return span_links.span_href(span) if slowest else span_links.span_address(span, span_filter)


def _page(span_filter: search.SpanFilter, query: QueryDict) -> search.SpanPage:
    return search.search_spans(span_filter, query.get("cursor") or None, PER_PAGE)


def of_production(span_filter: search.SpanFilter) -> search.SpanFilter:
    """The filter of a page: of production, unless it names environments, a trace or a run."""
    states_one = span_filter.environments or span_filter.trace_id or span_filter.run_id
    return span_filter if states_one else replace(span_filter, environments=(telemetry.PRODUCTION,))


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


def _spelled_out(span_filter: search.SpanFilter, params: QueryDict) -> QueryDict:
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


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One query or ingest. subject: its question or its document, else the name of its span."""

    span: Span
    is_ingest: bool
    subject: str
    run: QueryRun | None


def show_traces(request: PageRequest) -> HttpResponse:
    """The newest queries and ingests, each as one trace. show=queries or ingests, status, collection, cursor."""
    types = {"queries": ENTRY_TYPES[:1], "ingests": ENTRY_TYPES[1:]}.get(request.GET.get("show", ""), ENTRY_TYPES)
    provided = request.GET.copy()
    filters = [
        Filter("show", gettext("Type"), [("queries", gettext("Queries")), ("ingests", gettext("Ingests"))]),
        Filter("collection", gettext("Collection"), collection_titles(request).items(), free=True),
        Filter("status", gettext("Status"), [("ok", gettext("OK")), ("error", gettext("Error"))], free=True),
        environment_filter(provided),
        period(),
        bounds("ms", gettext("Latency"), "ms"),
        *rare_filters(provided),
    ]
    listing = replace(list_page(request, TRACES, None, filters), misfits=())
    context: dict[str, Any] = {}
    status = 200
    try:
        with span_links.read_briefly():
            requested = replace(of_production(search.parse_filter(provided, also=("show", "cursor"))), types=types)
            page = _page(requested, provided)
            listing = _with_rows(listing, trace_rows(page.spans), provided, page)
        context |= {"other_environments": _other_environments(requested, provided, page)}
    except InvalidInput as error:
        context |= {"error": error.message}
        status = 422
    except OperationalError:
        context |= {"error": TOO_SLOW}
        status = 503
    context |= {"level": "traces"} | listing.context()
    parts = {"traces": "evaluation/parts/traces.html"}
    return render_page(request, "evaluation/activity.html", context, parts=parts, status=status)


def _with_rows(listing: ListPage, rows: Sequence[Any], query: QueryDict, page: search.SpanPage) -> ListPage:
    older = _address(query, cursor=page.next_cursor) if page.next_cursor else ""
    newest = _address(query) if query.get("cursor") else ""
    return replace(listing, rows=rows, newer=newest, older=older)


def environment_filter(query: QueryDict) -> Filter:
    """A trace or a run is of any environment."""
    usual = search.ALL if query.get("trace_id") or query.get("run_id") else telemetry.PRODUCTION
    choices = [("" if name == usual else name, label) for name, label in ENVIRONMENT_CHOICES]
    return Filter("environment", gettext("Environment"), choices, usual=usual)


def rare_filters(query: QueryDict, *others: str) -> list[Filter]:
    """One for each value of the address that no other chip has, so that it can be removed."""
    return [
        Filter(name, label, many=True, free=True)
        for name, label in RARE.items()
        if name not in others and query.get(name)
    ]


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
