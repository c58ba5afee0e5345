"""Webhooks: saved with an encrypted signing key, and called with signed messages until they answer.

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
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from collections_app.access.context import system_access
from collections_app.audit import services
from collections_app.audit.chain import differing
from collections_app.endpoints.secrets import UnreadableSecretError, decrypt, encrypt
from collections_app.errors import ServiceError
from collections_app.jobs.delivery import RetryPolicy, enqueue, send
from collections_app.sources.web_client import make_guard, user_agent
from evaluation_app.models import Alert, Webhook, WebhookDelivery
from evaluation_app.telemetry.alerts.rules import KINDS
from ragd.errors import InvalidInput
from ragd.identity import UNSEEN
from ragd.readers.fetching import FetchError
from ragd.readers.fetching.addresses import read_address
from ragd.readers.fetching.client import Deadline, Limits, request

DELIVER = "evaluation_app.deliver_webhooks"
NAME_MAX_CHARS = 100
WEBHOOKS_MAX = 20
KEY_BYTES = 24  # Standard Webhooks asks for 24 to 64
KEY_PREFIX = "whsec_"
TIMEOUT_S = 10.0
ANSWER_MAX_BYTES = 1_000_000  # what is longer counts as a failed attempt
RETRIES = RetryPolicy(max_attempts=12, first_delay_s=10, max_delay_s=3600)  # over about four hours
FIRING, RESOLVED, TEST = "alert.firing", "alert.resolved", "test"
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
        raise _refuse(f"the name must have 1 to {NAME_MAX_CHARS} visible characters", "name")
    others = Webhook.objects.select_for_update().exclude(pk=row.pk if row else 0)
    if others.filter(name=name).exists():
        raise _refuse(f"another webhook is named {name!r} already; choose another name", "name")
    if row is None and others.count() >= WEBHOOKS_MAX:
        raise _refuse(f"there are {WEBHOOKS_MAX} webhooks already, which is the limit; delete one first", "name")
    before = {field: getattr(row, field) for field in AUDITED} if row else {}
    key = "" if row else _new_key()
    saved = row or Webhook(secret=encrypt(key))
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
    row.delete()


def _new_key() -> str:
    return KEY_PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _check_url(text: str) -> str:
    try:
        return str(read_address(text))
    except InvalidInput as error:
        raise _refuse(error.message, "url") from None


def _record(actor: services.Actor, row: Webhook, verb: str, previous: dict[str, Any]) -> None:
    before, after = differing(previous, {field: getattr(row, field) for field in AUDITED})
    services.record(actor, [row], verb, f"webhook to {row.url}", before=before if previous else None, after=after)


def _refuse(message: str, field: str) -> ServiceError:
    return ServiceError(message, type="invalid_input", status=422, field=field)


def announce(alert: Alert, now: datetime) -> None:
    """Have every enabled webhook told that an alert fires or is resolved, once the transaction has committed."""
    event = FIRING if alert.state == Alert.State.FIRING else RESOLVED
    payload = describe_alert(alert, event, now)
    hooks = Webhook.objects.filter(is_enabled=True)
    rows = [WebhookDelivery(webhook=hook, event=event, payload=payload) for hook in hooks]
    if WebhookDelivery.objects.bulk_create(rows):
        enqueue(DELIVER)


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


def send_test(row: Webhook) -> WebhookDelivery:
    """Send a test message now, once, and say what came back."""
    now = timezone.now()
    payload = {"type": TEST, "timestamp": now.isoformat(), "text": "[test] A test message of ragd.", "data": {}}
    delivery = WebhookDelivery.objects.create(webhook=row, event=TEST, payload=payload, next_at=None)
    return attempt(delivery)


def send_again(delivery: WebhookDelivery) -> None:
    """A new round of attempts for a message that failed. Raises ServiceError (409) for one that did not."""
    failed = WebhookDelivery.objects.filter(pk=delivery.pk, state=WebhookDelivery.State.FAILED)
    if not failed.update(state=WebhookDelivery.State.WAITING, attempts=0, next_at=timezone.now(), error=""):
        raise ServiceError(
            f"only a failed delivery is sent again, and this one is {delivery.state}", type="conflict", status=409
        )
    enqueue(DELIVER)


def deliver_soon() -> bool:
    """Have a worker deliver what is due; returns whether anything is."""
    due = WebhookDelivery.objects.filter(
        state=WebhookDelivery.State.WAITING, next_at__lte=timezone.now(), webhook__is_enabled=True
    )
    if not due.exists():
        return False
    send(DELIVER, [()])
    return True


def deliver_due() -> int:
    """Attempt everything that is due; returns how many attempts. Several processes may do it side by side.

    Before it is sent the next attempt is written down, so a process that dies costs one attempt and no message.
    """
    count = 0
    with system_access():
        while (delivery := _take_due(timezone.now())) is not None:
            attempt(delivery)
            count += 1
    return count


@transaction.atomic
def _take_due(now: datetime) -> WebhookDelivery | None:
    waiting = WebhookDelivery.objects.filter(
        state=WebhookDelivery.State.WAITING, next_at__lte=now, webhook__is_enabled=True
    )
    unlocked = waiting.select_for_update(skip_locked=True, of=("self",))
    row = unlocked.select_related("webhook").order_by("next_at").first()
    if row is not None:
        row.next_at = now + timedelta(seconds=RETRIES.delay_s(row.attempts + 1) + TIMEOUT_S)
        row.save(update_fields=["next_at"])
    return row


def attempt(delivery: WebhookDelivery) -> WebhookDelivery:
    """One call. 2xx is success; anything else is tried again while attempts are left, a 410 is not."""
    delivery.attempts += 1
    try:
        delivery.status = _post(delivery)
        gone = delivery.status == 410
        delivery.error = "" if 200 <= delivery.status < 300 else f"answered {delivery.status}"
    except (FetchError, InvalidInput, UnreadableSecretError) as error:
        delivery.status, delivery.error, gone = None, str(error)[:500], False
    if not delivery.error:
        delivery.state, delivery.next_at = WebhookDelivery.State.DELIVERED, None
        delivery.delivered_at = timezone.now()
    elif gone or delivery.next_at is None or not RETRIES.allows(delivery.attempts):
        delivery.state, delivery.next_at = WebhookDelivery.State.FAILED, None
    delivery.save(update_fields=["attempts", "status", "error", "state", "next_at", "delivered_at"])
    return delivery


def _post(delivery: WebhookDelivery) -> int:
    """The status of the answer. Raises FetchError, InvalidInput, UnreadableSecretError."""
    body = json.dumps(delivery.payload, ensure_ascii=False).encode()
    stamp = str(int(timezone.now().timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": user_agent(),
        "webhook-id": str(delivery.pk),
        "webhook-timestamp": stamp,
        "webhook-signature": sign(decrypt(delivery.webhook.secret), str(delivery.pk), stamp, body),
    }
    limits = Limits(make_guard(), Deadline(TIMEOUT_S), ANSWER_MAX_BYTES)
    answer = request(read_address(delivery.webhook.url), limits, headers=headers, method="POST", body=body)
    return answer.status


def sign(key: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The header `webhook-signature`. key: as it was shown, with its prefix."""
    secret = base64.b64decode(key.removeprefix(KEY_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
