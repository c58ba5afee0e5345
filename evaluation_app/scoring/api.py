"""Stored runs judged over HTTP, what was said of them, and which share of live traffic is scored."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Router
from ninja.params import functions as param

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.fields import NEXT_CURSOR, Cursor, Limit
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, check_collection_scope, request_key
from collections_app.http.paging import DEFAULT_LIMIT, filter_stated, paginate
from evaluation_app.models import RunScore
from evaluation_app.scoring.run_scores import judge_run
from evaluation_app.scoring.run_settings import RunSettings
from evaluation_app.scoring.sampling import sampling_of, save_sampling
from evaluation_app.scoring.schemas import (
    JudgeRequest,
    RunScoreDetails,
    RunScoreList,
    SamplingIn,
    SamplingOut,
)
from retrieval_app.api.queries import find_run

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

ORDER = ("-asked_at", "-query_run")
DEFAULTS = param.Body(default_factory=JudgeRequest)


@router.post("/runs/{run_id}/judge", operation_id="runs-judge", response={200: RunScoreDetails, **ERRORS})
def judge_one(request: HttpRequest, run_id: UUID, payload: JudgeRequest = DEFAULTS) -> Any:
    """Have a stored run judged now; what was kept of it is replaced. 409 for a run that failed or was turned away."""
    run = find_run(request, run_id)
    settings = RunSettings.from_dict(payload.model_dump())
    return judge_run(run, settings, actor=request_key(request))


@router.get("/runs/{run_id}/scores", operation_id="runs-scores", response={200: RunScoreDetails, **ERRORS})
def get_scores(request: HttpRequest, run_id: UUID) -> Any:
    """What a judge said of a stored run, with the marks. 404 for one that nobody judged by itself."""
    key = request_key(request)
    rows = RunScore.objects.filter(pk=run_id)
    stored = rows.filter(key.visible.by_name("collection_name", "asked_at")).first()
    if stored is None:
        raise ServiceError(
            f"there is no score of a run {run_id} that this key may see; POST /v1/runs/{run_id}/judge makes one",
            type="not_judged",
            status=404,
        )
    return stored


@router.get("/run-scores", operation_id="run-scores-list", response={200: RunScoreList, **ERRORS})
def list_scores(
    request: HttpRequest,
    collection: str | None = None,
    reason: Literal["asked", "sampled"] | None = None,
    mode: str | None = param.Query(None, description="only runs that show this failure mode"),
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Scored runs, those asked last first, without their texts."""
    key = request_key(request)
    if collection is not None:
        check_collection_scope(key, collection)
    rows = RunScore.objects.without_texts().filter(key.visible.by_name("collection_name", "asked_at"))
    stated = {"collection_name": collection, "reason": reason, "modes__contains": [mode] if mode else None}
    return paginate(filter_stated(rows, stated), ORDER, limit=limit, cursor=cursor)


@router.get(
    "/collections/{collection}/sampling", operation_id="collections-sampling-get", response={200: SamplingOut, **ERRORS}
)
def get_sampling(request: HttpRequest, collection: str) -> Any:
    """Which share of the collection's answers is scored while it serves."""
    return sampling_of(find_collection(request, collection).name)


@router.put(
    "/collections/{collection}/sampling", operation_id="collections-sampling-put", response={200: SamplingOut, **ERRORS}
)
def put_sampling(request: HttpRequest, collection: str, payload: SamplingIn) -> Any:
    """Change it. What was asked before it is enabled is left alone."""
    target = find_collection(request, collection)
    return save_sampling(target, **payload.model_dump(), actor=request_key(request))
