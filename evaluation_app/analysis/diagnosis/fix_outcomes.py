"""What a tried fix did: the failing questions of the base run by mode, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaluation_app.analysis.diagnosis.board import modes_of
from evaluation_app.analysis.diagnosis.fixes import FieldChange, changed_fields
from evaluation_app.models import EvaluationRun
from evaluation_app.scoring.modes.catalogue import Mode, stored_table
from evaluation_app.scoring.run_settings import RunSettings
from ragd.types import RetrievePlan


@dataclass(frozen=True, slots=True)
class ModeMove:
    """Of the questions that are done in both runs: failing before and after; cured: before alone; new: after alone."""

    mode: Mode
    before: int
    after: int
    cured: int
    new: int


@dataclass(frozen=True, slots=True)
class FixOutcome:
    """asked: questions that are done in both runs, of the base run's. failing_*: of those, in any mode."""

    changes: tuple[FieldChange, ...]
    moves: tuple[ModeMove, ...]
    asked: int
    failing_before: int
    failing_after: int


def read_outcome(run: EvaluationRun) -> FixOutcome | None:
    """None for a run that has no base run, or whose base run asked another version of the set."""
    base = run.base_run
    if base is None or base.set_digest != run.set_digest:
        return None
    before, after = _modes_by_place(base), _modes_by_place(run)
    both = sorted(set(before) & set(after))
    moves = []
    for mode in stored_table().modes.values():
        was = {position for position in both if mode.key in before[position]}
        now = {position for position in both if mode.key in after[position]}
        if was or now:
            moves.append(ModeMove(mode, len(was), len(now), len(was - now), len(now - was)))
    return FixOutcome(
        changed_fields(_asked_with(base), _asked_with(run)),
        tuple(moves),
        len(both),
        sum(bool(before[position]) for position in both),
        sum(bool(after[position]) for position in both),
    )


def _asked_with(run: EvaluationRun) -> tuple[RetrievePlan, RunSettings]:
    return RetrievePlan.from_dict(run.plan), RunSettings.from_dict(run.settings)


def _modes_by_place(run: EvaluationRun) -> Mapping[int, frozenset[str]]:
    """Position -> modes. The same version of a set has the same question at the same place."""
    rows = run.items.only("position", "outcome", "modes")
    return {item.position: frozenset(mode.key for mode in modes_of(item)) for item in rows}
