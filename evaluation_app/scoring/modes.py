"""Find which failure modes one scored question shows, by the thresholds in force: reference, server's, or a set's own.

The modes themselves are data: `measures/modes.toml`.

Noise sensitivity: which share of an answer is wrong and was taken from the context. No language model is asked.

The definitions are RAGChecker's (arXiv 2408.08067), with sentences for its claims:

    noise_relevant    wrong sentences of the answer that a relevant chunk supports / sentences of the answer
    noise_irrelevant  wrong sentences that an irrelevant chunk supports and no relevant one / sentences of the answer

    wrong     the expected answer does not state the sentence (see `states`), nor does the sentence hold a component of
              the expected answer (see `correctness`)
    supports  the judge's annotation names a sentence of the chunk as supporting the sentence, fully
    relevant  the chunk states a sentence of the expected answer, or the question names it as expected

A sentence is coarser than a claim: one that is right in part counts as wrong when the expected answer does not state
all of it, so these figures are an upper estimate of those over claims.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from django.conf import settings
from django.db import transaction

from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from evaluation_app.golden.questions import GLOBAL, MULTI_HOP, Golden
from evaluation_app.judges.feature_model import SUPPORT, is_weak
from evaluation_app.judges.protocol import embed_texts
from evaluation_app.judges.rubrics import read_rubrics
from evaluation_app.measures.catalogue import (
    CHUNK,
    CORRECT,
    DOCUMENT_BANDS,
    Bands,
    Change,
    Measure,
    Mode,
    ModeFix,
    Part,
    Table,
    by_construction,
    failures,
    find,
    find_mode,
    measure_of,
    mode_title,
    order_of,
    read_bands,
    stored_table,
)
from evaluation_app.measures.scores import (
    NO_ANSWER,
    NO_CONTEXT,
    NOTHING_EXPECTED,
    Score,
    failed,
    key_answer,
    scored,
    unscorable,
)
from evaluation_app.measures.statistics import auroc
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.scoring.correctness import states
from ragd.errors import InvalidInput, RagdError
from ragd.types import Embedder

__all__ = [
    "Bands", "Change", "Mode", "ModeFix", "Part", "Table", "banded_measures", "bands_for", "failures", "find_mode",
    "keep_bands", "mode_title", "own_bands", "stored_table", "thresholds_for",
]  # fmt: skip


def bands_for(golden_set: GoldenSet | None = None) -> dict[str, tuple[float, float]]:
    """Measure -> (good, poor) by which pages rate, for `catalogue.find(name, bands)`: `own_bands` over those of the
    diagnostics document, which every set begins with. A measure that is not in it has no band."""
    return (dict(DOCUMENT_BANDS) if golden_set is not None else {}) | own_bands(golden_set)


def own_bands(golden_set: GoldenSet | None = None) -> dict[str, tuple[float, float]]:
    """Measure -> (good, poor) as people set them: those of the set over those of RAGD_EVALUATION_BANDS. A question
    fails by their poor ones."""
    return read_bands(settings.RAGD_EVALUATION_BANDS) | (read_bands(golden_set.bands) if golden_set is not None else {})


def thresholds_for(golden_set: GoldenSet | None = None) -> dict[str, tuple[float, float]]:
    """Measure -> (good, poor) by which modes are found: `own_bands` over those of the diagnostics document and of the
    table of modes."""
    return dict(DOCUMENT_BANDS) | dict(stored_table().bands) | own_bands(golden_set)


def banded_measures(golden_set: GoldenSet) -> list[str]:
    """Names of the measures that thresholds can be set for: those that have some, in the catalogue's order, then the
    rubrics of the set."""
    known = thresholds_for(golden_set)
    rubrics = [rubric.measure for rubric in read_rubrics(golden_set.rubrics)]
    return list(dict.fromkeys([*sorted(known, key=order_of), *rubrics]))


@transaction.atomic
def keep_bands(golden_set: GoldenSet, bands: Mapping[str, Any], *, actor: services.Actor = None) -> GoldenSet:
    """Bands of one set, instead of those that it had; {} for those of the server. Runs that are done keep their modes.

    Raises InvalidInput (field bands).
    """
    require_in(Permission.EVALUATE, golden_set.collection_name)
    stored = {name: list(pair) for name, pair in read_bands(bands).items()}
    locked = GoldenSet.objects.select_for_update().get(pk=golden_set.pk)
    if locked.bands != stored:
        before = {"bands": locked.bands}
        locked.bands = stored
        locked.save(update_fields=["bands", "updated_at"])
        services.record(
            actor,
            [locked],
            "goldenset.thresholds",
            f"changed the thresholds of test set {locked.name}",
            before=before,
            after={"bands": stored},
        )
    golden_set.bands = stored
    return locked


WIDE_CATEGORIES = (GLOBAL, MULTI_HOP)
JUDGED_RULES = ("fails", "mismatch")


def weak_of(judge: str) -> frozenset[str]:
    """The measures of support of which the judge's verdict on a single answer was measured to be weak: they fail no
    question. In such a judge's runs "stated" decides by rules whether the context supports an answer (`support`).
    judge: as in `accuracy_of`."""
    return frozenset(name for name in SUPPORT if is_weak(judge, name))


class ScoredAnswer(Protocol):
    """What is looked at: scoring's `ScoredRun`. Shapes as in EvaluationItem, scores as Score."""

    @property
    def outcome(self) -> str: ...
    @property
    def scores(self) -> Mapping[str, Score]: ...
    @property
    def context(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def annotation(self) -> Mapping[str, Any]: ...
    @property
    def contributions(self) -> Sequence[Mapping[str, Any]]: ...


def find_modes(
    scored: ScoredAnswer, golden: Golden | None, bands: Bands | None = None, *, answerer: str = "", judge: str = ""
) -> list[str]:
    """Keys of the failure modes that the question shows, in the table's order; [] for none.

    What is not scored shows no mode: nothing is known of it. golden None (live traffic): only what needs no
    expectation. Where nothing is expected, what the context is like is no failure: nothing could be relevant. A
    question that ended with an error shows "run_error" alone. bands: measure -> (good, poor) that people set, None for
    those of the server; other measures are held against the thresholds of reference. A value below a poor threshold
    that a person set is "below_threshold" besides. answerer: what it cannot vary in shows no mode. judge: as in
    `accuracy_of`; by what it is weak in for a single answer no mode is found. No diagnostic that rests on a judge
    stands beside a right answer. Which modes fail: `failures`.
    """
    own = bands if bands is not None else own_bands()
    case = _Case(scored, golden, own, thresholds_for() | dict(own), by_construction(answerer), judge)
    if scored.outcome == "error":
        return ["run_error"]
    result = [mode.key for mode in stored_table().modes.values() if mode.key != "global_query" and case.shows(mode)]
    if golden is not None and golden.category in WIDE_CATEGORIES and result:
        result.append("global_query")
    return sorted(result, key=list(stored_table().modes).index)


@dataclass(frozen=True, slots=True)
class _Case:
    scored: ScoredAnswer
    golden: Golden | None
    own_bands: Bands
    bands: Bands
    constant: Set[str]
    judge: str

    def shows(self, mode: Mode) -> bool:
        if mode.kind == "diagnostic" and mode.rule in JUDGED_RULES and self.is_right:
            return False
        return RULES[mode.rule](self, mode)

    @property
    def is_right(self) -> bool:
        """Whether the answer holds what the expected one does, by the good threshold."""
        value = self.value("correctness")
        return value is not None and find("correctness", self.bands).band(value) == "pass"

    @property
    def expects_something(self) -> bool:
        """A document, a chunk or an answer: the same as for the right outcome."""
        golden = self.golden
        return golden is not None and (not golden.expects_nothing or bool(golden.expected_answer.strip()))

    @property
    def expects_nothing(self) -> bool:
        return self.golden is not None and not self.expects_something

    def value(self, name: str) -> float | None:
        score = self.scored.scores.get(name)
        return score.value if score is not None else None

    def values_at_cut(self, base: str) -> list[float]:
        """Of "hit@10" and its kin, whatever the cut."""
        named = ((name.partition("@")[0], score.value) for name, score in self.scored.scores.items())
        return [value for name, value in named if name == base and value is not None]

    def fails(self, name: str) -> bool:
        """Whether the measure is scored and in the failing band. A measure without a band does not fail, nor one of
        which the judge says too little about a single answer."""
        value = self.value(name)
        if value is None or name not in self.bands or name in self.constant or is_weak(self.judge, name):
            return False
        return find(name, self.bands).band(value) == "fail"


def _fails(case: _Case, mode: Mode) -> bool:
    if case.expects_nothing and mode.part == "retrieval":
        return False
    return any(case.fails(name) for name in mode.measures)


def _hit_is_zero(case: _Case, mode: Mode) -> bool:
    values = case.values_at_cut("hit")
    return case.expects_something and bool(values) and max(values) == 0


def _chunk_hit_is_zero(case: _Case, mode: Mode) -> bool:
    chunks = case.values_at_cut(f"{CHUNK}hit")
    return bool(chunks) and max(chunks) == 0 and not _hit_is_zero(case, mode)


def _mismatch(case: _Case, mode: Mode) -> bool:
    """An answer on nothing, or on documents of which none helps alone while another does or one of them does harm."""
    if case.scored.outcome != "answered" or not case.scored.annotation.get("support"):
        return False
    if is_weak(case.judge, "faithfulness") and "faithfulness" not in case.constant:
        return False
    rests_on = set(_supporting_keys(case.scored))
    if not rests_on:
        return not any(entry.get("supported") for entry in case.scored.annotation["support"])  # nor on known facts
    effects = {str(item["key"]): item.get("effect") for item in case.scored.contributions}
    helpful = {key for key, effect in effects.items() if effect == "helpful"}
    harmful = {key for key in rests_on if effects.get(key) == "harmful"}
    return not rests_on & helpful and bool(helpful or harmful)


def _supporting_keys(scored: ScoredAnswer) -> Iterator[str]:
    """Keys ("doc_id#index") of the chunks whose sentences support a sentence of the answer."""
    owner = {sentence[0]: str(chunk["key"]) for chunk in scored.context for sentence in chunk["sentences"]}
    for entry in scored.annotation["support"]:
        if entry.get("supported"):
            yield from (owner[key] for key in entry.get("by", ()) if key in owner)


def _wrong_answer(case: _Case, mode: Mode) -> bool:
    return case.scored.outcome == "answered" and case.fails("correctness")


def _wrong_abstention(case: _Case, mode: Mode) -> bool:
    return case.expects_something and case.scored.outcome == "abstained"


def _wrong_refusal(case: _Case, mode: Mode) -> bool:
    return case.expects_something and case.scored.outcome == "refused"


def _unwarranted_answer(case: _Case, mode: Mode) -> bool:
    return case.expects_nothing and case.scored.outcome == "answered"


def _below_threshold(case: _Case, mode: Mode) -> bool:
    """Of the question, of the run, or a poor threshold that a person set.

    A threshold is the least that passes, or the most where lower is better. Where nothing is expected, what the context
    is like is held against none.
    """
    thresholds = case.golden.thresholds if case.golden is not None else {}
    if any(_falls_short(name, case.value(name), limit) for name, limit in thresholds.items()):
        return True
    held = [name for name in case.own_bands if not (case.expects_nothing and find(name).group == "trace")]
    return any(case.fails(name) for name in held)


def _falls_short(name: str, value: float | None, limit: float) -> bool:
    if value is None:
        return False
    try:
        higher = find(name).higher_is_better
    except InvalidInput:  # a threshold of a measure that is not known any more
        return False
    return value < limit if higher else value > limit


RULES: Mapping[str, Callable[[_Case, Mode], bool]] = {
    "fails": _fails,
    "hit_is_zero": _hit_is_zero,
    "chunk_hit_is_zero": _chunk_hit_is_zero,
    "mismatch": _mismatch,
    "wrong_answer": _wrong_answer,
    "wrong_abstention": _wrong_abstention,
    "wrong_refusal": _wrong_refusal,
    "unwarranted_answer": _unwarranted_answer,
    "below_threshold": _below_threshold,
    "global_query": lambda case, mode: False,  # follows from the others: see `find_modes`
    "run_error": lambda case, mode: False,  # stands alone: see `find_modes`
}


NOISE = ("noise_relevant", "noise_irrelevant")
NOT_JUDGED = "the answer was not judged"


def noise_scores(
    scored_annotation: Mapping[str, Any],
    context: Sequence[Mapping[str, Any]],
    answer_sentences: Sequence[Sequence[str]],
    golden: Golden | None,
    embedder: Embedder,
    holding: Set[str] = frozenset(),
) -> dict[str, Score]:
    """The two figures, 0 to 1, lower is better. Shapes as in EvaluationItem.

    holding: the keys of the answer's sentences that hold a component of the expected answer (`Correctness.holding`):
    they are not wrong, whatever else they say.

    Unscorable without an expected answer, an answer, context or an annotation; an error of the kind "embedder" when
    that fails. The same input gives the same figures.
    """
    expected = [item.text for item in key_answer(golden.expected_answer)] if golden is not None else []
    message = [(pair[0], pair[1]) for pair in answer_sentences if pair[1].strip()]
    missing = (
        NOTHING_EXPECTED if not expected
        else NO_ANSWER if not message
        else NO_CONTEXT if not context
        else NOT_JUDGED if not scored_annotation.get("support")
        else ""
    )  # fmt: skip
    if golden is None or missing:
        return dict.fromkeys(NOISE, unscorable(missing))
    try:
        wrong = _wrong_keys([pair for pair in message if pair[0] not in holding], expected, embedder)
        sources = _sources(scored_annotation["support"], context, wrong)
        relevant = _relevant_chunks(context, set().union(*sources), golden, expected, embedder)
    except RagdError:
        return dict.fromkeys(NOISE, failed("embedder"))
    by_relevant = sum(bool(chunks & relevant) for chunks in sources)
    by_irrelevant = sum(bool(chunks) and not chunks & relevant for chunks in sources)
    return {
        "noise_relevant": scored(by_relevant / len(message)),
        "noise_irrelevant": scored(by_irrelevant / len(message)),
    }


def _wrong_keys(message: Sequence[tuple[str, str]], expected: Sequence[str], embedder: Embedder) -> set[str]:
    vectors = embed_texts(embedder, [*expected, *(text for _, text in message)])
    return {key for key, text in message if not states(expected, text, vectors)}


def _sources(
    support: Sequence[Mapping[str, Any]], context: Sequence[Mapping[str, Any]], wrong: Set[str]
) -> list[set[str]]:
    """Per wrong sentence that is supported the keys of the chunks that support it; a known fact has none."""
    owners = {key: str(chunk["key"]) for chunk in context for key, _ in chunk["sentences"]}
    supported = (entry for entry in support if entry["key"] in wrong and entry.get("supported"))
    return [{owners[key] for key in entry.get("by", ()) if key in owners} for entry in supported]


def _relevant_chunks(
    context: Sequence[Mapping[str, Any]],
    requested: set[str],
    golden: Golden,
    expected: Sequence[str],
    embedder: Embedder,
) -> set[str]:
    """Those of the wanted ones that are relevant. Only their sentences are embedded: most answers have none."""
    named = requested & set(golden.expected_chunks)
    texts = {
        str(chunk["key"]): [text for _, text in chunk["sentences"] if text.strip()]
        for chunk in context
        if chunk["key"] in requested - named
    }
    if not texts:
        return named
    vectors = embed_texts(embedder, [*expected, *(text for lines in texts.values() for text in lines)])
    return named | {key for key, lines in texts.items() if any(states(lines, claim, vectors) for claim in expected)}


RUNS = 5  # the newest over the set's questions, by the judge of the newest one
EACH_LEAST = 5  # right answers, and wrong ones, below which separation is not measured
SEPARATES = 0.65  # AUROC from which on a measure gets bounds
TAIL = 0.05  # of right answers that may be poor, of wrong ones that may be good


@dataclass(frozen=True, slots=True)
class FittedBand:
    """auroc: how often a right answer scores better than a wrong one, ties half; None where quantiles were used.

    right and wrong: answers with a score; values: all of them, also where it is not known which they are.
    """

    measure: Measure
    good: float
    poor: float
    right: int
    wrong: int
    values: int
    auroc: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """bands: measure -> what was fitted. left_out: measure -> why it gets no bounds. answers: of all runs."""

    runs: Sequence[EvaluationRun] = ()
    answers: int = 0
    right: int = 0
    wrong: int = 0
    bands: Mapping[str, FittedBand] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Values:
    """The scores of one measure by what is known of their answers."""

    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    unknown: list[float] = field(default_factory=list)

    @property
    def all(self) -> list[float]:
        return [*self.right, *self.wrong, *self.unknown]


def fit_bands(golden_set: GoldenSet) -> Fit:
    """From the newest runs with answers over the set's present questions. Nothing is stored; empty without any run."""
    runs = fitting_runs(golden_set)
    if not runs:
        return Fit()
    values: dict[str, _Values] = defaultdict(_Values)
    counts = {True: 0, False: 0, None: 0}
    names = banded_measures(golden_set)
    rows = EvaluationItem.objects.filter(run__in=runs).exclude(outcome=EvaluationItem.Outcome.ERROR)
    for scores in rows.values_list("scores", flat=True):
        correctness = _value(scores, "correctness")
        is_right = None if correctness is None else correctness >= CORRECT
        counts[is_right] += 1
        for name in names:
            if (value := _value(scores, name)) is not None:
                known = values[name]
                (known.unknown if is_right is None else known.right if is_right else known.wrong).append(value)
    constant = by_construction(runs[0].answerer)
    bands: dict[str, FittedBand] = {}
    left_out: dict[str, str] = {}
    for name in names:
        if name in constant:
            left_out[name] = "true by construction for this answerer"
        elif name in values:
            fitted = _fit(measure_of(name), values[name])
            if isinstance(fitted, str):
                left_out[name] = fitted
            else:
                bands[name] = fitted
    return Fit(runs, sum(counts.values()), counts[True], counts[False], bands, left_out)


def fitting_runs(golden_set: GoldenSet) -> list[EvaluationRun]:
    """At most RUNS, newest first: finished, with answers, over the same questions, by the judge and the answerer of the
    newest one."""
    done = golden_set.runs.filter(state=EvaluationRun.State.SUCCEEDED).exclude(settings__contains={"answers": False})
    newest = done.order_by("-created_at", "-id").first()
    if newest is None:
        return []
    same = {name: getattr(newest, name) for name in ("set_digest", "judge", "judge_version", "answerer")}
    return list(done.filter(**same).order_by("-created_at", "-id")[:RUNS])


def _value(scores: Mapping[str, Mapping[str, float]], name: str) -> float | None:
    return scores[name].get("value") if name in scores else None


def _fit(measure: Measure, values: _Values) -> FittedBand | str:
    """The bounds, or why there are none. correctness is what right and wrong mean, so its bounds are given."""
    counts = len(values.right), len(values.wrong), len(values.all)
    if measure.name == "correctness":
        return FittedBand(measure, CORRECT, CORRECT, *counts, auroc=None)
    if len(set(values.all)) == 1:
        return "the same for every answer"
    sign = 1 if measure.higher_is_better else -1
    right, wrong = (sorted(sign * value for value in group) for group in (values.right, values.wrong))
    separation = None
    if min(len(right), len(wrong)) >= EACH_LEAST:
        separation = auroc([*right, *wrong], [True] * len(right) + [False] * len(wrong))
        if separation is not None and separation < SEPARATES:
            return f"does not separate right from wrong answers (AUROC {separation:.2f})"
        poor, good = _low(right), _high(wrong)
        if good < poor:
            poor = good = (good + poor) / 2
    else:
        everything = sorted(sign * value for value in values.all)
        poor, good = _low(right or everything), everything[len(everything) // 2]
        good = max(good, poor)
    return FittedBand(measure, *_rounded(good, poor), *counts, auroc=separation)


def _low(ordered: Sequence[float]) -> float:
    """The highest of the values below which at most TAIL of them lie."""
    return ordered[math.floor(TAIL * len(ordered))]


def _high(ordered: Sequence[float]) -> float:
    """The lowest of the values above which at most TAIL of them lie."""
    return ordered[len(ordered) - 1 - math.floor(TAIL * len(ordered))]


def _rounded(good: float, poor: float) -> tuple[float, float]:
    """To hundredths, away from each other, so that rounding calls no answer poor or good that was not."""
    upper, lower = math.ceil(round(100 * good, 6)) / 100, math.floor(round(100 * poor, 6)) / 100
    return abs(upper), abs(lower)
