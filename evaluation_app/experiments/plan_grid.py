"""A grid of plans: values for some fields of a plan, and every combination of them that means something of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from collections_app.models import Collection
from evaluation_app.measures.catalogue import CUTS, find
from evaluation_app.models import GoldenSet
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.errors import InvalidInput, UnknownCollection
from ragd.types import LISTS, RetrievePlan
from retrieval_app.plans.services import choose_plan

PLANS_MAX = 64
COMBINATIONS_MAX = 4096
OFF = "none"
SEARCH_ONLY = RunSettings(answers=False, judge="none")
ANSWERING = ("compress", "token_budget")  # change what an answerer reads, and no ranking
TITLES: Mapping[str, str] = {
    "mode": "Mode", "k": "k", "candidate_pool": "Top-N candidates", "rrf_k": "RRF constant", "weights": "Weights",
    "exact": "Exact vector search", "ef_search": "ef_search", "rerank": "Rerank", "compress": "Compress",
    "token_budget": "Max context tokens", "hops": "Hops",
}  # fmt: skip
FIELDS = tuple(TITLES)


def read_grid(payload: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A grid in canonical form: fields in the order of FIELDS, each with its values, each once; empty lists left out.

    given: field -> list of values as a plan takes them; "none" for rerank and compress means off. Raises InvalidInput
    for an unknown field and for what is no list.
    """
    if unknown := sorted(set(payload) - set(FIELDS)):
        raise InvalidInput(
            f"an experiment cannot vary {unknown[0]!r}; it varies {', '.join(FIELDS)}. Filters and what is indexed "
            "stay as they are: a chunk policy needs another index version",
            field="grid",
        )
    grid: dict[str, list[Any]] = {}
    for name in FIELDS:
        values = payload.get(name)
        if values is None:
            continue
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise InvalidInput(f"grid.{name} must be a list of values, not {values!r}", field="grid")
        selected: list[Any] = []
        for value in values:
            plain = None if value == OFF and name in ("rerank", "compress") else value
            if plain not in selected:
                selected.append(plain)
        if selected:
            grid[name] = selected
    return grid


def build_plans(base: RetrievePlan, grid: Mapping[str, Sequence[Any]], settings: RunSettings) -> list[RetrievePlan]:
    """Every combination of the grid over the base, the last field changing fastest; plans that rank alike once.

    Fields that a combination does not use (fusion outside hybrid mode, a word budget without compress, an ef_search
    where vectors are always scanned) keep the base's value, so that combinations that differ in them alone are one.
    Raises InvalidInput (field "grid") for an empty grid, a wrong value, compress without answers, one plan alone,
    and more than PLANS_MAX of them.
    """
    if not grid:
        raise InvalidInput("an experiment needs at least one field with values, for example k: 5, 10, 20", field="grid")
    if not settings.answers and (unused := [name for name in ANSWERING if name in grid]):
        raise InvalidInput(
            f"{unused[0]} changes what is answered from, not what is found, and this experiment only searches; leave "
            "it out, or let the experiment answer",
            field="grid",
        )
    combinations = prod(len(values) for values in grid.values())
    if combinations > COMBINATIONS_MAX:
        raise _too_many(combinations)
    plans: dict[str, RetrievePlan] = {}
    for values in product(*grid.values()):
        plan = _combine(base, dict(zip(grid, values, strict=True)))
        plans.setdefault(plan.hash, plan)
    if len(plans) > PLANS_MAX:
        raise _too_many(len(plans))
    if len(plans) < 2:
        raise InvalidInput(
            "this grid gives one plan alone, and an experiment compares at least two; give a field that the plan uses "
            "more than one value",
            field="grid",
        )
    return list(plans.values())


def _too_many(count: int) -> InvalidInput:
    return InvalidInput(
        f"this grid gives {count:,} plans, and an experiment tries at most {PLANS_MAX}; give fewer values", field="grid"
    )


