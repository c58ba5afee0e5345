"""What an experiment says: its plans by their measure, its embedding models by retrieval, and how sure either is.

What an experiment asks, and the documents that it asks of: the same for every model, chosen by ids alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal
from uuid import UUID

import numpy as np
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import MD5
from django.utils.translation import gettext

from collections_app.domain.formats import duration, localized, round_duration
from collections_app.errors import ServiceError
from collections_app.models import Collection, Document, IndexVersion
from evaluation_app.charts.score_charts import Scatter, ScatterPoint, draw_scatter, format_value
from evaluation_app.experiments.model_trial import Candidate, current_candidate
from evaluation_app.experiments.plan_grid import label_of, spell_value, varied
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.suggestions import make_questions
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.scores import Mean, Score, mean
from evaluation_app.measures.statistics import (
    Draws,
    Interval,
    ResampledMeans,
    bootstrap_mean,
    holm,
    judge_difference,
    paired_difference,
    sign_flip_p,
)
from evaluation_app.models import EvaluationItem, EvaluationRun, Experiment, GoldenQuestion, GoldenSet
from evaluation_app.runs.comparison.changes import query_times
from ragd.errors import InvalidInput

Standing = Literal["best", "level", "worse", "unfinished", "unscored"]
Row = dict[int, tuple[Score, float]]  # position -> score and weight
SHOWN = 5


@dataclass(frozen=True, slots=True)
class RankedPlan:
    """One plan. interval: of its own mean. behind: best - this over the questions that both scored.

    standing: "level" when it cannot be told from the best; "unfinished" while others have asked more questions, as
    its mean is over fewer; "unscored" without any score. won: the share of the bootstrap's draws in which it had
    the best mean over the questions that all plans scored, where level plans share a draw; None where there are none.
    latency_ms: the median of its queries, without judging; where these are gone, the time at work by questions done;
    None before the first.
    """

    place: int
    run: EvaluationRun
    label: str
    values: Mapping[str, str]
    mean: Mean
    interval: Interval | None
    behind: Interval | None
    standing: Standing
    won: float | None
    latency_ms: float | None

    @property
    def is_ranked(self) -> bool:
        return self.standing in ("best", "level", "worse")

    @property
    def per_question_ms(self) -> float | None:
        """Time at work, with judging, by questions done."""
        return self.run.took_ms / self.run.done if self.run.done else None

    @property
    def cells(self) -> list[str]:
        """Its values of the fields in which the plans differ, in their order."""
        return list(self.values.values())


@dataclass(frozen=True, slots=True)
class Ranking:
    """rows: the best mean first, ties by place, then what is unfinished, then what is unscored, each by place.

    fields: in which the plans differ. shared: the questions that all ranked plans scored; `won` speaks of those alone.
    """

    measure: str
    fields: tuple[str, ...]
    rows: tuple[RankedPlan, ...]
    shared: int

    @property
    def ranked(self) -> int:
        """How many plans are ranked."""
        return sum(row.is_ranked for row in self.rows)

    @property
    def best(self) -> RankedPlan | None:
        return next((row for row in self.rows if row.standing == "best"), None)

    @property
    def level(self) -> list[RankedPlan]:
        """Those that cannot be told from the best."""
        return [row for row in self.rows if row.standing == "level"]

    @property
    def quickest(self) -> RankedPlan | None:
        """Of the best and those level with it the one that takes least time per question."""
        known = [row for row in self.rows if row.standing in ("best", "level") and row.latency_ms is not None]
        return min(known, key=lambda row: (row.latency_ms or 0.0, row.place), default=None)


def rank_plans(experiment: Experiment, measure: str = "") -> Ranking:
    """The runs of an experiment, finished or not, by the mean of the measure (its own unless one is named).

    Four queries. Nothing is corrected for having chosen the best of many: `won` tells how sure the choice is.
    """
    name = measure or experiment.measure
    runs = list(experiment.runs.order_by("place"))
    scores, latencies = _read_scores(experiment, name), read_latencies(runs)
    names = varied(experiment.variants) if experiment.variants else []
    draws = Draws()
    sign = 1.0 if measure_of(name).higher_is_better else -1.0
    means = {run.pk: _mean(scores.get(run.pk, {})) for run in runs}
    most = max((run.done for run in runs), default=0)
    pool = [run for run in runs if means[run.pk].value is not None and run.done == most]
    ordered = sorted(pool, key=lambda run: (-sign * (means[run.pk].value or 0.0), run.place or 0))
    rest = sorted((run for run in runs if run not in pool), key=lambda run: means[run.pk].value is None)
    table = _Table([scores[run.pk] for run in ordered], draws)
    won = table.share_best(sign)
    rows: list[RankedPlan] = []
    for index, run in enumerate((*ordered, *rest)):
        is_ranked = index < len(ordered)
        behind, standing = table.stand(index, name) if is_ranked else (None, _unranked(means[run.pk]))
        rows.append(
            RankedPlan(
                place=run.place or 0,
                run=run,
                label=label_of(run.plan, names),
                values={field: spell_value(field, run.plan.get(field)) for field in names},
                mean=means[run.pk],
                interval=table.interval(index) if is_ranked else _interval(scores.get(run.pk, {}), draws),
                behind=behind,
                standing=standing,
                won=won[index] if is_ranked else None,
                latency_ms=latencies.get(run.pk),
            )
        )
    return Ranking(name, tuple(names), tuple(rows), len(table.shared))


def read_latencies(runs: Sequence[EvaluationRun]) -> dict[UUID, float]:
    """Run -> milliseconds of a question (see `RankedPlan`), of those that have done one. Two queries."""
    items = EvaluationItem.objects.filter(run__in=runs).values_list("query_run", "run")
    asked = {query_run: run for query_run, run in items if query_run is not None}
    known: dict[UUID, list[float]] = {}
    for pk, total in query_times(asked).items():
        known.setdefault(asked[pk], []).append(total)
    return {
        run.pk: float(np.median(known[run.pk])) if run.pk in known else run.took_ms / run.done
        for run in runs
        if run.pk in known or run.done
    }


class _Table:
    """The scores of the ranked plans, the best first, with the draws over the questions that all of them scored."""

    def __init__(self, rows: Sequence[Row], draws: Draws) -> None:
        self.rows, self.draws = rows, draws
        self.scored = [{position for position, (score, _) in row.items() if score.is_scored} for row in rows]
        self.shared = sorted(set.intersection(*self.scored)) if rows else []
        weights = [rows[0][position][1] for position in self.shared] if rows else []
        values = np.array([[row[position][0].value for row in rows] for position in self.shared], dtype=np.float64)
        self.drawn = ResampledMeans(values, weights, draws) if any(weight > 0 for weight in weights) else None

    def share_best(self, sign: float) -> list[float | None]:
        return list(self.drawn.share_best(sign)) if self.drawn else [None] * len(self.rows)

    def interval(self, index: int) -> Interval | None:
        if self.drawn and len(self.scored[index]) == len(self.shared):
            return self.drawn.interval(index)
        return _interval(self.rows[index], self.draws)

    def stand(self, index: int, name: str) -> tuple[Interval | None, Standing]:
        """The difference of the best to the plan, over the questions that these two scored, and what it says."""
        if index == 0:
            return None, "best"
        pairs = _pairs(self.rows[index], self.rows[0])
        moved = [after - before for before, after, _ in pairs]
        if self.drawn and len(pairs) == len(self.shared):
            behind: Interval | None = self.drawn.difference(index, 0)
        else:
            behind = bootstrap_mean(moved, weights=[weight for *_, weight in pairs], draws=self.draws)
        better = measure_of(name).higher_is_better
        verdict = judge_difference(behind, sum(value != 0 for value in moved), higher_is_better=better)
        return behind, "worse" if verdict == "improved" else "level"


def _unranked(value: Mean) -> Standing:
    return "unscored" if value.value is None else "unfinished"


def _interval(row: Row, draws: Draws) -> Interval | None:
    known = [(score.value, weight) for score, weight in row.values() if score.value is not None]
    return bootstrap_mean([value for value, _ in known], weights=[weight for _, weight in known], draws=draws)


def _read_scores(experiment: Experiment, measure: str) -> dict[UUID, Row]:
    result: dict[UUID, Row] = {}
    items = EvaluationItem.objects.filter(run__experiment=experiment).order_by("run_id", "position")
    for run_id, position, weight, value in items.values_list(
        "run_id", "position", "weight", KeyTransform(measure, "scores")
    ):
        if value is not None:
            result.setdefault(run_id, {})[position] = (Score.from_dict(value), weight)
    return result


def _mean(row: Row) -> Mean:
    return mean([score for score, _ in row.values()], [weight for _, weight in row.values()])


def _pairs(before: Row, after: Row) -> list[tuple[float, float, float]]:
    result = []
    for position in sorted(before.keys() & after.keys()):
        (old, weight), (new, _) = before[position], after[position]
        if old.value is not None and new.value is not None:
            result.append((old.value, new.value, weight))
    return result


@dataclass(frozen=True, slots=True)
class Index:
    """The index version of the index that an experiment searched. words: its policy and model, "" once it is
    forgotten."""

    number: int
    words: str


@dataclass(frozen=True, slots=True)
class OtherExperiment:
    """The best plan of another experiment by the same measure. is_other_index: it searched another index version."""

    experiment: Experiment
    best: RankedPlan
    index: Index
    is_other_index: bool


def index_of(ranking: Ranking, collection_name: str) -> Index | None:
    """Of the experiment's first run; None without a run."""
    number = next((row.run.index_version for row in ranking.rows), None)
    return None if number is None else _describe(collection_name, [number])[number]


