"""The span store: partitions made ahead, kept small and dropped in time, and reads of the spans of a run or trace.

Whatever needs a lock on the whole store asks for it briefly and gives up when it is busy, so that requests and writers
never wait long; it tries again, and what is left over is done at the next maintenance.
"""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Max, Min
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from ninja import Field, Schema
from opentelemetry import trace
from psycopg.errors import DeadlockDetected, LockNotAvailable

from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.advisory_locks import LockSpace, session_lock, whole
from collections_app.collections.retention_periods import kept_for
from collections_app.domain.formats import MEGABYTE
from collections_app.http.schemas import IsoTime, Stored
from collections_app.models import Status
from evaluation_app.models import Span
from evaluation_app.models.spans import SpanQuerySet
from ragd import telemetry
from ragd.conventions import Report, validate_all
from retrieval_app.models import QueryRun

WRITER_DAYS = 7
FRESH_S = 10.0
FLUSH_TIMEOUT_MS = 1000
EVALUATE_TYPE = "aitf.rag.evaluate"
PIPELINE_TYPE = "aitf.rag.pipeline"
LATER_MAX = 200  # traces of later evaluations that are read with a run or a trace


class SpanStatus(Schema):
    code: str = Field(validation_alias="status_code")
    description: str = Field(validation_alias="status_description")


class SpanEvent(Schema):
    name: str
    time: str
    attributes: dict[str, Any]


class SpanLink(Schema):
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


class SpanRecord(Schema):
    """A span as it is answered: every vocabulary's attributes under their own names."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start: IsoTime = Field(validation_alias="started_at")
    end: IsoTime = Field(validation_alias="ended_at")
    status: SpanStatus
    attributes: dict[str, Any]
    events: Stored[list[SpanEvent]]
    links: Stored[list[SpanLink]]

    @staticmethod
    def resolve_status(span: Span) -> Span:
        return span


def run_spans(run: QueryRun) -> list[Span]:
    """The run's spans by start: its own, what they stand in (the request), what stands in them; then those that
    evaluated it later, in traces of their own. May be []."""
    # a trace may be that of a caller who asked a thousand times: its tree alone is read first
    tree = _tree(run)
    if not tree:
        return list(Span.objects.of_run(run.pk))
    own = _of_question(tree, run)
    spans = _chosen(Span.objects.of_trace(run.trace_id), tree, own | _ancestors(tree, own))
    return [*spans, *later_spans([run.pk], run.trace_id)]


def question_spans(run: QueryRun, rows: SpanQuerySet) -> list[Span]:
    """The run's own spans and what stands in them, by start, so that they take as long as the run did. May be [].

    rows: the spans to read from, for instance without their content.
    """
    tree = _tree(run)
    if not tree:
        return list(rows.of_run(run.pk).exclude(trace_id__in=_later_traces([run.pk], run.trace_id)))
    return list(_chosen(rows.of_trace(run.trace_id), tree, _of_question(tree, run)))


def later_spans(runs: Sequence[UUID], trace_id: str, rows: SpanQuerySet | None = None) -> list[Span]:
    """The spans of all traces but this one that evaluate these runs, by start; of the newest LATER_MAX."""
    traces = _later_traces(runs, trace_id)
    stored = Span.objects.all() if rows is None else rows
    return list(stored.filter(trace_id__in=traces).order_by("started_at", "id")) if traces else []


def _later_traces(runs: Sequence[UUID], trace_id: str) -> list[str]:
    roots = Span.objects.filter(run_id__in=runs, type=EVALUATE_TYPE, parent_span_id=None).exclude(trace_id=trace_id)
    return list(roots.order_by("-started_at", "-id").values_list("trace_id", flat=True)[:LATER_MAX])


def runs_of_trace(trace_id: str) -> list[UUID]:
    """The runs that spans of the trace name, at most LATER_MAX."""
    named = Span.objects.of_trace(trace_id).exclude(run_id=None).order_by()
    return [pk for pk in named.values_list("run_id", flat=True).distinct()[:LATER_MAX] if pk is not None]


def traces_asked_by(trace_id: str) -> list[str]:
    """The traces of the questions that the trace of an evaluation run asked, each linked to it; at most LATER_MAX."""
    times = Span.objects.of_trace(trace_id).aggregate(first=Min("started_at"), last=Max("ended_at"))
    if times["first"] is None:
        return []
    asked = Span.objects.filter(type=PIPELINE_TYPE, environment=telemetry.EVALUATION, started_at__gte=times["first"])
    linked = asked.filter(started_at__lte=times["last"], links__contains=[{"trace_id": trace_id}])
    return list(linked.order_by("started_at", "id").values_list("trace_id", flat=True)[:LATER_MAX])


def _tree(run: QueryRun) -> list[Span]:
    return list(Span.objects.of_trace(run.trace_id).only("span_id", "parent_span_id", "run_id"))


def _of_question(tree: Sequence[Span], run: QueryRun) -> set[str]:
    own = {span.span_id for span in tree if span.run_id == run.pk}
    return own | _descendants(tree, own)


def _chosen(stored: SpanQuerySet, tree: Sequence[Span], ids: set[str]) -> SpanQuerySet:
    """All of a trace when it is of the run alone, or when nothing in it says of whom it is."""
    return stored.filter(span_id__in=ids) if ids and len(ids) < len(tree) else stored


def trace_spans(trace_id: str, scope: CollectionScope = EVERYTHING) -> list[Span]:
    """A trace's spans by start, for a caller who may see these collections.

    A span without a collection, such as the request, is seen with those that stand in it or that it stands in.
    """
    spans = list(Span.objects.of_trace(trace_id))
    if scope.opened is None:
        return spans
    made_at = dict(scope.opened.values())
    own = {span.span_id for span in spans if span.collection in made_at and span.started_at >= made_at[span.collection]}
    near = own | _ancestors(spans, own) | _descendants(spans, own)
    return [span for span in spans if span.span_id in own or (span.span_id in near and not span.collection)]


def _ancestors(spans: Sequence[Span], ids: set[str]) -> set[str]:
    parents = {span.span_id: span.parent_span_id for span in spans}
    result: set[str] = set()
    for span_id in ids:
        parent = parents.get(span_id)
        while parent and parent not in result:
            result.add(parent)
            parent = parents.get(parent)
    return result


def _descendants(spans: Sequence[Span], ids: set[str]) -> set[str]:
    children: dict[str | None, list[str]] = defaultdict(list)
    for span in spans:
        children[span.parent_span_id].append(span.span_id)
    result: set[str] = set()
    waiting = list(ids)
    while waiting:
        for child in children[waiting.pop()]:
            if child not in result:
                result.add(child)
                waiting.append(child)
    return result


def flush_pending(run: QueryRun) -> None:
    """Let the spans of a run that has only just ended reach the store, if this process made them."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None and (timezone.now() - run.created_at).total_seconds() < FRESH_S:
        flush(FLUSH_TIMEOUT_MS)


