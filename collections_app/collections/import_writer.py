"""The filling of a collection that nobody sees yet, from the members of an export, in short transactions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

import ragd
from collections_app.access.api_keys import bind_keys
from collections_app.audit import services
from collections_app.collections import export_parts
from collections_app.collections.deletion import fence_collection
from collections_app.collections.export_reader import Archive
from collections_app.collections.invariants import IMPORT_RULES, Check
from collections_app.documents.revisions.services import record_beginning
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.jobs.operations import OperationProgress
from collections_app.models import Collection, Document
from ragd.errors import UnknownCollection
from ragd.store.postings import POSTINGS_MIN, build_postings, drop_postings
from ragd.store.store import REBAKE, SET_BAKED, execute, fetch_all, partition_name
from ragd.store.tables import PLACEMENT, IndexVersionSpec, attach_partition, open_index_version
from ragd.types import Chunk

FENCE = timedelta(minutes=10)
FIRST = 1  # the number of the only index version
ROWS_AT_ONCE = 500
BATCH_SIZE = 8_000_000  # characters of texts, or bytes of files
CHUNKS_AT_ONCE = 1_000
LENGTH_MAX = 1e9
Item = TypeVar("Item")

INSERT_ROWS = """
INSERT INTO {table} (collection_id, {columns})
SELECT %(collection)s, {columns} FROM json_populate_recordset(NULL::{table}, %(rows)s::json)
"""

INSERT_SOURCE = """
INSERT INTO uploads (collection_id, doc_id, sha256, name, media_type, size_bytes, created_at, content)
VALUES (%(collection)s, %(doc_id)s, %(sha256)s, %(name)s, %(media_type)s, %(size_bytes)s, %(created_at)s, %(content)b)
"""

# chunks that did not change in a document's later revisions are still of the earlier one
SET_REVISIONS = """
UPDATE {chunks} c SET revision = listed.revision
FROM unnest(%(doc_ids)s::text[], %(numbers)s::integer[], %(revisions)s::integer[]) AS listed (doc_id, number, revision)
WHERE c.collection_id = %(collection)s AND c.doc_id = listed.doc_id COLLATE "C" AND c.chunk_index = listed.number
"""

READ_STATS = """
SELECT s.open_count, s.length_total, s.length_baked,
       (SELECT count(*) FROM chunk_terms t WHERE t.collection_id = s.collection_id AND t.index_version = s.index_version
                                             AND t.chunk_count <> 0)
