"""Uploaded files, the jobs and batches of work on them, and what a job that was stopped need not do again."""

from __future__ import annotations

import unicodedata
import uuid
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Case, Exists, OuterRef, Q, QuerySet, Value, When
from django.db.models.expressions import Col
from django.db.models.functions import Collate
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop, pgettext_lazy

from collections_app.collections.models import Collection
from collections_app.jobs.leases import LeasedWork
from collections_app.jobs.stages import StageRow, stage_rows
from collections_app.uploads.options import Origin

ACTIVE_STATES = ("queued", "running")
TROUBLED_STATES = ("failed", "quarantined")
# Errors of the file itself, and of scans where nothing recognizes text: another attempt ends the same way.
LASTING_ERRORS = ("encrypted", "broken", "empty", "unsupported", "bomb", "EmptyContent")
SCANNED = "scanned"
# what each kind of failure says in the languages that the readers do not speak
FAILURES = {
    "encrypted": gettext_noop("The file is locked by a password or by rights management."),
    "broken": gettext_noop("The file is damaged, or it is not what its name says."),
    "empty": gettext_noop("The file has no text."),
    "EmptyContent": gettext_noop("The file has no text."),
    "scanned": gettext_noop("The pages are pictures without text. They need text recognition (OCR)."),
    "unsupported": gettext_noop("Files of this kind cannot be read."),
    "bomb": gettext_noop("The file unpacks to more than is allowed."),
    "too_large": gettext_noop("The file is larger than is allowed."),
    "crashed": gettext_noop("The reader of the file crashed."),
    "timeout": gettext_noop("Reading the file took too long."),
    "memory": gettext_noop("Reading the file takes more memory than is allowed."),
}


class UploadQuerySet(QuerySet["Upload"]):
    def listed(self) -> UploadQuerySet:
        return self.defer("content")

    def of_document(self, collection_id: int, doc_id: str) -> UploadQuerySet:
        return self.filter(collection_id=collection_id, doc_id=doc_id)

    def delete(self) -> tuple[int, dict[str, int]]:
        """Without the bytes: Django reads what it deletes where other rows point at it."""
        return super(UploadQuerySet, self.listed()).delete()

    delete.queryset_only = True  # type: ignore[attr-defined]
    delete.alters_data = True  # type: ignore[attr-defined]


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


class IngestBatch(models.Model):
    """What was asked for in one go: an upload, a folder sync, an archive, a list of addresses, a bucket, a re-index.

    label: what a person calls it. submitted: documents that it named, of which `skipped` and `unchanged` needed no job
    and `rejected` were refused; the rest have jobs. deleted: documents that a sync removed. open: more may come,
    because the client or a job still adds to it. options: what a sync states of its documents, by `IngestOptions`.
    """

    class Kind(models.TextChoices):
        UPLOAD = "upload", gettext_lazy("Upload")
        FOLDER = "folder", gettext_lazy("Folder")
        ARCHIVE = "archive", pgettext_lazy("noun", "Archive")
        URLS = "urls", gettext_lazy("Web pages")
        S3 = "s3", "S3"
        SYNC = "sync", gettext_lazy("Sync")
        REINDEX = "reindex", gettext_lazy("Re-index")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="batches")
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.UPLOAD)
    label = models.TextField(default="", blank=True)
    submitted = models.IntegerField(default=0)
    skipped = models.IntegerField(default=0)
    unchanged = models.IntegerField(default=0)
    rejected = models.IntegerField(default=0)
    deleted = models.IntegerField(default=0)
    open = models.BooleanField(default=False)
    options = models.JSONField(default=dict, blank=True)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "ingest_batches"
        verbose_name_plural = "ingest batches"
        indexes = [models.Index(fields=["collection", "-created_at", "-id"], name="ingest_batches_newest_idx")]

    def __str__(self) -> str:
        return self.label or self.get_kind_display()


class OriginField(models.JSONField):
    """An `Origin`, stored as JSON without its default values; migrations know it as a JSONField."""

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs | {"default": dict}

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        stored = super().from_db_value(value, expression, connection)
        return Origin.parse(stored) if isinstance(expression, Col) and stored is not None else stored

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        plain = value.as_json() if isinstance(value, Origin) else value
        return super().get_db_prep_value(plain, connection, prepared)


