"""Which fixes a run is offered: those that were tried, by what they did to the primary measure, then untried ones.

Each change of plan and settings is offered once, for all modes that suggest it. Of two that go opposite ways for one
question one is offered: what was found better, else what is for the failures rather than diagnostics, and for more
questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from evaluation_app.analysis.comparison.decisive import Finding
from evaluation_app.analysis.comparison.stored_comparisons import RunDifference, differences
from evaluation_app.analysis.comparison.usage import UsageChange
from evaluation_app.analysis.diagnosis.fixes import FixProposal, Workshop, context_change, propose_fixes
from evaluation_app.models import EvaluationRun
from evaluation_app.scoring.modes.catalogue import Mode, stored_table
from evaluation_app.scoring.run_settings import RunSettings
from ragd.types import RetrievePlan, canonical_json

TRIED_SHOWN = 14
OPPOSITE = {"more_context": "less_context", "less_context": "more_context"}


@dataclass(frozen=True, slots=True)
class Trial:
    """A run that tried a fix. against: None while it goes on, and where the set asks other questions now."""

    run: EvaluationRun
    against: RunDifference | None

    @property
    def primary(self) -> Finding | None:
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
    known = {difference.run.pk: difference for difference in differences(run, comparable)}
    trials: dict[str, list[Trial]] = {}
    for each in runs:
        key = _key(RetrievePlan.from_dict(each.plan), RunSettings.from_dict(each.settings))
        trial = Trial(each, known.get(each.pk))
        trials.setdefault(key, []).append(trial)
    return trials


def _key(plan: RetrievePlan, settings: RunSettings) -> str:
    return f"{plan.hash} {canonical_json(settings.as_dict())}"
