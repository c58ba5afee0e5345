"""A score as a tagged value, and TRACe (arXiv 2407.11005) counted from what a judge says of one answer.

Sentences have keys as in RAGBench: "0a" is the first sentence of the first document, "1c" the third of the second,
"0aa" the 27th; "a" is the first sentence of the answer. Lengths are counted in tokens, which here are words between
white space, or in sentences.

    context relevance    Len(relevant) / Len(context)
    context utilization  Len(utilized) / Len(context)
    completeness         Len(relevant and utilized) / Len(relevant); 1.0 when nothing is relevant
    adherence            1.0 when every sentence of the answer is supported, else 0.0
    faithfulness         supported sentences of the answer / sentences of the answer

Measures of a ranked list against what is relevant, by labels (trec_eval) or by what answers are worth (eRAG).

`ranking` holds ids, best first, each once. `relevant` maps an id to its grade; an id with a grade above 0 is relevant,
one that is missing is not. k cuts the list; a shorter list counts as filled up with irrelevant ids. Where nothing is
known to be relevant no measure but precision and hit could tell two rankings apart, so all are unscorable then.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from ragd.text.chunking import split_sentences

State = Literal["scored", "unscorable", "error"]
STATES: tuple[State, ...] = ("scored", "unscorable", "error")


@dataclass(frozen=True, slots=True)
class Score:
    """value: a finite number when scored, else None. reason: why it is unscorable, or the kind of the error."""

    state: State
    value: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"state must be one of {', '.join(STATES)}, not {self.state!r}")
        if self.state == "scored":
            if self.value is None or not math.isfinite(self.value):
                raise ValueError(f"a scored value must be a finite number, not {self.value!r}")
        elif self.value is not None or not self.reason:
            raise ValueError(f"a score that is {self.state} has a reason and no value")

    @property
    def is_scored(self) -> bool:
        return self.state == "scored"

    def as_dict(self) -> dict[str, Any]:
        if self.value is not None:
            return {"state": self.state, "value": self.value}
        return {"state": self.state, "reason": self.reason}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Score:
        """The reverse of `as_dict`. Raises ValueError for what is no score."""
        return cls(data.get("state", ""), data.get("value"), data.get("reason", ""))


class StoredScores(Mapping[str, Score]):
    """Measure -> score, as it is stored: each is read when it is asked for, since pages look at few of many."""

    __slots__ = ("stored",)

    def __init__(self, stored: Mapping[str, dict[str, Any]]) -> None:
        self.stored = stored

    def __getitem__(self, name: str) -> Score:
        return Score.from_dict(self.stored[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def value(self, name: str) -> float | None:
        """Of one that is scored; None for any other and for one that is not there."""
        value: float | None = self.stored.get(name, {}).get("value")
        return value


def scored(value: float) -> Score:
    """Raises ValueError for NaN and infinity."""
    return Score("scored", float(value))


def unscorable(reason: str) -> Score:
    return Score("unscorable", reason=reason)


def failed(kind: str) -> Score:
    return Score("error", reason=kind)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of what was scored, None when nothing was, with its coverage: `scored` of `total`."""

    value: float | None
    scored: int
    unscorable: int
    errors: int

    @property
    def total(self) -> int:
        return self.scored + self.unscorable + self.errors

    @property
    def is_complete(self) -> bool:
        """Whether no score failed: what is unscorable has a reason, an error is a hole."""
        return self.errors == 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"total": self.total}


def mean(scores: Iterable[Score], weights: Iterable[float] | None = None) -> Mean:
    """The (weighted) mean over the scored ones. weights: one per score, not negative; None counts each as 1.

    No score at all, or weights that are all 0: value None. Raises ValueError when the lengths differ.
    """
    everything = list(scores)
    shares = [1.0] * len(everything) if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(everything):
        raise ValueError(f"{len(everything)} scores need as many weights, not {len(shares)}")
    if any(share < 0 or not math.isfinite(share) for share in shares):
        raise ValueError("weights must be finite numbers of at least 0")
    pairs = [(score.value, share) for score, share in zip(everything, shares, strict=True) if score.value is not None]
    total = math.fsum(share for _, share in pairs)
    value = math.fsum(number * share for number, share in pairs) / total if total > 0 else None
    states = [score.state for score in everything]
    return Mean(value, states.count("scored"), states.count("unscorable"), states.count("error"))


LETTERS = "abcdefghijklmnopqrstuvwxyz"
# What may stand instead of a sentence of the context: nothing of it is needed to support the sentence.
SUPPORTED_WITHOUT = frozenset({"supported_without_sentence", "general", "well_known_fact", "numerical_reasoning"})
Unit = Literal["tokens", "sentences"]
UNITS: tuple[Unit, ...] = ("tokens", "sentences")
NO_CONTEXT = "no context was retrieved"
NO_ANSWER = "there is no answer"
REFUSED = "the question was not answered"


