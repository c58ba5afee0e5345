"""Whether an answer is right: which components of the expected answer it holds (the completeness application).

The expected answer is cut into components, and each is found in a sentence of the answer or missing: by rules and
embeddings (see `statements`), or by a model that decides components."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluation_app.golden.questions import Golden
from evaluation_app.judges.components import ComponentJudge
from evaluation_app.judges.protocol import embed_texts
from evaluation_app.measures.downstream import NOTHING_EXPECTED
from evaluation_app.measures.scores import Score, failed, scored, unscorable
from evaluation_app.scoring.statements import HOLDS, SAYS, find_claim
from ragd.errors import RagdError
from ragd.text.chunking import split_sentences
from ragd.types import Embedder
from retrieval_app.answerers.contradictions import content_words, read, share_held
from retrieval_app.answerers.extractive_answerer import list_stems

CLAUSES = re.compile(
    r";\s+|,?\s+(?:but|while|whereas|aber|während|sondern)\s+|,\s+(?:and|so|which|who|where|und|der|die|das)\s+"
)
ITEMS = re.compile(r",\s+(?:(?:and|or|und|oder|sowie)\s+)?|\s+(?:and|or|und|oder|sowie)\s+")
CLAUSE_WORDS_MIN = 3  # content words of each clause, else the sentence stays whole
ITEMS_MIN, ITEM_WORDS_MAX, ADDED_WORDS_MAX = 3, 3, 2
ITEM_LENGTH_MAX = 4  # words of each item after the first: a longer one is a clause, "it must be switched off"
CONTRADICTED = 0.4  # at most, for an answer that contradicts a component: it is not right
LIKELY = 0.5  # what a component counts that is held by its meaning alone


@dataclass(frozen=True, slots=True)
class Correctness:
    """components: [{"text", "found", "certain", "by": key of the answer's sentence or ""}]. usage: of a model that
    decided, {} without one."""

    score: Score
    components: list[dict[str, Any]] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holding(self) -> frozenset[str]:
        """The keys of the answer's sentences that hold a component."""
        return frozenset(item["by"] for item in self.components if item["by"])


def list_components(expected: str) -> list[str]:
    """The parts of an expected answer that can be found one by one, in its order: sentences, their clauses, and the
    items of an enumeration. [] for a blank one."""
    sentences = [expected[start:end].strip() for start, end in split_sentences(expected)]
    return [item for sentence in sentences for clause in _clauses(sentence) for item in _items(clause)]


def _clauses(sentence: str) -> list[str]:
    parts = [part.strip() for part in CLAUSES.split(sentence) if part.strip()]
    if any(len(list_stems(part)) < CLAUSE_WORDS_MIN for part in parts):
        return [sentence] if sentence else []
    return parts


def _items(clause: str) -> list[str]:
    items = [item.strip().removesuffix(".") for item in ITEMS.split(clause) if item.strip()]
    is_list = len(items) >= ITEMS_MIN and all(len(content_words(item)) <= ITEM_WORDS_MAX for item in items)
    is_list = is_list and all(len(item.split()) <= ITEM_LENGTH_MAX for item in items[1:])
    is_list = is_list and len(read(clause).clauses) == 1 and read(clause).lead is None
    return items if is_list else [clause]


def measure_correctness(
    answer_sentences: Sequence[Sequence[str]],
    outcome: str,
    golden: Golden,
    embedder: Embedder,
    *,
    silent: str = "",
    judge: ComponentJudge | None = None,
) -> Correctness:
    """The share of the components that the answer holds, 0 to 1; one that it holds by its meaning alone (see
    `statements.HOLDS`) and does not plainly state counts half.

    0 where an expected answer was declined. Of a question that must be declined 1 when it was, 0 when it was answered.
    Unscorable without an expected answer, and for the reason `silent` where nobody tried to answer. judge: who decides
    instead of the rules. An error of the judge's kind, or "embedder", when that fails.
    """
    components = list_components(golden.expected_answer)
    if silent and outcome != "abstained":
        return Correctness(unscorable(silent))
    if not components and not golden.expects_nothing:
        return Correctness(unscorable(NOTHING_EXPECTED))
    if not components:
        return Correctness(scored(float(outcome == "abstained")))
    answer = [(str(key), str(text)) for key, text in answer_sentences if str(text).strip()]
    if outcome == "abstained" or not answer:
        return Correctness(scored(0.0), [_component(text, "") for text in components])
    if judge is not None:
        held = judge.components_held(golden.question, components, answer)
        if held.error:
            return Correctness(failed(held.error), usage=held.usage)
        return _summed([_component(text, by) for text, by in zip(components, held.by, strict=True)], held.usage)
    try:
        found = _find(components, answer, golden.question, embedder)
    except RagdError:
        return Correctness(failed("embedder"))
    return _summed(found, adds=any(_adds_item(components, text, golden.question) for _, text in answer))


def _find(
    components: Sequence[str], answer: Sequence[tuple[str, str]], question: str, embedder: Embedder
) -> list[dict[str, Any]]:
    texts = [text for _, text in answer]
    vectors = embed_texts(embedder, [*components, *texts])

    def likeness(one: str, other: str) -> float:
        words = embed_texts(embedder, [one, other])
        return float(words[one] @ words[other])

    found = []
    for component in components:
        stated = find_claim(texts, component, vectors, SAYS, question, likeness=likeness)
        held = stated
        if stated.place is None:
            held = find_claim(texts, component, vectors, HOLDS, question, likeness=likeness)
        by = "" if held.place is None else answer[held.place][0]
        denied = "" if held.contradicted_by is None else answer[held.contradicted_by][0]
        found.append(_component(component, by, certain=stated.place is not None, contradicted_by=denied))
    return found


def _component(text: str, by: str, *, certain: bool = True, contradicted_by: str = "") -> dict[str, Any]:
    found = {"text": text, "found": bool(by), "certain": bool(by) and certain, "by": by}
    return found | ({"contradicted_by": contradicted_by} if contradicted_by else {})


def _adds_item(components: Sequence[str], text: str, question: str) -> bool:
    """Whether a sentence enumerates two of the components and, among them, something else in a word or two."""
    known = content_words(" ".join((*components, question)))
    parts = [part.strip(" .:") for part in ITEMS.split(text)]
    held = [
        index
        for index, part in enumerate(parts)
        if any(
            share_held(content_words(each), content_words(part)) > 0.5
            for each in components
            if len(content_words(each)) <= ITEM_WORDS_MAX
        )
    ]
    if len(held) < 2:
        return False
    near = parts[max(0, held[0] - 1) : held[-1] + 2]
    return any(
        0 < len(words) <= ADDED_WORDS_MAX and not share_held(words, known)
        for words in (read(part).words for part in near if len(part.split()) <= ITEM_WORDS_MAX)
    )


def _summed(
    components: list[dict[str, Any]], usage: Mapping[str, Any] | None = None, *, adds: bool = False
) -> Correctness:
    held = sum(1.0 if item["certain"] else LIKELY for item in components if item["found"])
    share = held / len(components)
    if adds or any("contradicted_by" in item for item in components):
        share = min(share, CONTRADICTED)
    return Correctness(scored(share), components, usage or {})