class IngestJobQuerySet(QuerySet["IngestJob"]):
    def active(self) -> IngestJobQuerySet:
        return self.filter(state__in=ACTIVE_STATES)

    def failed(self) -> IngestJobQuerySet:
        return self.filter(state="failed")

    def troubled(self) -> IngestJobQuerySet:
        """Failed or quarantined."""
        return self.filter(state__in=TROUBLED_STATES)

    def files(self) -> IngestJobQuerySet:
        """Of a file that was uploaded or fetched."""
        return self.filter(kind__in=(IngestJob.Kind.FILE, IngestJob.Kind.FETCH, IngestJob.Kind.ARCHIVE))

    def unresolved(self) -> IngestJobQuerySet:
        """Of files that failed and came no other way since: the newest job of each document."""
        later = IngestJob.objects.files().filter(
            collection=OuterRef("collection"), doc_id=OuterRef("doc_id"), created_at__gt=OuterRef("created_at")
        )
        return self.troubled().files().exclude(Exists(later.exclude(state=IngestJob.State.CANCELLED)))

    def matching(self, words: str) -> IngestJobQuerySet:
        """Whose document ID or file name contains the words; blank words match all."""
        requested = unicodedata.normalize("NFC", words.replace("\x00", "").strip())
        folded = self.alias(folded_id=Collate("doc_id", "default"))
        return folded.filter(Q(folded_id__icontains=requested) | Q(source__icontains=requested)) if requested else self

    def troubled_first(self) -> IngestJobQuerySet:
        """Those, then what runs, what waits, what was cancelled, what is done; within these by doc_id."""
        order = ("quarantined", "failed", "running", "queued", "cancelled")
        case = Case(*(When(state=state, then=Value(number)) for number, state in enumerate(order)), default=Value(9))
        return self.order_by(case, "doc_id", "created_at", "id")

    def newest(self) -> IngestJobQuerySet:
        return self.order_by("-created_at", "-id")

    def listed(self) -> IngestJobQuerySet:
        """Those of live collections, with the collection, so that a list asks once."""
        return self.select_related("collection").filter(collection__deleted_at=None)


