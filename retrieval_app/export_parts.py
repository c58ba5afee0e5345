"""What travels with a collection: its saved plans, the default one marked, and its calibration, so that the same chunks
and the same embedder give the same confidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg

from collections_app.models import Collection
from collections_app.services.collections.export_parts import Part, Row, check_time, register
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.confidence.evaluator import Rule, Weights
from retrieval_app.models import Calibration, SavedPlan

PLAN_FIELDS = ("name", "plan", "description", "is_default", "created_by", "created_at", "updated_at")
READ_PLANS = """
SELECT name, plan, description, is_default, created_by, created_at::text, updated_at::text
FROM retrieval_app_savedplan WHERE collection_id = %s ORDER BY name
"""
CALIBRATION_FIELDS = (
    "weights", "upper", "lower", "embed_model", "data", "figures", "corrects", "created_by", "created_at",
)  # fmt: skip
READ_CALIBRATIONS = """
SELECT weights, upper, lower, embed_model, data, figures, corrects, created_by, created_at::text
FROM retrieval_app_calibration WHERE collection_id = %s
"""


def register_parts() -> None:
    register(Part("plans", read_plans, restore_plans, count_plans))
    register(Part("calibrations", read_calibrations, restore_calibrations, count_calibrations))


def _wrong_fields(row: Row, fields: Sequence[str], noun: str, part: str) -> InvalidInput:
    return InvalidInput(f"{noun} has {', '.join(fields)}, not {', '.join(map(str, row))}", field=part)


def read_plans(connection: psycopg.Connection[Any], collection_id: int, name: str) -> Iterator[Row]:
    """By name."""
    return (dict(zip(PLAN_FIELDS, row, strict=True)) for row in connection.execute(READ_PLANS, [collection_id]))


def restore_plans(collection: Collection, rows: Iterable[Row]) -> int:
    """Raises InvalidInput for a plan that this version does not take."""
    return len(SavedPlan.objects.bulk_create([_plan(collection, row) for row in rows]))


def _plan(collection: Collection, row: Row) -> SavedPlan:
    if set(row) != set(PLAN_FIELDS) or not isinstance(row["plan"], dict):
        raise _wrong_fields(row, PLAN_FIELDS, "a saved plan", "plans")
    return SavedPlan(
        collection=collection,
        name=str(row["name"]),
        plan=RetrievePlan.from_dict(row["plan"]).as_dict(),
        description=str(row["description"]),
        is_default=bool(row["is_default"]),
        created_by=str(row["created_by"]),
        created_at=check_time(row["created_at"]),
    )


def count_plans(collection_id: int, name: str) -> int:
    return SavedPlan.objects.filter(collection_id=collection_id).count()


def read_calibrations(connection: psycopg.Connection[Any], collection_id: int, name: str) -> Iterator[Row]:
    """One or none."""
    rows = connection.execute(READ_CALIBRATIONS, [collection_id])
    return (dict(zip(CALIBRATION_FIELDS, row, strict=True)) for row in rows)


def restore_calibrations(collection: Collection, rows: Iterable[Row]) -> int:
    """Raises InvalidInput for one that this version does not take, and for a second one."""
    calibrations = [_calibration(collection, row) for row in rows]
    if len(calibrations) > 1:
        raise InvalidInput(f"a collection has one calibration at most, not {len(calibrations)}", field="calibrations")
    return len(Calibration.objects.bulk_create(calibrations))


def _calibration(collection: Collection, row: Row) -> Calibration:
    if set(row) != set(CALIBRATION_FIELDS):
        raise _wrong_fields(row, CALIBRATION_FIELDS, "a calibration", "calibrations")
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