def other_experiments(experiment: Experiment, ranking: Ranking) -> list[OtherExperiment]:
    """The newest others over the same questions that have a plan ranked by the same measure."""
    own = next((row.run.index_version for row in ranking.rows), None)
    rows = Experiment.objects.filter(
        kind=experiment.kind, set_digest=experiment.set_digest, collection_name=experiment.collection_name
    )
    ranked = ((other, rank_plans(other, ranking.measure).best) for other in rows.exclude(pk=experiment.pk)[:SHOWN])
    result = [(other, best) for other, best in ranked if best is not None]
    known = _describe(experiment.collection_name, {best.run.index_version for _, best in result})
    return [
        OtherExperiment(other, best, known[best.run.index_version], best.run.index_version != own)
        for other, best in result
    ]


def _describe(collection_name: str, numbers: Iterable[int]) -> dict[int, Index]:
    requested = list(numbers)
    own = IndexVersion.objects.filter(collection__name=collection_name, collection__deleted_at=None)
    rows = own.filter(number__in=requested)
    words = {row.number: _words(row) for row in rows}
    return {number: Index(number, words.get(number, "")) for number in requested}


def _words(index_version: IndexVersion) -> str:
    policy = index_version.policy
    cut = f"{policy['target_tokens']} words, overlap {policy['overlap_tokens']}" if "target_tokens" in policy else ""
    return ", ".join(part for part in (cut, index_version.embed_model) if part)


