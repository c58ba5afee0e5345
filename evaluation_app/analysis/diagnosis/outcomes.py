"""What a tried fix did: the verdict, the measure of its mode, what an answer takes, the questions that fail."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from evaluation_app.analysis.comparison.changes import MeasureChange
from evaluation_app.analysis.comparison.stored_comparisons import RunDifference, compare_runs
from evaluation_app.analysis.diagnosis.board import modes_of
from evaluation_app.analysis.diagnosis.fixes import FieldChange, changed_fields
from evaluation_app.models import EvaluationRun, TriedFix
from evaluation_app.scoring.modes.catalogue import Mode, stored_table
from evaluation_app.scoring.run_settings import RunSettings
from ragd.types import RetrievePlan


@dataclass(frozen=True, slots=True)
class Move:
    """How many questions, before and after; cured: before alone; new: after alone."""

    before: int
    after: int
    cured: int
    new: int

    @classmethod
    def between(cls, before: Set[int], after: Set[int]) -> Move:
        return cls(len(before), len(after), len(before - after), len(after - before))


@dataclass(frozen=True, slots=True)
class FixOutcome:
    """Of the questions that are done in both runs: `question_count`.

    against: the run compared with its base. measure: of the mode that the fix is for, None where it has none. failing:
    questions that fail. moves: per mode that either run shows, in the table's order. tried: None for a run that was
    started by hand on a base.
    """

    changes: tuple[FieldChange, ...]
    against: RunDifference
    mode: Mode | None
    measure: MeasureChange | None
    failing: Move
    moves: tuple[tuple[Mode, Move], ...]
    question_count: int
    tried: TriedFix | None

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
    if base is None or base.set_digest != run.set_digest:
        return None
    against = compare_runs(base, [run]).others[0]
    tried = TriedFix.objects.filter(run=run).first()
    mode = stored_table().modes.get(tried.mode) if tried else None
    before, after = _modes_by_place(base), _modes_by_place(run)
    both = before.keys() & after.keys()
    moves = []
    for each in stored_table().modes.values():
        was, now = ({place for place in both if each in known[place]} for known in (before, after))
        if was or now:
            moves.append((each, Move.between(was, now)))
    return FixOutcome(
        changes=changed_fields(_asked_with(base), _asked_with(run)),
        against=against,
        mode=mode,
        measure=_measure_of(mode, against),
        failing=Move.between(*({place for place in both if _fails(known[place])} for known in (before, after))),
        moves=tuple(moves),
        question_count=len(both),
        tried=tried,
    )


def _measure_of(mode: Mode | None, against: RunDifference) -> MeasureChange | None:
    wanted = mode.measures if mode else ()
    return next((change for change in against.changes if change.name.partition("@")[0] in wanted), None)


def _fails(modes: tuple[Mode, ...]) -> bool:
    return any(mode.kind == "failure" for mode in modes)


def _asked_with(run: EvaluationRun) -> tuple[RetrievePlan, RunSettings]:
    return RetrievePlan.from_dict(run.plan), RunSettings.from_dict(run.settings)


def _modes_by_place(run: EvaluationRun) -> dict[int, tuple[Mode, ...]]:
    """Position -> modes. The same version of a set has the same question at the same place."""
    rows = run.items.only("run", "position", "outcome", "modes")
    return {item.position: tuple(modes_of(item)) for item in rows}
