"""The stage embed: the vectors of chunks, batch by batch. In memory are one batch of chunks and its vectors.

The batches of what is long enough to be interrupted are checkpoints: each is kept with its job as soon as it is made,
and the next run takes over those that were made of the same texts by the same model.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, islice, repeat
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import psycopg
from django.db import connection, transaction
from django.db.models import Q

from collections_app.endpoints.providers import TextRefusedError
from collections_app.jobs.models import ACTIVE_STATES
from collections_app.models import IngestJob, WorkPart
from ragd.errors import DimensionMismatch
from ragd.models.late_interaction import TokenEmbedder, embed_texts
from ragd.store.store import execute, fetch_all
from ragd.types import Chunk, Embedder, Vector

Floats = npt.NDArray[np.float32]
Encoded = tuple[Vector, bytes | None]  # a vector, and the packed token vectors of its text where they are stored
TextKey = tuple[str, bytes]  # doc_id, SHA-256 of the embedded text

HELD_CHUNKS = 256  # of so many chunks none is cut twice, and no vector is a checkpoint
SPOOLED_BYTES = 1 << 23  # of vectors that are held in memory rather than in a file
FAILED_KEPT = timedelta(days=1)
STORED_AS = np.dtype("<f4")
STORED_SIZE = np.dtype("<i4")

DIGEST = "sha256(convert_to(CASE WHEN context = '' THEN content ELSE context || E'\\n' || content END, 'UTF8'))"

KNOWN = f"""
SELECT doc_id, {DIGEST}, chunk_index FROM {{chunks}}
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) AND {{known}}
"""  # noqa: S608  (constants of this module)

VECTORS = f"""
SELECT c.doc_id, {DIGEST}, c.embedding::real[], {{tokens}} FROM {{chunks}} c
JOIN unnest(%(doc_ids)s::text[], %(numbers)s::integer[]) AS listed (doc_id, chunk_index)
  ON c.doc_id = listed.doc_id COLLATE "C" AND c.chunk_index = listed.chunk_index
WHERE c.collection_id = %(collection_id)s
"""  # noqa: S608  (constants of this module)

KEEP = """
INSERT INTO work_parts (kind, collection_id, key, position, size, digest, content, made_at)
VALUES ('vectors', %(collection_id)s, %(job)s, %(first)s, %(size)s, %(digest)s, %(vectors)b, now())
ON CONFLICT (kind, key, position) DO UPDATE
SET collection_id = excluded.collection_id, size = excluded.size, digest = excluded.digest, content = excluded.content,
    made_at = excluded.made_at
"""

READ = "SELECT size, content FROM work_parts WHERE kind = 'vectors' AND key = %(job)s AND position = %(first)s"
DROP = "DELETE FROM work_parts WHERE kind = 'vectors' AND key = %(job)s"


class Chunks(Protocol):
    """Bound chunks in order: how many there are, and each of them, as often as it is asked."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Chunk]: ...


class CutChunks:
    """The chunks of one document as `cut` makes them: held up to HELD_CHUNKS, of more cut again on each pass."""

    def __init__(self, cut: Callable[[], Iterator[Chunk]]) -> None:
        stream = cut()
        held = list(islice(stream, HELD_CHUNKS + 1))
        self._size = len(held) + sum(1 for _ in stream)
        self._read = cut if len(held) > HELD_CHUNKS else held.__iter__

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Chunk]:
        return self._read()


class ChainedChunks:
    """The chunks of several documents, one after the other."""

    def __init__(self, documents: Sequence[Chunks]) -> None:
        self.documents = documents

    def __len__(self) -> int:
        return sum(map(len, self.documents))

    def __iter__(self) -> Iterator[Chunk]:
        return chain.from_iterable(self.documents)


@dataclass(frozen=True, slots=True)
class VectorBatch:
    """vectors: [chunks, dimensions]. tokens: of each chunk its packed token vectors or b""; () where there are none."""

    vectors: Floats
    tokens: Sequence[bytes] = ()

    def __iter__(self) -> Iterator[Encoded]:
        return (
            (vector, tokens or None) for vector, tokens in zip(self.vectors, self.tokens or repeat(b""), strict=False)
        )

    def to_bytes(self) -> bytes:
        sizes = np.array(list(map(len, self.tokens)), STORED_SIZE)
        return b"".join(
            (
                struct.pack("<ii", self.vectors.shape[1], len(sizes)),
                np.ascontiguousarray(self.vectors, STORED_AS).tobytes(),
                sizes.tobytes(),
                *self.tokens,
            )
        )

    @classmethod
    def from_bytes(cls, size: int, data: bytes) -> VectorBatch:
        """size: the number of chunks."""
        dims, count = struct.unpack_from("<ii", data)
        vectors = np.frombuffer(data, STORED_AS, size * dims, 8).reshape(size, dims).astype(np.float32, copy=False)
        place = 8 + size * dims * STORED_AS.itemsize
        sizes = np.frombuffer(data, STORED_SIZE, count, place)
        ends = place + sizes.nbytes + np.cumsum(sizes)
        return cls(vectors, [data[end - length : end] for length, end in zip(sizes, ends, strict=True)])


