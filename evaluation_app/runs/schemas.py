"""The shapes of evaluation runs over HTTP. An unknown field of a request is an error, never ignored.

The shapes of means and intervals.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from ninja import Field, Schema
from pydantic import FiniteFloat, StrictBool

from collections_app.http.schemas import Failure, IsoTime, IsoTimeOrNull, Printable, Request, Stored
from collections_app.http.validation import WHOLE, SomeUuid
from evaluation_app.golden.questions import Golden
from evaluation_app.measures.scores import LABEL_THRESHOLD, Score
from evaluation_app.measures.statistics import Anchored
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.summaries import Miss as MissedThreshold
from evaluation_app.runs.summaries import misses_of, question_misses
from evaluation_app.scoring.judge_selection import CUT, CUT_MAX, RunSettings
from ragd.types import RetrievePlan
from retrieval_app.search.schemas import PlanOptions


class SettingsRequest(Request):
    """What is measured and how. What is left out has its default."""

    answers: StrictBool | None = Field(None, description="false: questions are only searched; default true")
    judge: Literal["none", "embedded", "llm", "panel"] | None = Field(
        None, description="Who judges answers; default embedded, none for a run that only searches"
    )
    judge_model: Printable | None = Field(
        None,
        max_length=200,
        description="Another model than the server's for judge llm; of a panel its judges, such as embedded, gpt-4o",
    )
    cut: Annotated[int, Field(ge=1, le=CUT_MAX), WHOLE] | None = Field(
        None, description=f"The k of precision@k and its kin; default {CUT}"
    )
    unit: Literal["tokens", "sentences"] | None = Field(None, description="Of the lengths in TRACe; default tokens")
    contributions: StrictBool | None = Field(
        None, description="Whether each retrieved document is also answered from alone (eRAG); default false"
    )
    downstream: str | None = Field(None, description="By which measure such an answer is labelled; default f1")
    label_threshold: FiniteFloat | None = Field(
        None,
        gt=0,
        le=1,
        description=f"The least label that eRAG's MAP and MRR count as relevant; default {LABEL_THRESHOLD}",
    )
    llm_model: str | None = Field(None, max_length=200, description="Another chat model than the server's")
    system_prompt: str | None = Field(None, description="Replaces the role of the model; the citation rules stay")
    corrective: StrictBool | None = Field(None, description="The corrective step; default: as the collection says")
    as_of: str | None = Field(None, description="Ask the collection as it was at this time; ISO 8601 with a zone")

    def stated(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class EvaluationRunRequest(PlanOptions):
    """A golden set, and the plan to ask it by: fields that are stated, over a saved plan."""

    golden_set: str = Field(description="The set's name")
    name: str = Field("", description="For people; at most 200 characters")
    settings: SettingsRequest | None = None
    thresholds: dict[str, FiniteFloat] = Field(
        default_factory=dict, description='The least mean that passes, by measure, such as {"recall@10": 0.8}'
    )
    base_run: SomeUuid | None = Field(None, description="The base run of a fix")


class EvaluationRunChange(Request):
    state: Literal["cancelled", "queued"]
    only_failed: StrictBool = Field(False, description="with queued: only the questions that failed")


class Fault(Failure):
    pass


class Miss(Schema):
    measure: str
    threshold: float = Field(validation_alias="bound")
    value: float | None = None
    reason: str = ""


class EvaluationRunOut(Schema):
    id: UUID
    golden_set: str = Field(validation_alias="set_name")
    collection: str = Field(validation_alias="collection_name")
    name: str
    purpose: str
    set_version: int
    set_digest: str = Field(description="SHA-256 of the questions; runs are compared over the same one")
    plan: Stored[RetrievePlan]
    plan_hash: str
    plan_name: str
    settings: Stored[RunSettings]
    answerer: str
    prompt_hash: str = Field(description="SHA-256 of the answerer's instructions, empty where it has none")
    calibration: str = Field(description="By which answers were corrected, empty where the corrective step was off")
    judge: str
    judge_version: str
    index_version: int
    embed_model: str
    spec_version: str
    code_version: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    cancel_requested: bool
    total: int
    done: int
    failed: int = Field(description="Questions that failed, or of which a score did")
    passed: bool | None = Field(description="null: no threshold is set, or the run has not ended")
    thresholds: dict[str, float]
    summary: dict[str, Any] = Field(description="Means with coverage and intervals, categories, outcomes, modes")
    cost_usd: float | None = Field(description="Of the answers; null: a price is not known")
    judge_cost_usd: float | None
    token_usage: dict[str, Any]
    took_ms: float = Field(description="Time at work, over all attempts")
    attempts: int
    retries: int
    created_by: str
    base_run: UUID | None = Field(None, validation_alias="experiment.base_id")
    experiment: UUID | None = Field(validation_alias="experiment_id")
    misses: list[Miss] = Field(description="The thresholds of the run that its means do not reach")
    error: Fault | None
    created_at: IsoTime
    started_at: IsoTimeOrNull
    finished_at: IsoTimeOrNull

    @staticmethod
    def resolve_misses(run: EvaluationRun) -> list[dict[str, Any]]:
        return [{"measure": miss.measure, "bound": miss.bound, "value": miss.value} for miss in misses_of(run)]

    @staticmethod
    def resolve_error(run: EvaluationRun) -> EvaluationRun | None:
        return run if run.error_type else None


class AnchoredScoreOut(Schema):
    measure: str
    title: str
    judged: float = Field(description="The judge's mean over these answers")
    estimate: Anchored | None = Field(description="null while labels are missing")
    labels: int = Field(description="Labels of answers that chance drew")
    answers: int = Field(description="Answers that the judge scored")
    missing: int = Field(description="Labels that are still needed for an estimate")


class EvaluationRunDetail(EvaluationRunOut):
    anchored_scores: list[AnchoredScoreOut] | None = Field(
        None, description="What people would say of all answers, by scores and labels; where it was asked for"
    )


class EvaluationItemOut(Schema):
    position: int
    question_text: str
    category: str
    weight: float
    outcome: Literal["answered", "abstained", "refused", "searched", "error"]
    answer: str
    retrieved_ids: list[str]
    scores: Stored[dict[str, Score]] = Field(
        description='By measure: {"state": "scored", "value"}, or {"state": "unscorable" or "error", "reason"}'
    )
    modes: list[str] = Field(description="Keys of failure modes and diagnostics")
    failing: bool = Field(
        validation_alias="is_failing",
        description="Whether it failed with an error or shows a failure mode; diagnostics alone fail no question",
    )
    confidence: float | None
    action: str
    cost_usd: float | None
    judge_usage: dict[str, Any]
    took_ms: float
    trace_id: str
    question_id: int | None
    golden: Stored[Golden] = Field(description="The golden question as it was asked")
    query_run: UUID | None = Field(description="GET /v1/runs/{run_id} gives it, while it is kept")
    passed: bool | None
    misses: list[Miss]
    error: Fault | None
    context: list[dict[str, Any]] | None = None
    answer_sentences: list[list[str]] | None = None
    annotation: dict[str, Any] | None = None
    contributions: list[dict[str, Any]] | None = None
    details: dict[str, Any] | None = None

    @staticmethod
    def resolve_passed(item: EvaluationItem) -> bool | None:
        """By the run's thresholds with the question's own over them; None where none speaks of it."""
        misses = question_misses(item, item.run.thresholds)
        return None if misses is None else not misses

    @staticmethod
    def resolve_misses(item: EvaluationItem) -> list[MissedThreshold]:
        return question_misses(item, item.run.thresholds) or []

    @staticmethod
    def resolve_error(item: EvaluationItem) -> EvaluationItem | None:
        return item if item.error_type else None


class ResultQuery(Schema):
    mode: str | None = Field(None, description="only questions that show this failure mode")
    outcome: Literal["answered", "abstained", "refused", "searched", "error"] | None = None
    format: Literal["json", "jsonl"] = "json"
    content: bool = Field(True, description="false: without context, marks, contributions and details")


class MeanOut(Schema):
    value: float | None
    scored: int
    unscorable: int
    errors: int
    total: int
