"""Access lists of documents: who of those that may read a collection may read a document of it.

A list is kept as the codes of principals (ragd/schema.sql). It is there before the document is, and outlives it. What
was attached to a document has the list of that document, always.

An access list as people state it: the users and groups that may read a document, by name.

Access lists of documents that wait in the queue, and whether who sent them may still write them.

Who may read documents: told with names, and changed for documents that are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.db.models import Q

from collections_app.access.context import NOBODY, SYSTEM, Access, current_access, elevated, system_access
from collections_app.access.permissions import ADMINISTRATORS, EVERYBODY, Permission, group_principal, user_principal
from collections_app.access.services import access_of_key, access_of_user, principals_of
from collections_app.audit import services
from collections_app.documents.stored_documents import lock_documents, parent_of
from collections_app.domain.rows import prepared, reader_of
from collections_app.errors import ServiceError
from collections_app.models import ApiKey, Collection, Document, IngestJob
from collections_app.uploads.options import ATTACHMENT, Origin
from ragd.errors import InvalidInput
from ragd.identity import can_be_stored
from ragd.store.store import execute, fetch_all

NAMES_MAX = 500
NAME_MAX_CHARS = 150
FIELDS = ("restricted", "users", "groups", "unknown", "origin", "of")
EVERYBODY_NAME = "*"
EXAMPLE = '{"users": ["ada"], "groups": ["rangers"]}'


@dataclass(frozen=True, slots=True)
class StatedAccess:
    """restricted: only these users and groups read it, beside the administrators; else who may read the collection."""

    restricted: bool = True
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


OPEN_TO_ALL = StatedAccess(restricted=False)


def read_access(value: Any) -> StatedAccess:
    """From JSON such as {"users": ["ada"], "groups": ["rangers"]}, {} for administrators alone, or
    {"restricted": false}. Raises InvalidInput. What an answer adds (origin, of, unknown) may be sent back."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"access must be a JSON object such as {EXAMPLE}", field="access")
    if unknown := sorted(set(value) - set(FIELDS)):
        raise InvalidInput(f"access has no field {unknown[0]!r}; it takes users, groups and restricted", field="access")
    restricted = value.get("restricted", True)
    users, groups = (_names(value, name) for name in ("users", "groups"))
    if not isinstance(restricted, bool):
        raise InvalidInput(f"access.restricted must be true or false, not {restricted!r}", field="access")
    if not restricted and (users or groups):
        raise InvalidInput(
            "access with restricted: false names nobody, because everybody reads it; leave users and groups out",
            field="access",
        )
    return StatedAccess(restricted, users, groups)


def parse_access(text: str | None) -> StatedAccess | None:
    """From the text of a form field; None for an empty one: nothing is said."""
    if not (text or "").strip():
        return None
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        value = None
    return read_access(value)


def _names(value: Mapping[str, Any], field: str) -> tuple[str, ...]:
    names = value.get(field) or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidInput(f"access.{field} must be a list of names, such as {EXAMPLE}", field="access")
    if len(names) > NAMES_MAX or any(len(name) > NAME_MAX_CHARS for name in names):
        raise InvalidInput(
            f"access.{field} must be at most {NAMES_MAX} names of at most {NAME_MAX_CHARS} characters", field="access"
        )
    return tuple(dict.fromkeys(name.strip().replace("\x00", "") for name in names))


Codes = tuple[int, ...]
OPEN: Codes = (ADMINISTRATORS, EVERYBODY)
STATED, FROM_METADATA, ATTACHED, IMPORTED = "stated", "metadata", "attachment", "import"
PARENT = "parent"
ACCESS_KEY_MAX_CHARS = 200