FROM chunk_stats s WHERE s.collection_id = %(collection_id)s AND s.index_version = %(index_version)s
"""

SERVE = "UPDATE chunk_stats SET serving = true WHERE collection_id = %(collection)s AND index_version = 1"

WRONG_COUNTS = """
WITH c AS MATERIALIZED (SELECT doc_id, count(*) AS chunks FROM {chunks} GROUP BY doc_id)
SELECT d.doc_id FROM documents d
LEFT JOIN c USING (doc_id)
WHERE d.collection_id = %(collection)s AND d.chunk_count <> coalesce(c.chunks, 0)
ORDER BY d.doc_id LIMIT 1
"""


@dataclass(slots=True)
class ImportWriter:
    """One run. counts: rows written so far, by what they are."""

    archive: Archive
    collection: Collection
    spec: IndexVersionSpec
    progress: OperationProgress
    counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def manifest(self) -> export_parts.Manifest:
        return self.archive.manifest

    @property
    def chunks(self) -> str:
        return partition_name(self.collection.pk, FIRST)

    def report(self, *, replaced: bool) -> dict[str, Any]:
        """What the operation keeps of it; `index_version` and `seconds` come later."""
        return {
            "collection": self.collection.name,
            "counts": self.counts,
            "index_version_hash": self.spec.hash,
            "index_version": None,
            "warnings": self.warnings,
            "replaced": replaced,
        }

    def fill(self) -> None:
        """Everything but the last step, in short transactions."""
        with transaction.atomic():
            self.counts["document_access"], warnings = export_parts.write_lists(
                self.collection, self.archive.rows(export_parts.LISTS)
            )
        self.warnings += warnings
        for table in (export_parts.DOCUMENTS, export_parts.REVISIONS, export_parts.OVERLAYS):
            self._rows(table)
        self._sources()
        self._chunks()
        self._weights()
        self._check()
        execute(connection, f"ANALYZE {self.chunks}")

    def _beat(self, stage: str, done: int, total: int) -> None:
        """Say how far it is, and keep maintenance away for another ten minutes."""
        if self.progress.tell(stage, done, total):
            self._extend_fence()

    def _extend_fence(self) -> None:
        if not Collection.objects.filter(pk=self.collection.pk).update(deleted_at=timezone.now() + FENCE):
            raise UnknownCollection("the import took too long between two steps, and was removed; import it again")

    def _rows(self, table: export_parts.Table) -> None:
        total = self.manifest.members[table.member].rows
        noun = table.member.partition(".")[0]
        done = 0
        for batch in _batches(self.archive.rows(table.member), _chars):
            for row in batch:
                export_parts.check_row(table.member, row)
            columns = _columns(batch, table)
            sql = INSERT_ROWS.format(table=table.name, columns=", ".join(columns))
            with transaction.atomic():
                params = {"collection": self.collection.pk, "rows": json.dumps(batch, ensure_ascii=False)}
                execute(connection, sql, params)
            done += len(batch)
            self._beat(noun, done, total)
        self.counts[noun] = done

    def _sources(self) -> None:
        total = self.manifest.counts.get("sources", 0)
        done = 0
        for batch in _batches(self.archive.source_bytes(), lambda file: len(file[1])):
            with transaction.atomic(), connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
                for row, content in batch:
                    export_parts.check_row(export_parts.UPLOADS.member, row)
                    # bound by the server, in binary: as text the bytes would take several times their size
                    cursor.execute(INSERT_SOURCE, row | {"collection": self.collection.pk, "content": content})
            done += len(batch)
            self._beat("sources", done, total)
        self.counts["sources"] = done

    def _chunks(self) -> None:
        store = open_index_version(connection, self.collection.pk, FIRST, self.spec, hidden=True)
        total, done = self.manifest.members[export_parts.CHUNKS.member].rows, 0
        for batch, revisions in _whole_documents(read_chunks(self.archive)):
            written = self._revisions_of(batch)
            with transaction.atomic():
                ragd.index(batch, store)
                self._set_revisions(batch, revisions, written)
            done += len(batch)
            self._beat("chunks", done, total)
        self.counts["chunks"] = done

    def _revisions_of(self, batch: Sequence[Chunk]) -> dict[str, int]:
        """doc_id -> the revision of its document; all of them are there by now."""
        ids = {chunk.doc_id for chunk in batch}
        rows = Document.objects.filter(collection_id=self.collection.pk, doc_id__in=ids)
        result = dict(rows.values_list("doc_id", "revision"))
        if missing := sorted(ids - set(result)):
            raise export_parts.invalid_export(f"there are chunks of {missing[0]!r}, which is no document of the export")
        return result

    def _set_revisions(self, batch: Sequence[Chunk], revisions: Sequence[int], written: Mapping[str, int]) -> None:
        earlier = [
            (chunk.doc_id, chunk.chunk_index, revision)
            for chunk, revision in zip(batch, revisions, strict=True)
            if written[chunk.doc_id] != revision
        ]
        if earlier:
            names, numbers, stored = (list(values) for values in zip(*earlier, strict=True))
            params = {"doc_ids": names, "numbers": numbers, "revisions": stored, "collection": self.collection.pk}
            execute(connection, SET_REVISIONS.format(chunks=self.chunks), params)

    def _weights(self) -> None:
        """Lexical weights by the mean length that the exported ones were computed with, so that every score is equal.

        Where this server reads words differently, its own statistics hold, and a warning says so.
        """
        if not self.spec.hybrid_enabled:
            return
        store = open_index_version(connection, self.collection.pk, FIRST, self.spec, hidden=True)
        exported = self.manifest.statistics
        with transaction.atomic():
            ((count, length, baked, terms),) = fetch_all(connection, READ_STATS, store.scope)
            if (count, length, terms) != (exported["chunks"], exported["length_total"], exported["terms"]):
                self.warnings.append(
                    f"this server's text search reads other words in the chunks ({length} in {terms} terms) than the "
                    f"one that exported them ({exported['length_total']} in {exported['terms']}): "
                    "keyword scores may differ"
                )
                return
            requested = float(exported["length_baked"])
            if not 0 <= requested < LENGTH_MAX:
                raise export_parts.invalid_export(f"length_baked must be a mean length of chunks, not {requested}")
            if requested > 0 and requested != baked:
                params = store.scope | {"length_baked": requested}
                execute(connection, REBAKE.format(chunks=self.chunks), params)
                execute(connection, SET_BAKED, params)
                drop_postings(store)
                if count >= POSTINGS_MIN:
                    build_postings(store)

    def _check(self) -> None:
        """What was written agrees with itself and with the manifest."""
        scope = {"collection": self.collection.pk}
        if rows := fetch_all(connection, WRONG_COUNTS.format(chunks=self.chunks), scope):
            raise export_parts.invalid_export(
                f"{rows[0][0]!r} has not as many chunks as it says; the file was changed after it was exported"
            )
        for rule in IMPORT_RULES:
            self._extend_fence()
            check = Check(self.progress, limit_s=FENCE.total_seconds() / 2)
            for finding in check.broken(self.collection, [rule]):
                raise export_parts.invalid_export(
                    f"{finding.says}: {finding.rows[0]}; the file was changed after it was exported"
                )
            self.warnings += [f"it took too long to look for {name}; check the collection" for name in check.unfinished]
        for noun, expected in self.counts.items():
            if self.manifest.counts.get(noun, 0 if noun == "document_access" else None) != expected:
                raise export_parts.invalid_export(
                    f"the file holds {expected} {noun}, and its manifest counts otherwise"
                )

    def show(self, *, replace: bool, actor: services.Actor) -> Collection | None:
        """Let everybody see it, in one transaction; returns the collection whose place it took, which is fenced."""
        name = self.collection.name
        try:
            with transaction.atomic():
                before = Collection.objects.live().filter(name=name).first()
                if before is not None:
                    if not replace:
                        raise name_taken(name)
                    fence_collection(before, actor=actor)
                scope = {"collection_id": self.collection.pk, "index_version": FIRST}
                if fetch_all(connection, PLACEMENT, scope) == [("local",)]:
                    attach_partition(connection, self.collection.pk, FIRST)
                execute(connection, SERVE, {"collection": self.collection.pk})
                Collection.objects.filter(pk=self.collection.pk).update(deleted_at=None)
                self.collection.deleted_at = None
                record_beginning(self.collection)
                bind_keys(self.collection, replaced=before, actor=actor)
                for part in export_parts.registered_parts():
                    self.counts[part.name] = part.restore(self.collection, self.archive.rows(part.member))
                services.record(
                    actor,
                    [self.collection],
                    "collection.import",
                    f"imported {counted(self.counts['chunks'], 'chunk')}",
                    after=self.counts,
                )
                self.progress.write(report=self.report(replaced=before is not None))
        except IntegrityError as error:
            if "collections_name_key" in str(error):
                raise name_taken(name) from None
            raise
        return before


def read_chunks(archive: Archive) -> Iterator[tuple[Chunk, int]]:
    """Each chunk with its vector, and the revision that it is of. Raises ServiceError 422 for what is none."""
    for row, vector in zip(archive.rows(export_parts.CHUNKS.member), archive.vectors(), strict=True):
        export_parts.check_row(export_parts.CHUNKS.member, row)
        yield _read_chunk(row, vector), int(row["revision"])


def _read_chunk(row: export_parts.Row, vector: Any) -> Chunk:
    return Chunk(
        doc_id=_text(row, "doc_id"),
        chunk_index=int(row["chunk_index"]),
        content=_text(row, "content"),
        start=int(row["start_char"]),
        end=int(row["end_char"]),
        tags=tuple(str(tag) for tag in row["tags"]),
        metadata=dict(row["metadata"]),
        context=_text(row, "context"),
        embedding=vector,
        enabled=not row["switched_off"],
        attributes=dict(row.get("attributes") or {}),
    )


def _text(row: export_parts.Row, name: str) -> str:
    if not isinstance(row[name], str):
        raise TypeError(f"{name} must be text, not {row[name]!r}")
    result: str = row[name]
    return result


def _batches(items: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Some hundred at a time, fewer where they are large."""
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) == ROWS_AT_ONCE or size > BATCH_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _chars(row: export_parts.Row) -> int:
    return len(row.get("text") or "") + len(row.get("content") or "")


