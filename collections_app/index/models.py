"""Index versions of an index, and what was measured of them.

What a collection was earlier, beside revisions of documents: changes of state, and indexes made of the past.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.collections.models import Collection

NEXT_STATES = ("building", "ready")
KEPT_STATES = ("building", "ready", "serving", "retired", "failed")


class IndexVersionQuerySet(QuerySet["IndexVersion"]):
    def newest(self) -> IndexVersionQuerySet:
        return self.order_by("-number")

    def kept(self) -> IndexVersionQuerySet:
        """Those whose table is there, or is about to go."""
        return self.filter(state__in=KEPT_STATES)

    def next_up(self) -> IndexVersionQuerySet:
        """Being built, or complete and waiting to be swapped in; at most one per collection."""
        return self.filter(state__in=NEXT_STATES)


class IndexVersion(models.Model):
    """One index of a collection as an object that can be made again: by what it was built, from what, and how far.

    hash: `ragd.store.tables.IndexVersionSpec.hash`. chunk_policy: the stated fields, policy: the whole one they
    make.
    documents_total and chars_total are those of the collection when they were last counted. chunks_per_s, chars_per_s:
    measured in the present run. automatic: it swaps itself in when it is complete. The row outlives the table, so that
    runs can name it; `state` dropped says that the table is gone.

    list_weights: how much each list of a hybrid search counts where nobody states it, {} until it was measured.
    measurements: {} until measured_at, then {"chunks": how many everybody could read, "weights":
    `ragd.insight.list_weights.ListWeights`, "recall": `ragd.insight.recall.RecallProbe`}, the last two as far as the
    index version has such lists.

    map_axes: the two vectors of `ragd.insight.chunk_map`, [] until measured_at.

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
        Collection, on_delete=models.CASCADE, db_constraint=False, related_name="index_versions"
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
    measurements = models.JSONField(default=dict, blank=True, db_default={})
    map_axes = models.JSONField(default=list, blank=True, db_default=[])
    measured_at = models.DateTimeField(null=True, blank=True)
    gate_state = models.CharField(max_length=10, choices=GateState.choices, default="", blank=True)
    gate_report = models.JSONField(default=dict, blank=True)
    gate_reason = models.TextField(default="", blank=True)
    gate_by = models.TextField(default="", blank=True)
    gate_at = models.DateTimeField(null=True, blank=True)

    objects = IndexVersionQuerySet.as_manager()

    class Meta:
        db_table = "index_versions"
        ordering = ["collection", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["collection", "number"], name="index_versions_number"),
            models.UniqueConstraint(
                fields=["collection"], name="index_versions_one_next", condition=models.Q(state__in=NEXT_STATES)
            ),
        ]

    def __str__(self) -> str:
        return f"Index version {self.number}"

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


class IndexVersionDocument(models.Model):
    """Which state of which document an index version that does not serve holds; of the one that serves, documents
    tell."""

    id = models.BigAutoField(primary_key=True)
    index_version = models.ForeignKey(IndexVersion, on_delete=models.CASCADE, related_name="documents")
    doc_id = models.TextField(db_collation="C")
    document_id = models.BigIntegerField()
    revision = models.IntegerField()
    enabled = models.BooleanField()
    chunk_count = models.IntegerField()
    content_hash = models.TextField()
    chunk_policy = models.JSONField()

    class Meta:
        db_table = "index_version_documents"
        constraints = [models.UniqueConstraint(fields=["index_version", "doc_id"], name="index_version_documents_key")]

    def __str__(self) -> str:
        return self.doc_id


class StateChange(models.Model):
    """A change that no revision tells of. Each row says what held before it.

    doc_id: "" for a change of the whole collection. document_id, enabled_before: of the document. number: the revision
    of a deleted document, or the index version that was active before. began_at: when a deleted document was made.
    kept: the rows of document_revisions of a deleted document, oldest first, the last one its state when it was
    deleted; null where deleted documents are not kept, or no longer.
    """

    class Kind(models.TextChoices):
        ENABLED = "enabled", gettext_lazy("Enabled")
        DISABLED = "disabled", gettext_lazy("Disabled")
        ARCHIVED = "archived", gettext_lazy("Archived")
        UNARCHIVED = "unarchived", gettext_lazy("Unarchived")
        DELETED = "deleted", gettext_lazy("Deleted")
        SERVING = "serving", gettext_lazy("Index version activated")
        RECORDED = "recorded", gettext_lazy("Changes are recorded from here on")

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="state_changes"
    )
    kind = models.CharField(max_length=12, choices=Kind.choices)
    doc_id = models.TextField(db_collation="C", default="", blank=True)
    document_id = models.BigIntegerField(null=True, blank=True)
    enabled_before = models.BooleanField(null=True, blank=True)
    number = models.IntegerField(null=True, blank=True)
    began_at = models.DateTimeField(null=True, blank=True)
    kept: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    made_at = models.DateTimeField(default=timezone.now)
    made_by = models.TextField(default="", blank=True)

    class Meta:
        db_table = "state_changes"
        ordering = ["made_at", "id"]
        indexes = [models.Index(fields=["collection", "made_at", "id"], name="state_changes_time_idx")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.doc_id}".strip()


class PastIndex(models.Model):
    """A detached table of chunks as a collection had them once; `number` names it as that of an index version does.

    state_hash: SHA-256 of which documents it holds in which state; two times with the same state share it. index
    version: the index version that it was. embedded: chunks whose vectors were stored nowhere and were made anew.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="past_indexes"
    )
    state_hash = models.CharField(max_length=64)
    index_version = models.IntegerField()
    chunk_count = models.BigIntegerField(default=0)
    embedded = models.IntegerField(default=0)
    made_at = models.DateTimeField(default=timezone.now)
    used_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "past_indexes"
        constraints = [models.UniqueConstraint(fields=["collection", "state_hash"], name="past_indexes_state")]

    def __str__(self) -> str:
        return f"index version {self.index_version} as it was"
