"""The span store and what is made of it: sums, exports, alerts, and the webhooks that hear of them."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models.expressions import RawSQL
from django.utils import timezone

HOLDS_WORDS = "(spans.attributes::text ILIKE %s OR spans.events::text ILIKE %s OR spans.links::text ILIKE %s)"
LIKE_ESCAPES = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})
CONTENT_COLUMNS = ("attributes", "events", "links", "words")


class SpanQuerySet(models.QuerySet["Span"]):
    def of_trace(self, trace_id: str) -> SpanQuerySet:
        """All spans of a trace by start, ties by id. An empty trace id has none."""
        return self.filter(trace_id=trace_id).order_by("started_at", "id") if trace_id else self.none()

    def of_run(self, run_id: UUID) -> SpanQuerySet:
        return self.filter(run_id=run_id).order_by("started_at", "id")

    def without_content(self) -> SpanQuerySet:
        """Rows for a table: attributes, events and links stay in the database."""
        return self.defer(*CONTENT_COLUMNS)

    def holding(self, words: str) -> SpanQuerySet:
        """Spans with the words in their attributes, events or links, in any case. Reads each: narrow them first."""
        pattern = f"%{words.translate(LIKE_ESCAPES)}%"
        matches = RawSQL(HOLDS_WORDS, [pattern] * 3, output_field=models.BooleanField())  # noqa: S611  (a constant)
        return self.filter(matches)


class Span(models.Model):
    """One finished span. `id` stands in for the partitioned table's key (started_at, id).

    attributes: name -> value, as recorded. events: [{name, time, attributes}].
    links: [{trace_id, span_id, attributes}]. The columns after dropped_count are taken from name and attributes when
    the span is written (telemetry/store/exporter.py). type: of the span tables ("aitf.rag.retrieve"), else the own name
    ("rag.lexical"), "" for a span of others. oi_kind: of OpenInference. Counts, cost (US dollars) and risk are None
    where unknown.
    """

    id = models.BigAutoField(primary_key=True)
    trace_id = models.TextField(db_collation="C")
    span_id = models.TextField(db_collation="C")
    parent_span_id = models.TextField(db_collation="C", null=True, blank=True)
    name = models.TextField()
    kind = models.TextField()
    scope = models.TextField(default="", blank=True)
    service = models.TextField(default="", blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    duration_ms = models.FloatField()
    status_code = models.TextField(default="UNSET")
    status_description = models.TextField(default="", blank=True)
    collection = models.TextField(default="", blank=True)
    run_id = models.UUIDField(null=True, blank=True)
    attributes = models.JSONField(default=dict, blank=True)
    events = models.JSONField(default=list, blank=True)
    links = models.JSONField(default=list, blank=True)
    dropped_count = models.IntegerField(default=0)
    type = models.TextField(default="", blank=True)
    oi_kind = models.TextField(default="", blank=True)
    model = models.TextField(default="", blank=True)
    api_key = models.TextField(default="", blank=True)
    input_tokens = models.BigIntegerField(null=True, blank=True)
    output_tokens = models.BigIntegerField(null=True, blank=True)
    cost_usd = models.FloatField(null=True, blank=True)
    risk_score = models.FloatField(null=True, blank=True)
    words = SearchVectorField(null=True, editable=False)
    environment = models.TextField(default="production", blank=True)

    objects = SpanQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "spans"

    def __str__(self) -> str:
        return self.name

    @property
    def has_failed(self) -> bool:
        return self.status_code == "ERROR"


class SpanRollup(models.Model):
    """What the spans of one hour, or one day, add up to: of one type and environment, of one collection, model and key
    or of all. environment "": added up before there were environments, of spans that are gone.

    hours: 1 or 24, from `hour` on. summed_over: which of the three were added up, see `figures.SUMMED`; those
    columns are "" then. buckets, counts: how many spans took how long, ascending, see `figures.BASE`. priced:
    how many of the spans have a cost; cost_usd is of those alone.
    """

    id = models.BigAutoField(primary_key=True)
    hour = models.DateTimeField()
    hours = models.SmallIntegerField(default=1)
    summed_over = models.SmallIntegerField()
    type = models.TextField(default="", blank=True)
    environment = models.TextField(default="", blank=True)
    collection = models.TextField(default="", blank=True)
    model = models.TextField(default="", blank=True)
    api_key = models.TextField(default="", blank=True)
    buckets = ArrayField(models.SmallIntegerField())
    counts = ArrayField(models.IntegerField())
    spans = models.IntegerField()
    failed = models.IntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    priced = models.IntegerField(default=0)

    class Meta:
        db_table = "span_rollups"
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["hour"], name="span_rollups_hour"),
            models.Index(fields=["summed_over", "hours", "hour"], name="span_rollups_read"),
        ]

    def __str__(self) -> str:
        return f"{self.spans} of {self.type or 'others'} at {self.hour:%Y-%m-%d %H}:00"


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