# The documents, and all that was attached to them or waits to be, at any depth.
FAMILY = """
WITH RECURSIVE family AS (
    SELECT doc_id COLLATE "C" AS doc_id, false AS attached FROM unnest(%(doc_ids)s::text[]) AS doc_id
    UNION
    SELECT c.doc_id COLLATE "C", true FROM family f, LATERAL (
        SELECT d.doc_id FROM documents d
        WHERE d.collection_id = %(collection)s AND d.doc_id COLLATE "C" >= f.doc_id || '/'
          AND d.doc_id COLLATE "C" < f.doc_id || '0' AND d.metadata ->> 'parent' = f.doc_id
        UNION ALL
        SELECT j.doc_id FROM ingest_jobs j
        WHERE j.collection_id = %(collection)s AND j.state IN ('queued', 'running') AND j.kind IN ('file', 'archive')
          AND j.metadata ->> 'parent' = f.doc_id AND starts_with(j.doc_id, f.doc_id || '/')
    ) c
)
SELECT doc_id, bool_and(attached) FROM family GROUP BY doc_id ORDER BY doc_id
"""
NARROW = """
INSERT INTO document_access (collection_id, doc_id, access, origin, unknown)
SELECT %(collection)s, doc_id, %(access)s, CASE WHEN attached THEN 'attachment' ELSE %(origin)s END, %(unknown)s::text[]
FROM unnest(%(doc_ids)s::text[], %(attached)s::boolean[]) AS named (doc_id, attached)
ON CONFLICT (collection_id, doc_id) DO UPDATE
SET access = excluded.access, origin = excluded.origin, unknown = excluded.unknown, changed_at = now()
WHERE (document_access.access, document_access.origin, document_access.unknown)
    IS DISTINCT FROM (excluded.access, excluded.origin, excluded.unknown)
"""
WIDEN = "DELETE FROM document_access WHERE collection_id = %(collection)s AND doc_id = ANY(%(doc_ids)s)"
LISTS = """
SELECT doc_id, access, origin, unknown FROM document_access
WHERE collection_id = %(collection)s AND doc_id = ANY(%(doc_ids)s)
"""


@dataclass(frozen=True, slots=True)
class AccessList:
    """codes: in order, OPEN where everybody who may read the collection reads it. origin: STATED, FROM_METADATA,
    ATTACHED (to a document with that list) or IMPORTED. unknown: stated names that are of nobody."""

    codes: Codes = OPEN
    origin: str = STATED
    unknown: tuple[str, ...] = ()

    @property
    def restricted(self) -> bool:
        return EVERYBODY not in self.codes


UNRESTRICTED = AccessList()


def set_access(
    collection: Collection, doc_ids: Sequence[str], *, users: Iterable[int] = (), groups: Iterable[int] = ()
) -> int:
    """Let these alone read the documents, beside the administrators; returns how many lists changed.

    users, groups: their ids. A document need not be there yet: its list waits for it. Raises Forbidden for who may not
    write in the collection.
    """
    return put_list(collection, doc_ids, AccessList(tuple(principals_of(users, groups))))


def widen(collection: Collection, doc_ids: Sequence[str]) -> int:
    """Let everybody who may read the collection read the documents; returns how many had a list."""
    return put_list(collection, doc_ids, UNRESTRICTED)


def check_access_from(key: str) -> str:
    """A key of metadata, "" for none. Raises InvalidInput."""
    stored = key.strip()
    if len(stored) > ACCESS_KEY_MAX_CHARS or not can_be_stored(stored):
        raise InvalidInput(
            f"access_from must be a metadata key of at most {ACCESS_KEY_MAX_CHARS} characters, or empty for none",
            field="access_from",
        )
    return stored


def put_list(collection: Collection, doc_ids: Sequence[str], access_list: AccessList) -> int:
    """Give the documents this list, and what was attached to them; returns how many changed. Raises Forbidden."""
    values: dict[str, Any] = {"collection": collection.pk, "doc_ids": list(doc_ids)}
    with elevated(Permission.WRITE, collection.pk), transaction.atomic():
        family = fetch_all(connection, FAMILY, values)
        values |= {"doc_ids": [row[0] for row in family], "attached": [row[1] for row in family]}
        if not access_list.restricted:
            return execute(connection, WIDEN, values)
        values |= {"access": list(access_list.codes), "origin": access_list.origin}
        return execute(connection, NARROW, values | {"unknown": list(access_list.unknown)})


