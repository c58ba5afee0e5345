"""Spans over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest

from collections_app.access.auth import BearerAuth, Router
from collections_app.access.permissions import Permission
from evaluation_app.curation.api import router as curation_router
from evaluation_app.experiments.api import router as experiments_router
from evaluation_app.failures.views import router as history_router
from evaluation_app.golden.api import router as golden_router
from evaluation_app.runs.api import router as evaluation_runs_router
from evaluation_app.runs.comparison.api import router as comparison_router
from evaluation_app.scoring.api import router as scoring_router
from evaluation_app.telemetry.search.api import SpanList
from evaluation_app.telemetry.search.api import router as spans_router
from evaluation_app.telemetry.store.span_store import flush_pending, run_spans
from retrieval_app.search.api import find_run

router = Router(auth=BearerAuth(changes=Permission.READ), tags=["telemetry"])
router.add_router("", spans_router)
for part in (
    golden_router,
    evaluation_runs_router,
    comparison_router,
    experiments_router,
    curation_router,
    scoring_router,
    history_router,
):
    router.add_router("", part)


@router.get("/runs/{run_id}/spans", response=SpanList, operation_id="runs-spans")
def list_run_spans(request: HttpRequest, run_id: UUID) -> dict[str, Any]:
    """The spans of a run, by start.

    Those of its later evaluations, traces of their own, follow. Spans are written in batches: a run that has just
    ended may be without them for a second.
    """
    run = find_run(request, run_id)
    flush_pending(run)
    return {"spans": run_spans(run)}
