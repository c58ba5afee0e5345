"""Syncs: asked for by people and by the schedule, and found again.

One sync: what the source lists is compared with what came from it before, read where it differs, and handed to the
queue; what is not listed any more is deleted at the end, once the whole list was read without an error.

Every item is a transaction of its own, so that a sync that is interrupted loses nothing: the next attempt passes over
what is there.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from collections_app.access.context import require, system_access
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.documents.services import trash_documents
from collections_app.documents.stored_documents import lock_documents
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.jobs.leases import LeaseLostError
from collections_app.jobs.models import TROUBLED_STATES
from collections_app.jobs.operations import OperationProgress, handles, request_operation
from collections_app.jobs.queue import check_queue
from collections_app.models import (
    Collection,
    Document,
    FetchedSource,
    IngestBatch,
    IngestJob,
    Operation,
    Source,
    SourceChange,
)
from collections_app.sources.kinds.protocol import BaseSource, File, Item, SourceError
from collections_app.sources.records import open_source
from collections_app.sources.source_jobs import make_reach
from collections_app.uploads.options import SYNC, IngestOptions, Origin
from collections_app.uploads.plan import Entry, PlanLine, came_from, find_missing, plan_entries
from collections_app.uploads.services import HeldFile, Submission, close_batch, count_outcomes, enqueue, open_batch
from ragd.errors import InvalidInput, RagdError
from ragd.identity import DOC_ID_MAX_CHARS, TITLE_MAX_CHARS, clean_line, doc_id_from_key
from ragd.readers import archive_type, is_pointer

UNCHANGED = "unchanged"
DUE_AT_ONCE = 50


def request_run(
    source: Source, *, dry_run: bool = False, agreed_run: Operation | None = None, actor: services.Actor = None
) -> Operation:
    """Let a worker sync, or look what a sync would do. agreed_run: its held deletions are agreed to.

    Raises ServiceError 409 while one is under way.
    """
    require(Permission.WRITE, source.collection_id)
    agreed = None
    if agreed_run is not None:
        held = agreed_run.changes.filter(run__source=source, kind=SourceChange.Kind.HELD)
        agreed = list(held.values_list("doc_id", flat=True))
    arguments = {"dry_run": dry_run, "agreed": agreed}
    try:
        with transaction.atomic():
            run = request_operation(
                Operation.Kind.SYNC, source.collection.name, arguments, actor=actor, source=source,
                report={"dry_run": dry_run} | dict.fromkeys((*SourceChange.Kind.values, UNCHANGED), 0),
            )  # fmt: skip
            if not dry_run and source.schedule:
                Source.objects.filter(pk=source.pk).update(next_at=timezone.now() + source.interval)
            if agreed:
                message = f"agreed to delete {counted(len(agreed), 'document')} that {source.name} has no more"
                services.record_event(actor, "source.confirm", message, subject=source)
    except IntegrityError:
        message = f"a sync of {source.name} is under way; wait until it has ended, or cancel it"
        raise ServiceError(message) from None
    return run


def find_run(collection: Collection, run_id: uuid.UUID | str) -> Operation:
    """A sync of this collection, or ServiceError 404."""
    try:
        return Operation.objects.select_related("source").get(source__collection=collection, pk=uuid.UUID(str(run_id)))
    except (ValueError, Operation.DoesNotExist):
        message = f"collection {collection.name!r} has no sync {str(run_id)[:80]!r}"
        raise ServiceError(message, type="not_found", status=404) from None


def start_syncs(now: datetime) -> int:
    """Begin what is due; returns how many."""
    begun = 0
    for source in Source.objects.due(now).select_related("collection").order_by("next_at")[:DUE_AT_ONCE]:
        with suppress(ServiceError):  # somebody began one a moment ago
            request_run(source)
            begun += 1
    return begun


def count_changes(run: Operation) -> dict[str, int]:
    """Kind of change -> how many of the run's."""
    counts = Counter(run.changes.order_by().values_list("kind", flat=True))
    return {kind: counts[kind] for kind in SourceChange.Kind.values}


