"""The audit log, read back: filtered, newest first.

Download the audit log as JSON Lines or OCSF, newest first, made while it is read.

3002 Authentication, 3001 Account Change and 3005 User Access Management are about people and their rights, 6005
Datastore Activity is about collections and what they hold, 6003 API Activity is everything else. Category, classes and
activities are those of the released OCSF 1.1.0; `audit_schemas/` says what each class holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, time, timedelta
from typing import Any
from uuid import UUID, uuid5

from django.db.models import Q, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from collections_app.audit.services import Subject, record_event
from collections_app.collections.models import Actor
from collections_app.domain.formats import parse_moment, words
from collections_app.errors import WrongValueError
from collections_app.http.downloads import BATCH, DownloadSlots, LimitedDownload, download_response
from collections_app.models import AuditEvent
from ragd.errors import InvalidInput
from ragd.version import product_version

ORDER = ("-id",)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What is looked for; "" leaves a field out.

    actor: a part of a name, or an address. action: "document.change", or "document" for all of a kind. kind, subject: a
    model's name and a row's id. q: in what was done and to what. since, until: a day, a time or an age; a
    day is whole.
    """

    q: str = ""
    collection: str = ""
    actor: str = ""
    action: str = ""
    kind: str = ""
    subject: str = ""
    channel: str = ""
    outcome: str = ""
    since: str = ""
    until: str = ""

    @classmethod
    def read(cls, values: Any) -> AuditFilter:
        """Of an address' parameters."""
        stated = {field.name: str(values.get(field.name) or "").strip() for field in fields(cls)}
        return cls(**{name: text.encode(errors="replace").decode() for name, text in stated.items()})

    def as_params(self) -> dict[str, str]:
        """What is stated, for an address."""
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name)}

    def rows(self) -> QuerySet[AuditEvent]:
        """Newest first. Raises ServiceError (422) naming the field that is no time."""
        rows = AuditEvent.objects.order_by(*ORDER)
        if any("\x00" in value for value in self.as_params().values()):
            return rows.none()  # no stored text holds a NUL
        exact = {
            "collection_name": self.collection,
            "subject_kind": self.kind,
            "subject_id": self.subject,
            "channel": self.channel,
            "outcome": self.outcome,
        }
        rows = rows.filter(**{name: value for name, value in exact.items() if value})
        if self.action:
            rows = rows.filter(Q(action=self.action) | Q(action__startswith=f"{self.action}."))
        if self.actor:
            rows = rows.filter(Q(actor_name__icontains=self.actor) | Q(address=self.actor))
        if self.q:
            rows = rows.filter(Q(message__icontains=self.q) | Q(subject_name__icontains=self.q) | Q(request_id=self.q))
        if self.since:
            rows = rows.filter(at__gte=_moment("since", self.since))
        if self.until:
            rows = rows.filter(at__lt=_moment("until", self.until, end=True))
        return rows


def _moment(name: str, text: str, *, end: bool = False) -> datetime:
    """The time, or the begin of the day; of a day that ends, the begin of the next."""
    try:
        if day := parse_date(text):
            return timezone.make_aware(datetime.combine(day + timedelta(days=1) if end else day, time.min))
    except ValueError:
        pass  # 2026-02-31, which is no time either
    try:
        return parse_moment(name, text) or timezone.now()
    except InvalidInput as error:
        raise WrongValueError(error.message, name) from None


def list_actions() -> list[str]:
    """The actions that there are events of, by name."""
    return list(AuditEvent.objects.order_by("action").values_list("action", flat=True).distinct())


