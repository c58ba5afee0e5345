"""Runs as JSON Lines, made while the file is read: which and when, and the minimal logging fields.

Query runs that are too old: which they are, and their end.

Query runs by a score of their evaluations, as a higher floor knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from collections_app.audit.services import Subject
from collections_app.collections.retention_periods import kept_for
from collections_app.http.downloads import DownloadSlots, LimitedDownload, Reading, download_response, read_batches
from collections_app.models import Collection
from ragd.errors import InvalidInput
from ragd.types import canonical_json
from retrieval_app.chat.models import forget_runs
from retrieval_app.models import QueryRun
from retrieval_app.runs.models import QueryRunQuerySet

JSON_LINES = "application/x-ndjson"
LOGS_AT_ONCE = 3  # in one process: each takes a thread of the server until its reader has read it
TOKENS = ("context_tokens", "generation_tokens", "total_tokens")
NEEDED = (
    "query", "retrieved_ids", "answer", "citations", "trace_scores", "retrieval_confidence", "doc_contribution_scores",
    "retrieval_action", "fallback_triggered", "token_usage", "created_at", "timings_ms",
)  # fmt: skip

_slots = DownloadSlots(LOGS_AT_ONCE, "runs")


def log_record(run: QueryRun) -> dict[str, Any]:
    """id, created_at, finished_at, and the minimal logging fields under their own names; what is not known is None.

    citations: ids of the cited documents. trace_scores and doc_contribution_scores: None until the run was scored.
    answer and token_usage: None for a search.
    """
    return {
        "id": str(run.pk),
        "created_at": run.created_at.isoformat(),
        "finished_at": run.finished_at.isoformat(),
        "query": run.query,
        "retrieved_ids": run.retrieved_ids,
        "answer": run.answer,
        "citations": run.cited_ids,
        "trace_scores": run.trace_scores,
        "retrieval_confidence": run.retrieval_confidence,
        "doc_contribution_scores": run.doc_contribution_scores,
        "retrieval_action": run.retrieval_action or None,
        "fallback_triggered": run.fallback_triggered,
        "token_usage": {name: run.token_usage.get(name) for name in TOKENS} if run.token_usage else None,
    }


class RunLog(LimitedDownload):
    """A file of runs, newest first, that is made while it is read: iterate it for its bytes, once; `close` ends it.

    Each batch is read by a statement of its own, so that no transaction stays open, however slow the reader. limit: at
    most so many runs. Raises ServiceError 429 when LOGS_AT_ONCE are read from this process already.
    """

    def __init__(self, rows: QueryRunQuerySet, *, limit: int | None = None) -> None:
        self._rows, self._limit = rows, limit
        super().__init__(_slots, _write(rows, limit))

    def count_rows(self) -> int:
        """How many runs it holds now."""
        return self._rows.count() if self._limit is None else self._rows[: self._limit].count()


def _write(rows: QueryRunQuerySet, limit: int | None) -> Generator[bytes]:
    for batch in read_batches(rows.only(*NEEDED), "created_at", newest_first=True, limit=limit):
        yield "".join(f"{canonical_json(log_record(run))}\n" for run in batch).encode()


def send_log(request: HttpRequest, log: RunLog) -> StreamingHttpResponse:
    """The answer that downloads the file."""
    reading = Reading("queryrun.export", "downloaded the run log", subject=Subject("queryrun"), rows=log.count_rows())
    return download_response(request, log, JSON_LINES, log_name(timezone.now()), reading=reading)


def log_name(now: datetime) -> str:
    """ "runs-20260131-120000.jsonl", in UTC."""
    return f"runs-{now:%Y%m%d-%H%M%S}.jsonl"


DELETE_BATCH = 500

OnDeleted = Callable[[Sequence[tuple[UUID, str]]], object]


def delete_old_runs(days: int | None = None, *, on_batch: OnDeleted = lambda runs: None) -> int:
    """Delete runs that are too old, in batches; returns how many went.

    days: of every run; None: what the run's collection states (retention.runs_days), else the server's number,
    which also holds for runs of collections that are gone. 0 keeps all. on_batch: told (id, trace id) of what has gone.
    """
    if days is not None:
        return _delete(_older(QueryRun.objects.all(), days), on_batch)
    return sum(_delete(rows, on_batch) for rows in expired_runs(kept_for("runs_days")))


def expired_runs(days: int) -> list[QueryRunQuerySet]:
    """Runs that are too old by their collection's number, else by `days`; 0 keeps all. One part per number."""
    explicit: dict[int, int] = {}
    for pk, retention in Collection.objects.live().values_list("pk", "retention"):
        if retention.get("runs_days") is not None:
            explicit[pk] = int(retention["runs_days"])
    rest = QueryRun.objects.filter(Q(collection_id=None) | ~Q(collection_id__in=list(explicit)))
    own = [_older(QueryRun.objects.filter(collection_id=pk), its_days) for pk, its_days in explicit.items()]
    return [_older(rest, days), *own]


def _older(rows: QueryRunQuerySet, days: int) -> QueryRunQuerySet:
    return rows.filter(created_at__lt=timezone.now() - timedelta(days=days)) if days else rows.none()


def _delete(old: QueryRunQuerySet, on_batch: OnDeleted) -> int:
    deleted = 0
    while batch := list(old.values_list("pk", "trace_id")[:DELETE_BATCH]):
        ids = [pk for pk, _ in batch]
        forget_runs(ids)
        deleted += QueryRun.objects.filter(pk__in=ids).delete()[0]
        on_batch(batch)
    return deleted


ScoreFilter = Callable[[str, float | None, float | None], Q]

_FILTERS: dict[str, tuple[tuple[str, ...], ScoreFilter]] = {}


def register_scores(name: str, measures: Sequence[str], condition: ScoreFilter) -> None:
    """measures: what a field offers. condition: see `scored`; it raises InvalidInput for an unknown measure.
    A second of the name replaces it."""
    _FILTERS[name] = (tuple(measures), condition)


def offered_measures() -> list[str]:
    """In the order in which they were registered."""
    return [measure for measures, _ in _FILTERS.values() for measure in measures]


def scored(measure: str, below: float | None = None, above: float | None = None) -> Q:
    """Runs that have a score of the measure, below and above these; None: whatever it is. Raises InvalidInput for an
    unknown measure, and for any where nothing is registered."""
    condition = Q(pk__in=[])
    for _, of_measure in _FILTERS.values():
        condition |= of_measure(measure, below, above)
    if not _FILTERS:
        raise InvalidInput(f"no scores are known here, so none of {measure!r}", field="measure")
    return condition
