"""Rules measured and alerts followed: pending, firing, resolved.

Alert rules changed by administrators, kept in the audit log.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from collections_app.access.context import system_access
from collections_app.advisory_locks import LockSpace, try_lock, whole
from collections_app.audit import services
from collections_app.audit.services import differing
from collections_app.errors import ServiceError, WrongValueError
from collections_app.models import Collection
from evaluation_app.models import Alert, AlertRule
from evaluation_app.models.alerts import ALERTS_KEEP_DAYS
from evaluation_app.telemetry.alerts.rules import KINDS, Kind, Reading
from evaluation_app.telemetry.alerts.webhooks import announce
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


AUDITED = ("threshold", "window_minutes", "for_minutes", "is_enabled")


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
    before, after = differing({name: getattr(rule, name) for name in AUDITED}, values)
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
