"""What the page of one span shows: its place in the trace, figures, documents, messages, fields, events, links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy

from collections_app.domain.formats import dollars
from evaluation_app.models import Span
from evaluation_app.telemetry.store.span_reads import SpanRecord, spans_validity
from evaluation_app.telemetry.traces.cards import Documents, documents_of, events_of, links_of, messages_of
from evaluation_app.telemetry.traces.span_fields import TAB_TABLES, TABS, controls_of, rows_of, table_of, tabs_of
from evaluation_app.telemetry.traces.span_usage import stage_of, with_facts
from evaluation_app.telemetry.traces.waterfall import SPANS_READ, tree_of, walk_tree
from ragd.conventions import Violation
from ragd.telemetry import names

LINKED_BACK = 5


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _milliseconds(value: Any) -> str:
    return f"{value:,.0f} ms" if isinstance(value, int | float) else str(value)


def _rate(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, int | float) else str(value)


def _risk(value: Any) -> str:
    return f"{value:.0f} of 100" if isinstance(value, int | float) else str(value)


def _dollars(value: Any) -> str:
    return dollars(value) if isinstance(value, int | float) else str(value)


def _joined(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# attribute, label, how it is spelled; what a span does not have is left out
FIGURES: tuple[tuple[str, Any, Callable[[Any], str]], ...] = (
    (names.GEN_AI_SYSTEM, gettext_lazy("Provider"), str),
    (names.REQUEST_MODEL, gettext_lazy("Model"), str),
    (names.RESPONSE_MODEL, gettext_lazy("Response model"), str),
    (names.RERANK_MODEL, gettext_lazy("Reranker"), str),
    (names.RETRIEVE_DATABASE, gettext_lazy("Database"), str),
    (names.RETRIEVE_INDEX, gettext_lazy("Index"), str),
    (names.RETRIEVE_TOP_K, gettext_lazy("Top k"), _count),
    (names.RETRIEVE_RESULTS_COUNT, gettext_lazy("Results"), _count),
    (names.RERANK_INPUT_COUNT, gettext_lazy("Given"), _count),
    (names.RERANK_OUTPUT_COUNT, gettext_lazy("Kept"), _count),
    (names.USAGE_INPUT_TOKENS, gettext_lazy("Input tokens"), _count),
    (names.USAGE_OUTPUT_TOKENS, gettext_lazy("Output tokens"), _count),
    (names.USAGE_CACHED_TOKENS, gettext_lazy("Cached tokens"), _count),
    (names.USAGE_REASONING_TOKENS, gettext_lazy("Reasoning tokens"), _count),
    (names.COST_TOTAL, gettext_lazy("Cost"), _dollars),
    (names.LATENCY_FIRST_TOKEN_MS, gettext_lazy("Time to first token"), _milliseconds),
    (names.LATENCY_TOKENS_PER_SECOND, gettext_lazy("Tokens per second"), _rate),
    (names.LATENCY_QUEUE_MS, gettext_lazy("Queue time"), _milliseconds),
    (names.RESPONSE_FINISH_REASONS, gettext_lazy("Finish reason"), _joined),
    (names.SECURITY_RISK_SCORE, gettext_lazy("Risk"), _risk),
    (names.CHANNEL, gettext_lazy("Channel"), str),
    (f"{names.OWN}api_key", "API key", str),
)


@dataclass(frozen=True, slots=True)
class TracePosition:
    """Where a span stands: what is above it from the top down, below it by start, before and after in the waterfall."""

    above: list[Span]
    below: list[Span]
    before: Span | None
    after: Span | None


def describe_span_page(span: Span, tab: str) -> dict[str, Any]:
    """The context of the page. tab: a key of TABS that has something to show; any other gives the first that has."""
    around = list(with_facts(Span.objects.of_trace(span.trace_id))[:SPANS_READ])
    position = position_of(span, around)
    violations = violations_of(span, position)
    tabs = tabs_of(span)
    chosen = tab if tab in tabs else next(iter(tabs))
    own = violations.get(TAB_TABLES[chosen].name, []) if chosen in TAB_TABLES else []
    rows, groups = rows_of(span, chosen, own) if chosen != "raw" else ([], [])
    return {
        "span": span,
        "stage": stage_of(span),
        "is_governed": any(table_of(span, key) for key in TAB_TABLES),
        "place": position,
        "violations": [(name, violation) for name, match in violations.items() for violation in match],
        "figures": figures_of(span),
        "documents": span_documents(span),
        "messages_said": messages_of(span),
        "tabs": [(key, TABS[key], count) for key, count in tabs.items()],
        "tab": chosen,
        "rows": rows,
        "groups": groups,
        "controls": controls_of(span) if chosen == "aitf" else [],
        "raw": SpanRecord.from_orm(span).dict() if chosen == "raw" else None,
        "event_groups": events_of(span),
        "links": links_of(span, _linked_back(span)),
    }


def position_of(span: Span, around: Sequence[Span]) -> TracePosition:
    """around: the spans of the same trace, the span among them."""
    by_id = {other.span_id: other for other in around}
    above: list[Span] = []
    parent = by_id.get(span.parent_span_id or "")
    while parent is not None and parent not in above and parent.span_id != span.span_id:
        above.append(parent)
        parent = by_id.get(parent.parent_span_id or "")
    children = tree_of(around)
    ordered = [other for other, _ in walk_tree(children)]
    index = next((number for number, other in enumerate(ordered) if other.span_id == span.span_id), None)
    return TracePosition(
        above=above[::-1],
        below=children.get(span.span_id, []),
        before=ordered[index - 1] if index else None,
        after=ordered[index + 1] if index is not None and index + 1 < len(ordered) else None,
    )


def violations_of(span: Span, trace_position: TracePosition) -> dict[str, list[Violation]]:
    """Vocabulary -> what it finds wrong with this span alone. Its parent and children are read only for that."""
    ids = [other.span_id for other in (*trace_position.above[-1:], *trace_position.below)]
    near = Span.objects.of_trace(span.trace_id).filter(span_id__in=ids)
    return {
        name: [violation for violation in report.violations if violation.span_id == span.span_id]
        for name, report in spans_validity([span, *near]).items()
    }


def figures_of(span: Span) -> list[tuple[str, str]]:
    """(label, value) of what was counted, in the order of FIGURES."""
    details = [(label, spell(span.attributes[name])) for name, label, spell in FIGURES if name in span.attributes]
    if span.attributes.get(names.USAGE_ESTIMATED) is True:
        details = [
            (label, f"{value}, estimated" if label.startswith("Input tokens") else value) for label, value in details
        ]
    return details


def span_documents(span: Span) -> Documents:
    """What it retrieved or reranked, with each document's place in every list."""
    return documents_of(span, _retrieved(span))


def _retrieved(span: Span) -> Span | None:
    """The retrieve span beside a rerank span, with all that it carries."""
    if not span.name.startswith(f"{names.RERANK} "):
        return None
    beside = Span.objects.of_trace(span.trace_id).filter(parent_span_id=span.parent_span_id)
    return beside.filter(name__startswith=f"{names.RETRIEVE} ").first()


def _linked_back(span: Span) -> list[Span]:
    """Evaluations of this span that came later, in traces of their own; of a run's span, those that name the run."""
    requested = [{"trace_id": span.trace_id, "span_id": span.span_id}]
    later = Span.objects.filter(type="aitf.rag.evaluate", started_at__gte=span.started_at, links__contains=requested)
    if span.run_id:
        later = later.filter(run_id=span.run_id)  # few, by an index: links have none
    return list(later.without_content().order_by("started_at", "id")[:LINKED_BACK])