def _columns(batch: Sequence[export_parts.Row], table: export_parts.Table) -> tuple[str, ...]:
    """What the rows state; the rest is the column's default. Raises ServiceError 422 for what this version lacks."""
    columns = set(batch[0])
    if any(set(row) != columns for row in batch):
        raise export_parts.invalid_export(f"the lines of {table.member} do not all have the same fields")
    if unknown := sorted(columns - set(table.columns)):
        raise export_parts.invalid_export(
            f"{table.member} has a field {unknown[0]!r}, which this version of ragd does not know"
        )
    return tuple(name for name in table.columns if name in columns)


def _whole_documents(chunks: Iterable[tuple[Chunk, int]]) -> Iterator[tuple[list[Chunk], list[int]]]:
    """About a thousand chunks at a time with their revisions; no document is divided."""
    batch: list[Chunk] = []
    revisions: list[int] = []
    for chunk, revision in chunks:
        if len(batch) >= CHUNKS_AT_ONCE and batch[-1].doc_id != chunk.doc_id:
            yield batch, revisions
            batch, revisions = [], []
        batch.append(chunk)
        revisions.append(revision)
    if batch:
        yield batch, revisions


def name_taken(name: str) -> ServiceError:
    return ServiceError(
        f"there is a collection {name!r} already; choose another name, or ask for it to be replaced",
        type="name_taken",
        field="name",
    )
