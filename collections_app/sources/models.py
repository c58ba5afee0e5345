"""Sources that a collection is kept in step with, their syncs, and what each sync changed.

Where fetched documents came from, and how the servers that they come from want to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy, pgettext_lazy

from collections_app.collections.models import Collection, Document
from collections_app.jobs.operation_models import Operation

STATES = ("new", "succeeded", "failed", "held", "disabled")


class SourceQuerySet(QuerySet["Source"]):
    def due(self, now: Any) -> SourceQuerySet:
        """Those whose next sync should have begun, without those that one is under way for."""
        under_way = Operation.objects.filter(source=OuterRef("pk"), finished_at=None)
        waiting = self.filter(enabled=True, next_at__lte=now, collection__deleted_at__isnull=True)
        return waiting.exclude(Exists(under_way))

    def troubled(self) -> SourceQuerySet:
        """Enabled ones whose last sync failed or waits for a decision, by collection and name."""
        rows = self.filter(~Q(last_error="") | Q(waits=True), enabled=True, collection__deleted_at__isnull=True)
        return rows.select_related("collection").order_by("collection__name", "name")


class Source(models.Model):
    """A source that a collection is kept in step with.

    kind: the name of a class of `collections_app.sources.kinds`. settings: what that class asks for. secret: a password
    or key, encrypted (`endpoints/secrets.py`), "" for none. prefix: a folder that its documents come into, with
    a slash at its end, or "". tags, access: of its documents; access null: as the collection has it.
    schedule: minutes between the beginnings of two syncs, 0 for none but those that a person starts; next_at: when the
    next one is due. keep_missing: what the source has no more stays. last_error: of the last sync, "" when it
    succeeded. waits: the last sync would delete so much that a person has to decide.
    """

    encrypted_fields = ("secret",)

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="sources")
    kind = models.CharField(max_length=32)
    name = models.CharField(max_length=100)
    settings = models.JSONField(default=dict, blank=True)
    secret = models.TextField(default="", blank=True, editable=False)
    prefix = models.TextField(default="", blank=True)
    tags = ArrayField(models.TextField(), default=list, blank=True)
    access: models.JSONField[Any, Any] = models.JSONField(null=True, blank=True)
    schedule = models.IntegerField(default=0)
    keep_missing = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    next_at = models.DateTimeField(null=True, blank=True)
    last_success = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(default="", blank=True)
    waits = models.BooleanField(default=False)
    created_by = models.TextField(default="", blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = SourceQuerySet.as_manager()

    class Meta:
        db_table = "sources"
        ordering: ClassVar[list[str]] = ["name", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["collection", "name"], name="sources_name")
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["next_at"], name="sources_due_idx", condition=models.Q(enabled=True))
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def endpoint(self) -> str:
        """What tells its documents from those of others in `FetchedSource.endpoint`."""
        return f"source:{self.pk}"

    @property
    def interval(self) -> timedelta:
        return timedelta(minutes=self.schedule)

    @property
    def state(self) -> str:
        """One of STATES: "new" before the first sync, "held" while deletions wait for a person."""
        if not self.enabled:
            return "disabled"
        if self.last_error:
            return "failed"
        if self.waits:
            return "held"
        return "succeeded" if self.last_success else "new"


class SourceChange(models.Model):
    """What a sync did with one item, or in a preview would do. Unchanged items have no row.

    kind HELD: the deletion waits until a person agrees.
    """

    class Kind(models.TextChoices):
        ADDED = "added", pgettext_lazy("of a document", "Added")
        UPDATED = "updated", pgettext_lazy("of a document", "Updated")
        DELETED = "deleted", pgettext_lazy("of a document", "Deleted")
        FAILED = "failed", gettext_lazy("Failed")
        HELD = "held", pgettext_lazy("of a document", "Awaits confirmation")

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Operation, on_delete=models.CASCADE, related_name="changes")
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, db_constraint=False, related_name="+")
    doc_id = models.TextField(db_collation="C")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    reason = models.TextField(default="", blank=True)

    class Meta:
        db_table = "source_changes"
        ordering: ClassVar[list[str]] = ["id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["run", "doc_id"], name="source_changes_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.doc_id}"


class FetchedSourceQuerySet(models.QuerySet["FetchedSource"]):
    def pages_of(self, collection_id: int, doc_ids: Iterable[str]) -> models.QuerySet[FetchedSource, tuple[str, str]]:
        """(address, final address) of the web pages that these documents of a collection were fetched from."""
        of_web = self.filter(kind__in=("url", "sync"))
        own = of_web.filter(document__collection_id=collection_id, document__doc_id__in=list(doc_ids))
        return own.values_list("address", "final_address")


class FetchedSource(models.Model):
    """What a document was fetched from, and the state in which it was found there. It goes with its document.

    address: the URL as it was asked for, s3://bucket/key, or the item's id of a source. endpoint: of the bucket's
    server, or "source:<id>"; "" for a URL. final_address: where redirects led to, or the item's URL. etag: also the
    item's version. etag, last_modified: the server's words, to ask by whether anything changed;
    "" when it sent none. sha256: of the bytes that came, size_bytes: how many. checked_at: when it was last asked.
    """

    class Kind(models.TextChoices):
        URL = "url", gettext_lazy("Web page")
        S3 = "s3", "S3"
        SYNC = "sync", gettext_lazy("Sync")

    document = models.OneToOneField(
        Document, on_delete=models.CASCADE, db_constraint=False, primary_key=True, related_name="fetched"
    )
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.URL)
    address = models.TextField(db_collation="C")
    endpoint = models.TextField(default="", blank=True)
    final_address = models.TextField(default="", blank=True)
    etag = models.TextField(default="", blank=True)
    last_modified = models.TextField(default="", blank=True)
    sha256 = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField(default=0)
    checked_at = models.DateTimeField(default=timezone.now)

    objects = FetchedSourceQuerySet.as_manager()

    class Meta:
        db_table = "fetched_sources"
        indexes = [models.Index(fields=["kind", "address"], name="fetched_sources_address_idx")]

    def __str__(self) -> str:
        return self.address
