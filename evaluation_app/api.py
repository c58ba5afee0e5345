"""Spans over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router

from collections_app.api.access import ERRORS
from collections_app.domain.permissions import Permission
from collections_app.http.auth import BearerAuth
from evaluation_app.analysis.comparison.api import router as comparison_router
from evaluation_app.curation.api import router as curation_router
from evaluation_app.experiments.api import router as experiments_router
from evaluation_app.golden.api.sets import router as golden_router
from evaluation_app.history.api import router as history_router
from evaluation_app.reviews.api import router as reviews_router
from evaluation_app.runs.api import router as evaluation_runs_router
from evaluation_app.scoring.api import router as scoring_router
from evaluation_app.spans.search.api import router as spans_router
from evaluation_app.spans.search.schemas import SpanList
from evaluation_app.spans.store.span_reads import flush_pending, run_spans
from retrieval_app.api.queries import find_run

router = Router(auth=BearerAuth(changes=Permission.READ), tags=["telemetry"])
router.add_router("", spans_router)
for part in (
    golden_router,
    evaluation_runs_router,
    comparison_router,
    experiments_router,
    curation_router,
    scoring_router,
    reviews_router,
    history_router,
):
    router.add_router("", part)


@router.get(
    "/runs/{run_id}/spans",
    response={200: SpanList, **ERRORS},
    operation_id="runs-spans",
    summary="The spans of a run, by start",
)
def list_run_spans(request: HttpRequest, run_id: UUID) -> dict[str, Any]:
    """Those of its later evaluations, traces of their own, follow. Spans are written in batches: a run that has just
    ended may be without them for a second."""
    run = find_run(request, run_id)
    flush_pending(run)
    return {"spans": run_spans(run)}