class EmbeddingCheckpoints(Protocol):
    """The vectors of consecutive batches of chunks; `first` is the position of a batch's first chunk among all.

    is_resumed: whether another run may have kept some.
    """

    is_resumed: bool

    def find(self) -> dict[int, str]:
        """first -> digest of what is there already."""

    def keep(self, first: int, digest: str, batch: VectorBatch, *, forgive: bool = True) -> None:
        """Keep a batch for good. forgive: the attempts before count no more."""

    def read(self, first: int) -> VectorBatch:
        """A batch that was kept."""

    def drop(self) -> None:
        """Forget everything, inside the transaction that stores the chunks."""


class EmbeddedChunks:
    """Chunks with their vectors.

    checkpoints: where the vectors of more than HELD_CHUNKS are kept, those of an earlier run included, and of any
    number what was embedded before a refused text; None: vectors are kept for as long as this object lives.
    """

    def __init__(self, chunks: Chunks, checkpoints: EmbeddingCheckpoints | None = None) -> None:
        self.chunks, self.checkpoints = chunks, checkpoints
        is_long = checkpoints is not None and len(chunks) > HELD_CHUNKS
        self.vectors: EmbeddingCheckpoints = checkpoints if checkpoints and is_long else SpooledCheckpoints()
        self.firsts: list[int] = []

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        stream = iter(self.chunks)
        for first in self.firsts:
            for vector, tokens in self.vectors.read(first):
                yield replace(next(stream), embedding=vector, tokens=tokens)

    def embed(
        self, embedder: Embedder, known: KnownVectors, *, batch_size: int, advance: Callable[[int], None]
    ) -> None:
        """Embed what is not there yet, batch_size texts at a time.

        advance(done) is called after each batch with the chunks that have vectors; what it raises passes through.
        """
        stored, first = self.vectors.find(), 0
        rescued = self.checkpoints.find() if self.checkpoints and self.checkpoints.is_resumed else {}
        for batch in _batches(self.chunks, known, batch_size):
            digest = digest_batch(embedder, batch)
            if stored.get(first) != digest:
                vectors = known.find(batch) | self._rescued(embedder, batch, first, rescued)
                try:
                    self.vectors.keep(first, digest, _embed(batch, embedder, vectors))
                except TextRefusedError as refusal:
                    raise self._rescue(embedder, batch, first, vectors, refusal) from refusal
            self.firsts.append(first)
            first += len(batch)
            advance(first)

    def _rescued(
        self, embedder: Embedder, batch: Sequence[Chunk], first: int, rescued: Mapping[int, str]
    ) -> dict[TextKey, Encoded]:
        """The vectors that an earlier run kept of single chunks of the batch. rescued: position -> digest."""
        return {
            _text_key(chunk): next(iter(self.checkpoints.read(position)))
            for position, chunk in enumerate(batch, first)
            if self.checkpoints and position in rescued and rescued[position] == digest_batch(embedder, [chunk])
        }

    def _rescue(
        self,
        embedder: Embedder,
        batch: Sequence[Chunk],
        first: int,
        known: Container[TextKey],
        refusal: TextRefusedError,
    ) -> TextRefusedError:
        """Keep what was embedded before the refused text, for the next run; return the error that names the chunk."""
        missing = {
            _text_key(chunk): (first + n, chunk) for n, chunk in enumerate(batch) if _text_key(chunk) not in known
        }
        texts = list(missing.values())
        if self.checkpoints:
            for (position, chunk), vector in zip(texts, refusal.vectors, strict=False):
                single = VectorBatch(np.array([vector], np.float32))
                self.checkpoints.keep(position, digest_batch(embedder, [chunk]), single, forgive=False)
        _, refused = texts[len(refusal.vectors)]
        message = f"chunk {refused.chunk_index} of {refused.doc_id!r} cannot be embedded: {refusal.message}"
        return TextRefusedError(message, kind=refusal.kind)

    def over(self, chunks: Chunks) -> EmbeddedChunks:
        """Other chunks of the same document, each with the vector of one of equal text, None where there is none."""
        return _Rearranged(chunks, self)


