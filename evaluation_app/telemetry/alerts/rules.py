"""Alerts: rules with their checks, their evaluation, and the webhooks that are told.

The signature is that of Standard Webhooks 1.0 (standardwebhooks.com): HMAC-SHA256 of "id.timestamp.body" under the
key, base64, as `v1,<signature>` in the header `webhook-signature`.

Alert rules changed by administrators, kept in the audit log.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import connection, transaction
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from collections_app.access.context import elevated, system_access
from collections_app.access.mail import can_mail, send_mail
from collections_app.access.permissions import Permission
from collections_app.advisory_locks import LockSpace, try_lock, whole
from collections_app.audit import services
from collections_app.audit.services import differing
from collections_app.endpoints.secrets import UnreadableSecretError, decrypt, encrypt
from collections_app.errors import ServiceError, WrongValueError
from collections_app.index.measurements import serving_recalls
from collections_app.jobs.leases import RetryPolicy
from collections_app.jobs.operation_models import SILENT_AFTER
from collections_app.jobs.operations import OperationProgress, handles, perform_operation, request_operation
from collections_app.jobs.workers import backup_state
from collections_app.models import Collection, IngestJob, Operation, Status
from collections_app.sources.records import count_states
from collections_app.sources.web_client import make_guard, user_agent
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.models import Alert, AlertRule, GoldenSet, Webhook
from evaluation_app.models.spans import ALERTS_KEEP_DAYS
from evaluation_app.runs.requests import newest_serving_runs
from evaluation_app.telemetry.overview.figures import FigureFilter, consumption, period_until
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.identity import UNSEEN
from ragd.readers.fetching import FetchError
from ragd.readers.fetching.addresses import read_address
from ragd.readers.fetching.client import Deadline, Limits, request
from ragd.store.store import execute

QUERIES_MIN = 10  # a share or a percentile of fewer says too little
Unit = Literal["share", "ms", "s", "count", "usd"]

QUERIES = """
SELECT count(*), count(*) FILTER (WHERE status = 'error'),
       count(*) FILTER (WHERE degraded <> '[]'),
       percentile_disc(0.95) WITHIN GROUP (ORDER BY (timings_ms->>'total')::float8)
