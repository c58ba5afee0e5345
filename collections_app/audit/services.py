"""Whether the audit log is whole: every row unchanged, none missing, none at another place, none cut off at the end.

What makes a row of the audit log tamper-evident: canonical values, salted digests of what may be erased, hashes.

Parts of the audit log that are erased for good: the chain stays whole, because it holds their digests alone.

The audit log: an event per change, reading, log-in and refusal, written in the transaction of what it tells of.

Log-ins, log-outs and passwords in the audit log.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model, QuerySet
from django.utils import timezone

from collections_app.access.context import system_access
from collections_app.audit.origin import current_origin
from collections_app.collections.models import Actor, acting, name_actor
from collections_app.models import ApiKey, AuditEvent, AuditHead, AuditLink, Collection
from ragd import telemetry
from ragd.store.store import execute
from ragd.types import canonical_json

WHO = ("actor_id", "actor_name", "address")
WHAT = ("subject_name", "message", "before", "after")
CORE = (
    "at", "actor_kind", "channel", "request_id", "action", "subject_kind", "subject_id", "collection_id",
    "collection_name", "outcome", "who_digest", "what_digest",
)  # fmt: skip
FIRST = "0" * 64  # stands before the first hash
SALT_BYTES = 16
LONGEST = 500  # characters of a value that is kept as it is
SECRETS = frozenset({"password", "password1", "password2", "secret", "key", "key_hash", "api_key", "token", "salt"})
TEXTS = frozenset(
    {"text", "content", "context", "anchor_text", "answer", "expected_answer", "question", "questions", "correction"}
)
HIDDEN = "***"
THREAD_FILE = re.compile(r"(thread-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/)[^'\"]*")


def audit_values(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Fields as they are kept: no secret, and of a text its SHA-256 and length. None stays None."""
    return None if values is None else {str(name): _field(str(name), value) for name, value in values.items()}


def _field(name: str, value: Any) -> Any:
    if name in SECRETS:
        return HIDDEN if value else ""
    if name in TEXTS and value:
        return text_mark(value if isinstance(value, str) else canonical_json(_plain(value)))
    return _plain(value)


def text_mark(text: str) -> dict[str, Any]:
    """{"sha256", "chars"}: enough to tell whether it was this text, and no more."""
    return {"sha256": hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest(), "chars": len(text)}


def _plain(value: Any) -> Any:
    """As jsonb gives it back: integral floats as integers, no NUL, no half surrogate pair."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {clean_text(str(name)): _field(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, datetime | date):
        return value.isoformat()
    text = clean_text(str(value))
    return text_mark(text) if len(text) > LONGEST else text


def clean_text(text: str) -> str:
    """What PostgreSQL stores of it, without the names of files of threads."""
    return THREAD_FILE.sub(r"\1", text.replace("\x00", "").encode(errors="replace").decode())


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both without the fields that are the same in both."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}


def seal(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a new row gets besides its own: both salts, both digests, and the digest of the whole."""
    sealed: dict[str, Any] = {"who_salt": secrets.token_bytes(SALT_BYTES), "what_salt": secrets.token_bytes(SALT_BYTES)}
    sealed["who_digest"] = group_digest(row, WHO, sealed["who_salt"])
    sealed["what_digest"] = group_digest(row, WHAT, sealed["what_salt"])
    return sealed | {"digest": core_digest({**row, **sealed})}


def group_digest(row: Mapping[str, Any], names: tuple[str, ...], salt: bytes) -> str:
    content = canonical_json({name: row[name] for name in names})
    return hmac.new(salt, content.encode(), hashlib.sha256).hexdigest()


def core_digest(row: Mapping[str, Any]) -> str:
    values = {name: row[name] for name in CORE}
    values["at"] = row["at"].astimezone(UTC).isoformat(timespec="microseconds")
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


def link_hash(position: int, prev_hash: str, digest: str) -> str:
    """As the database computes it."""
    return hashlib.sha256(f"{position} {prev_hash} {digest}".encode()).hexdigest()


