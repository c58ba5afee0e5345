"""Experiments over HTTP: estimated, started, followed with what was found, cancelled, a plan saved, deleted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema
from ninja.params import functions as param
from pydantic import Discriminator, StrictBool, Tag

from collections_app.access.auth import BearerAuth, Router, answer, check_collection_scope, find_collection, request_key
from collections_app.access.permissions import Permission
from collections_app.errors import ServiceError, UnknownError
from collections_app.http.paging import DEFAULT_LIMIT, filter_stated, paginate
from collections_app.http.schemas import (
    NEXT_CURSOR,
    Cursor,
    EmbedDims,
    EmbedModel,
    IsoTime,
    Limit,
    PageOf,
    Request,
    RowsDeleted,
    Stored,
    accepts,
    between,
)
from collections_app.http.validation import SomeUuid, StrictInt
from evaluation_app.experiments import services
from evaluation_app.experiments.plan_grid import Draft, draft_plans
from evaluation_app.experiments.ranking import SAMPLE_CHUNKS, rank, rank_plans, winner_of
from evaluation_app.golden.sets import find_set
from evaluation_app.measures.catalogue import find
from evaluation_app.measures.statistics import Interval
from evaluation_app.models import Experiment, GoldenSet
from evaluation_app.runs.requests import estimate_plans, find_run, read_settings
from evaluation_app.runs.schemas import MeanOut, SettingsRequest
from ragd.errors import InvalidInput
from ragd.types import Mode, RetrievePlan, VectorType
from retrieval_app.search.schemas import PlanFields

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

ALL = "/experiments"
ONE = "/experiments/{experiment_id}"
Kind = Experiment.Kind


class PlansRequest(PlanFields):
    """A golden set and a grid of plans. Fields of a plan that are stated hold for all of them."""

    kind: Literal["plans"]
    dry_run: StrictBool = Field(False, description="Estimate only")
    golden_set: str = Field(description="The set's name")
    grid: dict[str, list[Any]] = Field(
        description='Values by field of a plan, such as {"k": [5, 10], "rerank": ["none", "builtin"]}; every '
        "combination is a plan, at most 64 of them"
    )
    measure: str = Field("", description="By whose mean the plans are ranked; default nDCG at the settings' cut")
    name: str = Field("", description="For people; at most 200 characters")
    plan: str | None = Field(None, description="A saved plan to begin from; server: the server's defaults")
    settings: SettingsRequest | None = Field(None, description="Default: questions are only searched")


class CandidateIn(Request):
    embed_model: EmbedModel
    embed_dims: EmbedDims | None = None
    vector_type: VectorType | None = None


class ModelsRequest(Request):
    """A collection and embedding models, which index a sample of its documents."""

    kind: Literal["models"]
    collection: str
    models: Annotated[list[CandidateIn], accepts(minItems=1)] = Field(
        description="Beside the collection's own, which is always compared with"
    )
    golden_set: str | None = Field(None, description="Its questions; null: made from the documents")
    k: Annotated[StrictInt, between(1, services.K_MAX)] = Field(services.K, description="Documents that count")
    sample: StrictInt = Field(SAMPLE_CHUNKS, description="About so many chunks, by documents")


class FixRequest(Request):
    """A fix of a failure mode, tried against a run of the same set."""

    kind: Literal["fix"]
    base: SomeUuid = Field(description="The evaluation run that the fix is to better")
    mode: str = Field(description="Key of the failure mode")
    fix: str = Field(description="Key of one of its fixes")


def _shape_of(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return {"plans": "PlansRequest", "models": "ModelsRequest", "fix": "FixRequest"}.get(str(kind))


ExperimentRequest = Annotated[
    Annotated[PlansRequest, Tag("PlansRequest")]
    | Annotated[ModelsRequest, Tag("ModelsRequest")]
    | Annotated[FixRequest, Tag("FixRequest")],
    Discriminator(_shape_of, custom_error_type="kind", custom_error_message="kind must be 'plans', 'models' or 'fix'"),
]
PAYLOAD = param.Body(...)


class ExperimentChange(Request):
    state: Literal["cancelled"] | None = None
    saved_as: str | None = Field(None, description="Name of a plan")
    run_id: SomeUuid | None = Field(None, description="Whose plan is saved; default: the best one's")
    is_default: bool | None = None


class EstimateOut(Schema):
    plans: int
    questions: int
    asked: int = Field(description="plans times questions")
    took_s: float | None = Field(description="null: nothing like it was measured on this collection")
    cost_usd: float | None
    source: str


class ExperimentOut(Schema):
    id: UUID
    kind: Literal["plans", "models", "fix"]
    golden_set: str = Field(description="Empty where the questions were made from the documents")
    set_version: int
    set_digest: str
    collection: str
    name: str
    base: UUID | None = Field(description="The run that a fix is to better")
    grid: dict[str, Any]
    variants: int
    measure: str = Field(description="By whose mean plans are ranked")
    settings: dict[str, Any]
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    done: int = Field(description="Questions asked, over all its runs")
    total: int
    failed: int
    error: str = Field(description="Of the first run that failed")
    outcome: Literal["open", "kept", "discarded"]
    saved_as: str
    created_by: str
    created_at: IsoTime


class RankedOut(Schema):
    place: int = Field(description="In the order of the variants, from 0")
    run_id: UUID = Field(validation_alias="run.id")
    state: str = Field(validation_alias="run.state")
    plan: Stored[RetrievePlan] = Field(validation_alias="run.plan")
    label: str
    mean: MeanOut
    interval: Interval | None
    behind_best: Interval | None = Field(
        validation_alias="behind", description="best - this over the questions that both scored"
    )
    standing: str = Field(description="best, level (cannot be told from the best), worse, unfinished or unscored")
    won: float | None = Field(description="The share of bootstrap draws in which it was best; level plans share a draw")
    per_question_ms: float | None = Field(description="Time at work by questions done, with judging")


class StandingOut(Schema):
    embed_model: str
    embed_dims: int
    vector_type: VectorType
    is_current: bool
    ndcg: Interval
    recall: Interval
    gain: Interval | None = Field(description="nDCG less that of the collection's own model, question by question")
    p: float | None = Field(description="of the gain, corrected for the number of models (Holm)")
    by_mode: dict[Mode, float] = Field(description="mean nDCG by search mode")
    weights: dict[str, float] = Field(description="of the lists that hybrid search fused")
    ms_per_chunk: float = Field(description="to embed one")
    query_ms: float = Field(description="median of embedding and searching one question")
    index_bytes: int = Field(description="table and vector index of the whole collection, by the sample's")
    embed_s: float = Field(description="to embed the whole collection, by the sample's")
    cost_usd: float | None = Field(description="for the whole collection; null without a price")


class ExperimentDetail(ExperimentOut):
    runs: list[UUID] = Field(description="Its evaluation runs, in the order of the variants")
    ranked_by: str = Field(description="Of plans; else empty")
    ranking: list[RankedOut] = Field(description="Of plans, best first")
    standings: list[StandingOut] = Field(description="Of embedding models that are finished, best first")
    winner: StandingOut | None = Field(description="Better than the collection's own model by more than chance")


SAME = (
    "id", "kind", "set_version", "set_digest", "name", "grid", "measure", "settings", "outcome", "saved_as",
    "created_by", "created_at",
)  # fmt: skip
FOLLOWED = ("state", "done", "total", "failed", "error")


def _shown(progress: services.Progress) -> dict[str, Any]:
    experiment = progress.experiment
    shown = {name: getattr(experiment, name) for name in SAME} | {name: getattr(progress, name) for name in FOLLOWED}
    return shown | {
        "golden_set": experiment.set_name,
        "collection": experiment.collection_name,
        "base": experiment.base_id,
        "variants": len(experiment.variants),
    }


def _detailed(experiment: Experiment, by: str) -> dict[str, Any]:
    ranking = rank_plans(experiment, by) if experiment.kind == Kind.PLANS else None
    standings = rank(experiment) if experiment.kind == Kind.MODELS else []
    winner = winner_of(standings)
    return _shown(services.progress_of(experiment)) | {
        "runs": list(experiment.runs.order_by("place").values_list("pk", flat=True)),
        "ranked_by": ranking.measure if ranking else "",
        "ranking": list(ranking.rows) if ranking else [],
        "standings": [each.as_dict() for each in standings],
        "winner": winner.as_dict() if winner else None,
    }


@router.post(ALL, operation_id="experiments-create", response={200: EstimateOut, 202: ExperimentOut})
def create_experiment(request: HttpRequest, payload: ExperimentRequest = PAYLOAD) -> Any:
    """Try a grid of plans, compare embedding models over a sample of a collection, or try a fix of a failure mode.

    One evaluation run per variant, in the background, behind all other runs. dry_run, of plans: how many there are, and
    what asking them would take.
    """
    if isinstance(payload, ModelsRequest):
        start = _model_starter(request, payload)
    elif isinstance(payload, FixRequest):
        start = _fix_starter(request, payload)
    else:
        key = request_key(request)
        golden_set = find_set(payload.golden_set, key.visible)
        if payload.dry_run:
            draft = _draft(golden_set, payload)
            return estimate_plans(golden_set, draft.plans, draft.settings)

        def start() -> Experiment:
            return services.start_plans(golden_set, _draft(golden_set, payload), name=payload.name, actor=key)

    return answer(request, lambda: _shown(services.progress_of(start())), ExperimentOut, status=202)


def _model_starter(request: HttpRequest, payload: ModelsRequest) -> Callable[[], Experiment]:
    key = request_key(request)
    target = find_collection(request, payload.collection)
    golden_set = find_set(payload.golden_set, key.visible) if payload.golden_set else None
    models = [model.model_dump(exclude_none=True) for model in payload.models]
    return partial(
        services.start_models, target, models, golden_set=golden_set, k=payload.k, sample=payload.sample, actor=key
    )


def _fix_starter(request: HttpRequest, payload: FixRequest) -> Callable[[], Experiment]:
    key = request_key(request)
    return partial(services.try_fix, find_run(payload.base, key.visible), payload.mode, payload.fix, actor=key)


@router.get(ALL, operation_id="experiments-list", response=PageOf[ExperimentOut])
def list_experiments(
    request: HttpRequest,
    kind: Literal["plans", "models", "fix"] | None = None,
    golden_set: str | None = None,
    collection: str | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Newest first. A limited key sees those over its collections."""
    key = request_key(request)
    if collection is not None:
        check_collection_scope(key, collection)
    stated = {"set_name": golden_set, "collection_name": collection, "kind": kind}
    rows = services.visible_experiments(key.visible).defer("questions", "doc_ids")
    page = paginate(filter_stated(rows, stated), ("-created_at", "-id"), limit=limit, cursor=cursor)
    progress = services.read_progress(page.items)
    return {"items": [_shown(progress[each.pk]) for each in page.items], "next_cursor": page.next_cursor}


