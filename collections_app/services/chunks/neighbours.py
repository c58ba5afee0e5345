"""The chunks that are nearest to a chunk, by the vectors that searches compare."""

from __future__ import annotations

from dataclasses import dataclass

from collections_app.errors import ServiceError
from collections_app.models import Chunk, Collection
from collections_app.replicas import read_store
from ragd.search.vector_search import vector_candidates
from ragd.store.store import Store
from ragd.types import Candidate, RetrievePlan

NEIGHBOURS = 8
NEIGHBOURS_MAX = 100
WIDER = 8


@dataclass(frozen=True, slots=True)
class Neighbour:
    """rank counts from 1; score is the cosine similarity. same_document: it lies in the document of the chunk."""

    rank: int
    score: float
    candidate: Candidate
    same_document: bool


def nearest_chunks(
    collection: Collection, doc_id: str, chunk_index: int, *, k: int = NEIGHBOURS, other_documents: bool = False
) -> list[Neighbour]:
    """The k chunks nearest to a chunk, nearest first, ties by (doc_id, chunk_index); itself and disabled ones left out.

    Every vector is compared, as a search with exact "always" does. other_documents: only chunks of other documents.
    Raises ServiceError 404 for a chunk that is not there.
    """
    chunk = find_chunk(collection, doc_id, chunk_index)
    plan = RetrievePlan(mode="vector", k=1, exact="always")

    def read(store: Store) -> list[Candidate]:
        rows = min(k, NEIGHBOURS_MAX) + 1
        while True:
            nearest = vector_candidates(chunk.embedding, plan, store, True, rows=rows)
            others = [each for each in nearest if is_wanted(each)]
            if len(others) >= k or len(nearest) < rows:
                return others
            rows *= WIDER  # its own document is in the way

    def is_wanted(candidate: Candidate) -> bool:
        return candidate.doc_id != doc_id if other_documents else candidate.key != (doc_id, chunk_index)

    result = read_store(collection, read)
    return [
        Neighbour(rank, candidate.score, candidate, candidate.doc_id == doc_id)
        for rank, candidate in enumerate(result[:k], 1)
    ]


def find_chunk(collection: Collection, doc_id: str, chunk_index: int) -> Chunk:
    """With its vector. ServiceError 404."""
    result = None
    if "\x00" not in doc_id:
        rows = Chunk.objects.of(collection).filter(doc_id=doc_id, chunk_index=chunk_index)
        result = rows.defer("fts", "lexical").first()
    if result is None:
        raise ServiceError(
            f"collection {collection.name!r} has no chunk {chunk_index} of a document {doc_id!r}",
            type="unknown_chunk",
            status=404,
            field="chunk_index",
        )
    return result
