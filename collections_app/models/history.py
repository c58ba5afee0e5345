"""What a collection was earlier, beside revisions of documents: changes of state, and indexes made of the past."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.models.library import Collection


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
    """A detached table of chunks as a collection had them once; `number` names it as that of a generation does.

    state_hash: SHA-256 of which documents it holds in which state; two times with the same state share it. generation:
    the index version that it was. embedded: chunks whose vectors were stored nowhere and were made anew.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="past_indexes"
    )
    state_hash = models.CharField(max_length=64)
    generation = models.IntegerField()
    chunk_count = models.BigIntegerField(default=0)
    embedded = models.IntegerField(default=0)
    made_at = models.DateTimeField(default=timezone.now)
    used_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "past_indexes"
        constraints = [models.UniqueConstraint(fields=["collection", "state_hash"], name="past_indexes_state")]

    def __str__(self) -> str:
        return f"index version {self.generation} as it was"
