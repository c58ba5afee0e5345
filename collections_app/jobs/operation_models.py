"""What keeps the service going: signs of life, operations, how long data is kept, answers for repeated requests.

What all workers know together: how the model endpoints fare, and the last results of what is done repeatedly.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db import models
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.access.models import CollectionScope
from collections_app.jobs.leases import RESEND_AFTER, LeasedWork

SILENT_AFTER = timedelta(minutes=2)


class StatusQuerySet(QuerySet["Status"]):
    def workers(self) -> StatusQuerySet:
        return self.filter(kind=Status.Kind.WORKER)

    def alive(self, within: timedelta) -> StatusQuerySet:
        """Workers that gave a sign of life within that time."""
        return self.workers().filter(made_at__gte=timezone.now() - within)

    def span_writers(self) -> StatusQuerySet:
        return self.filter(kind=Status.Kind.SPAN_WRITER)

    def results(self) -> StatusQuerySet:
        return self.filter(kind=Status.Kind.RESULT)

    def keep(self, kind: Status.Kind, name: str, values: dict[str, Any]) -> Status:
        """State what is known now, in place of what was known before."""
        defaults = {"values": values, "made_at": timezone.now()}
        return self.update_or_create(kind=kind, name=name, defaults=defaults)[0]

    def forget(self, kind: Status.Kind, before: datetime) -> int:
        """Remove what was last stated before that moment; returns how many."""
        return self.filter(kind=kind, made_at__lt=before).delete()[0]


class Status(models.Model):
    """What all processes know of something that changes: one row per kind and name, as it was at `made_at`.

    values of a worker process, which was alive then: host, pid, job (an id or null), jobs_done, memory_mb, started_at.
    Of a process that writes spans, counts that only grow while it lives: endpoint (of a collector, "" for the span
    store), written, lost, last_error, last_error_at. Of a host that addresses are fetched from: next_at, before which
    no worker asks it for anything, and robots, per origin ("https://example.org") {"rules": the text of robots.txt,
    "until": when it is asked for again}. Of the last result of what is done repeatedly, such as maintenance or a
    backup: as the service states that does it. Moments in values are ISO 8601.
    """

    class Kind(models.TextChoices):
        WORKER = "worker", gettext_lazy("Worker")
        SPAN_WRITER = "span_writer", gettext_lazy("Span writer")
        HOST = "host", gettext_lazy("Host")
        RESULT = "result", gettext_lazy("Result")

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.TextField(db_collation="C")
    values: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)
    made_at = models.DateTimeField(default=timezone.now)

    objects = StatusQuerySet.as_manager()

    class Meta:
        db_table = "statuses"
        ordering = ["kind", "name"]
        constraints = [models.UniqueConstraint(fields=["kind", "name"], name="statuses_key")]

    def __str__(self) -> str:
        return self.name

    @property
    def summary(self) -> str:
        """The single values in one line, without those that are empty."""
        single = {name: value for name, value in self.values.items() if not isinstance(value, dict | list)}
        return ", ".join(f"{name} {value}" for name, value in single.items() if value not in (None, ""))


class IdempotencyRecord(models.Model):
    """The answer that a POST with an Idempotency-Key got, to be given again. `status` is null while it is made.

    response: the JSON of the answer as one text, because jsonb would put its keys in another order.
    """

    id = models.BigAutoField(primary_key=True)
    owner = models.CharField(max_length=64)
    key = models.CharField(max_length=255)
    request_hash = models.CharField(max_length=64)
    status = models.IntegerField(null=True, blank=True)
    response: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "idempotency_records"
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="idempotency_owner_key")]
        indexes = [models.Index(fields=["created_at"], name="idempotency_created_idx")]

    def __str__(self) -> str:
        return self.key


class ServerSetting(models.Model):
    """A setting of the server as an administrator set it on a page (`endpoints/server_settings.py`).

    key: its name in `ragd_site/environment.py`. value: JSON; null for a secret, which is in `secret`, encrypted.
    """

    encrypted_fields = ("secret",)

    key = models.CharField(max_length=64, primary_key=True)
    value: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    secret = models.TextField(default="", blank=True, editable=False)
    updated_by = models.TextField(default="", blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "server_settings"
        ordering = ["key"]

    def __str__(self) -> str:
        return self.key


class OperationQuerySet(QuerySet["Operation"]):
    def visible_to(self, scope: CollectionScope) -> OperationQuerySet:
        """Those on collections that a key opens; the import that made one began before it."""
        if scope.opened is None:
            return self.all()
        made = [Q(subject=name, created_at__lt=at, finished_at__gte=at) for name, at in scope.opened.values()]
        imported = reduce(or_, made, Q(pk__in=[])) & Q(kind=Operation.Kind.IMPORT)
        return self.filter(scope.by_name("subject", "created_at") | imported)


class Operation(LeasedWork):
    """Something done to a whole collection, or to the server, outside the worker's jobs, and what came of it.

    subject: the collection's name, "" for the server. done of total: rows of the present stage. report: what is kept
    of the result; its shape is that of the service which did it. findings: what a check found wrong. arguments: what a
    worker needs to do it; null for one that the process does which began it, and that nobody else can go on with.
    source: of a sync, of which one is under way for each source at most.
    """

    class Kind(models.TextChoices):
        EXPORT = "export", gettext_lazy("Export")
        IMPORT = "import", gettext_lazy("Import")
        CHECK = "check", gettext_lazy("Check")
        RETENTION = "retention", gettext_lazy("Retention")
        DELETION = "deletion", gettext_lazy("Deletion")
        CONFORMANCE = "conformance", gettext_lazy("Conformance")
        BISECTION = "bisection", gettext_lazy("Bisection")
        DUPLICATES = "duplicates", gettext_lazy("Near-duplicate scan")
        FINDINGS = "findings", gettext_lazy("Security scan")
        BACKUP = "backup", gettext_lazy("Backup")
        DRILL = "drill", gettext_lazy("Restore drill")
        SYNC = "sync", gettext_lazy("Sync")
        DELIVERY = "delivery", gettext_lazy("Webhook delivery")
        JUDGE_CHECK = "judge_check", gettext_lazy("Judge check")

    class State(models.TextChoices):
        RUNNING = "running", gettext_lazy("Running")
        SUCCEEDED = "succeeded", gettext_lazy("Succeeded")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING)
    subject = models.TextField(db_collation="C", default="", blank=True)
    stage = models.TextField(default="", blank=True)
    done = models.BigIntegerField(default=0)
    total = models.BigIntegerField(default=0)
    findings = models.IntegerField(default=0)
    report = models.JSONField(default=dict, blank=True)
    arguments: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    source = models.ForeignKey(
        "collections_app.Source", null=True, blank=True, on_delete=models.CASCADE, db_index=False, related_name="runs"
    )
    error_type = models.CharField(max_length=64, default="", blank=True)
    error = models.TextField(default="", blank=True)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    heartbeat_at = models.DateTimeField(default=timezone.now, db_column="beat_at")
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = OperationQuerySet.as_manager()

    class Meta:
        db_table = "operations"
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["kind", "-created_at", "-id"], name="operations_kind_idx"),
            models.Index(fields=["subject", "-created_at", "-id"], name="operations_subject_idx"),
            models.Index(fields=["source", "-created_at", "-id"], name="operations_source_idx"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["source"], name="operations_one_sync", condition=Q(finished_at__isnull=True)
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.subject}".strip()

    @property
    def is_running(self) -> bool:
        return self.state == self.State.RUNNING and not self.is_interrupted

    @property
    def is_interrupted(self) -> bool:
        """Whether its process gave no sign of life for two minutes and no worker can go on with it."""
        if self.state != self.State.RUNNING or self.arguments is not None:
            return False
        return self.lease_until is None or self.lease_until < timezone.now()

    @property
    def shown_state(self) -> str:
        """The state in a word, "interrupted" where its process died."""
        return "interrupted" if self.is_interrupted else str(self.state)

    @property
    def can_cancel(self) -> bool:
        """Whether it has not ended and a worker does it; what another process does ends with that process."""
        return self.finished_at is None and self.arguments is not None

    @property
    def next_at(self) -> datetime:
        """When one that waits is sent to a worker again."""
        return self.sent_at + RESEND_AFTER

    @property
    def verdict(self) -> str:
        """Of a kind that tries rules, in a word: running, error, failed (with findings) or passed."""
        if self.finished_at is None:
            return "running"
        return "error" if self.error else "failed" if self.findings else "passed"

    @property
    def percent(self) -> int:
        """How far the present stage is, 0 to 100."""
        if self.state == self.State.SUCCEEDED:
            return 100
        return min(100, 100 * self.done // self.total) if self.total else 0

    @property
    def took_ms(self) -> float | None:
        return None if self.took_s is None else 1000 * self.took_s

    @property
    def took_s(self) -> float | None:
        """Seconds from the beginning to the end; None before it."""
        return (self.finished_at - self.created_at).total_seconds() if self.finished_at else None


class Provider(models.Model):
    """A model endpoint as all workers together know it: how it fares, and what it may still be asked.

    name: "<address> <model>". failures: requests that failed for now, in a row. open_until: until then nobody asks it;
    after that one request at a time tries it, until one succeeds; null when all is well. probe_until: such a try is
    under way. requests_left, tokens_left: what the bucket held at `filled_at`.
    """

    name = models.CharField(max_length=300, primary_key=True)
    failures = models.IntegerField(default=0)
    open_until = models.DateTimeField(null=True, blank=True)
    opened_at = models.DateTimeField(null=True, blank=True)
    probe_until = models.DateTimeField(null=True, blank=True)
    error = models.TextField(default="", blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    requests_left = models.FloatField(null=True, blank=True)
    tokens_left = models.FloatField(null=True, blank=True)
    filled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "providers"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
