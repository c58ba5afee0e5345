"""What is stored. Collection, Document, Chunk and ApiKey mirror ragd/schema.sql column by column and are unmanaged."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.utils import timezone
from pgvector.django import SparseVectorField, VectorField

from collections_app.querysets import (
    ACTIVE_STATES,
    NEXT_STATES,
    ApiKeyQuerySet,
    ChunkQuerySet,
    CollectionQuerySet,
    DocumentQuerySet,
    GenerationQuerySet,
    IngestJobQuerySet,
    UploadQuerySet,
)


class Collection(models.Model):
    """A set of documents under one embedding model. `generation` is the number of the one that serves."""

    id = models.BigAutoField(primary_key=True)
    name = models.TextField(db_collation="C")
    description = models.TextField(default="", blank=True)
    embed_model = models.TextField()
    embed_dims = models.IntegerField()
    hybrid_enabled = models.BooleanField(default=True)
    language = models.TextField(default="english")
    chunk_policy = models.JSONField(default=dict, blank=True)
    generation = models.IntegerField(default=1)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects = CollectionQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "collections"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Document(models.Model):
    """One document of a collection under the caller's own id, with the normalized text that its chunks slice."""

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="documents")
    doc_id = models.TextField(db_collation="C")
    title = models.TextField(default="", blank=True)
    tags = ArrayField(models.TextField(), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    source = models.TextField(default="", blank=True)
    media_type = models.TextField(default="text/plain")
    text = models.TextField(default="", blank=True)
    size_chars = models.IntegerField(default=0)
    token_count = models.IntegerField(default=0)
    chunk_count = models.IntegerField(default=0)
    content_hash = models.TextField(default="", blank=True)
    source_hash = models.TextField(default="", blank=True)
    page_map = models.JSONField(default=list, blank=True)
    segments = models.JSONField(default=list, blank=True)
    chunk_policy = models.JSONField(default=dict, blank=True)
    warnings = models.JSONField(default=list, blank=True)
    revision = models.IntegerField(default=1)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects = DocumentQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "documents"

    def __str__(self) -> str:
        return self.doc_id

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.title or self.doc_id


class Chunk(models.Model):
    """The retrieval unit. `id` stands in for the partitioned table's key (collection_id, id)."""

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.DO_NOTHING, db_constraint=False, related_name="chunks")
    doc_id = models.TextField(db_collation="C")
    chunk_index = models.IntegerField()
    content = models.TextField()
    start_char = models.IntegerField(default=0)
    end_char = models.IntegerField(default=0)
    context = models.TextField(default="", blank=True)
    tags = ArrayField(models.TextField(), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    token_count = models.IntegerField(default=0)
    revision = models.IntegerField(default=1)
    enabled = models.BooleanField(default=True)
    embedding = VectorField()
    fts = SearchVectorField(null=True, editable=False)
    lexical = SparseVectorField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ChunkQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "chunks"

    def __str__(self) -> str:
        return f"{self.doc_id}#{self.chunk_index}"


class ApiKey(models.Model):
    """A bearer key. Only the SHA-256 of the secret is kept."""

    class Scope(models.TextChoices):
        READ = "read", "Read"
        WRITE = "write", "Read and write"

    id = models.BigAutoField(primary_key=True)
    label = models.TextField()
    key_hash = models.BinaryField(unique=True)
    prefix = models.TextField(default="", blank=True)
    scope = models.TextField(choices=Scope.choices, default=Scope.WRITE)
    collections = ArrayField(models.TextField(), default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "api_keys"
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.label} ({self.prefix}…)"

    @property
    def status(self) -> str:
        """live, expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= timezone.now():
            return "expired"
        return "live"


class Upload(models.Model):
    """The bytes of an uploaded file, kept while a job needs them or while they are their document's source."""

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="uploads")
    doc_id = models.TextField(db_collation="C")
    sha256 = models.CharField(max_length=64)
    name = models.TextField()
    media_type = models.TextField(default="application/octet-stream")
    size_bytes = models.BigIntegerField()
    content = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = UploadQuerySet.as_manager()

    class Meta:
        db_table = "uploads"
        indexes = [models.Index(fields=["collection", "doc_id"], name="uploads_document_idx")]

    def __str__(self) -> str:
        return self.name


