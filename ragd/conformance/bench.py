"""Where the rules are tried: a schema of its own inside the caller's transaction, and small stores in it.

The suite's own embedder: the same vectors, bit for bit, and the same cosines on every platform.

SimHash over words and character trigrams. Every feature adds the 256 bits of its SHA-256 as +1 or -1 to 256 whole
numbers, and an entry of the vector is the sign of its sum over 16. Nothing but whole numbers is computed, so no
compiler, processor or thread changes a vector. Each has exactly length 1 (256 entries of 1/16 squared), each entry is
a float32 without rounding, and the products of two vectors are multiples of 1/256 whose sums are exact in float32 in
whatever order a database adds them. So a cosine is exact too, and ties are real ties everywhere.
Source: Charikar, "Similarity Estimation Techniques from Rounding Algorithms", STOC 2002.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ragd
from ragd.conformance import corpus
from ragd.conformance.report import Cases
from ragd.store.store import Connection, Store, fetch_all
from ragd.store.tables import create_collection, scratch_schema, undone
from ragd.types import Candidate, Chunk, RetrievePlan, Vector

DIMS = 256
ENTRY = 1 / 16
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+")
# only ASCII is folded: what else has a lower case depends on the Unicode version of the interpreter
_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class SimHashEmbedder:
    """256 dimensions, no window. Texts with common words and letters come out near each other; [] for []."""

    model = "ragd-conformance-simhash"
    dims = DIMS
    window: int | None = None
    system = "ragd.conformance"
    server_address: str | None = None
    server_port: int | None = None

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> Vector:
        """Entries of 1/16 and -1/16; a sum of 0 counts as positive, so a text without features has a vector too."""
        return list(_vector(text))

    def count_tokens(self, text: str) -> int:
        """White-space separated words."""
        return len(text.split())


@lru_cache(maxsize=2048)
def _vector(text: str) -> tuple[float, ...]:
    """Entry 8 * b + n belongs to bit n (the lowest is 0) of byte b of the digests."""
    features = list(_features(text))
    ones = sum(_spread(hashlib.sha256(feature.encode("utf-8", "replace")).digest()) for feature in features)
    counted = struct.unpack(f"<{DIMS}I", ones.to_bytes(4 * DIMS, "little"))
    return tuple(ENTRY if 2 * count >= len(features) else -ENTRY for count in counted)


def _spread(digest: bytes) -> int:
    """The bits of a digest as the lowest bits of 256 counters of 32 bits, so that one addition counts all of them."""
    return int.from_bytes(b"".join(map(_COUNTERS.__getitem__, digest)), "little")


_COUNTERS = [b"".join((byte >> place & 1).to_bytes(4, "little") for place in range(8)) for byte in range(256)]


def _features(text: str) -> Iterator[str]:
    """Each word, and the trigrams of the word between two spaces; a repeated one counts again."""
    for word in _WORD.findall(text.translate(_FOLD)):
        yield word
        framed = f" {word} "
        yield from (framed[index : index + 3] for index in range(len(framed) - 2))


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