def raise_alarm(run: Operation) -> None:
    """Note that a sync failed, as its error says; the alarm begins with the first failure after a success."""
    if run.source_id is None or run.arguments["dry_run"]:
        return
    with system_access(), transaction.atomic():
        source = Source.objects.select_for_update().get(pk=run.source_id)
        if not source.last_error:
            text = f"the source {source.name} cannot be synced: {run.error}"
            services.record_event(None, "source.fail", text, subject=source)
        Source.objects.filter(pk=source.pk).update(last_error=run.error)


log = logging.getLogger(__name__)

Kind = SourceChange.Kind
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
    is_own: bool


@handles(Operation.Kind.SYNC, lost=raise_alarm)
def run_sync(progress: OperationProgress) -> None:
    """The worker's side of `request_run`. The sync is the server's own work: who asked for it has been checked."""
    with system_access():
        source = Source.objects.select_related("collection").get(runs=progress.operation)
        sync = Sync(progress, source)
        try:
            sync.run()
        except LeaseLostError:
            raise
        except (SourceError, ServiceError, RagdError) as error:
            kind = getattr(error, "kind", None) or getattr(error, "type", "") or "invalid_input"
            raise sync.fail(kind, error.message) from error
        except Exception as error:  # a kind of source may be of anybody
            log.exception("the sync of %s failed", sync.source)
            raise sync.fail("internal_error", f"{type(error).__name__}: {error}"[:REASON_MAX_CHARS]) from error


