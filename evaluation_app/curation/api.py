"""The impact of changes, the promotion gate and what golden questions expect, over HTTP.

What the rows about curation and golden questions take and give.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.db import transaction
from django.http import HttpRequest
from ninja import Schema
from pydantic import Field, StrictFloat

from collections_app.access.auth import BearerAuth, Router, find_collection, request_key
from collections_app.access.permissions import Permission
from collections_app.documents.services import get_document
from collections_app.http.schemas import ChunkPolicyRequest, DocId, Request
from collections_app.http.validation import WHOLE, StrictInt
from collections_app.models import Collection
from evaluation_app.curation import expectations
from evaluation_app.curation.expectations import Expectations, ProposedChange, expectations_of
from evaluation_app.curation.gate import Impact, find_gate, find_own_set, impact_of, remove_gate, set_gate
from evaluation_app.measures.scores import Mean
from evaluation_app.models import GoldenSet, PromotionGate
from evaluation_app.runs.schemas import MeanOut
from evaluation_app.scoring.api import SamplingIn, SamplingOut
from evaluation_app.scoring.sampling import sampling_of, save_sampling
from ragd.errors import InvalidInput

SHARE = Field(ge=0, le=1)


class ImpactRequest(Request):
    """A change that is not made. doc_ids go with disable, archive and delete; the others name one document."""

    action: Literal["disable", "archive", "delete", "edit_chunk", "disable_chunk", "enable_chunk", "policy"]
    doc_ids: list[DocId] = Field(default_factory=list, max_length=10_000)
    doc_id: DocId | None = Field(None, description="of the chunk; for policy: of the one document, else the collection")
    chunk_index: StrictInt | None = None
    content: str | None = Field(None, description="what the chunk would say")
    chunk_policy: ChunkPolicyRequest | None = None
    set: str | None = Field(None, description="one golden set of the collection; null: all of them")
    budget_s: StrictFloat | StrictInt = Field(4, gt=0, le=60, description="how long it may look, in seconds")


class QuestionImpactOut(Schema):
    set: str = Field(validation_alias="question.set_name")
    question: str = Field(validation_alias="question.golden.question")
    category: str = Field(validation_alias="question.golden.category")
    effect: Literal["lost", "worse", "gained", "better", "changed", "same"]
    rank_before: int | None = Field(
        validation_alias="before", description="of the first that is expected; null: not among the first k"
    )
    rank_after: int | None = Field(validation_alias="after")
    left: list[str] = Field(description='"doc_id#chunk_index" that would leave the results')
    came: list[str]
    touched: bool = Field(description="it expects a document that the change touches")


class MeanImpactOut(Schema):
    before: MeanOut
    after: MeanOut


class ImpactOut(Schema):
    questions: int = Field(validation_alias="total")
    looked_at: int = Field(validation_alias="looked", description="fewer than questions when the time was over")
    k: int
    plan: str = Field(validation_alias="plan_name", description='the saved plan, "" for the server\'s')
    plan_hash: str = Field(validation_alias="plan.hash")
    documents: int = Field(description="that the change touches")
    counts: dict[str, int]
    means: dict[str, MeanImpactOut] = Field(description="measure@k -> before and after, each a mean with its coverage")
    changed: list[QuestionImpactOut] = Field(description="the worst first")
    estimate: str = Field(description="why the figures are not exact, empty where they are")
    took_ms: float

    @staticmethod
    def resolve_means(impact: Impact) -> dict[str, dict[str, Mean]]:
        return {name: {"before": before, "after": after} for name, (before, after) in impact.means.items()}


class GateRequest(Request):
    set: str
    measure: Literal["precision", "recall", "hit", "mrr", "map", "ndcg"] = "recall"
    k: StrictInt = Field(10, ge=1, le=100)
    margin: Annotated[StrictFloat, SHARE] | Annotated[int, SHARE, WHOLE] = Field(
        0.02, description="allowed regression of the mean"
    )


class GateOut(Schema):
    set: str
    set_exists: bool
    measure: str
    k: int
    margin: float
    updated_by: str
    updated_at: datetime

    @staticmethod
    def resolve_set(gate: PromotionGate) -> str:
        return gate.golden_set.name if gate.golden_set else gate.set_name

    @staticmethod
    def resolve_set_exists(gate: PromotionGate) -> bool:
        return gate.golden_set is not None


class EvaluationSettings(Schema):
    gate: GateOut | None
    sampling: SamplingOut


class EvaluationChanges(Request):
    gate: GateRequest | None = None
    sampling: SamplingIn | None = None


class ExpectingOut(Schema):
    set: str
    question: str
    last_rank: int | None = Field(description="when it was asked last; null: not found, or not asked")
    last_asked_at: datetime | None


class ContributionOut(Schema):
    counted: int = Field(description="how often it was retrieved and judged")
    measured: int = Field(description="in how many of these its contribution is known")
    mean: float | None
    helpful: int
    neutral: int
    harmful: int


class ExpectationsOut(Schema):
    questions: list[ExpectingOut]
    contribution: ContributionOut = Field(
        validation_alias="worth", description="mean and counts over the evaluations of the index that serves"
    )

    @staticmethod
    def resolve_questions(expectations: Expectations) -> list[dict[str, Any]]:
        return [
            {
                "set": question.golden_set.name,
                "question": question.question,
                "last_rank": last.rank if last else None,
                "last_asked_at": last.item.created_at if last else None,
            }
            for question, last in expectations.questions
        ]


router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])
SETTINGS = "/collections/{collection}/evaluation"


@router.post(
    "/collections/{collection}/impact",
    operation_id="impact",
    auth=BearerAuth(changes=Permission.READ),
    response=ImpactOut,
)
def estimate_impact(request: HttpRequest, collection: str, payload: ImpactRequest) -> Any:
    """What a change would do to the golden questions, from retrieval alone. Changes nothing; a read key may ask."""
    target = find_collection(request, collection)
    golden_set = None if payload.set is None else find_own_set(target, payload.set)
    proposal = _propose(target, payload, golden_set)
    return impact_of(
        target,
        proposal.supposed,
        golden_set=golden_set,
        budget_s=payload.budget_s,
        estimate=proposal.estimate,
        by_document=proposal.renumbers,
    )


def _propose(collection: Collection, payload: ImpactRequest, golden_set: GoldenSet | None) -> ProposedChange:
    action = payload.action
    if action in expectations.DOCUMENT_ACTIONS:
        names = payload.doc_ids or ([payload.doc_id] if payload.doc_id else [])
        if not names:
            raise InvalidInput(f"{action} needs doc_ids", field="doc_ids")
        return expectations.documents_changed(collection, action, names)
    if action == "policy":
        explicit = payload.chunk_policy.model_dump(exclude_none=True) if payload.chunk_policy else {}
        if payload.doc_id:
            return expectations.document_policy_changed(collection, payload.doc_id, explicit)
        return expectations.policy_changed(collection, explicit, golden_set=golden_set, budget_s=payload.budget_s)
    if payload.doc_id is None or payload.chunk_index is None:
        raise InvalidInput(f"{action} needs doc_id and chunk_index", field="chunk_index")
    if action == "edit_chunk":
        if payload.content is None:
            raise InvalidInput("edit_chunk needs content", field="content")
        return expectations.chunk_edited(collection, payload.doc_id, payload.chunk_index, payload.content)
    enabled = action == "enable_chunk"
    return expectations.chunk_switched(collection, payload.doc_id, payload.chunk_index, enabled=enabled)


@router.get(SETTINGS, operation_id="evaluation-settings-get", response=EvaluationSettings)
def get_evaluation_settings(request: HttpRequest, collection: str) -> Any:
    """The promotion gate of a collection, and which share of its answers is scored while it serves."""
    target = find_collection(request, collection)
    return {"gate": find_gate(target), "sampling": sampling_of(target.name)}


@router.patch(SETTINGS, operation_id="evaluation-settings-update", response=EvaluationSettings)
def update_evaluation_settings(request: HttpRequest, collection: str, payload: EvaluationChanges) -> Any:
    """Change one of them or both; a gate of null removes it.

    With a gate an index version serves only if the set's mean of the measure does not fall by more than the margin.
    What was asked before sampling is enabled is left alone.
    """
    target, key = find_collection(request, collection), request_key(request)
    with transaction.atomic():
        if payload.gate is not None:
            set_gate(target, payload.gate.set, **payload.gate.model_dump(exclude={"set"}), actor=key)
        elif "gate" in payload.model_fields_set:
            remove_gate(target, actor=key)
        if payload.sampling is not None:
            save_sampling(target, **payload.sampling.model_dump(), actor=key)
    return get_evaluation_settings(request, collection)


@router.get(
    "/collections/{collection}/golden-expectations", operation_id="golden-expectations", response=ExpectationsOut
)
def list_expectations(request: HttpRequest, collection: str, doc_id: DocId, chunk_index: int | None = None) -> Any:
    """The golden questions that expect a document or a chunk, and what it contributed to answers."""
    target = find_collection(request, collection)
    get_document(target, doc_id)
    return expectations_of(target, doc_id, chunk_index)
