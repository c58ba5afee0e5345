"""Answers of which it is known whether they are right, made by rules from the sample, SciFact and RAGBench.

A case is a question with its expected answer and its context. Of each case one answer per kind is made:

right        the expected answer in other words (by rules), or the sentences of the evidence that state it
wrong        the expected answer with a number, a name or its negation changed, that of another case, or sentences of
             the right documents that are not evidence
unsupported  sentences of the documents of another case
declined     a refusal

RAGBench: rows that its labels call supported, of at most three sentences; the expected answer is the response, the
evidence what the labels name. SciFact: claims with the label SUPPORT; the expected answer is the claim, the evidence
its annotated sentences, the question is about the title. The sample: the golden questions over the docs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from benchmarks.ragbench import SETS, read_rows
from benchmarks.scifact import read_lines
from evaluation_app.judges.features import NAME, NEGATION, NUMBER
from ragd.text.chunking import split_sentences
from retrieval_app.answers.extractive_answerer import list_stems
from retrieval_app.answers.protocol import declines
from tests.server import need_data

ROOT = Path(__file__).resolve().parent.parent
Kind = Literal["right", "wrong", "unsupported", "declined"]
KINDS: tuple[Kind, ...] = ("right", "wrong", "unsupported", "declined")
Half = Literal["tuned", "reported"]
SENTENCES_MAX = 3  # of a response that serves as an expected answer
PASSAGE_SENTENCES = 12  # of a page of the docs, that a search could have found
WORDS_MIN = 5  # of a sentence of a document that serves as an answer
LEADS = ("In short: ", "According to the documents, ", "The answer is this: ", "")
REFUSALS = (
    "The sources do not answer the question.",
    "I do not know: the documents contain no information about this.",
    "No answer: nothing was found that could be quoted.",
)
SHORTER = (
    (" is not ", " isn't "), (" are not ", " aren't "), (" does not ", " doesn't "), (" do not ", " don't "),
    (" was not ", " wasn't "), (" were not ", " weren't "), (" cannot ", " can not "),
)  # fmt: skip
OTHER_WORDS = {
    "shows": "demonstrates", "show": "demonstrate", "because": "since", "also": "as well", "however": "yet",
    "uses": "employs", "use": "employ", "large": "big", "main": "principal", "many": "numerous", "help": "aid",
    "includes": "comprises", "include": "comprise", "about": "regarding", "before": "ahead of", "begin": "start",
    "various": "several", "such as": "for example", "in order to": "to", "allows": "lets", "allow": "let",
    "needed": "required", "stored": "saved", "kept": "retained", "obtain": "get", "located": "situated",
}  # fmt: skip
AUXILIARY = re.compile(r"\b(is|are|was|were|can|could|will|would|may|must|should|has|have|does|do)\b(?! not)")


@dataclass(frozen=True, slots=True)
class KnownCase:
    """evidence: the sentences of the context that state the expected answer, "" where nobody marked any. beside:
    sentences of the same documents that the labels call irrelevant, or no evidence."""

    source: str
    question: str
    expected: str
    evidence: str
    context: tuple[str, ...]
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """how: by which rule it was made."""

    case: KnownCase
    kind: Kind
    how: str
    text: str


def known_answers(half: Half, per_source: int) -> list[KnownAnswer]:
    """Of each case one answer of every kind, in a fixed order. half: "tuned" are the rows that thresholds may be chosen
    on, "reported" the others; the sample is in the latter alone."""
    sources: list[list[KnownCase]] = [
        *(list(itertools.islice(_ragbench_cases(name, half), per_source)) for name in SETS),
        list(itertools.islice(_scifact_cases(half), 3 * per_source)),
    ]
    if half == "reported":
        sources.append(list(_sample_cases()))
    return [answer for cases in sources for answer in _answers_of(cases)]


def _answers_of(cases: Sequence[KnownCase]) -> Iterator[KnownAnswer]:
    for index, case in enumerate(cases):
        chance = Random(f"{case.source} {case.question}")
        other = cases[(index + 1) % len(cases)]
        yield _right(case, chance)
        yield _wrong(case, other, index, chance)
        yield KnownAnswer(case, "unsupported", "another document", _foreign(other, chance))
        yield KnownAnswer(case, "declined", "refusal", REFUSALS[index % len(REFUSALS)])


def _right(case: KnownCase, chance: Random) -> KnownAnswer:
    if case.evidence and chance.random() < 0.5:
        return KnownAnswer(case, "right", "evidence", case.evidence)
    return KnownAnswer(case, "right", "other words", reword(case.expected, chance))


def _wrong(case: KnownCase, other: KnownCase, index: int, chance: Random) -> KnownAnswer:
    changes: tuple[tuple[str, Callable[[str, Random], str]], ...] = (
        ("number", change_number), ("name", lambda text, by: change_name(text, other.expected, by)),
        ("negation", change_negation),
    )  # fmt: skip
    if index % 3 == 2 and case.beside:
        first = chance.randrange(len(case.beside))
        return KnownAnswer(case, "wrong", "beside the point", " ".join(case.beside[first : first + 2]))
    if index % 3:
        for how, change in changes[index // 3 % 3 :] + changes[: index // 3 % 3]:
            changed = change(case.expected, chance)
            if changed != case.expected:
                return KnownAnswer(case, "wrong", how, changed)
    return KnownAnswer(case, "wrong", "another answer", other.expected)


def _foreign(other: KnownCase, chance: Random) -> str:
    sentences = [text for document in other.context for text in _sentences(document) if len(text.split()) > WORDS_MIN]
    if not sentences:
        return other.expected
    first = chance.randrange(max(1, len(sentences) - 1))
    return " ".join(sentences[first : first + 2])


def reword(text: str, chance: Random) -> str:
    """The same in other words: a lead, short forms, words of the same meaning, and the sentences in another order."""
    changed = text
    for long, short in SHORTER:
        changed = changed.replace(long, short)
    for word, other in OTHER_WORDS.items():
        changed = re.sub(rf"\b{word}\b", other, changed)
    sentences = _sentences(changed)
    return f"{chance.choice(LEADS)}{' '.join([*sentences[1:], *sentences[:1]])}"


def change_number(text: str, chance: Random) -> str:
    """One of its numbers is another one; the text itself without a number."""
    numbers = [item for item in NUMBER.finditer(text) if item[0].strip(".,")]
    if not numbers:
        return text
    chosen = chance.choice(numbers)
    digits = chosen[0]
    place = next(index for index, char in enumerate(digits) if char.isdigit())
    other = str((int(digits[place]) + chance.randrange(1, 9)) % 9 + 1)
    other = other if other != digits[place] else str(int(other) % 9 + 1)
    return text[: chosen.start()] + digits[:place] + other + digits[place + 1 :] + text[chosen.end() :]


def change_name(text: str, other: str, chance: Random) -> str:
    """One of its names is a name of the other text; the text itself where one of the two has none."""
    own, foreign = NAME.findall(text), [name for name in NAME.findall(other) if name not in text]
    if not own or not foreign:
        return text
    return text.replace(chance.choice(own), chance.choice(foreign))


def change_negation(text: str, chance: Random) -> str:
    """Its first negation is left out, or its first auxiliary verb negated; the text itself where it has neither."""
    negation = NEGATION.search(text)
    if negation and negation[0].lower() in ("not", "no", "never"):
        return (text[: negation.start()] + text[negation.end() :].lstrip()).strip()
    if negation:
        return text
    return AUXILIARY.sub(r"\1 not", text, count=1)


def _sentences(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in split_sentences(text) if text[start:end].strip()]


def _ragbench_cases(name: str, half: Half) -> Iterator[KnownCase]:
    for index, row in enumerate(read_rows(name)):
        answer = [text.strip() for _, text in row["response_sentences"] if text.strip()]
        support = row["sentence_support_information"]
        texts = {key: text.strip() for document in row["documents_sentences"] for key, text in document}
        keys = [key for entry in support for key in entry["supporting_sentence_keys"] or () if key in texts]
        is_half = (index % 2 == 0) == (half == "tuned")
        supported = row["adherence_score"] and all(entry["fully_supported"] is not False for entry in support)
        if not is_half or not supported or not keys or not 1 <= len(answer) <= SENTENCES_MAX:
            continue
        response = " ".join(answer)
        if declines(response):
            continue
        evidence = " ".join(texts[key] for key in dict.fromkeys(keys))
        relevant = {*keys, *row["all_relevant_sentence_keys"]}
        beside = tuple(text for key, text in texts.items() if key not in relevant and len(text.split()) > WORDS_MIN)
        yield KnownCase(name, row["question"], response, evidence, tuple(row["documents"]), beside)


def _scifact_cases(half: Half) -> Iterator[KnownCase]:
    documents = {item["_id"]: item for item in read_lines(need_data("scifact") / "corpus.jsonl")}
    number = 0
    for row in read_lines(need_data("scifact") / "claims_evidence.jsonl"):
        if row["label"] != "SUPPORT" or not row["sentences"]:
            continue
        number += 1
        if (number % 2 == 0) != (half == "tuned"):
            continue
        document = documents[row["doc_id"]]
        sentences = _sentences(document["text"])
        evidence = " ".join(sentences[index] for index in row["sentences"] if index < len(sentences))
        question = f"What does the study {document['title']!r} find?"
        beside = tuple(text for index, text in enumerate(sentences) if index not in row["sentences"])
        yield KnownCase("scifact", question, row["claim"], evidence, (document["text"],), beside)


def _sample_cases() -> Iterator[KnownCase]:
    for row in read_lines(ROOT / "evaluation_app" / "sample" / "golden.jsonl"):
        expected = row.get("expected_answer", "")
        paths = [ROOT / doc_id for doc_id in row["expected_doc_ids"]]
        if expected:
            wanted = set(list_stems(f"{row['question']} {expected}"))
            context = tuple(_passage(path.read_text(encoding="utf-8"), wanted) for path in paths if path.exists())
            yield KnownCase("sample", row["question"], expected, "", context)


def _passage(text: str, wanted: set[str]) -> str:
    """The sentences of a page that share most of the wanted words, in their order."""
    sentences = _sentences(text)
    shares = [len(wanted & set(list_stems(sentence))) for sentence in sentences]
    best = sorted(range(len(sentences)), key=lambda index: (-shares[index], index))[:PASSAGE_SENTENCES]
    return " ".join(sentences[index] for index in sorted(best))
