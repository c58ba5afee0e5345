"""Search, answers and runs over HTTP.

One request, one answer: what REST, MCP and the chat facade do with the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from ninja import Field, Query
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, check_collection_scope, find_collection, request_key
from collections_app.access.permissions import Permission
from collections_app.errors import UnknownError
from collections_app.http.paging import DEFAULT_LIMIT, LIMIT_MAX, paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, PageOf, accepts, also_as
from collections_app.models import ApiKey, Collection
from ragd.types import RetrievePlan
from retrieval_app.answers import streams
from retrieval_app.models import QueryRun
from retrieval_app.plans.api import corrective_router
from retrieval_app.plans.api import router as plan_router
from retrieval_app.plans.services import choose_plan
from retrieval_app.playground.ranking import RetrievalRecorder, explain
from retrieval_app.runs.lineage_api import router as lineage_router
from retrieval_app.runs.lineage_api import unretrieved_router
from retrieval_app.runs.models import RunFilter
from retrieval_app.runs.receipts import make_receipt, own_key, replay
from retrieval_app.runs.run_log import JSON_LINES, RunLog, send_log
from retrieval_app.search import schemas
from retrieval_app.search.fallbacks import check_overrides
from retrieval_app.search.query_pipeline import QueryRequest, RunListener, ask, search

SomeResponse = TypeVar("SomeResponse", bound=schemas.SearchResponse)


def run_search(
    collection: Collection, payload: schemas.SearchRequest, *, channel: str, api_key: ApiKey | None
) -> schemas.SearchResponse:
    """The answer to a search, the same for REST and MCP."""
    chosen = choose_plan(collection, payload.plan, payload.stated())
    request = QueryRequest(
        collection, payload.query, chosen.plan, channel, plan_name=chosen.name, api_key=api_key, as_of=payload.as_of,
        calibrations=chosen.calibrations,
    )  # fmt: skip
    recorder = RetrievalRecorder() if payload.explain else None
    run = search(request, retrieve=recorder)
    return _explained(schemas.SearchResponse.from_orm(run), collection, payload, chosen.plan, recorder)


def run_ask(
    collection: Collection,
    payload: schemas.AskRequest,
    *,
    channel: str,
    api_key: ApiKey | None,
    history: Sequence[Mapping[str, str]] = (),
    listener: RunListener | None = None,
) -> schemas.AskResponse:
    """The answer to a question, the same for REST, MCP and chat. listener: told of it while it is made.

    Raises ServiceError 403 as `check_overrides`.
    """
    check_overrides(collection, payload.llm_model, payload.system_prompt)
    chosen = choose_plan(collection, payload.plan, payload.stated())
    request = QueryRequest(
        collection, payload.query, chosen.plan, channel, plan_name=chosen.name, api_key=api_key, as_of=payload.as_of,
        llm_model=payload.llm_model, system_prompt=payload.system_prompt, history=history,
        parameters=payload.parameters(), conversation_id=payload.conversation_id, corrective=payload.corrective,
        calibrations=chosen.calibrations,
    )  # fmt: skip
    recorder = RetrievalRecorder() if payload.explain else None
    run = ask(request, listener=listener, retrieve=recorder)
    return _explained(schemas.AskResponse.from_orm(run), collection, payload, chosen.plan, recorder)


def stream_ask(
    collection: Collection,
    payload: schemas.AskRequest,
    *,
    channel: str,
    api_key: ApiKey | None,
    history: Sequence[Mapping[str, str]] = (),
) -> streams.AnswerStream:
    """The same answer as events, the last of which is the answer of `run_ask`. Raises ServiceError 503."""

    def work(listener: RunListener) -> dict[str, Any]:
        return streams.body_of(
            run_ask(collection, payload, channel=channel, api_key=api_key, history=history, listener=listener)
        )

    return streams.open_stream(work)


def _explained(
    answer: SomeResponse,
    collection: Collection,
    payload: schemas.SearchRequest,
    plan: RetrievePlan,
    recorder: RetrievalRecorder | None,
) -> SomeResponse:
    """The answer, with the explanation of its retrieval where that was asked for. An answer that was counted instead
    is explained by the ranking that its plan would make."""
    if recorder is not None:
        explanation = recorder.explain(collection) if recorder.ranking else None
        answer.explanation = explanation or explain(collection, payload.query, plan, as_of=payload.as_of)
    return answer


router = Router(auth=BearerAuth(changes=Permission.ASK))
RUNS, SEARCH = ["runs"], ["search"]
router.add_router("", plan_router)
router.add_router("", lineage_router)
router.add_router("", unretrieved_router)
router.add_router("", corrective_router)


@router.post(
    "/collections/{collection}/search", response=schemas.SearchResponse, operation_id="collections-search", tags=SEARCH
)
def search_collection(request: HttpRequest, collection: str, payload: schemas.SearchRequest) -> HttpResponse:
    """Find the best chunks of a collection."""
    target = find_collection(request, collection)
    return streams.json_response(run_search(target, payload, channel="api", api_key=request_key(request)))


@router.post(
    "/collections/{collection}/ask",
    response=schemas.AskResponse,
    operation_id="collections-ask",
    tags=SEARCH,
    openapi_extra=streams.ASK_EVENTS,
)
def ask_collection(
    request: HttpRequest, collection: str, payload: schemas.AskRequest
) -> HttpResponse | StreamingHttpResponse:
    """Answer a question from a collection, with checked citations.

    Asked for text/event-stream it answers server-sent events: search_results, token, citation, final, error.
    """
    target, key = find_collection(request, collection), request_key(request)
    if not streams.wants_events(request):
        return streams.json_response(run_ask(target, payload, channel="api", api_key=key))
    stream = stream_ask(target, payload, channel="api", api_key=key)
    stream.start()
    return streams.event_response(request, stream, streams.frame_event)


@router.get(
    "/runs", response=PageOf[schemas.RunSummary], operation_id="runs-list", tags=RUNS, openapi_extra=also_as(JSON_LINES)
)
def list_runs(
    request: HttpRequest,
    filters: Query[schemas.RunFilters],
    format: Literal["json", "jsonl"] = "json",
    limit: Annotated[int, Field(ge=1), accepts(maximum=LIMIT_MAX)] | None = param.Query(
        None, description=f"default: {DEFAULT_LIMIT}; all as JSON Lines"
    ),
    cursor: Cursor | None = NEXT_CURSOR,
) -> HttpResponse | StreamingHttpResponse:
    """Stored queries, newest first.

    format jsonl: a stream of JSON Lines with the minimal logging fields. 429 when three downloads run already.
    """
    key = request_key(request)
    if filters.collection is not None:
        check_collection_scope(key, filters.collection)
    rows = QueryRun.objects.visible_to(key.visible).filtered(RunFilter(**filters.dict()))
    if format == "jsonl":
        return send_log(request, RunLog(rows, limit=limit))
    page = paginate(rows.for_lists(), ("-created_at", "-id"), limit=limit or DEFAULT_LIMIT, cursor=cursor)
    return streams.json_response(PageOf[schemas.RunSummary].from_orm(page))


@router.get("/runs/{run_id}", response=schemas.Run, operation_id="runs-get", tags=RUNS)
def get_run(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """One stored query, with the minimal logging fields."""
    return streams.json_response(schemas.Run.from_orm(find_run(request, run_id)))


@router.get("/runs/{run_id}/receipt", response=schemas.Receipt, operation_id="runs-receipt", tags=RUNS)
def get_receipt(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """A signed record of a stored query.

    The signature is over the canonical JSON of receipt; docs/history.md says how it is verified.
    """
    return JsonResponse(make_receipt(find_run(request, run_id)), json_dumps_params={"ensure_ascii": False})


@router.get("/receipt-key", response=schemas.ReceiptKey, operation_id="receipt-key-get", tags=RUNS)
def get_receipt_key(request: HttpRequest) -> HttpResponse:
    """The public key that receipts are verified with."""
    return JsonResponse(own_key().as_dict())


@router.post("/runs/{run_id}/replay", response=schemas.Replay, operation_id="runs-replay", tags=RUNS)
def replay_run(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """Run a stored plan and question again, and compare the rankings."""
    replayed = replay(find_run(request, run_id), channel="api", api_key=request_key(request))
    return streams.json_response(schemas.Replay.from_orm(replayed))


def find_run(request: HttpRequest, run_id: UUID) -> QueryRun:
    """The run, if the key may see its collection. Raises ServiceError 404."""
    run = QueryRun.objects.visible_to(request_key(request).visible).select_related("user").filter(pk=run_id).first()
    if run is None:
        raise UnknownError(
            "run", f"there is no run {run_id} that this key may see; GET /v1/runs lists the runs that there are"
        )
    return run
