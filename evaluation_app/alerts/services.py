"""Alert rules changed by administrators, kept in the audit log."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from collections_app.domain.audit_digests import differing
from collections_app.errors import ServiceError
from collections_app.models import Collection
from collections_app.services.governance import audit
from evaluation_app.alerts.evaluation import resolve
from evaluation_app.alerts.rules import KINDS
from evaluation_app.models import AlertRule

AUDITED = ("threshold", "window_minutes", "for_minutes", "is_enabled")


@transaction.atomic
def add_rule(kind: str, collection: Collection, values: dict[str, Any], *, actor: audit.Actor) -> AlertRule:
    """A rule of one collection. Raises ServiceError: 422 for a kind that has none, 409 for a second one."""
    if not KINDS[kind].of_collection:
        known = ", ".join(each.name for each in KINDS.values() if each.of_collection)
        raise ServiceError(
            f"expected a rule that one collection can have ({known}), not {kind}",
            type="invalid_input", status=422, field="kind",
        )  # fmt: skip
    if AlertRule.objects.filter(kind=kind, collection_id=collection.pk).exists():
        raise ServiceError(
            f"{collection.name} has a rule for {KINDS[kind].title} already; change that one",
            type="conflict", status=409, field="collection",
        )  # fmt: skip
    rule = AlertRule.objects.create(kind=kind, collection_id=collection.pk, **values)
    audit.record(actor, [rule], audit.ADDITION, f"alert rule for {collection.name}", after=values)
    return rule


@transaction.atomic
def change_rule(rule: AlertRule, values: dict[str, Any], *, actor: audit.Actor) -> None:
    """Its next measurement uses them. What fires is resolved when the rule is disabled."""
    before, after = differing({name: getattr(rule, name) for name in AUDITED}, values)
    for name, value in values.items():
        setattr(rule, name, value)
    rule.save(update_fields=list(values))
    if not rule.is_enabled:
        resolve_all(rule)
    audit.record(actor, [rule], audit.CHANGE, "alert rule", before=before, after=after)


@transaction.atomic
def delete_rule(rule: AlertRule, *, actor: audit.Actor) -> None:
    """With its alerts, after they are resolved. Raises ServiceError (409) for a rule of the whole server."""
    if not rule.collection_id:
        raise ServiceError("a rule of the whole server cannot be deleted; disable it", type="conflict", status=409)
    resolve_all(rule)
    audit.record(actor, [rule], audit.DELETION, "alert rule")
    rule.delete()


def resolve_all(rule: AlertRule) -> None:
    now = timezone.now()
    for alert in rule.alerts.open():
        resolve(alert, now, alert.value)
