"""A trace as nested bars: where each span stands, what the trace waited for, what was counted on it.

The critical path of a trace is, of every moment, the one span that the whole was waiting for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import JSONField
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext_lazy

from collections_app.domain.formats import dollars, duration
from evaluation_app.models import Span
from evaluation_app.models.spans import SpanQuerySet
from evaluation_app.telemetry.explorer.span_links import first_table
from evaluation_app.telemetry.store.span_store import EVALUATE_TYPE, later_spans, question_spans, runs_of_trace
from ragd.identity import can_be_stored
from ragd.telemetry import names
from retrieval_app.models import QueryRun

# the first of these that a span's name begins with decides the colour and pattern of its bar; the name stands beside it
STAGES = (
    (names.QUERY, "embed"), (names.EMBEDDINGS, "embed"), (names.RETRIEVE, "retrieve"), (names.VECTOR, "retrieve"),
    (names.LEXICAL, "retrieve"), (names.HOP, "retrieve"), (names.FUSE, "rank"), (names.RERANK, "rank"),
    (names.COMPRESS, "rank"), (names.CHAT, "generate"), ("text_completion", "generate"), (names.EVALUATE, "judge"),
    (names.FETCH, "read"), (names.UNPACK, "read"), (names.PARSE, "read"), (names.CHUNK, "read"), (names.FILL, "store"),
    (names.STORE, "store"),
)  # fmt: skip
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
    for name, noun in ((names.RETRIEVE_RESULTS_COUNT, "document"), (RESULTS_COUNT, "result"), (CHUNKS_COUNT, "chunk")):
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


Stretch = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """stretches: span id -> when the trace waited for this span itself and for none of its children, by start.

    gaps: when it waited for nothing that is recorded, such as a place in a queue, by start. Stretches and gaps together
    cover the time from the first start to the last end, and no two of them overlap.
    """

    stretches: Mapping[str, Sequence[Stretch]]
    gaps: Sequence[Stretch]


def find_critical_path(children: Mapping[str | None, Sequence[Span]]) -> CriticalPath:
    """Walk back from the end: what ended last was waited for, before it began the sibling that ended last by then.

    children: span id -> the spans directly below it; None -> those at the top. Work that goes on after its parent
    ended, as behind a broker, counts from its own start. Without spans: nothing. Ties go to what started later.
    """
    tops = list(children.get(None, ()))
    if not tops:
        return CriticalPath({}, [])
    ends = _reach(children)
    stretches: dict[str, list[Stretch]] = defaultdict(list)
    gaps: list[Stretch] = []
    first, last = min(span.started_at for span in tops), max(ends[span.span_id] for span in tops)
    waiting: list[tuple[Span | None, datetime, datetime]] = [(None, first, last)]
    while waiting:
        span, low, high = waiting.pop()
        below = children.get(span.span_id if span else None, ())
        moment = high
        for child in sorted(below, key=lambda item: (ends[item.span_id], item.started_at), reverse=True):
            begin, end = max(child.started_at, low), min(ends[child.span_id], moment)
            if begin >= end:
                continue
            _note(span, (end, moment), stretches, gaps)
            waiting.append((child, begin, end))
            moment = begin
        _note(span, (low, moment), stretches, gaps)
    return CriticalPath({key: sorted(match) for key, match in stretches.items()}, sorted(gaps))


def _reach(children: Mapping[str | None, Sequence[Span]]) -> dict[str, datetime]:
    """When each span and everything below it had ended."""
    ordered: list[Span] = []
    waiting = list(children.get(None, ()))
    while waiting:
        span = waiting.pop()
        ordered.append(span)
        waiting.extend(children.get(span.span_id, ()))
    ends: dict[str, datetime] = {}
    for span in reversed(ordered):
        below = [ends[child.span_id] for child in children.get(span.span_id, ())]
        ends[span.span_id] = max([span.ended_at, *below])
    return ends


def _note(span: Span | None, stretch: Stretch, stretches: dict[str, list[Stretch]], gaps: list[Stretch]) -> None:
    """Count a stretch for its span as far as that was running, and the rest as a gap."""
    begin, end = stretch
    if begin >= end:
        return
    if span is None:
        gaps.append(stretch)
        return
    own_end = min(end, span.ended_at)
    if begin < own_end:
        stretches[span.span_id].append((begin, own_end))
    if max(begin, span.ended_at) < end:
        gaps.append((max(begin, span.ended_at), end))


Children = Mapping[str | None, Sequence[Span]]

SHOWN = {
    "": gettext_lazy("All spans"),
    "stages": gettext_lazy("Without SQL and HTTP"),
    "path": gettext_lazy("Critical path"),
    "failed": gettext_lazy("Failed"),
}
ALIKE_MAX = 24  # of siblings with one name more than this many are told in one row
ROWS_MAX = 600
SPANS_READ = 20_000
LARGEST_SHOWN = 4
WAIT_SHARE_MIN = 0.01  # what took less is not worth a word
MARK_GAP = 0.002  # of the track between two marks that can be told apart


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of a bar's track, both in percent of the whole."""

    left: float
    width: float


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """One span as a bar. depth counts from 0; offset_ms from the waterfall's start; left and width in percent.

    critical: where the trace waited for this span itself; critical_ms: for how long in sum. label: what was counted on
    it. alike: how many spans of the same name this row stands for besides.
    documents: how many documents it carries. table: which a statement reads or writes first.
    opens: rows below it follow. closes: how many lists of rows end behind it.
    """

    span: Span
    depth: int
    offset_ms: float
    duration_ms: float
    left: float
    width: float
    stage: str = "pipeline"
    critical: Sequence[Mark] = ()
    critical_ms: float = 0.0
    label: str = ""
    alike: int = 0
    alike_ms: float = 0.0
    documents: int = 0
    table: str = ""
    opens: bool = False
    closes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """What the trace waited for: a span, or None where nothing that is recorded was running. share: 0 to 1."""

    span: Span | None
    took_ms: float
    share: float
    stage: str = "pipeline"


