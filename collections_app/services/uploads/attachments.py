"""Files that a document carries, as documents of their own: "<document>/<name>" with its id in their metadata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from collections_app.models import Collection, IngestJob
from collections_app.parsing import Attachment, archive_type, is_image, is_readable
from collections_app.parsing import signatures as types
from collections_app.services.documents.document_tree import PARENT, attachments_of
from collections_app.services.documents.documents import delete_documents
from collections_app.services.governance.document_access import lists_of
from collections_app.services.governance.waiting_lists import access_of_sender
from collections_app.services.indexing.ingestion import CommitHook
from collections_app.services.uploads.current_state import RequestedMetadata
from collections_app.services.uploads.uploads import HeldFile, UploadItem, UploadOptions, enqueue_files

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
    level = int(job.origin.get("level", 0)) + 1
    selected = [each for each in attachments if each.data and _is_taken(each)] if level <= LEVELS_MAX else []
    offered = [_offer(parent, each, level) for each in selected]
    present = {each.doc_id for each in offered}
    folders = tuple(f"{each.doc_id}/" for each in offered if "prefix" in each.origin)
    before = attachments_of(collection, [parent])
    gone = [doc_id for doc_id in before if doc_id not in present and not (folders and doc_id.startswith(folders))]
    if gone:
        delete_documents(collection, gone)
    if offered:
        metadata = dict(job.metadata) | {PARENT: parent}
        policy = dict(job.policy) if job.policy else None
        listed = lists_of(collection, [parent]).get(parent)
        access = listed.codes if listed else None
        asked = RequestedMetadata(list(job.tags), metadata, policy, job.origin.get("language"), access)
        asker = access_of_sender(job.origin)
        enqueue_files(collection, offered, UploadOptions(asked, "replace", job.batch, job.created_by, asker, True))


def _is_taken(attachment: Attachment) -> bool:
    """Pictures in mails are signatures and photographs far more often than scans."""
    if is_image(attachment.media_type):
        return False
    return is_readable(attachment.media_type) or bool(archive_type(attachment.data, attachment.name))


def _offer(parent: str, attachment: Attachment, level: int) -> UploadItem:
    doc_id = f"{parent}/{attachment.name}"
    origin: dict[str, Any] = {"type": "attachment", "of": parent} | ({"level": level} if level > 1 else {})
    if archive_type(attachment.data, attachment.name):
        origin["prefix"] = f"{doc_id}/"
    return UploadItem(HeldFile(attachment.name, attachment.data), doc_id, origin=origin)
