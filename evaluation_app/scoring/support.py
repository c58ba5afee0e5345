"""Which share of an answer the context states, by rules: this decides whether an answer is supported where a judge's
verdict on a single answer is weak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation_app.judges.protocol import embed_texts
from evaluation_app.measures.scores import Score, failed, scored, unscorable
from evaluation_app.measures.trace import NO_ANSWER, NO_CONTEXT
from evaluation_app.scoring.statements import SUPPORTS, states
from ragd.errors import RagdError
from ragd.types import Embedder


def stated_share(
    answer_sentences: Sequence[Sequence[str]], context: Sequence[Mapping[str, Any]], question: str, embedder: Embedder
) -> Score:
    """Sentences of the answer that a sentence of the context states / sentences of the answer, 0 to 1.

    What the question says need not stand in the context. Shapes as in EvaluationItem. Unscorable without an answer or
    context; an error of the kind "embedder" when that fails.
    """
    answer = [str(text) for _, text in answer_sentences if str(text).strip()]
    texts = [str(text) for chunk in context for _, text in chunk["sentences"] if str(text).strip()]
    if not answer or not texts:
        return unscorable(NO_ANSWER if not answer else NO_CONTEXT)
    try:
        vectors = embed_texts(embedder, [*answer, *texts])
    except RagdError:
        return failed("embedder")
    return scored(sum(states(texts, sentence, vectors, SUPPORTS, question) for sentence in answer) / len(answer))
