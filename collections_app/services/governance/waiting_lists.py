"""Access lists of documents that wait in the queue, and whether who sent them may still write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from collections_app.access_context import NOBODY, SYSTEM, Access, system_access
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import ApiKey, Collection, IngestJob
from collections_app.services.governance.access import access_of_key, access_of_user
from collections_app.services.governance.document_access import (
    ATTACHED,
    FROM_METADATA,
    UNRESTRICTED,
    AccessList,
    Codes,
    hidden_from,
    list_from_metadata,
    lists_of,
    put_list,
    refuse_hidden,
    until_stored,
)

CHECKED = (IngestJob.Kind.FILE, IngestJob.Kind.FETCH, IngestJob.Kind.ARCHIVE)


def hold_list(
    collection: Collection, doc_id: str, stated: Codes | None, metadata: Mapping[str, Any], *, follows: bool = False
) -> Codes | None:
    """Narrow a document whose content waits, so that nobody reads of it whom the coming list leaves out; the list that
    holds since, None where nothing changed. follows: an attachment, which has that list from now on."""
    if follows:
        with system_access():
            put_list(collection, [doc_id], UNRESTRICTED if stated is None else AccessList(stated, ATTACHED))
        return stated
    present = lists_of(collection, [doc_id]).get(doc_id, UNRESTRICTED)
    coming = AccessList(stated) if stated is not None else None
    if coming is None and collection.access_from and (not present.restricted or present.origin == FROM_METADATA):
        coming = list_from_metadata(metadata.get(collection.access_from))
    if coming is None:
        return None
    held = until_stored(present, coming)
    if held.codes != present.codes:
        with system_access():
            put_list(collection, [doc_id], held)
    return held.codes


def sender_of(access: Access, held: Codes | None) -> dict[str, Any]:
    """What a job keeps in its origin of who sent it, and of the list that this gave its document."""
    if access is SYSTEM:
        return {}
    sender = {"user": access.user_id, "key": access.key_id}
    return {"sender": sender} | ({"held": list(held)} if held is not None else {})


def access_of_sender(origin: Mapping[str, Any]) -> Access:
    """What the sender of a job may do now; the server itself where nobody sent it."""
    sender = origin.get("sender")
    if not isinstance(sender, Mapping):
        return SYSTEM
    if sender.get("key") is not None:
        key = ApiKey.objects.filter(pk=sender["key"]).first()
        return (access_of_key(key) if key is not None else None) or NOBODY
    user = User.objects.filter(pk=sender.get("user") or 0).first()
    return access_of_user(user) if user is not None else NOBODY


def require_sender(collection: Collection, job: IngestJob) -> None:
    """Before a job writes its document: raise ServiceError 403 when who sent it may not do so any more."""
    access = access_of_sender(job.origin)
    if job.kind not in CHECKED or access.unbound:
        return
    if not access.may(Permission.WRITE, collection.pk):
        raise ServiceError(
            f"{job.created_by or 'who sent this'} may not write in collection {collection.name!r} any more; somebody "
            "who may has to send the file again",
            type="forbidden",
            status=403,
        )
    if job.origin.get("type") == "attachment" or not hidden_from(access, collection, [job.doc_id]):
        return
    present = lists_of(collection, [job.doc_id]).get(job.doc_id, UNRESTRICTED)
    if list(present.codes) != job.origin.get("held"):
        raise refuse_hidden(job.doc_id)
