"""What a tried fix did: the verdict, the measure of its mode, time and cost of an answer, the questions that fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation_app.analysis.comparison.changes import MeasureChange
from evaluation_app.analysis.comparison.stored_comparisons import RunDifference, compare_runs
from evaluation_app.analysis.diagnosis.board import modes_of
from evaluation_app.analysis.diagnosis.fixes import FieldChange, changed_fields
from evaluation_app.models import EvaluationRun, Experiment
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
    against: RunDifference
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
    against = compare_runs(base, [run]).others[0]
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


def _measure_of(mode: Mode | None, against: RunDifference) -> MeasureChange | None:
    wanted = mode.measures if mode else ()
    return next((change for change in against.changes if change.name.partition("@")[0] in wanted), None)


def _fails(modes: Sequence[Mode]) -> bool:
    return any(mode.kind == "failure" for mode in modes)


def _asked_with(run: EvaluationRun) -> tuple[RetrievePlan, RunSettings]:
    return RetrievePlan.from_dict(run.plan), RunSettings.from_dict(run.settings)
