"""The worker's side of an index version: every document chunked and embedded anew, kept up with, indexed, swapped in.

Each batch of documents is one transaction that also notes which state of which document it holds. So a run that is
killed loses one batch, another run goes on where it stopped, and what changes meanwhile is found by comparing.

Stored documents cut into chunks as an index version would hold them, with what people changed of the chunks.

The build of a vector index by a worker: watched, cancelled with its job, done once however many begin it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

import ragd
from collections_app.advisory_locks import index_version, release_session_lock, try_session_lock
from collections_app.chunks.policies import policy_of
from collections_app.documents.services import draft_of
from collections_app.documents.stored_documents import DocumentOverlays
from collections_app.endpoints.providers import ingest_embedder
from collections_app.index.embedding_checkpoints import (
    ChainedChunks,
    Chunks,
    EmbeddedChunks,
    JobCheckpoints,
    KnownVectors,
)
from collections_app.index.ingestion import chunk_draft, hash_content
from collections_app.index.measurements import measure, submit_measurement
from collections_app.index.stores import open_store, stores_tokens
from collections_app.index.swap import NotSettledError, drop_leftovers, may_serve, spec_of, swap_in
from collections_app.jobs.attempts import IngestOutcome, JobProgress
from collections_app.jobs.leases import LeaseLostError
from collections_app.models import Collection, Document, IndexVersion, IndexVersionDocument, IngestJob
from ragd import telemetry
from ragd.store.indexing import delete_document_chunks, index_stream
from ragd.store.placement import build_progress
from ragd.store.postings import refresh_weights
from ragd.store.store import CollectionInfo, execute, fetch_all, partition_name
from ragd.store.tables import SwapBlocked, open_index_version, sqlstate
from ragd.text.chunking import document_text
from ragd.types import Chunk, ChunkPolicy

SERVED_ROWS = """
SELECT chunk_index, content, start_char, end_char, tags, metadata::text, context, NOT switched_off,
       attributes::text FROM {chunks}
WHERE collection_id = %(collection)s AND doc_id = %(doc_id)s ORDER BY chunk_index
"""


@dataclass(frozen=True, slots=True)
class CutDocument:
    """One document as it was read, with its chunks to be and the policy that cut them."""

    document: Document
    chunks: Chunks
    content_hash: str
    policy: ChunkPolicy


def cut_document(collection: Collection, document: Document, target: Collection, policy: ChunkPolicy) -> CutDocument:
    """The document by the policy of the index version, or by what was stated for it alone.

    target: the collection as it is with the index version, unsaved: its model, dimensions and chunk policy.
    """
    draft = draft_of(document)
    text = document_text(draft.content)
    policy = policy_of(target, document) if document.chunk_policy_stated else policy
    overlays = DocumentOverlays.read(collection.pk, document.doc_id)
    # what is indexed through the library has no text: its chunks stay as they were cut
    cut = overlays.apply(chunk_draft(draft, text, policy)) if text.strip() else _served_chunks(collection, document)
    return CutDocument(document, cut, hash_content(target, draft, text, policy, overlays.digest), policy)


def _served_chunks(collection: Collection, document: Document) -> list[Chunk]:
    scope = {"collection": collection.pk, "doc_id": document.doc_id}
    rows = fetch_all(connection, SERVED_ROWS.format(chunks=collection.chunks_table), scope)
    return [
        Chunk(
            document.doc_id,
            index,
            content,
            start,
            end,
            tuple(tags),
            json.loads(metadata),
            context,
            None,
            enabled,
            json.loads(attributes),
        )
        for index, content, start, end, tags, metadata, context, enabled, attributes in rows
    ]


log = logging.getLogger(__name__)

State = IndexVersion.State

STORE_EVERY_CHUNKS = 128
READ_AHEAD = 64
FINAL_DOCUMENTS = 20  # that may be left to do while writers wait
ROUNDS_MAX = 20  # after which writers wait however much is left
SWAP_AGAIN_S = 2.0
BEAT_S = 5.0  # how often a run that waits for a gate says that it lives

GONE = """
SELECT g.doc_id FROM index_version_documents g LEFT JOIN documents d ON d.id = g.document_id
WHERE g.index_version_id = %(index_version)s AND d.id IS NULL
ORDER BY g.doc_id
"""

FLIPPED = """
SELECT g.doc_id, d.enabled FROM index_version_documents g JOIN documents d ON d.id = g.document_id
WHERE g.index_version_id = %(index_version)s AND g.enabled <> d.enabled
ORDER BY g.doc_id
"""

SET_ENABLED = "UPDATE {chunks} SET enabled = %(enabled)s AND NOT switched_off WHERE doc_id = ANY(%(doc_ids)s)"

# A document's id and revision together name one state of its text, title, tags and metadata.
PENDING = """
SELECT d.id FROM documents d
LEFT JOIN index_version_documents g ON g.index_version_id = %(index_version)s AND g.doc_id = d.doc_id
WHERE d.collection_id = %(collection)s AND d.doc_id > %(after)s
  AND (g.document_id IS DISTINCT FROM d.id OR g.revision IS DISTINCT FROM d.revision)
