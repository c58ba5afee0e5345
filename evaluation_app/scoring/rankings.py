"""The ranking measures of one question, over documents and over chunks, and at which rank what is expected stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation_app.golden.questions import Golden
from evaluation_app.measures.catalogue import CHUNK
from evaluation_app.measures.ranking import MEASURES
from evaluation_app.measures.scores import Score
from evaluation_app.scoring.cases import document_of, unique_documents

COMPLETE_BY_ONE = ("recall", "map", "ndcg")  # what one found result completes where any of them answers the question


def retrieval_scores(retrieved_ids: Sequence[str], golden: Golden, cut: int) -> dict[str, Score]:
    """Every ranking measure at the cut: "recall@10" over documents, "chunk_recall@10" over chunks.

    retrieved_ids: "doc_id#chunk_index", best first. A document stands where its best chunk stands; so a list of ten
    chunks may hold fewer than ten documents, and precision still divides by the cut. The chunk_* measures are there
    only where the question expects chunks. Where any of what is expected answers the question (`Golden.match`), recall,
    MAP and nDCG are those of the first that is found, as if it alone were expected; precision, hit and MRR are the same
    either way. A question that expects nothing makes all unscorable. Raises ValueError for a cut below 1 or a chunk
    that is there twice.
    """
    scores = _measure("", unique_documents(retrieved_ids), golden.relevant_docs, cut, golden)
    if golden.expected_chunks:
        scores |= _measure(CHUNK, retrieved_ids, golden.expected_chunks, cut, golden)
    return scores


def _measure(
    prefix: str, ranking: Sequence[str], expected: Sequence[str], cut: int, golden: Golden
) -> dict[str, Score]:
    relevant = dict.fromkeys(expected, 1.0)
    first = next((item for item in ranking if item in relevant), next(iter(expected), ""))
    by_one = {first: 1.0} if golden.match == "any" and expected else relevant
    return {
        f"{prefix}{name}@{cut}": measure(ranking, by_one if name in COMPLETE_BY_ONE else relevant, cut)
        for name, measure in MEASURES.items()
    }


@dataclass(frozen=True, slots=True)
class FirstRanks:
    """Where the first expected result stands, from 1; None where none was retrieved or nothing is expected.

    document: among the documents, each once. chunk: among the chunks, of an expected chunk, or of any chunk of an
    expected document where the question expects no chunks.
    """

    document: int | None
    chunk: int | None

    @classmethod
    def of(cls, retrieved_ids: Sequence[str], golden: Golden) -> FirstRanks:
        documents = set(golden.relevant_docs)
        found = [item in documents for item in unique_documents(retrieved_ids)]
        return cls(found.index(True) + 1 if True in found else None, first_rank(retrieved_ids, golden))


def first_rank(keys: Sequence[str], golden: Golden, *, by_document: bool = False) -> int | None:
    """The best rank, from 1, of anything that the question expects among "doc_id#index" keys; None where none is there.

    Expected chunks count where the question names some, else documents; by_document: always documents.
    """
    if golden.expected_chunks and not by_document:
        requested = set(golden.expected_chunks)
        return next((rank for rank, key in enumerate(keys, 1) if key in requested), None)
    documents = set(golden.relevant_docs)
    return next((rank for rank, key in enumerate(keys, 1) if document_of(key) in documents), None)
