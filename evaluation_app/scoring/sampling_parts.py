"""How a collection's sampling of live traffic travels with it, and goes with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from django.utils import timezone

from collections_app.models import Collection
from collections_app.services.collections.export_parts import Part, Row, register
from evaluation_app.models import Sampling
from evaluation_app.scoring.sampling import JUDGES, check_sampling
from ragd.errors import InvalidInput

READ_SAMPLING = """
SELECT enabled, rate, per_day, judge, judge_model FROM evaluation_samplings WHERE collection_name = %s
"""
FIELDS = ("enabled", "rate", "per_day", "judge", "judge_model")


def read_sampling(connection: psycopg.Connection[Any], collection_id: int, name: str) -> Iterator[Row]:
    """One row, none for a collection of which nothing was ever sampled."""
    for row in connection.execute(READ_SAMPLING, [name]):
        yield dict(zip(FIELDS, row, strict=True))


def restore_sampling(collection: Collection, rows: Iterable[Row]) -> int:
    """In place of what the collection has. A chat model costs money where it is asked, so that judge comes disabled.

    Raises InvalidInput for a row that is none, or more than one.
    """
    count = 0
    for row in rows:
        if set(row) != set(FIELDS) or count:
            raise InvalidInput(
                f"the sampling of a collection is one row with {', '.join(FIELDS)}, not {', '.join(map(str, row))}",
                field="sampling",
            )
        check_sampling(row["rate"], row["per_day"], row["judge"])
        enabled = bool(row["enabled"]) and row["judge"] == JUDGES[0]
        now = timezone.now() if enabled else None
        values = dict(row) | {"enabled": enabled, "enabled_at": now, "looked_until": now}
        Sampling.objects.update_or_create(collection_name=collection.name, defaults=values)
        count += 1
    return count


def count_sampling(collection_id: int, name: str) -> int:
    return Sampling.objects.filter(pk=name).count()


def forget_sampling(collection: Collection) -> None:
    Sampling.objects.filter(pk=collection.name).delete()


def register_sampling() -> None:
    register(Part("samplings", read_sampling, restore_sampling, count_sampling, forget_sampling))
