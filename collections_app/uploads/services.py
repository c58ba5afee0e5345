"""Uploaded files: each accepted or refused on its own, all of them committed together with their jobs.

A batch is what was asked for in one go, also when it comes in many small requests.

Files that a document carries, as documents of their own: "<document>/<name>" with its id in their metadata.

Another file for a document, or for a job that failed: under the same document ID, whatever the file is called.

A password is handed to the parser's child process and kept nowhere; what is stored is the copy without it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from django.conf import settings
from django.db import transaction
from django.db.models import F

from collections_app.access.context import Access, current_access, elevated, require
from collections_app.access.document_access import access_of_sender, hold_list, lists_of, sent_by
from collections_app.access.permissions import Permission
from collections_app.advisory_locks import lock_names, named, submission_seed, try_lock
from collections_app.audit import services
from collections_app.chunks.policies import check_policy, window_of
from collections_app.collections.models import name_actor
from collections_app.collections.services import check_quota
from collections_app.documents.files import open_content, parse_limits, store_upload
from collections_app.documents.services import delete_documents, get_document
from collections_app.documents.stored_documents import PARENT, attachments_of, lock_documents
from collections_app.domain.formats import MEGABYTE, counted
from collections_app.errors import ServiceError, UnknownError
from collections_app.index.ingestion import CommitHook
from collections_app.jobs.leases import cancel
from collections_app.jobs.queue import check_queue, send_jobs, supersede_jobs
from collections_app.jobs.recovery import queue_again
from collections_app.models import Collection, IngestBatch, IngestJob, Upload
from collections_app.uploads.options import ARCHIVE, ATTACHMENT, NOTHING_STATED, IngestOptions, Origin, check_clash
from collections_app.uploads.plan import (
    Entry,
    PlanLine,
    Planner,
    RefusedError,
    check_size,
    folder_of,
    is_refused,
    wanted_id,
)
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.identity import clean_line
from ragd.readers import Attachment, ParseError, archive_type, is_image, is_readable, unlock
from ragd.readers import signatures as types

LABEL_MAX_CHARS = 200
COUNTED = ("skipped", "unchanged", "rejected")
SUPERSEDED = "superseded by a newer upload of the same document"
NOTED_MAX = 20  # documents that the audit log names of one upload


class UploadedFile(Protocol):
    """What a browser or a client sent; Django's UploadedFile is one."""

    @property
    def name(self) -> str | None: ...
    @property
    def size(self) -> int | None: ...
    def read(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine, read when its turn comes. name: what it is called in the collection."""

    path: Path
    name: str

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def read(self) -> bytes:
        return self.path.read_bytes()


@dataclass(frozen=True, slots=True)
class HeldFile:
    """Bytes that are in memory already, as a file."""

    name: str
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self) -> bytes:
        return self.content


@dataclass(frozen=True, slots=True)
class UploadOutcome:
    """What became of one entry: its line of the plan, and its job.

    status: "queued" with its job, "unchanged" (the line names the job that brings the same bytes, when one does),
    "skipped", or "rejected" with error and error_type. plan: the word of the plan, such as "new" or "renamed".
    """

    line: PlanLine
    job: IngestJob | None = None
    batch: IngestBatch | None = None

    @property
    def name(self) -> str:
        return self.line.name

    @property
    def doc_id(self) -> str:
        return self.line.doc_id

    @property
    def status(self) -> str:
        return "queued" if self.line.is_sent else self.line.status

    @property
    def plan(self) -> str:
        return self.line.status

    @property
    def error_type(self) -> str:
        return self.line.error_type

    @property
    def error(self) -> str:
        return self.line.reason if self.line.error_type else ""

    @property
    def reason(self) -> str:
        return "" if self.line.error_type else self.line.reason


@dataclass(frozen=True, slots=True)
class Submission:
    """What holds for all entries that are submitted together. options: cleaned. asker: who sends them; None: who asks.

    batch: a function opens it for the first job; entries without any job are not counted then. follows: the files are
    attachments, which have the list of what they were attached to from now on.
    """

    options: IngestOptions
    batch: IngestBatch | Callable[[], IngestBatch] | None = None
    created_by: str = ""
    asker: Access | None = None
    follows: bool = False


def submit_uploads(
    collection: Collection,
    files: Sequence[UploadedFile],
    options: IngestOptions = NOTHING_STATED,
    *,
    doc_ids: Sequence[str] = (),
    choices: Sequence[str] = (),
    batch: IngestBatch | None = None,
    actor: services.Actor = None,
) -> list[UploadOutcome]:
    """Queue one job per file that brings something; one outcome per file, in order.

    doc_ids: one per file, "" or none for its own name. choices: `on_clash` per file, "" for that of the options. The
    same bytes with the same tags, metadata and policy make no job. A ZIP or TAR makes one job that unpacks it, and its
    members are treated the same way. Bytes and jobs are committed together, before anything is sent to the broker; a
    file of the same document that is still under way is superseded. batch: what all this is added to, whose options
    come before these; None: one of its own. ServiceError 429 when the queue would become too deep, 409 for a batch that
    is closed.
    """
    entries = name_files(files, doc_ids, choices)
    options = stated_options(collection, options.overridden(batch.options if batch else {}))
    size = sum(entry.size or 0 for entry in entries)
    check_queue(len(files), size)
    check_quota(collection, size)
    with transaction.atomic():
        own = batch is None
        batch = batch or open_batch(collection, label=label_of(files), more=False, actor=actor)
        submission = Submission(options, batch, name_actor(actor))
        outcomes = enqueue(collection, list(zip(entries, files, strict=True)), submission)
        if not own:
            require_open(batch)
        note_files(collection, batch, outcomes, actor)
    return outcomes


def stated_options(collection: Collection, options: IngestOptions) -> IngestOptions:
    """The options as jobs keep them. Raises InvalidInput, also for a chunk policy that does not fit the collection."""
    cleaned = options.cleaned()
    return replace(cleaned, policy=check_policy(cleaned.policy, window_of(collection)) if cleaned.policy else None)


def note_files(
    collection: Collection, batch: IngestBatch, outcomes: Sequence[UploadOutcome], actor: services.Actor
) -> None:
    """One event for the files of one request: how many came to what, and the ids of the first of them."""
    counts = Counter(outcome.status for outcome in outcomes)
    shown = [outcome.doc_id for outcome in outcomes[:NOTED_MAX]]
    services.record_event(
        actor,
        "document.upload",
        f"uploaded {counted(len(outcomes), 'file')}",
        subject=services.Subject.of(batch, (collection.pk, collection.name)),
        after={"files": len(outcomes), "outcomes": dict(counts), "doc_ids": shown},
    )


def name_files(files: Sequence[UploadedFile], doc_ids: Sequence[str], choices: Sequence[str]) -> list[Entry]:
    """One entry per file, without its hash. InvalidInput for other counts or choices."""
    for name, values in (("doc_ids", doc_ids), ("on_clash", choices)):
        if values and len(values) != len(files):
            raise InvalidInput(f"{name} must name every file: {len(files)} files, {len(values)} of them", field=name)
    for choice in filter(None, choices):
        check_clash(choice)
    named = zip(files, doc_ids or [""] * len(files), choices or [""] * len(files), strict=True)
    return [Entry(doc_id, "", file.size or 0, file.name or "file", choice) for file, doc_id, choice in named]


def enqueue(
    collection: Collection, offered: Sequence[tuple[Entry, UploadedFile | None]], submission: Submission
) -> list[UploadOutcome]:
    """Plan what is offered and make its jobs, inside the caller's transaction; without a file it is to be fetched.

    Two submissions of the same document come one after the other. One file's bytes are in memory at a time, unless the
    caller holds more.
    """
    seed = submission_seed(collection.pk)
    planner = Planner(
        collection, submission.options, is_free=lambda doc_id: try_lock(named(seed, doc_id)), asker=submission.asker
    )
    entries = [entry for entry, _ in offered]
    lock_doc_ids(collection, filter(None, map(wanted_id, entries)))
    planner.load(entries)
    outcomes = [_enqueue_entry(planner, entry, file, submission) for entry, file in offered]
    jobs = [outcome.job for outcome in outcomes if outcome.job is not None]
    batch = submission.batch
    if callable(batch):
        batch = batch() if jobs else None
    for job in jobs:
        job.batch = batch
    files = [job.doc_id for job in jobs if job.kind != IngestJob.Kind.ARCHIVE]
    archives = [job.doc_id for job in jobs if job.kind == IngestJob.Kind.ARCHIVE]
    supersede_jobs(collection, files, SUPERSEDED)
    older = IngestJob.objects.active().filter(collection=collection, kind=IngestJob.Kind.ARCHIVE)
    cancel(older.filter(doc_id__in=archives), "superseded by a newer upload of the same archive")
    with elevated(Permission.WRITE, collection.pk):
        IngestJob.objects.bulk_create(jobs)
    if batch is not None:
        count_outcomes(batch, [outcome.status for outcome in outcomes])
    send_jobs([job.pk for job in jobs])
    return [replace(outcome, batch=batch) for outcome in outcomes]


def _enqueue_entry(planner: Planner, entry: Entry, file: UploadedFile | None, submission: Submission) -> UploadOutcome:
    collection = planner.collection
    content = b"" if file is None or is_refused(entry) else file.read()
    is_archive = bool(content) and bool(archive_type(content, entry.name))
    if file is not None:
        entry = replace(entry, sha256=hashlib.sha256(content).hexdigest())
    line = planner.decide(entry, is_archive=is_archive)
    if not line.is_sent:
        return UploadOutcome(line)
    options = submission.options
    labels = planner.labels_of(line)
    held = hold_list(collection, line.doc_id, options.access, labels[1], follows=submission.follows)
    upload = None
    if file is not None:
        with elevated(Permission.WRITE, collection.pk):  # who sends it need not be of those who may read it then
            upload = store_upload(collection, line.doc_id, entry.name, content, sha256=entry.sha256)
    origin = replace(entry.origin, language=options.language, access=None if submission.follows else options.access)
    if is_archive or entry.origin.is_fetched:  # what is fetched may turn out to be an archive
        unstated = tuple(name for name in ("tags", "metadata") if getattr(options, name) is None)
        origin = replace(origin, on_clash=entry.on_clash or options.on_clash, unstated=unstated)
    if is_archive:
        origin = archive_origin(origin, line.doc_id)
    job = IngestJob(
        collection=collection,
        kind=_kind_of(entry, is_archive=is_archive),
        doc_id=line.doc_id,
        title=entry.title,
        tags=labels[0],
        metadata=labels[1],
        policy=options.policy,
        source=entry.source or entry.origin.address or (upload.name if upload is not None else entry.name),
        origin=sent_by(origin, planner.asker, held),
        upload=upload,
        traceparent=telemetry.current_traceparent(),
        created_by=submission.created_by,
    )
    return UploadOutcome(replace(line, job_id=str(job.pk)), job)


def _kind_of(entry: Entry, *, is_archive: bool) -> str:
    if is_archive:
        return IngestJob.Kind.ARCHIVE
    return IngestJob.Kind.FETCH if entry.origin.is_fetched else IngestJob.Kind.FILE


def archive_origin(origin: Origin, doc_id: str) -> Origin:
    """The origin of the job that unpacks an archive, whose members come beside it unless the origin says where."""
    prefix = folder_of(doc_id) if origin.prefix is None else origin.prefix
    return replace(origin, type=ARCHIVE, prefix=prefix, done=0)


def label_of(files: Sequence[UploadedFile]) -> str:
    """What a batch of these files is called."""
    return (files[0].name or "file") if len(files) == 1 else f"{len(files)} files"


def open_batch(
    collection: Collection,
    *,
    kind: str = IngestBatch.Kind.UPLOAD,
    label: str = "",
    more: bool = True,
    options: IngestOptions | None = None,
    actor: services.Actor = None,
) -> IngestBatch:
    """A batch. more: further requests may add to it, until `close_batch`. options: cleaned, kept for their files."""
    return IngestBatch.objects.create(
        collection=collection,
        kind=kind,
        label=clean_line(label[:LABEL_MAX_CHARS]),
        open=more,
        options=options.as_json() if options else {},
        created_by=name_actor(actor),
    )


def close_batch(batch: IngestBatch) -> None:
    """Nothing more comes. Closing twice is fine."""
    IngestBatch.objects.filter(pk=batch.pk).update(open=False)
    batch.open = False


def require_open(batch: IngestBatch) -> None:
    """ServiceError 409 when a batch was closed or cancelled. After `count_outcomes`: then it stays as it is found."""
    if not IngestBatch.objects.filter(pk=batch.pk, open=True).exists():
        raise ServiceError(
            f"batch {batch.pk} is closed or was cancelled, so nothing is added to it; send the files without it",
            type="batch_closed",
            field="batch",
        )


def find_batch(collection: Collection, batch_id: uuid.UUID | str) -> IngestBatch:
    """A batch of this collection, or ServiceError 404."""
    try:
        record = IngestBatch.objects.get(collection=collection, pk=uuid.UUID(str(batch_id)))
    except (ValueError, IngestBatch.DoesNotExist):
        raise UnknownError(
            "batch",
            f"collection {collection.name!r} has no batch {str(batch_id)[:80]!r}; use the batch_id of its first answer",
            field="batch",
        ) from None
    record.collection = collection
    return record


def count_outcomes(batch: IngestBatch, statuses: Iterable[str], *, deleted: int = 0) -> None:
    """Add to the batch's counts, as the last write of a transaction: others wait for the row."""
    counts = Counter(statuses)
    added = {"submitted": counts.total(), "deleted": deleted} | {name: counts[name] for name in COUNTED}
    changes = {name: F(name) + number for name, number in added.items() if number or name == "submitted"}
    IngestBatch.objects.filter(pk=batch.pk).update(**changes)


def lock_doc_ids(collection: Collection, doc_ids: Iterable[str]) -> None:
    """Wait until nobody else submits these documents, until the transaction ends.

    Raises UnknownCollection when the collection is being deleted.
    """
    lock_names(submission_seed(collection.pk), doc_ids)
    lock_documents(collection, [])


# Formats of documents that can carry files.
CARRIER_TYPES = frozenset({
    types.EML, types.MBOX, types.MSG, types.PDF, types.DOCX, types.PPTX, types.XLSX, types.XLSB, types.XLS,
    types.ODT, types.ODP,
})  # fmt: skip
LEVELS_MAX = 10  # of documents inside documents


def attach(collection: Collection, job: IngestJob, attachments: Sequence[Attachment]) -> CommitHook:
    """A hook that stores the attachments of a document with the document itself.

    Let it come before what holds the job's row: whoever submits the same names waits for that row while holding them.
    """
    return lambda outcome: take_attachments(collection, job, attachments)


def take_attachments(collection: Collection, job: IngestJob, attachments: Iterable[Attachment]) -> None:
    """Make the documents under a document those that it carries now. The caller holds the transaction and its lock.

    What no reader takes, such as pictures, is passed over, and so is what lies deeper than LEVELS_MAX documents. Each
    one comes with the document's tags, metadata, stated language and access list, and in its batch. Documents of
    earlier attachments that are not there any more go.
    """
    parent = job.doc_id
    level = job.origin.level + 1
    selected = [each for each in attachments if each.data and _is_taken(each)] if level <= LEVELS_MAX else []
    offered = [_offer(parent, each, level) for each in selected]
    present = {entry.doc_id for entry, _ in offered}
    folders = tuple(f"{entry.doc_id}/" for entry, _ in offered if entry.origin.prefix)
    before = attachments_of(collection, [parent])
    gone = [doc_id for doc_id in before if doc_id not in present and not (folders and doc_id.startswith(folders))]
    if gone:
        delete_documents(collection, gone)
    if offered:
        listed = lists_of(collection, [parent]).get(parent)
        options = IngestOptions(
            tags=list(job.tags),
            metadata=dict(job.metadata) | {PARENT: parent},
            policy=job.policy or None,
            language=job.origin.language,
            access=listed.codes if listed else None,
        )
        sender = access_of_sender(job.origin)
        enqueue(collection, offered, Submission(options, job.batch, job.created_by, sender, follows=True))


def _is_taken(attachment: Attachment) -> bool:
    """Pictures in mails are signatures and photographs far more often than scans."""
    if is_image(attachment.media_type):
        return False
    return is_readable(attachment.media_type) or bool(archive_type(attachment.data, attachment.name))


def _offer(parent: str, attachment: Attachment, level: int) -> tuple[Entry, HeldFile]:
    doc_id = f"{parent}/{attachment.name}"
    is_archive = bool(archive_type(attachment.data, attachment.name))
    origin = Origin(ATTACHMENT, of=parent, level=level, prefix=f"{doc_id}/" if is_archive else None)
    file = HeldFile(attachment.name, attachment.data)
    return Entry(doc_id, "", file.size, file.name, origin=origin), file


Kind, State = IngestJob.Kind, IngestJob.State


def replace_file(job: IngestJob, file: UploadedFile, *, actor: services.Actor = None) -> IngestJob:
    """Run a failed job again with another file, whatever that is called. Its document keeps ID, tags and metadata.

    An archive takes the place of an archive only, and a document that of a document. Raises InvalidInput for a file
    that is not taken, ServiceError 409 for a job that has not failed or whose document is gone, 429 for a full queue.
    """
    require(Permission.WRITE, job.collection_id)
    name = file.name or "file"
    try:
        check_size(Entry(job.doc_id, "", file.size or 0, name))
    except RefusedError as refusal:
        raise InvalidInput(refusal.message, field="file") from None
    content = file.read()
    if bool(archive_type(content, name)) != (job.kind == Kind.ARCHIVE):
        wanted = "an archive" if job.kind == Kind.ARCHIVE else "one document"
        raise InvalidInput(f"{name} cannot replace this file: {wanted} was expected", field="file")
    return _run_with(job, HeldFile(name, content), "uploaded a replacement", actor)


def unlock_file(job: IngestJob, password: str, *, actor: services.Actor = None) -> IngestJob:
    """Run a job again that failed on a password, with a copy of its file that has none.

    Raises InvalidInput for a password that does not open the file or a format whose protection is not read,
    ServiceError 409 for a job that has not failed or whose file is gone.
    """
    require(Permission.WRITE, job.collection_id)
    upload = Upload.objects.listed().filter(pk=job.upload_id or 0).first()
    if upload is None or job.error_type != "encrypted":
        raise _refused(job)
    if not password:
        raise InvalidInput("type the password of the file", field="password")
    try:
        with open_content(upload.pk) as locked:
            content = unlock(locked, upload.name, password, limits=parse_limits())
    except ParseError as error:
        raise InvalidInput(error.message, field="password") from None  # whose cause may hold what was typed
    return _run_with(job, HeldFile(upload.name, content), "unlocked the file", actor)


def dismiss_job(job: IngestJob, *, actor: services.Actor = None) -> None:
    """Give up a file that failed: its bytes are deleted and its job counts as cancelled. ServiceError 409 otherwise."""
    require(Permission.WRITE, job.collection_id)
    with transaction.atomic():
        current = _hold(job)
        IngestJob.objects.filter(pk=current.pk).update(state=State.CANCELLED, upload=None)
        _drop(current.upload_id)
        services.record(actor, [current], services.CHANGE, f"dismissed by {name_actor(actor)}")


def replace_document(
    collection: Collection, doc_id: str, file: UploadedFile, *, actor: services.Actor = None
) -> UploadOutcome:
    """Queue a file, whatever it is called, as the next revision of a document, which keeps tags, metadata and list.

    The outcome is "queued" or "unchanged". Raises ServiceError 404 for an unknown document, InvalidInput for a file
    that is not taken.
    """
    require(Permission.WRITE, collection.pk)
    get_document(collection, doc_id)
    name = file.name or "file"
    content = file.read() if (file.size or 0) <= settings.RAGD_MAX_DOCUMENT_MB * MEGABYTE else b""
    if archive_type(content, name):
        raise InvalidInput(f"{name} is an archive of several files; choose one document", field="file")
    files: list[UploadedFile] = [HeldFile(name, content)] if content else [file]
    (outcome,) = submit_uploads(collection, files, doc_ids=[doc_id], actor=actor)
    if outcome.status == "rejected":
        raise InvalidInput(outcome.error, field="file")
    return outcome


def _run_with(job: IngestJob, file: HeldFile, message: str, actor: services.Actor) -> IngestJob:
    check_queue(1, file.size)
    with transaction.atomic():
        lock_documents(job.collection, [])
        current = _hold(job)
        supersede_jobs(job.collection, [job.doc_id], "superseded by a newer upload of the same document")
        with elevated(Permission.WRITE, job.collection_id):  # as for every upload
            upload = store_upload(job.collection, current.doc_id, file.name, file.content)
        origin = sent_by(current.origin.without_source, current_access(), current.origin.held)
        if current.kind == Kind.ARCHIVE:
            origin = replace(origin, type=ARCHIVE, done=0)
        kind = Kind.FILE if current.kind == Kind.FETCH else current.kind
        values = {"origin": origin, "upload": upload, "source": file.name}
        IngestJob.objects.filter(pk=current.pk).update(kind=kind, created_by=name_actor(actor), **values)
        _drop(current.upload_id)
        queue_again([current])
        services.record(actor, [current], services.CHANGE, message)
    current.refresh_from_db()
    return current


def _hold(job: IngestJob) -> IngestJob:
    """The row, held; ServiceError 409 unless it is of a file that failed."""
    rows = IngestJob.objects.troubled().files().select_for_update(of=("self",))
    current = rows.filter(pk=job.pk).first()
    if current is None:
        raise _refused(job)
    return current


def _refused(job: IngestJob) -> ServiceError:
    return ServiceError(f"the job of {job.doc_id!r} has no file that failed by now; look at it again")


def _drop(upload_id: int | None) -> None:
    """The file that failed, unless another job needs it."""
    Upload.objects.filter(pk=upload_id or 0, jobs=None).delete()
