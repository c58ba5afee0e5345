"""The context and the answer of one question with what the judge said of each sentence, and each document's worth."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from collections_app.models import Collection, Document
from evaluation_app.golden.expectations import key_address, split_key
from evaluation_app.golden.questions import Golden
from evaluation_app.measures.trace import SUPPORTED_WITHOUT
from evaluation_app.models import EvaluationItem

# how a sentence of the context is marked -> its word
MARKS = {
    "both": "relevant and used",
    "relevant": "relevant, not used",
    "used": "used, not relevant",
    "neither": "neither",
}
HEADING = re.compile(r"#{1,6} ")
LINE = re.compile(r"#{1,6} |[-*] |[0-9]+\. |\||```|> ")
WITHOUT_SENTENCE = {
    "supported_without_sentence": "supported by the whole context",
    "general": "no claim",
    "well_known_fact": "general knowledge",
    "numerical_reasoning": "arithmetic",
}


@dataclass(frozen=True, slots=True)
class MarkedSentence:
    """mark: one of MARKS, "" where nothing was judged. chances: (what, how likely), as far as the judge tells.

    begins_line: a heading, a point of a list, a row of a table, or what follows a heading: they stood on lines of their
    own, which sentences do not tell any more.
    """

    key: str
    text: str
    mark: str
    words: int
    chances: tuple[tuple[str, float], ...] = ()
    begins_line: bool = False

    @property
    def explanation(self) -> str:
        """The mark and how sure the judge is, for whoever points at the sentence."""
        parts = [MARKS[self.mark]] if self.mark else []
        return ", ".join([*parts, *(f"{name} {chance:.0%}" for name, chance in self.chances)])


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrieved chunk by rank. shares: (mark, words, from, width in percent of the chunk's words).

    href: its page, "" where the document is gone.
    """

    rank: int
    key: str
    doc_id: str
    index: int | None
    sentences: tuple[MarkedSentence, ...]
    is_expected: bool
    worth: Worth | None
    href: str = ""

    @property
    def words(self) -> int:
        return sum(sentence.words for sentence in self.sentences)

    @property
    def shares(self) -> list[tuple[str, int, float, float]]:
        at, result = 0.0, []
        for mark in MARKS:
            words = sum(sentence.words for sentence in self.sentences if sentence.mark == mark)
            if words:
                width = 100 * words / self.words
                result.append((mark, words, round(at, 2), round(width, 2)))
                at += width
        return result

    @property
    def is_idle(self) -> bool:
        """Whether it was judged and nothing of it is relevant or used."""
        return bool(self.sentences) and all(sentence.mark == "neither" for sentence in self.sentences)


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """supported: None where nothing was judged. by: keys of the context; reason: words where no sentence is needed."""

    key: str
    text: str
    supported: bool | None
    by: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Worth:
    """What a chunk alone is worth, as the item keeps it; None for what is not known."""

    rank: int
    key: str
    alone: float | None
    without: float | None
    contribution: float | None
    effect: str
    error: str
    href: str = ""

    @property
    def doc_id(self) -> str:
        return split_key(self.key)[0]


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expected document or chunk. rank: among the retrieved chunks, a document by its best one; doc_rank: of its
    document among the retrieved documents, which is what hit, recall and the like count. None: it was not retrieved.

    ranks: (list, rank or None) of the lists behind the result, where the stored query run still tells.
    """

    key: str
    rank: int | None
    doc_rank: int | None
    ranks: tuple[tuple[str, int | None], ...] = ()
    href: str = ""


def document_addresses(collection: str, keys: Iterable[str]) -> dict[str, str] | None:
    """Key -> the page of the chunk or document, of those whose document is there; None where the collection is gone.

    "guide.md#3" may also be a document of that very name.
    """
    record = Collection.objects.live().filter(name=collection).first()
    if record is None:
        return None
    requested = set(keys)
    rows = Document.objects.filter(
        collection=record, doc_id__in={*requested, *(split_key(key)[0] for key in requested)}
    )
    live = set(rows.values_list("doc_id", flat=True))
    documents = {key: reverse("collections:document", args=[collection, key]) for key in requested & live}
    chunks = {key: key_address(collection, key) for key in requested - live if split_key(key)[0] in live}
    return documents | chunks


def context_keys(item: EvaluationItem) -> list[str]:
    return [str(chunk["key"]) for chunk in item.context]


def mark_context(item: EvaluationItem, addresses: Mapping[str, str] | None = None) -> list[Passage]:
    """The retrieved chunks by rank; what was not judged has no marks. addresses: as `document_addresses` gives them."""
    hrefs = addresses or {}
    golden = Golden.from_dict(item.golden) if item.golden else None
    relevant, used = set(item.annotation.get("relevant", ())), set(item.annotation.get("utilized", ()))
    chances: Mapping[str, Mapping[str, float]] = item.details.get("likely") or {}
    worth = {each.key: each for each in worth_of(item)}
    passages = []
    for rank, chunk in enumerate(item.context, 1):
        key = str(chunk["key"])
        doc_id, index = split_key(key)
        lines = [str(text) for _, text in chunk["sentences"]]
        sentences = tuple(
            MarkedSentence(
                key=sentence,
                text=text,
                mark=_mark(sentence, relevant, used) if item.annotation else "",
                words=len(text.split()),
                chances=tuple((name, known[sentence]) for name, known in chances.items() if sentence in known),
                begins_line=position > 0 and bool(LINE.match(text) or HEADING.match(lines[position - 1])),
            )
            for position, (sentence, text) in enumerate(chunk["sentences"])
        )
        is_expected = _is_expected(golden, key)
        passages.append(Passage(rank, key, doc_id, index, sentences, is_expected, worth.get(key), hrefs.get(key, "")))
    return passages


def _mark(key: str, relevant: set[str], used: set[str]) -> str:
    if key in relevant:
        return "both" if key in used else "relevant"
    return "used" if key in used else "neither"


def _is_expected(golden: Golden | None, key: str) -> bool:
    return golden is not None and (key in golden.expected_chunks or split_key(key)[0] in golden.relevant_docs)


def mark_answer(item: EvaluationItem) -> list[AnswerSentence]:
    judged = {entry["key"]: entry for entry in item.annotation.get("support", ())}
    return [_answer_sentence(key, text, judged.get(key)) for key, text in item.answer_sentences]


def _answer_sentence(key: str, text: str, entry: Mapping[str, Any] | None) -> AnswerSentence:
    if entry is None:
        return AnswerSentence(key, text, None, (), "")
    keys = [str(each) for each in entry.get("by", ())]
    reasons = [WITHOUT_SENTENCE[each] for each in keys if each in SUPPORTED_WITHOUT]
    named = tuple(each for each in keys if each not in SUPPORTED_WITHOUT)
    return AnswerSentence(key, text, bool(entry["supported"]), named, ", ".join(reasons))


def worth_of(item: EvaluationItem, addresses: Mapping[str, str] | None = None) -> list[Worth]:
    return [
        Worth(
            rank=rank,
            key=str(each["key"]),
            alone=each.get("alone"),
            without=each.get("without"),
            contribution=each.get("contribution"),
            effect=str(each.get("effect") or ""),
            error=str(each.get("error") or ""),
            href=(addresses or {}).get(str(each["key"]), ""),
        )
        for rank, each in enumerate(item.contributions, 1)
    ]


def mark_tally(passages: Iterable[Passage]) -> list[tuple[str, str, int]]:
    """(mark, its word, words of the context) in the order of MARKS; [] where nothing was judged."""
    counts = dict.fromkeys(MARKS, 0)
    for passage in passages:
        for sentence in passage.sentences:
            if sentence.mark:
                counts[sentence.mark] += sentence.words
    return [(mark, MARKS[mark], count) for mark, count in counts.items()] if any(counts.values()) else []


def find_expected(
    item: EvaluationItem, lists: Mapping[str, Sequence[Any]], addresses: Mapping[str, str] | None = None
) -> list[Expectation]:
    """Expected chunks, then expected documents. lists: name -> [[key, score]] of the query run; {} without it."""
    golden = Golden.from_dict(item.golden) if item.golden else None
    if golden is None:
        return []
    ranked = {name: [str(entry[0]) for entry in entries] for name, entries in lists.items()}
    documents = list(dict.fromkeys(split_key(key)[0] for key in item.retrieved_ids))
    requested = [*golden.expected_chunks, *(doc_id for doc_id in golden.expected_doc_ids)]
    return [
        Expectation(
            key=key,
            rank=_rank_in(item.retrieved_ids, key),
            doc_rank=_rank_in(documents, key if key in documents else split_key(key)[0]),
            ranks=tuple((name, _rank_in(keys, key)) for name, keys in ranked.items()),
            href=(addresses or {}).get(key, ""),
        )
        for key in dict.fromkeys(requested)
    ]


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the expected answer. by: key of the answer's sentence that holds it, "" for one that is missing."""

    text: str
    found: bool
    by: str


def components_of(item: EvaluationItem) -> list[Component]:
    """As correctness found them; [] where it was not measured."""
    return [
        Component(str(each["text"]), bool(each["found"]), str(each.get("by") or ""))
        for each in item.details.get("components") or ()
    ]


CITED = (("matching", "expected and cited"), ("missing", "expected, not cited"), ("foreign", "cited, not expected"))


def citations_of(item: EvaluationItem, addresses: Mapping[str, str] | None = None) -> list[tuple[str, str, Any]]:
    """(kind, its words, [(key, href or "")]) of CITED; [] where no citation was compared with what is expected."""
    found = item.details.get("citations")
    if not found:
        return []
    hrefs = addresses or {}
    return [(kind, words, [(key, hrefs.get(key, "")) for key in found.get(kind, ())]) for kind, words in CITED]


def _rank_in(keys: Sequence[str], requested: str) -> int | None:
    """Of a chunk its own place from 1, of a document that of its best chunk."""
    for rank, key in enumerate(keys, 1):
        if requested in (key, split_key(key)[0]):
            return rank
    return None
