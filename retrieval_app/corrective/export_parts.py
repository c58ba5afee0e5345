"""A calibration travels with its collection: the same chunks and the same embedder give the same confidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg

from collections_app.models import Collection
from collections_app.services.collections.export_parts import Part, Row, check_time, register
from ragd.errors import InvalidInput
from retrieval_app.confidence.evaluator import Rule, Weights
from retrieval_app.models import Calibration

READ = """
SELECT weights, upper, lower, embed_model, data, figures, corrects, created_by, created_at::text
FROM retrieval_app_calibration WHERE collection_id = %s
"""
FIELDS = ("weights", "upper", "lower", "embed_model", "data", "figures", "corrects", "created_by", "created_at")


def read_calibrations(connection: psycopg.Connection[Any], collection_id: int, name: str) -> Iterator[Row]:
    """One or none."""
    for row in connection.execute(READ, [collection_id]):
        yield dict(zip(FIELDS, row, strict=True))


def restore_calibrations(collection: Collection, rows: Iterable[Row]) -> int:
    """Raises InvalidInput for one that this version does not take, and for a second one."""
    stored = [_calibration(collection, row) for row in rows]
    if len(stored) > 1:
        raise InvalidInput(f"a collection has one calibration at most, not {len(stored)}", field="calibrations")
    Calibration.objects.bulk_create(stored)
    return len(stored)


def _calibration(collection: Collection, row: Row) -> Calibration:
    if set(row) != set(FIELDS):
        raise InvalidInput(
            f"a calibration has {', '.join(FIELDS)}, not {', '.join(map(str, row))}", field="calibrations"
        )
    try:
        Rule(Weights.from_dict(row["weights"]), row["upper"], row["lower"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"a calibration cannot be read: {error}", field="calibrations") from error
    if not isinstance(row["data"], dict) or not isinstance(row["figures"], dict):
        raise InvalidInput("data and figures of a calibration must be objects", field="calibrations")
    check_time(row["created_at"])
    return Calibration(collection=collection, **row)


def count_calibrations(collection_id: int, name: str) -> int:
    return Calibration.objects.filter(collection_id=collection_id).count()


def register_parts() -> None:
    register(Part("calibrations", read_calibrations, restore_calibrations, count_calibrations))