ERASE_ACTIONS = "erase."
READ_AT_ONCE = 1000
Ranges = list[list[int]]


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the end of the chain was at some time; it is kept elsewhere, signed."""

    position: int
    hash: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """problem: "" for a whole log, else what the first bad row shows: changed, missing, reordered, truncated, unlinked,
    erased (without an erasure that names it). event, position: of that row, None where there is none. checked: rows
    that were in order before it."""

    checked: int
    problem: str = ""
    position: int | None = None
    event: int | None = None
    details: str = ""
    head: Anchor = Anchor(0, FIRST)

    @property
    def is_whole(self) -> bool:
        return not self.problem

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"whole": self.is_whole}


def read_head() -> Anchor:
    """The end of the chain; position 0 while it is empty."""
    row = AuditHead.objects.first()
    return Anchor(row.position, row.hash) if row else Anchor(0, FIRST)


def verify_chain(anchor: Anchor | None = None) -> Verdict:
    """Read the whole log in its order. anchor: an earlier end, which must still be there."""
    head = read_head()
    covered = _erased_rows()
    position, previous, seen = 0, FIRST, {}
    links = AuditLink.objects.filter(position__lte=head.position).order_by("position")
    for link, event in _with_events(links):
        place = link.position or 0
        if place != position + 1:
            why = f"position {position + 1} is missing; the next row has {place}"
            return Verdict(position, "missing", position + 1, None, why, head)
        if event is None:
            return Verdict(position, "missing", place, link.event_id, f"event {link.event_id} is gone", head)
        if problem := _problem_of(event, covered):
            return Verdict(position, problem[0], place, event.pk, problem[1], head)
        if link.prev_hash != previous:
            return Verdict(position, "reordered", place, event.pk, "it does not follow the row before it", head)
        if link.hash != link_hash(place, previous, event.digest):
            return Verdict(position, "changed", place, event.pk, "its hash is not that of its content", head)
        if anchor is not None and place == anchor.position:
            seen[place] = link.hash
        position, previous = place, link.hash
    return _check_end(position, previous, head, anchor, seen)


def _check_end(position: int, previous: str, head: Anchor, anchor: Anchor | None, seen: Mapping[int, str]) -> Verdict:
    if (position, previous) != (head.position, head.hash):
        why = f"the chain ends at {position}; its head says {head.position}"
        return Verdict(position, "truncated", position + 1, None, why, head)
    if anchor is not None and anchor.position > position:
        why = f"the anchor is of position {anchor.position}; the chain ends at {position}"
        return Verdict(position, "truncated", position + 1, None, why, head)
    if anchor is not None and anchor.position and seen.get(anchor.position) != anchor.hash:
        return Verdict(position, "changed", anchor.position, None, "the anchor has another hash of this position", head)
    loose = AuditEvent.objects.filter(link=None).order_by("id").values_list("id", flat=True).first()
    if loose is not None:
        return Verdict(position, "unlinked", None, loose, f"event {loose} is in no chain", head)
    return Verdict(position, head=head)


def _with_events(links: Any) -> Iterator[tuple[AuditLink, AuditEvent | None]]:
    """In batches: each link with its event."""
    batch: list[AuditLink] = []
    for link in links.iterator(chunk_size=READ_AT_ONCE):
        batch.append(link)
        if len(batch) == READ_AT_ONCE:
            yield from _pair(batch)
            batch = []
    yield from _pair(batch)


def _pair(links: list[AuditLink]) -> Iterator[tuple[AuditLink, AuditEvent | None]]:
    events = AuditEvent.objects.in_bulk([link.event_id for link in links])
    for link in links:
        yield link, events.get(link.event_id)


def _problem_of(event: AuditEvent, covered: Mapping[str, Ranges]) -> tuple[str, str] | None:
    """(problem, details) of one row, None when it is as it was written or was erased by an erasure that names it."""
    row = {field.attname: getattr(event, field.attname) for field in AuditEvent._meta.concrete_fields}
    if core_digest(row) != event.digest:
        return "changed", "its columns are not those that were written"
    for part, names in (("who", WHO), ("what", WHAT)):
        salt = row[f"{part}_salt"]
        if salt is None:
            if not is_covered(event.pk, covered[part]):
                return "erased", f"its {part} is gone and no erasure names it"
        elif group_digest(row, names, bytes(salt)) != row[f"{part}_digest"]:
            return "changed", f"its {part} is not what was written"
    return None


def _erased_rows() -> dict[str, Ranges]:
    """part -> ranges of ids, of the erasures that the log itself tells of."""
    result: dict[str, Ranges] = {"who": [], "what": []}
    for after in AuditEvent.objects.filter(action__startswith=ERASE_ACTIONS).values_list("after", flat=True):
        for part, ranges in result.items():
            ranges.extend((after or {}).get(f"erased_{part}", ()))
    return result


def is_covered(pk: int, ranges: Ranges) -> bool:
    return any(first <= pk <= last for first, last in ranges)


def as_ranges(ids: list[int]) -> Ranges:
    """[1, 2, 3, 7] as [[1, 3], [7, 7]]."""
    ranges: Ranges = []
    for pk in sorted(ids):
        if ranges and pk == ranges[-1][1] + 1:
            ranges[-1][1] = pk
        else:
            ranges.append([pk, pk])
    return ranges


ALLOW = "SELECT set_config('ragd.audit_erasure', %(value)s, true)"
ERASE_PERSON = """
UPDATE audit_events SET actor_id = '', actor_name = %(name)s, address = '', who_salt = NULL WHERE id = ANY(%(ids)s)
"""
ERASE_CONTENT = """
UPDATE audit_events SET subject_name = %(name)s, message = '', before = NULL, after = NULL, what_salt = NULL
WHERE id = ANY(%(ids)s)
"""


def erase_who(rows: QuerySet[AuditEvent], pseudonym: str) -> list[int]:
    """Who did it and from where; the ids of the events. In the caller's transaction, which names them in an event."""
    return _erase(ERASE_PERSON, list(rows.exclude(who_salt=None).values_list("pk", flat=True)), pseudonym)