FROM retrieval_app_queryrun
WHERE environment = %(environment)s AND created_at >= %(since)s
  AND (%(collection_id)s = 0 OR collection_id = %(collection_id)s)
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value now. subject: whose it is, where a rule measures several; "" else."""

    value: float
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """below: whether it fires under the threshold, not over it. window: whether the rule has a time of its own that it
    looks back over. of_collection: whether it can be asked of one collection. view: the page that explains it."""

    name: str
    title: str | Promise
    about: str | Promise
    unit: Unit
    threshold: float
    read: Callable[[AlertRule], Sequence[Reading]]
    view: str
    for_minutes: int = 0
    below: bool = False
    window: bool = False
    of_collection: bool = False

    def is_exceeded(self, value: float, threshold: float) -> bool:
        return value < threshold if self.below else value > threshold

    def worse(self, one: float, other: float) -> float:
        return min(one, other) if self.below else max(one, other)


def _queries(rule: AlertRule) -> tuple[int, int, int, float | None]:
    """(queries of production in the window, failed ones, degraded ones, 95th percentile in ms)."""
    values: dict[str, Any] = {
        "environment": telemetry.PRODUCTION,
        "since": timezone.now() - timedelta(minutes=rule.window_minutes),
        "collection_id": rule.collection_id,
    }
    with connection.cursor() as cursor:
        cursor.execute(QUERIES, values)
        total, failed, degraded, percentile = cursor.fetchone()
    return total, failed, degraded, percentile


def _error_rate(rule: AlertRule) -> list[Reading]:
    total, failed, _, _ = _queries(rule)
    return [Reading(failed / total)] if total >= QUERIES_MIN else []


def _degraded(rule: AlertRule) -> list[Reading]:
    total, _, degraded, _ = _queries(rule)
    return [Reading(degraded / total)] if total else []


def _latency(rule: AlertRule) -> list[Reading]:
    total, _, _, percentile = _queries(rule)
    return [Reading(percentile)] if total >= QUERIES_MIN and percentile is not None else []


def _queue_age(rule: AlertRule) -> list[Reading]:
    waiting = IngestJob.objects.filter(state=IngestJob.State.QUEUED).order_by("created_at")
    oldest = waiting.values_list("created_at", flat=True).first()
    return [Reading((timezone.now() - oldest).total_seconds() if oldest else 0.0)]


def _workers(rule: AlertRule) -> list[Reading]:
    return [Reading(Status.objects.alive(SILENT_AFTER).count())]


def _failing_sources(rule: AlertRule) -> list[Reading]:
    return [Reading(count_states()["failed"])]


def _recall(rule: AlertRule) -> list[Reading]:
    means = [(recall["plain"]["mean"], collection.name) for collection, recall in serving_recalls()]
    return [Reading(mean, name) for mean, name in means if mean is not None]


def _evaluation(rule: AlertRule) -> list[Reading]:
    """By how much the newest run of what serves is below the baseline of its test set: the headline metric that lost
    the most. Sets without a baseline, and those whose newest run is the baseline, are left out."""
    sets = GoldenSet.objects.exclude(baseline=None).select_related("baseline").in_bulk()
    result = []
    for run in newest_serving_runs():
        known = sets.get(run.golden_set_id or 0)
        if known is None or known.baseline is None or known.baseline_id == run.pk:
            continue
        before, after = (each.summary.get("measures", {}) for each in (known.baseline, run))
        drops = [
            (before[name]["value"] - figure["value"]) * (1 if measure_of(name).higher_is_better else -1)
            for name, figure in after.items()
            if measure_of(name).is_headline
            and figure["value"] is not None
            and before.get(name, {}).get("value") is not None
        ]
        if drops:
            result.append(Reading(max(drops), f"{known.collection_name}: {known.name}"))
    return result


def _cost(rule: AlertRule) -> list[Reading]:
    rows = consumption(FigureFilter(period_until("24h")), "model")
    return [Reading(sum(row.cost_usd or 0.0 for row in rows))]


def _disk(rule: AlertRule) -> list[Reading]:
    usage = shutil.disk_usage(settings.RAGD_VAR)
    return [Reading(usage.used / usage.total, socket.gethostname())]


def _backup(rule: AlertRule) -> list[Reading]:
    ages_s = backup_state().ages_s()
    return [Reading(ages_s["backup"])] if "backup" in ages_s else []


def _restore_drill(rule: AlertRule) -> list[Reading]:
    drill = backup_state().drill
    return [Reading(0.0 if drill.values["passed"] else 1.0)] if drill else []


KINDS = {
    kind.name: kind
    for kind in (
        Kind("error_rate", gettext_lazy("Error rate"),
             gettext_lazy("Share of queries in production that failed, from 10 queries on."),
             "share", 0.05, _error_rate, "evaluation:activity", 5, window=True, of_collection=True),
        Kind("degraded", gettext_lazy("Degraded queries"),
             gettext_lazy("Share of queries in production that went on without embedder, reranker, model or replica."),
             "share", 0.0, _degraded, "evaluation:activity", 1, window=True, of_collection=True),
        Kind("latency", gettext_lazy("Latency (p95)"),
             gettext_lazy("95th percentile of queries in production, from 10 queries on."),
             "ms", 10_000, _latency, "evaluation:traces", 10, window=True, of_collection=True),
        Kind("queue_age", gettext_lazy("Queue age"), gettext_lazy("Age of the oldest queued job."),
             "s", 900, _queue_age, "operations:operations", 5),
        Kind("workers", gettext_lazy("Workers"), gettext_lazy("Workers with a recent heartbeat."),
             "count", 1, _workers, "operations:operations", 2, below=True),
        Kind("failing_sources", gettext_lazy("Failing sources"),
             gettext_lazy("Sources whose last sync failed."), "count", 0, _failing_sources, "collections:list"),
        Kind("recall", gettext_lazy("Index recall"),
             gettext_lazy("Recall of the vector index in the newest probe of each collection."),
             "share", 0.95, _recall, "operations:operations", below=True),
        Kind("evaluation", gettext_lazy("Evaluation below baseline"),
             gettext_lazy("How far a headline metric of the newest evaluation is below the test set's baseline."),
             "share", 0.05, _evaluation, "evaluation:index"),
        Kind("cost", gettext_lazy("Cost per day"),
             gettext_lazy("Cost of model calls with a known price in the last 24 hours."),
             "usd", 25, _cost, "collections:models"),
        Kind("disk", gettext_lazy("Disk"), gettext_lazy("Used share of the disk that holds RAGD_VAR, on the worker."),
             "share", 0.9, _disk, "operations:operations", 5),
        Kind("backup", gettext_lazy("Backup age"), gettext_lazy("Age of the last backup, once there was one."),
             "s", 93_600, _backup, "operations:operations"),
        Kind("restore_drill", gettext_lazy("Failed restore drill"),
             gettext_lazy("1 where the last restore drill failed, once there was one."),
             "count", 0, _restore_drill, "operations:operations"),
    )
}  # fmt: skip


NAME_MAX_CHARS = 100
WEBHOOKS_MAX = 20
KEY_BYTES = 24  # Standard Webhooks asks for 24 to 64
KEY_PREFIX = "whsec_"
TIMEOUT_S = 10.0
DISABLED_S = 60.0  # between two looks at a webhook that is disabled
ANSWER_MAX_BYTES = 1_000_000  # what is longer counts as a failed attempt
RETRIES = RetryPolicy(max_attempts=12, first_delay_s=10, max_delay_s=3600)  # over about four hours
FIRING, RESOLVED, TEST = "alert.firing", "alert.resolved", "test"
MAIL, MAIL_TAKEN = "mailto:", 250
AUDITED_WEBHOOK = ("name", "url", "is_enabled")


@dataclass(frozen=True, slots=True)
class WebhookValues:
    name: str
    url: str
    is_enabled: bool = True


@transaction.atomic
def save_webhook(values: WebhookValues, *, actor: services.Actor, row: Webhook | None = None) -> tuple[Webhook, str]:
    """Write a new webhook, or change `row`; with the signing key of a new one, which is not shown again, else "".

    Raises ServiceError (422) with the field. Where the address leads to is checked at each call.
    """
    name, url = values.name.strip(), _check_url(values.url)
    if not name or len(name) > NAME_MAX_CHARS or UNSEEN.search(name):
        raise WrongValueError(f"the name must have 1 to {NAME_MAX_CHARS} visible characters", "name")
    others = Webhook.objects.select_for_update().exclude(pk=row.pk if row else 0)
    if others.filter(name=name).exists():
        raise WrongValueError(f"another webhook is named {name!r} already; choose another name", "name")
    if row is None and others.count() >= WEBHOOKS_MAX:
        raise WrongValueError(
            f"there are {WEBHOOKS_MAX} webhooks already, which is the limit; delete one first", "name"
        )
    before = {field: getattr(row, field) for field in AUDITED_WEBHOOK} if row else {}
    key = "" if row or url.startswith(MAIL) else _new_key()
    saved = row or Webhook(secret=encrypt(key or _new_key()))
    saved.name, saved.url, saved.is_enabled = name, url, values.is_enabled
    saved.save()
    _record(actor, saved, services.CHANGE if row else services.ADDITION, before)
    return saved, key


@transaction.atomic
def rotate_key(row: Webhook, *, actor: services.Actor) -> str:
    """Give it a new signing key, from the next attempt on; returns the key, which is not shown again."""
    key = _new_key()
    row.secret = encrypt(key)
    row.save(update_fields=["secret"])
    services.record(actor, [row], services.CHANGE, "gave it a new signing key")
    return key


@transaction.atomic
def delete_webhook(row: Webhook, *, actor: services.Actor) -> None:
    """Forget a webhook and what was sent and waits to be sent."""
    services.record(actor, [row], services.DELETION, f"webhook to {row.url}")
    with elevated(Permission.ADMINISTER):
        deliveries(row).delete()
        row.delete()


def _new_key() -> str:
    return KEY_PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _check_url(text: str) -> str:
    """As it is stored: of a web address, or of mail."""
    if text.strip().lower().startswith(MAIL):
        address = text.strip()[len(MAIL) :]
        try:
            validate_email(address)
        except ValidationError:
            raise WrongValueError(f"expected mailto: and an email address, not {text!r}", "url") from None
        if not can_mail():
            raise WrongValueError("no mail server is set; enter one in Server settings, Mail, first", "url")
        return MAIL + address
    try:
        return str(read_address(text))
    except InvalidInput as error:
        raise WrongValueError(error.message, "url") from None


def _record(actor: services.Actor, row: Webhook, verb: str, previous: dict[str, Any]) -> None:
    before, after = differing(previous, {field: getattr(row, field) for field in AUDITED_WEBHOOK})
    services.record(actor, [row], verb, f"webhook to {row.url}", before=before if previous else None, after=after)


def announce(alert: Alert, now: datetime) -> None:
    """Have every enabled webhook told that an alert fires or is resolved, once the transaction has committed."""
    event = FIRING if alert.state == Alert.State.FIRING else RESOLVED
    payload = describe_alert(alert, event, now)
    hooks = Webhook.objects.filter(is_enabled=True)
    for hook in hooks:
        request_operation(Operation.Kind.DELIVERY, "", {"webhook": hook.pk, "payload": payload})


def describe_alert(alert: Alert, event: str, now: datetime) -> dict[str, Any]:
    """The message: `text` for chats that show only that, the rest for programs."""
    kind = KINDS[alert.rule.kind]
    state = "firing" if event == FIRING else "resolved"
    about = f" ({alert.subject})" if alert.subject else ""
    value = "no value" if alert.value is None else f"{alert.value:.6g}"
    side = "below" if kind.below else "above"
    return {
        "type": event,
        "timestamp": now.isoformat(),
        "text": f"[{state}] {kind.title}{about}: {value} {kind.unit}, fires {side} {alert.threshold:g} {kind.unit}",
        "data": {
            "alert_id": alert.pk,
            "rule": kind.name,
            "title": str(kind.title),
            "state": state,
            "subject": alert.subject,
            "unit": kind.unit,
            "value": alert.value,
            "worst": alert.worst,
            "threshold": alert.threshold,
            "started_at": alert.started_at.isoformat(),
            "resolved_at": alert.resolved_at.isoformat() if alert.resolved_at else None,
        },
    }


def deliveries(row: Webhook) -> QuerySet[Operation]:
    """What was sent to it and waits to be sent, the newest first."""
    return Operation.objects.filter(kind=Operation.Kind.DELIVERY, arguments__webhook=row.pk)


def send_test(row: Webhook, *, actor: services.Actor = None) -> Operation:
    """Send a test message now, once, and say what came back."""
    now = timezone.now()
    payload = {"type": TEST, "timestamp": now.isoformat(), "text": "[test] A test message of ragd.", "data": {}}
    arguments = {"webhook": row.pk, "payload": payload}
    return perform_operation(Operation.Kind.DELIVERY, "", arguments, actor=actor)


@handles(Operation.Kind.DELIVERY)
def deliver(progress: OperationProgress) -> None:
    """One call. 2xx is success; anything else is tried again while attempts are left, a 410 is not.

    report: {"attempts", "status" of the last answer, None without one}. A webhook that is disabled is waited for.
    """
    operation = progress.operation
    row = Webhook.objects.get(pk=operation.arguments["webhook"])
    is_test = operation.arguments["payload"]["type"] == TEST
    if not (row.is_enabled or is_test):
        progress.postpone(DISABLED_S)
        return
    report: dict[str, Any] = {"attempts": operation.report.get("attempts", 0) + 1, "status": None}
    try:
        report["status"] = _mail(row, operation) if row.url.startswith(MAIL) else _post(row, operation)
        error = "" if 200 <= report["status"] < 300 else f"answered {report['status']}"
    except (FetchError, InvalidInput, ServiceError, UnreadableSecretError) as failure:
        error = str(failure)[:500]
    if not error:
        progress.succeed(report)
    elif is_test or report["status"] == 410 or not RETRIES.allows(report["attempts"]):
        progress.write(report=report)
        raise ServiceError(error, type="not_delivered", status=502)
    else:
        progress.postpone(RETRIES.delay_s(report["attempts"]), report=report, error=error)


def _post(row: Webhook, operation: Operation) -> int:
    """The status of the answer. Raises FetchError, InvalidInput, UnreadableSecretError."""
    body = json.dumps(operation.arguments["payload"], ensure_ascii=False).encode()
    stamp = str(int(timezone.now().timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": user_agent(),
        "webhook-id": str(operation.pk),
        "webhook-timestamp": stamp,
        "webhook-signature": sign(decrypt(row.secret), str(operation.pk), stamp, body),
    }
    limits = Limits(make_guard(), Deadline(TIMEOUT_S), ANSWER_MAX_BYTES)
    return request(read_address(row.url), limits, headers=headers, method="POST", body=body).status


def _mail(row: Webhook, operation: Operation) -> int:
    """The status of SMTP for a message that the mail server took. Raises ServiceError."""
    text = operation.arguments["payload"]["text"]
    send_mail(row.url.removeprefix(MAIL), f"{settings.RAGD_NAME}: {text}", f"{text}\n{_link()}")
    return MAIL_TAKEN


def _link() -> str:
    return f"{settings.RAGD_PUBLIC_URL.rstrip('/')}{reverse('evaluation:alerts')}" if settings.RAGD_PUBLIC_URL else ""


def sign(key: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The header `webhook-signature`. key: as it was shown, with its prefix."""
    secret = base64.b64decode(key.removeprefix(KEY_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


log = logging.getLogger(__name__)

READ_BRIEFLY = "SET LOCAL statement_timeout = '10s'"


def evaluate_alerts(now: datetime | None = None) -> int:
    """Measure every enabled rule and follow its alerts; returns how many rules. 0 while another process does it.

    A rule that cannot be measured keeps its alerts as they are and says why in `error`.
    """
    now = now or timezone.now()
    with system_access(), transaction.atomic():
        if not try_lock(whole(LockSpace.ALERTS)):
            return 0
        rules = [rule for rule in AlertRule.objects.filter(is_enabled=True) if rule.kind in KINDS]
        for rule in rules:
            _measure(rule, now)
        forget(now - timedelta(days=ALERTS_KEEP_DAYS))
    return len(rules)


def _measure(rule: AlertRule, now: datetime) -> None:
    kind = KINDS[rule.kind]
    try:
        with transaction.atomic():
            execute(connection, READ_BRIEFLY)
            readings = list(kind.read(rule))
    except Exception as error:  # one rule that cannot be measured holds up no other
        log.exception("the alert rule %s could not be measured", rule)
        AlertRule.objects.filter(pk=rule.pk).update(error=str(error)[:500], measured_at=now)
        return
    follow(rule, kind, readings, now)
    rule.readings = [[reading.subject, reading.value] for reading in readings]
    rule.error, rule.measured_at = "", now
    rule.save(update_fields=["readings", "error", "measured_at"])


def follow(rule: AlertRule, kind: Kind, readings: list[Reading], now: datetime) -> None:
    """Open, fire and resolve the alerts of a rule. One whose subject is not measured any more is resolved."""
    alerts = {alert.subject: alert for alert in rule.alerts.open()}
    for reading in readings:
        alert = alerts.pop(reading.subject, None)
        if not kind.is_exceeded(reading.value, rule.threshold):
            if alert is not None:
                resolve(alert, now, reading.value)
            continue
        if alert is None:
            alert = Alert(
                rule=rule, subject=reading.subject, state=Alert.State.PENDING, started_at=now, worst=reading.value
            )
        alert.value, alert.threshold = reading.value, rule.threshold
        alert.worst = kind.worse(alert.worst, reading.value)
        fires = alert.state == Alert.State.PENDING and now - alert.started_at >= timedelta(minutes=rule.for_minutes)
        if fires:
            alert.state, alert.fired_at = Alert.State.FIRING, now
        alert.save()
        if fires:
            announce(alert, now)
    for alert in alerts.values():
        resolve(alert, now, None)


def resolve(alert: Alert, now: datetime, value: float | None) -> None:
    """A pending one is forgotten, a firing one is resolved and said so."""
    if alert.state == Alert.State.PENDING:
        alert.delete()
        return
    alert.state, alert.resolved_at, alert.value = Alert.State.RESOLVED, now, value
    alert.save(update_fields=["state", "resolved_at", "value"])
    announce(alert, now)


def forget(before: datetime) -> None:
    Alert.objects.filter(state=Alert.State.RESOLVED, resolved_at__lt=before).delete()


AUDITED_RULE = ("threshold", "window_minutes", "for_minutes", "is_enabled")


@transaction.atomic
def add_rule(kind: str, collection: Collection, values: dict[str, Any], *, actor: services.Actor) -> AlertRule:
    """A rule of one collection. Raises ServiceError: 422 for a kind that has none, 409 for a second one."""
    if not KINDS[kind].of_collection:
        known = ", ".join(each.name for each in KINDS.values() if each.of_collection)
        raise WrongValueError(f"expected a rule that one collection can have ({known}), not {kind}", "kind")
    if AlertRule.objects.filter(kind=kind, collection_id=collection.pk).exists():
        raise ServiceError(
            f"{collection.name} has a rule for {KINDS[kind].title} already; change that one", field="collection"
        )
    rule = AlertRule.objects.create(kind=kind, collection_id=collection.pk, **values)
    services.record(actor, [rule], services.ADDITION, f"alert rule for {collection.name}", after=values)
    return rule


@transaction.atomic
def change_rule(rule: AlertRule, values: dict[str, Any], *, actor: services.Actor) -> None:
    """Its next measurement uses them. What fires is resolved when the rule is disabled."""
    before, after = differing({name: getattr(rule, name) for name in AUDITED_RULE}, values)
    for name, value in values.items():
        setattr(rule, name, value)
    rule.save(update_fields=list(values))
    if not rule.is_enabled:
        resolve_all(rule)
    services.record(actor, [rule], services.CHANGE, "alert rule", before=before, after=after)


@transaction.atomic
def delete_rule(rule: AlertRule, *, actor: services.Actor) -> None:
    """With its alerts, after they are resolved. Raises ServiceError (409) for a rule of the whole server."""
    if not rule.collection_id:
        raise ServiceError("a rule of the whole server cannot be deleted; disable it")
    resolve_all(rule)
    services.record(actor, [rule], services.DELETION, "alert rule")
    rule.delete()


def resolve_all(rule: AlertRule) -> None:
    now = timezone.now()
    for alert in rule.alerts.open():
        resolve(alert, now, alert.value)
