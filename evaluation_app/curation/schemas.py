"""What the rows about curation and golden questions take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Schema
from pydantic import Field, StrictFloat

from collections_app.api.fields import DocId
from collections_app.api.schemas import ChunkPolicyRequest, Request
from collections_app.validation import WHOLE, StrictInt
from evaluation_app.curation.expectations import Expectations
from evaluation_app.curation.impact import Impact
from evaluation_app.measures.schemas import MeanOut
from evaluation_app.measures.scores import Mean
from evaluation_app.models import PromotionGate

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
    """Without a gate only `enabled`, false."""

    enabled: bool
    set: str | None = None
    set_exists: bool | None = None
    measure: str | None = None
    k: int | None = None
    margin: float | None = None
    updated_by: str | None = None
    updated_at: datetime | None = None

    @staticmethod
    def resolve_enabled(gate: PromotionGate | None) -> bool:
        return gate is not None

    @staticmethod
    def resolve_set(gate: PromotionGate | None) -> str | None:
        if gate is None:
            return None
        return gate.golden_set.name if gate.golden_set else gate.set_name

    @staticmethod
    def resolve_set_exists(gate: PromotionGate | None) -> bool | None:
        return None if gate is None else gate.golden_set is not None


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
