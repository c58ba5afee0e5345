"""Which failure modes one scored question shows. The modes themselves are data: measures/modes.toml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from evaluation_app.golden.questions import GLOBAL, MULTI_HOP, Golden
from evaluation_app.judges.accuracy import SUPPORT, is_weak
from evaluation_app.measures.catalogue import CHUNK, Bands, by_construction, find
from evaluation_app.measures.modes import Mode, stored_table
from evaluation_app.measures.scores import Score
from evaluation_app.scoring.modes.catalogue import own_bands, thresholds_for
from ragd.errors import InvalidInput

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
    scored: ScoredAnswer,
    golden: Golden | None,
    bands: Bands | None = None,
    *,
    answerer: str = "",
    judge: str = "",
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
    order = list(stored_table().modes)
    return sorted(result, key=order.index)


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
