"""A whole collection as one file, written as a stream: one moment of it, however long the reader takes.

Members are written one after the other, and the manifest with their hashes last, so nothing is gathered in memory or on
disk. What stands in the file is described in docs/export.md.

One moment of the database, read over a connection of its own while writers go on.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import psycopg
from django.db import connection as current
from django.utils import timezone
from psycopg import IsolationLevel
from psycopg.errors import UndefinedTable

from collections_app.access.context import bind, current_access, tell_nodes
from collections_app.audit import services
from collections_app.collections import export_parts
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.index.swap import ensure_serving
from collections_app.jobs.operations import OnProgress, OperationProgress, begin, count_running
from collections_app.models import Collection, Operation
from ragd.errors import UnknownCollection
from ragd.store.store import partition_name
from ragd.types import SPEC_VERSION
from ragd.version import product_version

READER_NAME = "ragd reads {collection}"  # of the connection, so that a deletion can end it
IN_UTC = "SET LOCAL TimeZone = 'UTC'"


class Snapshot:
    """A read-only transaction at REPEATABLE READ, as who opens it. It begins with the first statement; `close` ends it.

    Every reader here holds one row at a time: rows come by COPY, which neither side gathers.
    """

    def __init__(self, collection_id: int) -> None:
        provided = current.get_connection_params()
        selected = {
            name: value for name, value in provided.items() if name not in ("context", "cursor_factory")
        }  # Django's
        selected["application_name"] = READER_NAME.format(collection=collection_id)
        self.connection: psycopg.Connection[Any] = psycopg.connect(**selected, autocommit=True)
        setting = current_access().setting  # also of the server itself: files of threads are never in it
        bind(self.connection, setting)
        self.connection.autocommit = False
        self.connection.isolation_level = IsolationLevel.REPEATABLE_READ
        self.connection.read_only = True
        self.execute(IN_UTC)
        tell_nodes(self.connection, setting)

    def close(self) -> None:
        self.connection.close()

    def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        self.connection.execute(sql, params)

    def row(self, sql: str, params: Mapping[str, Any] | None = None) -> tuple[Any, ...] | None:
        """The first row, or None."""
        rows: tuple[Any, ...] | None = self.connection.execute(sql, params).fetchone()
        return rows

    def stream(self, select: str, types: Sequence[str], params: Mapping[str, Any] | None = None) -> Iterator[Any]:
        yield from stream(self.connection, select, types, params)


def stream(
    connection: psycopg.Connection[Any], select: str, types: Sequence[str], params: Mapping[str, Any] | None = None
) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, one at a time. types: PostgreSQL's names of the columns' types; bytea reads any as bytes."""
    with connection.cursor() as cursor, cursor.copy(f"COPY ({select}) TO STDOUT (FORMAT BINARY)", params) as copy:
        copy.set_types(types)
        yield from copy.rows()


PART_BYTES = 256 * 1024
EXPORTS_AT_ONCE = 3
SOURCE_PART = 1 << 20

COLLECTION = """
SELECT {settings}, c.name, c.created_at, c.index_version,
       g.hash, g.spec_version, g.policy, g.chunk_policy,
       s.open_count, s.length_total, s.length_baked,
       (SELECT count(*) FROM chunk_terms t WHERE t.collection_id = c.id AND t.index_version = c.index_version
                                             AND t.chunk_count <> 0)
FROM collections c
JOIN index_versions g ON g.collection_id = c.id AND g.number = c.index_version
JOIN chunk_stats s ON s.collection_id = c.id AND s.index_version = c.index_version
WHERE c.id = %(collection)s AND c.deleted_at IS NULL
"""

# while it is held, nobody drops or exchanges the table
HOLD = "LOCK TABLE {chunks} IN ACCESS SHARE MODE"

COUNTS = """
SELECT (SELECT count(*) FROM documents WHERE collection_id = %(collection)s),
       (SELECT count(*) FROM document_revisions WHERE collection_id = %(collection)s),
       (SELECT count(*) FROM chunk_overlays WHERE collection_id = %(collection)s),
       (SELECT count(*) FROM {chunks})
"""

# a file that is no document's source yet belongs to a job, and jobs do not travel
OF_SOURCES = """
FROM uploads u WHERE u.collection_id = %(collection)s AND EXISTS (
    SELECT 1 FROM documents d
    WHERE d.collection_id = u.collection_id AND d.doc_id = u.doc_id AND d.source_hash = u.sha256)
"""
COUNT_SOURCES = f"SELECT count(*) {OF_SOURCES}"
READ_SOURCES = f"SELECT u.content {OF_SOURCES} ORDER BY u.doc_id, u.id"
READ_SOURCE_ROWS = f"SELECT json_build_object({{pairs}})::text {OF_SOURCES} ORDER BY u.doc_id, u.id"
READ_ROWS = """
SELECT json_build_object({pairs})::text FROM {rows} u WHERE u.collection_id = %(collection)s ORDER BY {order}
"""

READ_VECTORS = "SELECT embedding FROM {chunks} ORDER BY doc_id, chunk_index"


