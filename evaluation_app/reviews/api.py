"""Feedback on answers over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema
from pydantic import ConfigDict, StrictBool

from collections_app.access.auth import BearerAuth, Router, request_key
from collections_app.access.permissions import Permission
from collections_app.http.fields import TextOrEmpty
from collections_app.http.schemas import ListOf, Request
from evaluation_app.models import Review
from evaluation_app.reviews.labels import (
    CORRECTION_CHARS_MAX,
    NOTE_CHARS_MAX,
    USER_CHARS_MAX,
    feedback_of,
    give_feedback,
)
from retrieval_app.search.api import find_run

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])


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