@dataclass(frozen=True, slots=True)
class Waterfall:
    """rows: each span directly before its children, siblings by start. Empty: no span is stored (yet).

    waits: the largest parts of the critical path, at least WAIT_SHARE_MIN of it each, the longest first. gaps: see
    `CriticalPath`. hidden_count: spans that the filter or the number of rows leaves out. broken: the failed spans with
    no failed one inside, by start. evaluations: of what was judged later, each with an axis of its own.
    """

    rows: list[WaterfallRow]
    started_at: datetime | None
    total_ms: float
    failed_count: int
    waits: list[Wait] = field(default_factory=list)
    gaps: list[Mark] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    span_count: int = 0
    hidden_count: int = 0
    broken: list[Span] = field(default_factory=list)
    evaluations: list[Waterfall] = field(default_factory=list)

    @property
    def stages(self) -> list[tuple[str, str]]:
        """(stage, words) of the rows that are shown, in the order of STAGE_WORDS."""
        result = {row.stage for part in (self, *self.evaluations) for row in part.rows}
        return [(stage, str(words)) for stage, words in STAGE_WORDS.items() if stage in result]

    @property
    def ticks(self) -> list[float]:
        """Four times between the start and the end, in ms."""
        return [self.total_ms * quarter / 4 for quarter in range(4)]


def run_waterfall(run: QueryRun, *, words: str = "", shown: str = "") -> Waterfall:
    """Of the run alone, in however large a trace it stands, so that its axis is the time that the run took; its later
    evaluations follow. words and shown: see `build_waterfall`."""
    spans = question_spans(run, with_facts(Span.objects.all()))
    waterfall = build_waterfall(spans, words=words, shown=shown, matches=_ids_with(words, [run.trace_id]))
    return replace(waterfall, evaluations=_evaluations([run.pk], run.trace_id, words, shown))


def trace_waterfall(trace_id: str, *, words: str = "", shown: str = "") -> Waterfall:
    """Of everything in the trace, as far as SPANS_READ reaches; the later evaluations of its runs follow. words and
    shown: see `build_waterfall`."""
    spans = list(with_facts(Span.objects.of_trace(trace_id))[:SPANS_READ])
    waterfall = build_waterfall(spans, words=words, shown=shown, matches=_ids_with(words, [trace_id]))
    is_evaluation = any(span.type == EVALUATE_TYPE and not span.parent_span_id for span in spans)
    if is_evaluation:  # it is one of its run's later ones itself
        return waterfall
    return replace(waterfall, evaluations=_evaluations(runs_of_trace(trace_id), trace_id, words, shown))


