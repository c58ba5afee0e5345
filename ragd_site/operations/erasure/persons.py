"""A person erased: the account, the log-ins, what they asked and wrote; their name where it says who did something."""

from __future__ import annotations

from collections import Counter
from typing import Any

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import Q

from collections_app.audit.chain import erase_what, erase_who, find_telling
from collections_app.audit.services import Actor
from collections_app.errors import UnknownError
from collections_app.models import AuditEvent, Erasure
from evaluation_app.models import Review, Span
from ragd import telemetry
from ragd.store.store import execute, fetch_all
from ragd_site.operations.erasure.ledger import Erasing, erasing, hash_name, make_pseudonym, own_events
from ragd_site.operations.erasure.scrub import Fingerprint, scrub
from ragd_site.operations.erasure.traces import drop_runs, forget_answers
from retrieval_app.models import ChatMessage, ChatThread, QueryRun

# Columns that say who did something.
NAME_COLUMNS = r"""
SELECT c.relname, a.attname
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND t.typname IN ('text', 'varchar')
  AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'documents'::regclass)
  AND c.relname NOT IN ('audit_events', 'auth_user')
  AND (a.attname ~ '_by$' OR a.attname IN ('assignee', 'reviewer_name'))
ORDER BY 1, 2
"""
RENAME = """
UPDATE "{table}" SET "{column}" = %(new)s || CASE WHEN "{column}" = %(old)s THEN '' ELSE ', (erased)' END
WHERE "{column}" = %(old)s OR "{column}" LIKE %(on_behalf)s
"""
RENAME_KEPT = """
UPDATE state_changes SET kept = replace(kept::text, to_jsonb(%(old)s::text)::text, to_jsonb(%(new)s::text)::text)::jsonb
WHERE kept::text LIKE '%%' || to_jsonb(%(old)s::text)::text || '%%'
"""
# "cancelled by NAME", and who made a change that a report tells of
RENAME_CANCELLED = """
UPDATE "{table}" SET error = 'cancelled by ' || %(new)s WHERE error = 'cancelled by ' || %(old)s
"""
RENAME_REPORTED = """
UPDATE operations
SET report = replace(report::text, to_jsonb(%(old)s::text)::text, to_jsonb(%(new)s::text)::text)::jsonb
WHERE kind = 'bisection' AND report::text LIKE '%%' || to_jsonb(%(old)s::text)::text || '%%'
"""
PERSONAL = ("queryrun", "reviewtask", "review", "runscore", "boardcard", "goldenquestion", "chatthread")


def erase_person(user: User, *, actor: Actor = None, dry_run: bool = False, pseudonym: str = "") -> Erasing:
    """The account goes with its sessions and log-ins, its runs with question, answer and spans, its feedback as text.

    Verdicts stay, under a pseudonym, which also stands wherever a record says who made it. The audit log keeps what
    was done, under the pseudonym and without the address.
    """
    pseudonym = pseudonym or make_pseudonym()
    username, pk = user.get_username(), user.pk
    subject = {"person": pseudonym, "user_id": pk}
    started = Erasing(Erasure.Kind.PERSON, subject, hash_name(username))
    with erasing(started, actor=actor, dry_run=dry_run) as erasure:
        runs = QueryRun.objects.filter(user=user)
        fingerprint = Fingerprint(_texts_of(user), exact=[name for name in (user.email, user.get_full_name()) if name])
        erasure.add(drop_runs(runs.values_list("pk", flat=True)))
        erasure.add({"chat_threads": ChatThread.objects.of(user).delete()[0]})
        erasure.add(_drop_log_ins(user))
        own = Q(reviewer=user) | Q(reviewer_name=username) | Q(reviewer_name__startswith=f"{username}, ")
        erasure.add({"reviews": Review.objects.filter(own).update(note="", correction="")})
        spans = Span.objects.filter(attributes__contains={telemetry.USER_ID: username})
        erasure.add({"spans": spans.delete()[0]})
        erasure.add(_rename(username, pseudonym))
        erasure.add(forget_answers())
        erasure.add(scrub(fingerprint))
        by_them = AuditEvent.objects.filter(actor_kind="user", actor_id=str(pk))
        named = AuditEvent.objects.filter(actor_name=username).exclude(actor_kind="key")
        telling = AuditEvent.objects.filter(pk__in=find_telling(fingerprint.tells))
        erasure.what += erase_what(own_events("user", [str(pk)]), pseudonym)
        erasure.what += erase_what(by_them.filter(subject_kind__in=PERSONAL)) + erase_what(telling)
        erasure.who += erase_who(by_them | named, pseudonym)
        user.delete()
        erasure.add({"accounts": 1})
    return erasure


def find_user(username: str) -> User:
    """Raises ServiceError 404."""
    found = get_user_model()._default_manager.filter(username=username).first() if "\x00" not in username else None
    if not isinstance(found, User):
        raise UnknownError("user", f"there is no user {username!r}", field="username")
    return found


def erase_person_again(entry: dict[str, Any], actor: Actor = None) -> Erasing | None:
    """By the hash of the name: the name itself is kept nowhere. None where nobody has it."""
    for user in User.objects.all():
        if hash_name(user.get_username()) == entry["name_hash"]:
            return erase_person(user, actor=actor, pseudonym=str(entry["subject"]["person"]))
    return None


def _texts_of(user: User) -> list[str]:
    """What they asked and wrote."""
    texts = list(QueryRun.objects.filter(user=user).values_list("query", flat=True))
    texts += ChatMessage.objects.filter(thread__user=user).values_list("question", flat=True)
    for note, correction in Review.objects.filter(reviewer=user).values_list("note", "correction"):
        texts += [note, correction]
    return texts


def _drop_log_ins(user: User) -> Counter[str]:
    counts: Counter[str] = Counter()
    for model in (AccessAttempt, AccessFailureLog, AccessLog):
        counts[model._meta.db_table] = model.objects.filter(username=user.get_username()).delete()[0]
    for session in Session.objects.all().iterator():
        if session.get_decoded().get("_auth_user_id") == str(user.pk):
            session.delete()
            counts["sessions"] += 1
    return counts


def _rename(old: str, new: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    escaped = old.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    params = {"old": old, "new": new, "on_behalf": f"{escaped}, %"}
    for table, column in fetch_all(connection, NAME_COLUMNS):
        counts[str(table)] += execute(connection, RENAME.format(table=table, column=column), params)
    counts["state_changes"] += execute(connection, RENAME_KEPT, {"old": old, "new": new})
    for table in ("index_versions", "ingest_jobs", "operations"):
        counts[table] += execute(connection, RENAME_CANCELLED.format(table=table), {"old": old, "new": new})
    counts["operations"] += execute(connection, RENAME_REPORTED, {"old": old, "new": new})
    return counts
