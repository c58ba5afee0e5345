"""Rows of RAGBench: their published scores computed as that data set computes them, and rows as our judges see them.

There lengths are sentences, and keys count as they are listed: a key that is listed twice counts twice in a sum, and
one that no sentence has counts too (README of the data set; measured on its rows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation_app.measures.scores import NO_CONTEXT, Score, Sentence, scored, unscorable

Row = Mapping[str, Any]
PUBLISHED = {
    "context_relevance": "relevance_score",
    "context_utilization": "utilization_score",
    "completeness": "completeness_score",
    "adherence": "adherence_score",
}


def row_scores(row: Row) -> dict[str, Score]:
    """TRACe of one row from its annotation, under the names of PUBLISHED."""
    total = sum(len(document) for document in row["documents_sentences"])
    relevant: Sequence[str] = row["all_relevant_sentence_keys"]
    utilized: Sequence[str] = row["all_utilized_sentence_keys"]
    both = set(relevant) & set(utilized)
    return {
        "context_relevance": scored(len(relevant) / total) if total else unscorable(NO_CONTEXT),
        "context_utilization": scored(len(utilized) / total) if total else unscorable(NO_CONTEXT),
        "completeness": scored(len(both) / len(relevant) if relevant else 1.0),
        "adherence": scored(float(not row["unsupported_response_sentence_keys"])),
    }


def row_context(row: Row) -> list[list[Sentence]]:
    return [[Sentence(key, text) for key, text in document] for document in row["documents_sentences"]]


def row_answer(row: Row) -> list[Sentence]:
    return [Sentence(key, text) for key, text in row["response_sentences"]]