def erase_what(rows: QuerySet[AuditEvent], name: str = "") -> list[int]:
    """The subject's name, what was done in words, and what was before and after. name: stands for the subject then."""
    return _erase(ERASE_CONTENT, list(rows.exclude(what_salt=None).values_list("pk", flat=True)), name)


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


__all__ = ["ADDITION", "CHANGE", "DELETION", "READING", "Actor", "record", "record_event"]

ADDITION, CHANGE, DELETION, READING = "add", "change", "delete", "read"
VERBS = {ADDITION, CHANGE, DELETION, READING}
BATCH = 500
NAME_MAX = 300
Values = Mapping[str, Any]
Part = Values | None | Callable[[Any], Values | None]  # of all subjects, or of each


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about, a row or only named. collection: (id, name) of its collection."""

    kind: str = ""
    name: str = ""
    id: str = ""
    collection: tuple[int | None, str] = (None, "")

    @classmethod
    def of(cls, row: Model, collection: tuple[int | None, str]) -> Subject:
        return cls(kind_of(row), str(row), "" if row.pk is None else str(row.pk), collection)


@dataclass(frozen=True, slots=True)
class Anonymous:
    """Whoever the request comes from, and what it is called where it comes from nobody known."""

    name: str


NOTHING = Subject()


def record(
    actor: Actor, subjects: Sequence[Model], verb: str, message: str, *, before: Part = None, after: Part = None
) -> None:
    """One event per subject, whoever asks. verb: "change" stands for the action "document.change" and the like; with a
    dot it is the action itself. before, after: the fields that changed, by name; a function gives those of each
    subject."""
    with system_access():
        names = _collections_of(subjects)
        AuditEvent.objects.bulk_create(
            (
                _make_event(
                    actor,
                    verb if "." in verb else f"{kind_of(subject)}.{verb}",
                    message,
                    Subject.of(subject, collection),
                    before=before(subject) if callable(before) else before,
                    after=after(subject) if callable(after) else after,
                )
                for subject, collection in zip(subjects, names, strict=True)
            ),
            batch_size=BATCH,
        )


def record_event(
    actor: Actor | Anonymous,
    action: str,
    message: str,
    *,
    subject: Model | Subject = NOTHING,
    before: Values | None = None,
    after: Values | None = None,
    outcome: str = AuditEvent.Outcome.SUCCEEDED,
) -> AuditEvent:
    """One event, with a subject that is a row or only named."""
    with system_access():
        if isinstance(subject, Model):
            subject = Subject.of(subject, _collections_of([subject])[0])
        event = _make_event(actor, action, message, subject, before=before, after=after, outcome=outcome)
        event.save(force_insert=True)
    return event


def kind_of(subject: Model) -> str:
    """A model's name, such as "document"."""
    return str(subject._meta.model_name)


