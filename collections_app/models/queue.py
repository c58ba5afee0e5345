"""What all workers know together: how the model endpoints fare, and the last results of what is done repeatedly."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone


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


class Report(models.Model):
    """The last result of something that is done again and again, such as the sweep; one row per name."""

    name = models.CharField(max_length=64, primary_key=True)
    values: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)
    made_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "reports"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