def on_axis(waterfall: Waterfall, axis_ms: float) -> Waterfall:
    """The same rows on an axis of so many ms, at least its own total, to stand above another one."""
    share = waterfall.total_ms / axis_ms if axis_ms > 0 else 1.0
    rows = [
        replace(
            row,
            left=round(row.left * share, 3),
            width=round(row.width * share, 3),
            critical=[Mark(round(mark.left * share, 3), round(mark.width * share, 3)) for mark in row.critical],
        )
        for row in waterfall.rows
    ]
    return replace(waterfall, rows=rows, total_ms=max(axis_ms, waterfall.total_ms))


def _evaluations(runs: Sequence[UUID], trace_id: str, words: str, shown: str) -> list[Waterfall]:
    """Each later evaluation of these runs, a trace of its own with a time of its own, by start."""
    traces: dict[str, list[Span]] = {}
    for span in later_spans(runs, trace_id, with_facts(Span.objects.all())):
        traces.setdefault(span.trace_id, []).append(span)
    matches = _ids_with(words, list(traces))
    built = (build_waterfall(spans, words=words, shown=shown, matches=matches) for spans in traces.values())
    return [waterfall for waterfall in built if waterfall.rows]


def _ids_with(words: str, traces: Sequence[str]) -> frozenset[str]:
    """The spans of these traces that carry the words in an attribute or event, whatever their case."""
    if not words or not can_be_stored(words):
        return frozenset()
    rows = Span.objects.filter(trace_id__in=traces).exclude(trace_id="").holding(words)
    return frozenset(rows.values_list("span_id", flat=True)[:SPANS_READ])


def build_waterfall(
    spans: Sequence[Span], *, words: str = "", shown: str = "", matches: frozenset[str] = frozenset()
) -> Waterfall:
    """Spans as nested bars. A span whose parent is not among them stands at the top.

    words: only spans whose name or label holds them, or whose id is in `found`. shown: a key of SHOWN. What is above a
    span that is wanted is shown with it.
    """
    if not spans:
        return Waterfall([], None, 0.0, 0)
    layout = _Layout(spans)
    rows = _nest(list(layout.rows(layout.visible_ids(words, shown, matches))))
    return Waterfall(
        rows=rows,
        started_at=layout.first,
        total_ms=layout.total_ms,
        failed_count=sum(span.has_failed for span in spans),
        waits=layout.waits(),
        gaps=[layout.mark(gap) for gap in layout.path.gaps],
        usage=layout.usage[None],
        span_count=len(spans),
        broken=[span for span, _ in layout.ordered if layout.stage(span) == "failed"][:LARGEST_SHOWN],
        hidden_count=len(spans) - sum(1 + row.alike for row in rows),
    )


