"""Fit a judge to one collection by what people said of its answers, keep the versions, take one back.

Of each answer that chance drew and people labelled, x is what the judge expects (its estimate, else its score) and y
what people say, both 0 to 1. Of n such pairs:

    yes or no   yes from the threshold on x that has the greatest Cohen's kappa with y; of several the middle one
    number      x - bias, within 0 to 1, bias = sum(x - y) / (n + PRIOR): as if PRIOR answers more had none
    interval    figure +- the ceil(0.95 (n + 1))-th smallest |y - figure|, each figure by a bias without its own answer

The interval is conformal: it holds 95 % of the labels of further answers drawn alike, whatever the judge is like (Vovk,
Gammerman and Shafer, 2005; Lei et al., 2018, arXiv 1604.04173; left one out: Barber et al., 2021, arXiv 1905.02928).
With fewer than 19 labels there is none.

What a fit is worth is counted over answers that it was not fitted on, each left out in turn. A number whose RMSE is no
smaller then keeps the judge's own score, and so does a yes or no that is not right about significantly more answers.

A version (`JudgeFit`) is a row of the experiments with the kind "judge", so that it has who made it and who took it
back. The newest that nobody took back is in force. A judge's version ends with it: "3-tokens+c2(adherence)" is the
judge 3-tokens with the second calibration, by which adherence may decide about single answers.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.advisory_locks import LockSpace, lock, named
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.errors import ServiceError, UnknownError
from collections_app.models import Collection
from evaluation_app.judges.feature_model import AUROC_MIN, CALIBRATED, EXPLAINED_MIN
from evaluation_app.judges.protocol import Numbers
from evaluation_app.measures.scores import Score, scored
from evaluation_app.measures.statistics import auroc, rmse
from evaluation_app.models import EvaluationItem, Experiment, Review, ReviewTask, RunScore
from evaluation_app.reviews.agreement import CONTENT, Identity, Statistic, compare_yes_no
from evaluation_app.reviews.agreement import estimate as with_interval
from evaluation_app.reviews.labels import MEASURES, RANDOM, TWO_VALUED

LABELS_MIN = 20
LABELS_ADVISED = 40
LABELS_MAX = 500  # the newest; leaving each out in turn compares all with all
EACH_MIN = 5  # of a yes or no: labels of either kind
PRIOR = 10.0
COVERAGE = 0.95
SIGN_P = 0.05
FITTED = tuple(name for name in MEASURES if name != "correctness")  # which rules or the chat model decide

Flags = npt.NDArray[np.bool_]
JudgeIdentity = tuple[str, str]  # name and version, without a calibration


@dataclass(frozen=True, slots=True)
class Fitness:
    """Of answers that were left out of the fit. value: Cohen's kappa of a yes or no, RMSE of a number, with its 95 %
    interval; None where it is not defined. share: of the answers that judge and people say the same of; of a number
    those whose label lies in the interval, None where there is no interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class MeasureFit:
    """One measure. threshold: from which estimate on the verdict is yes. bias: what is taken from the estimate. Without
    either the judge's score stays. reach: how far from the figure 95 % of the labels lie at most; None for a yes or no.
    reason: why there is no fit, "few" labels or of "one_kind". missing: labels that are needed still. decides: whether
    the figure says enough of a single answer."""

    labels: int
    threshold: float | None = None
    bias: float | None = None
    reach: float | None = None
    before: Fitness = field(default_factory=Fitness)
    after: Fitness = field(default_factory=Fitness)
    decides: bool = False
    reason: str = ""
    missing: int = 0

    @property
    def changes(self) -> bool:
        return self.threshold is not None or self.bias is not None

    def value(self, score: float, estimate: float) -> float:
        """The calibrated figure, 0 to 1. estimate: the judge's, the score where it has none."""
        if self.threshold is not None:
            return float(estimate >= self.threshold)
        return score if self.bias is None else min(1.0, max(0.0, estimate - self.bias))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MeasureFit:
        """The reverse of `asdict`. Raises TypeError for what is none."""
        both = {name: Fitness(**values[name]) for name in ("before", "after")}
        return cls(**{**values, **both})