@dataclass(frozen=True, slots=True)
class Sentence:
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Support:
    """What supports one sentence of the answer. keys: of the context, or of SUPPORTED_WITHOUT; () is unsupported."""

    key: str
    supporting_keys: tuple[str, ...] = ()
    fully_supported: bool = False

    @property
    def is_supported(self) -> bool:
        """Fully, by something: a sentence that is supported in part counts as unsupported."""
        return self.fully_supported and bool(self.supporting_keys)


@dataclass(frozen=True, slots=True)
class Annotation:
    """One entry of `support` per sentence of the answer, in its order. Keys that no sentence has are not allowed here:
    see `check_annotation`."""

    relevant_keys: tuple[str, ...] = ()
    utilized_keys: tuple[str, ...] = ()
    support: tuple[Support, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "relevant_keys": list(self.relevant_keys),
            "utilized_keys": list(self.utilized_keys),
            "support": [
                {
                    "key": item.key,
                    "supporting_keys": list(item.supporting_keys),
                    "fully_supported": item.fully_supported,
                }
                for item in self.support
            ],
        }


def letters(number: int) -> str:
    """0 -> "a", 25 -> "z", 26 -> "aa", 27 -> "ab", 701 -> "zz", 702 -> "aaa"."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, len(LETTERS))
        text = LETTERS[rest] + text
    return text


def key_documents(documents: Sequence[str]) -> list[list[Sentence]]:
    """The sentences of each document with their keys. A blank document has none and keeps its number."""
    return [
        [
            Sentence(f"{number}{letters(index)}", text[start:end])
            for index, (start, end) in enumerate(split_sentences(text))
        ]
        for number, text in enumerate(documents)
    ]


def key_answer(answer: str) -> list[Sentence]:
    return [Sentence(letters(index), answer[start:end]) for index, (start, end) in enumerate(split_sentences(answer))]


def check_annotation(
    annotation: Annotation, context: Sequence[Sequence[Sentence]], answer: Sequence[Sentence]
) -> Annotation:
    """The annotation with each key once, in the order of the context, and support in the order of the answer.

    Raises ValueError that names a key that no sentence has, or a sentence of the answer that is not judged once.
    """
    known = [sentence.key for document in context for sentence in document]
    positions = {key: index for index, key in enumerate(known)}
    for name, keys in (("relevant_keys", annotation.relevant_keys), ("utilized_keys", annotation.utilized_keys)):
        if strange := [key for key in keys if key not in positions]:
            raise ValueError(f"{name} names {strange[0]!r}, which is no sentence of the context")
    judged = {item.key: item for item in annotation.support}
    expected = [sentence.key for sentence in answer]
    if len(judged) != len(annotation.support) or set(judged) != set(expected):
        raise ValueError(f"support must judge each sentence of the answer once: {', '.join(expected) or 'none'}")
    for item in annotation.support:
        if strange := [key for key in item.supporting_keys if key not in positions and key not in SUPPORTED_WITHOUT]:
            raise ValueError(f"the support of {item.key!r} names {strange[0]!r}, which is no sentence of the context")
    return Annotation(
        tuple(sorted(set(annotation.relevant_keys), key=positions.__getitem__)),
        tuple(sorted(set(annotation.utilized_keys), key=positions.__getitem__)),
        tuple(judged[key] for key in expected),
    )


@dataclass(frozen=True, slots=True)
class TraceScores:
    context_relevance: Score
    context_utilization: Score
    completeness: Score
    adherence: Score
    faithfulness: Score

    def by_name(self) -> dict[str, Score]:
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def as_dict(self) -> dict[str, Any]:
        return {name: score.as_dict() for name, score in self.by_name().items()}


def trace_scores(
    context: Sequence[Sequence[Sentence]],
    answer: Sequence[Sentence],
    annotation: Annotation,
    *,
    unit: Unit = "tokens",
    refused: bool = False,
) -> TraceScores:
    """The five figures of one answer over its retrieved context (documents of sentences).

    An empty context makes the first three unscorable, an empty answer all but context relevance, a refusal too.
    Raises ValueError for an unknown unit or an annotation that does not fit (see `check_annotation`).
    """
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {unit!r}")
    checked = check_annotation(annotation, context, answer)
    length = _length_in(unit)
    sentences = {sentence.key: sentence for document in context for sentence in document}
    total = length(sentences.values())
    relevant, utilized = set(checked.relevant_keys), set(checked.utilized_keys)

    def of(keys: set[str]) -> int:
        return length(sentences[key] for key in keys)

    silent = unscorable(REFUSED) if refused else None if answer else unscorable(NO_ANSWER)
    supported = sum(item.is_supported for item in checked.support)
    if not total:
        relevance = utilization = completeness = unscorable(NO_CONTEXT)
    else:
        relevance = scored(of(relevant) / total)
        utilization = silent or scored(of(utilized) / total)
        requested = of(relevant)
        completeness = silent or scored(of(relevant & utilized) / requested if requested else 1.0)
    return TraceScores(
        context_relevance=relevance,
        context_utilization=utilization,
        completeness=completeness,
        adherence=silent or scored(float(supported == len(answer))),
        faithfulness=silent or scored(supported / len(answer)),
    )


def _length_in(unit: Unit) -> Callable[[Iterable[Sentence]], int]:
    if unit == "sentences":
        return lambda sentences: sum(1 for _ in sentences)
    return lambda sentences: sum(len(sentence.text.split()) for sentence in sentences)


Relevant = Mapping[str, float]
Measure = Callable[[Sequence[str], Relevant, int], Score]
NOTHING_RELEVANT = "no relevant id is known"


def precision(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """P@k = |relevant in the first k| / k. Raises ValueError for k < 1 or an id that is there twice."""
    return _measure(ranking, relevant, k, lambda grades, _: sum(grade > 0 for grade in grades) / k)


def recall(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """R@k = |relevant in the first k| / |relevant|."""
    return _measure(ranking, relevant, k, lambda grades, known: sum(grade > 0 for grade in grades) / len(known))


def hit(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """1.0 when the first k hold a relevant id, else 0.0 (success@k)."""
    return _measure(ranking, relevant, k, lambda grades, _: float(any(grade > 0 for grade in grades)))


def reciprocal_rank(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """1 / the rank of the first relevant id, from 1; 0.0 when the first k hold none. Its mean is the MRR@k."""

    def compute(grades: Sequence[float], _: Sequence[float]) -> float:
        return next((1 / rank for rank, grade in enumerate(grades, 1) if grade > 0), 0.0)

    return _measure(ranking, relevant, k, compute)


def average_precision(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """AP@k = sum of P@r over the ranks r <= k that hold a relevant id / |relevant|. Its mean is the MAP@k."""

    def compute(grades: Sequence[float], known: Sequence[float]) -> float:
        result, total = 0, 0.0
        for rank, grade in enumerate(grades, 1):
            if grade > 0:
                result += 1
                total += result / rank
        return total / len(known)

    return _measure(ranking, relevant, k, compute)


def ndcg(ranking: Sequence[str], relevant: Relevant, k: int) -> Score:
    """nDCG@k = DCG / ideal DCG, DCG = sum of grade / log2(rank + 1): linear gain, grades below 0 count as 0.

    The ideal list holds every relevant id by grade, also those that were not retrieved (Järvelin and Kekäläinen 2002).
    """

    def compute(grades: Sequence[float], known: Sequence[float]) -> float:
        return _dcg(grades) / _dcg(sorted(known, reverse=True)[:k])

    return _measure(ranking, relevant, k, compute)


MEASURES: Mapping[str, Measure] = {
    "precision": precision,
    "recall": recall,
    "hit": hit,
    "mrr": reciprocal_rank,
    "map": average_precision,
    "ndcg": ndcg,
}


def _dcg(grades: Sequence[float]) -> float:
    return math.fsum(max(0.0, grade) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def _measure(
    ranking: Sequence[str], relevant: Relevant, k: int, compute: Callable[[Sequence[float], Sequence[float]], float]
) -> Score:
    """compute: (grades of the first k, grades of all relevant ids) -> the value."""
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if len(set(ranking)) != len(ranking):
        raise ValueError("a ranking must hold each id once")
    if not all(math.isfinite(grade) for grade in relevant.values()):
        raise ValueError("grades must be finite numbers")
    known = [grade for grade in relevant.values() if grade > 0]
    if not known:
        return unscorable(NOTHING_RELEVANT)
    return scored(compute([relevant.get(item, 0.0) for item in ranking[:k]], known))


Effect = Literal["helpful", "neutral", "harmful"]
NO_LABELS = "no document was labelled"
LABEL_THRESHOLD = 0.5
AGGREGATES: Mapping[str, Measure] = {
    "precision": precision,
    "success": hit,
    "map": average_precision,
    "mrr": reciprocal_rank,
    "ndcg": ndcg,
}
Downstream = Callable[[str, Sequence[str]], Score]
NOTHING_EXPECTED = "no expected answer is known"
ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def aggregate(
    labels: Sequence[float], measure: str, k: int | None = None, *, threshold: float = LABEL_THRESHOLD
) -> Score:
    """One figure for a list of labels in rank order (Salemi and Zamani, arXiv 2404.13781).

    Binary labels: the ranking measure over them. Graded ones: precision is their mean, success the greatest, nDCG takes
    them as grades, and MAP and MRR, which know relevant or not, count those of at least `threshold` as relevant. The
    paper has the first two alone for them. k: None for all labels. Fewer labels than k: precision divides by k when
    they are binary, and by how many there are when they are graded. No label: unscorable. Labels of which none is
    relevant: 0.0 (no document helped). Raises ValueError for a label outside [0, 1], k < 1, an unknown measure, or a
    threshold that is not above 0 and at most 1.
    """
    check_labels(labels)
    check_threshold(threshold)
    if measure not in AGGREGATES:
        raise ValueError(f"measure must be one of {', '.join(AGGREGATES)}, not {measure!r}")
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if not labels:
        return unscorable(NO_LABELS)
    if measure in ("precision", "success") and not all(label in (0.0, 1.0) for label in labels):
        first = labels[: k or len(labels)]
        return scored(sum(first) / len(first) if measure == "precision" else max(first))
    grades = [float(label >= threshold) for label in labels] if measure in ("map", "mrr") else labels
    if not any(grades):
        return scored(0.0)
    ids = [str(index) for index in range(len(grades))]
    return AGGREGATES[measure](ids, dict(zip(ids, grades, strict=True)), k or len(grades))


def check_labels(labels: Sequence[float]) -> None:
    """Raises ValueError for a label that is not in [0, 1], NaN included."""
    for label in labels:
        if not 0.0 <= label <= 1.0:
            raise ValueError(f"a label must be between 0 and 1; one is {label!r}")


def check_threshold(threshold: float) -> None:
    """Raises ValueError for what is not above 0 and at most 1, NaN included."""
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"the threshold of labels must be above 0 and at most 1, not {threshold!r}")


def contribution(alone: float, without: float) -> float:
    """How far an answer from this document alone beats an answer without any: -1 to 1. Below 0 it does harm."""
    check_labels((alone, without))
    return alone - without


def effect(contributed: float, *, margin: float = 0.05) -> Effect:
    """helpful above the margin, harmful below its negative, neutral between."""
    if contributed > margin:
        return "helpful"
    return "harmful" if contributed < -margin else "neutral"


def normal_words(text: str) -> list[str]:
    """Lower case, without punctuation and English articles: how SQuAD compares (Rajpurkar et al. 2016)."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = "".join(" " if unicodedata.category(char)[0] in "PSC" else char for char in folded)
    return ARTICLES.sub(" ", bare).split()


