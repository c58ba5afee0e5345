"""Which evaluation runs are of what serves: the default plan of a collection on its active generation.

All others (experiments, gates, other plans and generations, other models or prompts, retrieval only)
say nothing of what a caller gets who states nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.db.models.fields.json import KeyTextTransform

from collections_app.models import Collection
from collections_app.models.library import name_actor
from evaluation_app.models import EvaluationRun
from retrieval_app.answerers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.runs.plans import ChosenPlan, default_plans

PURPOSES = (EvaluationRun.Purpose.MANUAL, EvaluationRun.Purpose.API, EvaluationRun.Purpose.CLI)
# of RunSettings: with one of them another answerer is tried, or an earlier state of the collection
OVERRIDES = ("system_prompt", "corrective", "as_of")
# what nobody started, the first evaluation of the sample, is answered with quotations whatever model is set up
OF_SAMPLE = Q(own_llm_model=ExtractiveAnswerer.model, purpose=EvaluationRun.Purpose.MANUAL, created_by=name_actor(None))


@dataclass(frozen=True, slots=True)
class Serving:
    """What answers a caller who states nothing. generation: the active one."""

    collection: Collection
    chosen: ChosenPlan

    @property
    def generation(self) -> int:
        return self.collection.generation


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
            generation=serving.generation,
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
        state=EvaluationRun.State.SUCCEEDED, purpose__in=PURPOSES, generation=serving.generation, plan__contains=stated
    ).exclude(plan_hash=serving.chosen.plan.hash)
    return known.order_by("-created_at", "-id").first()