class IngestJob(LeasedWork):
    """One piece of background work and all that is known about it. The broker carries only its id.

    origin: `Origin`; of a job without a document an empty one.
    stages: one entry per stage that the present attempt entered, in order: {"stage", "state", "done", "total", "unit",
    "started_at", "ms", "rate", "error"}; unit is bytes, chars, chunks, files or "", state is running, succeeded or
    failed, rate is per second. `stage_rows` reads them.
    lane: 0 for what somebody waits for, 1 for what came with many others, 2 for what lost its worker; they take turns.
    cost: of its model calls in all attempts, {"usd" of those with a price, "priced" and "unpriced": how many of each}.
    quarantined: the file stopped its worker or its parser as often as RAGD_JOB_MAX_ATTEMPTS allows, and is set aside.
    """

    class Kind(models.TextChoices):
        FILE = "file", gettext_lazy("File")
        FETCH = "fetch", gettext_lazy("Fetch")
        ARCHIVE = "archive", gettext_lazy("Extract archive")
        REINDEX = "reindex", gettext_lazy("Re-index")
        BUILD_INDEX = "build_index", gettext_lazy("Build vector index")
        MEASURE = "measure", gettext_lazy("Measure index version")
        INDEX_VERSION = "index_version", gettext_lazy("Build index version")

    class State(models.TextChoices):
        QUEUED = "queued", gettext_lazy("Queued")
        RUNNING = "running", gettext_lazy("Running")
        SUCCEEDED = "succeeded", gettext_lazy("Succeeded")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")
        QUARANTINED = "quarantined", gettext_lazy("Quarantined")

    class Stage(models.TextChoices):
        QUEUED = "queued", gettext_lazy("Queued")
        FETCH = "fetch", gettext_lazy("Fetch")
        PARSE = "parse", gettext_lazy("Parse")
        OCR = "ocr", gettext_lazy("Text recognition (OCR)")
        CHUNK = "chunk", gettext_lazy("Chunk")
        EMBED = "embed", gettext_lazy("Embed")
        STORE = "store", gettext_lazy("Store")
        PROBE = "probe", gettext_lazy("Probe")
        DONE = "done", gettext_lazy("Finished")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="jobs")
    doc_id = models.TextField(db_collation="C", default="", blank=True)
    title = models.TextField(default="", blank=True)
    tags = ArrayField(models.TextField(), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    source = models.TextField(default="", blank=True)
    policy = models.JSONField(null=True, blank=True)
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.FILE)
    origin: models.JSONField[Origin, Origin] = OriginField(default=Origin, blank=True)
    batch = models.ForeignKey(IngestBatch, on_delete=models.CASCADE, null=True, blank=True, related_name="jobs")
    upload = models.ForeignKey(Upload, on_delete=models.SET_NULL, null=True, blank=True, related_name="jobs")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    stage = models.CharField(max_length=16, choices=Stage.choices, default=Stage.QUEUED)
    chunks_total = models.IntegerField(default=0)
    chunks_done = models.IntegerField(default=0)
    chars = models.IntegerField(default=0)
    unchanged = models.BooleanField(default=False)
    index_version = models.ForeignKey(
        "IndexVersion", on_delete=models.CASCADE, null=True, blank=True, related_name="jobs", db_constraint=False
    )
    lane = models.SmallIntegerField(default=0)
    error_type = models.CharField(max_length=64, default="", blank=True)
    error = models.TextField(default="", blank=True)
    warnings = models.JSONField(default=list, blank=True)
    timings_ms = models.JSONField(default=dict, blank=True)
    stages = models.JSONField(default=list, blank=True)
    cost = models.JSONField(default=dict, blank=True)
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
            models.Index(fields=["batch", "state"], name="ingest_jobs_batch_idx"),
            models.Index(fields=["collection", "doc_id"], name="ingest_jobs_document_idx"),
            models.Index(fields=["finished_at"], name="ingest_jobs_finished_idx"),
            models.Index(
                fields=["collection"], name="ingest_jobs_quarantine_idx", condition=models.Q(state="quarantined")
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
                name="ingest_jobs_one_measurement",
                condition=models.Q(kind="measure", state__in=ACTIVE_STATES),
            ),
            models.UniqueConstraint(
                fields=["collection"],
                name="ingest_jobs_one_index_version",
                condition=models.Q(kind="index_version", state__in=ACTIVE_STATES),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.doc_id}".strip()

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_STATES

    @property
    def can_retry(self) -> bool:
        return self.state in (self.State.FAILED, self.State.CANCELLED, self.State.QUARANTINED)

    @property
    def retry_helps(self) -> bool:
        """Whether it can be retried and may end differently then."""
        return self.can_retry and not (self.state == self.State.FAILED and self.error_type in LASTING_ERRORS)

    @property
    def takes_file(self) -> bool:
        """Whether another file may take the place of the one that failed."""
        return self.state in TROUBLED_STATES and self.kind in (self.Kind.FILE, self.Kind.FETCH, self.Kind.ARCHIVE)

    @property
    def needs_password(self) -> bool:
        return self.takes_file and self.error_type == "encrypted" and self.upload_id is not None

    @property
    def error_text(self) -> str:
        """The error, in another language than English the sentence of its kind."""
        kind = FAILURES.get(self.error_type, "")
        text = gettext(kind) if kind else ""
        return text if self.error and text != kind else self.error

    @property
    def waits_for_endpoint(self) -> bool:
        """It waits until the embedding endpoint may be asked again; `sent_at` says when."""
        return self.state == self.State.QUEUED and self.error_type == "waiting_for_endpoint"

    @property
    def waits_for_site(self) -> bool:
        """It waits until the site that it fetches from may be asked again; `sent_at` says when."""
        return self.state == self.State.QUEUED and self.error_type == "waiting_for_site"

    @property
    def cost_usd(self) -> float | None:
        """What its model calls cost; None when there were none elsewhere, or when one has no known price."""
        return float(self.cost["usd"]) if self.cost.get("priced") and not self.cost.get("unpriced") else None

    @property
    def stage_rows(self) -> list[StageRow]:
        """What each stage has done, in order; stages to come wait."""
        return stage_rows(self.kind, self.state, self.stages, self.error)

    @property
    def rate(self) -> float | None:
        """Chunks per second of the present or last embedding; None where nothing was measured."""
        return next((entry["rate"] for entry in self.stages if entry["stage"] == self.Stage.EMBED), None)

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the stage that runs is done, at its rate; None when that is not known."""
        return next((row.remaining_s for row in self.stage_rows if row.state == "running"), None)

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


class WorkPart(models.Model):
    """Bytes that work in the background keeps, in the order of `position`, until it no longer needs them.

    kind, with what `key` names: FILE, a part of the file that an operation works on (its id). VECTORS, those of `size`
    consecutive chunks of a large document from the chunk_index `position` on, while its job (its id) is under way:
    a VectorBatch; digest: SHA-256 (hex) of the model and of every text that was embedded. PAGE, a page that
    text recognition has read (`readers.scans.words.pack_recognized`), kept as long as its file, whose SHA-256 is the
    digest: no page is read twice by the same engine. There is no reference to the work, so that deleting many jobs
    reads none of this; maintenance takes what is left.
    """

    class Kind(models.TextChoices):
        FILE = "file"
        VECTORS = "vectors"
        PAGE = "page"

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        Collection, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, related_name="+"
    )
    kind = models.CharField(max_length=8, choices=Kind.choices)
    key = models.TextField(db_collation="C")
    position = models.IntegerField()
    size = models.IntegerField(default=1, db_default=1)
    digest = models.CharField(max_length=64, default="", db_default="")
    content = models.BinaryField()
    made_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "work_parts"
        constraints = [models.UniqueConstraint(fields=["kind", "key", "position"], name="work_parts_key")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.position} of {self.key[:12]}"
