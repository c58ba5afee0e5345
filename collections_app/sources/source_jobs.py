"""Documents that are fetched from lists of addresses and from prefixes of buckets, as one job each."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import Q

from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.documents.services import delete_documents
from collections_app.errors import ServiceError
from collections_app.jobs.queue import check_queue
from collections_app.models import Collection, IngestBatch
from collections_app.sources.buckets import find_place, open_prefix
from collections_app.sources.kinds.protocol import Item
from collections_app.sources.web_client import Unwatched
from collections_app.uploads.options import NOTHING_STATED, S3, URL, IngestOptions, Origin
from collections_app.uploads.plan import Entry, PlanLine, UploadPlan, came_from, find_missing, plan_entries
from collections_app.uploads.services import (
    Submission,
    close_batch,
    count_outcomes,
    enqueue,
    open_batch,
    stated_options,
)
from ragd.errors import InvalidInput
from ragd.identity import check_doc_id, clean_line, clean_title, doc_id_from_key
from ragd.readers.fetching import FetchError, doc_id_of, read_address

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
