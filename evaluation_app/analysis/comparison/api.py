"""Runs beside each other over HTTP."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.params import functions as param

from collections_app.api.access import ERRORS
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, cut_page
from evaluation_app.analysis.comparison.presenters import choose_questions
from evaluation_app.analysis.comparison.run_comparison import QuestionChange, RunDifference, compare_runs
from evaluation_app.measures.schemas import IntervalOut, MeanOut
from evaluation_app.runs.requests import find_run

router = Router(auth=BearerAuth(), tags=["evaluation"])

Verdict = Literal["improved", "regressed", "noise", "few", "same", "unscored", "incomparable"]
Shown = Literal["moved", "worse", "better", "lost", "won", "all"]
Base = param.Query(..., description="The baseline: the run that the others are compared with")
Other = param.Query(..., description="The run that is compared with it")
Others = param.Query(..., description="The other runs, up to seven; repeat the parameter")
Show = param.Query("moved", description="lost: worse and was passing; won: passes now")
Cursor = param.Query(None, description="next_cursor of the page before")


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
    difference: IntervalOut | None = Field(description="other - base over the pairs, 95 % paired bootstrap interval")
    verdict: Verdict = Field(
        description="noise: the interval holds zero; few: it does not, but fewer than six questions moved"
    )
    better: int
    worse: int
    same: int
    reason: str = Field(description="Why the scores are not of one kind, empty when they are")


class AgainstOut(Schema):
    run: ComparedRun
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


class ComparisonOut(Schema):
    golden_set: str = Field(validation_alias="base.set_name")
    set_version: int = Field(validation_alias="base.set_version")
    set_digest: str = Field(validation_alias="base.set_digest")
    base: ComparedRun
    others: list[AgainstOut]
    headers: list[HeaderOut] = Field(description="What the runs were made with, as far as it differs")


class AskedOut(Schema):
    outcome: str
    passed: bool
    modes: list[str]
    query_run: UUID | None
    trace_id: str


class ComparedQuestionOut(Schema):
    position: int
    question: str = Field(validation_alias="before.question")
    category: str = Field(validation_alias="before.category")
    base: AskedOut = Field(validation_alias="before")
    other: AskedOut = Field(validation_alias="after")
    deltas: dict[str, float] = Field(description="other - base, of every measure that both scored")
    worst: float = Field(description="The largest loss, below 0; else the smallest gain; 0 when nothing moved")

    @staticmethod
    def resolve_deltas(change: QuestionChange) -> dict[str, float]:
        return {name: delta.delta for name, delta in change.deltas.items() if delta.delta is not None}


class QuestionPage(Schema):
    items: list[ComparedQuestionOut]
    next_cursor: str | None


@router.get("/comparisons", operation_id="comparisons-get", response={200: ComparisonOut, **ERRORS})
def get_comparison(
    request: HttpRequest,
    base: UUID = Base,
    other: list[UUID] = Others,
) -> Any:
    """Per measure what is better, worse, the same or noise. 409 not_comparable for runs of other questions."""
    scope = request_key(request).visible
    return compare_runs(find_run(base, scope), [find_run(each, scope) for each in other])


@router.get("/comparisons/questions", operation_id="comparisons-questions", response={200: QuestionPage, **ERRORS})
def list_questions(
    request: HttpRequest,
    base: UUID = Base,
    other: UUID = Other,
    show: Shown = Show,
    measure: str = param.Query("", description="What worse and better speak of; empty for any measure"),
    category: str = param.Query("", description="Only questions of this category"),
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = Cursor,
) -> Any:
    """The questions of two runs, the largest loss first."""
    scope = request_key(request).visible
    compared = compare_runs(find_run(base, scope), [find_run(other, scope)])
    rows, _ = choose_questions(compared.others[0], shown=show, measure=measure, category=category)
    return cut_page(rows, limit=limit, cursor=cursor)