def forget_writers() -> int:
    """Forget the counts of processes that wrote nothing for WRITER_DAYS; returns how many."""
    return Status.objects.forget(Status.Kind.SPAN_WRITER, timezone.now() - timedelta(days=WRITER_DAYS))


def lost_spans() -> int:
    """Spans that every process of the last days counted as lost on the way to the span store."""
    return stored_spans().lost


def run_validity(run: QueryRun) -> Mapping[str, Report]:
    return spans_validity(run_spans(run))


def trace_validity(trace_id: str) -> Mapping[str, Report]:
    """Of every span of a trace, an ingest among them; "" and an unknown one have none."""
    return spans_validity(list(Span.objects.of_trace(trace_id)))


def spans_validity(spans: Sequence[Span]) -> Mapping[str, Report]:
    """Vocabulary (AITF, OpenInference, OpenTelemetry GenAI) -> its report; empty reports for no spans."""
    return validate_all([SpanRecord.from_orm(span).dict() for span in spans])


@dataclass(frozen=True, slots=True)
class SentSpans:
    """What all processes of the last days handed to one target. endpoint: "" for the span store, and where nothing was
    ever sent to a collector or refused by it."""

    endpoint: str
    sent: int
    lost: int
    last_error: str
    last_error_at: datetime | None
    updated_at: datetime | None


def stored_spans() -> SentSpans:
    """To the span store."""
    return _add_up(of_collector=False)


def collector_state() -> SentSpans:
    """To a collector."""
    return _add_up(of_collector=True)


def _add_up(*, of_collector: bool) -> SentSpans:
    newest = Status.objects.span_writers().order_by("-made_at")
    rows = [row for row in newest if bool(row.values["endpoint"]) == of_collector]
    counts: list[dict[str, Any]] = [row.values for row in rows]
    failed: dict[str, Any] = max(counts, key=lambda each: each["last_error_at"] or "", default={})
    return SentSpans(
        endpoint=rows[0].values["endpoint"] if rows else "",
        sent=sum(each["written"] for each in counts),
        lost=sum(each["lost"] for each in counts),
        last_error=failed.get("last_error", ""),
        last_error_at=parse_datetime(failed.get("last_error_at") or ""),
        updated_at=rows[0].made_at if rows else None,
    )


