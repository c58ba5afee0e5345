"""Rules measured and alerts followed: pending, firing, resolved."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from collections_app.access_context import system_access
from collections_app.advisory_locks import LockSpace, try_lock, whole
from evaluation_app.alerts.rules import KINDS, Kind, Reading
from evaluation_app.alerts.webhooks import announce
from evaluation_app.models import Alert, AlertRule, WebhookDelivery
from evaluation_app.models.alerts import ALERTS_KEEP_DAYS
from ragd.store.store import execute

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
    WebhookDelivery.objects.exclude(state=WebhookDelivery.State.WAITING).filter(created_at__lt=before).delete()
