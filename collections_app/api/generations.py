"""Index generations and recall probes over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Field, Router, Schema, Status
from pydantic import ConfigDict, StrictBool

from collections_app.api.access import ERRORS, answer, find_collection
from collections_app.api.fields import NEXT_CURSOR, Cursor, EmbedDims, EmbedModel, Limit, SearchLanguage
from collections_app.api.schemas import ChunkPolicyRequest, JobStarted, Request, Stored, read_from
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.models import StoredProbe
from collections_app.services.generations import generations as service
from collections_app.services.generations.estimate import estimate_generation
from collections_app.services.generations.generation_states import GenerationState, generation_state, generation_states
from collections_app.services.generations.list_weights import submit_measurement
from collections_app.services.generations.recall_probes import recall_warning, submit_probe
from ragd.types import ChunkPolicy, Placement, VectorType

router = Router(auth=BearerAuth(), tags=["generations"])

ALL = "/collections/{collection}/generations"
ONE = "/collections/{collection}/generations/{number}"


class GenerationRequest(Request):
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


class GenerationItem(Schema):
    model_config = ConfigDict(
        alias_generator=read_from("generation", own=(*GenerationState.__slots__, "job_id", "job_error"))
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
    chunk_policy: Stored[ChunkPolicy] = Field(validation_alias="generation.policy")
    chunk_policy_stated: dict[str, Any] = Field(validation_alias="generation.chunk_policy")
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
    list_weights_measured_at: datetime | None
    list_weights_report: dict[str, Any] = Field(
        description="nDCG@10 of each list alone, of both at even weights (even) and at these (fused), probes, chunks"
    )
    gate_state: Literal["", "passed", "held", "overruled"] = Field(
        description="result of the quality gate; empty without a gate"
    )
    gate_report: dict[str, Any] = Field(description="what the gate compared, its verdict in words as reason")
    gate_reason: str = Field(description="reason for overriding the quality gate")
    gate_by: str
    gate_at: datetime | None

    @staticmethod
    def resolve_job_id(state: GenerationState) -> UUID | None:
        return state.job.pk if state.job else None

    @staticmethod
    def resolve_job_error(state: GenerationState) -> str:
        return state.job.error if state.job else ""


class OverruleRequest(Request):
    reason: str = Field(min_length=1, max_length=2000, description="why it is to serve nevertheless; kept")


class GenerationPage(Schema):
    items: list[GenerationItem]


class GenerationEstimate(Schema):
    documents: int
    chars: int
    chunks_now: int
    chunks: int = Field(description="about as many as the new generation will have")
    to_embed: int = Field(description="0: every vector is taken over")
    chunks_per_s: float | None = Field(description="measured just now with a few of the collection's own chunks")
    seconds: float | None = Field(description="of embedding, at that rate")
    changed: list[str] = Field(description="what differs from the generation that serves")
    hash: str
    same_hash: bool


class RecallOut(Schema):
    recall: float | None = Field(description="mean share of the exact neighbours that the index found")
    lowest: float | None = Field(description="of the worst query")
    selectivity: float = Field(description="share of the chunks that the filter lets through; 1: no filter")
    exact_ms: float | None = Field(description="median time of one exact scan")
    index_ms: float | None


class ProbeItem(Schema):
    id: int
    generation: int
    k: int
    ef_search: int
    chunk_count: int
    queries: int
    plain: RecallOut
    filtered: RecallOut
    warning: str = Field(description="what to do when a recall is under RAGD_RECALL_WARNING, else empty")
    created_by: str
    created_at: datetime

    @staticmethod
    def resolve_plain(probe: StoredProbe) -> dict[str, float | None]:
        return {
            "recall": probe.recall,
            "lowest": probe.recall_lowest,
            "selectivity": 1.0,
            "exact_ms": probe.exact_ms,
            "index_ms": probe.index_ms,
        }

    @staticmethod
    def resolve_filtered(probe: StoredProbe) -> dict[str, float | None]:
        return {
            "recall": probe.filtered_recall,
            "lowest": probe.filtered_lowest,
            "selectivity": probe.selectivity,
            "exact_ms": probe.filtered_exact_ms,
            "index_ms": probe.filtered_index_ms,
        }

    @staticmethod
    def resolve_warning(probe: StoredProbe) -> str:
        return recall_warning(probe)


class ProbePage(Schema):
    items: list[ProbeItem]
    next_cursor: str | None


@router.get(ALL, operation_id="generations-list", response={200: GenerationPage, **ERRORS})
def list_generations(request: HttpRequest, collection: str) -> Any:
    """The generations of a collection, newest first; one of them serves."""
    return {"items": generation_states(find_collection(request, collection))}


@router.post(ALL, operation_id="generations-create", response={202: GenerationItem, **ERRORS})
def create_generation(request: HttpRequest, collection: str, payload: GenerationRequest) -> HttpResponse:
    """Build the index anew in the background, with what is stated and else as it is; the present one serves meanwhile.

    409 while another one is built or waits.
    """
    target = find_collection(request, collection)
    key = request_key(request)

    def produce() -> GenerationState:
        automatic = payload.activate == "automatic"
        made = service.start_generation(target, _choices(payload), automatic=automatic, actor=key)
        return generation_state(target, made)

    return answer(request, produce, GenerationItem, status=202)


@router.post(f"{ALL}/estimate", operation_id="generations-estimate", response={200: GenerationEstimate, **ERRORS})
def estimate(request: HttpRequest, collection: str, payload: GenerationRequest) -> Any:
    """What it would cost to build such a generation. Embeds a few texts to measure, and changes nothing."""
    target = find_collection(request, collection)
    return estimate_generation(target, service.resolve_target(target, _choices(payload)))


@router.get(ONE, operation_id="generations-get", response={200: GenerationItem, **ERRORS})
def get_generation(request: HttpRequest, collection: str, number: int) -> Any:
    target = find_collection(request, collection)
    return generation_state(target, service.get_generation(target, number))


@router.post(f"{ONE}/activate", operation_id="generations-activate", response={202: GenerationItem, **ERRORS})
def activate_generation(request: HttpRequest, collection: str, number: int) -> Any:
    """Let a generation serve that is ready, or, as the way back, one that is retired, once it has caught up."""
    target = find_collection(request, collection)
    chosen = service.activate_generation(service.get_generation(target, number), actor=request_key(request))
    return Status(202, generation_state(target, chosen))


@router.post(f"{ONE}/overrule", operation_id="generations-overrule", response={202: GenerationItem, **ERRORS})
def overrule_gate(request: HttpRequest, collection: str, number: int, payload: OverruleRequest) -> Any:
    """Let a generation serve although the promotion gate holds it; the reason is kept. 409 for one that is not held."""
    target = find_collection(request, collection)
    held = service.get_generation(target, number)
    chosen = service.activate_generation(held, overrule=payload.reason, actor=request_key(request))
    return Status(202, generation_state(target, chosen))


@router.post(f"{ONE}/cancel", operation_id="generations-cancel", response={200: GenerationItem, **ERRORS})
def cancel_generation(request: HttpRequest, collection: str, number: int) -> Any:
    """End the work on a generation; one that was being built is gone, a complete one stays as it was."""
    target = find_collection(request, collection)
    chosen = service.cancel_generation(service.get_generation(target, number), actor=request_key(request))
    return generation_state(target, chosen)


@router.delete(ONE, operation_id="generations-delete", response={200: GenerationItem, **ERRORS})
def drop_generation(request: HttpRequest, collection: str, number: int) -> Any:
    """Give up the chunks of a generation that does not serve; what it was stays on record."""
    target = find_collection(request, collection)
    chosen = service.drop_generation(service.get_generation(target, number), actor=request_key(request))
    return generation_state(target, chosen)


@router.post(
    "/collections/{collection}/list-weights",
    operation_id="list-weights-create",
    tags=["collections"],
    response={202: JobStarted, **ERRORS},
)
def start_measurement(request: HttpRequest, collection: str) -> Any:
    """Measure in the background how much each list of a hybrid search should count; 409 without a keyword index."""
    job = submit_measurement(find_collection(request, collection), actor=request_key(request))
    return Status(202, {"job_id": job.pk})


@router.post(
    "/collections/{collection}/recall-probes",
    operation_id="recall-probes-create",
    tags=["collections"],
    response={202: JobStarted, **ERRORS},
)
def start_probe(request: HttpRequest, collection: str) -> Any:
    """Compare the HNSW index with the exact scan in the background; 409 where there is no index."""
    job = submit_probe(find_collection(request, collection), actor=request_key(request))
    return Status(202, {"job_id": job.pk})


@router.get(
    "/collections/{collection}/recall-probes",
    operation_id="recall-probes-list",
    tags=["collections"],
    response={200: ProbePage, **ERRORS},
)
def list_probes(
    request: HttpRequest, collection: str, limit: Limit = DEFAULT_LIMIT, cursor: Cursor | None = NEXT_CURSOR
) -> Any:
    """The probes of a collection, newest first."""
    rows = StoredProbe.objects.filter(collection=find_collection(request, collection))
    return paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)


def _choices(payload: GenerationRequest) -> dict[str, Any]:
    policy = None if payload.chunk_policy is None else payload.chunk_policy.model_dump(exclude_none=True)
    return payload.model_dump(exclude={"activate", "chunk_policy"}) | {"chunk_policy": policy}
