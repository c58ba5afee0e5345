"""Runs as JSON Lines, made while the file is read: which and when, and the minimal logging fields."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from collections_app.http.downloads import DownloadSlots, LimitedDownload, Reading, download_response, read_batches
from ragd.types import canonical_json
from retrieval_app.models import QueryRun
from retrieval_app.models.runs import QueryRunQuerySet

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
    reading = Reading("queryrun.export", "downloaded the run log", subject_kind="queryrun", rows=log.count_rows())
    return download_response(request, log, JSON_LINES, log_name(timezone.now()), reading=reading)


def log_name(now: datetime) -> str:
    """ "runs-20260131-120000.jsonl", in UTC."""
    return f"runs-{now:%Y%m%d-%H%M%S}.jsonl"
