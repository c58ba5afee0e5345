"""Evaluation runs over HTTP: asked for, looked at, cancelled, resumed, their results read."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Query, Status
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, answer, check_collection_scope, request_key
from collections_app.access.permissions import Permission
from collections_app.collections.services import get_collection
from collections_app.http.downloads import Reading, download_response
from collections_app.http.fields import NEXT_CURSOR, Cursor, Limit, also_as
from collections_app.http.paging import DEFAULT_LIMIT, filter_stated, paginate
from collections_app.http.schemas import PageOf, RowsDeleted
from evaluation_app.golden.sets import find_set
from evaluation_app.models import EvaluationRun
from evaluation_app.reviews.agreement import anchored_scores
from evaluation_app.runs import lifecycle, schemas
from evaluation_app.runs.lifecycle import RunRequest
from evaluation_app.runs.reports import run_lines
from evaluation_app.runs.requests import ITEM_DEFERRED, find_run, listed_runs, read_settings
from retrieval_app.plans.services import choose_plan

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

ALL = "/evaluation-runs"
ONE = "/evaluation-runs/{run_id}"
ORDER = ("-created_at", "-id")
State = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@router.post(ALL, operation_id="evaluation-runs-create", response={202: schemas.EvaluationRunOut})
def create_evaluation_run(request: HttpRequest, payload: schemas.EvaluationRunRequest) -> HttpResponse:
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
            RunRequest(
                plan=chosen.plan,
                plan_name=chosen.name,
                settings=read_settings(payload.settings.stated() if payload.settings else {}),
                name=payload.name,
                purpose=EvaluationRun.Purpose.API,
                thresholds=payload.thresholds,
                base_run=base_run,
            ),
            actor=key,
        )

    return answer(request, produce, schemas.EvaluationRunOut, status=202)


@router.get(ALL, operation_id="evaluation-runs-list", response=PageOf[schemas.EvaluationRunOut])
def list_evaluation_runs(
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


@router.get(ONE, operation_id="evaluation-runs-get", response=schemas.EvaluationRunDetail)
def get_evaluation_run(
    request: HttpRequest,
    run_id: UUID,
    anchored: bool = param.Query(False, description="with the scores that people's labels correct"),
) -> Any:
    """Header, progress and figures; the figures grow while it runs."""
    run = _find(request, run_id)
    run.anchored_scores = anchored_scores(run) if anchored else None  # type: ignore[attr-defined]
    return run


@router.get(
    f"{ONE}/results",
    operation_id="evaluation-runs-results",
    response=PageOf[schemas.EvaluationItemOut],
    openapi_extra=also_as("application/jsonl"),
)
def list_evaluation_results(
    request: HttpRequest,
    run_id: UUID,
    query: Query[schemas.ResultQuery],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The questions that are done, by their place in the set.

    format jsonl: the whole run, {"run": header and figures} on the first line, then {"item": ...} for each question.
    """
    run = _find(request, run_id)
    if query.format == "jsonl":
        return jsonl_response(request, run)
    rows = run.items.all()
    if query.mode is not None:
        rows = rows.none() if "\x00" in query.mode else rows.filter(modes__contains=[query.mode])
    if query.outcome is not None:
        rows = rows.filter(outcome=query.outcome)
    if not query.content:
        rows = rows.defer(*ITEM_DEFERRED)
    page = paginate(rows, ("position",), limit=limit, cursor=cursor)
    for item in () if query.content else page.items:
        for name in ITEM_DEFERRED:
            setattr(item, name, None)
    return page


@router.patch(ONE, operation_id="evaluation-runs-change", response={frozenset({200, 202}): schemas.EvaluationRunOut})
def change_evaluation_run(request: HttpRequest, run_id: UUID, payload: schemas.EvaluationRunChange) -> Any:
    """cancelled: end a run after the question that it is at; what it found stays. 409 when it has ended.

    queued (202): go on with a run that was cancelled or stopped; with only_failed ask those questions again that
    failed. 409 when nothing is left, or it cannot go on.
    """
    run, key = _find(request, run_id), request_key(request)
    if payload.state == "cancelled":
        return lifecycle.cancel_run(run, key)
    return Status(202, (lifecycle.retry_failed if payload.only_failed else lifecycle.resume_run)(run, key))


@router.delete(ONE, operation_id="evaluation-runs-delete", response=RowsDeleted)
def delete_evaluation_run(request: HttpRequest, run_id: UUID) -> Any:
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
