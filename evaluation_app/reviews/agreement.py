"""How far a judge agrees with people, and what people would say of all answers by what they said of some.

Per task the people's verdict is their majority on adherence (a tie is left out) and their mean on what is a number.
Agreement between people pairs all reviews of the same task. Intervals: percentile bootstrap over the pairs, seeded.

A label counts where chance drew its answer: it was queued as a random sample. It counts for each run that gave the
same answer to the same question from the same context. So the answers of a run are groups: those of its own, and those
that it has in common with an earlier run that people labelled.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any
from uuid import UUID

import numpy as np
from django.db.models import CharField, F, Q, QuerySet, TextField
from django.db.models.functions import MD5, Cast, Concat

from evaluation_app.measures.catalogue import MEASURES as CATALOGUE
from evaluation_app.measures.statistics import (
    LEVEL,
    SEED,
    Anchored,
    anchored_mean,
    missing_labels,
    pearson,
    rmse,
    spearman,
)
from evaluation_app.models import EvaluationItem, EvaluationRun, Review, ReviewTask, RunScore
from evaluation_app.reviews.labels import DERIVED, LABEL_REQUESTS, MEASURES, RANDOM, TWO_VALUED

ADHERENCE = "adherence"
CONTENT_TYPE = "application/jsonl"
AT_ONCE = 200


CONTINUOUS = (*(item.measure for item in LABEL_REQUESTS if item.measure != ADHERENCE), DERIVED)
RESAMPLES = 500
PAIRS_MIN = 2  # resamples in which a statistic is defined, below which there is no interval
PEOPLE_MAX = 12  # pairs of people that are shown one by one

Pair = tuple[float, float]
Statistic = Callable[[Sequence[float], Sequence[float]], float | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """value: None where the pairs do not allow it. low and high: its 95 % interval, None where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Confusion:
    """Of adherence: first the judge (or the first person), then the other. Counts of pairs."""

    both: int
    first_only: int
    second_only: int
    neither: int

    @property
    def total(self) -> int:
        return self.both + self.first_only + self.second_only + self.neither

    @property
    def observed(self) -> float | None:
        """The share of pairs that say the same; None without any."""
        return (self.both + self.neither) / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class YesNo:
    """Agreement on adherence. ties: tasks of which people said as often yes as no."""

    confusion: Confusion
    kappa: Estimate
    ties: int = 0


@dataclass(frozen=True, slots=True)
class Numeric:
    """Agreement on one number. pairs: (judge, people) per task. bias: mean of judge - people."""

    measure: str
    title: str
    pairs: tuple[Pair, ...]
    pearson: Estimate
    spearman: Estimate
    rmse: float | None
    bias: float | None

    @property
    def count(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True, slots=True)
