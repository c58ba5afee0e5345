"""Alert rules, alerts, and the webhooks that hear of them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone

ALERTS_KEEP_DAYS = 90  # resolved alerts


class AlertRule(models.Model):
    """One of the kinds of `alerts.rules.KINDS` with its threshold.

    collection_id: whose figures are read; 0: of the whole server (no null: see `RoleGrant`). for_minutes: how long the
    threshold must be exceeded before the alert fires. readings: the last measurement, [[subject, value], ...]; error:
    why there was none.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=32)
    collection_id = models.BigIntegerField(default=0)
    threshold = models.FloatField()
    window_minutes = models.IntegerField(default=15)
    for_minutes = models.IntegerField(default=0)
    is_enabled = models.BooleanField(default=True)
    readings = models.JSONField(default=list)
    error = models.TextField(default="", blank=True)
    measured_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "alert_rules"
        ordering: ClassVar[list[str]] = ["id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["kind", "collection_id"], name="alert_rules_key")
        ]

    def __str__(self) -> str:
        return self.kind


class AlertQuerySet(models.QuerySet["Alert"]):
    def open(self) -> AlertQuerySet:
        """Pending and firing ones."""
        return self.exclude(state=Alert.State.RESOLVED)

    def firing(self) -> AlertQuerySet:
        """The oldest first."""
        return self.filter(state=Alert.State.FIRING).select_related("rule").order_by("started_at", "id")

    def resolved(self) -> AlertQuerySet:
        """The one that was resolved last first."""
        return self.filter(state=Alert.State.RESOLVED).select_related("rule").order_by("-resolved_at", "-id")


class Alert(models.Model):
    """A threshold that is or was exceeded. subject: a collection, a test set or a host; "" for the whole server.

    value: the last one, or the one that resolved it; None where there was none any more. worst: the one that was
    farthest beyond the threshold.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        FIRING = "firing"
        RESOLVED = "resolved"

    id = models.BigAutoField(primary_key=True)
    # the constraint is the migration's: the database deletes alerts with their rule, as it does rules of a collection
    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, db_constraint=False, related_name="alerts")
    subject = models.TextField(default="")
    state = models.CharField(max_length=16, choices=State.choices)
    threshold = models.FloatField()
    value = models.FloatField(null=True)
    worst = models.FloatField()
    started_at = models.DateTimeField()
    fired_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)

    objects = AlertQuerySet.as_manager()

    class Meta:
        db_table = "alerts"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=~models.Q(state="resolved"), name="alerts_one_open"
            )
        ]
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["-resolved_at"], name="alerts_resolved")]

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}".strip()


class Webhook(models.Model):
    """Where alerts are sent. secret: the signing key, encrypted (`endpoints/secrets.py`)."""

    encrypted_fields = ("secret",)

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=100, unique=True)
    url = models.CharField(max_length=2000)
    secret = models.TextField(editable=False)
    is_enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "webhooks"
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        return self.name
