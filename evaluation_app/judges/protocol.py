"""What a judge is: a case, the case read once, a judgement, and the cache of a model's accepted annotations, by which a
repeated run asks nothing and gives the same numbers.

Who decides which components of an expected answer an answer holds, where a model does it instead of rules.

Several judges as one: the majority of each verdict, the median of each number, and who said what.

Which sentences of an answer their context contradicts, by the typed checks of `contradictions`.

A sentence that cites is compared with what it cites, another one with the sentences of the context that hold most of
its words. It is refuted where the nearest of them contradicts it and no sentence of the context supports it; where only
a sentence that it does not cite supports it, its citation is wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from statistics import median
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from collections_app.domain.quantities import is_german
from evaluation_app.measures.scores import Annotation, Score, Sentence, Support, key_answer, key_documents, scored
from ragd.types import Embedder
from retrieval_app.answers import readings
from retrieval_app.answers.contradictions import (
    Contradiction,
    Kind,
    are_opposite,
    changed_words,
    find_contradictions,
    unstated,
)
from retrieval_app.answers.extractive_answerer import list_stems
from retrieval_app.answers.protocol import declines
from retrieval_app.answers.readings import NEGATION, are_equal, read, share_held

Numbers = npt.NDArray[np.float64]
Vectors = Mapping[str, npt.NDArray[np.float32]]
MEASURES = (
    "context_relevance", "context_utilization", "completeness", "adherence", "faithfulness", "answer_relevance",
)  # fmt: skip
NO_QUESTION = "there is no question"
SHORT_WORDS = 4
STEMS_KEPT = 20_000  # sentences, of some 2 kB each


@dataclass(frozen=True, slots=True)
class Case:
    """One answer over its retrieved context.

    context: per document (or chunk) its sentences with their keys. declined: the answerer itself says that the sources
    do not answer. cited: by the key of a sentence of the answer, the places in `context` of the documents that it
    cites.
    """

    question: str
    context: Sequence[Sequence[Sentence]]
    answer: Sequence[Sentence]
    declined: bool = False
    cited: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, question: str, documents: Sequence[str], answer: str) -> Case:
        """Split into sentences here. A blank document keeps its number and has no sentence."""
        return cls(question, key_documents(documents), key_answer(answer))

    @property
    def answer_text(self) -> str:
        return " ".join(sentence.text for sentence in self.answer)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a figure is expected to be, 0 to 1, and between which values 95 % of the labels of held-out rows lay."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge says of one case.

    scores: context_relevance, context_utilization, completeness, adherence, faithfulness, answer_relevance; the first
    five are `trace_scores` of the annotation, where they are scored, but those of a panel. annotation: which sentences
    are relevant, utilized and supported; None when the judge could not give one. refused: the answer declines to
    answer. estimates: of scored measures, what the judge expects the figure to be, where it has probabilities. likely:
    those, by sentence key, {"relevant", "utilized", "unsupported"}. usage: what the judging took, {"input_tokens",
    "output_tokens", "cost_usd", "cached"}; {} for a judge that asks no model. refuted: what the context has against
    sentences of the answer, by key. members: of a panel, what each judge said: {"judge", "version", "scores": {measure:
    value}, "unsupported": [key], "error"}.
    """

    scores: Mapping[str, Score]
    annotation: Annotation | None
    refused: bool = False
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    likely: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    explanation: str = ""
    refuted: Mapping[str, Refutation] = field(default_factory=dict)
    members: Sequence[Mapping[str, Any]] = ()


class Judge(Protocol):
    """name: "embedded", "llm" or "panel". version: changes when the same case may get another judgement."""

    name: str
    version: str

    def judge(self, case: Case) -> Judgement:
        """Never raises for what a case holds: what cannot be judged is an unscorable or failed score in the result."""
        ...