class _Rearranged(EmbeddedChunks):
    """Chunks over which other changes were laid after their vectors were made."""

    def __init__(self, chunks: Chunks, embedded: EmbeddedChunks) -> None:
        self.chunks, self.vectors = chunks, embedded.vectors
        self.positions: dict[TextKey, tuple[int, int]] = {}
        stream = iter(embedded.chunks)
        for first, end in zip(embedded.firsts, [*embedded.firsts[1:], len(embedded)], strict=True):
            batch = islice(stream, end - first)
            self.positions |= {_text_key(chunk): (first, offset) for offset, chunk in enumerate(batch)}

    def __iter__(self) -> Iterator[Chunk]:
        opened, encoded = -1, list[Encoded]()
        for chunk in self.chunks:
            position = self.positions.get(_text_key(chunk))
            if position is None:
                yield replace(chunk, embedding=None, tokens=None)
                continue
            if opened != position[0]:
                opened, encoded = position[0], list(self.vectors.read(position[0]))
            vector, tokens = encoded[position[1]]
            yield replace(chunk, embedding=vector, tokens=tokens)


class KnownVectors:
    """What is stored of documents, asked for by text: a text that a document had before keeps its vector.

    tables: of chunks under the same model, where to look; the later ones win. None: nothing is known. with_tokens: a
    vector is known with its token vectors alone.
    """

    def __init__(
        self, collection_id: int, doc_ids: Iterable[str], tables: Sequence[str], *, with_tokens: bool = False
    ) -> None:
        self.scope: dict[str, Any] = {"collection_id": collection_id}
        self.with_tokens = with_tokens
        self.rows: dict[TextKey, tuple[str, int]] = {}
        params = self.scope | {"doc_ids": list(doc_ids)}
        known = "tokens IS NOT NULL" if with_tokens else "true"
        for table in tables:
            rows = fetch_all(connection, KNOWN.format(chunks=table, known=known), params)
            self.rows |= {(doc_id, bytes(digest)): (table, number) for doc_id, digest, number in rows}

    def __contains__(self, chunk: Chunk) -> bool:
        return bool(self.rows) and _text_key(chunk) in self.rows

    def find(self, chunks: Sequence[Chunk]) -> dict[TextKey, Encoded]:
        """Text -> vector of those that are known; a row that was written anew meanwhile is passed over."""
        numbers: dict[str, set[tuple[str, int]]] = {}
        for chunk in chunks if self.rows else ():
            if row := self.rows.get(_text_key(chunk)):
                numbers.setdefault(row[0], set()).add((chunk.doc_id, row[1]))
        result: dict[TextKey, Encoded] = {}
        for table, listed in numbers.items():
            params = {"doc_ids": [doc_id for doc_id, _ in listed], "numbers": [number for _, number in listed]}
            sql = VECTORS.format(chunks=table, tokens="c.tokens" if self.with_tokens else "NULL::bytea")
            rows = fetch_all(connection, sql, self.scope | params)
            result |= {
                (doc_id, bytes(digest)): (vector, None if tokens is None else bytes(tokens))
                for doc_id, digest, vector, tokens in rows
            }
        return result


def _batches(chunks: Chunks, known: KnownVectors, batch_size: int) -> Iterator[list[Chunk]]:
    """Consecutive chunks, in each batch batch_size that are to be embedded, or HELD_CHUNKS in all."""
    batch: list[Chunk] = []
    missing = 0
    for chunk in chunks:
        batch.append(chunk)
        missing += chunk not in known
        if missing == batch_size or len(batch) == HELD_CHUNKS:
            yield batch
            batch, missing = [], 0
    if batch:
        yield batch


def _embed(batch: Sequence[Chunk], embedder: Embedder, known: Mapping[TextKey, Encoded]) -> VectorBatch:
    keys, encoded = [_text_key(chunk) for chunk in batch], dict(known)
    missing = {key: chunk.embed_text for key, chunk in zip(keys, batch, strict=True) if key not in encoded}
    encoded |= zip(missing, embed_texts(list(missing.values()), embedder) if missing else (), strict=True)
    array = np.array([encoded[key][0] for key in keys], np.float32)
    if array.shape != (len(batch), embedder.dims):
        raise DimensionMismatch(
            f"{embedder.model!r} was to give {embedder.dims} numbers for each of {len(batch)} texts; it gave an array "
            f"of {array.shape}",
            field="embedding",
        )
    tokens = [encoded[key][1] or b"" for key in keys]
    return VectorBatch(array, tokens if any(tokens) else ())