log = logging.getLogger(__name__)

AHEAD = timedelta(days=2)
DAY = timedelta(days=1)
LOCK_WAIT_MS = 40  # nobody waits behind a request for a lock longer than this
LOCK_TRIES = 50
LOCK_PAUSE_S = 0.1
SPLIT_MARGIN = timedelta(minutes=2)  # a new partition begins this long after now: no span of then is written yet
PARTITIONS_MIN = 8  # into which a store at its limit is cut at least
PARTITION_BYTES_MAX = 1000 * MEGABYTE
BATCH = 2000
PAUSE_S = 0.05
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

SELECT_PARTITIONS = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), size
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid, pg_total_relation_size(c.oid) AS size
WHERE i.inhparent = 'spans'::regclass AND size IS NOT NULL  -- NULL: dropped since this statement began
"""
SELECT_LEFTOVERS = r"""
SELECT c.relname FROM pg_class c
WHERE c.relkind = 'r' AND NOT c.relispartition AND c.relname ~ '^spans_p\d{8}'
  AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'spans'::regclass)
ORDER BY c.relname
"""
SELECT_CHECKS = r"""
SELECT conrelid::regclass::text FROM pg_constraint WHERE conname ~ '^spans_p\d{8}(_\d+)?_part$' ORDER BY 1
"""
DEFAULT_DAYS = """
SELECT DISTINCT date_trunc('day', started_at, 'UTC') FROM spans_default
WHERE started_at >= %(since)s AND started_at < %(until)s ORDER BY 1
"""
DELETE_FROM_DEFAULT = """
WITH old AS MATERIALIZED (
    SELECT started_at, id FROM spans_default WHERE started_at < %(before)s
    ORDER BY started_at, id LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
DELETE FROM spans_default AS s USING old WHERE s.started_at = old.started_at AND s.id = old.id
"""
SET_LOCK_WAIT = "SELECT set_config('lock_timeout', %(wait)s, true)"

# {name}, {check}: identifiers of ours; {lower}, {upper}: times that were parsed. None of them comes from outside.
CREATE_ALONE = "CREATE TABLE {name} (LIKE spans INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)"
ATTACH = "ALTER TABLE spans ATTACH PARTITION {name} FOR VALUES FROM ('{lower}') TO ('{upper}')"
DETACH = "ALTER TABLE spans DETACH PARTITION {name}"
DROP = "DROP TABLE IF EXISTS {name}"
COUNT = "SELECT count(*) FROM {name}"
COUNT_IN_DEFAULT = "SELECT count(*) FROM spans_default WHERE started_at < %(before)s"
LOCK_DEFAULT = "LOCK TABLE spans_default IN ACCESS EXCLUSIVE MODE"
MOVE = """
WITH gone AS (DELETE FROM spans_default WHERE started_at >= '{lower}' AND started_at < '{upper}' RETURNING *)
INSERT INTO {name} SELECT * FROM gone
"""
ADD_CHECK = """
ALTER TABLE {name} ADD CONSTRAINT {name}_part CHECK (started_at >= '{lower}' AND started_at < '{upper}') NOT VALID
"""
VALIDATE_CHECK = "ALTER TABLE {name} VALIDATE CONSTRAINT {name}_part"
DROP_CHECK = "ALTER TABLE {name} DROP CONSTRAINT IF EXISTS {name}_part"
BOUNDS = re.compile(r"FROM \('([^']+)'\) TO \('([^']+)'\)")


@dataclass(frozen=True, slots=True)
class Partition:
    """A table of the spans that began from `lower` until before `upper`; both None: the default partition."""

    name: str
    lower: datetime | None
    upper: datetime | None
    bytes: int

    @property
    def is_default(self) -> bool:
        return self.lower is None


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What one round did: partitions made, ended and dropped, spans moved out of the default one and deleted."""

    made: int = 0
    moved: int = 0
    split: int = 0
    dropped: int = 0
    spans: int = 0


class StoreBusy(Exception):
    """The lock on the span store was not to be had within the tries; nothing was changed."""


def list_partitions() -> list[Partition]:
    """By time, the default partition last. One query."""
    result = [_partition(*row) for row in _rows(SELECT_PARTITIONS)]
    return sorted(result, key=lambda each: (each.is_default, each.lower or datetime.max.replace(tzinfo=UTC)))


def maintain(now: datetime | None = None, *, keep_days: int | None = None, max_mb: int | None = None) -> Maintenance:
    """One round: partitions made ahead, the default one emptied into them, large ones ended, old ones dropped.

    keep_days, max_mb: the server's numbers unless stated; 0 is no limit. Must run outside a transaction. Of two rounds
    at the same time one does nothing. What the store is too busy for waits for the next.
    """
    moment = now or timezone.now()
    days = kept_for("span_days") if keep_days is None else keep_days
    limit = (kept_for("span_mb") if max_mb is None else max_mb) * MEGABYTE
    with session_lock(whole(LockSpace.SPAN_PARTITIONS)) as mine:
        if not mine:
            return Maintenance()
        drop_leftovers()
        made = make_ahead(moment, days)
        moved = empty_default(moment, days)
        split = split_large(moment, limit)
        dropped, spans = drop_old(moment, days, limit)
        if days:
            spans += delete_from_default(moment - timedelta(days=days))
        return Maintenance(made, moved, split, dropped, spans)


def width(keep_days: int) -> timedelta:
    """How much time a partition takes: a day, and more where spans are kept for months, so that there are few."""
    return DAY * (min(30, max(1, keep_days // 30)) if keep_days else 30)


def make_ahead(now: datetime, keep_days: int) -> int:
    """Partitions from today to beyond AHEAD, without a gap; returns how many were made."""
    made, lower = 0, max([_midnight(now), *(each.upper for each in list_partitions() if each.upper)])
    while lower < now + AHEAD:
        upper = lower + width(keep_days)
        if _add(lower, upper) is None:
            break
        made, lower = made + 1, upper
    return made


def empty_default(now: datetime, keep_days: int) -> int:
    """Move what the default partition holds into partitions of its days; returns how many spans moved.

    Spans that are too old or too far ahead stay where they are. A reader sees each span once, before and after.
    """
    since = now - timedelta(days=keep_days) if keep_days else LONG_AGO
    moved = 0
    for (day,) in _rows(DEFAULT_DAYS, {"since": since, "until": now + AHEAD}):
        for lower, upper in gaps(list_partitions(), day, day + DAY):
            moved += _add(lower, upper) or 0
    return moved


def gaps(partitions: Sequence[Partition], lower: datetime, upper: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The parts of [lower, upper) that no partition takes. partitions: by time."""
    for each in partitions:
        if each.lower is None or each.upper is None or each.upper <= lower or each.lower >= upper:
            continue
        if each.lower > lower:
            yield lower, each.lower
        lower = each.upper
    if lower < upper:
        yield lower, upper


def split_large(now: datetime, limit_bytes: int) -> int:
    """End the partition that is being written where it takes too much of the store, so that old spans can go by whole
    partitions; the rest of its time is another's. Returns how many were ended."""
    largest = min(PARTITION_BYTES_MAX, limit_bytes // PARTITIONS_MIN or PARTITION_BYTES_MAX)
    at = now + SPLIT_MARGIN
    for each in list_partitions():
        if each.lower is not None and each.upper is not None and each.lower <= now and at < each.upper:
            return int(each.bytes > largest and _split(each, at))
    return 0


def drop_old(now: datetime, keep_days: int, limit_bytes: int) -> tuple[int, int]:
    """Drop partitions that are wholly older than `keep_days`, then the oldest until the store is within its limit.

    What is not over yet stays. Returns (partitions, spans) that went; either limit may be 0 for none.
    """
    dropped = spans = 0
    for each in expired_partitions(now, keep_days, limit_bytes):
        if (count := _drop(each)) is None:
            break
        dropped, spans = dropped + 1, spans + count
    return dropped, spans


def expired_partitions(now: datetime, keep_days: int, limit_bytes: int) -> list[Partition]:
    """Those that `drop_old` drops, the oldest first."""
    partitions = list_partitions()
    total = sum(each.bytes for each in partitions)
    before = now - timedelta(days=keep_days) if keep_days else LONG_AGO
    expired = []
    for each in partitions:
        if each.upper is None or each.upper > now:
            continue
        if each.upper <= before or (limit_bytes and total > limit_bytes):
            expired.append(each)
            total -= each.bytes
    return expired


def count_expired(now: datetime, keep_days: int, max_mb: int) -> int:
    """How many spans a round would delete with these limits; either may be 0 for none."""
    parts = expired_partitions(now, keep_days, max_mb * MEGABYTE)
    count = sum(int(_rows(COUNT.format(name=each.name))[0][0]) for each in parts)
    before = now - timedelta(days=keep_days) if keep_days else LONG_AGO
    return count + int(_rows(COUNT_IN_DEFAULT, {"before": before})[0][0])


def delete_from_default(before: datetime, *, batch: int = BATCH) -> int:
    """Delete what the default partition holds of spans that began before, a batch at a time; returns how many went."""
    deleted = 0
    while True:
        went = _execute(DELETE_FROM_DEFAULT, {"before": before, "batch": batch})
        deleted += went
        if went < batch:
            return deleted
        time.sleep(PAUSE_S)


def drop_leftovers() -> None:
    """What a round that was cut off left: tables that were taken out or never taken in, checks that refuse spans."""
    for (name,) in _rows(SELECT_LEFTOVERS):
        _execute(DROP.format(name=name))
    for (name,) in _rows(SELECT_CHECKS):
        _drop_check(name)


def _add(lower: datetime, upper: datetime) -> int | None:
    """A partition for [lower, upper); how many spans moved into it, None when the store was busy."""
    values = {"name": _name(lower), "lower": lower.isoformat(), "upper": upper.isoformat()}
    try:
        with transaction.atomic():
            _execute(CREATE_ALONE.format(**values))
            moved = _execute(MOVE.format(**values))
            late = 0

            def take_in() -> None:
                nonlocal late
                _execute(LOCK_DEFAULT)
                late = _execute(MOVE.format(**values))  # what was written meanwhile
                _execute(ATTACH.format(**values))

            _patiently(take_in)
            moved += late
            return moved
    except StoreBusy as error:
        log.info("the partition %s is made later: %s", values["name"], error)
        return None


def _split(each: Partition, at: datetime) -> bool:
    """Let a partition end at `at` and another take over. The check lets it be attached again without being read; while
    it stands, no span that begins at `at` or later can be written, so all is undone when that time comes near."""
    assert each.lower is not None and each.upper is not None
    old = {"name": each.name, "lower": each.lower.isoformat(), "upper": at.isoformat()}
    new = {"name": _name(at), "lower": at.isoformat(), "upper": each.upper.isoformat()}
    began = time.monotonic()

    def exchange() -> None:
        _execute(DETACH.format(**old))
        _execute(ATTACH.format(**old))
        _execute(CREATE_ALONE.format(**new))
        _execute(ATTACH.format(**new))

    try:
        _patiently(lambda: _execute(ADD_CHECK.format(**old)))
        _execute(VALIDATE_CHECK.format(**old))
        if time.monotonic() - began > SPLIT_MARGIN.total_seconds() / 2:
            raise StoreBusy("reading it took too long")
        _patiently(exchange)
        return True
    except (StoreBusy, IntegrityError) as error:
        log.info("the partition %s is ended later: %s", each.name, error)
        return False
    finally:
        _drop_check(each.name)


def _drop_check(name: str) -> None:
    try:
        _patiently(lambda: _execute(DROP_CHECK.format(name=name)))
    except StoreBusy as error:
        log.warning("the check of %s is dropped in the next round; until then it may refuse spans: %s", name, error)


def _drop(each: Partition) -> int | None:
    """Take a partition out and drop its table; how many spans it held, None when the store was busy."""
    try:
        _patiently(lambda: _execute(DETACH.format(name=each.name)))
    except StoreBusy as error:
        log.info("the partition %s is dropped later: %s", each.name, error)
        return None
    ((count,),) = _rows(COUNT.format(name=each.name))
    _execute(DROP.format(name=each.name))
    return int(count)


def _patiently(action: Callable[[], object]) -> None:
    """Do it in a transaction (a savepoint inside of one), waiting for each lock LOCK_WAIT_MS at most, time after time.

    Raises StoreBusy when the locks were never to be had.
    """
    for _ in range(LOCK_TRIES):
        try:
            with transaction.atomic():
                _execute(SET_LOCK_WAIT, {"wait": str(LOCK_WAIT_MS)})
                action()
                return
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable | DeadlockDetected):
                raise
            time.sleep(LOCK_PAUSE_S)
    raise StoreBusy(f"no lock within {LOCK_TRIES} tries of {LOCK_WAIT_MS} ms")


def _partition(name: str, bounds: str, size: int) -> Partition:
    match = BOUNDS.search(bounds)
    if match is None:
        return Partition(name, None, None, size)
    lower, upper = (datetime.fromisoformat(text).astimezone(UTC) for text in match.groups())
    return Partition(name, lower, upper, size)


def _name(lower: datetime) -> str:
    clock = f"_{lower:%H%M%S}" if lower.time() != datetime.min.time() else ""
    return f"spans_p{lower:%Y%m%d}{clock}"


def _midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _rows(sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def _execute(sql: str, params: Mapping[str, Any] | None = None) -> int:
    """How many rows it touched."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)