def draw_trade_off(ranking: Ranking) -> Scatter | None:
    """The ranked plans, each marked by its rank in the table; None where fewer than two have mean and latency."""
    measure = measure_of(ranking.measure)
    points = [
        ScatterPoint(row.label, str(rank), row.run.get_absolute_url(), row.latency_ms, row.mean.value)
        for rank, row in enumerate(ranking.rows, 1)
        if row.is_ranked and row.latency_ms is not None and row.mean.value is not None
    ]
    return draw_scatter(
        gettext("%(measure)s against latency per question") % {"measure": measure.title},
        points,
        spell_cost=localized(duration),
        spell_value=format_value,
        spell_tick=localized(round_duration),
        higher_is_better=measure.higher_is_better,
    )


P_MAX = 0.05
GAIN_MIN = 0.01  # a smaller gain is not worth another index


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """One candidate among the others. number: its place among the experiment's candidates. ndcg, recall: of the
    experiment's mode, with 95 % intervals over the questions.

    gain: nDCG less that of the collection's own model over the same questions, None for that one. p: of the gain,
    corrected for the number of candidates (Holm). by_mode: mode -> mean nDCG. weights: of the lists that hybrid search
    fused. index_bytes and embed_s: what the whole collection would take, by its chunks.
    """

    candidate: Candidate
    number: int
    is_current: bool
    ndcg: Interval
    recall: Interval
    gain: Interval | None
    p: float | None
    by_mode: Mapping[str, float]
    weights: Mapping[str, float]
    ms_per_chunk: float
    query_ms: float
    index_bytes: int
    embed_s: float
    cost_usd: float | None

    @property
    def is_better(self) -> bool:
        """A gain that is neither chance nor too small to matter."""
        return self.gain is not None and self.p is not None and self.gain.mean >= GAIN_MIN and self.p <= P_MAX

    @property
    def is_worse(self) -> bool:
        return self.gain is not None and self.p is not None and self.gain.mean < 0 and self.p <= P_MAX

    def as_dict(self) -> dict[str, Any]:
        """With the fields of the candidate, without its number."""
        values = asdict(self)
        del values["number"]
        return {**values.pop("candidate"), **values}


