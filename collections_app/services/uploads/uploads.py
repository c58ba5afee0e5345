"""Uploaded files: each accepted or refused on its own, all of them committed together with their jobs.

A batch is what was asked for in one go, also when it comes in many small requests.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from django.db import transaction
from django.db.models import F

from collections_app.access_context import Access, elevated
from collections_app.advisory_locks import lock_names, named, submission_seed, try_lock
from collections_app.domain.identity import clean_line
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import Collection, IngestBatch, IngestJob, Upload
from collections_app.models.library import name_actor
from collections_app.parsing import archive_type
from collections_app.services.documents.files import store_upload
from collections_app.services.governance import audit
from collections_app.services.governance.document_access import Codes
from collections_app.services.governance.waiting_lists import hold_list, sender_of
from collections_app.services.indexing.stored_documents import lock_documents
from collections_app.services.jobs.queue import check_queue, send_jobs, supersede_jobs
from collections_app.services.uploads.current_state import Labels, RequestedMetadata
from collections_app.services.uploads.upload_plan import (
    Entry,
    PlanLine,
    Planner,
    check_clash,
    folder_of,
    is_refused,
    wanted_id,
)
from collections_app.work.leases import cancel
from ragd import telemetry
from ragd.errors import InvalidInput

LABEL_MAX_CHARS = 200
NOTHING: Mapping[str, Any] = MappingProxyType({})
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
    """What became of one file.

    status: "queued" with its job, "unchanged" (with the job that brings the same bytes, when one does), "skipped", or
    "rejected" with error and error_type. plan: the word of the plan, such as "new" or "renamed". doc_id: the one that
    it got. reason: why, where it is not plain.
    """

    name: str
    doc_id: str
    status: str
    job: IngestJob | None = None
    error: str = ""
    error_type: str = ""
    plan: str = ""
    reason: str = ""
    batch: IngestBatch | None = None


@dataclass(frozen=True, slots=True)
class UploadItem:
    """A file as `enqueue_files` gets it. origin: of its job; a "prefix" there is the folder of an archive's members.

    source: the address that it was fetched from; its job is one of kind FETCH then. title: "": what the file says.
    error: the file is refused with it.
    """

    file: UploadedFile
    doc_id: str = ""
    on_clash: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict)
    error_type: str = ""
    error: str = ""
    source: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """What holds for all files of a submission. asker: who sends them; None: who asks. follows: the files are
    attachments, which have the list of what they were attached to from now on."""

    asked: RequestedMetadata
    on_clash: str = "replace"
    batch: IngestBatch | None = None
    created_by: str = ""
    asker: Access | None = None
    follows: bool = False


def submit_uploads(
    collection: Collection,
    files: Sequence[UploadedFile],
    *,
    doc_ids: Sequence[str] = (),
    tags: Sequence[str] | None = (),
    metadata: Mapping[str, Any] | None = NOTHING,
    policy: Mapping[str, Any] | None = None,
    on_clash: str = "replace",
    choices: Sequence[str] = (),
    batch: IngestBatch | None = None,
    label: str = "",
    kind: str = IngestBatch.Kind.UPLOAD,
    more: bool = False,
    language: str | None = None,
    access: Codes | None = None,
    actor: audit.Actor = None,
) -> list[UploadOutcome]:
    """Queue one job per file that brings something; one outcome per file, in order.

    doc_ids: one per file, "" or none for its own name. tags, metadata, language: of every document; None: what it has
    stays. access: who may read every one of them, as `document_access.resolve` gives it; None: as it is.
    on_clash: what happens to a file whose doc_id has other content: "replace" it, "skip" the file, or "keep_both" under
    the next free number; choices: the same per file, "" for on_clash. The same bytes with the same tags, metadata and
    policy make no job. A ZIP or TAR makes one job that unpacks it, and its members are treated the same way. Bytes and
    jobs are committed together, before anything is sent to the broker; a file of the same document that is still under
    way is superseded. batch: what all this is added to; None: one of its own, of a kind and with a label, which stays
    open when more is to come. ServiceError 429 when the queue would become too deep, 409 for a batch that is closed.
    """
    check_clash(on_clash)
    requested, clashes = check_counts(files, doc_ids, choices)
    asked = RequestedMetadata.read(tags, metadata, policy, language, access)
    check_queue(len(files), sum(file.size or 0 for file in files))
    offered = [UploadItem(*each) for each in zip(files, requested, clashes, strict=True)]
    with transaction.atomic():
        own = batch is None
        batch = batch or open_batch(collection, kind=kind, label=label or _label(files), more=more, actor=actor)
        terms = UploadOptions(asked, on_clash, batch, name_actor(actor))
        outcomes = enqueue_files(collection, offered, terms)
        if not own:
            require_open(batch)
        note_files(collection, batch, outcomes, actor)
    return outcomes


def note_files(
    collection: Collection, batch: IngestBatch, outcomes: Sequence[UploadOutcome], actor: audit.Actor
) -> None:
    """One event for the files of one request: how many came to what, and the ids of the first of them."""
    counts = Counter(outcome.status for outcome in outcomes)
    shown = [outcome.doc_id for outcome in outcomes[:NOTED_MAX]]
    audit.record_event(
        actor,
        "document.upload",
        f"uploaded {len(outcomes)} files",
        subject=batch,
        collection=collection,
        after={"files": len(outcomes), "outcomes": dict(counts), "doc_ids": shown},
    )


def check_counts(
    files: Sequence[UploadedFile], doc_ids: Sequence[str], choices: Sequence[str]
) -> tuple[list[str], list[str]]:
    """One doc_id and one choice per file, "" where nothing is said. InvalidInput for other counts or choices."""
    for name, values in (("doc_ids", doc_ids), ("on_clash", choices)):
        if values and len(values) != len(files):
            raise InvalidInput(f"{name} must name every file: {len(files)} files, {len(values)} of them", field=name)
    for choice in filter(None, choices):
        check_clash(choice)
    return list(doc_ids) or [""] * len(files), list(choices) or [""] * len(files)


def enqueue_files(collection: Collection, offered: Sequence[UploadItem], terms: UploadOptions) -> list[UploadOutcome]:
    """`submit_uploads` inside the caller's transaction. Two submissions of the same document come one after the other.

    One file's bytes are in memory at a time, unless the caller holds more.
    """
    seed = submission_seed(collection.pk)
    planner = Planner(
        collection,
        terms.asked,
        on_clash=terms.on_clash,
        is_free=lambda doc_id: try_lock(named(seed, doc_id)),
        asker=terms.asker,
    )
    names = [wanted_id(_entry(each, each.file.size or 0)) for each in offered]
    lock_doc_ids(collection, filter(None, names))
    planner.load(names)
    outcomes = [_enqueue_file(collection, each, planner, terms) for each in offered]
    jobs = [outcome.job for outcome in outcomes if outcome.job is not None and outcome.status == "queued"]
    files = [job.doc_id for job in jobs if job.kind != IngestJob.Kind.ARCHIVE]
    archives = [job.doc_id for job in jobs if job.kind == IngestJob.Kind.ARCHIVE]
    supersede_jobs(collection, files, SUPERSEDED)
    older = IngestJob.objects.active().filter(collection=collection, kind=IngestJob.Kind.ARCHIVE)
    cancel(older.filter(doc_id__in=archives), "superseded by a newer upload of the same archive")
    with elevated(Permission.WRITE, collection.pk):
        IngestJob.objects.bulk_create(jobs)
    if terms.batch is not None:
        count_outcomes(terms.batch, [outcome.status for outcome in outcomes])
    send_jobs([job.pk for job in jobs])
    return outcomes


def _enqueue_file(collection: Collection, offered: UploadItem, planner: Planner, terms: UploadOptions) -> UploadOutcome:
    name = offered.file.name or "file"
    if offered.error:
        doc_id = wanted_id(_entry(offered, 0)) or offered.doc_id
        return UploadOutcome(
            name, doc_id, "rejected", error=offered.error, error_type=offered.error_type, plan="rejected",
            batch=terms.batch,
        )  # fmt: skip
    entry = _entry(offered, offered.file.size or 0)
    content = b"" if is_refused(entry) else offered.file.read()
    is_archive = bool(content) and bool(archive_type(content, name))
    sha256 = hashlib.sha256(content).hexdigest()
    line = planner.decide(replace(entry, sha256=sha256), is_archive=is_archive)
    if line.status == "rejected":
        return UploadOutcome(
            name, offered.doc_id, "rejected", error=line.reason, error_type=line.error_type, plan="rejected",
            batch=terms.batch,
        )  # fmt: skip
    job = None
    if line.is_sent:
        labels = planner.labels_of(line)
        held = hold_list(collection, line.doc_id, terms.asked.access, labels[1], follows=terms.follows)
        with elevated(Permission.WRITE, collection.pk):  # who sends it need not be of those who may read it then
            upload = store_upload(collection, line.doc_id, name, content, sha256=sha256)
        job = _job(collection, line, upload, offered, terms, labels, is_archive=is_archive)
        job.origin |= sender_of(planner.asker, held)
    elif line.job_id:
        job = IngestJob.objects.filter(pk=line.job_id).first()
    status = "queued" if line.is_sent else line.status
    return UploadOutcome(name, line.doc_id, status, job, plan=line.status, reason=line.reason, batch=terms.batch)


def _job(
    collection: Collection,
    line: PlanLine,
    upload: Upload,
    offered: UploadItem,
    terms: UploadOptions,
    labels: Labels,
    *,
    is_archive: bool,
) -> IngestJob:
    origin = dict(offered.origin)
    if terms.asked.language is not None:
        origin["language"] = terms.asked.language
    if terms.asked.access is not None and not terms.follows:
        origin["access"] = list(terms.asked.access)
    if is_archive:
        origin = {"prefix": folder_of(line.doc_id)} | origin | {"type": "archive", "done": 0}
        origin["on_clash"] = offered.on_clash or terms.on_clash
        origin["unsaid"] = [name for name in ("tags", "metadata") if getattr(terms.asked, name) is None]
    kind = IngestJob.Kind.FETCH if offered.source else IngestJob.Kind.FILE
    return IngestJob(
        collection=collection,
        kind=IngestJob.Kind.ARCHIVE if is_archive else kind,
        doc_id=line.doc_id,
        title=offered.title,
        tags=labels[0],
        metadata=labels[1],
        policy=terms.asked.policy,
        source=offered.source or upload.name,
        origin=origin,
        batch=terms.batch,
        upload=upload,
        traceparent=telemetry.current_traceparent(),
        created_by=terms.created_by,
    )


def _entry(offered: UploadItem, size: int) -> Entry:
    return Entry(offered.doc_id, "", size, offered.file.name or "file", offered.on_clash)


def _label(files: Sequence[UploadedFile]) -> str:
    return (files[0].name or "file") if len(files) == 1 else f"{len(files)} files"


def open_batch(
    collection: Collection,
    *,
    kind: str = IngestBatch.Kind.UPLOAD,
    label: str = "",
    more: bool = True,
    actor: audit.Actor = None,
) -> IngestBatch:
    """A batch. more: further requests may add to it, until `close_batch`."""
    return IngestBatch.objects.create(
        collection=collection,
        kind=kind,
        label=clean_line(label[:LABEL_MAX_CHARS]),
        open=more,
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
            status=409,
            field="batch",
        )


def find_batch(collection: Collection, batch_id: uuid.UUID | str) -> IngestBatch:
    """A batch of this collection, or ServiceError 404."""
    try:
        record = IngestBatch.objects.filter(collection=collection, pk=uuid.UUID(str(batch_id))).first()
    except ValueError:
        record = None
    if record is None:
        raise ServiceError(
            f"collection {collection.name!r} has no batch {str(batch_id)[:80]!r}; use the batch_id of its first answer",
            type="unknown_batch",
            status=404,
            field="batch",
        )
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
