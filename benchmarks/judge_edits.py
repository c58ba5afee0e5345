"""Minimal edits: sentences that their context supports, each beside itself with one fact changed, by rules.

Word overlap tells little of them: what is put in stands elsewhere in the same context where there is such a thing.
Kinds: a number for another number, a name for another name (of another document where there is one), a negation put in
or taken out, and a word for its opposite. Drawn with SEED: the same rows give the same pairs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.judge_rows import LabelledRow, embed_all
from evaluation_app.judges.features import NAME, NUMBER, OPPOSITE, Features, measure_case
from evaluation_app.judges.protocol import Case, texts_of
from evaluation_app.measures.scores import Sentence

SEED = 7
WORDS_MIN = 6
AUXILIARY = re.compile(r"\b(is|are|was|were|can|will|should|must|may|could|would)\b(?! not\b)")
NOT = re.compile(r"\b(is|are|was|were|can|will|should|must|may|could|would|does|do|did) ?not ")
OPPOSABLE = re.compile(rf"\b(?:{'|'.join(OPPOSITE)})\b")


@dataclass(frozen=True, slots=True)
class Edit:
    """kind: "number", "name", "negation" or "opposite". source: "answer", a sentence that is labelled supported, or
    "document", one of the context itself. original and edited: answers of one sentence over the row's context."""

    set_name: str
    kind: str
    source: str
    original: Case
    edited: Case


@dataclass(frozen=True, slots=True)
class MeasuredEdit:
    """An edit with the features of its original and of what was made of it."""

    edit: Edit
    measured: tuple[Features, Features]


def measure_edits(rows: Sequence[LabelledRow], vectors_file: Path | None) -> list[MeasuredEdit]:
    """`draw_edits`, measured. vectors_file: as for `load_rows`."""
    edits = draw_edits(rows)
    texts = [text for edit in edits for case in (edit.original, edit.edited) for text in texts_of(case)]
    vectors = embed_all(texts, vectors_file)
    return [MeasuredEdit(it, (measure_case(it.original, vectors), measure_case(it.edited, vectors))) for it in edits]


def draw_edits(rows: Sequence[LabelledRow]) -> list[Edit]:
    """Of each row at most one edit of a supported sentence of its answer and one of a sentence of its context."""
    draw = random.Random(SEED)
    return [edit for row in rows for edit in _edit_row(row, draw)]


def _edit_row(row: LabelledRow, draw: random.Random) -> Iterator[Edit]:
    context = [sentence.text for document in row.case.context for sentence in document]
    supported = [sentence.text for sentence, lacks in zip(row.case.answer, row.unsupported, strict=True) if not lacks]
    for source, texts in (("answer", supported), ("document", context)):
        long_enough = [text for text in texts if len(text.split()) >= WORDS_MIN]
        for text in draw.sample(long_enough, min(5, len(long_enough))):
            changes = list(_changes(text, row, draw))
            if changes:
                kind, changed = draw.choice(changes)
                original, edited = (
                    Case(row.case.question, row.case.context, [Sentence("a", said)]) for said in (text, changed)
                )
                yield Edit(row.set_name, kind, source, original, edited)
                break


def _changes(text: str, row: LabelledRow, draw: random.Random) -> Iterator[tuple[str, str]]:
    """One edit of each kind that the sentence allows."""
    context = " ".join(sentence.text for document in row.case.context for sentence in document)
    if numbers := list(NUMBER.finditer(text)):
        found = draw.choice(numbers)
        others = sorted({number for number in NUMBER.findall(context) if number not in text})
        alike = [number for number in others if len(number) == len(found[0])] or others
        yield "number", _put(text, found, draw.choice(alike) if alike else str(int(found[0][-1]) + 2))
    if names := list(NAME.finditer(text)):
        found = draw.choice(names)
        others = sorted({name for name in NAME.findall(context) if name.lower() not in text.lower()})
        if others:
            yield "name", _put(text, found, draw.choice(others))
    if negated := NOT.search(text):
        yield "negation", _put(text, negated, f"{negated[1]} ")
    elif auxiliary := AUXILIARY.search(text):
        yield "negation", _put(text, auxiliary, f"{auxiliary[1]} not")
    if opposable := OPPOSABLE.search(text):
        yield "opposite", _put(text, opposable, OPPOSITE[opposable[0]])


def _put(text: str, found: re.Match[str], instead: str) -> str:
    return text[: found.start()] + instead + text[found.end() :]
