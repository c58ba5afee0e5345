"""What the page of one span shows: its place in the trace, figures, documents, messages, fields, events, links."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext_lazy

from collections_app.domain.formats import dollars, shown
from collections_app.models import Collection, Document
from evaluation_app.models import Span
from evaluation_app.telemetry.evidence.report import Control, control_of, controls_of_row
from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE, is_kept, span_href
from evaluation_app.telemetry.store.span_store import SpanRecord, spans_validity
from evaluation_app.telemetry.traces.waterfall import SPANS_READ, read_number, stage_of, tree_of, walk_tree, with_facts
from ragd.conventions import OPENINFERENCE, OTEL, TABLES, Field, SpanTable, Tables, Violation
from ragd.telemetry import names
from ragd.types import HOP_LISTS

PIECE = re.compile(r"\.(\d+)\.document\.(id|content|score|metadata)")
LIST_FIELD = re.compile(rf"{re.escape(names.DOC_LIST)}\.(.+)\.(rank|score)")
SNIPPET_CHARS = 420
TELLING = (names.DOC_ID, names.EXCEPTION_TYPE, names.EVALUATION_NAME, names.TOOL_NAME)  # what an event is about
LISTS = ("vector", "lexical", "codes", *HOP_LISTS, "fused", "reranked")


@dataclass(frozen=True, slots=True)
class DocumentCard:
    """One document on a span. rank starts at 1. score: 0 to 1, or whatever a foreign span has; raw_score: of its kind.

    ranks: (list, rank, raw score) in every earlier list. before: its rank before this span, None where there is none;
    gain: ranks won since. text: how it begins; is_kept: False where the content switch kept it out.
    href: the chunk's page, "" when it is not there any more.
    """

    rank: int
    key: str
    score: float | None = None
    raw_score: float | None = None
    score_kind: str = ""
    provenance: str = ""
    text: str = ""
    is_kept: bool = True
    ranks: Sequence[tuple[str, int, float | None]] = ()
    before: int | None = None
    href: str = ""

    @property
    def gain(self) -> int | None:
        return None if self.before is None else self.before - self.rank

    @property
    def doc_id(self) -> str:
        return self.key.rpartition("#")[0] or self.key

    @property
    def chunk_index(self) -> str:
        return self.key.rpartition("#")[2] if "#" in self.key else ""


@dataclass(frozen=True, slots=True)
class Documents:
    """cards: best first. left_out: what a reranker was given and did not keep, by its rank before."""

    cards: list[DocumentCard] = field(default_factory=list)
    left_out: list[DocumentCard] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Message:
    """role: system, user, assistant, tool. is_output: the model wrote it. is_kept: see `DocumentCard`."""

    role: str
    text: str
    is_output: bool = False
    is_kept: bool = True


@dataclass(frozen=True, slots=True)
class EventRow:
    """offset_ms from the span's start. values: (name, text)."""

    name: str
    offset_ms: float
    values: list[tuple[str, str]]
    details: str


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link to another span. href: its page, "" when it is not stored here. is_back: that span links here."""

    trace_id: str
    span_id: str
    name: str
    href: str
    values: list[tuple[str, str]]
    is_back: bool = False


def documents_of(span: Span, retrieved: Span | None = None) -> Documents:
    """The documents that a retrieve or rerank span carries; empty for any other.

    retrieved: the retrieve span before a rerank span, which knows each document's place in every list.
    """
    result = _flattened(span.attributes, names.OI_RETRIEVAL_DOCUMENTS)
    if result:
        return Documents(_with_links(span.collection, [_card(number, item, _events(span)) for number, item in result]))
    stored = _flattened(span.attributes, names.OI_RERANKER_OUTPUT)
    provided = _flattened(span.attributes, names.OI_RERANKER_INPUT)
    if not stored and not provided:
        return Documents()
    events = _events(retrieved) if retrieved else {}
    before = {item.get("id"): number for number, item in provided}
    cards = [_card(number, item, events, before.get(item.get("id"))) for number, item in stored]
    ids = {item.get("id") for _, item in stored}
    left_out = [_card(number, item, events, number) for number, item in provided if item.get("id") not in ids]
    linked = _with_links(span.collection, cards + left_out)
    return Documents(linked[: len(cards)], linked[len(cards) :])


def _flattened(attributes: Mapping[str, Any], prefix: str) -> list[tuple[int, dict[str, Any]]]:
    """(rank from 1, {id, content, score, metadata}) of a flattened list of documents, in its order."""
    items: dict[int, dict[str, Any]] = defaultdict(dict)
    for name, value in attributes.items():
        if name.startswith(prefix) and (piece := PIECE.fullmatch(name, len(prefix))):
            items[int(piece[1])][piece[2]] = value
    return [(number + 1, items[number]) for number in sorted(items)]


def _events(span: Span) -> dict[str, Mapping[str, Any]]:
    """Attributes of the events about documents, by document."""
    details = (event.get("attributes") or {} for event in span.events if event.get("name") == names.DOC_RETRIEVED)
    return {str(values.get(names.DOC_ID)): values for values in details}


def _card(
    rank: int, item: Mapping[str, Any], events: Mapping[str, Mapping[str, Any]], before: int | None = None
) -> DocumentCard:
    key = str(item.get("id", ""))
    event = events.get(key, {})
    text = str(item.get("content", ""))
    return DocumentCard(
        rank=rank,
        key=key,
        score=read_number(item.get("score")),
        raw_score=read_number(event.get(names.DOC_SCORE_RAW)) if before is None else None,
        score_kind=str(event.get(names.DOC_SCORE_KIND, "")) if before is None else "",
        provenance=str(event.get(names.DOC_PROVENANCE, "")),
        text=" ".join(text[: SNIPPET_CHARS * 2].split())[:SNIPPET_CHARS],
        is_kept=is_kept(text),
        ranks=_ranks(event),
        before=before,
    )


def _ranks(event: Mapping[str, Any]) -> list[tuple[str, int, float | None]]:
    locations: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in event.items():
        if match := LIST_FIELD.fullmatch(name):
            locations[match[1]][match[2]] = value
    order = sorted(locations, key=lambda name: (LISTS.index(name) if name in LISTS else len(LISTS), name))
    return [
        (name, locations[name]["rank"], read_number(locations[name].get("score")))
        for name in order
        if isinstance(locations[name].get("rank"), int)
    ]


def _with_links(collection_name: str, cards: Sequence[DocumentCard]) -> list[DocumentCard]:
    """The cards with the addresses of the chunks whose documents are still there. One query, or two."""
    collection = Collection.objects.live().filter(name=collection_name).first() if collection_name and cards else None
    if collection is None:
        return list(cards)
    requested = {card.doc_id for card in cards}
    there = set(Document.objects.filter(collection=collection, doc_id__in=requested).values_list("doc_id", flat=True))
    return [
        replace(card, href=reverse("collections:chunk", args=[collection_name, int(card.chunk_index), card.doc_id]))
        if card.doc_id in there and card.chunk_index.isdecimal() and len(card.chunk_index) < 10
        else card
        for card in cards
    ]


def messages_of(span: Span) -> list[Message]:
    """What a model was told and what it answered, in order; of a query its question and answer; [] for others."""
    attributes = span.attributes
    if span.type == PIPELINE_TYPE:
        sides = (("user", names.INPUT_VALUE, False), ("assistant", names.OUTPUT_VALUE, True))
        texts = [(role, str(attributes.get(name) or ""), is_output) for role, name, is_output in sides]
        return [Message(role, text, is_output, is_kept(text)) for role, text, is_output in texts if text]
    details = [Message("system", _said(part)) for part in _json_list(attributes.get(names.SYSTEM_INSTRUCTIONS))]
    details += _structured(attributes.get(names.INPUT_MESSAGES), is_output=False)
    if not details:
        details = _flat_messages(attributes, names.OI_LLM_INPUT, is_output=False)
    answered = _structured(attributes.get(names.OUTPUT_MESSAGES), is_output=True)
    if not answered:
        answered = _flat_messages(attributes, names.OI_LLM_OUTPUT, is_output=True)
    return [
        Message(message.role, message.text, message.is_output, is_kept(message.text))
        for message in [*details, *answered]
        if message.text
    ]


def _structured(value: Any, *, is_output: bool) -> list[Message]:
    messages = []
    for item in _json_list(value):
        if isinstance(item, Mapping):
            parts = item.get("parts")
            text = "\n".join(_said(part) for part in parts) if isinstance(parts, list) else _said(item)
            messages.append(Message(str(item.get("role", "")), text, is_output))
    return messages


def _said(part: Any) -> str:
    """The text of one part; a tool's call or answer as JSON."""
    if not isinstance(part, Mapping):
        return str(part)
    content = part.get("content")
    return content if isinstance(content, str) else json.dumps(part, ensure_ascii=False)


