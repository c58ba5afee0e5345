"""Evaluation runs over HTTP: asked for, looked at, cancelled, resumed, their results read.

Runs beside each other over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Field, Query, Schema, Status
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, answer, check_collection_scope, request_key
from collections_app.access.permissions import Permission
from collections_app.collections.services import get_collection
from collections_app.http.downloads import Reading, download_response
from collections_app.http.paging import DEFAULT_LIMIT, Page, cut_page, filter_stated, paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, Limit, PageOf, RowsDeleted, also_as
from evaluation_app.golden.sets import find_set
from evaluation_app.measures.statistics import Interval
from evaluation_app.models import EvaluationRun
from evaluation_app.reviews.agreement import anchored_scores
from evaluation_app.runs import lifecycle, schemas
from evaluation_app.runs.comparison.changes import Asked, HeaderRow, Unit
from evaluation_app.runs.comparison.pages import choose_questions
from evaluation_app.runs.comparison.stored_comparisons import Kind, RunDifference, RunVerdict, compare_runs
from evaluation_app.runs.lifecycle import RunRequest
from evaluation_app.runs.reports import run_lines
from evaluation_app.runs.requests import ITEM_DEFERRED, find_run, listed_runs, read_settings
from evaluation_app.runs.schemas import MeanOut
from retrieval_app.plans.services import choose_plan

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

ALL = "/evaluation-runs"
ONE = "/evaluation-runs/{run_id}"
ORDER = ("-created_at", "-id")
State = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@router.post(ALL, operation_id="evaluation-runs-create", response={202: schemas.EvaluationRunOut})
def create_evaluation_run(request: HttpRequest, payload: schemas.EvaluationRunRequest) -> HttpResponse:
    """Ask every question of a golden set by one plan, in the background. Plan fields are those of a search.

    409 for a set without questions; 422 for a plan, settings or thresholds that this run cannot have.
    """
    key = request_key(request)
    golden_set = find_set(payload.golden_set, key.visible)
    collection = get_collection(golden_set.collection_name)
    base_run = find_run(payload.base_run, key.visible) if payload.base_run else None

    def produce() -> EvaluationRun:
        chosen = choose_plan(collection, payload.plan, payload.stated())
        return lifecycle.start_run(
            golden_set,
            RunRequest(
                plan=chosen.plan,
                plan_name=chosen.name,
                settings=read_settings(payload.settings.stated() if payload.settings else {}),
                name=payload.name,
                purpose=EvaluationRun.Purpose.API,
                thresholds=payload.thresholds,
                base_run=base_run,
            ),
            actor=key,
        )

    return answer(request, produce, schemas.EvaluationRunOut, status=202)


@router.get(ALL, operation_id="evaluation-runs-list", response=PageOf[schemas.EvaluationRunOut])
def list_evaluation_runs(
    request: HttpRequest,
    golden_set: str | None = None,
    collection: str | None = None,
    state: State | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Newest first, with what each has found so far. A limited key sees those over its collections."""
    key = request_key(request)
    if collection is not None:
        check_collection_scope(key, collection)
    stated = {"set_name": golden_set, "collection_name": collection, "state": state}
    return paginate(filter_stated(listed_runs(key.visible), stated), ORDER, limit=limit, cursor=cursor)


@router.get(ONE, operation_id="evaluation-runs-get", response=schemas.EvaluationRunDetail)
def get_evaluation_run(
    request: HttpRequest,
    run_id: UUID,
    anchored: bool = param.Query(False, description="with the scores that people's labels correct"),
) -> Any:
    """Header, progress and figures; the figures grow while it runs."""
    run = _find(request, run_id)
    run.anchored_scores = anchored_scores(run) if anchored else None  # type: ignore[attr-defined]
    return run


@router.get(
    f"{ONE}/results",
    operation_id="evaluation-runs-results",
    response=PageOf[schemas.EvaluationItemOut],
    openapi_extra=also_as("application/jsonl"),
)
def list_evaluation_results(
    request: HttpRequest,
    run_id: UUID,
    query: Query[schemas.ResultQuery],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The questions that are done, by their place in the set.

    format jsonl: the whole run, {"run": header and figures} on the first line, then {"item": ...} for each question.
    """
    run = _find(request, run_id)
    if query.format == "jsonl":
        return jsonl_response(request, run)
    rows = run.items.all()
    if query.mode is not None:
        rows = rows.none() if "\x00" in query.mode else rows.filter(modes__contains=[query.mode])
    if query.outcome is not None:
        rows = rows.filter(outcome=query.outcome)
    if not query.content:
        rows = rows.defer(*ITEM_DEFERRED)
    page = paginate(rows, ("position",), limit=limit, cursor=cursor)
    for item in () if query.content else page.items:
        for name in ITEM_DEFERRED:
            setattr(item, name, None)
    return page


@router.patch(ONE, operation_id="evaluation-runs-change", response={frozenset({200, 202}): schemas.EvaluationRunOut})
def change_evaluation_run(request: HttpRequest, run_id: UUID, payload: schemas.EvaluationRunChange) -> Any:
    """cancelled: end a run after the question that it is at; what it found stays. 409 when it has ended.

    queued (202): go on with a run that was cancelled or stopped; with only_failed ask those questions again that
    failed. 409 when nothing is left, or it cannot go on.
    """
    run, key = _find(request, run_id), request_key(request)
    if payload.state == "cancelled":
        return lifecycle.cancel_run(run, key)
    return Status(202, (lifecycle.retry_failed if payload.only_failed else lifecycle.resume_run)(run, key))


@router.delete(ONE, operation_id="evaluation-runs-delete", response=RowsDeleted)
def delete_evaluation_run(request: HttpRequest, run_id: UUID) -> Any:
    """With its results. The stored runs of its questions stay. 409 while it is under way."""
    lifecycle.delete_run(_find(request, run_id), request_key(request))
    return {"deleted": 1}


def jsonl_response(request: HttpRequest, run: EvaluationRun) -> StreamingHttpResponse:
    """The run as a download."""
    reading = Reading("evaluationrun.export", f"downloaded evaluation run {run}", run, rows=run.items.count())
    name = f"evaluation-run-{run.pk}.jsonl"
    return download_response(request, run_lines(run), "application/jsonl", name, reading=reading)


def _find(request: HttpRequest, run_id: UUID) -> EvaluationRun:
    return find_run(run_id, request_key(request).visible)


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
