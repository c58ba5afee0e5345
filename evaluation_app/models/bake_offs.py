"""Comparisons of embedding models on questions of a collection."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.work.leases import LeasedWork


class BakeOffQuerySet(models.QuerySet["BakeOff"]):
    def under_way(self) -> BakeOffQuerySet:
        """Queued or running."""
        return self.filter(finished_at=None)


class BakeOff(LeasedWork):
    """Embedding models tried on the same questions over the same sample of a collection's documents.

    candidates: `bake_offs.candidates.Candidate.as_dict()`, the model that serves first. questions: `Golden.as_dict()`,
    fixed when it began; set_name: the test set that they are of, "" where they were made from the documents. doc_ids:
    the sample. results: `bake_offs.trial.Trial.as_dict()` of each candidate that is finished, in their order. stage:
    the model that is tried now; done of total: its chunks.
    """

    class State(models.TextChoices):
        RUNNING = "running", gettext_lazy("Running")
        SUCCEEDED = "succeeded", gettext_lazy("Succeeded")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    collection_name = models.TextField(db_collation="C")
    set_name = models.CharField(max_length=200, default="", blank=True)
    mode = models.CharField(max_length=10)
    k = models.IntegerField(default=10)
    candidates: models.JSONField[Any, Any] = models.JSONField(default=list)
    questions: models.JSONField[Any, Any] = models.JSONField(default=list)
    doc_ids: models.JSONField[Any, Any] = models.JSONField(default=list)
    documents_total = models.IntegerField(default=0)
    chunks_total = models.IntegerField(default=0)
    results: models.JSONField[Any, Any] = models.JSONField(default=list, blank=True)
    state = models.CharField(max_length=10, choices=State, default=State.RUNNING)
    stage = models.TextField(default="", blank=True)
    done = models.IntegerField(default=0)
    total = models.IntegerField(default=0)
    error_type = models.CharField(max_length=64, default="", blank=True)
    error = models.TextField(default="", blank=True)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = BakeOffQuerySet.as_manager()

    class Meta:
        db_table = "bake_offs"
        ordering: ClassVar[list[str]] = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"Bake-off of {self.collection_name}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:bake-off", args=[self.pk])

    @property
    def is_active(self) -> bool:
        return self.finished_at is None
