"""Where the words of documents stand on their pages."""

from __future__ import annotations

from django.db import models

from collections_app.models.library import Collection


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
