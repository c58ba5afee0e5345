"""The versions of golden sets, as they travel with a collection: beside the questions, and after them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg

from collections_app.models import Collection
from collections_app.services.collections.export_parts import Part, Row, check_time, register
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.sets import NAMED_CHARS, free_name
from evaluation_app.golden.versions import digest_of
from evaluation_app.models import GoldenSet, GoldenSetVersion
from ragd.errors import InvalidInput

READ_VERSIONS = """
SELECT s.name, s.description, s.version, s.bands, v.version, v.digest, v.questions, v.reason, v.made_by, v.created_at
FROM golden_set_versions v JOIN golden_sets s ON s.id = v.golden_set_id
WHERE s.collection_name = %s ORDER BY s.name, v.version
"""
FIELDS = (
    "set", "set_description", "set_version", "set_bands", "version", "digest", "questions", "reason", "made_by",
    "created_at",
)  # fmt: skip


def read_versions(connection: psycopg.Connection[Any], collection_id: int, name: str) -> Iterator[Row]:
    """By set and version. So a set without questions travels too, as long as a version of it is kept."""
    for row in connection.execute(READ_VERSIONS, [name]):
        values = dict(zip(FIELDS, row, strict=True))
        yield values | {"created_at": values["created_at"].isoformat()}


def restore_versions(collection: Collection, rows: Iterable[Row]) -> int:
    """Of the sets that the questions were restored into, and of sets without questions, which are made.

    Raises InvalidInput for a row that is none, and for questions that do not have the digest that is said of them.
    """
    result: dict[str, GoldenSet] = {}
    count = 0
    for row in rows:
        _check(row)
        name = str(row["set"])
        if name not in result:
            result[name] = _restored(collection, name, row, {item.pk for item in result.values()})
        GoldenSetVersion.objects.create(
            golden_set=result[name], **{field: row[field] for field in FIELDS if not field.startswith("set")}
        )
        if row["version"] == result[name].version:
            GoldenSet.objects.filter(pk=result[name].pk).update(digest=row["digest"], bands=read_bands_of(row))
        count += 1
    return count


def _check(row: Row) -> None:
    if set(row) != set(FIELDS):
        raise InvalidInput(
            f"a version of a golden set has not the fields {', '.join(map(str, row))}", field="golden_versions"
        )
    check_time(row["created_at"])
    if digest_of([Golden.from_dict(item) for item in row["questions"]]) != row["digest"]:
        raise InvalidInput(
            f"version {row['version']} of the golden set {row['set']!r} does not have the digest that is said of it",
            field="golden_versions",
        )


def read_bands_of(row: Row) -> dict[str, list[float]]:
    """The set's own bands, as they are kept. Raises InvalidInput for what are none."""
    try:
        return {name: [float(good), float(poor)] for name, (good, poor) in row["set_bands"].items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidInput(
            f"the thresholds of the golden set {row['set']!r} are none: {row['set_bands']!r}", field="golden_versions"
        ) from None


def _restored(collection: Collection, name: str, row: Row, claimed: set[int]) -> GoldenSet:
    """The set that was restored under this name, or under the one it got where that was taken."""
    sets = GoldenSet.objects.filter(collection_name=collection.name).exclude(pk__in=claimed).order_by("id")
    renamed = f"{name} ({collection.name})"[:NAMED_CHARS]
    held = sets.filter(name=name).first() or sets.filter(name__startswith=renamed).first()
    return held or make_restored(collection, row)


def make_restored(collection: Collection, row: Row) -> GoldenSet:
    """A set as a row of an export names it, under a name that is free."""
    return GoldenSet.objects.create(
        name=free_name(str(row["set"]), collection.name),
        description=str(row["set_description"]),
        version=int(row["set_version"]),
        collection_name=collection.name,
    )


def count_versions(collection_id: int, name: str) -> int:
    return GoldenSetVersion.objects.filter(golden_set__collection_name=name).count()


def forget_versions(collection: Collection) -> None:
    """They go with their sets, those without questions too."""
    GoldenSet.objects.filter(collection_name=collection.name).delete()


def register_versions() -> None:
    register(Part("golden_versions", read_versions, restore_versions, count_versions, forget_versions))