def lists_of(collection: Collection, doc_ids: Iterable[str]) -> dict[str, AccessList]:
    """Of those documents, there or not, that have a list; whoever asks. The caller decides what it tells."""
    with system_access():
        rows = fetch_all(prepared, LISTS, {"collection": collection.pk, "doc_ids": list(doc_ids)})
    return {doc_id: AccessList(tuple(codes), origin, tuple(unknown)) for doc_id, codes, origin, unknown in rows}


def hidden_from(access: Access, collection: Collection, doc_ids: Iterable[str]) -> set[str]:
    """Which of these ids, there or not, somebody may not read in a collection."""
    if access.unbound:
        return set()
    own = {*access.principals, *([ADMINISTRATORS] if access.may(Permission.ADMINISTER, collection.pk) else [])}
    return {name for name, listed in lists_of(collection, doc_ids).items() if not own.intersection(listed.codes)}


def require_readable(collection: Collection, doc_ids: Iterable[str]) -> None:
    """Raise ServiceError 403 when an id is of a document that who asks may not read."""
    for doc_id in sorted(hidden_from(current_access(), collection, doc_ids)):
        raise refuse_hidden(doc_id)


def hidden_reason(doc_id: str) -> str:
    return (
        f"{doc_id!r} is taken by a document that you may not read, so you may not replace it; choose another doc_id, "
        "or ask an administrator of the collection"
    )


def refuse_hidden(doc_id: str) -> ServiceError:
    return ServiceError(hidden_reason(doc_id), type="restricted", status=403, field="doc_id")


def resolve(collection: Collection, stated: StatedAccess | None) -> Codes | None:
    """The codes of what was stated, None where nothing was. Raises InvalidInput for unknown names, and for a list that
    leaves out who states it: they could not read what they write."""
    if stated is None:
        return None
    if not stated.restricted:
        return OPEN
    codes, unknown = find_principals(stated.users, stated.groups)
    if unknown:
        raise InvalidInput(
            f"access names {', '.join(map(repr, unknown[:5]))}, which no user or group is called; check the spelling",
            field="access",
        )
    access = current_access()
    if not (access.may(Permission.ADMINISTER, collection.pk) or set(access.principals).intersection(codes)):
        raise InvalidInput(
            "this access leaves yourself out, so that you could not read the document; name yourself or a group of "
            "yours too",
            field="access",
        )
    return codes


def find_principals(users: Iterable[str], groups: Iterable[str]) -> tuple[Codes, list[str]]:
    """The list of those that are there, with the administrators, and the names of those that are not."""
    user_names, group_names = list(users), list(groups)
    user_ids = dict(User.objects.filter(username__in=user_names).values_list("username", "pk"))
    group_ids = dict(Group.objects.filter(name__in=group_names).values_list("name", "pk"))
    unknown = [name for name in user_names if name not in user_ids]
    unknown += [name for name in group_names if name not in group_ids]
    return tuple(principals_of(user_ids.values(), group_ids.values())), unknown


def list_from_metadata(value: Any) -> AccessList | None:
    """The list that a value of metadata says: a name or several, of groups or users ("group:x", "user:x" where one
    name is of both), "*" for everybody. None where it says nothing. Names of nobody are noted and let nobody in."""
    if value is None or value == "":
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        return AccessList((ADMINISTRATORS,), FROM_METADATA, (str(value)[:150],))
    texts = [name.strip() if isinstance(name, str) else str(name) for name in names]
    if texts == [EVERYBODY_NAME]:
        return AccessList(OPEN, FROM_METADATA)
    given = {text.removeprefix("group:") for text in texts if not text.startswith("user:")}
    people = {text.removeprefix("user:") for text in texts if not text.startswith("group:")}
    group_ids = dict(Group.objects.filter(name__in=given).values_list("name", "pk"))
    user_ids = dict(User.objects.filter(username__in=people).values_list("username", "pk"))
    codes: set[int] = {ADMINISTRATORS}
    unknown: list[str] = []
    for text in texts:
        group = group_ids.get(text.removeprefix("group:")) if not text.startswith("user:") else None
        user = user_ids.get(text.removeprefix("user:")) if not text.startswith("group:") else None
        if group is not None:
            codes.add(group_principal(group))
        elif user is not None:
            codes.add(user_principal(user))
        else:
            unknown.append(text[:150])
    return AccessList(tuple(sorted(codes)), FROM_METADATA, tuple(unknown))


