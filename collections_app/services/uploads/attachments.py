"""Files that a mail carries, as documents of their own: "<mail>/<name>" with the mail's id in their metadata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from collections_app.models import Collection, IngestJob
from collections_app.parsing import Attachment, archive_type, is_image, is_readable
from collections_app.services.documents.document_tree import PARENT, attachments_of
from collections_app.services.documents.documents import delete_documents
from collections_app.services.governance.document_access import lists_of
from collections_app.services.governance.waiting_lists import access_of_sender
from collections_app.services.indexing.ingestion import CommitHook
from collections_app.services.uploads.current_state import RequestedMetadata
from collections_app.services.uploads.uploads import HeldFile, UploadItem, UploadOptions, enqueue_files

MAIL_TYPES = ("message/rfc822", "application/mbox", "application/vnd.ms-outlook")


def attach(collection: Collection, job: IngestJob, attachments: Sequence[Attachment]) -> CommitHook:
    """A hook that stores the attachments of a mail with the mail itself.

    Let it come before what holds the job's row: whoever submits the same names waits for that row while holding them.
    """
    return lambda outcome: take_attachments(collection, job, attachments)


def take_attachments(collection: Collection, job: IngestJob, attachments: Iterable[Attachment]) -> None:
    """Make the documents under a mail those that it carries now. The caller holds the transaction and the mail's lock.

    What no reader takes, such as pictures, is passed over. Each one comes with the mail's tags, metadata,
    stated language and access list, and in its batch. Documents of earlier attachments that are not there any more go.
    """
    parent = job.doc_id
    selected = [each for each in attachments if each.data and _is_taken(each)]
    offered = [_offer(parent, each) for each in selected]
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


def _offer(parent: str, attachment: Attachment) -> UploadItem:
    doc_id = f"{parent}/{attachment.name}"
    origin: dict[str, Any] = {"type": "attachment", "of": parent}
    if archive_type(attachment.data, attachment.name):
        origin["prefix"] = f"{doc_id}/"
    return UploadItem(HeldFile(attachment.name, attachment.data), doc_id, origin=origin)
