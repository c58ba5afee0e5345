"""Where fetched documents came from, and how the servers that they come from want to be asked."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.models.library import Document


class FetchedSourceQuerySet(models.QuerySet["FetchedSource"]):
    def pages_of(self, collection_id: int, doc_ids: Iterable[str]) -> models.QuerySet[FetchedSource, tuple[str, str]]:
        """(address, final address) of the web pages that these documents of a collection were fetched from."""
        of_web = self.filter(kind__in=("url", "sync"))
        own = of_web.filter(document__collection_id=collection_id, document__doc_id__in=list(doc_ids))
        return own.values_list("address", "final_address")


class FetchedSource(models.Model):
    """What a document was fetched from, and the state in which it was found there. It goes with its document.

    address: the URL as it was asked for, s3://bucket/key, or the item's id of a connector. endpoint: of the bucket's
    server, or "connector:<id>"; "" for a URL. final_address: where redirects led to, or the item's URL. etag: also the
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


class FetchHost(models.Model):
    """A host that addresses are fetched from. next_at: before it, no worker asks that host for anything.

    robots: per origin ("https://example.org") {"rules": the text of robots.txt, "until": ISO time at which it is asked
    for again}.
    """

    host = models.TextField(primary_key=True, db_collation="C")
    next_at = models.DateTimeField(default=timezone.now)
    robots = models.JSONField(default=dict, blank=True)
    asked_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "fetch_hosts"
        indexes = [models.Index(fields=["asked_at"], name="fetch_hosts_asked_idx")]

    def __str__(self) -> str:
        return self.host