def unknown_names_warning(unknown: Sequence[str]) -> str:
    """What is said of names in a list that are of nobody."""
    shown = ", ".join(map(repr, unknown[:5]))
    return f"the access list names {shown}, which no user or group is called; they let nobody read the document"


def names_of(codes: Iterable[int]) -> StatedAccess:
    """The names behind codes, in order of the alphabet; principals that are gone are left out."""
    listed = set(codes)
    if EVERYBODY in listed:
        return StatedAccess(restricted=False)
    with system_access():
        users = User.objects.filter(pk__in=[code // 2 for code in listed if code > 1 and code % 2 == 0])
        groups = Group.objects.filter(pk__in=[code // 2 for code in listed if code > 1 and code % 2 == 1])
        return StatedAccess(
            True,
            tuple(users.order_by("username").values_list("username", flat=True)),
            tuple(groups.order_by("name").values_list("name", flat=True)),
        )


def until_stored(present: AccessList, coming: AccessList) -> AccessList:
    """What holds while content with another list waits: who may read both what is there and what comes."""
    if not present.restricted:
        return coming
    if not coming.restricted:
        return present
    return replace(coming, codes=tuple(sorted(set(present.codes) & set(coming.codes))))


def settle_list(
    collection: Collection,
    doc_id: str,
    *,
    stated: Codes | None,
    metadata: Mapping[str, Any],
    file_metadata: Mapping[str, Any],
) -> None:
    """Inside the transaction that stores a document, before its row is written: give it its list.

    An attachment has that of its parent. Else what was stated with the content holds; else what the metadata say
    (`Collection.access_from`), unless somebody stated a list before; else what it had.
    """
    parent = metadata.get(PARENT)
    attached = isinstance(parent, str) and doc_id.startswith(f"{parent}/")
    if stated is None and not attached and not collection.access_from:
        return
    with system_access():
        if attached:
            above = lists_of(collection, [str(parent)]).get(str(parent))
            if above is not None or stated is not None:
                access_list = AccessList(above.codes, ATTACHED, above.unknown) if above else UNRESTRICTED
                put_list(collection, [doc_id], access_list)
        elif stated is not None:
            put_list(collection, [doc_id], AccessList(stated))
        else:
            list_by_metadata(collection, doc_id, {**file_metadata, **metadata})


def list_by_metadata(collection: Collection, doc_id: str, metadata: Mapping[str, Any]) -> None:
    """Give a document the list that its metadata say, unless somebody stated one."""
    said = list_from_metadata(metadata.get(collection.access_from)) if collection.access_from else None
    if said is None:
        return
    present = lists_of(collection, [doc_id]).get(doc_id)
    if present is None or present.origin == FROM_METADATA:
        with system_access():
            put_list(collection, [doc_id], said)


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


def sent_by(origin: Origin, access: Access, held: Codes | None) -> Origin:
    """The origin with who sent the file, and with the access list that this gave its document."""
    return origin if access is SYSTEM else replace(origin, sender=(access.user_id, access.key_id), held=held)


def access_of_sender(origin: Origin) -> Access:
    """What the sender of a job may do now; the server itself where nobody sent it."""
    if origin.sender is None:
        return SYSTEM
    user_id, key_id = origin.sender
    if key_id is not None:
        key = reader_of(ApiKey).find("r.id = %(id)s", {"id": key_id})
        return (access_of_key(key) if key is not None else None) or NOBODY
    user = User.objects.filter(pk=user_id or 0).first()
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
    if job.origin.type == ATTACHMENT or not hidden_from(access, collection, [job.doc_id]):
        return
    present = lists_of(collection, [job.doc_id]).get(job.doc_id, UNRESTRICTED)
    if present.codes != job.origin.held:
        raise refuse_hidden(job.doc_id)


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