@router.get(ONE, operation_id="experiments-get", response=ExperimentDetail)
def get_experiment(
    request: HttpRequest,
    experiment_id: UUID,
    by: str = param.Query("", description="Rank plans by this measure instead of the experiment's own"),
) -> Any:
    """An experiment with what was found so far."""
    return _detailed(_find(request, experiment_id), find(by).name if by else "")


@router.patch(ONE, operation_id="experiments-change", response=ExperimentOut)
def change_experiment(request: HttpRequest, experiment_id: UUID, payload: ExperimentChange) -> Any:
    """cancelled: end its runs; what they found stays. 409 when all have ended.

    saved_as: keep one of its plans under this name of the collection's, instead of one that has it.
    """
    experiment, key = _find(request, experiment_id), request_key(request)
    if (payload.state is None) == (payload.saved_as is None):
        raise InvalidInput("give either state or saved_as", field="state")
    if payload.saved_as is None:
        experiment = services.cancel_experiment(experiment, key)
    else:
        run_id = payload.run_id or _best_run(experiment)
        services.save_variant(experiment, run_id, payload.saved_as, is_default=payload.is_default, actor=key)
        experiment.refresh_from_db()
    return _shown(services.progress_of(experiment))


def _best_run(experiment: Experiment) -> UUID:
    """The run whose plan is saved where none is named."""
    if experiment.kind == Kind.PLANS:
        best = rank_plans(experiment).best
        run_id = best.run.pk if best else None
    else:
        run_id = experiment.runs.values_list("pk", flat=True).first()
    if run_id is None:
        raise ServiceError(
            f"no plan of {experiment} has a score yet; name the run whose plan is to be saved",
            type="nothing_ranked",
            field="run_id",
        )
    return run_id


@router.delete(ONE, operation_id="experiments-delete", response=RowsDeleted)
def delete_experiment(request: HttpRequest, experiment_id: UUID) -> Any:
    """With its runs and their results. 409 while one of them is under way."""
    services.delete_experiment(_find(request, experiment_id), request_key(request))
    return {"deleted": 1}


def _draft(golden_set: GoldenSet, payload: PlansRequest) -> Draft:
    explicit = payload.settings.stated() if payload.settings else {}
    answers = explicit.get("judge", "none") != "none" or bool(explicit.get("contributions"))
    settings = read_settings({"answers": answers} | explicit)
    return draft_plans(
        golden_set,
        grid=payload.grid,
        measure=payload.measure,
        plan=payload.plan,
        stated=payload.stated(),
        settings=settings,
    )


def _find(request: HttpRequest, experiment_id: UUID) -> Experiment:
    record = services.visible_experiments(request_key(request).visible).filter(pk=experiment_id).first()
    if record is None:
        raise UnknownError(
            "experiment",
            f"there is no experiment {experiment_id} that you may see; GET /v1/experiments lists those that there are",
        )
    return record
