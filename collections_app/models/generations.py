"""Generations of an index, and probes of its recall."""

from __future__ import annotations

from django.db import models
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.models.library import Collection

NEXT_STATES = ("building", "ready")
KEPT_STATES = ("building", "ready", "serving", "retired", "failed")


class GenerationQuerySet(QuerySet["Generation"]):
    def newest(self) -> GenerationQuerySet:
        return self.order_by("-number")

    def kept(self) -> GenerationQuerySet:
        """Those whose table is there, or is about to go."""
        return self.filter(state__in=KEPT_STATES)

    def next_up(self) -> GenerationQuerySet:
        """Being built, or complete and waiting to be swapped in; at most one per collection."""
        return self.filter(state__in=NEXT_STATES)


class Generation(models.Model):
    """One index of a collection as an object that can be made again: by what it was built, from what, and how far.

    hash: `ragd.store.generations.GenerationSpec.hash`. chunk_policy: the stated fields, policy: the whole one they
    make.
    documents_total and chars_total are those of the collection when they were last counted. chunks_per_s, chars_per_s:
    measured in the present run. automatic: it swaps itself in when it is complete. The row outlives the table, so that
    runs can name it; `state` dropped says that the table is gone.

    list_weights: how much each list of a hybrid search counts where nobody states it, {} until it was measured.
    list_weights_report: `ragd.insight.list_weights.ListWeights` with "chunks", the number there were.

    gate_state: what the promotion gate said when it was to serve, "" where none was asked. gate_report: what it
    compared, as the gate's floor writes it, with "reason" in words. gate_reason, gate_by, gate_at: who let it serve
    nevertheless, why and when.
    """

    class GateState(models.TextChoices):
        PASSED = "passed", gettext_lazy("Passed")
        HELD = "held", gettext_lazy("Blocked")
        OVERRULED = "overruled", gettext_lazy("Overridden")

    class State(models.TextChoices):
        BUILDING = "building", gettext_lazy("Building")
        READY = "ready", gettext_lazy("Ready")
        SERVING = "serving", gettext_lazy("Active")
        RETIRED = "retired", gettext_lazy("Inactive")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")
        DROPPED = "dropped", gettext_lazy("Deleted")

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.CASCADE, db_constraint=False, related_name="generations"
    )
    number = models.IntegerField()
    hash = models.CharField(max_length=64)
    spec_version = models.CharField(max_length=20)
    embed_model = models.TextField()
    embed_dims = models.IntegerField()
    hybrid_enabled = models.BooleanField()
    language = models.TextField()
    vector_type = models.CharField(max_length=8, default="vector")
    chunk_policy = models.JSONField(default=dict, blank=True)
    policy = models.JSONField(default=dict, blank=True)
    state = models.CharField(max_length=16, choices=State.choices, default=State.BUILDING)
    automatic = models.BooleanField(default=True)
    documents_total = models.IntegerField(default=0)
    documents_done = models.IntegerField(default=0)
    chars_total = models.BigIntegerField(default=0)
    chars_done = models.BigIntegerField(default=0)
    chunks_done = models.IntegerField(default=0)
    chunks_per_s = models.FloatField(null=True, blank=True)
    chars_per_s = models.FloatField(null=True, blank=True)
    error = models.TextField(default="", blank=True)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    swapped_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(null=True, blank=True)
    list_weights = models.JSONField(default=dict, blank=True, db_default={})
    list_weights_report = models.JSONField(default=dict, blank=True, db_default={})
    list_weights_measured_at = models.DateTimeField(null=True, blank=True)
    gate_state = models.CharField(max_length=10, choices=GateState.choices, default="", blank=True)
    gate_report = models.JSONField(default=dict, blank=True)
    gate_reason = models.TextField(default="", blank=True)
    gate_by = models.TextField(default="", blank=True)
    gate_at = models.DateTimeField(null=True, blank=True)

    objects = GenerationQuerySet.as_manager()

    class Meta:
        db_table = "generations"
        ordering = ["collection", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["collection", "number"], name="generations_number"),
            models.UniqueConstraint(
                fields=["collection"], name="generations_one_next", condition=models.Q(state__in=NEXT_STATES)
            ),
        ]

    def __str__(self) -> str:
        return f"Generation {self.number}"

    @property
    def percent(self) -> int:
        """How much of the text is in, 0 to 100; an index that is complete is 100."""
        if self.state not in (self.State.BUILDING, self.State.FAILED, self.State.CANCELLED):
            return 100
        return min(100, 100 * self.chars_done // self.chars_total) if self.chars_total else 0

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the text is in, at the present rate; None when it is not building or nothing was measured."""
        if self.state != self.State.BUILDING or not self.chars_per_s:
            return None
        return max(0.0, (self.chars_total - self.chars_done) / self.chars_per_s)


class GenerationDocument(models.Model):
    """Which state of which document a generation that does not serve holds; of the one that serves, documents tell."""

    id = models.BigAutoField(primary_key=True)
    generation = models.ForeignKey(Generation, on_delete=models.CASCADE, related_name="documents")
    doc_id = models.TextField(db_collation="C")
    document_id = models.BigIntegerField()
    revision = models.IntegerField()
    enabled = models.BooleanField()
    chunk_count = models.IntegerField()
    content_hash = models.TextField()
    chunk_policy = models.JSONField()

    class Meta:
        db_table = "generation_documents"
        constraints = [models.UniqueConstraint(fields=["generation", "doc_id"], name="generation_documents_key")]

    def __str__(self) -> str:
        return self.doc_id


class StoredProbe(models.Model):
    """A recall probe that was run: `ragd.insight.recall.RecallProbe` as numbers. recall null: no query could be
    compared."""

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="probes")
    generation = models.IntegerField()
    k = models.IntegerField()
    ef_search = models.IntegerField()
    chunk_count = models.BigIntegerField()
    queries = models.IntegerField()
    recall = models.FloatField(null=True, blank=True)
    recall_lowest = models.FloatField(null=True, blank=True)
    exact_ms = models.FloatField(null=True, blank=True)
    index_ms = models.FloatField(null=True, blank=True)
    selectivity = models.FloatField()
    filtered_recall = models.FloatField(null=True, blank=True)
    filtered_lowest = models.FloatField(null=True, blank=True)
    filtered_exact_ms = models.FloatField(null=True, blank=True)
    filtered_index_ms = models.FloatField(null=True, blank=True)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "recall_probes"
        verbose_name = "recall probe"
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["collection", "-created_at", "-id"], name="recall_probes_newest_idx")]

    def __str__(self) -> str:
        return f"Recall of {self.collection_id} at {self.created_at:%Y-%m-%d %H:%M}"

    def is_low(self, level: float) -> bool:
        """Whether either recall is below the level."""
        return any(value is not None and value < level for value in (self.recall, self.filtered_recall))
