"""What a failure mode suggests for one run: its changed plan or settings.

A run's modes can be found again from its stored scores, after the bands were changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.db import transaction

from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection
from collections_app.services.governance import audit
from collections_app.services.governance.access import require_in
from evaluation_app.analysis.comparison.stored_comparisons import forget_comparisons
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.versions import current_digest
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.scores import Score
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.scoring.modes.catalogue import Change, Mode, ModeFix, own_bands, stored_table
from evaluation_app.scoring.modes.detection import find_modes
from evaluation_app.scoring.run_settings import RunSettings
from ragd.errors import RagdError
from ragd.types import RetrievePlan
from retrieval_app.answerers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.answerers.selection import has_chat_model
from retrieval_app.corrective.calibrations import calibration_of
from retrieval_app.runs.plans import OFF

READ = ("outcome", "scores", "context", "annotation", "contributions", "golden", "modes")
AT_ONCE = 200
QUARTERS = (0.25, 0.5, 0.75)
STANDS_FOR: Mapping[Any, Any] = {"$reranker": "builtin", OFF: None}  # in the table: the reranker that is always here
SHOWN_CHARS = 60
TEXT_KEPT = {"sentences": 0, "window": 1, None: 2}  # by compress, the more the larger
NO_COLLECTION = "collection"


@dataclass(frozen=True, slots=True)
class _StoredItem:
    """An item as `find_modes` reads it."""

    outcome: str
    scores: Mapping[str, Score]
    context: Sequence[Mapping[str, Any]]
    annotation: Mapping[str, Any]
    contributions: Sequence[Mapping[str, Any]]


@transaction.atomic
def refresh_modes(run: EvaluationRun, *, actor: audit.Actor = None) -> int:
    """The modes of every question of the run by the bands of now; how many questions changed. Nothing is asked anew.

    The run's summary counts them anew. Raises ServiceError 409 "still_running" while questions are added.
    """
    require_in(Permission.EVALUATE, run.collection_name)
    locked = EvaluationRun.objects.select_for_update(of=("self",)).select_related("golden_set").get(pk=run.pk)
    if locked.is_active:
        raise ServiceError("this run is not finished; try again when it is", type="still_running", status=409)
    bands = own_bands(locked.golden_set)
    changed: list[EvaluationItem] = []
    counts: dict[str, int] = {}
    failing = 0
    for item in locked.items.only("run", *READ).order_by("position").iterator(chunk_size=AT_ONCE):
        golden = Golden.from_dict(item.golden)
        golden = replace(golden, thresholds={**locked.thresholds, **golden.thresholds})
        modes = find_modes(_read(item), golden, bands, answerer=locked.answerer, judge=locked.judge_identity)
        for mode in modes:
            counts[mode] = counts.get(mode, 0) + 1
        if modes != item.modes:
            item.modes = modes
            changed.append(item)
        failing += item.is_failing
    EvaluationItem.objects.bulk_update(changed, ["modes"], batch_size=AT_ONCE)
    if changed:
        locked.summary = {**locked.summary, "modes": counts, "failing": failing}
        locked.save(update_fields=["summary"])
        forget_comparisons(locked)
        audit.record(
            actor, [locked], audit.CHANGE, f"found the failure modes of {locked} again with the current thresholds"
        )
    return len(changed)


def quartiles(run: EvaluationRun, measures: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    """Measure -> its quartiles over the scored questions of the run; one that nothing was scored of is left out."""
    rows = list(run.items.values_list("scores", flat=True))
    result = {}
    for name in measures:
        values = [row[name]["value"] for row in rows if row.get(name, {}).get("value") is not None]
        if values:
            low, middle, high = np.quantile(values, QUARTERS)
            result[name] = (float(low), float(middle), float(high))
    return result


def _read(item: EvaluationItem) -> _StoredItem:
    return _StoredItem(
        item.outcome,
        {name: Score.from_dict(score) for name, score in item.scores.items()},
        item.context,
        item.annotation,
        item.contributions,
    )


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of the plan or the settings, before and after, as people read it."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class FixProposal:
    """One fix for one run. reason: why it cannot be tried there, "" when it can; then there is something to change."""

    fix: ModeFix
    plan: RetrievePlan
    settings: RunSettings
    changes: tuple[FieldChange, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What the fixes of a run are made from. lacks: needs of fixes that cannot be met here -> why; settings without
    answers and a collection that is gone lack everything that they would change."""

    plan: RetrievePlan
    settings: RunSettings
    lacks: Mapping[str, str]

    @classmethod
    def of(cls, run: EvaluationRun) -> Workshop:
        settings = RunSettings.from_dict(run.settings)
        collection = Collection.objects.live().filter(name=run.collection_name).first()
        return cls(RetrievePlan.from_dict(run.plan), settings, _lacks(settings, collection, run))


def propose_fixes(mode: Mode, run: EvaluationRun, workshop: Workshop | None = None) -> list[FixProposal]:
    """The mode's fixes over the run's plan and settings, in the table's order.

    One that changes nothing, that lowers what the mode measures by its formula, or that needs what this server or
    collection does not have, says so. workshop: of the run, where several modes are asked.
    """
    own = workshop or Workshop.of(run)
    return [_propose(fix, mode, own) for fix in mode.fixes]


