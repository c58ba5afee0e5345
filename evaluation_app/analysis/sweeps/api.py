"""Sweeps over HTTP: estimated, started, ranked, cancelled, the best plan saved."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from ninja import Field, Router, Schema
from ninja.params import functions as param
from pydantic import ConfigDict

from collections_app.api.access import ERRORS, answer
from collections_app.api.fields import NEXT_CURSOR, Cursor, Limit
from collections_app.api.schemas import IsoTime, Request, Stored, read_from
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, check_collection_scope, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.models.key_scope import CollectionScope
from collections_app.validation import SomeUuid
from evaluation_app.analysis.sweeps import lifecycle
from evaluation_app.analysis.sweeps.ranking import RankedPlan, Ranking, rank_sweep
from evaluation_app.golden.sets import find_set
from evaluation_app.measures.catalogue import find
from evaluation_app.measures.schemas import IntervalOut, MeanOut
from evaluation_app.models import GoldenSet, Sweep
from evaluation_app.runs.estimates import estimate_sweep
from evaluation_app.runs.requests import read_settings
from evaluation_app.runs.schemas import SettingsRequest
from evaluation_app.scoring.run_settings import RunSettings
from ragd.types import RetrievePlan
from retrieval_app.api.schemas import PlanFields, SavedPlanOut

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

ALL = "/sweeps"
ONE = "/sweeps/{sweep_id}"


class SweepRequest(PlanFields):
    """A golden set and a grid of plans. Fields of a plan that are stated hold for all of them."""

    golden_set: str = Field(description="The set's name")
    grid: dict[str, list[Any]] = Field(
        description='Values by field of a plan, such as {"k": [5, 10], "rerank": ["none", "builtin"]}; every '
        "combination is a plan, at most 64 of them"
    )
    measure: str = Field("", description="By whose mean the plans are ranked; default nDCG at the settings' cut")
    name: str = Field("", description="For people; at most 200 characters")
    plan: str | None = Field(None, description="A saved plan to begin from; server: the server's defaults")
    settings: SettingsRequest | None = Field(None, description="Default: questions are only searched")


class SaveRequest(Request):
    name: str
    run_id: SomeUuid | None = Field(None, description="Whose plan is saved; default: the best one's")
    is_default: bool | None = None


class EstimateOut(Schema):
    plans: int
    questions: int
    asked: int = Field(description="plans times questions")
    took_s: float | None = Field(description="null: nothing like it was measured on this collection")
    cost_usd: float | None
    source: str


class SweepOut(Schema):
    model_config = ConfigDict(alias_generator=read_from("sweep", own=("state", "done", "total", "failed")))

    id: int
    golden_set: str = Field(validation_alias="sweep.set_name")
    set_version: int
    set_digest: str
    collection: str = Field(validation_alias="sweep.collection_name")
    name: str
    grid: dict[str, Any]
    plans: int = Field(validation_alias="plans")
    measure: str
    settings: Stored[RunSettings]
    state: str
    done: int = Field(description="Questions asked, over all its runs")
    total: int
    failed: int
    saved_as: str
    created_by: str
    created_at: IsoTime

    @staticmethod
    def resolve_plans(progress: lifecycle.Progress) -> int:
        return len(progress.sweep.plans)


class RankedOut(Schema):
    place: int = Field(description="In the order of the grid, from 0")
    run_id: UUID = Field(validation_alias="run.id")
    state: str = Field(validation_alias="run.state")
    plan: Stored[RetrievePlan] = Field(validation_alias="run.plan")
    label: str
    mean: MeanOut
    interval: IntervalOut | None
    behind_best: IntervalOut | None = Field(
        validation_alias="behind", description="best - this over the questions that both scored"
    )
    standing: str = Field(description="best, level (cannot be told from the best), worse, unfinished or unscored")
    won: float | None = Field(description="The share of bootstrap draws in which no plan was better")
    per_question_ms: float | None = Field(description="Time at work by questions done, with judging")


class SweepDetail(SweepOut):
    ranked_by: str = Field(validation_alias="ranked_by")
    ranking: list[RankedOut] = Field(validation_alias="ranking")

    @staticmethod
    def resolve_ranked_by(progress: lifecycle.Progress, context: dict[str, Ranking]) -> str:
        return context["ranking"].measure

    @staticmethod
    def resolve_ranking(progress: lifecycle.Progress, context: dict[str, Ranking]) -> tuple[RankedPlan, ...]:
        return context["ranking"].rows


class SweepPage(Schema):
    items: list[SweepOut]
    next_cursor: str | None


class SweepDeleted(Schema):
    deleted: int


@router.post("/sweeps/estimate", operation_id="sweeps-estimate", response={200: EstimateOut, **ERRORS})
def estimate(request: HttpRequest, payload: SweepRequest) -> Any:
    """How many plans a grid gives, and what asking them would take. Starts nothing."""
    golden_set = find_set(payload.golden_set, request_key(request).visible)
    draft = _draft(golden_set, payload)
    return estimate_sweep(golden_set, draft.plans, draft.settings)


@router.post(ALL, operation_id="sweeps-create", response={202: SweepOut, **ERRORS})
def create_sweep(request: HttpRequest, payload: SweepRequest) -> HttpResponse:
    """One evaluation run per plan, in the background, behind all other runs."""
    key = request_key(request)
    golden_set = find_set(payload.golden_set, key.visible)

    def produce() -> lifecycle.Progress:
        draft = _draft(golden_set, payload)
        made = lifecycle.start_sweep(golden_set, draft, name=payload.name, actor=key)
        return lifecycle.progress_of(made)

    return answer(request, produce, SweepOut, status=202)


@router.get(ALL, operation_id="sweeps-list", response={200: SweepPage, **ERRORS})
def list_sweeps(
    request: HttpRequest,
    golden_set: str | None = None,
    collection: str | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Newest first. A limited key sees those over its collections."""
    key = request_key(request)
    if collection is not None:
        check_collection_scope(key, collection)
    requested = {"set_name": golden_set, "collection_name": collection}
    rows = _visible(key.visible)
    if any("\x00" in value for value in requested.values() if value):
        rows = rows.none()
    rows = rows.filter(**{name: value for name, value in requested.items() if value})
    page = paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)
    progress = lifecycle.read_progress(page.items)
    return {"items": [progress[sweep.pk] for sweep in page.items], "next_cursor": page.next_cursor}


