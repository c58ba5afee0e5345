"""The golden questions of a collection as retrieval alone is asked them: by one plan, with their vectors kept."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from collections_app.models import Collection
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.versions import asked_questions
from evaluation_app.models import GoldenSet
from evaluation_app.scoring.retrieval_scores import document_of
from ragd.models.embedding import Embedder
from ragd.normalization import normalize
from ragd.types import Candidate
from retrieval_app.citations.result_records import chunk_key

KEPT_VECTORS = 4000


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A golden question with its place: pk of its row, name and pk of its set."""

    pk: int
    set_pk: int
    set_name: str
    golden: Golden

    @property
    def text(self) -> str:
        """As every door normalizes a query."""
        return normalize(self.golden.question).strip()


def questions_of(collection: Collection, golden_set: GoldenSet | None = None) -> list[StoredQuestion]:
    """Those of one set, else of all sets of the collection by name; suggestions are left out, as in a run."""
    sets: Iterable[GoldenSet] = (
        [golden_set] if golden_set else GoldenSet.objects.filter(collection_name=collection.name).order_by("name")
    )
    return [
        StoredQuestion(row.pk, each.pk, each.name, golden) for each in sets for row, golden in asked_questions(each)
    ]


def first_rank(keys: Sequence[str], golden: Golden, *, by_document: bool = False) -> int | None:
    """The best rank, from 1, of anything that the question expects among "doc_id#index" keys; None where none is there.

    Expected chunks count where the question names some, else documents; by_document: always documents.
    """
    if golden.expected_chunks and not by_document:
        requested = set(golden.expected_chunks)
        return next((rank for rank, key in enumerate(keys, 1) if key in requested), None)
    documents = set(golden.relevant_docs)
    return next((rank for rank, key in enumerate(keys, 1) if document_of(key) in documents), None)


def keys_of(candidates: Iterable[Candidate]) -> list[str]:
    return [chunk_key(candidate) for candidate in candidates]


class _VectorCache:
    """Vectors of questions by embedder, the latest KEPT_VECTORS of each: dialogs ask the same ones again and again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_embedder: dict[int, tuple[Embedder, OrderedDict[str, Any]]] = {}

    def find(self, embedder: Embedder, text: str) -> Any:
        """The vector of a text, embedded now where it is not kept. Raises EmbedderError."""
        with self.lock:
            _, stored = self.by_embedder.setdefault(id(embedder), (embedder, OrderedDict()))
            value = stored.get(text)
            if value is not None:
                stored.move_to_end(text)
                return value
        vector = embedder.embed_query(text)
        with self.lock:
            stored[text] = vector
            while len(stored) > KEPT_VECTORS:
                stored.popitem(last=False)
        return vector


_vectors = _VectorCache()


def vectors_of(
    texts: Iterable[str],
    embedder: Embedder | None,
    *,
    until: float | None = None,
    alive: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """text -> its vector, in order, as far as time allows. until: time.monotonic() at which no other is begun.

    embedder None (a lexical plan): no vectors at all. alive: called between texts. Raises EmbedderError.
    """
    result: dict[str, Any] = {}
    if embedder is None:
        return result
    for text in texts:
        if until is not None and result and time.monotonic() >= until:
            break
        if text not in result:
            result[text] = _vectors.find(embedder, text)
            alive()
    return result
