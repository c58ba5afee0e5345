"""What this floor keeps of a collection and what travels with it: its saved plans, the default one marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg

from collections_app.models import Collection
from collections_app.services.collections.export_parts import Part, Row, check_time, register
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.models import SavedPlan

READ_PLANS = """
SELECT name, plan, description, is_default, created_by, created_at::text, updated_at::text
FROM retrieval_app_savedplan WHERE collection_id = %s ORDER BY name
"""
FIELDS = ("name", "plan", "description", "is_default", "created_by", "created_at", "updated_at")


def read_plans(connection: psycopg.Connection[Any], collection_id: int, name: str) -> Iterator[Row]:
    """By name."""
    for row in connection.execute(READ_PLANS, [collection_id]):
        yield dict(zip(FIELDS, row, strict=True))


def restore_plans(collection: Collection, rows: Iterable[Row]) -> int:
    """Raises InvalidInput for a plan that this version does not take."""
    plans = [_plan(collection, row) for row in rows]
    SavedPlan.objects.bulk_create(plans)
    return len(plans)


def _plan(collection: Collection, row: Row) -> SavedPlan:
    if set(row) != set(FIELDS) or not isinstance(row["plan"], dict):
        raise InvalidInput(f"a saved plan has {', '.join(FIELDS)}, not {', '.join(map(str, row))}", field="plans")
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


def register_parts() -> None:
    register(Part("plans", read_plans, restore_plans, count_plans))