KIND_WORDS: Mapping[str, Any] = {
    "access": _("Access"), "address": _("Address"), "alertrule": _("Alert rule"), "apikey": _("API key"),
    "assistant": _("Assistant"), "audit": _("Audit log"), "auditevent": _("Audit log"), "backup": _("Backup"),
    "boardcard": _("Failing question"), "calibration": _("Calibration"), "chatassistant": _("Assistant"),
    "chatthread": _("Thread"), "chunk": _("Chunk"), "cluster": _("Cluster"), "collection": _("Collection"),
    "document": _("Document"), "erase": _("Erasure"), "evaluationrun": _("Evaluation run"),
    "experiment": _("Experiment"), "goldenset": _("Test set"), "group": _("Group"),
    "index_version": _("Index version"), "indexversion": _("Index version"), "ingestbatch": _("Upload"),
    "ingestjob": _("Job"), "modelprice": _("Price"), "modelsetting": _("Model"), "nearduplicate": _("Near-duplicate"),
    "operation": _("Operation"), "person": _("User"), "promotiongate": _("Quality gate"), "queryrun": _("Query run"),
    "review": pgettext_lazy("noun", "Review"), "reviewtask": pgettext_lazy("noun", "Review"), "rolegrant": _("Role"),
    "runscore": _("Score"), "savedplan": _("Preset"), "serversetting": _("Setting"), "session": _("Session"),
    "source": _("Source"), "span": _("Spans"), "thread": _("Thread"), "upload": _("Upload"), "user": _("User"),
    "webhook": _("Webhook"),
}  # fmt: skip
VERB_WORDS: Mapping[str, Any] = {
    "activate": _("activated"), "add": _("added"), "change": _("changed"), "collection": _("collection"),
    "confirm": _("confirmed"), "create": _("made"), "delete": _("deleted"), "document": _("document"),
    "download": _("downloaded"), "export": _("downloaded"), "fail": _("failed"), "gate": _("quality gate changed"),
    "import": _("imported"), "login": _("log-in"), "logout": _("log-out"), "measure_weights": _("weights measured"),
    "original": _("original opened"), "overrule": _("quality gate overruled"), "password": _("password changed"),
    "person": _("user"), "purge": _("deleted for good"), "read": _("read"), "rebalance": _("rebalanced"),
    "receipt": _("receipt downloaded"), "recover": _("recovered"), "refuse": _("refused"), "request": _("requested"),
    "restore": _("restored"), "revoke": _("revoked"), "rollback": _("rolled back"), "share": _("sharing changed"),
    "sync": _("synced"), "thresholds": _("thresholds changed"), "upload": _("uploaded"),
}  # fmt: skip


def kind_words(kind: str) -> str:
    """evaluationrun -> Evaluation run; a kind without words as it is."""
    return str(KIND_WORDS.get(kind, kind))


def action_words(action: str) -> str:
    """rolegrant.add -> Role: added."""
    kind, _dot, verb = action.partition(".")
    return f"{kind_words(kind)}: {VERB_WORDS.get(verb, words(verb))}" if verb else action


def describe_event(event: AuditEvent) -> dict[str, Any]:
    """An event as the API and JSON Lines give it."""
    link = getattr(event, "link", None)
    return {
        "id": event.pk,
        "at": event.at.isoformat(),
        "actor": {"kind": event.actor_kind, "id": event.actor_id, "name": event.actor_name},
        "channel": event.channel,
        "address": event.address,
        "request_id": event.request_id,
        "action": event.action,
        "subject": {"kind": event.subject_kind, "id": event.subject_id, "name": event.subject_name},
        "collection": {"id": event.collection_id, "name": event.collection_name},
        "message": event.message,
        "before": event.before,
        "after": event.after,
        "outcome": event.outcome,
        "erased": event.is_erased,
        "position": link.position if link else None,
        "digest": event.digest,
        "prev_hash": link.prev_hash if link else "",
        "hash": link.hash if link else "",
    }