class Export:
    """A file that is made while it is read: iterate it for its bytes, once. `close` ends it early.

    name: what the file may be called. The snapshot is taken when it is opened; a reader that stops leaves nothing.
    """

    content_type = "application/zip"

    def __init__(
        self, collection: Collection, *, actor: services.Actor = None, on_progress: OnProgress | None = None
    ) -> None:
        if count_running(Operation.Kind.EXPORT) >= EXPORTS_AT_ONCE:
            raise ServiceError(
                f"{EXPORTS_AT_ONCE} exports run already; try again when one of them has ended",
                type="too_many_exports",
                status=429,
            )
        ensure_serving(collection)
        self.collection = collection
        self.name = f"{collection.name}{export_parts.FILE_SUFFIX}"
        self.members: list[export_parts.Member] = []
        self.bytes = 0
        self.snapshot = Snapshot(collection.pk)
        try:
            self._open()
        except BaseException:
            self.snapshot.close()
            raise
        self.running = OperationProgress(
            begin(Operation.Kind.EXPORT, collection.name, actor=actor), listener=on_progress
        )
        message = f"exported {counted(self.counts['chunks'], 'chunk')}"
        services.record(actor, [collection], "collection.export", message, after=self.counts)
        self._stream = self._guarded()

    def __iter__(self) -> Iterator[bytes]:
        return self._stream

    def close(self) -> None:
        """End the export, finished or not."""
        self._stream.close()
        self.snapshot.close()
        if self.running.operation.finished_at is None:
            self.running.fail(_stopped())

    def _open(self) -> None:
        """Fix the moment: read what the collection is, and hold the table of its chunks."""
        scope = {"collection": self.collection.pk}
        row = self.snapshot.row(
            COLLECTION.format(settings=", ".join(f"c.{name}" for name in export_parts.SETTINGS)), scope
        )
        if row is None:
            raise UnknownCollection(f"collection {self.collection.name!r} was deleted", field="collection")
        settings, rest = row[: len(export_parts.SETTINGS)], row[len(export_parts.SETTINGS) :]
        self.settings = dict(zip(export_parts.SETTINGS, settings, strict=True)) | {
            "name": rest[0],
            "created_at": rest[1].isoformat(),
        }
        number, spec_hash, spec_version, policy, explicit, count, length, baked, terms = rest[2:]
        self.chunks = partition_name(self.collection.pk, number)
        self.index_version = {
            "number": number,
            "hash": spec_hash,
            "spec_version": spec_version,
            "policy": policy,
            "chunk_policy": explicit,
        } | {
            name: self.settings[name]
            for name in ("embed_model", "embed_dims", "hybrid_enabled", "language", "vector_type")
        }
        self.statistics = {"chunks": count, "length_total": length, "length_baked": baked, "terms": terms}
        try:
            self.snapshot.execute(HOLD.format(chunks=self.chunks))
        except UndefinedTable:
            raise ServiceError(
                f"another index version of {self.collection.name!r} began to serve just now; export it again"
            ) from None
        documents, revisions, overlays, chunks = self.snapshot.row(COUNTS.format(chunks=self.chunks), scope) or ()
        (sources,) = self.snapshot.row(COUNT_SOURCES, scope) or (0,)
        self.counts = {
            "documents": documents,
            "revisions": revisions,
            "overlays": overlays,
            "sources": sources,
            "chunks": chunks,
        }

    def _guarded(self) -> Generator[bytes, None, None]:
        try:
            for part in self._write():
                self.bytes += len(part)
                yield part
        except GeneratorExit:
            self.running.fail(_stopped())
            raise
        except BaseException as error:
            self.running.fail(error)
            raise
        else:
            self.running.succeed({"counts": self.counts, "bytes": self.bytes})
        finally:
            self.snapshot.close()

    def _write(self) -> Iterator[bytes]:
        pipe = _Pipe()
        with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=1) as archive:  # type: ignore[call-overload]
            for table in (export_parts.DOCUMENTS, export_parts.REVISIONS, export_parts.OVERLAYS):
                total = self.counts[table.member.partition(".")[0]]
                yield from self._member(archive, pipe, table.member, self._lines(table), total)
            yield from self._member(
                archive, pipe, export_parts.UPLOADS.member, self._lines(export_parts.UPLOADS), self.counts["sources"]
            )
            yield from self._member(archive, pipe, export_parts.SOURCES, self._sources(), self.counts["sources"])
            yield from self._member(
                archive, pipe, export_parts.CHUNKS.member, self._lines(export_parts.CHUNKS), self.counts["chunks"]
            )
            yield from self._member(
                archive, pipe, export_parts.VECTORS, self._vectors(), self.counts["chunks"], packed=False
            )
            yield from self._member(
                archive, pipe, export_parts.LISTS, export_parts.read_lists(self.collection, current_access()), 0
            )
            self.counts["document_access"] = self.members[-1].rows
            for part in export_parts.registered_parts():
                rows = part.read(self.snapshot.connection, self.collection)
                yield from self._member(archive, pipe, part.member, map(_line, rows), 0)
                self.counts[part.name] = self.members[-1].rows
            archive.writestr(export_parts.MANIFEST, json.dumps(self._manifest(), ensure_ascii=False, indent=1))
        yield pipe.take()

    def _member(
        self,
        archive: zipfile.ZipFile,
        pipe: _Pipe,
        name: str,
        pieces: Iterable[tuple[bytes, int]],
        total: int,
        *,
        packed: bool = True,
    ) -> Iterator[bytes]:
        """Write one member; what has come together of the file is handed on in parts. pieces: bytes, rows that end."""
        entry: Any = name if packed else zipfile.ZipInfo(name)  # a ZipInfo is stored as it is
        digest, size, rows = hashlib.sha256(), 0, 0
        with archive.open(entry, "w", force_zip64=True) as member:
            for piece, ended in pieces:
                member.write(piece)
                digest.update(piece)
                size, rows = size + len(piece), rows + ended
                if pipe.size >= PART_BYTES:
                    yield pipe.take()
                    self._tell(name, rows, total)
        self.members.append(export_parts.Member(name, digest.hexdigest(), size, rows))

    def _tell(self, name: str, done: int, total: int) -> None:
        """Say how far it is; stop when the collection has been deleted meanwhile, so that its rows can go."""
        written = self.running.tell(name.partition(".")[0], done, total)
        if written and not Collection.objects.live().filter(pk=self.collection.pk).exists():
            raise UnknownCollection(f"collection {self.collection.name!r} was deleted", field="collection")

    def _lines(self, table: export_parts.Table) -> Iterator[tuple[bytes, int]]:
        pairs = ", ".join(f"'{column}', u.{column}" for column in table.columns)
        rows = self.chunks if table is export_parts.CHUNKS else table.name
        sql = READ_SOURCE_ROWS if table is export_parts.UPLOADS else READ_ROWS
        select = sql.format(pairs=pairs, rows=rows, order=table.order)
        for (line,) in self.snapshot.stream(select, ["text"], {"collection": self.collection.pk}):
            yield line.encode() + b"\n", 1

    def _sources(self) -> Iterator[tuple[bytes, int]]:
        for (content,) in self.snapshot.stream(READ_SOURCES, ["bytea"], {"collection": self.collection.pk}):
            for first in range(0, len(content), SOURCE_PART):
                yield content[first : first + SOURCE_PART], 0
            yield b"", 1

    def _vectors(self) -> Iterator[tuple[bytes, int]]:
        """NumPy's file of one float32 matrix, a row per chunk in the order of the chunks."""
        dims = self.settings["embed_dims"]
        header = io.BytesIO()
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self.counts["chunks"], dims)}
        np.lib.format.write_array_header_1_0(header, shape)
        yield header.getvalue(), 0
        waiting: list[bytes] = []
        for (vector,) in self.snapshot.stream(READ_VECTORS.format(chunks=self.chunks), ["bytea"]):
            waiting.append(vector[4:])  # after the number of dimensions and two unused bytes
            if len(waiting) == export_parts.VECTORS_AT_ONCE:
                yield _little_endian(waiting), len(waiting)
                waiting.clear()
        yield _little_endian(waiting), len(waiting)

    def _manifest(self) -> dict[str, Any]:
        return {
            "format": export_parts.FORMAT,
            "format_version": export_parts.FORMAT_VERSION,
            "spec_version": SPEC_VERSION,
            "ragd_version": product_version(),
            "exported_at": timezone.now().isoformat(),
            "collection": self.settings,
            "index_version": self.index_version,
            "statistics": self.statistics,
            "counts": self.counts,
            "members": {
                member.name: {"sha256": member.sha256, "bytes": member.bytes, "rows": member.rows}
                for member in self.members
            },
        }


class _Pipe:
    """Takes what the archive writes, until it is taken away. It has no position, so the archive never goes back."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> int:
        self.parts.append(bytes(data))
        self.size += len(data)
        return len(data)

    def flush(self) -> None: ...

    def take(self) -> bytes:
        taken = b"".join(self.parts)
        self.parts.clear()
        self.size = 0
        return taken


def _line(row: dict[str, Any]) -> tuple[bytes, int]:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n", 1


def _little_endian(vectors: list[bytes]) -> bytes:
    return np.frombuffer(b"".join(vectors), dtype=">f4").astype("<f4").tobytes()


def _stopped() -> ServiceError:
    return ServiceError("the reader went away before the file was complete", type="interrupted", status=499)


def open_export(
    collection: Collection, *, actor: services.Actor = None, on_progress: OnProgress | None = None
) -> Export:
    """The collection as it is at this moment, to be read as one file; writers go on meanwhile.

    on_progress(stage, done, total): rows of the member that is written now. Raises UnknownCollection, and ServiceError
    429 when three exports run already. A collection that is deleted meanwhile ends the stream with UnknownCollection.
    """
    return Export(collection, actor=actor, on_progress=on_progress)
