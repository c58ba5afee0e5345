"""The span store, metrics, golden questions, conformance results. Span mirrors spans.sql and is unmanaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.utils import timezone

from evaluation_app.querysets import CONFORMANCE_LIMIT, ConformanceQuerySet, SpanQuerySet


class Span(models.Model):
    """One finished span. `id` stands in for the partitioned table's key (started_at, id).

    attributes: name -> value, as recorded. events: [{name, time, attributes}].
    links: [{trace_id, span_id, attributes}]. The columns after dropped_count are taken from name and attributes when
    the span is written (span_columns.py). type: of the span tables ("aitf.rag.retrieve"), else the own name
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
    """What one process has handed to the span store and what it lost. Counts only grow while the process lives."""

    name = models.CharField(max_length=200, primary_key=True)
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
    """What the spans of one hour, or one day, add up to: of one type, of one collection, model and key or of all.

    hours: 1 or 24, from `hour` on. summed_over: which of the three were added up, see `overview_rollups.SUMMED`; those
    columns are "" then. buckets, counts: how many spans took how long, ascending, see `overview_rollups.BASE`. priced:
    how many of the spans have a cost; cost_usd is of those alone.
    """

    id = models.BigAutoField(primary_key=True)
    hour = models.DateTimeField()
    hours = models.SmallIntegerField(default=1)
    summed_over = models.SmallIntegerField()
    type = models.TextField(default="", blank=True)
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


class SpanSender(models.Model):
    """What one process has sent to a collector, and what that did not take. Counts only grow while it lives."""

    name = models.CharField(max_length=200, primary_key=True)
    endpoint = models.TextField(default="", blank=True)
    sent = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)
    last_error = models.TextField(default="", blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "span_senders"
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        return self.name


class MetricSnapshot(models.Model):
    """What one process has counted and measured since it began, as the last export wrote it.

    name: one process. data: [{"name", "kind": counter or histogram, "unit", "description", "points": [...]}]. Those of
    processes that are gone are folded into one row per service, so that counters never fall.
    """

    name = models.CharField(max_length=200, primary_key=True)
    service = models.CharField(max_length=100, default="", blank=True)
    data = models.JSONField(default=list, blank=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "metric_snapshots"
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        return self.name


class GoldenSet(models.Model):
    """Questions with known answers over one collection. `version` grows whenever a question changes."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=200, unique=True)
    description = models.TextField(default="", blank=True)
    collection_name = models.TextField(db_collation="C")
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "golden_sets"
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        return self.name


class GoldenQuestion(models.Model):
    """One question. expected_doc_ids: any of them answers it. expected_chunks: "doc_id#chunk_index", where known."""

    id = models.BigAutoField(primary_key=True)
    golden_set = models.ForeignKey(GoldenSet, on_delete=models.CASCADE, related_name="questions")
    position = models.IntegerField(default=0)
    question = models.TextField()
    expected_doc_ids = models.JSONField(default=list, blank=True)
    expected_chunks = models.JSONField(default=list, blank=True)
    expected_answer = models.TextField(default="", blank=True)
    category = models.CharField(max_length=60, default="factual")
    weight = models.FloatField(default=1.0)
    thresholds = models.JSONField(default=dict, blank=True)
    notes = models.TextField(default="", blank=True)
    suggested = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "golden_questions"
        ordering: ClassVar[list[str]] = ["golden_set", "position", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["golden_set", "question"], name="golden_question_once")
        ]

    def __str__(self) -> str:
        return self.question


class ConformanceResult(models.Model):
    """One run of the conformance suite on the server's database. finished_at is None while it is under way.

    rules: [{section, title, cases, passed, failures: [{case, expected, got}], took_ms}], in the specification's order.
    error: why the suite could not be run at all. started_by: a user name, "" for the shell.
    """

    id = models.BigAutoField(primary_key=True)
    spec_version = models.CharField(max_length=40)
    database_version = models.CharField(max_length=100, default="", blank=True)
    pgvector_version = models.CharField(max_length=40, default="", blank=True)
    passed = models.BooleanField(default=False)
    cases = models.IntegerField(default=0)
    rules = models.JSONField(default=list, blank=True)
    error = models.TextField(default="", blank=True)
    took_ms = models.FloatField(null=True, blank=True)
    started_by = models.CharField(max_length=200, default="", blank=True)
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = ConformanceQuerySet.as_manager()

    class Meta:
        db_table = "conformance_results"
        ordering: ClassVar[list[str]] = ["-started_at", "-id"]

    def __str__(self) -> str:
        return f"Conformance with {self.spec_version}: {self.state}"

    @property
    def state(self) -> str:
        """running, passed, failed, or error: the suite could not be run, or its worker died."""
        if self.finished_at is None:
            return "running" if self.started_at > timezone.now() - CONFORMANCE_LIMIT else "error"
        if self.error:
            return "error"
        return "passed" if self.passed else "failed"

    @property
    def failed_rules(self) -> int:
        return sum(not rule["passed"] for rule in self.rules)

    @property
    def passed_rules(self) -> int:
        return len(self.rules) - self.failed_rules

    def keep(self, report: Mapping[str, Any]) -> None:
        """Take over what the suite found (`Report.as_dict`); the caller saves."""
        self.spec_version, self.passed, self.cases = report["spec_version"], report["passed"], report["cases"]
        self.database_version, self.pgvector_version = report["database"], report["pgvector"]
        self.took_ms, self.rules = report["took_ms"], report["rules"]