class IngestJob(models.Model):
    """One piece of background work and all that is known about it. The broker carries only its id."""

    class Kind(models.TextChoices):
        FILE = "file", "File"
        REINDEX = "reindex", "Re-index"
        BUILD_INDEX = "build_index", "Build vector index"
        PROBE_RECALL = "probe_recall", "Probe recall"
        GENERATION = "generation", "Build generation"

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        SUCCEEDED = "succeeded", "Succeeded"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    class Stage(models.TextChoices):
        QUEUED = "queued", "Queued"
        PARSE = "parse", "Parse"
        CHUNK = "chunk", "Chunk"
        EMBED = "embed", "Embed"
        STORE = "store", "Store"
        PROBE = "probe", "Probe"
        DONE = "done", "Done"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="jobs")
    doc_id = models.TextField(db_collation="C", default="", blank=True)
    title = models.TextField(default="", blank=True)
    tags = ArrayField(models.TextField(), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    source = models.TextField(default="", blank=True)
    policy = models.JSONField(null=True, blank=True)
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.FILE)
    upload = models.ForeignKey(Upload, on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    stage = models.CharField(max_length=16, choices=Stage.choices, default=Stage.QUEUED)
    chunks_total = models.IntegerField(default=0)
    chunks_done = models.IntegerField(default=0)
    chars = models.IntegerField(default=0)
    unchanged = models.BooleanField(default=False)
    attempts = models.IntegerField(default=0)
    attempts_forgiven = models.IntegerField(default=0)  # those before the last progress that was stored for good
    generation = models.ForeignKey(
        "Generation", on_delete=models.CASCADE, null=True, blank=True, related_name="jobs", db_constraint=False
    )
    sent_at = models.DateTimeField(default=timezone.now, editable=False)
    lease_until = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    worker = models.TextField(default="", blank=True)
    error_type = models.CharField(max_length=64, default="", blank=True)
    error = models.TextField(default="", blank=True)
    warnings = models.JSONField(default=list, blank=True)
    timings_ms = models.JSONField(default=dict, blank=True)
    traceparent = models.CharField(max_length=64, default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    created_by = models.TextField(default="", blank=True)

    objects = IngestJobQuerySet.as_manager()

    class Meta:
        db_table = "ingest_jobs"
        indexes = [
            models.Index(fields=["collection", "-created_at", "-id"], name="ingest_jobs_newest_idx"),
            models.Index(
                fields=["state", "lease_until"],
                name="ingest_jobs_active_idx",
                condition=models.Q(state__in=ACTIVE_STATES),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["collection"],
                name="ingest_jobs_one_build",
                condition=models.Q(kind="build_index", state__in=ACTIVE_STATES),
            ),
            models.UniqueConstraint(
                fields=["collection"],
                name="ingest_jobs_one_probe",
                condition=models.Q(kind="probe_recall", state__in=ACTIVE_STATES),
            ),
            models.UniqueConstraint(
                fields=["collection"],
                name="ingest_jobs_one_generation",
                condition=models.Q(kind="generation", state__in=ACTIVE_STATES),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.doc_id}".strip()

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_STATES

    @property
    def tries(self) -> int:
        """The attempts that count against RAGD_JOB_MAX_ATTEMPTS."""
        return self.attempts - self.attempts_forgiven

    @property
    def took_ms(self) -> float | None:
        """From the start of the first attempt to the end of the last, milliseconds; None before that."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds() * 1000

    @property
    def percent(self) -> int:
        """How far the work is, 0 to 100: the share of chunks embedded while embedding, 100 when it succeeded."""
        if self.state == self.State.SUCCEEDED:
            return 100
        return 100 * self.chunks_done // self.chunks_total if self.chunks_total else 0


class Generation(models.Model):
    """One index of a collection as an object that can be made again: by what it was built, from what, and how far.

    hash: `ragd.generations.GenerationSpec.hash`. chunk_policy: the stated fields, policy: the whole one they make.
    documents_total and chars_total are those of the collection when they were last counted. chunks_per_s, chars_per_s:
    measured in the present run. automatic: it swaps itself in when it is complete. The row outlives the table, so that
    runs can name it; `state` dropped says that the table is gone.
    """

    class State(models.TextChoices):
        BUILDING = "building", "Building"
        READY = "ready", "Ready"
        SERVING = "serving", "Serving"
        RETIRED = "retired", "Retired"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"
        DROPPED = "dropped", "Dropped"

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
    """A recall probe that was run: `ragd.recall.RecallProbe` as numbers. recall null: no query could be compared."""

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


class WorkerHeartbeat(models.Model):
    """A worker process that was alive at `beat_at`. Health is read here, never asked over the broker."""

    name = models.CharField(max_length=200, primary_key=True)
    host = models.TextField(default="")
    pid = models.IntegerField(default=0)
    job = models.UUIDField(null=True, blank=True)
    jobs_done = models.IntegerField(default=0)
    memory_mb = models.IntegerField(default=0)
    started_at = models.DateTimeField(default=timezone.now)
    beat_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "worker_heartbeats"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class IdempotencyRecord(models.Model):
    """The answer that a POST with an Idempotency-Key got, to be given again. `status` is null while it is made."""

    id = models.BigAutoField(primary_key=True)
    owner = models.CharField(max_length=64)
    key = models.CharField(max_length=255)
    request_hash = models.CharField(max_length=64)
    status = models.IntegerField(null=True, blank=True)
    response: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "idempotency_records"
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="idempotency_owner_key")]
        indexes = [models.Index(fields=["created_at"], name="idempotency_created_idx")]

    def __str__(self) -> str:
        return self.key