def digest_batch(embedder: Embedder, batch: Sequence[Chunk]) -> str:
    """SHA-256 (hex) of what decides what is kept of these chunks: texts, model, dimensions, token vectors or not."""
    tokens = " tokens" if isinstance(embedder, TokenEmbedder) else ""
    digest = hashlib.sha256(f"{embedder.model} {embedder.dims}{tokens}\n".encode())
    for chunk in batch:
        text = chunk.embed_text.encode()
        digest.update(struct.pack("!q", len(text)) + text)
    return digest.hexdigest()


def _text_key(chunk: Chunk) -> TextKey:
    return chunk.doc_id, hashlib.sha256(chunk.embed_text.encode()).digest()


class RunningJob(Protocol):
    """The run of a job. `hold` raises when the job is no longer this run's."""

    def hold(self, *, forgive: bool = False) -> None: ...


class JobCheckpoints:
    """Kept with a job: another attempt finds them, also after this process or the database was killed."""

    def __init__(self, job: IngestJob, run: RunningJob) -> None:
        self._collection_id, self._job, self._run = job.collection_id, str(job.pk), run
        self.is_resumed = job.attempts > 1

    def find(self) -> dict[int, str]:
        parts = WorkPart.objects.filter(kind=WorkPart.Kind.VECTORS, key=self._job)
        return dict(parts.values_list("position", "digest"))

    def keep(self, first: int, digest: str, batch: VectorBatch, *, forgive: bool = True) -> None:
        """One transaction, which with `forgive` also says that the job got on."""
        values = {
            "collection_id": self._collection_id,
            "job": self._job,
            "first": first,
            "size": len(batch.vectors),
            "digest": digest,
            "vectors": batch.to_bytes(),
        }
        with transaction.atomic():
            self._run.hold(forgive=forgive)
            with _binary_cursor() as cursor:
                cursor.execute(KEEP, values)

    def read(self, first: int) -> VectorBatch:
        with _binary_cursor() as cursor:
            row = cursor.execute(READ, {"job": self._job, "first": first}, binary=True).fetchone()
        if row is None:
            raise LookupError(f"the vectors of the chunks from {first} of job {self._job} are gone; run the job again")
        return VectorBatch.from_bytes(*row)

    def drop(self) -> None:
        execute(connection, DROP, {"job": self._job})


class SpooledCheckpoints:
    """Kept in memory, from SPOOLED_BYTES on in a file without a name; they go with this object."""

    is_resumed = False

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 (lives as long as this object)
        self._batches: dict[int, tuple[str, int, int, int]] = {}  # digest, place and length in the file, chunks

    def find(self) -> dict[int, str]:
        return {first: digest for first, (digest, *_) in self._batches.items()}

    def keep(self, first: int, digest: str, batch: VectorBatch, *, forgive: bool = True) -> None:
        data = batch.to_bytes()
        self._batches[first] = (digest, self._file.seek(0, 2), len(data), len(batch.vectors))
        self._file.write(data)

    def read(self, first: int) -> VectorBatch:
        _, place, length, size = self._batches[first]
        self._file.seek(place)
        return VectorBatch.from_bytes(size, self._file.read(length))

    def drop(self) -> None:
        self._file.truncate(0)
        self._batches.clear()


def drop_orphaned_checkpoints(now: datetime) -> int:
    """Remove what no job needs: it is gone, was cancelled, or failed a day ago; returns how many batches went.

    What a job that failed has embedded is kept that long, so that a retry goes on where it stopped.
    """
    under_way = Q(state__in=ACTIVE_STATES)
    failed = Q(state=IngestJob.State.FAILED, finished_at__gt=now - FAILED_KEPT)
    parts = WorkPart.objects.filter(kind=WorkPart.Kind.VECTORS)
    keys = set(parts.values_list("key", flat=True).distinct())
    needed = IngestJob.objects.filter(under_way | failed, pk__in=keys).values_list("pk", flat=True)
    return parts.filter(key__in=keys - set(map(str, needed)))._raw_delete("default")


@contextmanager
def _binary_cursor() -> Iterator[psycopg.Cursor[Any]]:
    """Binds on the server and in binary: in the statement's text vectors would take several times their size."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        yield cursor
