"""Evaluation runs over HTTP: asked for, looked at, cancelled, resumed, their results read."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Router, Status
from ninja.params import functions as param

from collections_app.api.access import ERRORS, answer
from collections_app.api.fields import NEXT_CURSOR, Cursor, Limit
from collections_app.domain.permissions import Permission
from collections_app.http.auth import BearerAuth, check_collection_scope, request_key
from collections_app.http.downloads import Reading, download_response
from collections_app.http.paging import DEFAULT_LIMIT, filter_stated, paginate
from collections_app.services.collections.collections import get_collection
from evaluation_app.golden.sets import find_set
from evaluation_app.models import EvaluationRun
from evaluation_app.runs import lifecycle
from evaluation_app.runs.json_lines import run_lines
from evaluation_app.runs.requests import ITEM_DEFERRED, find_run, listed_runs, read_settings
from evaluation_app.runs.schemas import (
    EvaluationItemPage,
    EvaluationRunDeleted,
    EvaluationRunOut,
    EvaluationRunPage,
    EvaluationRunRequest,
)
from retrieval_app.runs.plans import choose_plan

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

ALL = "/evaluation-runs"
ONE = "/evaluation-runs/{run_id}"
ORDER = ("-created_at", "-id")
State = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@router.post(ALL, operation_id="evaluation-runs-create", response={202: EvaluationRunOut, **ERRORS})
def create_run(request: HttpRequest, payload: EvaluationRunRequest) -> HttpResponse:
    """Ask every question of a golden set by one plan, in the background. Plan fields are those of a search.

    409 for a set without questions; 422 for a plan, settings or thresholds that this run cannot have.
    """
    key = request_key(request)
    golden_set = find_set(payload.golden_set, key.visible)
    collection = get_collection(golden_set.collection_name)
    base_run = find_run(payload.base_run, key.visible) if payload.base_run else None

    def produce() -> EvaluationRun:
        chosen = choose_plan(collection, payload.plan, payload.stated())
        return lifecycle.start_run(
            golden_set,
            plan=chosen.plan,
            plan_name=chosen.name,
            settings=read_settings(payload.settings.stated() if payload.settings else {}),
            name=payload.name,
            purpose=EvaluationRun.Purpose.API,
            thresholds=payload.thresholds,
            base_run=base_run,
            actor=key,
        )

    return answer(request, produce, EvaluationRunOut, status=202)


@router.get(ALL, operation_id="evaluation-runs-list", response={200: EvaluationRunPage, **ERRORS})
def list_runs(
    request: HttpRequest,
    golden_set: str | None = None,
    collection: str | None = None,
    state: State | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Newest first, with what each has found so far. A limited key sees those over its collections."""
    key = request_key(request)
    if collection is not None:
        check_collection_scope(key, collection)
    stated = {"set_name": golden_set, "collection_name": collection, "state": state}
    return paginate(filter_stated(listed_runs(key.visible), stated), ORDER, limit=limit, cursor=cursor)


@router.get(ONE, operation_id="evaluation-runs-get", response={200: EvaluationRunOut, **ERRORS})
def get_run(request: HttpRequest, run_id: UUID) -> Any:
    """Header, progress and figures; the figures grow while it runs."""
    return _find(request, run_id)


@router.get(f"{ONE}/results", operation_id="evaluation-runs-results", response={200: EvaluationItemPage, **ERRORS})
def list_results(
    request: HttpRequest,
    run_id: UUID,
    mode: str | None = param.Query(None, description="only questions that show this failure mode"),
    outcome: Literal["answered", "abstained", "refused", "searched", "error"] | None = None,
    content: bool = param.Query(True, description="false: without context, marks, contributions and details"),
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The questions that are done, by their place in the set."""
    rows = _find(request, run_id).items.all()
    if mode is not None:
        rows = rows.none() if "\x00" in mode else rows.filter(modes__contains=[mode])
    if outcome is not None:
        rows = rows.filter(outcome=outcome)
    if not content:
        rows = rows.defer(*ITEM_DEFERRED)
    page = paginate(rows, ("position",), limit=limit, cursor=cursor)
    for item in () if content else page.items:
        for name in ITEM_DEFERRED:
            setattr(item, name, None)
    return page


@router.get(
    f"{ONE}/export",
    operation_id="evaluation-runs-export",
    response={200: None, **ERRORS},
    summary="A run as JSON Lines",
    openapi_extra={"responses": {200: {"content": {"application/jsonl": {}}, "description": "one object per line"}}},
)
def export_run(request: HttpRequest, run_id: UUID) -> StreamingHttpResponse:
    """{"run": header and figures} on the first line, then {"item": ...} for each question that is done."""
    return jsonl_response(request, _find(request, run_id))


@router.post(f"{ONE}/cancel", operation_id="evaluation-runs-cancel", response={200: EvaluationRunOut, **ERRORS})
def cancel_run(request: HttpRequest, run_id: UUID) -> Any:
    """End a run after the question that it is at; what it found stays. 409 when it has ended."""
    return lifecycle.cancel_run(_find(request, run_id), request_key(request))


@router.post(f"{ONE}/resume", operation_id="evaluation-runs-resume", response={202: EvaluationRunOut, **ERRORS})
def resume_run(request: HttpRequest, run_id: UUID) -> Any:
    """Go on with a run that was cancelled or stopped. 409 when nothing is left or it cannot go on."""
    return Status(202, lifecycle.resume_run(_find(request, run_id), request_key(request)))


@router.post(f"{ONE}/retry", operation_id="evaluation-runs-retry", response={202: EvaluationRunOut, **ERRORS})
def retry_run(request: HttpRequest, run_id: UUID) -> Any:
    """Ask again only those questions that failed. 409 when none did."""
    return Status(202, lifecycle.retry_failed(_find(request, run_id), request_key(request)))


@router.delete(ONE, operation_id="evaluation-runs-delete", response={200: EvaluationRunDeleted, **ERRORS})
def delete_run(request: HttpRequest, run_id: UUID) -> Any:
    """With its results. The stored runs of its questions stay. 409 while it is under way."""
    lifecycle.delete_run(_find(request, run_id), request_key(request))
    return {"deleted": 1}


def jsonl_response(request: HttpRequest, run: EvaluationRun) -> StreamingHttpResponse:
    """The run as a download."""
    reading = Reading("evaluationrun.export", f"downloaded evaluation run {run}", run, rows=run.items.count())
    name = f"evaluation-run-{run.pk}.jsonl"
    return download_response(request, run_lines(run), "application/jsonl", name, reading=reading)


def _find(request: HttpRequest, run_id: UUID) -> EvaluationRun:
    return find_run(run_id, request_key(request).visible)
