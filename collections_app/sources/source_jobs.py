"""What this server may read: buckets, its own with its keys and others without or with keys of their own, pages and
folders.

Documents that are fetched from lists of addresses and from prefixes of buckets, as one job each.

The stage fetch of a job: an address or an object of a bucket becomes a file of its document. What came is kept with the
job, so that an attempt that follows goes on from there; what is known of the source is kept with the document, so that
what has not changed costs one question the next time.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.documents.files import find_upload, require_upload, store_upload
from collections_app.documents.services import delete_documents
from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError
from collections_app.jobs.attempts import JobProgress
from collections_app.jobs.queue import check_queue
from collections_app.models import Collection, Document, FetchedSource, IngestBatch, IngestJob, Upload
from collections_app.sources.kinds.files import S3Source
from collections_app.sources.kinds.protocol import Item, Reach
from collections_app.sources.web_client import Unwatched, Watcher, make_guard, read_page
from collections_app.uploads.options import NOTHING_STATED, S3, SYNC, URL, IngestOptions, Origin
from collections_app.uploads.plan import Entry, PlanLine, UploadPlan, came_from, find_missing, plan_entries
from collections_app.uploads.services import (
    Submission,
    archive_origin,
    close_batch,
    count_outcomes,
    enqueue,
    open_batch,
    stated_options,
)
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.identity import check_doc_id, clean_line, clean_title, doc_id_from_key
from ragd.readers import archive_type
from ragd.readers.fetching import FetchError, FetchResult, doc_id_of, read_address
from ragd.readers.fetching.buckets import Bucket, BucketKeys

AMAZON = "https://s3.amazonaws.com"
BUCKET_MAX_CHARS = 255


@dataclass(frozen=True, slots=True)
class BucketPrefix:
    """A bucket on a server. endpoint: http(s)://host[:port]; own: whether it is the server's configured one."""

    endpoint: str
    bucket: str
    own: bool


def find_place(bucket: str, endpoint: str = "") -> BucketPrefix:
    """The bucket that is meant. Raises InvalidInput, and ServiceError 403 for one that this server does not give out.

    The server's keys are used at its own endpoint only (RAGD_S3_ENDPOINT, else Amazon's); any other is read without.
    """
    cleaned = bucket.strip()
    if not cleaned or len(cleaned) > BUCKET_MAX_CHARS or "/" in cleaned:
        raise InvalidInput("bucket must be the name of a bucket, without s3:// and without a prefix", field="bucket")
    own = (settings.RAGD_S3_ENDPOINT or AMAZON).rstrip("/")
    chosen = _clean_endpoint(endpoint) if endpoint.strip() else own
    allowed = settings.RAGD_S3_BUCKETS
    if chosen == own and allowed and cleaned not in allowed:
        raise ServiceError(
            f"the bucket {cleaned!r} is not among those that may be read here; an administrator adds it to "
            "RAGD_S3_BUCKETS",
            type="forbidden",
            status=403,
            field="bucket",
        )
    return BucketPrefix(chosen, cleaned, chosen == own)


