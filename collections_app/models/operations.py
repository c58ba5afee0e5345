"""What keeps the service going: signs of life, and answers kept for repeated requests."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone


class WorkerHeartbeat(models.Model):
    """A worker process that was alive at `beat_at`. Health is read here, never asked over the broker."""

    name = models.CharField(max_length=200, primary_key=True)
    host = models.TextField(default="")
    pid = models.IntegerField(default=0)
    job = models.UUIDField(null=True, blank=True)
    jobs_done = models.IntegerField(default=0)
    memory_mb = models.IntegerField(default=0)
    started_at = models.DateTimeField(default=timezone.now)
    beat_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "worker_heartbeats"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


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
