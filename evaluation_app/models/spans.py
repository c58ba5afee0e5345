"""The span store and what is made of it. Span mirrors migrations/0002_spans.sql and is unmanaged."""

from __future__ import annotations

from datetime import datetime
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

    def older_than(self, moment: datetime) -> SpanQuerySet:
        return self.filter(started_at__lt=moment)


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


class SpanWriter(models.Model):
    """What one process has handed to the span store, or sent to a collector, and what it lost.

    Counts only grow while the process lives. endpoint: of the collector, "" for the span store.
    """

    name = models.CharField(max_length=200, primary_key=True)
    endpoint = models.TextField(default="", blank=True)
    written = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)
    last_error = models.TextField(default="", blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "span_writers"
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        return self.name


class SpanRollup(models.Model):
    """What the spans of one hour, or one day, add up to: of one type and environment, of one collection, model and key
    or of all. environment "": added up before there were environments, of spans that are gone.

    hours: 1 or 24, from `hour` on. summed_over: which of the three were added up, see `rollups.SUMMED`; those
    columns are "" then. buckets, counts: how many spans took how long, ascending, see `rollups.BASE`. priced:
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