def _flat_messages(attributes: Mapping[str, Any], prefix: str, *, is_output: bool) -> list[Message]:
    messages = []
    number = 0
    while (role := attributes.get(f"{prefix}.{number}.message.role")) is not None:
        text = str(attributes.get(f"{prefix}.{number}.message.content", ""))
        messages.append(Message(str(role), text, is_output))
        number += 1
    return messages


def _json_list(value: Any) -> list[Any]:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return []
    return parsed if isinstance(parsed, list) else []


def events_of(span: Span) -> list[tuple[str, list[EventRow]]]:
    """(name, events of that name by time), the names in the order of their first event."""
    groups: dict[str, list[EventRow]] = defaultdict(list)
    for event in span.events:
        values = sorted((event.get("attributes") or {}).items())
        details = str(next((value for name, value in values if name in TELLING), ""))
        offset_ms = _offset_ms(event.get("time"), span.started_at)
        row = EventRow(str(event.get("name", "")), offset_ms, [(name, shown(value)) for name, value in values], details)
        groups[row.name].append(row)
    return list(groups.items())


def _offset_ms(time: Any, start: datetime) -> float:
    try:
        return (datetime.fromisoformat(str(time)) - start) / timedelta(milliseconds=1)
    except (ValueError, TypeError):
        return 0.0


