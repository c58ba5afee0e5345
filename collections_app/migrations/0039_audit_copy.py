"""What the admin's log held, as events of the audit log; the log entries and what was kept beside them go."""

from __future__ import annotations

from itertools import islice
from typing import Any

from django.db import migrations

from collections_app.domain.audit_digests import clean_text, seal

VERBS = {1: "add", 2: "change", 3: "delete"}
KEY_PREFIX = "key "
SYSTEM = "the system"
SYSTEM_USER = "ragd-system"
BATCH = 500

CLOSE_CHAIN = "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED"


def copy_entries(apps: Any, schema_editor: Any) -> None:
    """In their order, with the time at which they were made. Names of collections that are there get their id."""
    entries = apps.get_model("admin", "LogEntry").objects.select_related("user", "content_type")
    subjects = apps.get_model("collections_app", "AuditSubject")
    events = apps.get_model("collections_app", "AuditEvent")
    collections = dict(apps.get_model("collections_app", "Collection").objects.values_list("name", "pk"))
    rows = entries.order_by("action_time", "id").iterator(chunk_size=BATCH)
    while batch := list(islice(rows, BATCH)):
        beside = subjects.objects.in_bulk([entry.pk for entry in batch])
        events.objects.bulk_create(_event(events, entry, beside.get(entry.pk), collections) for entry in batch)
    entries.all().delete()
    users = apps.get_model("auth", "User").objects.filter(username=SYSTEM_USER, is_active=False)
    users.delete()
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(CLOSE_CHAIN)


def _event(events: Any, entry: Any, beside: Any, collections: dict[str, int]) -> Any:
    name = beside.actor if beside else entry.user.username
    is_key, is_system = name.startswith(KEY_PREFIX), name in (SYSTEM, SYSTEM_USER)
    collection = beside.collection_name if beside else ""
    kind = entry.content_type.model if entry.content_type else ""
    row = {
        "at": entry.action_time,
        "actor_kind": "key" if is_key else "system" if is_system else "user",
        "actor_id": "" if is_key or is_system else str(entry.user_id),
        "actor_name": SYSTEM if is_system else name,
        "channel": "web" if beside else "admin",
        "address": "",
        "request_id": "",
        "action": f"{kind}.{VERBS.get(entry.action_flag, 'change')}",
        "subject_kind": kind,
        "subject_id": entry.object_id or "",
        "subject_name": clean_text(entry.object_repr),
        "collection_id": collections.get(collection),
        "collection_name": collection,
        "message": clean_text(entry.change_message.removesuffix(f" (by {name})")),
        "before": None,
        "after": None,
        "outcome": "succeeded",
    }
    return events(**row, **seal(row))


class Migration(migrations.Migration):
    dependencies = [
        ("collections_app", "0038_audit_events"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.RunPython(copy_entries, migrations.RunPython.noop, elidable=False),
        migrations.DeleteModel(name="AuditSubject"),
    ]
