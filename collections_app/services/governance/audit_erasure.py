"""Parts of the audit log that are erased for good: the chain stays whole, because it holds their digests alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from collections_app.models import AuditEvent
from ragd.store.store import execute

ALLOW = "SELECT set_config('ragd.audit_erasure', %(value)s, true)"
WHO = """
UPDATE audit_events SET actor_id = '', actor_name = %(name)s, address = '', who_salt = NULL WHERE id = ANY(%(ids)s)
"""
WHAT = """
UPDATE audit_events SET subject_name = %(name)s, message = '', before = NULL, after = NULL, what_salt = NULL
WHERE id = ANY(%(ids)s)
"""
READ_AT_ONCE = 1000


def erase_who(rows: QuerySet[AuditEvent], pseudonym: str) -> list[int]:
    """Who did it and from where; the ids of the events. In the caller's transaction, which names them in an event."""
    return _erase(WHO, list(rows.exclude(who_salt=None).values_list("pk", flat=True)), pseudonym)


def erase_what(rows: QuerySet[AuditEvent], name: str = "") -> list[int]:
    """The subject's name, what was done in words, and what was before and after. name: stands for the subject then."""
    return _erase(WHAT, list(rows.exclude(what_salt=None).values_list("pk", flat=True)), name)


def find_telling(is_telling: Callable[[Any], bool]) -> list[int]:
    """The ids of events whose words or values are told by `is_telling`; reads the whole log."""
    rows = AuditEvent.objects.exclude(what_salt=None).exclude(action__startswith="erase.").order_by("id")
    values = rows.values_list("pk", "subject_name", "message", "before", "after")
    return [pk for pk, *parts in values.iterator(chunk_size=READ_AT_ONCE) if any(map(is_telling, parts))]


def _erase(statement: str, ids: Sequence[int], name: str) -> list[int]:
    if ids:
        execute(connection, ALLOW, {"value": "on"})
        execute(connection, statement, {"ids": list(ids), "name": name})
        execute(connection, ALLOW, {"value": "off"})
    return list(ids)
