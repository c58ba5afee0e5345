"""Index versions and their measurements over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema, Status
from pydantic import ConfigDict, StrictBool

from collections_app.access.auth import BearerAuth, Router, answer, find_collection, request_key
from collections_app.http.schemas import (
    ChunkPolicyRequest,
    EmbedDims,
    EmbedModel,
    JobStarted,
    ListOf,
    Request,
    SearchLanguage,
    Stored,
    read_from,
)
from collections_app.index import estimate
from collections_app.index import services as service
from collections_app.index.measurements import submit_measurement
from collections_app.index.swap import read_report
from ragd.types import ChunkPolicy, Placement, VectorType

router = Router(auth=BearerAuth(), tags=["index-versions"])

ALL = "/collections/{collection}/index-versions"
ONE = "/collections/{collection}/index-versions/{number}"


class IndexVersionRequest(Request):
    """What is left out stays as the collection has it; with nothing stated the index is made anew as it is."""

    embed_model: EmbedModel | None = None
    embed_dims: EmbedDims | None = None
    chunk_policy: ChunkPolicyRequest | None = Field(None, description="replaces the stated one; {} for the default")
    language: SearchLanguage | None = None
    hybrid_enabled: StrictBool | None = None
    vector_type: VectorType | None = Field(
        None, description="halfvec: the vector index holds 16-bit floats, half its size"
    )
    placement: Placement | None = Field(
        None, description="where the chunks go: local, in this database; on a Citus cluster node or spread"
    )
    activate: Literal["automatic", "manual"] = Field(
        "automatic", description="automatic: it serves as soon as it is complete; manual: when it is activated"
    )
    dry_run: StrictBool = Field(False, description="estimate only")


class IndexVersionItem(Schema):
    model_config = ConfigDict(
        alias_generator=read_from(
            "index_version", own=(*estimate.IndexVersionState.__slots__, "job_id", "job_error", "gate_report")
        )
    )

    number: int
    state: Literal["building", "ready", "serving", "retired", "failed", "cancelled", "dropped"]
    hash: str = Field(description="SHA-256 of everything below that decides chunks and vectors")
    spec_version: str
    embed_model: str
    embed_dims: int
    hybrid_enabled: bool
    language: str
    vector_type: VectorType
    chunk_policy: Stored[ChunkPolicy] = Field(validation_alias="index_version.policy")
    chunk_policy_stated: dict[str, Any] = Field(validation_alias="index_version.chunk_policy")
    automatic: bool = Field(description="serves as soon as it is complete")
    documents_total: int = Field(description="when they were last counted, while it was built")
    documents_done: int
    chars_total: int
    chars_done: int
    percent: int
    chunks_per_s: float | None = Field(description="measured in the last run of its build")
    remaining_s: float | None = Field(description="at that rate, while it is built")
    chunks: int | None = Field(description="null once its table is gone")
    bytes: int | None = Field(description="on disk, with indexes")
    differences: dict[str, int] | None = Field(
        description="documents changed, added, removed and switched on or off since it was complete; else null"
    )
    job_id: UUID | None = Field(description="the job that works on it, or that failed last")
    job_error: str
    error: str
    created_by: str
    created_at: datetime
    started_at: datetime | None
    ready_at: datetime | None
    swapped_at: datetime | None
    retired_at: datetime | None
    list_weights: dict[str, float] = Field(
        description="of vector and lexical in a hybrid search that states none; {} until measured: 1 each"
    )
    measured_at: datetime | None
    measurements: dict[str, Any] = Field(
        description="chunks; weights: nDCG@10 of each list alone, of both at even weights (even) and at these (fused), "
        "probes; recall of the HNSW index: k, ef_search and, plain and filtered, mean, lowest, selectivity, times"
    )
    gate_state: Literal["", "passed", "held", "overruled"] = Field(
        description="result of the quality gate; empty without a gate"
    )
    gate_report: dict[str, Any] = Field(description="what the gate compared, its verdict in words as reason")
    gate_reason: str = Field(description="reason for overriding the quality gate")
    gate_by: str
    gate_at: datetime | None

    @staticmethod
    def resolve_gate_report(state: estimate.IndexVersionState) -> dict[str, Any]:
        return read_report(state.index_version)

    @staticmethod
    def resolve_job_id(state: estimate.IndexVersionState) -> UUID | None:
        return state.job.pk if state.job else None

    @staticmethod
    def resolve_job_error(state: estimate.IndexVersionState) -> str:
        return state.job.error if state.job else ""


class IndexVersionChange(Request):
    state: Literal["serving", "cancelled"]
    reason: str | None = Field(
        None, min_length=1, max_length=2000, description="why it is to serve although the gate holds it; kept"
    )


@router.get(ALL, operation_id="index-versions-list", response=ListOf[IndexVersionItem])
def list_index_versions(request: HttpRequest, collection: str) -> Any:
    """The index versions of a collection, newest first; one of them serves."""
    return {"items": estimate.index_version_states(find_collection(request, collection))}


@router.post(ALL, operation_id="index-versions-create", response={200: estimate.Estimate, 202: IndexVersionItem})
def create_index_version(request: HttpRequest, collection: str, payload: IndexVersionRequest) -> Any:
    """Build the index anew in the background, with what is stated and else as it is; the present one serves meanwhile.

    409 while another one is built or waits. dry_run: what that would cost; it embeds a few texts to measure, and
    changes nothing.
    """
    target = find_collection(request, collection)
    if payload.dry_run:
        return estimate.estimate_index_version(target, service.resolve_target(target, _choices(payload)))
    key = request_key(request)

    def produce() -> estimate.IndexVersionState:
        automatic = payload.activate == "automatic"
        made = service.start_index_version(target, _choices(payload), automatic=automatic, actor=key)
        return estimate.index_version_state(target, made)

    return answer(request, produce, IndexVersionItem, status=202)


@router.get(ONE, operation_id="index-versions-get", response=IndexVersionItem)
def get_index_version(request: HttpRequest, collection: str, number: int) -> Any:
    target = find_collection(request, collection)
    return estimate.index_version_state(target, service.get_index_version(target, number))


@router.patch(ONE, operation_id="index-versions-change", response={frozenset({200, 202}): IndexVersionItem})
def change_index_version(request: HttpRequest, collection: str, number: int, payload: IndexVersionChange) -> Any:
    """Let an index version serve that is ready, or, as the way back, one that is retired, once it has caught up (202).

    With a reason it serves although the promotion gate holds it; 409 for one that is not held. cancelled: end the work
    on it; one that was being built is gone, a complete one stays as it was.
    """
    target = find_collection(request, collection)
    index_version, key = service.get_index_version(target, number), request_key(request)
    if payload.state == "cancelled":
        return estimate.index_version_state(target, service.cancel_index_version(index_version, actor=key))
    index_version = service.activate_index_version(index_version, overrule=payload.reason or "", actor=key)
    return Status(202, estimate.index_version_state(target, index_version))


@router.delete(ONE, operation_id="index-versions-delete", response=IndexVersionItem)
def drop_index_version(request: HttpRequest, collection: str, number: int) -> Any:
    """Give up the chunks of an index version that does not serve; what it was stays on record."""
    target = find_collection(request, collection)
    chosen = service.drop_index_version(service.get_index_version(target, number), actor=request_key(request))
    return estimate.index_version_state(target, chosen)


@router.post(
    "/collections/{collection}/measurements",
    operation_id="measurements-create",
    tags=["collections"],
    response={202: JobStarted},
)
def start_measurement(request: HttpRequest, collection: str) -> Any:
    """Measure in the background how much each list of a hybrid search should count, and how much of the exact result
    the HNSW index finds. The index version that serves then holds it; 409 without a keyword index and an HNSW index."""
    job = submit_measurement(find_collection(request, collection), actor=request_key(request))
    return Status(202, {"job_id": job.pk})


def _choices(payload: IndexVersionRequest) -> dict[str, Any]:
    policy = None if payload.chunk_policy is None else payload.chunk_policy.model_dump(exclude_none=True)
    return payload.model_dump(exclude={"activate", "dry_run", "chunk_policy"}) | {"chunk_policy": policy}