def tree_of(spans: Sequence[Span]) -> dict[str | None, list[Span]]:
    """span id -> the spans directly below it, by start; None -> those whose parent is not among the spans."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda item: (item.started_at, item.id or 0)):
        children[span.parent_span_id if span.parent_span_id in known else None].append(span)
    return children


def walk_tree(children: Children) -> Iterator[tuple[Span, int]]:
    """(span, depth), each span directly before its children. Spans that are their own ancestors are left out."""
    waiting = [(span, 0) for span in reversed(children.get(None, ()))]
    while waiting:
        span, depth = waiting.pop()
        yield span, depth
        waiting.extend((child, depth + 1) for child in reversed(children.get(span.span_id, ())))


class _Layout:
    """The places of one trace's spans."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.children = tree_of(spans)
        self.first = min(span.started_at for span in spans)
        self.total_ms = max((span.ended_at - self.first) / timedelta(milliseconds=1) for span in spans)
        self.share = 100 / self.total_ms if self.total_ms > 0 else 0.0
        self.mark_gap = timedelta(milliseconds=self.total_ms * MARK_GAP)
        self.path: CriticalPath = find_critical_path(self.children)
        self.ordered = list(walk_tree(self.children))
        self.usage = sum_usage(self.children, [span for span, _ in self.ordered])

    def stage(self, span: Span) -> str:
        below = self.children.get(span.span_id, ())
        return stage_of(span, failed_below=any(child.has_failed for child in below))

    def mark(self, stretch: Stretch) -> Mark:
        begin, end = ((moment - self.first) / timedelta(milliseconds=1) for moment in stretch)
        return Mark(round(begin * self.share, 3), round((end - begin) * self.share, 3))

    def visible_ids(self, words: str, shown: str, results: frozenset[str]) -> set[str] | None:
        """Ids of the spans to show with all that is above them; None: all."""
        if not words and not shown:
            return None
        spans = {span.span_id: span for span, _ in self.ordered}
        keep: set[str] = set()
        for span_id, span in spans.items():
            if not self._is_shown(span, shown) or not self._is_found(span, words, results):
                continue
            above: str | None = span_id
            while above in spans and above not in keep:
                keep.add(above)
                above = spans[above].parent_span_id
        return keep

    def _is_shown(self, span: Span, shown: str) -> bool:
        if shown == "failed":
            return span.has_failed
        if shown == "path":
            return span.span_id in self.path.stretches
        return shown != "stages" or span.kind != "CLIENT" or stage_of(span) != "pipeline"

    def _is_found(self, span: Span, words: str, results: frozenset[str]) -> bool:
        message = f"{span.name} {table_of(span)} {span.status_description} {self._label(span)}".lower()
        return not words or span.span_id in results or words.lower() in message

    def _label(self, span: Span) -> str:
        return describe_span(span, self.usage[span.span_id])

    def rows(self, requested: set[str] | None) -> Iterator[WaterfallRow]:
        """Those that are wanted, at most ROWS_MAX; of many siblings with one name the later ones share a row."""
        details = self._told_together() if requested is None else {}
        skipped: set[str] = set()
        drawn = 0
        for span, depth in self.ordered:
            if span.parent_span_id in skipped or (requested is not None and span.span_id not in requested):
                skipped.add(span.span_id)
                continue
            more = details.get(span.span_id, [])
            if more is None or drawn >= ROWS_MAX:
                skipped.add(span.span_id)
                continue
            drawn += 1
            yield self._row(span, depth, more)

    def _told_together(self) -> dict[str, list[Span] | None]:
        """id of the span whose row stands for others -> those; id of one that has no row -> None."""
        details: dict[str, list[Span] | None] = {}
        for siblings in self.children.values():
            alike: dict[str, list[Span]] = defaultdict(list)
            for span in siblings:
                if not span.has_failed and span.span_id not in self.children:
                    alike[span.name].append(span)
            for spans in alike.values():
                if len(spans) > ALIKE_MAX:
                    last, *rest = spans[ALIKE_MAX - 1 :]
                    details |= {last.span_id: rest} | dict.fromkeys(span.span_id for span in rest)
        return details

    def _row(self, span: Span, depth: int, more: Sequence[Span]) -> WaterfallRow:
        stretches = [part for item in (span, *more) for part in self.path.stretches.get(item.span_id, ())]
        mark = self.mark((span.started_at, max(item.ended_at for item in (span, *more))))
        width = mark.width if self.share else 100.0
        return WaterfallRow(
            span=span,
            depth=depth,
            offset_ms=(span.started_at - self.first) / timedelta(milliseconds=1),
            duration_ms=span.duration_ms,
            left=mark.left,
            width=width,
            stage=self.stage(span),
            critical=[self.mark(stretch) for stretch in _joined(stretches, self.mark_gap)],
            critical_ms=_length_ms(stretches),
            label=self._label(span),
            alike=len(more),
            documents=count_documents(span),
            table=table_of(span),
            alike_ms=sum(item.duration_ms for item in more),
        )

    def waits(self) -> list[Wait]:
        whole = self.total_ms or 1.0
        parts = [(span, _length_ms(self.path.stretches.get(span.span_id, ()))) for span, _ in self.ordered]
        result = [Wait(span, took, took / whole, self.stage(span)) for span, took in parts if took > 0]
        idle = _length_ms(self.path.gaps)
        if idle > 0:
            result.append(Wait(None, idle, idle / whole))
        largest = sorted(result, key=lambda wait: wait.took_ms, reverse=True)[:LARGEST_SHOWN]
        return [wait for wait in largest if wait.share >= WAIT_SHARE_MIN]


def _length_ms(stretches: Sequence[Stretch]) -> float:
    return sum((end - begin) / timedelta(milliseconds=1) for begin, end in stretches)


def _joined(stretches: Sequence[Stretch], gap: timedelta) -> list[Stretch]:
    """The stretches by start, those as one that are nearer to each other than the gap."""
    result: list[Stretch] = []
    for begin, end in sorted(stretches):
        if result and begin - result[-1][1] < gap:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((begin, end))
    return result


def _nest(rows: Sequence[WaterfallRow]) -> list[WaterfallRow]:
    """The rows with what a nested list needs to know: where lists open and close."""
    depths = [*(row.depth for row in rows[1:]), *([0] if rows else [])]
    return [
        replace(row, opens=after > row.depth, closes=range(max(0, row.depth - after)))
        for row, after in zip(rows, depths, strict=True)
    ]