class Between:
    """Two people over the tasks that both judged, or "all pairs" of people together."""

    names: str
    tasks: int
    adherence: YesNo
    numeric: tuple[Numeric, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """tasks: with at least one review; reviews: of all of them. sentences: judge and people sentence by sentence."""

    tasks: int
    reviews: int
    adherence: YesNo
    sentences: YesNo
    numeric: tuple[Numeric, ...]
    people: tuple[Between, ...]


def read_agreement(tasks: Iterable[ReviewTask]) -> Agreement:
    """tasks: with `reviews` and `item` fetched; those without a review do not count."""
    judged = [task for task in tasks if task.reviews.all()]
    return Agreement(
        tasks=len(judged),
        reviews=sum(len(task.reviews.all()) for task in judged),
        adherence=_adherence(judged),
        sentences=_sentences(judged),
        numeric=tuple(_numeric(name, _pairs_with_judge(judged, name)) for name in CONTINUOUS),
        people=_between_people(judged),
    )


def estimate(statistic: Statistic, pairs: Sequence[Pair]) -> Estimate:
    """The statistic of the pairs with its interval. Resamples in which it is not defined are left out."""
    value = statistic([one for one, _ in pairs], [other for _, other in pairs])
    if value is None:
        return Estimate(None)
    generator = np.random.Generator(np.random.PCG64(SEED))
    table = np.asarray(pairs, dtype=np.float64)
    draws = (table[generator.integers(0, len(table), len(table))] for _ in range(RESAMPLES))
    return _interval(value, [statistic(drawn[:, 0].tolist(), drawn[:, 1].tolist()) for drawn in draws])


def _interval(value: float, again: Iterable[float | None]) -> Estimate:
    result = [each for each in again if each is not None]
    if len(result) < PAIRS_MIN:
        return Estimate(value)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(result, [tail, 1 - tail])
    return Estimate(value, float(low), float(high))


def compare_yes_no(pairs: Sequence[Pair], ties: int = 0) -> YesNo:
    counts = dict.fromkeys(((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)), 0)
    for pair in pairs:
        counts[pair] += 1
    return YesNo(Confusion(*counts.values()), _kappa(list(counts.values())), ties)


def kappa_of(counts: Sequence[float]) -> float | None:
    """Cohen's kappa of two people's yes and no. counts: both yes, the first alone, the second alone, both no.

    None without any, and when one of them always says the same: then it would be 0 whatever the other says.
    """
    total = math.fsum(counts)
    if not total:
        return None
    both, first, second, neither = counts
    one, other = (both + first) / total, (both + second) / total
    if one in (0, 1) or other in (0, 1):
        return None
    expected = one * other + (1 - one) * (1 - other)
    return ((both + neither) / total - expected) / (1 - expected)


def _kappa(counts: Sequence[int]) -> Estimate:
    """Resampled pairs are counts drawn from the same shares, so thousands of pairs cost no more than ten."""
    value = kappa_of(counts)
    if value is None:
        return Estimate(None)
    total = sum(counts)
    generator = np.random.Generator(np.random.PCG64(SEED))
    drawn = generator.multinomial(total, np.asarray(counts) / total, RESAMPLES)
    return _interval(value, [kappa_of(row) for row in drawn.tolist()])


def _adherence(tasks: Sequence[ReviewTask]) -> YesNo:
    pairs, ties = [], 0
    for task in tasks:
        statements = [value for review in task.reviews.all() if (value := review.verdicts.get(ADHERENCE)) is not None]
        judge = judge_value(task, ADHERENCE)
        if not statements or judge is None:
            continue
        if (share := fmean(statements)) == 0.5:
            ties += 1
        else:
            pairs.append((judge, float(share > 0.5)))
    return compare_yes_no(pairs, ties)


def _sentences(tasks: Sequence[ReviewTask]) -> YesNo:
    """Each review's marks against the judge's, where the item still has its annotation and the person judged them."""
    pairs = []
    live = _live_annotations(tasks)
    for task in tasks:
        annotation = task.item.annotation if task.item is not None else live.get(task.query_run, {})
        judged = {entry["key"]: bool(entry["supported"]) for entry in annotation.get("support", ())}
        for review in task.reviews.all():
            if review.verdicts.get(DERIVED) is not None:
                pairs += [(float(is_held), float(key not in review.unsupported)) for key, is_held in judged.items()]
    return compare_yes_no(pairs)


def _live_annotations(tasks: Sequence[ReviewTask]) -> dict[UUID | None, Mapping[str, Any]]:
    """By query run, of the tasks whose item is gone or that never had one. One query."""
    requested = {task.query_run for task in tasks if task.item_id is None and task.query_run}
    return dict(RunScore.objects.filter(pk__in=requested).values_list("query_run", "annotation"))


def annotation_of(task: ReviewTask) -> Mapping[str, Any]:
    """What the judge marked; {} when the item, or the score of a live answer, is gone."""
    if task.item is not None:
        result: Mapping[str, Any] = task.item.annotation
        return result
    stored = RunScore.objects.filter(pk=task.query_run).only("annotation").first() if task.query_run else None
    return stored.annotation if stored is not None else {}


def judge_value(task: ReviewTask, measure: str) -> float | None:
    """The judge's score; None where it has none."""
    value = (task.judged.get(measure) or {}).get("value")
    return None if value is None else float(value)


def _pairs_with_judge(tasks: Sequence[ReviewTask], measure: str) -> list[Pair]:
    pairs = []
    for task in tasks:
        statements = [value for review in task.reviews.all() if (value := review.verdicts.get(measure)) is not None]
        judge = judge_value(task, measure)
        if statements and judge is not None:
            pairs.append((judge, fmean(statements)))
    return pairs


def _numeric(measure: str, pairs: Sequence[Pair]) -> Numeric:
    first, second = [one for one, _ in pairs], [other for _, other in pairs]
    return Numeric(
        measure,
        CATALOGUE[measure].title,
        tuple(pairs),
        estimate(pearson, pairs),
        estimate(spearman, pairs),
        rmse(first, second),
        fmean(one - other for one, other in pairs) if pairs else None,
    )


def _between_people(tasks: Sequence[ReviewTask]) -> tuple[Between, ...]:
    """All pairs of reviews together first, then each two people, those with most tasks in common first."""
    verdicts: dict[tuple[str, str], list[tuple[Mapping[str, float | None], Mapping[str, float | None]]]]
    verdicts = defaultdict(list)
    for task in tasks:
        ordered = sorted(task.reviews.all(), key=lambda review: review.reviewer_name)
        for one, other in combinations(ordered, 2):
            verdicts[one.reviewer_name, other.reviewer_name].append((one.verdicts, other.verdicts))
    if not verdicts:
        return ()
    ranked = sorted(verdicts.items(), key=lambda item: (-len(item[1]), item[0]))
    each = [_between(f"{first} and {second}", both) for (first, second), both in ranked[:PEOPLE_MAX]]
    together = _between("all pairs of people", [pair for _, both in ranked for pair in both])
    return (together, *each) if len(each) > 1 else tuple(each)


def _between(names: str, both: Sequence[tuple[Mapping[str, float | None], Mapping[str, float | None]]]) -> Between:
    def pairs_of(measure: str) -> list[Pair]:
        values = ((one.get(measure), other.get(measure)) for one, other in both)
        return [(first, second) for first, second in values if first is not None and second is not None]

    numeric = tuple(_numeric(name, pairs) for name in CONTINUOUS if (pairs := pairs_of(name)))
    return Between(names, len(both), compare_yes_no(pairs_of(ADHERENCE)), numeric)


def export_reviews(rows: QuerySet[Review, Review]) -> Iterator[str]:
    """One line per review, the oldest first. A score that is not known is null, never a number."""
    ordered = rows.select_related("task", "task__item").order_by("created_at", "id")
    for review in ordered.iterator(chunk_size=AT_ONCE):
        yield json.dumps(record_of(review), ensure_ascii=False, allow_nan=False) + "\n"


def record_of(review: Review) -> dict[str, Any]:
    task = review.task
    return {
        "task": task.pk,
        "question": task.question_text,
        "answer": task.answer,
        "expected_answer": task.expected_answer,
        "context": task.context,
        "answer_sentences": task.answer_sentences,
        "collection": task.collection_name,
        "set": task.set_name,
        "run": str(task.item.run_id) if task.item else None,
        "query_run": str(task.query_run) if task.query_run else None,
        "reviewer": review.reviewer_name,
        "reviewed_at": review.created_at.isoformat(),
        "verdicts": review.verdicts,
        "unsupported": review.unsupported,
        "note": review.note,
        "correction": review.correction,
        "judge": task.judge,
        "judge_scores": {name: score.get("value") for name, score in task.judged.items()},
        "judge_annotation": annotation_of(task),
    }


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
    """scores: before a calibration, whose labels may be those that the mean is anchored to."""

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
    rows = _answered(run.pk).order_by("position")
    fields = ("question_text", CONTENT, "scores", "details__calibration__raw")
    return [
        _Answer((question, content), {**scores, **(raw or {})}, origin.get((question, content)))
        for question, content, scores, raw in rows.values_list(*fields)
    ]


def _answered(*runs: UUID) -> QuerySet[EvaluationItem]:
    return EvaluationItem.objects.filter(run__in=runs, outcome=EvaluationItem.Outcome.ANSWERED)
