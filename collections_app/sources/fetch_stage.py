"""The stage fetch of a job: an address or an object of a bucket becomes a file of its document.

What came is kept with the job, so that an attempt that follows goes on from there; what is known of the source is kept
with the document, so that what has not changed costs one question the next time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from collections_app.documents.files import find_upload, require_upload, store_upload
from collections_app.errors import ServiceError
from collections_app.jobs.attempts import JobProgress
from collections_app.models import Collection, Document, FetchedSource, IngestJob, Upload
from collections_app.sources.buckets import read_object
from collections_app.sources.web_client import read_page
from collections_app.uploads.options import S3, SYNC
from collections_app.uploads.services import archive_origin
from ragd import telemetry
from ragd.readers import archive_type
from ragd.readers.fetching import FetchError, FetchResult

TOO_LONG = timedelta(days=1)
FOUND = ("etag", "last_modified", "final_address")  # what a server tells when something is fetched


def fetch_source(collection: Collection, job: IngestJob, progress: JobProgress) -> Upload:
    """The file that the job's origin names, fetched unless an earlier attempt did so, or nothing changed since.

    What a sync brought is there already: only the sync can read its source. Raises FetchError, and LeaseLostError when
    the job was cancelled meanwhile.
    """
    if job.upload_id and job.attempts > 1 and (upload := find_upload(collection, job.upload_id)):
        return upload
    progress.enter(IngestJob.Stage.FETCH)
    if job.origin.type == SYNC:
        return require_upload(collection, job.upload_id)
    if job.started_at and timezone.now() - job.started_at > TOO_LONG:
        raise FetchError(
            "waited_too_long",
            "the site put this off for more than a day; retry the job later, or download the file and upload it",
        )
    known = _known_source(collection, job)
    with telemetry.fetch_span(address=job.origin.address) as span:
        if job.origin.type == S3:
            fetch_result = read_object(job.origin, known, progress)
        else:
            fetch_result = read_page(job.origin.address, known, progress)
        size = None if fetch_result.content is None else len(fetch_result.content)
        telemetry.record_counts(span, size_bytes=size, unchanged=fetch_result.content is None)
    return _keep(collection, job, progress, fetch_result)


def remember_source(collection: Collection, job: IngestJob, upload: Upload) -> None:
    """Keep with the stored document where it came from, for the next time. Without such a document nothing is done."""
    made_of = Document.objects.filter(collection=collection, doc_id=job.doc_id, source_hash=upload.sha256)
    document_id = made_of.values_list("pk", flat=True).first()
    if document_id is None:
        return
    origin = job.origin
    values = {name: getattr(origin, name) for name in ("address", "endpoint", *FOUND)}
    values |= {"kind": origin.type, "sha256": upload.sha256, "size_bytes": upload.size_bytes}
    FetchedSource.objects.update_or_create(document_id=document_id, defaults=values | {"checked_at": timezone.now()})


def _known_source(collection: Collection, job: IngestJob) -> FetchedSource | None:
    """What is known of the same source, while the document still is what came from it and its file is kept."""
    known = FetchedSource.objects.filter(
        document__collection=collection,
        document__doc_id=job.doc_id,
        address=job.origin.address,
        endpoint=job.origin.endpoint,
    )
    record = known.first()
    if record is None:
        return None
    same = Document.objects.filter(pk=record.document_id, source_hash=record.sha256)
    stored = Upload.objects.of_document(collection.pk, job.doc_id).filter(sha256=record.sha256)
    return record if same.exists() and stored.exists() else None


def _keep(collection: Collection, job: IngestJob, progress: JobProgress, fetch_result: FetchResult) -> Upload:
    """Store the bytes as the job's file, or take the file that is there; and with the job what is known of them."""
    job.origin = replace(job.origin, **{name: getattr(fetch_result, name) for name in FOUND})
    with transaction.atomic():
        progress.hold()
        if fetch_result.content is None:
            upload = _unchanged(collection, job, fetch_result.sha256)
        else:
            upload = store_upload(collection, job.doc_id, fetch_result.name, fetch_result.content)
            if archive_type(fetch_result.content, fetch_result.name):
                job.kind, job.origin = IngestJob.Kind.ARCHIVE, archive_origin(job.origin, job.doc_id)
        IngestJob.objects.filter(pk=job.pk).update(upload=upload.pk, origin=job.origin, kind=job.kind)
    job.upload_id = upload.pk
    return upload


def _unchanged(collection: Collection, job: IngestJob, sha256: str) -> Upload:
    rows = Upload.objects.listed().of_document(collection.pk, job.doc_id).filter(sha256=sha256)
    upload = rows.order_by("-pk").first()
    if upload is None:
        raise ServiceError(
            "the file of this document went while its source was asked; retry the job", type="upload_gone", status=409
        )
    return upload
