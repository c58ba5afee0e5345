"""What a failure mode suggests for one run: its changed plan or settings.

A run's modes can be found again from its stored scores, after the bands were changed.

Which fixes a run is offered: those that were tried, by what they did to the primary measure, then untried ones.

Each change of plan and settings is offered once, for all modes that suggest it. Of two that go opposite ways for one
question one is offered: what was found better, else what is for the failures rather than diagnostics, and for more
questions.

What a tried fix did: the verdict, the measure of its mode, time and cost of an answer, the questions that fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from django.db import transaction

from collections_app.access.context import system_access
from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.errors import ServiceError
from collections_app.models import Collection
from evaluation_app.failures.board import modes_of
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.sets import current_digest
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.scores import Score
from evaluation_app.models import EvaluationItem, EvaluationRun, Experiment, GoldenSet
from evaluation_app.runs.comparison import stored_comparisons
from evaluation_app.runs.comparison.changes import MeasureChange, UsageChange
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.modes import Change, Mode, ModeFix, find_modes, own_bands, stored_table
from ragd.errors import RagdError
from ragd.types import RetrievePlan, canonical_json
from retrieval_app.answers.chat_answerer import has_chat_model
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.plans.services import OFF, calibration_of

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


def refresh_modes(run: EvaluationRun, *, actor: services.Actor = None) -> int:
    """The modes of every question of the run by the bands of now; how many questions changed. Nothing is asked anew.

    The run's summary counts them anew. Raises ServiceError 409 "still_running" while questions are added.
    """
    require_in(Permission.EVALUATE, run.collection_name)
    with system_access(), transaction.atomic():  # also of questions that who asks may not see
        return _refresh_modes(run, actor)


def _refresh_modes(run: EvaluationRun, actor: services.Actor) -> int:
    locked = EvaluationRun.objects.select_for_update(of=("self",)).select_related("golden_set").get(pk=run.pk)
    if locked.is_active:
        raise ServiceError("this run is not finished; try again when it is", type="still_running")
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
        stored_comparisons.forget_comparisons(locked)
        services.record(
            actor, [locked], services.CHANGE, f"found the failure modes of {locked} again with the current thresholds"
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
    return run.golden_set is None or current_digest(run.golden_set) != run.set_digest


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
        raise ServiceError(f"the golden set {run.set_name!r} was deleted; there is nothing to run", type="set_gone")
    if has_changed(run):
        raise ServiceError(
            f"the golden set {run.set_name!r} asks other questions now than this run of version {run.set_version} did, "
            "so the two could not be compared; run the set with its present plan first",
            type="set_changed",
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


TRIED_SHOWN = 14
OPPOSITE = {"more_context": "less_context", "less_context": "more_context"}


@dataclass(frozen=True, slots=True)
class Trial:
    """A run that tried a fix. against: None while it goes on, and where the set asks other questions now."""

    run: EvaluationRun
    against: stored_comparisons.RunDifference | None

    @property
    def primary(self) -> stored_comparisons.Finding | None:
        return self.against.verdict.decisive.primary if self.against else None

    @property
    def latency(self) -> UsageChange | None:
        usage = self.against.usage if self.against else ()
        return next((row for row in usage if row.name == "latency_p50" and row.difference), None)

    @property
    def is_better(self) -> bool:
        return self.against is not None and self.against.verdict.kind == "better"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change. modes: that suggest it; questions: positions of those that show them. direction: `context_change`."""

    proposal: FixProposal
    modes: tuple[Mode, ...]
    questions: Set[int]
    direction: str
    trials: tuple[Trial, ...] = ()

    @property
    def gain(self) -> float:
        """The largest that a trial found in the primary measure."""
        return max((each.primary.gain for each in self.trials if each.primary), default=0.0)


@dataclass(frozen=True, slots=True)
class Suggestions:
    """tried: by gain, the largest first; untried: in the order of their modes. others: finished or running trials of
    the run that no mode of it suggests. unavailable: that cannot be tried here, with the reason."""

    tried: tuple[Suggestion, ...]
    untried: tuple[Suggestion, ...]
    others: tuple[Trial, ...] = ()
    unavailable: tuple[FixProposal, ...] = ()


@dataclass(slots=True)
class _Gathered:
    proposal: FixProposal
    modes: list[Mode] = field(default_factory=list)
    questions: set[int] = field(default_factory=set)


def suggest_fixes(run: EvaluationRun, questions: Mapping[str, Set[int]]) -> Suggestions:
    """questions: per key of a mode that the run shows the positions of the questions that show it."""
    shown = [mode for key, mode in stored_table().modes.items() if questions.get(key)]
    order = sorted(shown, key=lambda mode: (mode.kind != "failure", -len(questions[mode.key])))
    gathered, unavailable = _gather(run, order, questions)
    trials = _trials(run)
    all_of_them = [_suggestion(run, key, each, trials) for key, each in gathered.items()]
    tried = sorted((each for each in all_of_them if each.trials), key=lambda each: -each.gain)
    advised = [each for each in tried if any(trial.is_better for trial in each.trials)]
    untried: list[Suggestion] = []
    for each in all_of_them:
        if not each.trials and not any(_is_opposite(each, other) for other in (*advised, *untried)):
            untried.append(each)
    others = tuple(trial for key, found in trials.items() if key not in gathered for trial in found)
    return Suggestions(tuple(tried), tuple(untried), others, tuple(unavailable))


