"""Runs beside each other over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Query, Schema
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, request_key
from collections_app.access.permissions import Permission
from collections_app.http.fields import NEXT_CURSOR, Cursor, Limit
from collections_app.http.paging import DEFAULT_LIMIT, Page, cut_page
from collections_app.http.schemas import PageOf
from evaluation_app.measures.statistics import Interval
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.comparison.changes import Asked, HeaderRow, Unit
from evaluation_app.runs.comparison.pages import choose_questions
from evaluation_app.runs.comparison.stored_comparisons import Kind, RunDifference, RunVerdict, compare_runs
from evaluation_app.runs.requests import find_run
from evaluation_app.runs.schemas import MeanOut

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

Verdict = Literal["improved", "regressed", "small", "noise", "few", "same", "unscored", "incomparable"]
Shown = Literal["moved", "worse", "better", "lost", "won", "all"]
BASE = "The baseline: the run that the others are compared with"
Others = param.Query(..., description="The other runs, up to seven; repeat the parameter")


class ComparedRun(Schema):
    id: UUID
    name: str
    state: str
    plan_name: str
    plan_hash: str
    done: int
    total: int


class ChangeOut(Schema):
    measure: str = Field(validation_alias="name")
    title: str
    higher_is_better: bool
    base: MeanOut
    other: MeanOut
    difference: Interval | None = Field(description="other - base over the pairs, 95 % paired bootstrap interval")
    verdict: Verdict = Field(
        description="noise: the interval holds zero; few: it does not, but fewer than six questions moved; small: less "
        "than the set's relevant_effect"
    )
    better: int
    worse: int
    same: int
    reason: str = Field(description="Why the scores are not of one kind, empty when they are")


class FindingOut(Schema):
    measure: str
    difference: Interval
    p: float = Field(description="Two-sided, of the randomisation test for pairs; of this pair alone")
    better: int
    worse: int
    same: int
    allowed: float = Field(description="Smallest relevant effect of the primary measure; largest drop of a guardrail")
    by_construction: str = Field(description="Why a gain says nothing of the change, empty where it does")


class ConclusionOut(Schema):
    kind: Kind = Field(description="not_better: no relevant gain is possible, or a guardrail fell")
    sentence: str
    primary: FindingOut | None = Field(validation_alias="decisive.primary")
    guardrails: list[FindingOut] = Field(validation_alias="decisive.guardrails")
    broken: list[str] = Field(description="Guardrails that fell for certain by more than is allowed")
    doubtful: list[str] = Field(description="Guardrails that fell by more than is allowed, which may be chance")
    p: float | None = Field(description="Of the primary measure, by Holm's method over the runs compared with the base")
    looks: int = Field(description="So many runs were compared with the base")

    @staticmethod
    def resolve_broken(verdict: RunVerdict) -> list[str]:
        return [item.measure for item in verdict.broken]

    @staticmethod
    def resolve_doubtful(verdict: RunVerdict) -> list[str]:
        return [item.measure for item in verdict.doubtful]


class UsageOut(Schema):
    name: Literal["latency_p50", "latency_p95", "tokens", "cost"]
    unit: Unit
    base: float | None
    other: float | None
    difference: Interval | None = Field(description="other - base, 95 % paired bootstrap interval")


class AgainstOut(Schema):
    run: ComparedRun
    conclusion: ConclusionOut = Field(validation_alias="verdict")
    usage: list[UsageOut] = Field(description="Of the queries, without judging")
    verdicts: dict[str, int] = Field(validation_alias="counts", description="How many metrics have each verdict")
    changes: list[ChangeOut]
    questions: int = Field(description="Done in both runs")
    unpaired: int = Field(description="Done in one of them only")
    lost: list[int] = Field(description="Positions of questions that passed in the base and do not here")
    won: list[int]

    @staticmethod
    def resolve_questions(against: RunDifference) -> int:
        return len(against.questions)

    @staticmethod
    def resolve_lost(against: RunDifference) -> list[int]:
        return sorted(change.position for change in against.lost)

    @staticmethod
    def resolve_won(against: RunDifference) -> list[int]:
        return sorted(change.position for change in against.won)


class HeaderOut(Schema):
    field: str = Field(validation_alias="name")
    title: str
    values: list[str] = Field(description="One per run, the base first")


class ComparedQuestionOut(Schema):
    position: int
    question: str
    category: str
    base: Asked = Field(validation_alias="before")
    other: Asked = Field(validation_alias="after")
    deltas: dict[str, float] = Field(description="other - base, of every measure that both scored")
    worst: float = Field(description="The largest loss, below 0; else the smallest gain; 0 when nothing moved")


class QuestionFilters(Schema):
    show: Shown = Field("moved", description="Of the questions: lost, worse and was passing; won, passes now")
    measure: str = Field("", description="What worse and better speak of; empty for any measure")
    category: str = Field("", description="Only questions of this category")


class ComparisonOut(Schema):
    golden_set: str = Field(validation_alias="base.set_name")
    set_version: int = Field(validation_alias="base.set_version")
    set_digest: str = Field(validation_alias="base.set_digest")
    base: ComparedRun
    others: list[AgainstOut]
    headers: list[HeaderOut] = Field(description="What the runs were made with, as far as it differs")
    questions: PageOf[ComparedQuestionOut] = Field(
        description="Of the base and the first other run, largest loss first"
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What `ComparisonOut` reads."""

    base: EvaluationRun
    others: Sequence[RunDifference]
    headers: Sequence[HeaderRow]
    questions: Page[Any]


@router.get("/comparisons", operation_id="comparisons-get", response=ComparisonOut)
def get_comparison(
    request: HttpRequest,
    filters: Query[QuestionFilters],
    base: UUID = param.Query(..., description=BASE),
    other: list[UUID] = Others,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Per measure what is better, worse, the same or noise, and the questions that differ, of which there are pages.

    409 not_comparable for runs of other questions.
    """
    scope = request_key(request).visible
    compared = compare_runs(find_run(base, scope), [find_run(each, scope) for each in other])
    rows, _ = choose_questions(
        compared.others[0], shown=filters.show, measure=filters.measure, category=filters.category
    )
    page = cut_page(rows, limit=limit, cursor=cursor)
    return Answer(compared.base, compared.others, compared.headers, page)
