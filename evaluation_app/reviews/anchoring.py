"""Anchored scores of a run: the judge's scores of all answers with what people said of some (`measures.anchored`).

A label counts where chance drew its answer: it was queued as a random sample. It counts for each run that gave the
same answer to the same question from the same context. So the answers of a run are groups: those of its own, and those
that it has in common with an earlier run that people labelled.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from uuid import UUID

from django.db.models import CharField, F, Q, QuerySet, TextField
from django.db.models.functions import MD5, Cast, Concat

from evaluation_app.measures.anchored import Anchored, anchored_mean, missing_labels
from evaluation_app.measures.catalogue import MEASURES as CATALOGUE
from evaluation_app.measures.statistics import rmse
from evaluation_app.models import EvaluationItem, EvaluationRun, Review, ReviewTask
from evaluation_app.reviews.labels import MEASURES, TWO_VALUED
from evaluation_app.reviews.queue import RANDOM

SOURCES_MAX = 5  # earlier runs whose labels count: the newest that have any
CONTENT = MD5(Concat(F("answer"), Cast(F("context"), TextField()), output_field=CharField()))

Identity = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AnchoredScore:
    """One measure of a run. judged: the judge's mean over the `answers` that it scored. estimate: None while `missing`
    labels are still needed. rmse: of the judge's scores against the labels of the same answers; agreeing: how many of
    these labels are what the judge says, None for a measure that is not a yes or no."""

    measure: str
    title: str
    judged: float
    estimate: Anchored | None
    labels: int
    answers: int
    missing: int
    rmse: float | None = None
    agreeing: int | None = None


@dataclass(frozen=True, slots=True)
class AnchoredDifference:
    """Of a measure in two runs. low and high: the interval of after - before; None where one has no estimate."""

    title: str
    before: AnchoredScore
    after: AnchoredScore
    difference: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    identity: Identity
    scores: dict[str, dict[str, object]]
    group: Hashable

    def judged(self, measure: str) -> float | None:
        value = (self.scores.get(measure) or {}).get("value")
        return float(value) if isinstance(value, int | float) else None


def anchored_scores(run: EvaluationRun) -> list[AnchoredScore]:
    """Each measure that people are asked about and that the run has scores of, in the order of the review form.

    [] where nobody labelled an answer that chance drew, of this run or of an earlier one with the same answers. Five
    queries, whatever the run's size.
    """
    labels = _labels(run)
    if not labels:
        return []
    answers = _answers(run)
    found = (_anchor(measure, answers, labels) for measure in MEASURES)
    return [score for score in found if score is not None]


def anchored_score(run: EvaluationRun, measure: str) -> AnchoredScore | None:
    """That of one measure; None where there is none."""
    return next((score for score in anchored_scores(run) if score.measure == measure), None)


def anchored_differences(before: EvaluationRun, after: EvaluationRun) -> list[AnchoredDifference]:
    """Of each measure that has labels in both runs. [] where there is none.

    The interval is made of both runs' own (MOVER: Zou and Donner, Statistics in Medicine 27, 2008). It takes their
    labels as independent, so where they share labels it is longer than it needs to be.
    """
    other = {score.measure: score for score in anchored_scores(after)}
    pairs = [(score, other[score.measure]) for score in anchored_scores(before) if score.measure in other]
    return [_difference(*pair) for pair in pairs]


def _difference(before: AnchoredScore, after: AnchoredScore) -> AnchoredDifference:
    one, two = before.estimate, after.estimate
    if one is None or two is None:
        return AnchoredDifference(before.title, before, after)
    moved = two.value - one.value
    low = moved - math.hypot(two.value - two.low, one.high - one.value)
    high = moved + math.hypot(two.high - two.value, one.value - one.low)
    return AnchoredDifference(before.title, before, after, moved, low, high)


def labelled_positions(run: EvaluationRun) -> set[int]:
    """Positions of the run's answers that people have labelled, in this run or in an earlier one."""
    known = {identity for identity, _ in _labels(run)}
    rows = _answered(run.pk).values_list("position", "question_text", CONTENT)
    return {position for position, question, content in rows if (question, content) in known}


def _anchor(
    measure: str, answers: Sequence[_Answer], labels: dict[tuple[Identity, str], float]
) -> AnchoredScore | None:
    scored = [(answer, value) for answer in answers if (value := answer.judged(measure)) is not None]
    said = {
        index: labels[answer.identity, measure]
        for index, (answer, _) in enumerate(scored)
        if (answer.identity, measure) in labels
    }
    if not said:
        return None
    groups = [answer.group for answer, _ in scored]
    judged = [value for _, value in scored]
    pairs = [(judged[index], label) for index, label in said.items()]
    return AnchoredScore(
        measure=measure,
        title=CATALOGUE[measure].title,
        judged=fmean(judged),
        estimate=anchored_mean(judged, said, groups),
        labels=len(said),
        answers=len(scored),
        missing=missing_labels(len(scored), said, groups),
        rmse=rmse([one for one, _ in pairs], [other for _, other in pairs]),
        agreeing=sum(one == other for one, other in pairs) if measure in TWO_VALUED else None,
    )


def _labels(run: EvaluationRun) -> dict[tuple[Identity, str], float]:
    """(answer, measure) -> the mean of what people said, of drawn answers to the set's questions."""
    tasks = _drawn(run).values_list("pk", "question_text", CONTENT)
    identities = {pk: (question, content) for pk, question, content in tasks}
    said: dict[tuple[Identity, str], list[float]] = {}
    for task, verdicts in Review.objects.filter(task__in=list(identities)).values_list("task", "verdicts"):
        for measure, value in verdicts.items():
            if value is not None:
                said.setdefault((identities[task], measure), []).append(float(value))
    return {key: fmean(values) for key, values in said.items()}


def _drawn(run: EvaluationRun) -> QuerySet[ReviewTask]:
    rows = ReviewTask.objects.filter(collection_name=run.collection_name, set_name=run.set_name, reason=RANDOM)
    return rows.filter(reviews__isnull=False).distinct()


def _answers(run: EvaluationRun) -> list[_Answer]:
    """The group of an answer: the oldest of the labelled runs that gave it too, None for an answer of the run alone."""
    sources = EvaluationRun.objects.filter(
        Q(items__review_tasks__reason=RANDOM), set_name=run.set_name, collection_name=run.collection_name
    ).exclude(pk=run.pk)
    newest = list(sources.order_by("-created_at", "-pk").distinct().values_list("pk", flat=True)[:SOURCES_MAX])
    earlier = _answered(*newest).order_by("-run__created_at", "-run_id")
    origin: dict[Identity, Hashable] = {
        (question, content): source
        for source, question, content in earlier.values_list("run_id", "question_text", CONTENT)
    }
    rows = _answered(run.pk).order_by("position").values_list("question_text", CONTENT, "scores")
    return [_Answer((question, content), scores, origin.get((question, content))) for question, content, scores in rows]


def _answered(*runs: UUID) -> QuerySet[EvaluationItem]:
    return EvaluationItem.objects.filter(run__in=runs, outcome=EvaluationItem.Outcome.ANSWERED)
