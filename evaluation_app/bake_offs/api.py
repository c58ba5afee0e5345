"""Bake-offs over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Field, Router, Schema

from collections_app.api.access import ERRORS, answer, find_collection
from collections_app.api.fields import NEXT_CURSOR, Cursor, EmbedDims, EmbedModel, Limit, accepts, between
from collections_app.api.schemas import Request
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.validation import StrictInt
from evaluation_app.bake_offs.lifecycle import K, cancel_bake_off, start_bake_off, visible_bake_offs
from evaluation_app.bake_offs.sample import SAMPLE_CHUNKS
from evaluation_app.bake_offs.standings import rank, winner_of
from evaluation_app.golden.sets import find_set
from evaluation_app.measures.schemas import IntervalOut
from evaluation_app.models import BakeOff
from ragd.types import Mode, VectorType

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["models"])
ALL = "/collections/{collection}/bake-offs"
ONE = "/bake-offs/{bake_off_id}"


class CandidateIn(Request):
    embed_model: EmbedModel
    embed_dims: EmbedDims | None = None
    vector_type: VectorType | None = None


class BakeOffRequest(Request):
    models: Annotated[list[CandidateIn], accepts(minItems=1)] = Field(
        description="Beside the collection's own, which is always compared with"
    )
    golden_set: str | None = Field(None, description="Its questions; null: made from the documents by rules")
    k: Annotated[StrictInt, between(1, 100)] = Field(K, description="Documents that count")
    sample: StrictInt = Field(SAMPLE_CHUNKS, description="About so many chunks, by documents")


class StandingOut(Schema):
    embed_model: str
    embed_dims: int
    vector_type: VectorType
    is_current: bool
    ndcg: IntervalOut
    recall: IntervalOut
    gain: IntervalOut | None = Field(description="nDCG less that of the collection's own model, question by question")
    p: float | None = Field(description="of the gain, corrected for the number of models (Holm)")
    by_mode: dict[Mode, float] = Field(description="mean nDCG by search mode")
    weights: dict[str, float] = Field(description="of the lists that hybrid search fused")
    ms_per_chunk: float = Field(description="to embed one")
    query_ms: float = Field(description="median of embedding and searching one question")
    index_bytes: int = Field(description="table and vector index of the whole collection, by the sample's")
    embed_s: float = Field(description="to embed the whole collection, by the sample's")
    cost_usd: float | None = Field(description="for the whole collection; null without a price")


class BakeOffOut(Schema):
    id: UUID
    collection: str
    golden_set: str
    state: Literal["running", "succeeded", "failed", "cancelled"]
    stage: str
    done: int
    total: int
    mode: Mode
    k: int
    questions: int
    documents: int = Field(description="of the sample")
    standings: list[StandingOut] = Field(description="finished models, best first")
    winner: StandingOut | None = Field(description="better than the collection's own by more than chance; else null")
    error: str
    created_by: str
    created_at: datetime
    finished_at: datetime | None


class BakeOffPage(Schema):
    items: list[BakeOffOut]
    next_cursor: str | None


def _shown(bake_off: BakeOff) -> dict[str, Any]:
    standings = rank(bake_off)
    winner = winner_of(standings)
    same = ("id", "state", "stage", "done", "total", "mode", "k", "error", "created_by", "created_at", "finished_at")
    return {name: getattr(bake_off, name) for name in same} | {
        "collection": bake_off.collection_name,
        "golden_set": bake_off.set_name,
        "questions": len(bake_off.questions),
        "documents": len(bake_off.doc_ids),
        "standings": [each.as_dict() for each in standings],
        "winner": winner.as_dict() if winner else None,
    }


@router.post(ALL, operation_id="bake-offs-create", response={202: BakeOffOut, **ERRORS})
def create_bake_off(request: HttpRequest, collection: str, payload: BakeOffRequest) -> HttpResponse:
    """Compare embedding models on questions over a sample of the collection, in the background."""
    key = request_key(request)
    found = find_collection(request, collection)
    golden_set = find_set(payload.golden_set, key.visible) if payload.golden_set else None

    def produce() -> dict[str, Any]:
        models = [model.model_dump(exclude_none=True) for model in payload.models]
        started = start_bake_off(found, models, golden_set=golden_set, k=payload.k, sample=payload.sample, actor=key)
        return _shown(started)

    return answer(request, produce, BakeOffOut, status=202)


@router.get(ALL, operation_id="bake-offs-list", response={200: BakeOffPage, **ERRORS})
def list_bake_offs(
    request: HttpRequest, collection: str, limit: Limit = DEFAULT_LIMIT, cursor: Cursor | None = NEXT_CURSOR
) -> Any:
    """Those of a collection, newest first."""
    found = find_collection(request, collection)
    rows = visible_bake_offs(request_key(request).visible).filter(collection_name=found.name)
    page = paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)
    return {"items": [_shown(each) for each in page.items], "next_cursor": page.next_cursor}


@router.get(ONE, operation_id="bake-offs-get", response={200: BakeOffOut, **ERRORS})
def get_bake_off(request: HttpRequest, bake_off_id: UUID) -> Any:
    """How far it is, and the models that are finished."""
    return _shown(_find(request, bake_off_id))


@router.post(f"{ONE}/cancel", operation_id="bake-offs-cancel", response={200: BakeOffOut, **ERRORS})
def cancel(request: HttpRequest, bake_off_id: UUID) -> Any:
    """End it; finished models stay. 409 when it has ended."""
    return _shown(cancel_bake_off(_find(request, bake_off_id), request_key(request)))


def _find(request: HttpRequest, bake_off_id: UUID) -> BakeOff:
    found = visible_bake_offs(request_key(request).visible).filter(pk=bake_off_id).first()
    if found is None:
        raise ServiceError(f"there is no bake-off {bake_off_id}", type="unknown_bake_off", status=404)
    return found