class Sync:
    """One attempt at a sync."""

    def __init__(self, progress: OperationProgress, source: Source) -> None:
        self.progress, self.run_row, self.source = progress, progress.operation, source
        self.collection: Collection = source.collection
        self.is_dry = bool(self.run_row.arguments["dry_run"])
        self.batch = IngestBatch.objects.filter(pk=self.run_row.report.get("batch_id")).first()
        self.done = 0
        self.unchanged = 0
        self.told = dict(self.run_row.changes.values_list("doc_id", "kind"))  # by an attempt that was interrupted
        self.seen: set[str] = set()
        self.known = self._load_known()
        self.owners = {each.doc_id: item for item, each in self.known.items()}
        self.failed_before = self._load_failed()
        access = None if source.access is None else tuple(source.access)
        self.options = IngestOptions(tags=list(source.tags) or None, access=access).cleaned()

    def advance(self, done: int, total: int) -> None:
        """A sign of life while something is read: the lease is extended, and a cancelled sync ends."""
        if self.progress.is_due:
            self.progress.write(done=self.done)

    def run(self) -> None:
        """To its end, which is written down. Raises SourceError, ServiceError, RagdError, LeaseLostError."""
        reader = open_source(self.source, make_reach(self))
        try:
            self._take_all(reader)
            is_complete = reader.is_complete
        finally:
            reader.close()
            if self.batch is not None:
                close_batch(self.batch)
        if is_complete and not self.source.keep_missing:
            self._delete_missing()
        self._finish()

    def _take_all(self, reader: BaseSource) -> None:
        limit, failures = settings.RAGD_SOURCE_MAX_ITEMS, 0
        for item in reader.list_items():
            if self.done >= limit:
                raise SourceError(
                    "too_many_items",
                    f"the source has more than {limit:,} items (RAGD_SOURCE_MAX_ITEMS); the first of them were taken. "
                    "Take a part of it, or raise the limit",
                )
            self.done += 1
            self.advance(0, 0)
            try:
                self._take(reader, item)
                failures = 0
            except SourceError as error:
                self._fail(item, self._shown_id(item), error.message)
                failures += 1
                if failures >= FAILURES_IN_ROW_MAX:
                    raise SourceError(
                        "unreachable", f"{failures} items in a row could not be read; the last one: {error.message}"
                    ) from None

    def _take(self, reader: BaseSource, item: Item) -> None:
        try:
            doc_id = doc_id_from_key(self.source.prefix + item.id)
        except InvalidInput as error:
            self._fail(item, self._shown_id(item), error.message)
            return
        if doc_id in self.seen or self.owners.get(doc_id, item.id) != item.id:
            self._fail(item, doc_id, f"another item of the source is {doc_id!r} already")
            return
        self.seen.add(doc_id)
        version = item.version
        if version and self._settle(item, doc_id, version):
            return
        if self.is_dry and version:
            self._propose(item, doc_id, version)
            return
        file = reader.fetch(item)
        sha256 = hashlib.sha256(file.content).hexdigest()
        version = version or sha256
        if not item.version and self._settle(item, doc_id, version):
            return
        if obstacle := _find_flaw(item, file):
            self._fail(item, doc_id, obstacle)
        elif self.is_dry:
            self._propose(item, doc_id, version)
        else:
            self._queue(item, doc_id, file, version)

    def _settle(self, item: Item, doc_id: str, version: str) -> bool:
        """Whether nothing is to be done about this version: it is there, or it could not be ingested before."""
        known = self.known.get(item.id)
        if known is not None and known.doc_id == doc_id and known.is_own and known.version == version:
            self._count_unchanged(doc_id)
            return True
        if (reason := self.failed_before.get((doc_id, version))) is not None:
            self._fail(item, doc_id, reason)
            return True
        return False

    def _propose(self, item: Item, doc_id: str, version: str) -> None:
        """In a preview: what a sync would do with an item that is new or has another version."""
        (line,) = plan_entries(self.collection, [self._entry(item, doc_id, version)], self.options)
        self._record(item, line, version)

    def _queue(self, item: Item, doc_id: str, file: File, version: str) -> None:
        check_queue(1, len(file.content))
        entry = replace(
            self._entry(item, doc_id, version),
            size=len(file.content),
            name=file.name,
            source=item.url or f"{self.source.kind}://{item.id}",
            title=clean_line(item.title)[:TITLE_MAX_CHARS],
        )
        submission = Submission(self.options, self._open_batch, CREATED_BY)
        with transaction.atomic():
            (outcome,) = enqueue(self.collection, [(entry, HeldFile(file.name, file.content))], submission)
            self.progress.lease.check()
            self._record(item, outcome.line, version)

    def _entry(self, item: Item, doc_id: str, version: str) -> Entry:
        origin = Origin(SYNC, item.id, self.source.endpoint, version=version, etag=version, final_address=item.url)
        return Entry(doc_id, size=item.size, origin=origin)

    def _record(self, item: Item, line: PlanLine, version: str) -> None:
        """Note what becomes of an item by its line of the plan."""
        if line.is_sent:
            self._tell(line.doc_id, Kind.ADDED if line.status == "new" else Kind.UPDATED)
        elif line.status == "unchanged":
            if not self.is_dry:
                self._remember(line.doc_id, version)
            self._count_unchanged(line.doc_id)
        else:
            self._fail(item, line.doc_id, line.reason)

    def _fail(self, item: Item, doc_id: str, reason: str) -> None:
        """Note why an item is not taken. What came of it before stays, under another prefix too: it is still listed."""
        if item.id in self.known:
            self.seen.add(self.known[item.id].doc_id)
        self._tell(doc_id, Kind.FAILED, reason)

    def _remember(self, doc_id: str, version: str) -> None:
        """The same bytes under another version."""
        FetchedSource.objects.filter(
            document__collection=self.collection, document__doc_id=doc_id, endpoint=self.source.endpoint
        ).update(etag=version, checked_at=timezone.now())

    def _open_batch(self) -> IngestBatch:
        if self.batch is None:
            self.batch = open_batch(self.collection, kind=IngestBatch.Kind.SYNC, label=self.source.name)
            self.progress.write(report=self.run_row.report | {"batch_id": str(self.batch.pk)})
        return self.batch

    def _delete_missing(self) -> None:
        own = sum(each.is_own for each in self.known.values())
        missing = self._find_missing(~Q(doc_id__in=self.seen))
        agreed = set(self.run_row.arguments["agreed"] or ())
        if 2 * len(missing) > own and not agreed.issuperset(missing):
            for doc_id in missing:
                self._tell(doc_id, Kind.HELD)
            return
        for begin in range(0, len(missing), DELETED_AT_ONCE):
            self.advance(0, 0)
            names = missing[begin : begin + DELETED_AT_ONCE]
            with transaction.atomic():
                for doc_id in names if self.is_dry else self._delete(names):
                    self._tell(doc_id, Kind.DELETED)

    def _find_missing(self, of: Q) -> list[str]:
        """Those of the documents that still are what came from the source and that nothing brings at the moment."""
        return [line.doc_id for line in find_missing(self.collection, came_from(self.source.endpoint) & of)]

    def _delete(self, names: list[str]) -> list[str]:
        """Those that still are what came from the source and that nothing brings at the moment."""
        lock_documents(self.collection, names)
        self.progress.lease.check()
        gone = self._find_missing(Q(doc_id__in=names))
        if gone:
            trash_documents(self.collection, gone)
            if self.batch is not None:
                count_outcomes(self.batch, (), deleted=len(gone))
        return gone

    def _tell(self, doc_id: str, kind: str, reason: str = "") -> None:
        """Note a change; what an interrupted attempt has noted as done stays."""
        earlier = self.told.get(doc_id)
        if earlier in (Kind.ADDED, Kind.UPDATED, Kind.DELETED) and kind in (Kind.UPDATED, Kind.ADDED):
            return
        self.told[doc_id] = kind
        SourceChange.objects.update_or_create(
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
            self.progress.write(done=self.done)
            self.progress.succeed(self.run_row.report | totals)
            if self.is_dry:
                return
            Source.objects.filter(pk=self.source.pk).update(
                last_success=now, last_error="", waits=bool(changes[Kind.HELD])
            )
            if any(changes.values()) or self.source.last_error:
                services.record_event(
                    None, "source.sync", f"synced {self.source.name}", subject=self.source, after=totals
                )
            self._forget_runs(changed_nothing=not any(changes.values()))

    def fail(self, kind: str, message: str) -> ServiceError:
        """Note how far it came and raise the alarm; returns the error that ends the operation."""
        self.progress.write(done=self.done, report=self.run_row.report | count_changes(self.run_row))
        self.run_row.error = message
        raise_alarm(self.run_row)
        return ServiceError(message, type=kind, status=422)

    def _forget_runs(self, *, changed_nothing: bool) -> None:
        """Of syncs by the schedule that changed nothing only the newest is kept, of all the newest 100."""
        others = self.source.runs.filter(finished_at__isnull=False).exclude(pk=self.run_row.pk)
        if changed_nothing and self.run_row.created_by == name_actor(None):
            by_schedule = others.filter(state=Operation.State.SUCCEEDED, created_by=name_actor(None))
            by_schedule.filter(report__contains={"dry_run": False} | dict.fromkeys(Kind.values, 0)).delete()
        kept = self.source.runs.values_list("pk", flat=True)[:RUNS_KEPT]
        others.exclude(pk__in=list(kept)).delete()

    def _shown_id(self, item: Item) -> str:
        return clean_line(self.source.prefix + item.id)[:DOC_ID_MAX_CHARS] or "?"

    def _load_known(self) -> dict[str, _Known]:
        """Item id -> what came of it."""
        rows = FetchedSource.objects.filter(
            document__collection=self.collection, kind=FetchedSource.Kind.SYNC, endpoint=self.source.endpoint
        ).values_list(
            "address", "document__doc_id", "etag", "sha256", "document__source_hash", "document__state"
        )  # fmt: skip
        return {
            address: _Known(doc_id, version, sha256 == present and state != Document.State.ARCHIVED)
            for address, doc_id, version, sha256, present, state in rows
        }

    def _load_failed(self) -> dict[tuple[str, str], str]:
        """(doc_id, version) of what could not be ingested -> why. Its job can be retried; another version comes."""
        rows = IngestJob.objects.filter(
            collection=self.collection, state__in=TROUBLED_STATES, origin__endpoint=self.source.endpoint
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
