"""Which embedding model of an experiment is better, and how sure that is.

What an experiment asks, and the documents that it asks of: the same for every model, chosen by ids alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import MD5

from collections_app.errors import ServiceError
from collections_app.models import Collection, Document
from evaluation_app.experiments.model_trial import Candidate, current_candidate
from evaluation_app.golden.generated_questions import make_questions
from evaluation_app.golden.questions import Golden
from evaluation_app.measures.statistics import (
    Interval,
    bootstrap_mean,
    holm,
    paired_difference,
    sign_flip_p,
)
from evaluation_app.models import EvaluationRun, Experiment, GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput

P_MAX = 0.05
GAIN_MIN = 0.01  # a smaller gain is not worth another index


@dataclass(frozen=True, slots=True)
class Standing:
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
        return {
            **self.candidate.as_dict(),
            "is_current": self.is_current,
            "ndcg": _interval(self.ndcg),
            "recall": _interval(self.recall),
            "gain": _interval(self.gain),
            "p": self.p,
            "by_mode": dict(self.by_mode),
            "weights": dict(self.weights),
            "ms_per_chunk": self.ms_per_chunk,
            "query_ms": self.query_ms,
            "index_bytes": self.index_bytes,
            "embed_s": self.embed_s,
            "cost_usd": self.cost_usd,
        }


def rank(experiment: Experiment) -> list[Standing]:
    """The finished candidates, best mean nDCG first; ties by the smaller index, then by the order that they came in.

    [] until the model in use, which all are compared with, is finished.
    """
    return rank_trials(experiment, trials_of(experiment))


def trials_of(experiment: Experiment) -> dict[int, Mapping[str, Any]]:
    """What came of the finished candidates (`Trial.as_dict()`), by their place."""
    rows = experiment.runs.filter(summary__has_key="trial").order_by("place")
    return {place or 0: summary["trial"] for place, summary in rows.values_list("place", "summary")}


def rank_trials(experiment: Experiment, found: Mapping[int, Mapping[str, Any]]) -> list[Standing]:
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
            Standing(
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


def winner_of(standings: Sequence[Standing]) -> Standing | None:
    """The best of those that are better than the collection's own; None where none is."""
    return next((each for each in standings if each.is_better), None)


def find_measured(collection: Collection, candidate: Candidate) -> tuple[Experiment, Standing] | None:
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


def _interval(found: Interval | None) -> dict[str, float] | None:
    return {"mean": found.mean, "low": found.low, "high": found.high, "count": found.count} if found else None


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
