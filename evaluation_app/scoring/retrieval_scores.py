"""How well a list of chunks holds what a golden question expects: documents by their best chunk, and chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evaluation_app.golden.questions import Golden
from evaluation_app.measures.catalogue import CHUNK
from evaluation_app.measures.ranking import MEASURES
from evaluation_app.measures.scores import Score


def retrieval_scores(retrieved_ids: Sequence[str], golden: Golden, cut: int) -> dict[str, Score]:
    """Every ranking measure at the cut: "recall@10" over documents, "chunk_recall@10" over chunks.

    retrieved_ids: "doc_id#chunk_index", best first. A document stands where its best chunk stands; so a list of ten
    chunks may hold fewer than ten documents, and precision still divides by the cut. The chunk_* measures are there
    only where the question expects chunks. A question that expects nothing makes all unscorable. Raises ValueError for
    a cut below 1 or a chunk that is there twice.
    """
    scores = _measure("", unique_documents(retrieved_ids), golden.relevant_docs, cut)
    if golden.expected_chunks:
        scores |= _measure(CHUNK, retrieved_ids, golden.expected_chunks, cut)
    return scores


def unique_documents(retrieved_ids: Iterable[str]) -> list[str]:
    """The documents of these chunks, each once, by its best chunk. An id without "#" is that of a document."""
    return list(dict.fromkeys(document_of(key) for key in retrieved_ids))


def document_of(key: str) -> str:
    """ "guide.md#3" -> "guide.md"; an id may hold "#" itself, so the last one counts."""
    document, mark, index = key.rpartition("#")
    return document if mark and index.isdecimal() else key


def _measure(prefix: str, ranking: Sequence[str], expected: Iterable[str], cut: int) -> dict[str, Score]:
    relevant = dict.fromkeys(expected, 1.0)
    return {f"{prefix}{name}@{cut}": measure(ranking, relevant, cut) for name, measure in MEASURES.items()}