VERSION = "1.1.0"
NAMESPACE = UUID("0f0f6d5c-5b0a-5b0e-9d53-0f7d6a1c9f41")  # of the events' ids
OTHER = 99
INFORMATIONAL, MEDIUM = 1, 3
SEVERITIES = {INFORMATIONAL: "Informational", MEDIUM: "Medium"}
SUCCESS, FAILURE = 1, 2
CATEGORIES = {3: "Identity & Access Management", 6: "Application Activity"}
USER_TYPES = {"user": (1, "User"), "system": (3, "System"), "key": (OTHER, "API key"), "anonymous": (0, "Unknown")}


@dataclass(frozen=True, slots=True)
class EventClass:
    """activities: activity_id -> name; by_verb: the last part of an action -> activity_id."""

    uid: int
    name: str
    activities: Mapping[int, str]
    by_verb: Mapping[str, int]


AUTHENTICATION = EventClass(3002, "Authentication", {1: "Logon", 2: "Logoff"}, {"login": 1, "logout": 2})
ACCOUNT = EventClass(
    3001,
    "Account Change",
    {1: "Create", 3: "Password Change", 6: "Delete"},
    {"add": 1, "password": 3, "delete": 6, "person": 6},
)
ACCESS = EventClass(
    3005,
    "User Access Management",
    {1: "Assign Privileges", 2: "Revoke Privileges"},
    {"add": 1, "grant": 1, "delete": 2, "revoke": 2},
)
DATASTORE = EventClass(
    6005,
    "Datastore Activity",
    {1: "Read", 2: "Update", 5: "Write", 6: "Create", 7: "Delete"},
    {
        "read": 1, "export": 1, "download": 1, "change": 2, "add": 6, "upload": 5, "import": 5, "delete": 7,
        "document": 7, "collection": 7,
    },
)  # fmt: skip
API = EventClass(
    6003,
    "API Activity",
    {1: "Create", 2: "Read", 3: "Update", 4: "Delete"},
    {"add": 1, "read": 2, "export": 2, "download": 2, "change": 3, "delete": 4},
)
STORED = frozenset(
    {
        "collection", "document", "chunk", "goldenset", "ingestbatch", "indexversion", "queryrun", "evaluationrun",
        "span", "review", "upload",
    }
)  # fmt: skip
RIGHTS = frozenset({"apikey", "group", "permission", "rolegrant", "documentaccess"})


def class_of(event: AuditEvent) -> EventClass:
    """By the action, then by what it was done to."""
    if event.action.startswith("session."):
        return AUTHENTICATION
    if event.subject_kind == "user":
        return ACCOUNT
    if event.subject_kind in RIGHTS:
        return ACCESS
    return DATASTORE if event.subject_kind in STORED else API


def ocsf_event(event: AuditEvent) -> dict[str, Any]:
    event_class = class_of(event)
    activity = event_class.by_verb.get(event.action.rpartition(".")[2], OTHER)
    refused = event.outcome == AuditEvent.Outcome.REFUSED
    severity, status = (MEDIUM, FAILURE) if refused else (INFORMATIONAL, SUCCESS)
    activity_name = event_class.activities.get(activity, event.action)
    category = event_class.uid // 1000
    whole = describe_event(event)
    return {
        "activity_id": activity,
        "activity_name": activity_name,
        "category_uid": category,
        "category_name": CATEGORIES[category],
        "class_uid": event_class.uid,
        "class_name": event_class.name,
        "type_uid": event_class.uid * 100 + activity,
        "type_name": f"{event_class.name}: {activity_name if activity != OTHER else 'Other'}",
        "time": int(event.at.timestamp() * 1000),
        "severity_id": severity,
        "severity": SEVERITIES[severity],
        "status_id": status,
        "status": "Failure" if refused else "Success",
        "message": event.message or event.action,
        "metadata": {
            "version": VERSION,
            "product": {"name": "ragd", "vendor_name": "ragd", "version": product_version()},
            "uid": str(uuid5(NAMESPACE, f"{event.pk}:{event.digest}")),
            "log_name": "audit",
            **({"correlation_uid": event.request_id} if event.request_id else {}),
            **({"sequence": whole["position"]} if whole["position"] else {}),
        },
        "actor": {"app_name": f"ragd {event.channel}", "user": _actor(event)},
        "src_endpoint": {"ip": event.address} if event.address else {"name": "ragd"},
        "unmapped": {
            name: whole[name] for name in ("action", "channel", "collection", "before", "after", "hash", "prev_hash")
        },
        **_own_fields(event, event_class),
    }