@router.get(ONE, operation_id="sweeps-get", response={200: SweepDetail, **ERRORS})
def get_sweep(
    request: HttpRequest,
    sweep_id: int,
    by: str = param.Query("", description="Rank by this measure instead of the sweep's own"),
) -> Any:
    """A sweep with its plans ranked so far."""
    result = _find(request, sweep_id)
    ranking = rank_sweep(result, find(by).name if by else "")
    return SweepDetail.from_orm(lifecycle.progress_of(result), context={"ranking": ranking})


@router.post(f"{ONE}/cancel", operation_id="sweeps-cancel", response={200: SweepOut, **ERRORS})
def cancel_sweep(request: HttpRequest, sweep_id: int) -> Any:
    """End its runs; what they found stays. 409 when all have ended."""
    return lifecycle.progress_of(lifecycle.cancel_sweep(_find(request, sweep_id), request_key(request)))


@router.post(f"{ONE}/save", operation_id="sweeps-save", response={200: SavedPlanOut, **ERRORS})
def save_plan(request: HttpRequest, sweep_id: int, payload: SaveRequest) -> Any:
    """Keep one of its plans under a name of the collection's, instead of one that has it."""
    result = _find(request, sweep_id)
    best = rank_sweep(result).best
    run_id = payload.run_id or (best.run.pk if best else None)
    if run_id is None:
        raise ServiceError(
            f"no plan of {result} has a score yet; name the run whose plan is to be saved",
            type="nothing_ranked",
            status=409,
            field="run_id",
        )
    return lifecycle.save_swept_plan(
        result, run_id, payload.name, is_default=payload.is_default, actor=request_key(request)
    )


@router.delete(ONE, operation_id="sweeps-delete", response={200: SweepDeleted, **ERRORS})
def delete_sweep(request: HttpRequest, sweep_id: int) -> Any:
    """With its runs and their results. 409 while one of them is under way."""
    lifecycle.delete_sweep(_find(request, sweep_id), request_key(request))
    return {"deleted": 1}


def _draft(golden_set: GoldenSet, payload: SweepRequest) -> lifecycle.Draft:
    explicit = payload.settings.stated() if payload.settings else {}
    answers = explicit.get("judge", "none") != "none" or bool(explicit.get("contributions"))
    settings = read_settings({"answers": answers} | explicit)
    return lifecycle.draft_sweep(
        golden_set,
        grid=payload.grid,
        measure=payload.measure,
        plan=payload.plan,
        stated=payload.stated(),
        settings=settings,
    )


def _visible(scope: CollectionScope) -> QuerySet[Sweep]:
    return Sweep.objects.filter(scope.by_name("collection_name", "created_at"))


def _find(request: HttpRequest, sweep_id: int) -> Sweep:
    record = _visible(request_key(request).visible).filter(pk=sweep_id).first() if 0 < sweep_id < 2**63 else None
    if record is None:
        raise ServiceError(
            f"there is no sweep {sweep_id} that you may see; GET /v1/sweeps lists those that there are",
            type="unknown_sweep",
            status=404,
        )
    return record
