"""Distributions over a collection, for its statistics page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import TruncWeek
from django.utils import timezone

from collections_app.models import Chunk, ChunkOverlay, Collection, Document, DocumentRevision, Upload

BINS = 24
GROWTH_WEEKS = 26
TYPES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Histogram:
    """counts[i] chunks have from i * step up to (i + 1) * step words; `highest` is the longest."""

    counts: tuple[int, ...]
    step: int
    highest: int

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """(fewest words, most words, chunks) of each bin that is not empty."""
        bins = ((index * self.step, (index + 1) * self.step - 1, count) for index, count in enumerate(self.counts))
        return [row for row in bins if row[2]]


def count_chunk_lengths(collection: Collection) -> Histogram | None:
    """How long the chunks are, in words, in 24 bins from 0 to the longest; None without chunks."""
    lengths = Chunk.objects.of(collection).order_by().values_list("token_count").annotate(total=Count("id"))
    by_length = dict(lengths)
    if not by_length:
        return None
    highest = max(by_length)
    step = highest // BINS + 1
    bins = Counter[int]()
    for length, total in by_length.items():
        bins[length // step] += total
    return Histogram(tuple(bins[index] for index in range(BINS)), step, highest)


def count_documents(collection: Collection) -> dict[str, Any]:
    """Documents by state and by type (the twelve most frequent), and what is kept beside them.

    An archived document counts as archived, not as disabled too.
    """
    documents = Document.objects.filter(collection=collection)
    states = documents.aggregate(
        now_enabled=Count("pk", filter=Q(enabled=True)),
        now_disabled=Count("pk", filter=Q(enabled=False, archived_at=None)),
        now_archived=Count("pk", filter=Q(archived_at__isnull=False)),
    )
    types = documents.order_by().values_list("media_type").annotate(total=Count("pk")).order_by("-total", "media_type")
    uploads = Upload.objects.filter(collection=collection).aggregate(files=Count("pk"), size=Sum("size_bytes"))
    return {
        "documents_by_state": {name: states[f"now_{name}"] for name in ("enabled", "disabled", "archived")},
        "documents_by_type": dict(types[:TYPES_SHOWN]),
        "sources": uploads["files"],
        "source_bytes": uploads["size"] or 0,
        "revisions": DocumentRevision.objects.filter(collection=collection).count(),
        "overlays": ChunkOverlay.objects.filter(collection=collection).count(),
    }


@dataclass(frozen=True, slots=True)
class Growth:
    """Documents that were there at the end of each week (by when they were made), oldest first."""

    weeks: tuple[datetime, ...]
    totals: tuple[int, ...]

    @property
    def rows(self) -> list[tuple[datetime, int, int]]:
        """(beginning of the week, documents made in it, documents at its end)."""
        before = (self.totals[0], *self.totals)
        made = [total - earlier for total, earlier in zip(self.totals, before, strict=False)]
        return list(zip(self.weeks, made, self.totals, strict=True))


def count_growth(collection: Collection, now: datetime | None = None) -> Growth:
    """The last 26 weeks. Of documents that are gone nothing is counted."""
    until = now or timezone.now()
    last = (until - timedelta(days=until.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    weeks = tuple(last - timedelta(weeks=back) for back in reversed(range(GROWTH_WEEKS)))
    documents = Document.objects.filter(collection=collection)
    total = documents.filter(created_at__lt=weeks[0]).count()
    made = dict(
        documents.filter(created_at__gte=weeks[0])
        .order_by()
        .annotate(week=TruncWeek("created_at"))
        .values_list("week")
        .annotate(total=Count("pk"))
    )
    totals = []
    for week in weeks:
        total += made.get(week, 0)
        totals.append(total)
    return Growth(weeks, tuple(totals))
