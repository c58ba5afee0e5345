"""What a job that was stopped need not do again."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from collections_app.models.library import Collection


class RecognizedPageCheckpoint(models.Model):
    """A page that text recognition has read, kept as long as its file: no page is read twice by the same engine.

    sha256: of the file. engine: its name and version (`scans.engines.Engine.identity`). words: packed as those of
    `StoredPage`, with offsets of `text`.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    sha256 = models.CharField(max_length=64)
    engine = models.TextField()
    page = models.IntegerField()
    width = models.FloatField()
    height = models.FloatField()
    text = models.TextField()
    words = models.BinaryField()
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "recognized_pages"
        constraints = [
            models.UniqueConstraint(fields=["collection", "sha256", "engine", "page"], name="recognized_pages_key")
        ]

    def __str__(self) -> str:
        return f"page {self.page} of {self.sha256[:12]}"


class EmbeddedBatch(models.Model):
    """The vectors of consecutive chunks of a large document, kept while its job is under way.

    first: the chunk_index of the first of them. digest: SHA-256 (hex) of the model and of every text that was embedded;
    a batch whose digest differs is of no use. vectors: float32, little endian, size times the collection's dimensions.
    There is no reference to the job, so that deleting many jobs reads none of this; the sweeper takes what is left.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+")
    job: models.UUIDField[uuid.UUID, uuid.UUID] = models.UUIDField()
    first = models.IntegerField()
    size = models.IntegerField()
    digest = models.CharField(max_length=64)
    vectors = models.BinaryField()
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "embedded_batches"
        constraints = [models.UniqueConstraint(fields=["job", "first"], name="embedded_batches_key")]

    def __str__(self) -> str:
        return f"{self.size} chunks from {self.first} of job {self.job}"
