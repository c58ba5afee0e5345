"""What people did to documents and chunks: earlier revisions, and changes to single chunks."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.models.library import Collection


class DocumentRevisionQuerySet(QuerySet["DocumentRevision"]):
    def listed(self) -> DocumentRevisionQuerySet:
        """Without the text, the maps over it and the chunks: what a list needs."""
        return self.defer("text", "page_map", "cell_map", "segments", "chunks")

    def of_document(self, collection_id: int, doc_id: str) -> DocumentRevisionQuerySet:
        """Newest first."""
        return self.filter(collection_id=collection_id, doc_id=doc_id).order_by("-revision")


class DocumentRevision(models.Model):
    """What a document was before it was changed. The present state stands in Document; a rollback makes a new revision.

    chunks: [{"index", "start", "end", "content", "context", "enabled"}, ...] in order; content is null where it is the
    slice of the text. reason: why it was replaced, such as "upload", "text", "edit", "rollback to 2".
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="revisions")
    doc_id = models.TextField(db_collation="C")
    revision = models.IntegerField()
    title = models.TextField(default="", blank=True)
    tags = ArrayField(models.TextField(), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    file_metadata = models.JSONField(default=dict, blank=True, db_default={})
    source = models.TextField(default="", blank=True)
    media_type = models.TextField(default="text/plain")
    text = models.TextField(default="", blank=True)
    size_chars = models.IntegerField(default=0)
    content_hash = models.TextField(default="", blank=True)
    source_hash = models.TextField(default="", blank=True)
    page_map = models.JSONField(default=list, blank=True)
    cell_map = models.JSONField(default=list, blank=True, db_default=[])
    segments = models.JSONField(default=list, blank=True)
    chunk_policy = models.JSONField(default=dict, blank=True)
    warnings = models.JSONField(default=list, blank=True)
    chunk_count = models.IntegerField(default=0)
    chunks = models.JSONField(default=list, blank=True)
    made_at = models.DateTimeField()
    replaced_at = models.DateTimeField(default=timezone.now, editable=False)
    replaced_by = models.TextField(default="", blank=True)
    reason = models.TextField(default="", blank=True)

    objects = DocumentRevisionQuerySet.as_manager()

    class Meta:
        db_table = "document_revisions"
        ordering = ["collection", "doc_id", "-revision"]
        constraints = [
            models.UniqueConstraint(fields=["collection", "doc_id", "revision"], name="document_revisions_key")
        ]

    def __str__(self) -> str:
        return f"{self.doc_id} revision {self.revision}"


class ChunkOverlay(models.Model):
    """A person's change to one chunk, kept apart from the chunks so that it survives when they are made anew.

    It applies to the chunk whose original content has `anchor_hash` (SHA-256, hex); among several equal ones to the one
    whose start is nearest to `start_char`. edit: `content` stands in its place. disable: it is kept and not retrieved.
    add: a chunk with `content` follows it; "" as anchor_hash puts it at the end of the document. applies: whether the
    anchor was found when the chunks of `revision` were made.
    """

    class Kind(models.TextChoices):
        EDIT = "edit", gettext_lazy("Edited")
        DISABLE = "disable", gettext_lazy("Disabled")
        ADD = "add", gettext_lazy("Added")

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="overlays")
    doc_id = models.TextField(db_collation="C")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    anchor_hash = models.CharField(max_length=64, default="", blank=True)
    anchor_text = models.TextField(default="", blank=True)
    start_char = models.IntegerField(default=0)
    content = models.TextField(default="", blank=True)
    applies = models.BooleanField(default=True)
    revision = models.IntegerField(default=1)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "chunk_overlays"
        indexes = [models.Index(fields=["collection", "doc_id", "id"], name="chunk_overlays_document_idx")]
        constraints = [
            models.UniqueConstraint(
                fields=["collection", "doc_id", "kind", "anchor_hash", "start_char"],
                name="chunk_overlays_one_per_chunk",
                condition=~models.Q(kind="add"),
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} chunk of {self.doc_id}"


class DuplicateScan(models.Model):
    """The last time that a collection was looked through for near-duplicates; `NearDuplicate` has what was found.

    complete False: there were more than are kept, or it took too long, and `error` says which.
    """

    collection = models.OneToOneField(
        Collection, primary_key=True, on_delete=models.CASCADE, db_constraint=False, related_name="duplicate_scan"
    )
    generation = models.IntegerField()
    chunk_count = models.BigIntegerField(default=0)
    found = models.IntegerField(default=0)
    complete = models.BooleanField(default=True)
    error = models.TextField(default="", blank=True)
    took_ms = models.FloatField(default=0)
    scanned_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "duplicate_scans"

    def __str__(self) -> str:
        return f"{self.found} near-duplicates at {self.scanned_at:%Y-%m-%d %H:%M}"


class FindingScan(models.Model):
    """The last time that the chunks of a collection were looked through for what may do harm; see `ChunkFindings`.

    complete False: it stopped behind chunk (reached_doc_id, reached_index), and goes on there. rules: hash of the rules
    that it was done with.
    """

    collection = models.OneToOneField(
        Collection, primary_key=True, on_delete=models.CASCADE, db_constraint=False, related_name="finding_scan"
    )
    generation = models.IntegerField()
    rules = models.CharField(max_length=64)
    chunks_scanned = models.BigIntegerField(default=0)
    complete = models.BooleanField(default=False)
    reached_doc_id = models.TextField(default="", blank=True, db_collation="C")
    reached_index = models.IntegerField(default=-1)
    took_ms = models.FloatField(default=0)
    scanned_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "finding_scans"

    def __str__(self) -> str:
        return f"{self.chunks_scanned} chunks at {self.scanned_at:%Y-%m-%d %H:%M}"


class ChunkFindings(models.Model):
    """A chunk in which a scan found something. findings: [`Finding.as_dict()`, with "part": "context" for the context].

    families: each once, sorted. revision: the document's when it was scanned. The text itself is not kept.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.CASCADE, db_constraint=False, related_name="chunk_findings"
    )
    doc_id = models.TextField(db_collation="C")
    chunk_index = models.IntegerField()
    revision = models.IntegerField()
    families = ArrayField(models.TextField(), default=list)
    findings = models.JSONField(default=list)
    risk_score = models.FloatField()

    class Meta:
        db_table = "chunk_findings"
        constraints = [
            models.UniqueConstraint(fields=["collection", "doc_id", "chunk_index"], name="chunk_findings_key")
        ]
        indexes = [
            models.Index(fields=["collection", "-risk_score", "doc_id", "chunk_index"], name="chunk_findings_risk")
        ]

    def __str__(self) -> str:
        return f"{self.doc_id}#{self.chunk_index}: {', '.join(self.families)}"


class NearDuplicate(models.Model):
    """A chunk that says what an earlier one says: of_doc_id and of_chunk_index, by (doc_id, chunk_index).

    share: how many of the runs of three words of either are in both, 0 to 1. revision: the document's when it was seen.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.CASCADE, db_constraint=False, related_name="near_duplicates"
    )
    doc_id = models.TextField(db_collation="C")
    chunk_index = models.IntegerField()
    revision = models.IntegerField()
    of_doc_id = models.TextField(db_collation="C")
    of_chunk_index = models.IntegerField()
    share = models.FloatField()

    class Meta:
        db_table = "near_duplicates"
        constraints = [
            models.UniqueConstraint(fields=["collection", "doc_id", "chunk_index"], name="near_duplicates_key")
        ]

    def __str__(self) -> str:
        return f"{self.doc_id}#{self.chunk_index} is like {self.of_doc_id}#{self.of_chunk_index}"