def _combine(base: RetrievePlan, values: Mapping[str, Any]) -> RetrievePlan:
    changes = dict(values)
    mode, compress = changes.get("mode", base.mode), changes.get("compress", base.compress)
    if mode != "hybrid":
        changes |= {"rrf_k": base.rrf_k, "weights": base.weights}
    if mode == "lexical" or changes.get("exact", base.exact) == "always":
        changes["ef_search"] = base.ef_search
    if mode == "lexical":
        changes["exact"] = base.exact
    if compress is None:
        changes["token_budget"] = None
    if isinstance(changes.get("weights"), Mapping):
        changes["weights"] = {**base.weights, **changes["weights"]}
    try:
        return replace(base, **changes)
    except InvalidInput as error:
        raise InvalidInput(error.message, field="grid") from None
    except TypeError as error:
        raise InvalidInput(f"the grid holds a value that no plan takes: {error}", field="grid") from None


MODE_WORDS = {"hybrid": "Hybrid", "vector": "Vector", "lexical": "Keyword"}  # as the form calls them


def spell_value(name: str, value: Any) -> str:
    """A value of a field in a few words: weights as "1 : 0.5" (vector, lexical), off for none."""
    if name == "weights":
        return " : ".join(f"{float(value[each]):g}" for each in LISTS if each in value)
    if name == "mode":
        return MODE_WORDS.get(str(value), str(value))
    if value is None:
        return "auto" if name == "ef_search" else "off" if name in ("rerank", "compress") else "usual"
    return f"{value:g}" if isinstance(value, float) else str(value)


def varied(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields in which plans (as dicts) differ, in the order of FIELDS."""
    return [name for name in FIELDS if any(plan.get(name) != plans[0].get(name) for plan in plans[1:])]


def label_of(plan: Mapping[str, Any], names: Sequence[str]) -> str:
    """ "k 5, RRF constant 60": the plan's values of these fields."""
    return ", ".join(f"{TITLES[name]} {spell_value(name, plan.get(name))}" for name in names)


@dataclass(frozen=True, slots=True)
class Draft:
    """What an experiment with plans would try, checked and not started."""

    collection: Collection
    grid: Mapping[str, Any]
    plans: tuple[RetrievePlan, ...]
    measure: str
    settings: RunSettings
    plan_name: str


def draft_plans(
    golden_set: GoldenSet,
    *,
    grid: Mapping[str, Any],
    measure: str = "",
    plan: str | None = None,
    stated: Mapping[str, Any] | None = None,
    settings: RunSettings = SEARCH_ONLY,
) -> Draft:
    """The plans of a grid over a plan of the set's collection. Writes nothing.

    plan and stated: as `choose_plan` takes them; fields of the grid go over both. measure: "" for nDCG at the
    settings' cut. Raises UnknownCollection, InvalidInput that names the field, ServiceError 404 for an unknown plan.
    """
    collection = Collection.objects.live().filter(name=golden_set.collection_name).first()
    if collection is None:
        raise UnknownCollection(
            f"the golden set {golden_set.name!r} asks collection {golden_set.collection_name!r}, which is not there",
            field="collection",
        )
    chosen = choose_plan(collection, plan, stated or {})
    stored = read_grid(grid)
    _check_lexical(collection, stored)
    requested = measure or f"ndcg@{settings.cut}"
    check_measure(requested, settings)
    return Draft(
        collection, stored, tuple(build_plans(chosen.plan, stored, settings)), requested, settings, chosen.name
    )


def check_measure(measure: str, settings: RunSettings) -> None:
    """Raises InvalidInput (field "measure") for a measure that runs of these settings do not have."""
    result = find(measure)
    base, _, cut = measure.partition("@")
    if base.removeprefix("chunk_") in CUTS and cut != str(settings.cut):
        raise InvalidInput(
            f"the experiment uses k {settings.cut}, so {measure} is never scored; rank by {base}@{settings.cut}",
            field="measure",
        )
    missing = {
        "trace": settings.judge == "none",
        "noise": settings.judge == "none",
        "answer": not settings.answers,
        "erag": not settings.contributions,
    }.get(result.group, False)
    if missing:
        needed = {"answer": "answers", "erag": "contributions"}.get(result.group, "a judge")
        raise InvalidInput(
            f"{result.title} needs {needed}, and this experiment has none; rank by a retrieval measure, or switch it "
            "on",
            field="measure",
        )


def _check_lexical(collection: Collection, grid: Mapping[str, Any]) -> None:
    requested = [mode for mode in grid.get("mode", ()) if mode != "vector"]
    if requested and not collection.hybrid_enabled:
        raise InvalidInput(
            f"collection {collection.name!r} has no keyword search, so mode {requested[0]!r} cannot be tried",
            field="grid",
        )
