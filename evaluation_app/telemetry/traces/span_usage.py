"""What a waterfall shows of a span: its stage, and tokens, cost and counts, read without its other attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import JSONField
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext_lazy

from collections_app.domain.formats import dollars, duration
from evaluation_app.models import Span
from evaluation_app.models.spans import SpanQuerySet
from evaluation_app.telemetry.explorer.span_links import first_table
from ragd.telemetry import names

# the first of these that a span's name begins with decides the colour and pattern of its bar; the name stands beside it
STAGES = (
    (names.QUERY, "embed"),
    (names.EMBEDDINGS, "embed"),
    (names.RETRIEVE, "retrieve"),
    (names.VECTOR, "retrieve"),
    (names.LEXICAL, "retrieve"),
    (names.HOP, "retrieve"),
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
    "pipeline": gettext_lazy("Root and parent spans"),
    "embed": gettext_lazy("Embedding"),
    "retrieve": gettext_lazy("Retrieval"),
    "rank": gettext_lazy("Ranking"),
    "generate": gettext_lazy("Generation"),
    "judge": gettext_lazy("Evaluation"),
    "read": gettext_lazy("Fetching, parsing, chunking"),
    "store": gettext_lazy("Storage"),
    "failed": gettext_lazy("Failed"),
}
READ_FACTS = """
(SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(spans.attributes) WHERE key = ANY(%s))
"""
QUEUE_TOLD_MS = 1.0
FILE_NAME = f"{names.OWN}file_name"
CHUNKS_COUNT = f"{names.OWN}chunks_count"
RESULTS_COUNT = f"{names.OWN}results_count"
TOKENS_BEFORE = f"{names.OWN}tokens_before"
TOKENS_AFTER = f"{names.OWN}tokens_after"
FACT_NAMES = (
    names.USAGE_INPUT_TOKENS, names.USAGE_OUTPUT_TOKENS, names.USAGE_ESTIMATED, names.COST_TOTAL,
    names.RETRIEVE_RESULTS_COUNT, names.RERANK_INPUT_COUNT, names.RERANK_OUTPUT_COUNT, names.TEXTS_COUNT,
    names.SECURITY_RISK_SCORE, names.LATENCY_FIRST_TOKEN_MS, names.LATENCY_QUEUE_MS, names.OPERATION_NAME,
    names.GEN_AI_SYSTEM, names.REQUEST_MODEL, names.RUN_ID, FILE_NAME, names.DOCUMENT_ID, names.JOB_ID, names.JOB_KIND,
    names.JOB_ATTEMPT, CHUNKS_COUNT, RESULTS_COUNT, TOKENS_BEFORE, TOKENS_AFTER, names.DB_QUERY_TEXT, names.URL_FULL,
)  # fmt: skip


def stage_of(span: Span, *, failed_below: bool = False) -> str:
    """A key of STAGE_WORDS. A span that only passed on what failed below it keeps its own stage."""
    if span.has_failed and not failed_below:
        return "failed"
    return next((stage for begin, stage in STAGES if span.name.startswith(begin)), "pipeline")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and US dollars. calls: how many model calls; priced: of how many of them the cost is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    calls: int = 0
    priced: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
            self.calls + other.calls,
            self.priced + other.priced,
        )

    def __str__(self) -> str:
        """ "911 tokens in, 87 out, $0.0024"; "" without a call. A cost is told as soon as one call has one."""
        if not self.calls:
            return ""
        noun = "token" if self.input_tokens == 1 else "tokens"
        tokens = f"{self.input_tokens:,} {noun} in" + (f", {self.output_tokens:,} out" if self.output_tokens else "")
        return f"{tokens}, {dollars(self.cost_usd)}" if self.priced else tokens


def with_facts(spans: SpanQuerySet) -> SpanQuerySet:
    """Spans whose `facts` hold the few attributes that a waterfall shows; attributes, events and links are not read."""
    facts = RawSQL(READ_FACTS, [list(FACT_NAMES)], output_field=JSONField())  # noqa: S611  (a constant)
    return spans.without_content().annotate(facts=facts)


def facts_of(span: Span) -> Mapping[str, Any]:
    """What `with_facts` read, else the span's attributes."""
    result: Mapping[str, Any] | None = getattr(span, "facts", None)
    return span.attributes if result is None else result