@dataclass(frozen=True, slots=True)
class JudgeFit:
    """One version. judge, judge_version: whose scores were compared, without a calibration. labels: answers that have
    one; people: how many gave them. measures: in the order of the review form. is_taken_back: it is not in force, by
    whom and when is in taken_back_by and taken_back_at."""

    number: int
    judge: str
    judge_version: str
    labels: int
    people: int
    measures: Mapping[str, MeasureFit]
    created_by: str = ""
    created_at: datetime | None = None
    is_taken_back: bool = False
    taken_back_by: str = ""
    taken_back_at: datetime | None = None

    @property
    def suffix(self) -> str:
        """What the judge's version ends with: the number, and the measures that may decide about single answers."""
        deciding = ",".join(sorted(name for name, fit in self.measures.items() if fit.decides))
        return f"+c{self.number}" + (f"({deciding})" if deciding else "")

    def apply(self, scores: Mapping[str, Score], details: Mapping[str, Any]) -> tuple[dict[str, Score], dict[str, Any]]:
        """(scores, details) with the calibrated figures; what is not scored stays. details has the judge's own under
        "calibration": {"number", "raw": {measure: {"value", "estimate"}}}, and the interval under "estimates"."""
        estimates, figures, raw = dict(details.get("estimates") or {}), dict(scores), {}
        for name, fit in self.measures.items():
            value = scores[name].value if name in scores else None
            if value is None or not (fit.changes or fit.reach is not None):
                continue
            estimate = (estimates.get(name) or {}).get("value")
            raw[name] = {"value": value, "estimate": estimate}
            figure = fit.value(value, value if estimate is None else estimate)
            figures[name] = scored(figure)
            if fit.reach is not None:
                low, high = max(0.0, figure - fit.reach), min(1.0, figure + fit.reach)
                estimates[name] = {"value": figure, "low": low, "high": high}
        if not raw:
            return figures, dict(details)
        return figures, {**details, "estimates": estimates, "calibration": {"number": self.number, "raw": raw}}

    def values(self) -> dict[str, Any]:
        """The columns of its row that say what it is."""
        header = {name: getattr(self, name) for name in HEADER}
        return {"settings": header, "grid": {name: asdict(fit) for name, fit in self.measures.items()}}

    @classmethod
    def of(cls, row: Experiment) -> JudgeFit:
        """Raises KeyError and TypeError for a row that holds none."""
        return cls(
            **{name: row.settings[name] for name in HEADER},
            measures={name: MeasureFit.from_dict(values) for name, values in row.grid.items()},
            created_by=row.created_by,
            created_at=row.created_at,
            is_taken_back=row.outcome == Experiment.Outcome.DISCARDED,
            taken_back_by=row.decided_by,
            taken_back_at=row.decided_at,
        )


HEADER = ("number", "judge", "judge_version", "labels", "people")


def fit_rows(collection: Collection) -> QuerySet[Experiment]:
    """Every version of every judge of this collection, and not of an earlier one of its name; the newest first."""
    rows = Experiment.objects.filter(kind=Experiment.Kind.JUDGE, collection_name=collection.name)
    return rows.filter(created_at__gte=collection.created_at).order_by("-settings__number")


def fit_in_force(collection: Collection, judge: str, judge_version: str) -> JudgeFit | None:
    """The newest version for this judge that nobody took back. judge_version: without a calibration."""
    own = {"judge": judge, "judge_version": judge_version}
    row = fit_rows(collection).filter(settings__contains=own).exclude(outcome=Experiment.Outcome.DISCARDED).first()
    return None if row is None else JudgeFit.of(row)


def fit_named(collection: Collection, version: str) -> JudgeFit | None:
    """The calibration that a run's judge version names, whether or not it is in force; None where it names none."""
    match = re.search(CALIBRATED, version)
    row = fit_rows(collection).filter(settings__number=int(match[1])).first() if match else None
    return None if row is None else JudgeFit.of(row)


def base_version(version: str) -> str:
    """The judge's version without the calibration."""
    return re.sub(CALIBRATED, "", version)


def raw_figures(
    scores: Mapping[str, dict[str, Any]],
    estimates: Mapping[str, Mapping[str, float]] | None,
    calibration: Mapping[str, Any] | None,
) -> dict[str, tuple[float, float]]:
    """measure -> (the judge's own score, what it expects), of stored scores and details, before any calibration."""
    raw = (calibration or {}).get("raw", {})
    figures = {}
    for name, score in scores.items():
        own = raw.get(name) or score | {"estimate": ((estimates or {}).get(name) or {}).get("value")}
        if (value := own.get("value")) is not None:
            figures[name] = float(value), float(value if own["estimate"] is None else own["estimate"])
    return figures


