"""Where the rules are tried: a schema of its own inside the caller's transaction, and small stores in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ragd
from ragd.conformance import corpus
from ragd.conformance.embedder import SimHashEmbedder
from ragd.conformance.report import Cases
from ragd.store.schema import scratch_schema, undone
from ragd.store.store import Connection, Store, fetch_all
from ragd.store.tables import create_collection
from ragd.types import Candidate, Chunk, RetrievePlan

GOLDEN_COLLECTION = "conformance"

# Whatever columns a row has, without those that differ between two collections or two moments.
ROWS = """
SELECT (to_jsonb(c) - 'id' - 'collection_id' - 'created_at')::text
FROM {chunks} c
WHERE collection_id = %(collection_id)s
ORDER BY doc_id, chunk_index
"""


class Bench:
    """A connection whose search path leads to a scratch schema, and stores that the rules make there."""

    def __init__(self, connection: Connection, placement: str | None = None) -> None:
        self.connection = connection
        self.placement = placement
        self.embedder = SimHashEmbedder()

    def make_store(self, name: str, **values: Any) -> Store:
        """A new, empty collection with the suite's embedder; hybrid, without stemmer, unless `values` say otherwise."""
        settings: dict[str, Any] = {
            "embed_model": self.embedder.model,
            "embed_dims": self.embedder.dims,
            "language": corpus.TEXT_SEARCH,
            "placement": self.placement,
        }
        create_collection(self.connection, name=name, **settings | values)
        return Store(self.connection, name, self.embedder)

    def open_golden(self) -> Store:
        """The collection with the fixed corpus, which `load_golden` has made."""
        return Store(self.connection, GOLDEN_COLLECTION, self.embedder)

    def load_golden(self) -> Store:
        store = self.make_store(GOLDEN_COLLECTION, policy=corpus.POLICY)
        ragd.index(corpus_chunks(), store)
        return store

    def rows(self, store: Store) -> list[str]:
        """Every stored chunk of the collection as JSON, in order of (doc_id, chunk_index)."""
        sql = ROWS.format(chunks=store.collection.partition)
        return [row for (row,) in fetch_all(self.connection, sql, {"collection_id": store.collection.id})]

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What happens inside is rolled back, also after an error of the database."""
        with undone(self.connection):
            yield


@contextmanager
def scratch(connection: Connection, placement: str | None = None) -> Iterator[Bench]:
    """A bench in a `scratch_schema`."""
    with scratch_schema(connection):
        yield Bench(connection, placement)


def corpus_chunks() -> list[Chunk]:
    """The bound chunks of the fixed corpus, without vectors."""
    return [
        chunk
        for document in corpus.documents()
        for chunk in ragd.bind(
            ragd.chunk(document.text, corpus.POLICY),
            doc_id=document.doc_id,
            title=document.title,
            tags=document.tags,
            metadata=document.metadata,
        )
    ]


def make_chunks(doc_id: str, *contents: str, **values: Any) -> list[Chunk]:
    """Bound chunks of one document, their offsets as if joined by line feeds."""
    chunks, start = [], 0
    for number, content in enumerate(contents):
        chunks.append(Chunk(doc_id, number, content, start, start + len(content), **values))
        start += len(content) + 1
    return chunks


def make_candidate(doc_id: str, score: float = 0.5, index: int = 0, content: str = "text", **values: Any) -> Candidate:
    return Candidate(doc_id, index, content, score, end=len(content), **values)


def keys(candidates: Sequence[Candidate]) -> list[str]:
    """ "doc_id#chunk_index" of each, in order."""
    return [f"{candidate.doc_id}#{candidate.chunk_index}" for candidate in candidates]


def retrieve_keys(query: str, store: Store, **plan: Any) -> list[str]:
    return keys(ragd.retrieve(query, RetrievePlan(**plan), store))


def result_of(candidate: Candidate) -> dict[str, Any]:
    """The six fields of a candidate that the specification names."""
    return {
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "content": candidate.content,
        "score": candidate.score,
        "tags": list(candidate.tags),
        "metadata": dict(candidate.metadata),
    }


def chunk_rows(chunks: Sequence[Chunk]) -> list[tuple[int, int, int, str, str, Mapping[str, Any]]]:
    return [(item.chunk_index, item.start, item.end, item.content, item.context, item.metadata) for item in chunks]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its section, one line, the check, and whether the check reads the loaded corpus."""

    section: str
    title: str
    check: Callable[[Bench, Cases], None]
    needs_corpus: bool = False


def rule(section: str, title: str, *, needs_corpus: bool = False) -> Callable[[Callable[[Bench, Cases], None]], Rule]:
    """Make a rule of the function below it."""
    return lambda check: Rule(section, title, check, needs_corpus)


def rules_of(module: object) -> list[Rule]:
    """The rules of a module, in the order in which they stand there."""
    return [value for value in vars(module).values() if isinstance(value, Rule)]
