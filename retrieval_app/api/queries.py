"""Search, answers and runs over HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from ninja import Field, Query, Router
from ninja.params import functions as param

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.fields import NEXT_CURSOR, Cursor, Limit, accepts
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, check_collection_scope, request_key
from collections_app.http.paging import DEFAULT_LIMIT, LIMIT_MAX, paginate
from retrieval_app.api.answer_streams import event_response, frame_event, wants_events
from retrieval_app.api.calibrations import router as corrective_router
from retrieval_app.api.event_schemas import ASK_EVENTS
from retrieval_app.api.handlers import run_ask, run_search, stream_ask
from retrieval_app.api.lineage import router as lineage_router
from retrieval_app.api.plans import router as plan_router
from retrieval_app.api.receipt_schemas import Receipt, ReceiptKey
from retrieval_app.api.responses import json_response
from retrieval_app.api.schemas import (
    AskRequest,
    AskResponse,
    ListedRunFilters,
    Replay,
    Run,
    RunFilters,
    RunList,
    SearchRequest,
    SearchResponse,
)
from retrieval_app.api.unretrieved_documents import router as never_router
from retrieval_app.models import QueryRun
from retrieval_app.receipts.receipts import make_receipt
from retrieval_app.receipts.signing import own_key
from retrieval_app.runs.replay import replay
from retrieval_app.runs.run_log import JSON_LINES, RunLog, send_log

router = Router(auth=BearerAuth(changes=Permission.ASK))
router.add_router("", plan_router)
router.add_router("", lineage_router)
router.add_router("", never_router)
router.add_router("", corrective_router)


@router.post(
    "/collections/{collection}/search",
    response={200: SearchResponse, **ERRORS},
    operation_id="collections-search",
    tags=["search"],
    summary="Find the best chunks of a collection",
)
def search_collection(request: HttpRequest, collection: str, payload: SearchRequest) -> HttpResponse:
    target = find_collection(request, collection)
    return json_response(run_search(target, payload, channel="api", api_key=request_key(request)))


@router.post(
    "/collections/{collection}/ask",
    response={200: AskResponse, **ERRORS},
    operation_id="collections-ask",
    tags=["search"],
    summary="Answer a question from a collection, with checked citations",
    openapi_extra=ASK_EVENTS,
)
def ask_collection(request: HttpRequest, collection: str, payload: AskRequest) -> HttpResponse | StreamingHttpResponse:
    """Asked for text/event-stream it answers server-sent events: search_results, token, citation, final, error."""
    target, key = find_collection(request, collection), request_key(request)
    if not wants_events(request):
        return json_response(run_ask(target, payload, channel="api", api_key=key))
    stream = stream_ask(target, payload, channel="api", api_key=key)
    stream.start()
    return event_response(request, stream, frame_event)


@router.get(
    "/runs",
    response={200: RunList, **ERRORS},
    operation_id="runs-list",
    tags=["runs"],
    summary="Stored queries, newest first",
)
def list_runs(
    request: HttpRequest,
    filters: Query[ListedRunFilters],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> HttpResponse:
    key = request_key(request)
    if filters.collection is not None:
        check_collection_scope(key, filters.collection)
    rows = QueryRun.objects.visible_to(key.visible).filtered(**filters.dict()).for_lists()
    page = paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)
    return json_response(RunList.from_orm(page))


@router.get(
    "/runs/export",
    response={200: None, **ERRORS},
    operation_id="runs-export",
    tags=["runs"],
    summary="Stored queries as JSON Lines with the minimal logging fields",
    openapi_extra={"responses": {200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}}}},
)
def export_runs(
    request: HttpRequest,
    filters: Query[RunFilters],
    limit: Annotated[int, Field(ge=1), accepts(maximum=LIMIT_MAX)] | None = param.Query(
        None, description="at most so many, the newest"
    ),
) -> StreamingHttpResponse:
    """A stream, newest first. 429 when three downloads run already."""
    key = request_key(request)
    if filters.collection is not None:
        check_collection_scope(key, filters.collection)
    rows = QueryRun.objects.visible_to(key.visible).filtered(**filters.dict())
    return send_log(request, RunLog(rows, limit=limit))


@router.get(
    "/runs/{run_id}",
    response={200: Run, **ERRORS},
    operation_id="runs-get",
    tags=["runs"],
    summary="One stored query, with the minimal logging fields",
)
def get_run(request: HttpRequest, run_id: UUID) -> HttpResponse:
    return json_response(Run.from_orm(find_run(request, run_id)))


@router.get(
    "/runs/{run_id}/receipt",
    response={200: Receipt, **ERRORS},
    operation_id="runs-receipt",
    tags=["runs"],
    summary="A signed record of a stored query",
)
def get_receipt(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """The signature is over the canonical JSON of receipt; docs/history.md says how it is verified."""
    return JsonResponse(make_receipt(find_run(request, run_id)), json_dumps_params={"ensure_ascii": False})


@router.get(
    "/receipt-key",
    response={200: ReceiptKey, **ERRORS},
    operation_id="receipt-key-get",
    tags=["runs"],
    summary="The public key that receipts are verified with",
)
def get_receipt_key(request: HttpRequest) -> HttpResponse:
    return JsonResponse(own_key().as_dict())


@router.post(
    "/runs/{run_id}/replay",
    response={200: Replay, **ERRORS},
    operation_id="runs-replay",
    tags=["runs"],
    summary="Run a stored plan and question again, and compare the rankings",
)
def replay_run(request: HttpRequest, run_id: UUID) -> HttpResponse:
    replayed = replay(find_run(request, run_id), channel="api", api_key=request_key(request))
    return json_response(Replay.from_orm(replayed))


def find_run(request: HttpRequest, run_id: UUID) -> QueryRun:
    """The run, if the key may see its collection. Raises ServiceError 404."""
    run = QueryRun.objects.visible_to(request_key(request).visible).select_related("user").filter(pk=run_id).first()
    if run is None:
        raise ServiceError(
            f"there is no run {run_id} that this key may see; GET /v1/runs lists the runs that there are",
            type="unknown_run",
            status=404,
        )
    return run
