"""What the API reads and writes of scored runs and of sampling."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Field, Schema

from collections_app.api.fields import Printable, accepts, between
from collections_app.api.schemas import Id, Request, Stored, TextOrNull
from collections_app.validation import StrictInt
from evaluation_app.measures.scores import Score
from evaluation_app.scoring.sampling import PER_DAY_MAX


class JudgeRequest(Request):
    judge: Literal["embedded", "llm"] = "embedded"
    judge_model: Printable = Field("", max_length=200, description="of the judge llm; left out: RAGD_JUDGE_MODEL")
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
    asked_at: datetime
    judged_at: datetime = Field(validation_alias="created_at")


class RunScoreDetails(RunScoreOut):
    context: list[dict[str, Any]] = Field(description='per retrieved chunk {"key", "sentences": [[key, text]]}')
    answer_sentences: list[list[str]]
    annotation: dict[str, Any] = Field(
        description='{"relevant": [key], "utilized": [key], "support": [{"key", "by": [key], "supported"}]}'
    )
    details: dict[str, Any]


class RunScoreList(Schema):
    items: list[RunScoreOut]
    next_cursor: str | None


class SamplingIn(Request):
    enabled: bool
    rate: Annotated[float, accepts(exclusiveMinimum=0, maximum=1)] = Field(
        0.1, description="sampling rate, above 0 to 1"
    )
    per_day: Annotated[StrictInt, between(1, PER_DAY_MAX)] = Field(
        500, description="at most so many of one day, in UTC"
    )
    judge: Literal["embedded", "llm"] = "embedded"
    judge_model: Printable = Field("", max_length=200, description="of the judge llm; left out: RAGD_JUDGE_MODEL")


class SamplingOut(SamplingIn):
    collection: str = Field(validation_alias="collection_name")
    enabled_at: datetime | None
    looked_until: datetime | None
