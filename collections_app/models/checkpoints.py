"""What a job that was stopped need not do again."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from collections_app.models.library import Collection


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