def _gather(
    run: EvaluationRun, order: Sequence[Mode], questions: Mapping[str, Set[int]]
) -> tuple[dict[str, _Gathered], list[FixProposal]]:
    """By `_key`, in the order of the modes; and what cannot be tried, each reason of a fix once."""
    workshop = Workshop.of(run)
    gathered: dict[str, _Gathered] = {}
    unavailable: dict[tuple[str, str], FixProposal] = {}
    for mode in order:
        for proposal in propose_fixes(mode, run, workshop):
            if proposal.reason:
                unavailable.setdefault((proposal.fix.title, proposal.reason), proposal)
                continue
            each = gathered.setdefault(_key(proposal.plan, proposal.settings), _Gathered(proposal))
            each.modes.append(mode)
            each.questions |= questions[mode.key]
    return gathered, list(unavailable.values())


def _suggestion(run: EvaluationRun, key: str, gathered: _Gathered, trials: Mapping[str, Sequence[Trial]]) -> Suggestion:
    proposal = gathered.proposal
    before = RetrievePlan.from_dict(run.plan), RunSettings.from_dict(run.settings)
    direction = context_change(before, (proposal.plan, proposal.settings))
    modes, questions = tuple(gathered.modes), frozenset(gathered.questions)
    return Suggestion(proposal, modes, questions, direction, tuple(trials.get(key, ())))


def _is_opposite(one: Suggestion, other: Suggestion) -> bool:
    return OPPOSITE.get(one.direction) == other.direction and bool(one.questions & other.questions)


def _trials(run: EvaluationRun) -> dict[str, list[Trial]]:
    """Of fixes over this run by what they changed, the newest first."""
    rows = EvaluationRun.objects.filter(experiment__base=run, purpose=EvaluationRun.Purpose.FIX)
    runs = list(rows.select_related("experiment__base").order_by("-created_at")[:TRIED_SHOWN])
    comparable = [each for each in runs if not each.is_active and each.set_digest == run.set_digest]
    known = {difference.run.pk: difference for difference in stored_comparisons.differences(run, comparable)}
    trials: dict[str, list[Trial]] = {}
    for each in runs:
        key = _key(RetrievePlan.from_dict(each.plan), RunSettings.from_dict(each.settings))
        trial = Trial(each, known.get(each.pk))
        trials.setdefault(key, []).append(trial)
    return trials


def _key(plan: RetrievePlan, settings: RunSettings) -> str:
    return f"{plan.hash} {canonical_json(settings.as_dict())}"


@dataclass(frozen=True, slots=True)
class Move:
    """How many questions, before and after; cured: before alone; new: after alone."""

    before: int
    after: int
    cured: int
    new: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[bool, bool]]) -> Move:
        """pairs: per question whether it counts before, and after."""
        return cls(
            before=sum(was for was, _ in pairs),
            after=sum(now for _, now in pairs),
            cured=sum(was and not now for was, now in pairs),
            new=sum(now and not was for was, now in pairs),
        )


@dataclass(frozen=True, slots=True)
class FixOutcome:
    """Of the questions that are done in both runs: `question_count`.

    against: the run compared with its base. measure: of the mode that the fix is for, None where it has none. failing:
    questions that fail. moves: per mode that either run shows, in the table's order.
    """

    changes: tuple[FieldChange, ...]
    against: stored_comparisons.RunDifference
    mode: Mode | None
    measure: MeasureChange | None
    failing: Move
    moves: tuple[tuple[Mode, Move], ...]
    question_count: int
    experiment: Experiment

    @property
    def decisive(self) -> list[tuple[str, MeasureChange]]:
        """Primary metric, guardrail metrics, the mode's metric, with what each of them is; each once."""
        found = self.against.verdict.decisive
        roles = {found.primary.measure: "primary metric"} if found.primary else {}
        roles |= {item.measure: "guardrail metric" for item in found.guardrails}
        if self.measure is not None:
            roles.setdefault(self.measure.name, "metric of the mode")
        known = {change.name: change for change in self.against.changes}
        return [(role, known[name]) for name, role in roles.items()]


def read_outcome(run: EvaluationRun) -> FixOutcome | None:
    """None for a run that has no base run, or whose base run asked another version of the set."""
    base = run.base_run
    if base is None or run.experiment is None or base.set_digest != run.set_digest:
        return None
    against = stored_comparisons.compare_runs(base, [run]).others[0]
    mode = stored_table().modes.get(run.experiment.grid.get("mode", ""))
    pairs = [(modes_of(each.before), modes_of(each.after)) for each in against.questions]
    moves = [
        (each, Move.of([(each in was, each in now) for was, now in pairs])) for each in stored_table().modes.values()
    ]
    return FixOutcome(
        changes=changed_fields(_asked_with(base), _asked_with(run)),
        against=against,
        mode=mode,
        measure=_measure_of(mode, against),
        failing=Move.of([(_fails(was), _fails(now)) for was, now in pairs]),
        moves=tuple((each, move) for each, move in moves if move.before or move.after),
        question_count=len(pairs),
        experiment=run.experiment,
    )


def _measure_of(mode: Mode | None, against: stored_comparisons.RunDifference) -> MeasureChange | None:
    wanted = mode.measures if mode else ()
    return next((change for change in against.changes if change.name.partition("@")[0] in wanted), None)


def _fails(modes: Sequence[Mode]) -> bool:
    return any(mode.kind == "failure" for mode in modes)


def _asked_with(run: EvaluationRun) -> tuple[RetrievePlan, RunSettings]:
    return RetrievePlan.from_dict(run.plan), RunSettings.from_dict(run.settings)
