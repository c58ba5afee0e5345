"""One chunk as a row of PostgreSQL's binary COPY format."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragd.types import Chunk, canonical_json

# of a document: revision, whether it is enabled, its number of chunks, who may read it
DocumentRow = tuple[int, bool, int, Sequence[int]]


def binary_row(
    chunk: Chunk, collection_id: bytes, document: DocumentRow, fts: bytes | None, lexical: bytes | None
) -> bytes:
    """The columns of COPY_CHUNKS in order."""
    revision, enabled, _, access = document
    values = (
        collection_id,
        chunk.doc_id.encode(),
        struct.pack("!i", chunk.chunk_index),
        chunk.content.encode(),
        struct.pack("!i", chunk.start),
        struct.pack("!i", chunk.end),
        chunk.context.encode(),
        _array(chunk.tags),
        _jsonb(chunk.metadata),
        _jsonb(chunk.attributes),
        struct.pack("!i", len(chunk.content.split())),
        struct.pack("!i", revision),
        b"\x01" if enabled and chunk.enabled else b"\x00",
        b"\x00" if chunk.enabled else b"\x01",
        None if chunk.embedding is None else _vector(chunk.embedding),
        fts,
        lexical,
        _integers(access),
    )
    parts = [struct.pack("!h", len(values))]
    parts += [b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value for value in values]
    return b"".join(parts)


def _jsonb(values: Mapping[str, Any]) -> bytes:
    return b"\x01" + (canonical_json(dict(values)).encode() if values else b"{}")


def _array(texts: Sequence[str]) -> bytes:
    if not texts:
        return struct.pack("!iii", 0, 0, 25)
    encoded = [text.encode() for text in texts]
    header = struct.pack("!iiiii", 1, 0, 25, len(encoded), 1)
    return header + b"".join(struct.pack("!i", len(text)) + text for text in encoded)


def _integers(values: Sequence[int]) -> bytes:
    return struct.pack("!iiiii", 1, 0, 20, len(values), 1) + b"".join(struct.pack("!iq", 8, value) for value in values)


def _vector(vector: Sequence[float]) -> bytes:
    return struct.pack("!hh", len(vector), 0) + np.asarray(vector, dtype=">f4").tobytes()