class JudgementCache(Protocol):
    """Of several judgements under one key the first stays, so that runs side by side end with the same numbers."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The annotation as the model gave it (see `annotation`), None when there is none."""
        ...

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep it unless there is one already; what is kept now. model: for people who look at or clear the cache."""
        ...


def judgement_key(messages: Sequence[Mapping[str, str]], model: str, parameters: Mapping[str, Any]) -> str:
    """SHA-256, 64 hexadecimal digits, of the prompt, the model and the parameters. Raises TypeError for no JSON."""
    text = json.dumps([list(messages), model, dict(parameters)], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Reading:
    """A case read once. texts: of the context; documents: the place of each one's document among those that have any.
    *_words: content words in order; *_vectors: unit rows, a row of 0 for a blank text."""

    question: str
    texts: list[str]
    documents: npt.NDArray[np.int64]
    answer: list[str]
    question_words: tuple[str, ...]
    words: list[tuple[str, ...]]
    answer_words: list[tuple[str, ...]]
    question_vector: Numbers
    vectors: Numbers
    answer_vectors: Numbers
    idf: Mapping[str, float]
    unseen_idf: float

    @classmethod
    def of(cls, case: Case, vectors: Mapping[str, npt.ArrayLike]) -> Reading:
        filled = [document for document in case.context if document]
        texts = [sentence.text for document in filled for sentence in document]
        positions = [index for index, document in enumerate(filled) for _ in document]
        answer = [sentence.text for sentence in case.answer]
        words = [stems_in(text) for text in texts]
        counts = Counter(word for line in words for word in set(line))
        number = len(texts)
        dims = next((len(np.atleast_1d(np.asarray(vector))) for vector in vectors.values()), 1)

        def rows(lines: Sequence[str]) -> Numbers:
            table = np.zeros((len(lines), dims))
            for row, line in enumerate(lines):
                if line.strip():
                    table[row] = vectors[line]
            return table

        return cls(
            question=case.question,
            texts=texts,
            documents=np.asarray(positions, dtype=np.int64),
            answer=answer,
            question_words=stems_in(case.question),
            words=words,
            answer_words=[stems_in(text) for text in answer],
            question_vector=rows([case.question])[0],
            vectors=rows(texts),
            answer_vectors=rows(answer),
            idf={word: math.log(1 + (number - count + 0.5) / (count + 0.5)) for word, count in counts.items()},
            unseen_idf=math.log(1 + (number + 0.5) / 0.5),
        )


@lru_cache(maxsize=STEMS_KEPT)
def stems_in(text: str, *, with_stop_words: bool = False) -> tuple[str, ...]:
    """`list_stems`, remembered: a sentence is read several times for a case, and again for the next question."""
    return tuple(list_stems(text, with_stop_words=with_stop_words))


def texts_of(case: Case) -> list[str]:
    """What has to be embedded for a case: the question and every sentence, blank ones left out."""
    sentences = [sentence.text for document in case.context for sentence in document]
    texts = [case.question, *sentences, *(sentence.text for sentence in case.answer)]
    return [text for text in texts if text.strip()]


def embed_texts(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """A unit vector per distinct text. Raises RagdError as the embedder does."""
    distinct = list(dict.fromkeys(texts))
    made = embedder.embed(distinct)
    return {text: np.asarray(vector, dtype=np.float32) for text, vector in zip(distinct, made, strict=True)}


def is_refusal(case: Case) -> bool:
    """Return True if the answerer declined, or the answer declines in words of its own (see `declines`)."""
    texts = [" ".join(sentence.text for sentence in document) for document in case.context]
    return case.declined or declines(case.answer_text, texts)


def share_in(part: Iterable[object], whole: Set[object]) -> float:
    """The share of the items that the whole holds; an item that is there twice counts twice. 0 for no item."""
    items = list(part)
    return sum(item in whole for item in items) / len(items) if items else 0.0


@dataclass(frozen=True, slots=True)
class HeldComponents:
    """by: per component the key of the answer's sentence that states it, "" for none. error: the kind of what went
    wrong, and then `by` is empty. usage: as of a `Judgement`."""

    by: tuple[str, ...]
    error: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class ComponentJudge(Protocol):
    """A judge (`Judge`) may be one besides; then it decides for the runs that it judges."""

    def components_held(
        self, question: str, expected: Sequence[str], answer: Sequence[tuple[str, str]]
    ) -> HeldComponents:
        """expected: the components, at least one. answer: (key, text) of its sentences, at least one. Never raises for
        what the texts hold."""
        ...


ADHERENCE = "adherence"
SUMMED = ("input_tokens", "output_tokens", "calls")
MEMBERS_MIN, MEMBERS_MAX = 2, 5


class PanelJudge:
    """members: at least two, asked one after the other.

    A sentence is supported, relevant or utilized where more than half of the members that annotated say so, adherence
    is 1 where more than half of those that scored it say 1: a tie counts against the answer. Every other figure is
    the median of the members' scores, of an even number the mean of the two in the middle. A member that fails is left
    out of that case; where all fail the case has the failure of the first. `members` of the judgement says what each
    said.
    """

    name = "panel"

    def __init__(self, members: Sequence[Judge]) -> None:
        self.members = tuple(members)
        self.version = " + ".join(f"{member.name} {member.version}" for member in members)

    def judge(self, case: Case) -> Judgement:
        judgements = [member.judge(case) for member in self.members]
        annotations = [each.annotation for each in judgements if each.annotation is not None]
        keys = [sentence.key for sentence in case.answer]
        against = {key: _share(_unsupported(each, key) for each in annotations) for key in keys} if annotations else {}
        return Judgement(
            scores={name: _agree(name, [each.scores[name] for each in judgements]) for name in MEASURES},
            annotation=_merge(annotations, keys) if annotations else None,
            refused=_share(each.refused for each in judgements) > 0.5,
            likely={"unsupported": against} if against else {},
            usage=sum_usage([each.usage for each in judgements]),
            refuted=dict(item for each in judgements for item in each.refuted.items()),
            members=[_said(judge, said) for judge, said in zip(self.members, judgements, strict=True)],
        )


def disagree(members: Sequence[Mapping[str, Any]]) -> bool:
    """Whether members of a judgement say different things of adherence, or of a sentence of the answer."""
    verdicts = {each["scores"][ADHERENCE] for each in members if each["scores"].get(ADHERENCE) is not None}
    marks = {tuple(each["unsupported"]) for each in members if each["unsupported"] is not None}
    return len(verdicts) > 1 or len(marks) > 1


def _said(judge: Judge, judgement: Judgement) -> dict[str, Any]:
    """unsupported: keys of the answer's sentences, None without an annotation. error: the kind, "" for none."""
    annotation = judgement.annotation
    errors = [score.reason for score in judgement.scores.values() if score.state == "error"]
    return {
        "judge": judge.name,
        "version": judge.version,
        "scores": {name: judgement.scores[name].value for name in MEASURES},
        "unsupported": None
        if annotation is None
        else [entry.key for entry in annotation.support if not entry.is_supported],
        "error": errors[0] if errors else "",
    }