def _clean_endpoint(text: str) -> str:
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.username:
        raise InvalidInput(
            f"endpoint must be the address of a server, such as https://s3.example.org, not {text[:200]!r}",
            field="endpoint",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def open_bucket(place: BucketPrefix, keys: BucketKeys | None = None) -> Bucket:
    """keys: None for the server's at its own endpoint, and for none elsewhere."""
    if keys is None:
        own = BucketKeys(settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY, settings.AWS_SESSION_TOKEN)
        keys = own if place.own else BucketKeys()
    return Bucket(
        place.endpoint,
        place.bucket,
        guard=None if place.own else make_guard(),
        keys=keys,
        region=settings.AWS_REGION if place.own else "",
        timeout_s=settings.RAGD_FETCH_TIMEOUT_S,
    )


def make_reach(watcher: Watcher | None = None) -> Reach:
    """What sources may reach by the settings of this server. watcher: told while something is read; it may stop."""
    told = watcher or Unwatched()
    return Reach(
        guard=make_guard(),
        max_bytes=settings.RAGD_MAX_DOCUMENT_MB * MEGABYTE,
        timeout_s=settings.RAGD_FETCH_TIMEOUT_S,
        read_page=lambda url: read_page(url, None, told),
        open_bucket=lambda endpoint, bucket, keys: open_bucket(find_place(bucket, endpoint), keys),
        folders=tuple(Path(each) for each in settings.RAGD_SOURCE_FOLDERS),
        advance=told.advance,
    )


def open_prefix(endpoint: str, address: str, watcher: Watcher) -> S3Source:
    """Open what lies under s3://bucket/prefix of a server; this server's keys are used at its own endpoint only."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    values = {"bucket": bucket, "prefix": prefix, "endpoint": endpoint, "access_key": "", "include": ()}
    return S3Source(values, "", make_reach(watcher))


def read_object(origin: Origin, known: FetchedSource | None, watcher: Watcher) -> FetchResult:
    """The object of a job's origin, or that it is still what `known` says. Raises FetchError."""
    key = origin.address.removeprefix("s3://").partition("/")[2]
    if known is not None and origin.version and known.etag == origin.version:
        return FetchResult(key, None, sha256=known.sha256, etag=known.etag)
    try:
        file = open_prefix(origin.endpoint, origin.address, watcher).fetch(Item(key))
    except (InvalidInput, ServiceError) as error:
        raise FetchError("not_allowed", error.message) from None
    return FetchResult(file.name, file.content, etag=origin.version)


ADDRESSES_MAX = 10_000
COLUMNS = ("url", "address", "link", "href")
BEGINNINGS = ("http://", "https://")
LABEL_HOSTS = 3
PREFIX_MAX_CHARS = 1024
REFUSED_AT = {"not_found": 404, "not_allowed": 403, "address_refused": 403, "unknown_host": 422}


@dataclass(frozen=True, slots=True)
class UrlEntry:
    """One address as it was given; doc_id "": made from host and path; title "": what the page says."""

    url: str
    doc_id: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class S3Prefix:
    """A prefix of a bucket as it was given; endpoint "": the server's own."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""


def read_list(text: str) -> list[UrlEntry]:
    """The addresses of a text: one per line, or a CSV with a header that names a column url, address, link or href.

    A CSV may have columns doc_id and title. Empty lines and those that begin with # are passed over. Raises
    InvalidInput when nothing remains.
    """
    lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines()]
    selected = [line for line in lines if line and not line.startswith("#")]
    if not selected:
        raise InvalidInput("give at least one address, one per line", field="urls")
    if not selected[0].lower().startswith(BEGINNINGS) and (table := _read_table(selected)):
        return table
    return [UrlEntry(line) for line in selected]


def _read_table(lines: Sequence[str]) -> list[UrlEntry]:
    """The rows of a CSV with a header, [] when it is none."""
    mark = max(",;\t", key=lines[0].count)
    rows = csv.DictReader(io.StringIO("\n".join(lines)), delimiter=mark)
    names = {(name or "").strip().lower(): name for name in rows.fieldnames or ()}
    column = next((names[name] for name in COLUMNS if name in names), None)
    if column is None:
        return []

    def cell(row: dict[str, Any], name: str | None) -> str:
        return str(row.get(name) or "").strip() if name else ""

    entries = [
        UrlEntry(cell(row, column), cell(row, names.get("doc_id")), cell(row, names.get("title"))) for row in rows
    ]
    return [entry for entry in entries if entry.url]


def submit_urls(
    collection: Collection,
    urls: Sequence[UrlEntry],
    options: IngestOptions = NOTHING_STATED,
    *,
    dry_run: bool = False,
    actor: services.Actor = None,
) -> UploadPlan:
    """Queue one job per acceptable address; one line per address, in order. A wrong one holds up no other.

    dry_run: only the plan. Nothing is asked over the net here. Raises InvalidInput for none or more than 10,000.
    """
    if not 0 < len(urls) <= ADDRESSES_MAX:
        raise InvalidInput(f"urls must be 1 to {ADDRESSES_MAX:,} addresses, not {len(urls):,}", field="urls")
    entries = [_entry_of_url(each) for each in urls]
    if dry_run:
        return UploadPlan(plan_entries(collection, entries, options))
    return _submit(collection, entries, options, kind=IngestBatch.Kind.URLS, label=_label(entries), actor=actor)


def submit_prefix(
    collection: Collection,
    place: S3Prefix,
    options: IngestOptions = NOTHING_STATED,
    *,
    delete_missing: bool = False,
    dry_run: bool = False,
    actor: services.Actor = None,
) -> UploadPlan:
    """List the prefix, compare it with what is stored, and queue one job per new or changed object.

    doc_id is bucket/key. An object whose ETag and size are those that its document was made from is unchanged and not
    downloaded. delete_missing: documents that came from this prefix and are not there any more are deleted; an empty
    listing is refused then, because it would delete all of them. dry_run: only the plan. Raises InvalidInput,
    ServiceError (403, 404, 502 when the server refuses or fails).
    """
    options.cleaned()
    if len(place.prefix) > PREFIX_MAX_CHARS:
        raise InvalidInput(f"prefix must have at most {PREFIX_MAX_CHARS} characters", field="prefix")
    found = find_place(place.bucket, place.endpoint)
    address = f"s3://{found.bucket}/{place.prefix}"
    try:
        items = list(open_prefix(found.endpoint, address, Unwatched()).list_items())
    except FetchError as error:
        status = REFUSED_AT.get(error.kind, 502)
        raise ServiceError(error.message, type=error.kind, status=status, field="bucket") from None
    entries = [_entry_of_object(found.endpoint, item) for item in items]
    missing: list[PlanLine] = []
    if delete_missing:
        if not entries:
            raise InvalidInput(
                f"there is nothing under {place.prefix!r}, so delete_missing would delete every document that came "
                "from there. Check the prefix, or delete the documents themselves",
                field="delete_missing",
            )
        there = Q(fetched__address__in=[entry.origin.address for entry in entries])
        missing = find_missing(collection, came_from(found.endpoint, address) & ~there)
    if dry_run:
        return UploadPlan([*plan_entries(collection, entries, options), *missing])
    return _submit(collection, entries, options, kind=IngestBatch.Kind.S3, label=address, missing=missing, actor=actor)


def _submit(
    collection: Collection,
    entries: Sequence[Entry],
    options: IngestOptions,
    *,
    kind: str,
    label: str,
    missing: Sequence[PlanLine] = (),
    actor: services.Actor,
) -> UploadPlan:
    """Queue one job per entry that the plan sends, in a batch of their own; the missing documents are deleted.

    All of it is committed at once. Raises ServiceError 429 when the queue would become too deep, UnknownCollection.
    """
    options = stated_options(collection, options)
    check_queue(len(entries))
    with transaction.atomic():
        batch = open_batch(collection, kind=kind, label=label, actor=actor)
        submission = Submission(options, batch, name_actor(actor))
        outcomes = enqueue(collection, [(entry, None) for entry in entries], submission)
        if missing:
            names = [line.doc_id for line in missing]
            deleted = delete_documents(collection, names, actor=actor)["documents"]
            count_outcomes(batch, (), deleted=deleted)
        close_batch(batch)
        batch.refresh_from_db()
    return UploadPlan([*(outcome.line for outcome in outcomes), *missing], batch)


def _entry_of_url(given: UrlEntry) -> Entry:
    try:
        address = read_address(given.url)
        doc_id = check_doc_id(given.doc_id) if given.doc_id else doc_id_of(address)
        title = clean_title(given.title)
    except InvalidInput as error:
        shown = clean_line((given.doc_id or given.url)[:512])
        return Entry(shown, name=clean_line(given.url[:2000]), error_type="invalid_input", error=error.message)
    return Entry(doc_id, name=str(address), origin=Origin(URL, str(address)), title=title)


def _entry_of_object(endpoint: str, item: Item) -> Entry:
    key = item.url.removeprefix("s3://")
    origin = Origin(S3, item.url, endpoint, version=item.version)
    entry = Entry(key[:512], size=item.size, name=item.url, origin=origin)
    try:
        return replace(entry, doc_id=doc_id_from_key(key))
    except InvalidInput as error:
        return replace(entry, error_type="invalid_input", error=error.message)


def _label(entries: Sequence[Entry]) -> str:
    hosts = list(dict.fromkeys(entry.name.split("/")[2] for entry in entries if not entry.error))
    shown = ", ".join(hosts[:LABEL_HOSTS]) + (" and others" if len(hosts) > LABEL_HOSTS else "")
    return f"{len(entries)} addresses: {shown}" if len(entries) != 1 else entries[0].name


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
            "the file of this document went while its source was asked; retry the job", type="upload_gone"
        )
    return upload
