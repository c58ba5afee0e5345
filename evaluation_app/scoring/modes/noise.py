"""Noise sensitivity: which share of an answer is wrong and was taken from the context. No language model is asked.

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

from collections.abc import Mapping, Sequence, Set
from typing import Any

from evaluation_app.golden.questions import Golden
from evaluation_app.judges.protocol import embed_texts
from evaluation_app.measures.downstream import NOTHING_EXPECTED
from evaluation_app.measures.scores import Score, failed, scored, unscorable
from evaluation_app.measures.trace import NO_ANSWER, NO_CONTEXT, key_answer
from evaluation_app.scoring.statements import states
from ragd.errors import RagdError
from ragd.types import Embedder

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
