"""One sync: what the source lists is compared with what came from it before, read where it differs, and handed to the
queue; what is not listed any more is deleted at the end, once the whole list was read without an error.

Every item is a transaction of its own, so that a sync that is interrupted loses nothing: the next attempt passes over
what is there.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from collections_app.access_context import system_access
from collections_app.connectors.protocol import BaseConnector, File, Item, SourceError
from collections_app.domain.identity import DOC_ID_MAX_CHARS, TITLE_MAX_CHARS, clean_line, doc_id_from_key
from collections_app.errors import ServiceError
from collections_app.models import (
    Collection,
    Connector,
    ConnectorChange,
    ConnectorRun,
    Document,
    FetchedSource,
    IngestBatch,
    IngestJob,
)
from collections_app.models.jobs import TROUBLED_STATES
from collections_app.models.library import name_actor
from collections_app.parsing import archive_type, is_pointer
from collections_app.services.connectors.records import make_reach, open_source
from collections_app.services.connectors.runs import count_changes, fail_run
from collections_app.services.documents.trash import trash_documents
from collections_app.services.governance import audit
from collections_app.services.indexing.stored_documents import lock_documents
from collections_app.services.jobs.queue import check_queue
from collections_app.services.uploads.current_state import RequestedMetadata
from collections_app.services.uploads.uploads import (
    HeldFile,
    UploadItem,
    UploadOptions,
    close_batch,
    count_outcomes,
    enqueue_files,
    lock_doc_ids,
    open_batch,
)
from collections_app.work.leases import Lease, LeaseLostError, Progress, claim, worker_name
from ragd.errors import InvalidInput, RagdError

log = logging.getLogger(__name__)

Kind = ConnectorChange.Kind
UNCHANGED = "unchanged"
FAILURES_IN_ROW_MAX = 20  # then the source is taken for unreachable
DELETED_AT_ONCE = 100
RUNS_KEPT = 100
REASON_MAX_CHARS = 1000
CREATED_BY = "sync"


@dataclass(frozen=True, slots=True)
class _Known:
    """A document that came from the source before. is_own: it still is what came, and not archived."""

    doc_id: str
    version: str
    sha256: str
    is_own: bool


def process_run(run_id: str) -> None:
    """The worker's side of `request_run`. One that somebody has, or that has ended, is left alone.

    The sync is the server's own work: who asked for it has been checked.
    """
    lease = claim(
        ConnectorRun, run_id, worker_name(), "finished_at IS NULL",
        "state = 'running', started_at = coalesce(started_at, statement_timestamp())",
    )  # fmt: skip
    if lease is None:
        return
    try:
        with system_access(), lease.hold(interrupts=True):
            _run(lease)
    except LeaseLostError:
        log.info("sync %s was cancelled or went on elsewhere", run_id)


def _run(lease: Lease[ConnectorRun]) -> None:
    run = lease.work
    connector = Connector.objects.select_related("collection").get(pk=run.connector_id)
    sync = Sync(lease, connector)
    try:
        sync.run()
    except LeaseLostError:
        raise
    except (SourceError, ServiceError, RagdError) as error:
        kind = getattr(error, "kind", None) or getattr(error, "type", "") or "invalid_input"
        fail_run(run, kind, error.message, done=sync.done)
    except Exception as error:  # a connector may be of anybody
        log.exception("the sync of %s failed", connector)
        fail_run(run, "internal_error", f"{type(error).__name__}: {error}"[:REASON_MAX_CHARS], done=sync.done)


class Sync:
    """One attempt at a sync."""

    def __init__(self, lease: Lease[ConnectorRun], connector: Connector) -> None:
        self.run_row, self.connector = lease.work, connector
        self.collection: Collection = connector.collection
        self.progress = Progress(lease)
        self.is_dry = self.run_row.dry_run
        self.done = 0
        self.unchanged = 0
        self.told = dict(self.run_row.changes.values_list("doc_id", "kind"))  # by an attempt that was interrupted
        self.seen: set[str] = set()
        self.known = self._load_known()
        self.owners = {each.doc_id: item for item, each in self.known.items()}
        self.failed_before = self._load_failed()
        access = connector.access
        self.asked = RequestedMetadata.read(
            connector.tags or None, None, None, access=None if access is None else tuple(access)
        )

    def advance(self, done: int, total: int) -> None:
        """A sign of life while something is read: the lease is extended, and a cancelled sync ends."""
        if self.progress.is_due:
            self.progress.write(done=self.done)

    def run(self) -> None:
        """To its end, which is written down. Raises SourceError, ServiceError, RagdError, LeaseLostError."""
        source = open_source(self.connector, make_reach(self))
        try:
            self._take_all(source)
            is_complete = source.is_complete
        finally:
            source.close()
            if self.run_row.batch is not None:
                close_batch(self.run_row.batch)
        if is_complete and not self.connector.keep_missing:
            self._delete_missing()
        self._finish()

    def _take_all(self, source: BaseConnector) -> None:
        limit, failures = settings.RAGD_SOURCE_MAX_ITEMS, 0
        for item in source.list_items():
            if self.done >= limit:
                raise SourceError(
                    "too_many_items",
                    f"the source has more than {limit:,} items (RAGD_SOURCE_MAX_ITEMS); the first of them were taken. "
                    "Take a part of it, or raise the limit",
                )
            self.done += 1
            self.advance(0, 0)
            try:
                self._take(source, item)
                failures = 0
            except SourceError as error:
                self._tell(self._shown_id(item), Kind.FAILED, error.message)
                failures += 1
                if failures >= FAILURES_IN_ROW_MAX:
                    raise SourceError(
                        "unreachable", f"{failures} items in a row could not be read; the last one: {error.message}"
                    ) from None

    def _take(self, source: BaseConnector, item: Item) -> None:
        try:
            doc_id = doc_id_from_key(self.connector.prefix + item.id)
        except InvalidInput as error:
            self._tell(self._shown_id(item), Kind.FAILED, error.message)
            return
        if doc_id in self.seen or self.owners.get(doc_id, item.id) != item.id:
            self._tell(doc_id, Kind.FAILED, f"another item of the source is {doc_id!r} already")
            return
        self.seen.add(doc_id)
        version = item.version
        if version and self._settle(item, doc_id, version):
            return
        if self.is_dry and version:
            self._propose(doc_id)
            return
        file = source.fetch(item)
        sha256 = hashlib.sha256(file.content).hexdigest()
        version = version or sha256
        if not item.version and self._settle(item, doc_id, version):
            return
        if obstacle := _find_flaw(item, file):
            self._tell(doc_id, Kind.FAILED, obstacle)
        elif self.is_dry:
            self._propose(doc_id)
        else:
            self._queue(item, doc_id, file, version)

    def _settle(self, item: Item, doc_id: str, version: str) -> bool:
        """Whether nothing is to be done about this version: it is there, or it could not be ingested before."""
        known = self.known.get(item.id)
        if known is not None and known.doc_id == doc_id and known.is_own and known.version == version:
            self._count_unchanged(doc_id)
            return True
        if (reason := self.failed_before.get((doc_id, version))) is not None:
            self._tell(doc_id, Kind.FAILED, reason)
            return True
        return False

    def _propose(self, doc_id: str) -> None:
        """In a preview: what a sync would do with an item that is new or has another version."""
        obstacle, exists = self._look(doc_id)
        kind = Kind.FAILED if obstacle else Kind.UPDATED if exists else Kind.ADDED
        self._tell(doc_id, kind, obstacle)

    def _look(self, doc_id: str) -> tuple[str, bool]:
        """(why the document must not be written, "" when it may; whether it is there or on its way)."""
        job = IngestJob.objects.active().filter(collection=self.collection, doc_id=doc_id).newest().first()
        if job is not None and job.kind != IngestJob.Kind.REINDEX and job.origin.get("endpoint") != self._endpoint:
            return "the document is being brought by something else at the moment", True
        row = Document.objects.filter(collection=self.collection, doc_id=doc_id)
        facts = row.values_list("source_hash", "archived_at", "fetched__endpoint", "fetched__sha256").first()
        if facts is None:
            return "", job is not None
        source_hash, archived_at, endpoint, sha256 = facts
        if endpoint != self._endpoint:
            return "a document with this ID was not brought by this source, so it is kept as it is", True
        if source_hash != sha256:
            return "the document was replaced here since it came from this source, so it is kept as it is", True
        if archived_at is not None:
            return "the document is archived and read-only; unarchive it first", True
        return "", True

    def _queue(self, item: Item, doc_id: str, file: File, version: str) -> None:
        check_queue(1, len(file.content))
        with transaction.atomic():
            lock_doc_ids(self.collection, [doc_id])
            self.progress.lease.check()
            obstacle, exists = self._look(doc_id)
            if obstacle:
                self._tell(doc_id, Kind.FAILED, obstacle)
                return
            origin = {
                "type": FetchedSource.Kind.SYNC.value,
                "endpoint": self._endpoint,
                "item": item.id,
                "version": version,
                "found": {"etag": version, "final_address": item.url},
            }
            offered = UploadItem(
                HeldFile(file.name, file.content),
                doc_id,
                "replace",
                origin,
                source=item.url or f"{self.connector.kind}://{item.id}",
                title=clean_line(item.title)[:TITLE_MAX_CHARS],
            )
            terms = UploadOptions(self.asked, "replace", self._open_batch(), CREATED_BY)
            (outcome,) = enqueue_files(self.collection, [offered], terms)
            if outcome.status == "queued":
                self._tell(doc_id, Kind.UPDATED if exists else Kind.ADDED)
            elif outcome.status == "unchanged":
                self._remember(doc_id, version)
                self._count_unchanged(doc_id)
            else:
                self._tell(doc_id, Kind.FAILED, outcome.error or outcome.reason)

    def _remember(self, doc_id: str, version: str) -> None:
        """The same bytes under another version."""
        FetchedSource.objects.filter(
            document__collection=self.collection, document__doc_id=doc_id, endpoint=self._endpoint
        ).update(etag=version, checked_at=timezone.now())

    def _open_batch(self) -> IngestBatch:
        if self.run_row.batch is None:
            batch = open_batch(self.collection, kind=IngestBatch.Kind.SYNC, label=self.connector.name)
            self.progress.write(batch=batch)
        assert self.run_row.batch is not None
        return self.run_row.batch

    def _delete_missing(self) -> None:
        own = [each.doc_id for each in self.known.values() if each.is_own]
        missing = sorted(set(own) - self.seen)
        agreed = set(self.run_row.agreed or ())
        if 2 * len(missing) > len(own) and not agreed.issuperset(missing):
            for doc_id in missing:
                self._tell(doc_id, Kind.HELD)
            return
        for begin in range(0, len(missing), DELETED_AT_ONCE):
            self.advance(0, 0)
            names = missing[begin : begin + DELETED_AT_ONCE]
            with transaction.atomic():
                for doc_id in names if self.is_dry else self._delete(names):
                    self._tell(doc_id, Kind.DELETED)

    def _delete(self, names: list[str]) -> list[str]:
        """Those that still are what came from the source and that nothing brings at the moment."""
        lock_documents(self.collection, names)
        self.progress.lease.check()
        rows = Document.objects.filter(
            collection=self.collection, doc_id__in=names, archived_at=None, fetched__endpoint=self._endpoint
        ).values_list("doc_id", "source_hash", "fetched__sha256")
        coming = IngestJob.objects.active().filter(collection=self.collection, doc_id__in=names)
        busy = set(coming.exclude(kind=IngestJob.Kind.REINDEX).values_list("doc_id", flat=True))
        gone = [doc_id for doc_id, present, sha256 in rows if present == sha256 and doc_id not in busy]
        if gone:
            trash_documents(self.collection, gone)
            if self.run_row.batch is not None:
                count_outcomes(self.run_row.batch, (), deleted=len(gone))
        return gone

    def _tell(self, doc_id: str, kind: str, reason: str = "") -> None:
        """Note a change; what an interrupted attempt has noted as done stays."""
        earlier = self.told.get(doc_id)
        if earlier in (Kind.ADDED, Kind.UPDATED, Kind.DELETED) and kind in (Kind.UPDATED, Kind.ADDED):
            return
        self.told[doc_id] = kind
        ConnectorChange.objects.update_or_create(
            run=self.run_row,
            doc_id=doc_id,
            defaults={"collection": self.collection, "kind": kind, "reason": clean_line(reason)[:REASON_MAX_CHARS]},
        )

    def _count_unchanged(self, doc_id: str) -> None:
        if self.told.get(doc_id) not in (Kind.ADDED, Kind.UPDATED):
            self.unchanged += 1

    def _finish(self) -> None:
        with transaction.atomic():
            changes = count_changes(self.run_row)
            totals = changes | {UNCHANGED: self.unchanged}
            now = timezone.now()
            ended = {"state": ConnectorRun.State.SUCCEEDED, "finished_at": now, "done": self.done}
            if not self.progress.lease.release(**ended, **totals):
                raise LeaseLostError
            if self.is_dry:
                return
            Connector.objects.filter(pk=self.connector.pk).update(
                last_success=now, last_error="", waits=bool(changes[Kind.HELD])
            )
            if any(changes.values()) or self.connector.last_error:
                audit.record_event(
                    None, "connector.sync", f"synced {self.connector.name}", subject=self.connector, after=totals
                )
            self._forget_runs(changed_nothing=not any(changes.values()))

    def _forget_runs(self, *, changed_nothing: bool) -> None:
        """Of syncs by the schedule that changed nothing only the newest is kept, of all the newest 100."""
        others = self.connector.runs.filter(finished_at__isnull=False).exclude(pk=self.run_row.pk)
        if changed_nothing and self.run_row.created_by == name_actor(None):
            by_schedule = others.filter(state=ConnectorRun.State.SUCCEEDED, created_by=name_actor(None), dry_run=False)
            by_schedule.filter(**dict.fromkeys(Kind.values, 0)).delete()
        kept = self.connector.runs.values_list("pk", flat=True)[:RUNS_KEPT]
        others.exclude(pk__in=list(kept)).delete()

    @property
    def _endpoint(self) -> str:
        return self.connector.endpoint

    def _shown_id(self, item: Item) -> str:
        return clean_line(self.connector.prefix + item.id)[:DOC_ID_MAX_CHARS] or "?"

    def _load_known(self) -> dict[str, _Known]:
        """Item id -> what came of it."""
        rows = FetchedSource.objects.filter(
            document__collection=self.collection, kind=FetchedSource.Kind.SYNC, endpoint=self._endpoint
        ).values_list(
            "address", "document__doc_id", "etag", "sha256", "document__source_hash", "document__archived_at"
        )  # fmt: skip
        return {
            address: _Known(doc_id, version, sha256, sha256 == present and archived_at is None)
            for address, doc_id, version, sha256, present, archived_at in rows
        }

    def _load_failed(self) -> dict[tuple[str, str], str]:
        """(doc_id, version) of what could not be ingested -> why. Its job can be retried; another version comes."""
        rows = IngestJob.objects.filter(
            collection=self.collection, state__in=TROUBLED_STATES, origin__endpoint=self._endpoint
        ).values_list("doc_id", "origin__version", "error")
        return {(doc_id, version): error for doc_id, version, error in rows}


def _find_flaw(item: Item, file: File) -> str:
    """Why the file cannot be a document; "" when it can."""
    if not file.content:
        return f"{item.id} is empty"
    if is_pointer(file.content):
        return "it is a pointer of Git LFS or git-annex, which stands for a file that the repository does not hold"
    if archive_type(file.content):
        return "it is an archive; unpack it at the source, or upload it"
    return ""