def _own_fields(event: AuditEvent, event_class: EventClass) -> dict[str, Any]:
    """What the class has besides the fields of all."""
    subject = {"name": event.subject_name or event.subject_kind, "uid": event.subject_id or "-"}
    resource = subject | {"type": event.subject_kind or "server"}
    if event_class is AUTHENTICATION:
        return {"user": _actor(event), "is_remote": bool(event.address), "service": {"name": "ragd"}}
    if event_class is ACCOUNT:
        return {"user": subject | {"type_id": 1, "type": "User"}}
    if event_class is ACCESS:
        privileges = list(map(str, (event.after or {}).get("scopes") or [event.action]))
        return {"user": subject | {"type_id": OTHER, "type": resource["type"]}, "privileges": privileges}
    if event_class is DATASTORE:
        name = event.collection_name or subject["name"]
        database = {"name": name, "uid": str(event.collection_id or "-"), "type_id": OTHER, "type": "Collection"}
        return {"database": database, "query_info": {"query_string": event.action}, "resources": [resource]}
    return {"api": {"operation": event.action, "service": {"name": "ragd"}}, "resources": [resource]}


def _actor(event: AuditEvent) -> dict[str, Any]:
    type_id, type_name = USER_TYPES[event.actor_kind]
    return {"name": event.actor_name, "uid": event.actor_id or "-", "type_id": type_id, "type": type_name}


FORMATS: dict[str, Callable[[AuditEvent], dict[str, Any]]] = {"jsonl": describe_event, "ocsf": ocsf_event}
MEDIA_TYPE = "application/jsonl"

_slots = DownloadSlots(2, "the audit log")


def send_audit_log(request: HttpRequest, audit_filter: AuditFilter, form: str, actor: Actor) -> StreamingHttpResponse:
    """The events of the filter as a download, which is an event itself. Raises ServiceError 422 and 429."""
    if form not in FORMATS:
        raise WrongValueError(f"format must be {' or '.join(FORMATS)}, not {form!r}", "format")
    lines = LimitedDownload(_slots, audit_lines(audit_filter, form, actor))
    name = f"audit-{timezone.now():%Y%m%d-%H%M%S}.{form}.jsonl"
    return download_response(request, lines, MEDIA_TYPE, name, reading=None)


def audit_lines(audit_filter: AuditFilter, form: str, actor: Actor) -> Generator[bytes]:
    """The events of the filter as they are now, a piece per batch; that they are taken out is an event before them."""
    rows = audit_filter.rows()
    after = {"rows": rows.count(), "format": form, "filter": audit_filter.as_params()}
    newest = rows.values_list("pk", flat=True).first() or 0
    record_event(actor, "audit.export", "downloaded the audit log", subject=Subject("auditevent"), after=after)
    return _write(rows.filter(pk__lte=newest), FORMATS[form])


def _write(rows: QuerySet[AuditEvent], form: Callable[[AuditEvent], dict[str, Any]]) -> Generator[bytes]:
    for batch in _batches(rows.select_related("link")):
        yield "".join(json.dumps(form(event), ensure_ascii=False) + "\n" for event in batch).encode()


def _batches(rows: QuerySet[AuditEvent]) -> Iterator[list[AuditEvent]]:
    """By id downwards, each batch by a statement of its own: no transaction stays open."""
    following = rows
    while batch := list(following[:BATCH]):
        yield batch
        following = rows.filter(pk__lt=batch[-1].pk)
