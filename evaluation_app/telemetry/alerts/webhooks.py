"""Webhooks: saved with an encrypted signing key, and called with signed messages until they answer. One of an address
`mailto:` gets mails.

The signature is that of Standard Webhooks 1.0 (standardwebhooks.com): HMAC-SHA256 of "id.timestamp.body" under the
key, base64, as `v1,<signature>` in the header `webhook-signature`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from collections_app.access.context import elevated
from collections_app.access.mail import can_mail, send_mail
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.audit.services import differing
from collections_app.endpoints.secrets import UnreadableSecretError, decrypt, encrypt
from collections_app.errors import ServiceError, WrongValueError
from collections_app.jobs.leases import RetryPolicy
from collections_app.jobs.operations import OperationProgress, handles, perform_operation, request_operation
from collections_app.models import Operation
from collections_app.sources.web_client import make_guard, user_agent
from evaluation_app.models import Alert, Webhook
from evaluation_app.telemetry.alerts.rules import KINDS
from ragd.errors import InvalidInput
from ragd.identity import UNSEEN
from ragd.readers.fetching import FetchError
from ragd.readers.fetching.addresses import read_address
from ragd.readers.fetching.client import Deadline, Limits, request

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
AUDITED = ("name", "url", "is_enabled")


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
    before = {field: getattr(row, field) for field in AUDITED} if row else {}
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
    before, after = differing(previous, {field: getattr(row, field) for field in AUDITED})
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
