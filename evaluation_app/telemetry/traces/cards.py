"""What a span read and wrote, for people: documents as cards, messages, events, links."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse

from collections_app.domain.formats import shown
from collections_app.models import Collection, Document
from evaluation_app.models import Span
from evaluation_app.telemetry.explorer.span_links import is_kept, span_href
from evaluation_app.telemetry.traces.span_usage import read_number
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
    """What a model was told and what it answered, in order; [] for a span that is no model call."""
    attributes = span.attributes
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