def usage_of(span: Span) -> Usage:
    """Of one model call; nothing for any other span."""
    facts = facts_of(span)
    if names.GEN_AI_SYSTEM not in facts:
        return Usage()
    cost = read_number(facts.get(names.COST_TOTAL))
    return Usage(
        input_tokens=int(read_number(facts.get(names.USAGE_INPUT_TOKENS)) or 0),
        output_tokens=int(read_number(facts.get(names.USAGE_OUTPUT_TOKENS)) or 0),
        cost_usd=cost or 0.0,
        calls=1,
        priced=int(cost is not None),
    )


def sum_usage(children: Mapping[str | None, Sequence[Span]], ordered: Sequence[Span]) -> dict[str | None, Usage]:
    """Of each span with all that is below it, and of everything under None. ordered: parents before their children."""
    result: dict[str | None, Usage] = {}
    for span in reversed(ordered):
        below = [result[child.span_id] for child in children.get(span.span_id, ())]
        result[span.span_id] = sum(below, usage_of(span))
    result[None] = sum((result[span.span_id] for span in children.get(None, ())), Usage())
    return result


def describe_span(span: Span, usage: Usage) -> str:
    """What was counted, for the span's bar; "" where nothing was. usage: of the span with all that is below it, which a
    bar that is no call says to be a sum."""
    facts = facts_of(span)
    parts = [_usage_words(span, usage)] if _tells_usage(span) and usage.calls else []
    parts += [words for words in (_documents(facts), _subject(span, facts), _work(facts)) if words]
    risk = read_number(facts.get(names.SECURITY_RISK_SCORE))
    return ", ".join(parts + ([f"risk {risk:.0f}"] if risk else []))


def _usage_words(span: Span, usage: Usage) -> str:
    """Of a call what it used itself, as its page says, whatever other calls stand in it; else the sum of those."""
    own = usage_of(span)
    return str(own) if own.calls else f"{usage} (sum of {usage.calls} call{'' if usage.calls == 1 else 's'})"


def _tells_usage(span: Span) -> bool:
    """A call itself, and the whole query or ingest."""
    is_whole = span.name.startswith(names.PIPELINE) or span.name == names.INGEST
    return is_whole or names.GEN_AI_SYSTEM in facts_of(span)


def table_of(span: Span) -> str:
    """The first table that a statement's span names; "" for any other span."""
    return first_table(facts_of(span).get(names.DB_QUERY_TEXT))


def count_documents(span: Span) -> int:
    """How many documents a retrieve or rerank span gave on; 0 for any other."""
    facts = facts_of(span)
    count = facts.get(names.RETRIEVE_RESULTS_COUNT, facts.get(names.RERANK_OUTPUT_COUNT))
    return count if isinstance(count, int) else 0


def _documents(facts: Mapping[str, Any]) -> str:
    provided, stored = facts.get(names.RERANK_INPUT_COUNT), facts.get(names.RERANK_OUTPUT_COUNT)
    if provided is not None and stored is not None:
        return f"{provided} → {stored} documents"
    before, after = facts.get(TOKENS_BEFORE), facts.get(TOKENS_AFTER)
    if before is not None and after is not None:
        return f"{before:,} → {after:,} tokens"
    for name, noun in (
        (names.RETRIEVE_RESULTS_COUNT, "document"),
        (RESULTS_COUNT, "result"),
        (CHUNKS_COUNT, "chunk"),
    ):
        count = facts.get(name)
        if isinstance(count, int):
            return f"{count:,} {noun}{'' if count == 1 else 's'}"
    return ""


def _subject(span: Span, facts: Mapping[str, Any]) -> str:
    """The file, document or address that it is about."""
    address = facts.get(names.URL_FULL) if span.name == names.FETCH else None
    return str(facts.get(FILE_NAME) or facts.get(names.DOCUMENT_ID) or address or "")


def _work(facts: Mapping[str, Any]) -> str:
    """How long a job waited and which attempt it is, where that says something."""
    waited, attempt = read_number(facts.get(names.LATENCY_QUEUE_MS)), facts.get(names.JOB_ATTEMPT)
    queued = f"queued {duration(waited)}" if waited and waited >= QUEUE_TOLD_MS else ""
    again = f"attempt {attempt}" if isinstance(attempt, int) and attempt > 1 else ""
    return ", ".join(filter(None, (queued, again)))


def read_number(value: Any) -> float | None:
    """A count or an amount; None for whatever an import may have put in its place."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
