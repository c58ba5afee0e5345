"""Runs and settings as callers name them, the run that later runs are compared with, time and cost of asking.

What decides a run's figures beside its questions, read when it starts and compared when it goes on.

Which evaluation runs are of what serves: the default plan of a collection on its active index version.

All others (experiments, gates, other plans and index versions, other models or prompts, retrieval only)
say nothing of what a caller gets who states nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, FloatField, Q, QuerySet, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

import ragd
from collections_app.access.context import system_access
from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.documents.revisions.past_states import read_past_state
from collections_app.errors import ServiceError, UnknownError
from collections_app.index.stores import embedder_for
from collections_app.models import Collection, IndexVersion
from evaluation_app.judges.rubrics import read_rubrics
from evaluation_app.measures.catalogue import ANSWER, CHUNK, EXPECTED, MEASURES, measure_of
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.scoring.judge_selection import RunSettings, has_judge_model
from ragd.types import RetrievePlan
from ragd.version import product_version
from retrieval_app.answers.chat_answerer import open_answerer
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import ChosenPlan, default_plans, open_corrector

LISTED = 10
ITEM_DEFERRED = ("context", "answer_sentences", "annotation", "contributions", "details")


def read_settings(explicit: Mapping[str, Any]) -> RunSettings:
    """Settings from what was stated; what is missing has its default. A run that only searches has no judge by itself.

    Raises InvalidInput for unknown and wrong fields.
    """
    provided = dict(explicit)
    if provided.get("answers") is False:
        provided.setdefault("judge", "none")
    return RunSettings.from_dict(provided)


def listed_runs(scope: CollectionScope = EVERYTHING) -> QuerySet[EvaluationRun]:
    """Newest first, with their sets. scope: what a key may see."""
    rows = EvaluationRun.objects.select_related("golden_set", "experiment").order_by("-created_at", "-id")
    return rows.filter(scope.by_name("collection_name", "created_at"))


def find_run(run_id: UUID | str, scope: CollectionScope = EVERYTHING) -> EvaluationRun:
    """The run, if its collection is in the scope. Raises ServiceError 404."""
    try:
        record = listed_runs(scope).filter(pk=UUID(str(run_id))).first()
    except ValueError:
        record = None
    if record is None:
        raise UnknownError(
            "evaluation_run",
            f"there is no evaluation run {str(run_id)!r} that you may see; GET /v1/evaluation-runs lists those that "
            "there are",
        )
    return record


def under_way() -> list[EvaluationRun]:
    """Runs that are worked at, then those that wait, as they will be taken; at most LISTED."""
    experiments_last = Case(When(purpose=EvaluationRun.Purpose.EXPERIMENT, then=1), default=0)
    active = EvaluationRun.objects.filter(state__in=(EvaluationRun.State.QUEUED, EvaluationRun.State.RUNNING))
    return list(active.order_by("-state", experiments_last, "created_at", "id").defer("summary")[:LISTED])


@transaction.atomic
def make_baseline(run: EvaluationRun, *, actor: services.Actor = None) -> GoldenSet:
    """Later runs of the set are held against this one. Making it twice changes nothing.

    Raises ServiceError 409: "not_finished" for a run that has not succeeded, "set_gone" where the set was deleted.
    """
    require_in(Permission.EVALUATE, run.collection_name)
    golden_set = GoldenSet.objects.select_for_update().filter(pk=run.golden_set_id or 0).first()
    if golden_set is None:
        raise ServiceError(
            f"the golden set {run.set_name!r} of this run was deleted; it has no baseline", type="set_gone"
        )
    if run.state != EvaluationRun.State.SUCCEEDED:
        raise ServiceError(
            f"only a run that is done can be a baseline, and this one is {run.get_state_display().lower()}; wait for "
            "it, or choose another",
            type="not_finished",
        )
    if golden_set.baseline_id != run.pk:
        golden_set.baseline = run
        golden_set.save(update_fields=["baseline", "updated_at"])
        services.record(actor, [golden_set], services.CHANGE, f"made run {run} the baseline")
    return golden_set


@transaction.atomic
def clear_baseline(golden_set: GoldenSet, *, actor: services.Actor = None) -> GoldenSet:
    """Later runs are held against nothing. Without a baseline nothing changes."""
    require_in(Permission.EVALUATE, golden_set.collection_name)
    locked = GoldenSet.objects.select_for_update().get(pk=golden_set.pk)
    if locked.baseline_id is not None:
        locked.baseline = None
        locked.save(update_fields=["baseline", "updated_at"])
        services.record(actor, [locked], services.CHANGE, "took the baseline away")
    return locked


ROOT = Path(ragd.__file__).resolve().parent.parent
COMMIT = re.compile(r"[0-9a-f]{40,64}")
COMMIT_SHOWN = 12


def read_answerer(collection: Collection, settings: RunSettings) -> tuple[str, str]:
    """(model, SHA-256 of its instructions) of who will answer; ("", "") for a run that only searches.

    A model without instructions has the hash "". Raises ServiceError 422 when a chat model is asked for and none is
    set up.
    """
    if not settings.answers:
        return "", ""
    answerer = open_answerer(
        embedder_for(collection.embed_model, collection.embed_dims),
        llm_model=settings.llm_model,
        system_prompt=settings.system_prompt,
    )
    instructions = answerer.instructions
    return answerer.model, hashlib.sha256(instructions.encode()).hexdigest() if instructions else ""


def read_calibration(collection: Collection, settings: RunSettings) -> str:
    """The calibration by which answers will be corrected, "" where the corrective step is off.

    Raises ServiceError 422 when the step is asked for and the collection is not calibrated.
    """
    if not settings.answers:
        return ""
    corrector = open_corrector(collection, corrects=settings.corrective)
    return corrector.calibration if corrector.corrects else ""


def read_index(collection: Collection, settings: RunSettings) -> tuple[int, str]:
    """(index version, embedding model) that the questions will meet. Raises as `read_past_state` for an as_of."""
    if settings.moment is None:
        return collection.index_version, collection.embed_model
    number = read_past_state(collection, settings.moment).index_version
    row = IndexVersion.objects.filter(collection=collection, number=number).first()
    return number, row.embed_model if row else collection.embed_model


@lru_cache(maxsize=1)
def code_version() -> str:
    """The version of the package, with the commit behind a "+" where it runs from a checkout; at most 60 characters."""
    commit = _read_commit(ROOT / ".git")
    return f"{product_version()}+{commit[:COMMIT_SHOWN]}"[:60] if commit else product_version()[:60]


def _read_commit(folder: Path) -> str:
    """The checked-out commit, "" where there is none. Read from the files, because a server may have no git."""
    try:
        if folder.is_file():  # a worktree: the file names its folder, and that one the folder with the branches
            folder = folder.parent / folder.read_text(encoding="utf-8").strip().removeprefix("gitdir: ")
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        if head.startswith("ref: "):
            head = _branch_commit(folder, head.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        return ""
    return head if COMMIT.fullmatch(head) else ""


def _branch_commit(folder: Path, name: str) -> str:
    common = folder / "commondir"
    if common.is_file():
        folder = folder / common.read_text(encoding="utf-8").strip()
    loose = folder / name
    return loose.read_text(encoding="utf-8").strip() if loose.is_file() else _packed(folder, name)


def _packed(folder: Path, name: str) -> str:
    lines = (folder / "packed-refs").read_text(encoding="utf-8").splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")


PURPOSES = (EvaluationRun.Purpose.MANUAL, EvaluationRun.Purpose.API, EvaluationRun.Purpose.CLI)
# of RunSettings: with one of them another answerer is tried, or an earlier state of the collection
OVERRIDES = ("system_prompt", "corrective", "as_of")
# what nobody started, the first evaluation of the sample, is answered with quotations whatever model is set up
OF_SAMPLE = Q(own_llm_model=ExtractiveAnswerer.model, purpose=EvaluationRun.Purpose.MANUAL, created_by=name_actor(None))


@dataclass(frozen=True, slots=True)
class Serving:
    """What answers a caller who states nothing. index_version: the active one."""

    collection: Collection
    chosen: ChosenPlan

    @property
    def index_version(self) -> int:
        return self.collection.index_version


def servings(names: Iterable[str]) -> Mapping[str, Serving]:
    """By collection name; a collection that was deleted is left out. Two queries, however many names."""
    live = list(Collection.objects.live().filter(name__in=set(names)))
    plans = default_plans(live)
    return {collection.name: Serving(collection, plans[collection.name]) for collection in live}


def serving_runs(known: Iterable[Serving]) -> QuerySet[EvaluationRun]:
    """The runs of these, in any state and without order; none for none."""
    conditions = Q(pk__in=[])
    for serving in known:
        conditions |= Q(
            collection_name=serving.collection.name,
            plan_hash=serving.chosen.plan.hash,
            index_version=serving.index_version,
        )
    overrides = {f"own_{name}": KeyTextTransform(name, "settings") for name in ("llm_model", *OVERRIDES)}
    return (
        EvaluationRun.objects.filter(conditions, purpose__in=PURPOSES)
        .exclude(settings__contains={"answers": False})
        .alias(**overrides)
        .filter(OF_SAMPLE | Q(own_llm_model__isnull=True), **{f"own_{name}__isnull": True for name in OVERRIDES})
    )


def reweighted_run(serving: Serving, runs: QuerySet[EvaluationRun]) -> EvaluationRun | None:
    """The newest of these runs that was of what serves until the fusion weights were measured again; None for none."""
    stated = {name: value for name, value in serving.chosen.plan.as_dict().items() if name != "weights"}
    known = runs.filter(
        state=EvaluationRun.State.SUCCEEDED,
        purpose__in=PURPOSES,
        index_version=serving.index_version,
        plan__contains=stated,
    ).exclude(plan_hash=serving.chosen.plan.hash)
    return known.order_by("-created_at", "-id").first()


RUNS_READ = 60
RUNS_LOOKED_AT = 5  # with one reranker
QUERIES_LOOKED_AT = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """plans times questions. took_s and cost_usd: None where nothing was measured that they could rest on.

    source: what they rest on, "" for nothing.
    """

    plans: int
    questions: int
    took_s: float | None
    cost_usd: float | None
    source: str

    @property
    def asked(self) -> int:
        return self.plans * self.questions


def estimate_plans(golden_set: GoldenSet, plans: Sequence[RetrievePlan], settings: RunSettings) -> Estimate:
    """From the last runs of the collection with the same kind of settings, else from its last queries of that kind.

    A plan is estimated from runs with the same reranker, which takes most of the time, where there are any.
    """
    with system_access():  # a run asks also those that who starts it may not see
        questions = golden_set.questions.filter(suggested=False).count()
    runs = _runs_alike(golden_set.collection_name, settings)
    if runs:
        alike = {plan.rerank: [run for run in runs if run.rerank == plan.rerank][:RUNS_LOOKED_AT] for plan in plans}
        known = {rerank: match or runs for rerank, match in alike.items()}
        took_ms = sum(_per_question([run.took_ms for run in known[plan.rerank]], known[plan.rerank]) for plan in plans)
        costs = [run.cost_usd for run in runs if run.cost_usd is not None]
        cost = _per_question(costs, runs) * questions * len(plans) if len(costs) == len(runs) else None
        used = {id(run): run for plan in plans for run in known[plan.rerank]}
        source = f"the last {_several(len(used), 'evaluation run')} like it"
        return Estimate(len(plans), questions, took_ms * questions / 1000, cost, source)
    figures = _query_times(golden_set.collection_name, settings)
    if not figures or settings.judge != "none":
        return Estimate(len(plans), questions, None, None, "")
    took_s = sum(figures) / len(figures) * questions * len(plans) / 1000
    source = f"the last {_several(len(figures), 'query,queries')} of the collection"
    return Estimate(len(plans), questions, took_s, None, source)


def count_scorable(golden_set: GoldenSet, measure: str) -> int:
    """How many questions of a set bring what a measure needs of them: expected documents, chunks or an answer."""
    base = measure.partition("@")[0]
    known = MEASURES.get(base.removeprefix(CHUNK))
    lacks: dict[str, dict[str, Any]] = {
        EXPECTED: {"expected_doc_ids": [], "expected_chunks": []},
        ANSWER: {"expected_answer": ""},
    }
    without = {"expected_chunks": []} if base.startswith(CHUNK) else lacks.get(known.needs if known else "")
    with system_access():
        questions = golden_set.questions.filter(suggested=False)
        return questions.count() - (questions.filter(**without).count() if without else 0)


def count_model_calls(golden_set: GoldenSet, plan: RetrievePlan, settings: RunSettings, *, asks_model: bool) -> int:
    """Calls of a chat model that a run makes when it answers every question: repairs, retries and a corrective step
    come on top.

    asks_model: whether a chat model answers. With contributions it also answers from each of the k results alone and
    from none. Each chat model that judges is asked once per question, one of them once more where an answer is
    expected; each rubric in words once per question, where a chat model can judge. What was said of the same answer
    before is not asked again.
    """
    if not settings.answers:
        return 0
    with system_access():
        accepted = golden_set.questions.filter(suggested=False)
        asked, compared = accepted.count(), accepted.exclude(expected_answer="").count()
    each = 1 + (plan.k + 1 if settings.contributions else 0) if asks_model else 0
    if has_judge_model():
        each += sum(rubric.kind == "prompt" for rubric in read_rubrics(golden_set.rubrics))
    return each * asked + (len(settings.chat_judges) * asked + compared if settings.chat_judges else 0)


@dataclass(frozen=True, slots=True)
class _FinishedRun:
    """A run that went through. cost_usd: of answers and judge, None where a price is not known."""

    took_ms: float
    done: int
    cost_usd: float | None
    rerank: str | None


def _runs_alike(collection_name: str, settings: RunSettings) -> list[_FinishedRun]:
    """Newest first."""
    rows = EvaluationRun.objects.filter(
        collection_name=collection_name,
        state=EvaluationRun.State.SUCCEEDED,
        judge=settings.judge,
        settings__answers=settings.answers,
        settings__contributions=settings.contributions,
        done__gt=0,
    ).values_list("took_ms", "done", "cost_usd", "judge_cost_usd", "plan")
    return [
        _FinishedRun(took, done, None if answers is None or judge is None else answers + judge, plan.get("rerank"))
        for took, done, answers, judge, plan in rows[:RUNS_READ]
    ]


def _per_question(amounts: Sequence[float], runs: Sequence[_FinishedRun]) -> float:
    return sum(amounts) / sum(run.done for run in runs)


def _query_times(collection_name: str, settings: RunSettings) -> list[float]:
    """Milliseconds of the newest queries of the kind that the experiment would make."""
    kind = QueryRun.Kind.ASK if settings.answers else QueryRun.Kind.SEARCH
    took_ms = Cast(KeyTextTransform("total", "timings_ms"), FloatField())
    queries = QueryRun.objects.filter(collection_name=collection_name, kind=kind).order_by("-created_at")
    result = queries.annotate(total_ms=took_ms).values_list("total_ms", flat=True)[:QUERIES_LOOKED_AT]
    return [value for value in result if value is not None]


def _several(count: int, noun: str) -> str:
    """ "query", "3 queries": what follows "the last"."""
    one, _, many = noun.partition(",")
    return one if count == 1 else f"{count} {many or one + 's'}"


SETS_MAX = 100  # golden sets, those that were evaluated last: with five headline metrics, at most 500 series


def newest_serving_runs() -> list[EvaluationRun]:
    """The newest finished run of what serves (`serving_runs`) of each golden set, newest first, ties by id; with
    golden_set. Four queries."""
    names = GoldenSet.objects.order_by().values_list("collection_name", flat=True).distinct()
    finished = serving_runs(servings(names).values()).filter(
        state=EvaluationRun.State.SUCCEEDED, golden_set__isnull=False
    )
    newest = finished.order_by("golden_set_id", "-created_at", "-id").distinct("golden_set_id")
    rows = newest.select_related("golden_set").only("created_at", "collection_name", "golden_set__name", "summary")
    return sorted(rows, key=lambda run: (run.created_at, run.pk), reverse=True)[:SETS_MAX]


def quality_scores() -> list[tuple[tuple[str, str, str], float]]:
    """((collection, golden set, measure), mean) of `newest_serving_runs`, without measures that cannot vary and those
    without a score."""
    result = []
    for run in newest_serving_runs():
        summary, golden_set = run.summary, run.golden_set
        assert golden_set is not None, "runs of deleted sets are left out"
        for name, figure in summary.get("measures", {}).items():
            is_fixed = name in summary.get("by_construction", ())
            if measure_of(name).is_headline and not is_fixed and figure["value"] is not None:
                result.append(((run.collection_name, golden_set.name, name), figure["value"]))
    return result