def rank(experiment: Experiment) -> list[ModelStanding]:
    """The finished candidates, best mean nDCG first; ties by the smaller index, then by the order that they came in.

    [] until the model in use, which all are compared with, is finished.
    """
    return rank_trials(experiment, trials_of(experiment))


def trials_of(experiment: Experiment) -> dict[int, Mapping[str, Any]]:
    """What came of the finished candidates (`Trial.as_dict()`), by their place."""
    rows = experiment.runs.filter(summary__has_key="trial").order_by("place")
    return {place or 0: summary["trial"] for place, summary in rows.values_list("place", "summary")}


def rank_trials(experiment: Experiment, found: Mapping[int, Mapping[str, Any]]) -> list[ModelStanding]:
    """`rank` of these trials."""
    if 0 not in found:
        return []
    places, trials = list(found), list(found.values())
    mode = experiment.settings["mode"]
    own = trials[0]["ndcg"][mode]
    gains = [paired_difference(own, trial["ndcg"][mode]) for trial in trials[1:]]
    pairs = [[late - early for early, late in zip(own, trial["ndcg"][mode], strict=True)] for trial in trials[1:]]
    corrected = [None, *holm([sign_flip_p(pair) for pair in pairs])]
    standings = []
    for number, trial, gain, p in zip(places, trials, [None, *gains], corrected, strict=True):
        ndcg, recall = bootstrap_mean(trial["ndcg"][mode]), bootstrap_mean(trial["recall"][mode])
        if ndcg is None or recall is None:
            raise ValueError("an experiment without questions has no standing")
        # of the collection's chunks to those of the sample
        share = experiment.settings["chunks_total"] / max(trials[0]["chunks"], 1)
        standings.append(
            ModelStanding(
                candidate=Candidate(**experiment.variants[number]),
                number=number,
                is_current=number == 0,
                ndcg=ndcg,
                recall=recall,
                gain=gain,
                p=p,
                by_mode={each: sum(values) / len(values) for each, values in trial["ndcg"].items()},
                weights=trial["weights"],
                ms_per_chunk=trial["ms_per_chunk"],
                query_ms=trial["query_ms"],
                index_bytes=round(trial["bytes_per_chunk"] * trial["chunks"] * share),
                embed_s=trial["embed_s"] * share,
                cost_usd=trial["cost_usd"] * share if trial["cost_usd"] is not None else None,
            )
        )
    return sorted(standings, key=lambda each: (-each.ndcg.mean, each.index_bytes))