def exact_match(answer: str, expected: Sequence[str]) -> Score:
    """1.0 when the answer's words are those of an expected one, in order. Several expected: the best counts."""
    return _best(answer, expected, lambda message, requested: float(message == requested))


def accuracy(answer: str, expected: Sequence[str]) -> Score:
    """1.0 when the answer begins with the words of an expected label ("Yes, ..." for "yes"), else 0.0."""
    return _best(
        answer, expected, lambda message, requested: float(bool(requested) and message[: len(requested)] == requested)
    )


def contains(answer: str, expected: Sequence[str]) -> Score:
    """1.0 when the words of an expected answer stand in a row in the answer, else 0.0."""
    return _best(answer, expected, lambda message, requested: float(_holds(message, requested)))


def f1(answer: str, expected: Sequence[str]) -> Score:
    """2PR / (P + R) over the words that both hold, each as often as both hold it."""

    def compute(message: list[str], requested: list[str]) -> float:
        same = sum((Counter(message) & Counter(requested)).values())
        return 2 * same / (len(message) + len(requested)) if message and requested else float(message == requested)

    return _best(answer, expected, compute)


def rouge_l(answer: str, expected: Sequence[str]) -> Score:
    """F1 of the longest common subsequence of words (Lin 2004, with beta = 1)."""

    def compute(message: list[str], requested: list[str]) -> float:
        if not message or not requested:
            return float(message == requested)
        return 2 * _common_length(message, requested) / (len(message) + len(requested))

    return _best(answer, expected, compute)


DOWNSTREAM: Mapping[str, Downstream] = {
    "exact_match": exact_match,
    "f1": f1,
    "accuracy": accuracy,
    "rouge_l": rouge_l,
    "contains": contains,
}


def _best(answer: str, expected: Sequence[str], compute: Callable[[list[str], list[str]], float]) -> Score:
    if not expected:
        return unscorable(NOTHING_EXPECTED)
    message = normal_words(answer)
    return scored(max(compute(message, normal_words(text)) for text in expected))


def _holds(message: Sequence[str], requested: Sequence[str]) -> bool:
    """No words are held by no words alone."""
    return f" {' '.join(requested)} " in f" {' '.join(message)} "


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Of the longest common subsequence, in two rows of memory."""
    row = [0] * (len(second) + 1)
    for left in first:
        before = 0
        for index, right in enumerate(second, 1):
            before, row[index] = row[index], before + 1 if left == right else max(row[index], row[index - 1])
    return row[-1]
