"""Who may read which documents, worked out in Python from grants and access lists, apart from row-level security."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Q

from collections_app.access_context import system_access
from collections_app.domain.permissions import GIVEN, Permission, Role, group_principal, user_principal
from collections_app.models import Collection, Document, RoleGrant
from ragd.store.store import fetch_all

LISTS = "SELECT doc_id, access FROM document_access WHERE collection_id = %(collection)s"
MARK_CHARS = 40
MARKS = 3  # slices of a hidden document that are looked for
BLANKS = re.compile(r"\s+")


@dataclass(frozen=True)
class Readable:
    """What one person may read of one collection. enters: whether they may see the collection at all."""

    collection: Collection
    enters: bool
    asks: bool
    readable: frozenset[str]
    hidden: frozenset[str]


def what_may_be_read(user: User, collection: Collection) -> Readable:
    """By the roles of the person and their groups, the collection's open role, and the documents' access lists."""
    with system_access():
        groups = set(user.groups.values_list("pk", flat=True))
        grants = RoleGrant.objects.filter(Q(user=user) | Q(group__in=groups), collection_id__in=(0, collection.pk))
        open_role = Collection.objects.filter(pk=collection.pk).values_list("open_role", flat=True).get()
        roles = {*grants.values_list("role", flat=True), open_role} - {""}
        names = set(Document.objects.filter(collection=collection).values_list("doc_id", flat=True))
        lists = dict(fetch_all(connection, LISTS, {"collection": collection.pk}))
    if user.is_superuser or Role.ADMINISTRATOR in roles:
        return Readable(collection, True, True, frozenset(names), frozenset())
    may = frozenset[Permission]().union(*(GIVEN[role] for role in roles))
    own = {user_principal(user.pk), *map(group_principal, groups)}
    readable = {name for name in names if name not in lists or own & set(lists[name])} if may else set()
    return Readable(collection, bool(may), Permission.ASK in may, frozenset(readable), frozenset(names - readable))


class Marks:
    """Slices of hidden documents that no readable document holds: where one stands in an answer, text has leaked."""

    def __init__(self, found: Readable, hidden: Iterable[str]) -> None:
        self.found, self.hidden = found, sorted(hidden)

    @cached_property
    def by_slice(self) -> dict[str, str]:
        """Slice -> the document that it is of."""
        with system_access():
            rows = Document.objects.filter(collection=self.found.collection)
            texts = dict(rows.filter(doc_id__in=self.hidden).values_list("doc_id", "text"))
            kept = rows.filter(doc_id__in=self.found.readable).values_list("text", flat=True)
            open_text = "\n".join(map(plain, kept))
        slices = {part: name for name, text in texts.items() for part in cut(plain(text))}
        return {part: name for part, name in slices.items() if part not in open_text}

    def found_in(self, body: str) -> set[str]:
        """The hidden documents of which a slice stands in the answer of some channel."""
        told = plain(html.unescape(body.replace("\\n", " ").replace('\\"', '"')))
        return {name for part, name in self.by_slice.items() if part in told}


def plain(text: str) -> str:
    return BLANKS.sub(" ", text)


def cut(text: str) -> list[str]:
    """Up to MARKS slices: of the beginning, the middle and the end."""
    if len(text) <= MARK_CHARS:
        return [text] if text.strip() else []
    last = len(text) - MARK_CHARS
    return [text[start : start + MARK_CHARS] for start in sorted({last * part // (MARKS - 1) for part in range(MARKS)})]
