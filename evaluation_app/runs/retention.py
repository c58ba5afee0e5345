"""What is past its time goes, in batches, and it is told what went: runs with their spans, spans, revisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db import connection
from django.utils import timezone

from collections_app.models import Operation
from collections_app.services.collections.invariant_check import request_check
from collections_app.services.collections.operations import forget_operations, last_operation, running
from collections_app.services.collections.retention import drop_deleted_documents, drop_old_revisions
from evaluation_app.runs.lifecycle import delete_old_evaluations
from evaluation_app.scoring.run_scores import forget_scores
from evaluation_app.spans.store.partitions import maintain
from evaluation_app.spans.store.span_reads import forget_writers
from ragd.store.store import execute
from retrieval_app.runs.query_pipeline import delete_old_runs

CHECK_EVERY = timedelta(hours=24)

# a trace that another run is part of stays
DELETE_SPANS_OF_RUNS = """
DELETE FROM spans s WHERE s.trace_id = ANY(%(traces)s)
  AND NOT EXISTS (SELECT 1 FROM retrieval_app_queryrun r WHERE r.trace_id = s.trace_id)
"""


def apply_retention() -> Operation:
    """Once: delete what is too old by the collections' and the server's numbers; the operation says what went."""
    with running(Operation.Kind.RETENTION, "") as progress:
        spans = 0

        def drop_spans(runs: Sequence[tuple[UUID, str]]) -> None:
            nonlocal spans
            forget_scores([run_id for run_id, _ in runs])
            traces = [trace_id for _, trace_id in runs if trace_id]
            spans += execute(connection, DELETE_SPANS_OF_RUNS, {"traces": traces}) if traces else 0
            progress.tell("runs", spans, 0)

        forget_writers()
        runs = delete_old_runs(on_batch=drop_spans)
        report = {
            "runs": runs,
            "spans_of_runs": spans,
            "spans": maintain().spans,
            "revisions": drop_old_revisions(),
            "deleted_documents": drop_deleted_documents(),
            "evaluation_runs": delete_old_evaluations(),
            "operations": forget_operations(),
        }
        return progress.succeed(report)


def check_daily() -> bool:
    """Have everything checked when that was not done for a day; returns whether it was asked for."""
    newest = last_operation(Operation.Kind.CHECK, "")
    if newest is not None and newest.created_at > timezone.now() - CHECK_EVERY:
        return False
    request_check()
    return True
