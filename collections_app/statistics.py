"""Distributions over a collection, for its statistics page."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, F, IntegerField, Max
from django.db.models.functions import Cast, Floor

from collections_app.models import Chunk, Collection

BINS = 24


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
    chunks = Chunk.objects.filter(collection=collection)
    highest = chunks.aggregate(highest=Max("token_count"))["highest"]
    if highest is None:
        return None
    step = highest // BINS + 1
    binned = chunks.annotate(bin=Cast(Floor(F("token_count") / step), IntegerField()))
    rows = binned.values("bin").annotate(total=Count("id")).order_by("bin")
    found = {row["bin"]: row["total"] for row in rows}
    return Histogram(tuple(found.get(index, 0) for index in range(BINS)), step, highest)