@dataclass(frozen=True, slots=True)
class LabelledScore:
    """One answer. score: the judge's; estimate: what it expects; label: what people say. All 0 to 1."""

    score: float
    estimate: float
    label: float


@dataclass(slots=True)
class LabelledAnswers:
    """By measure. answers: that have any label; people: who gave them."""

    by_measure: dict[str, list[LabelledScore]] = field(default_factory=lambda: defaultdict(list))
    answers: int = 0
    people: set[str] = field(default_factory=set)


def best_threshold(estimates: Numbers, labels: Numbers) -> float | None:
    """Halfway between two estimates. None where they are all the same, or the labels are of one kind alone."""
    order = np.argsort(estimates, kind="stable")
    values, verdicts = estimates[order], labels[order]
    total, positive = len(verdicts), float(verdicts.sum())
    cuts = np.flatnonzero(values[1:] > values[:-1]) + 1
    if not len(cuts) or positive in (0, total):
        return None
    both = positive - np.cumsum(verdicts)[cuts - 1]
    judge, share = (total - cuts) / total, positive / total
    chance = judge * share + (1 - judge) * (1 - share)
    kappa = ((2 * both + cuts - positive) / total - chance) / (1 - chance)
    best = np.flatnonzero(kappa >= kappa.max() - 1e-12)
    cut = int(cuts[best[len(best) // 2]])
    return float((values[cut - 1] + values[cut]) / 2)


def fit_measure(measure: str, rows: Sequence[LabelledScore]) -> MeasureFit:
    """The fit and what it is worth. Too few labels, or a yes or no with fewer than EACH_MIN of one kind, give none."""
    if missing := max(0, LABELS_MIN - len(rows)):
        return MeasureFit(len(rows), reason="few", missing=missing)
    table = np.array([(row.score, row.estimate, row.label) for row in rows], dtype=np.float64).T
    return (_fit_verdict if measure in TWO_VALUED else _fit_number)(*table)


def _fit_verdict(scores: Numbers, estimates: Numbers, labels: Numbers) -> MeasureFit:
    one_kind = min(labels.sum(), len(labels) - labels.sum()) < EACH_MIN
    others = scores if one_kind else held_out_verdicts(scores, estimates, labels)
    before, after = _agreement(scores, labels), _agreement(others, labels)
    helps = _is_more_often_right(others == labels, scores == labels)
    return MeasureFit(
        len(labels),
        threshold=best_threshold(estimates, labels) if helps else None,
        before=before,
        after=after,
        decides=_decides(_verdict_auroc, others if helps else scores, labels, AUROC_MIN),
        reason="one_kind" if one_kind else "",
    )


def held_out_verdicts(scores: Numbers, estimates: Numbers, labels: Numbers) -> Numbers:
    """Of each answer by the threshold of the others; the judge's own where those give none."""
    verdicts = scores.copy()
    for index in range(len(labels)):
        threshold = best_threshold(np.delete(estimates, index), np.delete(labels, index))
        if threshold is not None:
            verdicts[index] = float(estimates[index] >= threshold)
    return verdicts


def _is_more_often_right(after: Flags, before: Flags) -> bool:
    """By a one-sided sign test over the answers that only one of them is right about. A threshold of few labels is
    often better by luck alone, and on RAGBench worse afterwards."""
    gains, losses = int((after & ~before).sum()), int((before & ~after).sum())
    total = gains + losses
    return total > 0 and sum(math.comb(total, count) for count in range(gains, total + 1)) <= SIGN_P * 2**total


def _agreement(verdicts: Numbers, labels: Numbers) -> Fitness:
    agreement = compare_yes_no(list(zip(verdicts.tolist(), labels.tolist(), strict=True)))
    return Fitness(**asdict(agreement.kappa), share=agreement.confusion.observed)


def _fit_number(scores: Numbers, estimates: Numbers, labels: Numbers) -> MeasureFit:
    others = held_out_figures(estimates, labels)
    before, after = _fitness(rmse, scores, labels), _fitness(rmse, others, labels)
    helps = (after.value or 0.0) < (before.value or 0.0)
    figures = others if helps else scores
    gaps = np.abs(labels - figures)
    reaches = [conformal_reach(np.delete(gaps, index)) for index in range(len(gaps))]
    holds = [gap <= reach + 1e-12 for gap, reach in zip(gaps, reaches, strict=True) if reach is not None]
    return MeasureFit(
        len(labels),
        bias=float((estimates - labels).sum() / (len(labels) + PRIOR)) if helps else None,
        reach=conformal_reach(gaps),
        before=before,
        after=replace(after, share=float(np.mean(holds))),
        decides=_decides(_explained, figures, labels, EXPLAINED_MIN),
    )


def held_out_figures(estimates: Numbers, labels: Numbers) -> Numbers:
    """Of each answer by the bias of the others."""
    gaps = estimates - labels
    figures: Numbers = np.clip(estimates - (gaps.sum() - gaps) / (len(gaps) - 1 + PRIOR), 0.0, 1.0)
    return figures


def conformal_reach(gaps: Numbers) -> float | None:
    """The ceil(COVERAGE * (n + 1))-th smallest; None where there are too few for that."""
    place = math.ceil(COVERAGE * (len(gaps) + 1) - 1e-9)
    return float(np.sort(gaps)[place - 1]) if place <= len(gaps) else None


def _fitness(statistic: Statistic, figures: Numbers, labels: Numbers) -> Fitness:
    return Fitness(**asdict(with_interval(statistic, list(zip(figures.tolist(), labels.tolist(), strict=True)))))


def _decides(statistic: Statistic, figures: Numbers, labels: Numbers, least: float) -> bool:
    """Whether the lower end of the statistic's interval reaches what a verdict on a single answer needs."""
    low = _fitness(statistic, figures, labels).low
    return low is not None and low >= least


def _verdict_auroc(verdicts: Sequence[float], labels: Sequence[float]) -> float | None:
    return auroc(verdicts, [label > 0 for label in labels])


def _explained(figures: Sequence[float], labels: Sequence[float]) -> float | None:
    """The share of the labels' variance that the figures explain."""
    spread, error = float(np.std(labels)), rmse(figures, labels)
    return None if not spread or error is None else 1 - (error / spread) ** 2


def labelled_answers(collection: Collection) -> dict[JudgeIdentity, LabelledAnswers]:
    """Per judge that scored answers which chance drew and people labelled, as far as who asks may see them.

    A label counts for every judge that scored the same answer to the same question from the same context; of several
    scores of one judge the newest. A tie of people on a yes or no is left out.
    """
    verdicts = _read_labels(collection)
    result: dict[JudgeIdentity, LabelledAnswers] = defaultdict(LabelledAnswers)
    for judge, answers in _read_scores(collection, {question for question, _ in verdicts}).items():
        for identity in (each for each in verdicts if each in answers):  # in one order, so that a fit is repeatable
            reviews = verdicts[identity]
            result[judge].answers += 1
            result[judge].people |= {name for name, _ in reviews}
            for measure in answers[identity].keys() & set(FITTED):
                label = label_of(measure, [said[measure] for _, said in reviews if measure in said])
                if label is not None:
                    result[judge].by_measure[measure].append(LabelledScore(*answers[identity][measure], label))
    return dict(sorted(result.items()))


def label_of(measure: str, values: Sequence[float | None]) -> float | None:
    """The mean of people, of a yes or no their majority; None for a tie, and where nobody could tell."""
    numbers = [value for value in values if value is not None]
    if not numbers or (measure in TWO_VALUED and fmean(numbers) == 0.5):
        return None
    return float(fmean(numbers) > 0.5) if measure in TWO_VALUED else fmean(numbers)


def _read_labels(collection: Collection) -> dict[Identity, list[tuple[str, dict[str, float | None]]]]:
    """answer -> (who, verdicts) of each review, of answers that chance drew; the newest LABELS_MAX."""
    tasks = ReviewTask.objects.filter(
        collection_name=collection.name, created_at__gte=collection.created_at, reason=RANDOM, reviews__isnull=False
    )
    rows = tasks.order_by("-created_at", "-pk").distinct().values_list("pk", "question_text", CONTENT)[:LABELS_MAX]
    identities = {pk: (question, content) for pk, question, content in rows}
    result: dict[Identity, list[tuple[str, dict[str, float | None]]]] = defaultdict(list)
    reviews = Review.objects.filter(task__in=list(identities)).order_by("pk")
    for task, name, verdicts in reviews.values_list("task", "reviewer_name", "verdicts"):
        result[identities[task]].append((name, verdicts))
    return result


def _read_scores(
    collection: Collection, questions: set[str]
) -> dict[JudgeIdentity, dict[Identity, dict[str, tuple[float, float]]]]:
    """judge -> answer -> measure -> (score, estimate), of evaluation runs and of live answers, before calibrations."""
    fields = ("question_text", CONTENT, "scores", "details__estimates", "details__calibration")
    which = {"question_text__in": questions, "outcome": EvaluationItem.Outcome.ANSWERED}
    items = EvaluationItem.objects.filter(
        run__collection_name=collection.name, run__created_at__gte=collection.created_at, **which
    ).order_by("-run__created_at", "-run_id")
    live = RunScore.objects.filter(
        collection_name=collection.name, asked_at__gte=collection.created_at, **which
    ).order_by("-created_at")
    result: dict[JudgeIdentity, dict[Identity, dict[str, tuple[float, float]]]] = defaultdict(dict)
    for judge, version, question, content, scores, estimates, calibration in (
        *items.values_list("run__judge", "run__judge_version", *fields),
        *live.values_list("judge", "judge_version", *fields),
    ):
        if judge != "none":
            answers = result[judge, base_version(version)]
            answers.setdefault((question, content), raw_figures(scores, estimates, calibration))
    return result


@transaction.atomic
def fit_judge(collection: Collection, judge: str, judge_version: str, *, actor: services.Actor) -> JudgeFit:
    """A new version, in force for what is scored from now on; runs that are done or under way keep theirs.

    Raises Forbidden, and ServiceError 409 "too_few_labels" where no measure has LABELS_MIN labels.
    """
    require_in(Permission.EVALUATE, collection.name)
    answers = labelled_answers(collection).get((judge, judge_version), LabelledAnswers())
    measures = {name: fit_measure(name, answers.by_measure[name]) for name in FITTED if answers.by_measure[name]}
    if all(fit.reason == "few" for fit in measures.values()):
        most = max((fit.labels for fit in measures.values()), default=0)
        raise ServiceError(
            f"a fit needs {LABELS_MIN} answers that chance drew and people labelled; {collection.name!r} has {most} "
            f"that the judge {judge} scored, {LABELS_MIN - most} are missing ({LABELS_ADVISED} are advised)",
            type="too_few_labels",
        )
    lock(named(LockSpace.JUDGE_FIT, collection.name))  # so that no number is given twice
    newest = fit_rows(collection).values_list("settings__number", flat=True).first() or 0
    fit = JudgeFit(newest + 1, judge, judge_version, answers.answers, len(answers.people), measures)
    row = Experiment.objects.create(
        kind=Experiment.Kind.JUDGE,
        collection_name=collection.name,
        name=f"{judge}, calibration {fit.number}",
        outcome=Experiment.Outcome.KEPT,
        created_by=name_actor(actor),
        **fit.values(),
    )
    services.record(
        actor,
        [collection],
        services.CHANGE,
        f"calibrated the judge {judge} of {collection.name} on {fit.labels} answers (version {fit.number})",
    )
    return JudgeFit.of(row)


@transaction.atomic
def take_back(collection: Collection, number: int, *, actor: services.Actor) -> JudgeFit:
    """That version is not in force any more: the one before it is, or the judge alone. It is kept.

    Raises Forbidden, ServiceError 404 for a number that there is not, 409 "taken_back" for one that was before.
    """
    require_in(Permission.EVALUATE, collection.name)
    row = fit_rows(collection).filter(settings__number=number).first()
    if row is None:
        raise UnknownError("calibration", f"{collection.name!r} has no calibration {number} of a judge")
    if row.outcome == Experiment.Outcome.DISCARDED:
        raise ServiceError(f"calibration {number} was taken back by {row.decided_by} before", type="taken_back")
    row.outcome, row.decided_by, row.decided_at = Experiment.Outcome.DISCARDED, name_actor(actor), timezone.now()
    row.save(update_fields=["outcome", "decided_by", "decided_at"])
    services.record(
        actor, [collection], services.CHANGE, f"took back calibration {number} of a judge of {collection.name}"
    )
    return JudgeFit.of(row)


def read_fits(collection: Collection) -> Mapping[JudgeIdentity, list[JudgeFit]]:
    """Every version by judge, the newest first."""
    fits: dict[JudgeIdentity, list[JudgeFit]] = defaultdict(list)
    for row in fit_rows(collection):
        fit = JudgeFit.of(row)
        fits[fit.judge, fit.judge_version].append(fit)
    return fits
