"""Rows of chunks as ranked candidates, and the filter that every list shares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ragd.store import Store
from ragd.types import Candidate, ListRank, RetrievePlan, canonical_json

COLUMNS = """id, doc_id, chunk_index, content, start_char, end_char, context, tags, metadata::text, revision"""

# Equality on top-level keys; the containment before it lets an index help and is never narrower.
FILTERED = """
collection_id = %(collection_id)s AND enabled
  AND (%(tags_any)s::text[] IS NULL OR tags && %(tags_any)s::text[])
  AND (%(tags_all)s::text[] IS NULL OR tags @> %(tags_all)s::text[])
  AND (%(metadata)s::jsonb IS NULL OR (metadata @> %(metadata)s::jsonb AND NOT EXISTS (
        SELECT 1 FROM jsonb_each(%(metadata)s::jsonb) AS wanted
        WHERE metadata -> wanted.key IS DISTINCT FROM wanted.value)))
"""


def scope(plan: RetrievePlan, store: Store) -> dict[str, Any]:
    """The parameters that COLUMNS and FILTERED statements share."""
    filters = plan.filters
    return {
        "collection_id": store.collection.id,
        "pool": plan.pool,
        "tags_any": list(filters.tags_any) or None,
        "tags_all": list(filters.tags_all) or None,
        "metadata": canonical_json(dict(filters.metadata)) if filters.metadata else None,
    }


def ranked(rows: Sequence[tuple[Any, ...]], name: str, kind: str, highest: float) -> list[Candidate]:
    """Rows in the order of the database, as candidates; unit_score is score / highest, clipped to 0..1."""
    candidates = []
    for rank, row in enumerate(rows, 1):
        chunk_id, doc_id, chunk_index, content, start, end, context, tags, metadata, revision, score = row
        candidates.append(
            Candidate(
                doc_id=doc_id,
                chunk_index=chunk_index,
                content=content,
                score=float(score),
                tags=tuple(tags),
                metadata=json.loads(metadata),
                start=start,
                end=end,
                context=context,
                score_kind=kind,
                unit_score=min(1.0, max(0.0, float(score) / highest)),
                ranks={name: ListRank(rank, float(score))},
                chunk_id=chunk_id,
                revision=revision,
            )
        )
    return candidates