def winner_of(standings: Sequence[ModelStanding]) -> ModelStanding | None:
    """The best of those that are better than the collection's own; None where none is."""
    return next((each for each in standings if each.is_better), None)


def find_measured(collection: Collection, candidate: Candidate) -> tuple[Experiment, ModelStanding] | None:
    """The newest finished experiment against what serves now that has this candidate, and how it did there."""
    against = Experiment.objects.filter(
        kind=Experiment.Kind.MODELS,
        collection_name=collection.name,
        variants__0=current_candidate(collection).as_dict(),
        variants__contains=[candidate.as_dict()],
    )
    done = against.exclude(runs__in=EvaluationRun.objects.exclude(state=EvaluationRun.State.SUCCEEDED))
    if (experiment := done.first()) is None:
        return None
    standing = next((each for each in rank(experiment) if each.candidate == candidate), None)
    return (experiment, standing) if standing else None


SAMPLE_CHUNKS, SAMPLE_CHUNKS_MAX = 5_000, 50_000
QUESTIONS_MIN = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """questions: with what they expect. doc_ids: the documents, sorted. chunks: how many they have now."""

    questions: list[Golden]
    doc_ids: list[str]
    chunks: int


def draw_sample(collection: Collection, golden_set: GoldenSet | None, most_chunks: int) -> Sample:
    """The questions of the set, or such that are made from the documents, and documents with about most_chunks chunks.

    Expected documents are always among them; the others come in the order of a hash of their id until the chunks are
    reached. Questions whose documents are gone, and those that expect nothing, are left out. Raises InvalidInput
    (most_chunks), ServiceError 409 for a collection or a set without enough questions.
    """
    if not 100 <= most_chunks <= SAMPLE_CHUNKS_MAX:
        raise InvalidInput(f"sample must be from 100 to {SAMPLE_CHUNKS_MAX} chunks, not {most_chunks}", field="sample")
    questions = list(_asked(collection, golden_set) if golden_set else make_questions(collection))
    if len(questions) < QUESTIONS_MIN:
        where = f"the test set {golden_set.name!r}" if golden_set else "the documents"
        raise ServiceError(
            f"{where} gave {len(questions)} questions with expected documents; an experiment needs at least "
            f"{QUESTIONS_MIN}: add questions to a test set and choose it",
            type="too_few_questions",
            field="golden_set",
        )
    expected = {doc_id for question in questions for doc_id in question.relevant_docs}
    rows = Document.objects.filter(collection=collection, enabled=True, chunk_count__gt=0)
    sizes = dict(rows.filter(doc_id__in=expected).values_list("doc_id", "chunk_count"))
    chunks = sum(sizes.values())
    for doc_id, count in rows.order_by(MD5("doc_id"), "doc_id").values_list("doc_id", "chunk_count").iterator():
        if chunks >= most_chunks:
            break
        if doc_id not in sizes:
            sizes[doc_id] = count
            chunks += count
    return Sample(questions, sorted(sizes), chunks)


def _asked(collection: Collection, golden_set: GoldenSet) -> Iterator[Golden]:
    rows = GoldenQuestion.objects.filter(golden_set=golden_set, suggested=False).order_by("position", "id")
    goldens = [golden for row in rows if (golden := Golden.of(row)).relevant_docs]
    named = {doc_id for golden in goldens for doc_id in golden.relevant_docs}
    searched = Document.objects.filter(collection=collection, enabled=True, chunk_count__gt=0, doc_id__in=named)
    present = set(searched.values_list("doc_id", flat=True))
    yield from (golden for golden in goldens if present.issuperset(golden.relevant_docs))
