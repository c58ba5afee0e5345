"""What people did to documents and chunks: earlier revisions, and changes to single chunks.

Deleted documents that can be restored. Nothing of them is in the tables that are searched, listed or exported.

Where the words of documents stand on their pages.
"""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy
from pgvector.django import VectorField

from collections_app.collections.models import Collection


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


class TrashedDocumentQuerySet(QuerySet["TrashedDocument"]):
    def listed(self) -> TrashedDocumentQuerySet:
        """Without what is restored."""
        return self.defer("document", "revisions", "overlays", "pages", "fetched", "file_content")

    def newest(self) -> TrashedDocumentQuerySet:
        return self.order_by("-deleted_at", "-id")


class TrashedDocument(models.Model):
    """One deletion of a document. document, revisions, overlays, pages, fetched: its rows of these tables as JSON.

    embed_model, embed_dims: of the vectors in trashed_chunks. file_name and the like: its original, where there is one.
    Its access list stays where it is, by doc_id.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="trashed")
    doc_id = models.TextField(db_collation="C")
    title = models.TextField(default="")
    source = models.TextField(default="")
    media_type = models.TextField(default="text/plain")
    chunk_count = models.IntegerField(default=0)
    revision = models.IntegerField(default=1)
    embed_model = models.TextField(default="")
    embed_dims = models.IntegerField(default=0)
    document: models.JSONField[Any, Any] = models.JSONField()
    revisions: models.JSONField[Any, Any] = models.JSONField(default=list)
    overlays: models.JSONField[Any, Any] = models.JSONField(default=list)
    pages: models.JSONField[Any, Any] = models.JSONField(default=list)
    fetched: models.JSONField[Any, Any] = models.JSONField(null=True)
    file_name = models.TextField(default="", db_default="")
    file_media_type = models.TextField(default="", db_default="")
    file_content = models.BinaryField(null=True)
    file_created_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(default=timezone.now)
    deleted_by = models.TextField(default="")

    objects = TrashedDocumentQuerySet.as_manager()

    class Meta:
        db_table = "trashed_documents"
        indexes = [models.Index(fields=["collection", "-deleted_at", "-id"], name="trashed_documents_newest_idx")]

    def __str__(self) -> str:
        return self.doc_id

    @property
    def name(self) -> str:
        return self.title or self.doc_id


class TrashedChunk(models.Model):
    """A text of a deleted document with its vector, so that restoring it embeds nothing."""

    id = models.BigAutoField(primary_key=True)
    trashed = models.ForeignKey(TrashedDocument, on_delete=models.CASCADE, db_constraint=False, related_name="chunks")
    collection = models.ForeignKey(
        Collection, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    doc_id = models.TextField(db_collation="C")
    chunk_index = models.IntegerField()
    content = models.TextField()
    context = models.TextField(default="")
    embedding = VectorField()

    class Meta:
        db_table = "trashed_chunks"
        indexes = [models.Index(fields=["collection", "doc_id"], name="trashed_chunks_document_idx")]

    def __str__(self) -> str:
        return f"{self.doc_id}#{self.chunk_index}"


class StoredPage(models.Model):
    """A page of a document's file with the places of its words (`parsing.layout.PackedWords`).

    text_hash: SHA-256 (hex) of the document's text, whose characters the words are counted in: a page belongs to every
    revision that has this text. width, height: in points. doc_id stands beside the collection without a reference to
    the document, as with its revisions.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    doc_id = models.TextField(db_collation="C")
    text_hash = models.CharField(max_length=64)
    page = models.IntegerField()
    width = models.FloatField()
    height = models.FloatField()
    words = models.BinaryField()

    class Meta:
        db_table = "page_layouts"
        constraints = [
            models.UniqueConstraint(fields=["collection", "doc_id", "text_hash", "page"], name="page_layouts_key")
        ]

    def __str__(self) -> str:
        return f"page {self.page} of {self.doc_id}"