def links_of(span: Span, back: Iterable[Span] = ()) -> list[LinkRow]:
    """The spans that this one links to, then those in `back`, which link to it."""
    rows = []
    for link in span.links:
        trace_id, span_id = str(link.get("trace_id", "")), str(link.get("span_id", ""))
        target = Span.objects.of_trace(trace_id).filter(span_id=span_id).without_content().first()
        values = [(name, shown(value)) for name, value in sorted((link.get("attributes") or {}).items())]
        name, href = (target.name, span_href(target)) if target else ("", "")
        rows.append(LinkRow(trace_id, span_id, name, href, values))
    rows += [LinkRow(other.trace_id, other.span_id, other.name, span_href(other), [], is_back=True) for other in back]
    return rows


TABS = {
    "aitf": "AITF", "openinference": "OpenInference", "gen_ai": "gen_ai", "ragd": "ragd", "other": "Other",
    "raw": "Raw",
}  # fmt: skip
OI_PREFIXES = (
    "openinference.", "input.", "output.", "retrieval.documents.", "reranker.", "embedding.", "llm.", "session.",
    "user.", "tag.", "evaluations.", "annotations.", "document.", "tool.", "tool_call.", "metadata", "graph.", "agent.",
)  # fmt: skip
GEN_AI_PREFIXES = ("gen_ai.", "server.", "error.type", "db.system.name")
OWN_PREFIXES = ("ragd.",)
LIST_MARK = ".N."  # in the name of a row that stands for one field per item of a flattened list
TAB_TABLES: Mapping[str, Tables] = {"aitf": TABLES, "openinference": OPENINFERENCE, "gen_ai": OTEL}
FLAT = re.compile(r"(.+?)\.(\d+)\.(.+)")
LONG_CHARS = 140
ITEMS_SHOWN = 50  # of a flattened list; Raw has all


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One attribute. value: as text, "" when it is not recorded. is_long: better shown folded, in full below.

    requirement: of the table's row, "" for a name that no table has. problem: what the validator says of it.
    state: recorded, missing (although it is asked for), unneeded (it does not apply here) or optional.
    event: the event that carries it instead of the span. expected: type and range or values that the table asks for.
    """

    name: str
    value: str = ""
    is_long: bool = False
    requirement: str = ""
    state: str = "recorded"
    expected: str = ""
    event: str = ""
    problem: str = ""
    controls: Sequence[Control] = ()


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """A flattened list: prefix.N.suffix. count: of its items; rows: of the first ITEMS_SHOWN of them."""

    prefix: str
    count: int
    rows: list[FieldRow]

    @property
    def left_out(self) -> int:
        return max(0, self.count - ITEMS_SHOWN)


@dataclass(frozen=True, slots=True)
class ControlRow:
    """A control and the fields of this span that speak to it."""

    control: Control
    recorded: list[str]
    missing: list[str]


def tabs_of(span: Span) -> dict[str, int]:
    """How many attributes stand under each tab that has something to show, in the order of TABS."""
    counts = {tab: sum(_belongs(name, tab, table_of(span)) for name in span.attributes) for tab in TABS}
    counts["raw"] = len(span.attributes)
    return {tab: count for tab, count in counts.items() if count or tab == "raw" or table_of(span, tab)}


def table_of(span: Span, tab: str = "aitf") -> SpanTable | None:
    """The table that governs the span in the vocabulary of a tab; None where none does."""
    tables = TAB_TABLES.get(tab)
    return tables.table_of({"name": span.name, "attributes": span.attributes}) if tables else None


def rows_of(span: Span, tab: str, violations: Iterable[Violation] = ()) -> tuple[list[FieldRow], list[FieldGroup]]:
    """(single attributes, flattened lists) of one tab: the rows of its table first, in their order, then what else is
    there by name. violations: of this span in the tab's vocabulary."""
    problems = {violation.field: violation.message for violation in violations}
    table = table_of(span, tab)
    fields = {row.name: row for row in (table.fields if table else ()) if LIST_MARK not in row.name}
    rows = [_table_row(span, row, problems) for row in fields.values()]
    details = {row.name for row in rows}
    lists: dict[str, dict[str, list[FieldRow]]] = defaultdict(lambda: defaultdict(list))
    for name in sorted(span.attributes, key=_natural):
        if name in details or not _belongs(name, tab, table_of(span)):
            continue
        text = _text(span.attributes[name])
        row = FieldRow(name=name, value=text, is_long=_is_long(text), problem=problems.get(name, ""))
        if match := FLAT.fullmatch(name):
            lists[match[1]][match[2]].append(row)
        else:
            rows.append(row)
    groups = [
        FieldGroup(prefix, len(items), [row for each in list(items.values())[:ITEMS_SHOWN] for row in each])
        for prefix, items in lists.items()
    ]
    return rows, groups


