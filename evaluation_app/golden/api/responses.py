"""Golden sets and questions as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluation_app.golden.expectation_status import read_status
from evaluation_app.golden.expected_chunks import find_drifts
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.transfer.imports import ImportPlan
from evaluation_app.golden.version_diff import VersionDifference
from evaluation_app.models import GoldenQuestion, GoldenSet, GoldenSetVersion


def set_response(golden_set: GoldenSet) -> dict[str, Any]:
    """Of a set with the counts of `sets.listed_sets`."""
    return {
        "name": golden_set.name,
        "collection": golden_set.collection_name,
        "description": golden_set.description,
        "version": golden_set.version,
        "digest": golden_set.digest,
        "questions": getattr(golden_set, "questions_total", 0),
        "suggested": getattr(golden_set, "suggested_total", 0),
        "baseline": str(golden_set.baseline_id) if golden_set.baseline_id else None,
        "created_at": golden_set.created_at.isoformat(),
        "updated_at": golden_set.updated_at.isoformat(),
    }


def question_responses(golden_set: GoldenSet, rows: Sequence[GoldenQuestion]) -> list[dict[str, Any]]:
    """In the order of the rows, each with what it expects that is gone."""
    asked = [(row, Golden.of(row)) for row in rows]
    standing = read_status(golden_set.collection_name, [golden for _, golden in asked])
    drifts = find_drifts(golden_set.collection_name, [row.chunk_marks for row in rows])
    return [
        golden.as_dict()
        | {
            "id": row.pk,
            "position": row.position,
            "suggested": row.suggested,
            "source_run": str(row.source_run) if row.source_run else None,
            "lost": standing.lost(golden, drift),
            "created_at": row.created_at.isoformat(),
            "updated_at": row.updated_at.isoformat(),
        }
        for (row, golden), drift in zip(asked, drifts, strict=True)
    ]


def version_response(version: GoldenSetVersion, *, whole: bool = False) -> dict[str, Any]:
    return {
        "version": version.version,
        "digest": version.digest,
        "questions": version.questions if whole else len(version.questions),
        "reason": version.reason,
        "made_by": version.made_by,
        "created_at": version.created_at.isoformat(),
    }


def difference_response(before: int, after: int, difference: VersionDifference) -> dict[str, Any]:
    changes = [
        {
            "kind": change.kind,
            "place": change.place,
            "question": change.golden.question,
            "fields": [{"field": item.name, "before": item.before, "after": item.after} for item in change.fields],
        }
        for change in difference.changes
    ]
    return {"before": before, "after": after, "counts": difference.counts, "changes": changes}


def import_response(golden_set: GoldenSet, plan: ImportPlan, *, dry_run: bool) -> dict[str, Any]:
    lines = [
        {
            "line": row.number,
            "status": row.status,
            "question": row.golden.question if row.golden else "",
            "fields": list(row.fields),
            "error": row.error,
        }
        for row in plan.rows
        if row.status != "unchanged"
    ]
    return {
        "dry_run": dry_run,
        "counts": plan.counts,
        "lines": lines,
        "removed": [golden.question for golden in plan.removed],
        "version": golden_set.version,
    }