ORDER BY d.doc_id LIMIT %(most)s
"""

# Who changes one of them now is not waited for: the next round sees the change.
HOLD_DOCUMENTS = """
SELECT id, revision, enabled FROM documents WHERE id = ANY(%(ids)s) ORDER BY id FOR SHARE SKIP LOCKED
"""

COUNTS = """
SELECT count(*), coalesce(sum(d.size_chars), 0), count(g.id),
       coalesce(sum(d.size_chars) FILTER (WHERE g.id IS NOT NULL), 0)
FROM documents d
LEFT JOIN index_version_documents g
  ON g.index_version_id = %(index_version)s AND g.document_id = d.id AND g.revision = d.revision
WHERE d.collection_id = %(collection)s
"""


def build_index_version(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """Build an index version to the end, or bring one that is complete up to date, and swap it in where that is wanted.

    Where a gate holds it, it is kept complete and waits for a person instead.
    Raises LeaseLostError when the job was cancelled or taken over, and what chunking, embedding and the database raise;
    what was stored before stays, and another run goes on from there.
    """
    if job.index_version is None:
        raise ValueError(f"job {job.pk} names no index version")
    builder = Builder(collection, job.index_version, progress)
    progress.enter(IngestJob.Stage.EMBED)
    builder.begin()
    builder.catch_up()
    progress.enter(IngestJob.Stage.STORE)
    builder.complete()
    if builder.is_wanted():
        builder.swap(job.created_by)
    else:
        builder.keep_ready()


class Builder:
    """One run over one index version."""

    def __init__(self, collection: Collection, index_version: IndexVersion, progress: JobProgress) -> None:
        self.collection, self.index_version, self.progress = collection, index_version, progress
        self.policy = ChunkPolicy.from_dict(index_version.policy)
        self.store = open_index_version(
            connection,
            collection.pk,
            index_version.number,
            spec_of(index_version),
            ingest_embedder(index_version.embed_model, index_version.embed_dims),
            exact_threshold=settings.RAGD_EXACT_THRESHOLD,
        )
        # hashes say by which model a document was embedded
        self.target = Collection(
            embed_model=index_version.embed_model,
            embed_dims=index_version.embed_dims,
            chunk_policy=index_version.chunk_policy,
        )
        self.scope: dict[str, Any] = {"index_version": index_version.pk, "collection": collection.pk}
        self.began = time.monotonic()
        self.chars = self.chunks = 0  # of this run
        self.unsettled = 0  # times that writers were faster
        self.beat_at = time.monotonic()

    def begin(self) -> None:
        """Count what is there already; what an earlier run measured no longer holds."""
        now = timezone.now()
        IndexVersion.objects.filter(pk=self.index_version.pk, started_at=None).update(started_at=now)
        self._save(chunks_per_s=None, chars_per_s=None, error="")
        self._count()

    def _count(self) -> None:
        ((documents, chars, documents_done, chars_done),) = fetch_all(connection, COUNTS, self.scope)
        self._save(
            documents_total=documents,
            chars_total=chars,
            documents_done=documents_done,
            chars_done=chars_done,
            chunks_done=self.store.state().chunk_count,
        )

    def _save(self, **values: Any) -> None:
        IndexVersion.objects.filter(pk=self.index_version.pk).update(**values)
        for name, value in values.items():
            setattr(self.index_version, name, value)

    def catch_up(self) -> None:
        """Rounds over what was added, changed, removed, switched on or off, until a round finds nothing left."""
        for _ in range(ROUNDS_MAX):
            self._remove_gone()
            self._switch()
            if not self._build_pending():
                break
            self._count()

    def _remove_gone(self) -> None:
        with transaction.atomic():
            names = [name for (name,) in fetch_all(connection, GONE, self.scope)]
            if names:
                self.progress.hold()
                delete_document_chunks(names, self.store)
                IndexVersionDocument.objects.filter(index_version=self.index_version, doc_id__in=names).delete()

    def _switch(self) -> None:
        with transaction.atomic():
            flipped = fetch_all(connection, f"{FLIPPED} FOR SHARE OF d SKIP LOCKED", self.scope)
            for enabled in (True, False):
                names = [name for name, expected in flipped if expected is enabled]
                if names:
                    self.progress.hold()
                    sql = SET_ENABLED.format(chunks=self.store.collection.partition)
                    execute(connection, sql, {"enabled": enabled, "doc_ids": names})
                    rows = IndexVersionDocument.objects.filter(index_version=self.index_version, doc_id__in=names)
                    rows.update(enabled=enabled)

    def _build_pending(self) -> int:
        """One pass over the documents that are not there as they are now, by doc_id; returns how many were read."""
        read = 0
        for batch in self._batches():
            chunks = ChainedChunks([each.chunks for each in batch])
            with telemetry.stage(telemetry.FILL, documents_count=len(batch), chunks_count=len(chunks)):
                self._store(batch, self._embed(batch, chunks))
            read += len(batch)
        return read

    def _batches(self) -> Iterator[list[CutDocument]]:
        batch: list[CutDocument] = []
        for document in self._pending():
            batch.append(cut_document(self.collection, document, self.target, self.policy))
            if sum(len(each.chunks) for each in batch) >= STORE_EVERY_CHUNKS:
                yield batch
                batch = []
        if batch:
            yield batch

    def _pending(self) -> Iterator[Document]:
        after = ""
        while ids := fetch_all(connection, PENDING, self.scope | {"after": after, "most": READ_AHEAD}):
            for (pk,) in ids:
                document = Document.objects.filter(pk=pk).first()
                if document is not None:  # what is gone by now is not found again
                    after = document.doc_id
                    yield document

    def _embed(self, batch: Sequence[CutDocument], chunks: Chunks) -> EmbeddedChunks:
        """With vectors. A text that the document has already, here or under the same model, keeps its vector."""
        shares = spec_of(self.index_version).shares_vectors(spec_of(self.collection))
        tables = [self.collection.chunks_table] if shares else []
        tables.append(self.store.collection.partition)
        embedded = EmbeddedChunks(chunks, JobCheckpoints(self.progress.job, self.progress))
        done = self.index_version.chunks_done
        model, dims = self.index_version.embed_model, self.index_version.embed_dims
        names, with_tokens = [each.document.doc_id for each in batch], stores_tokens(self.collection.pk, model)
        embedded.embed(
            ingest_embedder(model, dims, with_tokens),
            KnownVectors(self.collection.pk, names, tables, with_tokens=with_tokens),
            batch_size=settings.RAGD_EMBED_BATCH_SIZE,
            advance=lambda count: self.progress.advance(done + count, self._expected_chunks(done)),
        )
        return embedded

    def _expected_chunks(self, done: int) -> int:
        """As many in all as there will be when the rest of the text gives chunks like the text until now."""
        chars = self.index_version.chars_done
        return round(done * self.index_version.chars_total / chars) if chars and done else 0

    def _store(self, batch: Sequence[CutDocument], embedded: EmbeddedChunks) -> None:
        """In one transaction: the chunks of those that are still as they were read, and the note of it."""
        with transaction.atomic():
            rows = fetch_all(connection, HOLD_DOCUMENTS, {"ids": [each.document.pk for each in batch]})
            now = {pk: (revision, enabled) for pk, revision, enabled in rows}
            unchanged = [each for each in batch if now.get(each.document.pk, (0, False))[0] == each.document.revision]
            names = {each.document.doc_id for each in unchanged}
            chunks = (chunk for chunk in embedded if chunk.doc_id in names)
            index_stream(chunks, self.store, between=self.progress.check)
            IndexVersionDocument.objects.bulk_create(
                [self._note(each, enabled=now[each.document.pk][1]) for each in unchanged],
                update_conflicts=True,
                unique_fields=["index_version", "doc_id"],
                update_fields=["document_id", "revision", "enabled", "chunk_count", "content_hash", "chunk_policy"],
            )
            self._advance(unchanged)
            embedded.vectors.drop()
            self.progress.hold(
                forgive=True
            )  # at the end: long rows would outlast the lease while the job's row is held

    def _note(self, cut: CutDocument, *, enabled: bool) -> IndexVersionDocument:
        return IndexVersionDocument(
            index_version=self.index_version,
            doc_id=cut.document.doc_id,
            document_id=cut.document.pk,
            revision=cut.document.revision,
            enabled=enabled,
            chunk_count=len(cut.chunks),
            content_hash=cut.content_hash,
            chunk_policy=cut.policy.as_dict(),
        )

    def _advance(self, stored: Sequence[CutDocument]) -> None:
        chars = sum(each.document.size_chars for each in stored)
        chunks = sum(len(each.chunks) for each in stored)
        self.chars, self.chunks = self.chars + chars, self.chunks + chunks
        took_s = max(time.monotonic() - self.began, 0.001)
        index_version = self.index_version
        self._save(
            documents_done=min(index_version.documents_done + len(stored), index_version.documents_total),
            chars_done=min(index_version.chars_done + chars, index_version.chars_total),
            chunks_done=index_version.chunks_done + chunks,
            chunks_per_s=round(self.chunks / took_s, 3),
            chars_per_s=round(self.chars / took_s, 3),
        )

    def complete(self) -> None:
        """Lexical weights by the final mean length, the vector index where there are enough chunks, measurements."""
        with transaction.atomic():
            self.progress.hold()
            refresh_weights(self.store)
        execute(connection, f"ANALYZE {self.store.collection.partition}")
        if self.store.state().chunk_count > settings.RAGD_EXACT_THRESHOLD:
            build_index(self.store, self.progress)
        if self.index_version.measured_at is None:
            self._save(**measure(self.store))

    def is_wanted(self) -> bool:
        """Whether it is to serve as soon as it can; somebody may have asked for it meanwhile."""
        self.index_version.refresh_from_db()
        return self.index_version.automatic

    def keep_ready(self, **values: Any) -> None:
        with transaction.atomic():
            self.progress.hold()
            if self.index_version.state == State.BUILDING:
                values |= {"state": State.READY, "ready_at": timezone.now()}
            if values:
                self._save(**values)
            self._finish()

    def swap(self, by: str) -> None:
        """Catch up until little is left, then with the writers waiting do that, and let the index version serve.

        The gate is asked once, before, and may hold the index version back. by: who asked for it to serve.
        """
        if not may_serve(self.collection, self.index_version, self._beat):
            self.keep_ready(automatic=False)
            return
        while True:
            self.catch_up()
            try:
                with transaction.atomic():
                    swap_in(self.collection, self.index_version, by=by, before=self._settle)
                    self._finish()
                break
            except NotSettledError:
                self.unsettled += 1
            except SwapBlocked as blocked:
                log.info("%s waits: %s", self.index_version, blocked.message)
                self.progress.hold()
                time.sleep(SWAP_AGAIN_S)
        drop_leftovers()

    def _beat(self) -> None:
        """Say that the run lives; raises LeaseLostError when it was cancelled or taken over."""
        if time.monotonic() - self.beat_at >= BEAT_S:
            self.progress.hold()
            self.beat_at = time.monotonic()
        else:
            self.progress.check()

    def _settle(self) -> None:
        """With all writers waiting: the last of the changes, or NotSettledError when there are too many to wait for."""
        self.progress.hold()
        everything = self.scope | {"after": "", "most": FINAL_DOCUMENTS + 1}
        left = len(fetch_all(connection, PENDING, everything))
        if left > FINAL_DOCUMENTS and self.unsettled < ROUNDS_MAX:
            raise NotSettledError
        self.catch_up()
        if fetch_all(connection, PENDING, everything) or fetch_all(connection, FLIPPED, self.scope):
            raise NotSettledError
        self._count()

    def _finish(self) -> None:
        chars = min(self.index_version.chars_total, 2**31 - 1)
        self.progress.finish(IngestOutcome(self.store.state().chunk_count, 0, False, 0, chars=chars))


WATCH_EVERY_S = 1.0
QUERY_CANCELED = "57014"

SELECT_PID = "SELECT pg_backend_pid()"
CANCEL = "SELECT pg_cancel_backend(%(pid)s)"


def run_index_build(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """The job: the index of the index version that serves; what it finds again is measured afterwards."""
    progress.enter(IngestJob.Stage.STORE)
    build_index(open_store(collection), progress)
    progress.finish(IngestOutcome(0, 0, False, 0))
    submit_measurement(collection, created_by="the index build")


def build_index(store: ragd.Store, progress: JobProgress) -> bool:
    """Build the vector index of the store's index version unless there is one; returns whether this call built it.

    Reads and writes go on meanwhile. Of two workers the second waits for the first, also for the statement of one that
    was killed, which the database finishes or gives up by itself; a broken index that is left is built anew. Raises
    LeaseLostError when the job is cancelled; the build then ends within seconds.
    """
    if connection.in_atomic_block:
        return store.build_vector_index()
    # the session that builds holds it until its statement has ended, also when its worker was killed meanwhile
    key = index_version(store.scope["collection_id"], store.scope["index_version"])
    while not try_session_lock(key):
        progress.hold()
        time.sleep(WATCH_EVERY_S)
    ((pid,),) = fetch_all(connection, SELECT_PID, {})
    try:
        with _watched(store.collection, pid, progress):
            return store.build_vector_index(concurrently=True)
    except OperationalError as error:
        if sqlstate(error) == QUERY_CANCELED:
            progress.hold()  # LeaseLostError when it was cancelled through its job
        raise
    finally:
        try:
            release_session_lock(key)
        except (DatabaseError, InterfaceError):
            log.warning("the lock on the build of %s ends with its session", store.collection.partition)


@contextmanager
def _watched(info: CollectionInfo, pid: int, progress: JobProgress) -> Iterator[None]:
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(info, pid, progress.job, stop), daemon=True, name="ragd-index")
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _watch(info: CollectionInfo, pid: int, job: IngestJob, stop: threading.Event) -> None:
    """Write how far the build is to the job, and end it when the job is no longer this run's."""
    while not stop.wait(WATCH_EVERY_S):
        try:
            mine = IngestJob.objects.filter(pk=job.pk, state=IngestJob.State.RUNNING, attempts=job.attempts)
            _, done, total = build_progress(connection, info.id, info.partition) or ("", 0, 0)
            if not mine.update(chunks_done=_small(done), chunks_total=_small(total)):
                fetch_all(connection, CANCEL, {"pid": pid})
                return
        except (DatabaseError, InterfaceError) as error:
            log.warning("the build of %s could not be watched: %s", info.partition, error)
        finally:
            connection.close()


def _small(count: int) -> int:
    return min(count, 2**31 - 1)


def index_progress(collection: Collection, number: int) -> tuple[str, int] | None:
    """(phase, percent) of the index that is being built now for that index version, or None."""
    result = build_progress(connection, collection.pk, partition_name(collection.pk, number))
    if result is None:
        return None
    phase, done, total = result
    return phase, min(100, 100 * done // total) if total else 0


__all__ = ["LeaseLostError", "build_index", "index_progress"]
