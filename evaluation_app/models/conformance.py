"""Results of the conformance suite."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone

from collections_app.work.leases import LeasedWork


class ConformanceQuerySet(models.QuerySet["ConformanceResult"]):
    def under_way(self) -> ConformanceQuerySet:
        """Asked for and not finished, newest first."""
        return self.filter(finished_at=None)

    def finished(self) -> ConformanceQuerySet:
        """Those that tried the rules, newest first."""
        return self.exclude(finished_at=None).filter(error="")


class ConformanceResult(LeasedWork):
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
        """running, passed, failed, or error: the suite could not be run, or it ended its worker each time."""
        if self.finished_at is None:
            return "running"
        if self.error:
            return "error"
        return "passed" if self.passed else "failed"

    @property
    def failed_rules(self) -> int:
        return sum(not rule["passed"] for rule in self.rules)

    @property
    def passed_rules(self) -> int:
        return len(self.rules) - self.failed_rules