def _make_event(
    actor: Actor | Anonymous,
    action: str,
    message: str,
    subject: Subject,
    *,
    before: Values | None,
    after: Values | None,
    outcome: str = AuditEvent.Outcome.SUCCEEDED,
) -> AuditEvent:
    origin = current_origin()
    if THREAD_FILE.search(subject.name):  # its fields are not for others either
        before = after = None
    person = None if isinstance(actor, Anonymous) else actor
    kind, actor_id, actor_name = _identity(person if person is not None else origin.find_actor())
    if isinstance(actor, Anonymous) and kind == AuditEvent.ActorKind.SYSTEM:
        kind, actor_name = AuditEvent.ActorKind.ANONYMOUS, actor.name
    row = {
        "at": timezone.now(),
        "actor_kind": str(kind),
        "actor_id": actor_id,
        "actor_name": clean_text(actor_name)[:NAME_MAX],
        "channel": str(origin.channel),
        "address": origin.address,
        "request_id": origin.request_id or telemetry.current_trace_id(),
        "action": action,
        "subject_kind": subject.kind,
        "subject_id": subject.id,
        "subject_name": clean_text(subject.name)[:NAME_MAX],
        "collection_id": subject.collection[0],
        "collection_name": subject.collection[1],
        "message": clean_text(message),
        "before": audit_values(before),
        "after": audit_values(after),
        "outcome": str(outcome),
    }
    return AuditEvent(**row, **seal(row))


def _identity(actor: Any) -> tuple[str, str, str]:
    """(kind, id, name)."""
    actor = acting(actor)
    if isinstance(actor, ApiKey):
        return AuditEvent.ActorKind.KEY, str(actor.pk), name_actor(actor)
    if isinstance(actor, AbstractBaseUser):
        return AuditEvent.ActorKind.USER, str(actor.pk), name_actor(actor)
    return AuditEvent.ActorKind.SYSTEM, "", name_actor(None)


def _collections_of(subjects: Sequence[Any]) -> list[tuple[int | None, str]]:
    """The collection that each subject is, belongs to or names: (id, name), (None, "") where there is none."""
    ids = [int(getattr(subject, "collection_id", None) or 0) for subject in subjects]
    known = dict(Collection.objects.filter(pk__in=set(ids)).values_list("pk", "name")) if any(ids) else {}
    return [
        (subject.pk, subject.name)
        if isinstance(subject, Collection)
        else (pk or None, known.get(pk) or str(getattr(subject, "collection_name", "")))
        for subject, pk in zip(subjects, ids, strict=True)
    ]


def texts_of(values: Values, names: Sequence[str]) -> dict[str, Any]:
    """The hash and length of each named text."""
    return {name: text_mark(str(values[name] or "")) for name in names if name in values}


LOGIN, LOGOUT, PASSWORD = "session.login", "session.logout", "user.password"
UNKNOWN = "an unknown user name"  # what was typed may be a password in the wrong field


def note_login(user: User, *, how: str = "password") -> None:
    """how: by what the person was recognized."""
    record_event(user, LOGIN, f"logged in by {how}", subject=user)


def note_failed_login(username: str) -> None:
    """Under the name of an account that there is; any other name is not kept."""
    user = get_user_model()._default_manager.filter(username=username).first() if "\x00" not in username else None
    record_event(
        Anonymous(str(user) if user else UNKNOWN),
        LOGIN,
        "log-in refused",
        subject=user or Subject("user"),
        outcome=AuditEvent.Outcome.REFUSED,
    )


def note_logout(user: User) -> None:
    record_event(user, LOGOUT, "logged out", subject=user)


def note_password(user: User, *, how: str = "") -> None:
    """how: of one that was set without the old one."""
    record_event(user, PASSWORD, f"changed the own password {how}".strip(), subject=user)