def controls_of(span: Span) -> list[ControlRow]:
    """The controls that the normative table and those of its events name, in the order of their rows; [] for a span
    that none governs."""
    table = table_of(span)
    named = [(row, bool(_values(span, row))) for row in (table.fields if table else ())]
    for event in TABLES.events:
        if table is not None and event.span_type == table.type:
            events = [each.get("attributes") or {} for each in span.events if each.get("name") == event.name]
            named += [(row, any(row.name in values for values in events)) for row in event.fields]
    result: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for row, is_recorded in named:
        for pair in controls_of_row(row):
            recorded, missing = result.setdefault(pair, ([], []))
            names = recorded if is_recorded else missing
            if row.name not in names:
                names.append(row.name)
    return [ControlRow(control_of(*pair), *fields) for pair, fields in result.items()]


def _belongs(name: str, tab: str, table: SpanTable | None) -> bool:
    in_table = table is not None and any(row.name == name for row in table.fields)
    if tab == "aitf":
        return in_table or name.startswith("aitf.")
    known = {"openinference": OI_PREFIXES, "gen_ai": GEN_AI_PREFIXES, "ragd": OWN_PREFIXES}
    if tab in known:
        return name.startswith(known[tab])
    every = tuple(prefix for prefixes in known.values() for prefix in prefixes)
    return tab == "other" and not in_table and not name.startswith(("aitf.", *every))


def _table_row(span: Span, row: Field, problems: Mapping[str, str]) -> FieldRow:
    values = _values(span, row)
    problem = problems.get(row.name, "")
    value = _text("\n\n".join(map(str, values)) if len(values) > 1 else values[0]) if values else ""
    return FieldRow(
        name=row.name,
        value=value,
        is_long=_is_long(value),
        requirement=row.requirement,
        state=_state(row, bool(values), bool(problem)),
        expected=_expected(row),
        event=row.event,
        problem=problem,
        controls=[control_of(*pair) for pair in controls_of_row(row)],
    )


def _values(span: Span, row: Field) -> list[Any]:
    """Where it was recorded: on the span, or on each of the events that the row names."""
    holders = [span.attributes]
    if row.event:
        holders = [event.get("attributes") or {} for event in span.events if event.get("name") == row.event]
    return [holder[row.name] for holder in holders if holder.get(row.name) is not None]


def _state(row: Field, recorded: bool, wrong: bool) -> str:
    if recorded:
        return "recorded"
    if wrong or row.requirement == "Required":
        return "missing"
    return "optional" if row.requirement == "Optional" else "unneeded"


def _expected(row: Field) -> str:
    if row.enum:
        return f"{row.value_type}: {', '.join(row.enum)}"
    if row.low is not None and row.high is not None:
        return f"{row.value_type}, {row.low:g} to {row.high:g}"
    return row.value_type


def _text(value: Any) -> str:
    """A value as it is read: JSON in a string is laid out, anything but a string is JSON."""
    if isinstance(value, str):
        if value[:1] not in ("{", "["):
            return value
        try:
            return json.dumps(json.loads(value), indent=2, ensure_ascii=False)
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_long(text: str) -> bool:
    return len(text) > LONG_CHARS or "\n" in text


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts item 10 of a flattened list behind item 9."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in name.split(".")]


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
    position = position_of(span, list(with_facts(Span.objects.of_trace(span.trace_id))[:SPANS_READ]))
    violations = violations_of(span, position)
    tabs = tabs_of(span)
    chosen = tab if tab in tabs else next(iter(tabs))
    own = violations.get(TAB_TABLES[chosen].name, []) if chosen in TAB_TABLES else []
    rows, groups = rows_of(span, chosen, own) if chosen != "raw" else ([], [])
    return {
        "span": span,
        "stage": stage_of(span),
        "is_governed": any(table_of(span, key) for key in TAB_TABLES),
        "span_place": position,
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
