"""Stored runs judged over HTTP, what people say of their answers, and what the API reads and writes of scores."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema
from ninja.params import functions as param
from pydantic import ConfigDict, StrictBool

from collections_app.access.auth import BearerAuth, Router, check_collection_scope, request_key
from collections_app.access.permissions import Permission
from collections_app.http.paging import DEFAULT_LIMIT, filter_stated, paginate
from collections_app.http.schemas import (
    NEXT_CURSOR,
    Cursor,
    Id,
    Limit,
    ListOf,
    PageOf,
    Printable,
    Request,
    Stored,
    TextOrEmpty,
    TextOrNull,
    accepts,
    between,
)
from collections_app.http.validation import StrictInt
from evaluation_app.measures.scores import Score
from evaluation_app.models import Review, RunScore
from evaluation_app.reviews.labels import (
    CORRECTION_CHARS_MAX,
    NOTE_CHARS_MAX,
    USER_CHARS_MAX,
    feedback_of,
    give_feedback,
)
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.sampling import PER_DAY_MAX, judge_run
from retrieval_app.search.api import find_run

JUDGE_MODEL = "of the judge llm, left out: RAGD_JUDGE_MODEL; of a panel its judges with commas between"


class JudgeRequest(Request):
    judge: Literal["embedded", "llm", "panel"] = "embedded"
    judge_model: Printable = Field("", max_length=200, description=JUDGE_MODEL)
    unit: Literal["tokens", "sentences"] = Field("tokens", description="of the lengths in TRACe")


class RunScoreOut(Schema):
    run_id: Id = Field(validation_alias="query_run")
    collection: str = Field(validation_alias="collection_name")
    query: str = Field(validation_alias="question_text")
    outcome: str
    reason: str = Field(description="asked: on request; sampled: by online evaluation")
    judge: str
    judge_version: str
    scores: Stored[dict[str, Score]] = Field(
        description='measure: {"state": "scored", "value"} or {"state": "unscorable" or "error", "reason"}'
    )
    modes: list[str] = Field(description="keys of the failure modes that it shows")
    judge_usage: dict[str, Any]
    took_ms: float
    trace_id: TextOrNull
    context: list[dict[str, Any]] | None = Field(
        description='per retrieved chunk {"key", "sentences": [[key, text]]}; null, as what follows, in a list'
    )
    answer_sentences: list[list[str]] | None
    annotation: dict[str, Any] | None = Field(
        description='{"relevant": [key], "utilized": [key], "support": [{"key", "by": [key], "supported"}]}'
    )
    details: dict[str, Any] | None
    asked_at: datetime
    judged_at: datetime = Field(validation_alias="created_at")


class SamplingIn(Request):
    enabled: bool
    rate: Annotated[float, accepts(exclusiveMinimum=0, maximum=1)] = Field(
        0.1, description="sampling rate, above 0 to 1"
    )
    per_day: Annotated[StrictInt, between(1, PER_DAY_MAX)] = Field(
        500, description="at most so many of one day, in UTC"
    )
    judge: Literal["embedded", "llm", "panel"] = "embedded"
    judge_model: Printable = Field("", max_length=200, description=JUDGE_MODEL)


class SamplingOut(SamplingIn):
    collection: str = Field(validation_alias="collection_name")
    enabled_at: datetime | None
    looked_until: datetime | None


class FeedbackIn(Request):
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["correct"], "properties": {"correct": {"not": {"type": "null"}}}},
                {"required": ["comment"], "properties": {"comment": {"minLength": 1}}},
                {"required": ["correction"], "properties": {"correction": {"minLength": 1}}},
            ]
        }
    )

    correct: StrictBool | None = Field(None, description="Whether the answer is correct")
    comment: TextOrEmpty = Field("", max_length=NOTE_CHARS_MAX)
    correction: TextOrEmpty = Field("", max_length=CORRECTION_CHARS_MAX, description="The right answer")
    reason: Literal["", "facts", "incomplete", "sources", "outdated", "other_question"] = Field(
        "", description="What is wrong with an answer that is not correct"
    )
    user: str = Field("", max_length=USER_CHARS_MAX, description="Whom the key speaks for")


class FeedbackOut(Schema):
    run_id: UUID
    correct: bool | None
    comment: str = Field(validation_alias="note")
    correction: str
    reason: str
    given_by: str = Field(validation_alias="reviewer_name")
    given_at: datetime = Field(validation_alias="created_at")

    @staticmethod
    def resolve_run_id(review: Review) -> Any:
        return review.task.query_run

    @staticmethod
    def resolve_correct(review: Review) -> bool | None:
        value = review.verdicts.get("correctness")
        return None if value is None else bool(value)


router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

TEXTS = ("context", "answer_sentences", "annotation", "details")
ORDER = ("-asked_at", "-query_run")
DEFAULTS = param.Body(default_factory=JudgeRequest)


@router.post("/runs/{run_id}/judge", operation_id="runs-judge", response=RunScoreOut)
def judge_one(request: HttpRequest, run_id: UUID, payload: JudgeRequest = DEFAULTS) -> Any:
    """Have a stored run judged now; what was kept of it is replaced. 409 for a run that failed or was turned away."""
    run = find_run(request, run_id)
    return judge_run(run, RunSettings.from_dict(payload.model_dump()), actor=request_key(request))


@router.get("/run-scores", operation_id="run-scores-list", response=PageOf[RunScoreOut])
def list_scores(
    request: HttpRequest,
    run_id: UUID | None = param.Query(None, description="only this stored run, with what its judge read and marked"),
    collection: str | None = None,
    reason: Literal["asked", "sampled"] | None = None,
    mode: str | None = param.Query(None, description="only runs that show this failure mode"),
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Scored runs, those asked last first, without their texts unless one is named."""
    key = request_key(request)
    if collection is not None:
        check_collection_scope(key, collection)
    scored = RunScore.objects.without_texts() if run_id is None else RunScore.objects.filter(pk=run_id)
    rows = scored.filter(key.visible.by_name("collection_name", "asked_at"))
    stated = {"collection_name": collection, "reason": reason, "modes__contains": [mode] if mode else None}
    page = paginate(filter_stated(rows, stated), ORDER, limit=limit, cursor=cursor)
    for score in page.items if run_id is None else ():
        for name in TEXTS:
            setattr(score, name, None)
    return page


@router.post(
    "/runs/{run_id}/feedback",
    auth=BearerAuth(changes=Permission.ASK),
    operation_id="runs-feedback-create",
    response=FeedbackOut,
)
def create_feedback(request: HttpRequest, run_id: UUID, payload: FeedbackIn) -> Any:
    """Say whether an answer is correct, why, and what the right answer is.

    It replaces what the same key said for the same user. 409 for a run without an answer.
    """
    return give_feedback(find_run(request, run_id), **payload.model_dump(), actor=request_key(request))


@router.get("/runs/{run_id}/feedback", operation_id="runs-feedback-list", response=ListOf[FeedbackOut])
def list_feedback(request: HttpRequest, run_id: UUID) -> Any:
    """All feedback on the answer of a run, the newest first."""
    return {"items": feedback_of(find_run(request, run_id).pk)}