def context_change(before: tuple[RetrievePlan, RunSettings], after: tuple[RetrievePlan, RunSettings]) -> str:
    """ "more_context" or "less_context" where an answer is made of more or of less, "" for neither or both."""
    old, new = ((plan.k, TEXT_KEPT[plan.compress], not settings.corrective) for plan, settings in (before, after))
    moves = {(late > early) - (late < early) for early, late in zip(old, new, strict=True)} - {0}
    return "" if len(moves) != 1 else "more_context" if 1 in moves else "less_context"


def has_changed(run: EvaluationRun) -> bool:
    """Whether the run's set asks other questions now than it did then."""
    if run.golden_set is None:
        return True
    return current_digest(run.golden_set) != run.set_digest


def changed_fields(
    before: tuple[RetrievePlan, RunSettings], after: tuple[RetrievePlan, RunSettings]
) -> tuple[FieldChange, ...]:
    """Where two runs differ in plan and settings, by field."""
    old = before[0].as_dict() | before[1].as_dict()
    new = after[0].as_dict() | after[1].as_dict()
    return tuple(
        FieldChange(name, format_value(old[name]), format_value(new[name])) for name in new if old[name] != new[name]
    )


def format_value(value: Any) -> str:
    """A value of a plan or of settings in a few words."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key} {item:g}" if isinstance(item, float) else f"{key} {item}" for key, item in value.items()
        )
    text = str(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


def same_set(run: EvaluationRun) -> GoldenSet:
    """The run's golden set. Raises ServiceError 409 where it is gone or asks other questions now."""
    if run.golden_set is None:
        raise ServiceError(
            f"the golden set {run.set_name!r} was deleted; there is nothing to run", type="set_gone", status=409
        )
    if has_changed(run):
        raise ServiceError(
            f"the golden set {run.set_name!r} asks other questions now than this run of version {run.set_version} did, "
            "so the two could not be compared; run the set with its present plan first",
            type="set_changed",
            status=409,
        )
    return run.golden_set


def _propose(fix: ModeFix, mode: Mode, workshop: Workshop) -> FixProposal:
    plan, settings = workshop.plan, workshop.settings
    try:
        changed_plan = replace(plan, **_changed(fix.plan, plan))
        changed_settings = replace(settings, **_changed(fix.settings, settings))
    except RagdError as error:
        return FixProposal(fix, plan, settings, (), str(error))
    before, after = (plan, settings), (changed_plan, changed_settings)
    changes = changed_fields(before, after)
    reason = _missing(fix, workshop) or ("" if changes else "already set") or _lowers(mode, before, after)
    return FixProposal(fix, changed_plan, changed_settings, changes, reason)


def _lowers(mode: Mode, before: tuple[RetrievePlan, RunSettings], after: tuple[RetrievePlan, RunSettings]) -> str:
    lowered = set(stored_table().lowers.get(context_change(before, after), ())) & set(mode.measures)
    return f"lowers {' and '.join(measure_of(name).title.lower() for name in sorted(lowered))}" if lowered else ""


def _changed(changes: Mapping[str, Change], holder: RetrievePlan | RunSettings) -> dict[str, Any]:
    values = {name: _value(change, getattr(holder, name)) for name, change in changes.items()}
    if "compress" in values and values["compress"] is None:
        values["token_budget"] = None  # it bounds what compress keeps
    if "k" in values and "candidate_pool" not in values and isinstance(holder, RetrievePlan):
        values["candidate_pool"] = max(holder.candidate_pool, values["k"])
    return values


def _value(change: Change, before: Any) -> Any:
    if change.times is None:
        return STANDS_FOR.get(change.value, change.value)
    grown = max(int(before * change.times), change.least or 1)
    return grown if change.most is None else max(before, min(grown, change.most))


def _lacks(settings: RunSettings, collection: Collection | None, run: EvaluationRun) -> dict[str, str]:
    """Need of a fix -> why it is not met; only the unmet ones."""
    if collection is None:
        return {NO_COLLECTION: f"the collection {run.collection_name!r} was deleted"}
    lacks = {}
    if not collection.hybrid_enabled:
        lacks["lexical"] = "keyword search is disabled for the collection"
    if not has_chat_model() or settings.llm_model == ExtractiveAnswerer.model:
        lacks["llm"] = "requires a chat model"
    if not _is_calibrated(collection):
        command = f"manage.py ragd index calibrate {collection.name} --set {run.set_name!r}"
        lacks["calibration"] = f"the collection is not calibrated; run: {command}"
    return lacks


def _missing(fix: ModeFix, workshop: Workshop) -> str:
    """What the fix needs and this run cannot have, "" for nothing."""
    lacks = workshop.lacks
    reason = lacks.get(NO_COLLECTION) or lacks.get(fix.needs, "")
    return reason or ("search-only run" if fix.settings and not workshop.settings.answers else "")


def _is_calibrated(collection: Collection) -> bool:
    calibration = calibration_of(collection)
    return calibration is not None and calibration.embed_model == collection.embed_model