def _agree(name: str, scores: Sequence[Score]) -> Score:
    values = [score.value for score in scores if score.value is not None]
    if not values:
        return next((score for score in scores if score.state != "error"), scores[0])
    return scored(float(_share(value == 1 for value in values) > 0.5) if name == ADHERENCE else median(values))


def _merge(annotations: Sequence[Annotation], keys: Sequence[str]) -> Annotation:
    """A supported sentence names what those name who say that it is supported, each key once."""
    support = []
    for key in keys:
        entries = [entry for each in annotations for entry in each.support if entry.key == key]
        holding = [entry for entry in entries if entry.is_supported]
        is_supported = 2 * len(holding) > len(annotations)
        sources = holding if is_supported else entries
        by = dict.fromkeys(name for entry in sources for name in entry.supporting_keys)
        support.append(Support(key, tuple(by), is_supported))
    return Annotation(
        _majority([each.relevant_keys for each in annotations]),
        _majority([each.utilized_keys for each in annotations]),
        tuple(support),
    )


def _majority(marks: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """What more than half of them mark, as it comes first."""
    order = dict.fromkeys(key for each in marks for key in each)
    return tuple(key for key in order if 2 * sum(key in each for each in marks) > len(marks))


def _unsupported(annotation: Annotation, key: str) -> bool:
    return not any(entry.key == key and entry.is_supported for entry in annotation.support)


def _share(said: Iterable[bool]) -> float:
    values = list(said)
    return sum(values) / len(values)


def sum_usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{} where no model was asked; a cost is None when one of them is not known."""
    calls = [usage for usage in usages if usage]
    if not calls:
        return {}
    costs = [usage["cost_usd"] for usage in calls]
    return {
        **{name: sum(usage.get(name, 0) for usage in calls) for name in SUMMED},
        "cost_usd": None if None in costs else sum(costs),
        "cached": all(usage["cached"] for usage in calls),
    }


CHANGED, FRAME, COPY_MAX = 2, 5, 120  # words; see `changes_in_copy`
BESIDE = 12  # characters
ALIKE = 0.75  # of the letters of two names that are one
TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W_]+(?:['\u2019][^\W_]+)?")
NEAREST = 3  # sentences of the context that one of the answer is compared with
# Share of the sentence's content words that a sentence of the context must hold to be about the same thing.
ABOUT: dict[Kind, float] = {"number": 0.6, "date": 0.6, "period": 0.75, "name": 0.85, "opposite": 0.9}
LEAST = 0.5  # the same with the words in which both differ
BARE = 0.85  # the same where a number has no unit: it may number a list
WORDS_MAX = 12  # content words of a sentence whose negation and names are compared: a longer one joins several claims
ELSEWHERE = 0.4  # the same of one that states the number: below, it speaks of something else


@dataclass(frozen=True, slots=True)
class Refutation:
    """contradictions: of the sentence's text. source_key: of the sentence that contradicts it. is_miscited: another
    sentence of the context supports it, so that only its citation is wrong."""

    contradictions: tuple[Contradiction, ...]
    source_key: str
    is_miscited: bool = False


def refute(
    sentence: Sentence, context: Sequence[Sequence[Sentence]], cited: Sequence[int] = (), question: str = ""
) -> Refutation | None:
    """None for a sentence that nothing contradicts. cited: places in the context of the documents that it cites."""
    claim, given = read(sentence.text), read(question)
    if not claim.words and not claim.stated.quantities and not claim.stated.dates:
        return None
    shares = [
        (share_held(claim.words, read(each.text).words) if claim.words else 1.0, place, each)
        for place, document in enumerate(context)
        for each in document
    ]
    ranked = sorted(shares, key=lambda item: -item[0])
    own = [item for item in ranked if item[1] in cited] if cited else ranked
    refuted = next(filter(None, (_contradict(claim, item, own, given) for item in own[:NEAREST])), None)
    if refuted is None or any(_supports(claim, read(each.text), given, share) for share, _, each in own):
        return None
    supported = any(_supports(claim, read(each.text), given, share) for share, _, each in ranked)
    return Refutation(*refuted, is_miscited=supported)


def _contradict(
    claim: readings.Reading,
    near: tuple[float, int, Sentence],
    ranked: Sequence[tuple[float, int, Sentence]],
    given: readings.Reading,
) -> tuple[tuple[Contradiction, ...], str] | None:
    share, _, source = near
    if share < LEAST:
        return None
    other = read(source.text)
    found = [
        each
        for each in find_contradictions(claim.text, source.text, given.text)
        if max(share, _share_beside(each, claim, other)) >= _least(each, claim)
        and not _said_elsewhere(each, share, ranked)
    ]
    for each in changes_in_copy(claim.text, source.text):
        is_told = any(one.start < each.end and each.start < one.end for one in found)
        if not is_told and not _is_copied(each, claim.text, ranked):
            found.append(each)
    return (tuple(found), source.key) if found else None


def _is_copied(found: Contradiction, claim: str, ranked: Sequence[tuple[float, int, Sentence]]) -> bool:
    """Whether another sentence has the words with what stands beside them."""
    tokens = [each[0] for each in _tokens(claim) if found.start - BESIDE <= each[1] and each[2] <= found.end + BESIDE]
    wanted = f" {' '.join(tokens)} "
    return any(wanted in f" {' '.join(each[0] for each in _tokens(item.text))} " for *_, item in ranked)


def _differences(claim: readings.Reading, source: readings.Reading, given: readings.Reading) -> list[Contradiction]:
    return [*find_contradictions(claim.text, source.text, given.text), *changes_in_copy(claim.text, source.text)]


def changes_in_copy(claim: str, source: str) -> Iterator[Contradiction]:
    """Facts that stand in the claim for others of the source, between words that both have in the same order: a number,
    a name, a word of opposite meaning, a negation that one of them lacks. Of at most CHANGED words, with at least
    FRAME equal words around it, so that it may be a part of a long sentence."""
    own, others = _tokens(claim), _tokens(source)
    if max(len(own), len(others)) > COPY_MAX:
        return
    matcher = SequenceMatcher(None, [each[0] for each in own], [each[0] for each in others], autojunk=False)
    steps = matcher.get_opcodes()
    for place, (what, first, last, begin, end) in enumerate(steps):
        frame = sum(each[2] - each[1] for each in steps[place - 1 : place] + steps[place + 1 : place + 2])
        if what == "equal" or max(last - first, end - begin) > CHANGED or frame < FRAME:
            continue
        if kind := _kind_of_change(own[first:last], others[begin:end], opens=first == 0):
            near = own[first:last] or own[first - 1 : last + 1]  # where it lacks a negation: the words beside it
            start, stop = near[0][1], near[-1][2]
            instead = source[others[begin][1] : others[end - 1][2]] if end > begin else ""
            yield Contradiction(kind, start, stop, claim[start:stop], instead)


Token = tuple[str, int, int, str]


@lru_cache(maxsize=8192)
def _tokens(text: str) -> tuple[Token, ...]:
    """(lower case, start, end, as written)."""
    return tuple((it[0].lower(), it.start(), it.end(), it[0]) for it in TOKEN.finditer(text))


def _kind_of_change(own: Sequence[Token], others: Sequence[Token], *, opens: bool) -> Kind | None:
    said, given = ([each[0] for each in tokens] for tokens in (own, others))
    denials = [any(NEGATION.fullmatch(word) for word in words) for words in (said, given)]
    if denials[0] != denials[1]:  # at the beginning it answers: "No, it is"
        return "opposite" if not opens and len(said if denials[0] else given) == 1 else None
    if any(map(_has_digit, said)) and any(map(_has_digit, given)):
        return "number"
    if are_opposite(" ".join(said), " ".join(given)):
        return "opposite"
    if opens or not own or not others or not all(each[3][0].isupper() for each in (*own, *others)):
        return None
    return None if any(are_forms(one[3], two[3]) for one in own for two in others) else "name"


def are_forms(one: str, other: str) -> bool:
    """Whether two names may be one: spelt alike, or short for the other, which begins with its first letter."""
    short, long = sorted((one, other), key=len)
    is_short_form = short.removesuffix("'s").removesuffix("s").isupper() and short[0] == long[0]
    return is_short_form or SequenceMatcher(None, one.lower(), other.lower()).ratio() >= ALIKE


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _share_beside(found: Contradiction, claim: readings.Reading, source: readings.Reading) -> float:
    """The share that the source holds of the claim's words in which they do not differ; 0 where too few are left."""
    changed = changed_words(found, claim)
    rest = [word for word in claim.words if word not in changed]
    shared = sum(any(are_equal(one, two) for two in source.facts) for one in claim.facts)
    return share_held(rest, source.words) if rest and len(rest) + shared > 1 else 0.0


def _least(found: Contradiction, claim: readings.Reading) -> float:
    """The share of the claim's words that a sentence must hold to refute it so; above 1 for never."""
    if found.kind in ("opposite", "name") and len(claim.words) > WORDS_MAX:
        return 2.0
    amounts = read(found.said).stated.quantities if found.kind == "number" else ()
    return BARE if any(not each.unit for each in amounts) else ABOUT[found.kind]


def _said_elsewhere(found: Contradiction, share: float, ranked: Sequence[tuple[float, int, Sentence]]) -> bool:
    """Whether a number or name stands in a sentence of the context that is about the same as well."""
    if found.kind not in ("number", "date", "name"):
        return False
    wanted = read(found.said, is_german(found.said))
    pattern = re.compile(rf"(?<![\w.,\-\u2212]){re.escape(found.said)}(?!\w|[.,]\d)", re.IGNORECASE)
    return any(
        other >= min(ELSEWHERE, share) and (pattern.search(each.text) or _states(wanted, read(each.text)))
        for other, _, each in ranked
    )


def _states(wanted: readings.Reading, source: readings.Reading) -> bool:
    stated = wanted.stated
    return bool(stated.quantities or stated.dates or stated.codes) and not unstated(wanted, [source], read(""))


def _supports(claim: readings.Reading, source: readings.Reading, given: readings.Reading, share: float) -> bool:
    """Whether the sentence says nearly all of the claim, and contradicts none of it."""
    return share >= ABOUT["number"] and not unstated(claim, [source], given) and not _differences(claim, source, given)
