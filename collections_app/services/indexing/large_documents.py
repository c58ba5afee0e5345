"""Documents of many chunks: cut anew whenever the chunks are read, their vectors kept batch by batch as they come.

In memory are the text and one batch. A run that breaks off leaves its batches with the job, and the next one takes over
those that were made of the same texts by the same model.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
from django.db import connection

from collections_app.domain.texts import size_utf8, text_pieces
from collections_app.services.indexing.embedding_checkpoints import EmbeddingCheckpoints, Floats
from ragd.errors import DimensionMismatch
from ragd.models.embedding import Embedder
from ragd.store.store import cursor, execute, fetch_all
from ragd.types import Chunk

LARGE_CHUNKS = 256  # a document of more is large

KNOWN = """
SELECT sha256(convert_to(CASE WHEN context = '' THEN content ELSE context || E'\\n' || content END, 'UTF8')),
       chunk_index
FROM {chunks} WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s
"""

VECTORS = """
SELECT context, content, embedding::real[] FROM {chunks}
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s AND chunk_index = ANY(%(numbers)s)
"""

MAKE_TEXT = "CREATE TEMPORARY TABLE ragd_text (content text) ON COMMIT DROP"
COPY_TEXT = "COPY ragd_text FROM STDIN (FORMAT BINARY)"
SET_TEXT = """
UPDATE documents SET text = (SELECT content FROM ragd_text)
WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s
"""
DROP_TEXT = "DROP TABLE ragd_text"


class Chunks(Protocol):
    """The chunks of one document: how many there are, and each in order, as often as it is asked."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class LargeCut:
    """The chunks of a document as its policy cuts them, without vectors: cut again each time they are gone through."""

    read: Callable[[], Iterator[Chunk]]
    size: int

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Chunk]:
        return self.read()


def gather_chunks(read: Callable[[], Iterator[Chunk]]) -> list[Chunk] | LargeCut:
    """The chunks that `read` cuts: listed where they are few."""
    stream = read()
    head = list(islice(stream, LARGE_CHUNKS + 1))
    if len(head) <= LARGE_CHUNKS:
        return head
    size = len(head)
    del head
    return LargeCut(read, size + sum(1 for _ in stream))


class LargeEmbedding:
    """The chunks of a large document with their vectors, which lie with `kept`."""

    def __init__(self, chunks: Chunks, kept: EmbeddingCheckpoints, batch_size: int) -> None:
        self.chunks, self.kept, self.batch_size = chunks, kept, batch_size

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        for first, batch in self.batches():
            vectors = self.kept.read(first)
            for chunk, vector in zip(batch, vectors, strict=True):
                yield replace(chunk, embedding=vector)

    def batches(self) -> Iterator[tuple[int, list[Chunk]]]:
        """(chunk_index of the first, chunks), batch_size of them at a time."""
        stream, first = iter(self.chunks), 0
        while batch := list(islice(stream, self.batch_size)):
            yield first, batch
            first += len(batch)

    def fill(self, embedder: Embedder, known: KnownVectors, advance: Callable[[int], None]) -> None:
        """Embed what is not there yet. advance(done) is called after each batch with the chunks that have vectors."""
        there = self.kept.find()
        for first, batch in self.batches():
            digest = digest_batch(embedder, batch)
            if there.get(first) != digest:
                self.kept.keep(first, digest, _embed(batch, embedder, known))
            advance(first + len(batch))

    def over(self, chunks: Sequence[Chunk]) -> LargeEmbedding:
        """Other chunks of the same document, each with the vector of one of equal text, where there is one."""
        return _Reapplied(chunks, self)


class _Reapplied(LargeEmbedding):
    """Chunks over which other changes were laid after their vectors were made."""

    def __init__(self, chunks: Sequence[Chunk], before: LargeEmbedding) -> None:
        super().__init__(chunks, before.kept, before.batch_size)
        self.places = {
            _digest(chunk.embed_text): (first, place)
            for first, batch in before.batches()
            for place, chunk in enumerate(batch)
        }

    def __iter__(self) -> Iterator[Chunk]:
        opened: tuple[int, Floats] | None = None
        for chunk in self.chunks:
            place = self.places.get(_digest(chunk.embed_text))
            if place is None:
                yield replace(chunk, embedding=None)
                continue
            if opened is None or opened[0] != place[0]:
                opened = place[0], self.kept.read(place[0])
            yield replace(chunk, embedding=opened[1][place[1]])


class KnownVectors:
    """What is stored of a document, asked for by text: a text that it had before keeps its vector.

    tables: of chunks under the same model, where to look; the later ones win.
    """

    def __init__(self, collection_id: int, doc_id: str, tables: Sequence[str] = ("chunks",)) -> None:
        self.scope = {"collection_id": collection_id, "doc_id": doc_id}
        self.places: dict[bytes, tuple[str, int]] = {}
        for table in tables:
            rows = fetch_all(connection, KNOWN.format(chunks=table), self.scope)
            self.places |= {bytes(digest): (table, number) for digest, number in rows}

    def find(self, texts: Sequence[str]) -> dict[str, Any]:
        """text -> vector, of those that are known."""
        numbers: dict[str, list[int]] = {}
        for text in texts:
            if place := self.places.get(_digest(text)):
                numbers.setdefault(place[0], []).append(place[1])
        return {
            f"{context}\n{content}" if context else content: vector
            for table, asked in numbers.items()
            for context, content, vector in fetch_all(
                connection, VECTORS.format(chunks=table), self.scope | {"numbers": asked}
            )
        }


def _embed(batch: Sequence[Chunk], embedder: Embedder, known: KnownVectors) -> Floats:
    texts = [chunk.embed_text for chunk in batch]
    found = known.find(texts)
    missing = [text for text in texts if text not in found]
    made = iter(embedder.embed(missing) if missing else ())
    vectors = np.array([found[text] if text in found else next(made) for text in texts], np.float32)
    if vectors.shape != (len(batch), embedder.dims):
        raise DimensionMismatch(
            f"{embedder.model!r} was to give {embedder.dims} numbers for each of {len(batch)} texts; it gave an array "
            f"of {vectors.shape}",
            field="embedding",
        )
    return vectors


def digest_batch(embedder: Embedder, batch: Sequence[Chunk]) -> str:
    """SHA-256 (hex) of what decides the vectors of these chunks: texts, model and dimensions."""
    digest = hashlib.sha256(f"{embedder.model} {embedder.dims}\n".encode())
    for chunk in batch:
        text = chunk.embed_text.encode()
        digest.update(struct.pack("!q", len(text)) + text)
    return digest.hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def write_text(collection_id: int, doc_id: str, text: str) -> None:
    """Set the text of a document's row, sent in pieces: one parameter would be copied several times on its way."""
    execute(connection, MAKE_TEXT)
    with cursor(connection) as opened, opened.copy(COPY_TEXT) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\x00" + struct.pack("!iihi", 0, 0, 1, size_utf8(text)))
        for piece in text_pieces(text):
            copy.write(piece.encode())
        copy.write(struct.pack("!h", -1))
    execute(connection, SET_TEXT, {"collection_id": collection_id, "doc_id": doc_id})
    execute(connection, DROP_TEXT)
