"""Another file for a document, or for a job that failed: under the same document ID, whatever the file is called.

A password is handed to the parser's child process and kept nowhere; what is stored is the copy without it.
"""

from __future__ import annotations

from dataclasses import replace

from django.conf import settings
from django.db import transaction

from collections_app.access.context import current_access, elevated, require
from collections_app.access.document_access import sent_by
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.documents.files import open_content, parse_limits, store_upload
from collections_app.documents.services import get_document
from collections_app.documents.stored_documents import lock_documents
from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError
from collections_app.jobs.queue import check_queue, supersede_jobs
from collections_app.jobs.recovery import queue_again
from collections_app.models import Collection, IngestJob, Upload
from collections_app.uploads.options import ARCHIVE
from collections_app.uploads.plan import Entry, RefusedError, check_size
from collections_app.uploads.services import HeldFile, UploadedFile, UploadOutcome, submit_uploads
from ragd.errors import InvalidInput
from ragd.readers import ParseError, archive_type, unlock

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
