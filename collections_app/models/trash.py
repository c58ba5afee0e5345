"""Deleted documents that can be restored. Nothing of them is in the tables that are searched, listed or exported."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import QuerySet
from django.utils import timezone
from pgvector.django import VectorField

from collections_app.models.library import Collection


class TrashedDocumentQuerySet(QuerySet["TrashedDocument"]):
    def listed(self) -> TrashedDocumentQuerySet:
        """Without what is restored."""
        return self.defer("document", "revisions", "overlays", "pages", "fetched")

    def newest(self) -> TrashedDocumentQuerySet:
        return self.order_by("-deleted_at", "-id")


class TrashedDocument(models.Model):
    """One deletion of a document. document, revisions, overlays, pages, fetched: its rows of these tables as JSON.

    embed_model, embed_dims: of the vectors in trashed_chunks. Its access list stays where it is, by doc_id.
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


class TrashedFile(models.Model):
    """The original of a deleted document."""

    id = models.BigAutoField(primary_key=True)
    trashed = models.ForeignKey(TrashedDocument, on_delete=models.CASCADE, db_constraint=False, related_name="files")
    collection = models.ForeignKey(
        Collection, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    doc_id = models.TextField(db_collation="C")
    sha256 = models.CharField(max_length=64)
    name = models.TextField()
    media_type = models.TextField()
    size_bytes = models.BigIntegerField()
    content = models.BinaryField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "trashed_files"

    def __str__(self) -> str:
        return self.name
