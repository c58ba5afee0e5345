"""Who may read documents: told with names, and changed for documents that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q

from collections_app.access.document_access import (
    ATTACHED,
    STATED,
    UNRESTRICTED,
    AccessList,
    Codes,
    StatedAccess,
    list_by_metadata,
    lists_of,
    names_of,
    put_list,
)
from collections_app.access.permissions import EVERYBODY
from collections_app.audit import services
from collections_app.documents.document_tree import parent_of
from collections_app.documents.stored_documents import lock_documents
from collections_app.errors import ServiceError
from collections_app.models import Collection, Document


@dataclass(frozen=True, slots=True)
class Readers:
    """restricted: only these users and groups, beside the administrators. origin: stated, metadata, attachment or
    import, "" for an open document. of: the document whose list it is, for an attachment. unknown: names of nobody."""

    doc_id: str
    restricted: bool
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    origin: str = ""
    of: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Groups, then users."""
        return [*self.groups, *self.users]


def readers_of(collection: Collection, document: Document) -> Readers:
    listed = lists_of(collection, [document.doc_id]).get(document.doc_id, UNRESTRICTED)
    parent = parent_of(document)
    if not listed.restricted:
        return Readers(document.doc_id, restricted=False, of=parent)
    stated = names_of(listed.codes)
    origin = ATTACHED if parent else listed.origin
    return Readers(document.doc_id, True, stated.users, stated.groups, origin, parent, listed.unknown)


def name_readers(documents: Iterable[Document]) -> None:
    """Give each document of a list `readers`: None, or the names of those that it is restricted to."""
    known: dict[Codes, list[str]] = {}
    for document in documents:
        codes = tuple(document.access)
        if codes not in known:
            stated: StatedAccess = names_of(codes)
            known[codes] = [*stated.groups, *stated.users]
        document.readers = None if EVERYBODY in codes else known[codes]  # type: ignore[attr-defined]


def follows_parent(collection: Collection, doc_ids: Sequence[str]) -> dict[str, str]:
    """Of these documents the attachments, with what each was attached to, where that is there and not among them."""
    rows = Document.objects.filter(collection=collection, doc_id__in=doc_ids, metadata__has_key="parent")
    parents = {row.doc_id: parent_of(row) for row in rows.only("doc_id", "metadata", "collection_id")}
    there = set(
        Document.objects.filter(collection=collection, doc_id__in=parents.values()).values_list("doc_id", flat=True)
    )
    named = set(doc_ids)
    return {doc_id: parent for doc_id, parent in parents.items() if parent in there and parent not in named}


def refuse_attachment(doc_id: str, parent: str) -> ServiceError:
    return ServiceError(
        f"{doc_id!r} was attached to {parent!r} and is read by whoever may read that; change the access of {parent!r}",
        type="follows_parent",
        field="doc_id",
    )


def change_readers(
    collection: Collection, doc_ids: Sequence[str], codes: Codes, *, actor: services.Actor = None
) -> list[str]:
    """Give documents that are there this list (`document_access.resolve`), and their attachments with them; returns
    those that had another. ServiceError 409 for an attachment. An open list leaves what metadata say in force."""
    with transaction.atomic():
        lock_documents(collection, doc_ids)
        for doc_id, parent in follows_parent(collection, doc_ids).items():
            raise refuse_attachment(doc_id, parent)
        rows = list(Document.objects.listed().filter(collection=collection, doc_id__in=doc_ids))
        present = lists_of(collection, [row.doc_id for row in rows])
        wanted = AccessList(codes, STATED)
        changed = [row for row in rows if present.get(row.doc_id, UNRESTRICTED).codes != wanted.codes]
        if changed:
            services.record(actor, changed, services.CHANGE, f"access: {_told(codes)}")
        put_list(collection, [row.doc_id for row in rows], wanted)
    return [row.doc_id for row in changed]


def follow_metadata(collection: Collection) -> int:
    """Give every document that has the key `Collection.access_from` the list that its metadata say, as for a setting
    that was just changed; returns how many documents were looked at."""
    if not collection.access_from:
        return 0
    key = collection.access_from
    said = Q(metadata__has_key=key) | Q(file_metadata__has_key=key)
    rows = Document.objects.filter(said, collection=collection).by_doc_id()
    looked_at = 0
    for doc_id, metadata, of_file in rows.values_list("doc_id", "metadata", "file_metadata").iterator(chunk_size=500):
        parent = metadata.get("parent")
        if not (isinstance(parent, str) and doc_id.startswith(f"{parent}/")):
            list_by_metadata(collection, doc_id, {**of_file, **metadata})
            looked_at += 1
    return looked_at


def _told(codes: Codes) -> str:
    stated = names_of(codes)
    if not stated.restricted:
        return "everybody who may read the collection"
    return "only " + (", ".join([*stated.groups, *stated.users]) or "administrators")
