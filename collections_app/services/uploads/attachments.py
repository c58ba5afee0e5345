"""Files that a mail carries, as documents of their own: "<mail>/<name>" with the mail's id in their metadata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from collections_app.models import Collection, IngestJob
from collections_app.parsing import Attachment, ParsedDocument, archive_type, is_readable
from collections_app.services.documents.document_tree import PARENT, attachments_of
from collections_app.services.documents.documents import delete_documents
from collections_app.services.indexing.ingestion import IngestOutcome, Progress
from collections_app.services.uploads.current_state import RequestedMetadata
from collections_app.services.uploads.uploads import UploadItem, UploadOptions, enqueue_files

MAIL_TYPES = ("message/rfc822", "application/mbox", "application/vnd.ms-outlook")


class AttachingProgress:
    """The progress of a mail's ingest: with the mail itself its attachments are stored, in the same transaction."""

    def __init__(self, inner: Progress, collection: Collection, job: IngestJob, attachments: Sequence[Attachment]):
        self._inner = inner
        self._collection = collection
        self._job = job
        self._attachments = attachments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def finish(self, outcome: IngestOutcome) -> None:
        # before the job's row is held: whoever submits the same names waits for that row while holding the names
        take_attachments(self._collection, self._job, self._attachments)
        self._inner.finish(outcome)


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


def watch_attachments(collection: Collection, job: IngestJob, parsed: ParsedDocument, progress: Progress) -> Progress:
    """The progress to ingest with: that which was given, or for a mail one that makes documents of its files too."""
    if parsed.media_type not in MAIL_TYPES:
        return progress
    watcher: Any = AttachingProgress(progress, collection, job, parsed.attachments)
    return cast(Progress, watcher)


def take_attachments(collection: Collection, job: IngestJob, attachments: Iterable[Attachment]) -> None:
    """Make the documents under a mail those that it carries now. The caller holds the transaction and the mail's lock.

    What no reader takes, such as pictures, is passed over. Each one comes with the mail's tags and metadata, and in
    its batch. Documents of earlier attachments that are not there any more go.
    """
    parent = job.doc_id
    kept = [each for each in attachments if each.data and (is_readable(each.media_type) or archive_type(each.data))]
    offered = [_offer(parent, each) for each in kept]
    present = {each.doc_id for each in offered}
    folders = tuple(f"{each.doc_id}/" for each in offered if "prefix" in each.origin)
    before = attachments_of(collection, [parent])
    gone = [doc_id for doc_id in before if doc_id not in present and not (folders and doc_id.startswith(folders))]
    if gone:
        delete_documents(collection, gone)
    if offered:
        metadata = dict(job.metadata) | {PARENT: parent}
        asked = RequestedMetadata(list(job.tags), metadata, dict(job.policy) if job.policy else None)
        enqueue_files(collection, offered, UploadOptions(asked, "replace", job.batch, job.created_by))


def _offer(parent: str, attachment: Attachment) -> UploadItem:
    doc_id = f"{parent}/{attachment.name}"
    origin: dict[str, Any] = {"type": "attachment", "of": parent}
    if archive_type(attachment.data):
        origin["prefix"] = f"{doc_id}/"
    return UploadItem(HeldFile(attachment.name, attachment.data), doc_id, origin=origin)
