"""Access lists of documents in an export: by the names of users and groups, since their numbers are of one server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated

from django.db import connection
from pydantic import BaseModel, Field, StrictStr, ValidationError

from collections_app.access_context import Access, system_access
from collections_app.models import Collection
from collections_app.services.collections.export_parts import Row, invalid_export
from collections_app.services.governance.document_access import (
    FROM_METADATA,
    IMPORTED,
    AccessList,
    find_principals,
    hidden_from,
    names_of,
    put_list,
)
from ragd.store.store import fetch_all

NAMED_MAX = 20
ALL_LISTS = """
SELECT doc_id, access, origin, unknown FROM document_access WHERE collection_id = %(collection)s ORDER BY doc_id
"""
Name = Annotated[StrictStr, Field(min_length=1, max_length=150, pattern="^[^\x00]*$")]


class ListRow(BaseModel):
    doc_id: Annotated[StrictStr, Field(min_length=1, max_length=512)]
    users: list[Name] = []
    groups: list[Name] = []
    origin: Annotated[StrictStr, Field(pattern="^(stated|metadata|attachment|import)$")] = "stated"
    unknown: list[Name] = []


def read_lists(collection: Collection, access: Access) -> Iterator[tuple[bytes, int]]:
    """Lines of JSON, each counted as one: the lists of documents, there or gone, that somebody may read."""
    with system_access():
        rows = fetch_all(connection, ALL_LISTS, {"collection": collection.pk})
    hidden = hidden_from(access, collection, [row[0] for row in rows])
    for doc_id, codes, origin, unknown in rows:
        if doc_id not in hidden:
            stated = names_of(codes)
            row = {"doc_id": doc_id, "users": stated.users, "groups": stated.groups, "origin": origin}
            yield json.dumps(row | {"unknown": unknown}, ensure_ascii=False).encode() + b"\n", 1


def write_lists(collection: Collection, rows: Iterable[Row]) -> tuple[int, list[str]]:
    """(how many lists, warnings). Before the documents are there. Names of nobody let nobody in, and are told.

    Raises ServiceError 422 for a line that is no list.
    """
    count, lacking, missing = 0, 0, set[str]()
    for row in rows:
        try:
            listed = ListRow.model_validate(row)
        except ValidationError as error:
            raise invalid_export(f"an access list cannot be kept: {error.errors()[0]['msg']}") from None
        codes, unknown = find_principals(listed.users, listed.groups)
        origin = listed.origin if listed.origin in (FROM_METADATA, "attachment") else IMPORTED
        unknown = list(dict.fromkeys([*listed.unknown, *unknown]))
        with system_access():  # whoever imports it is not yet of its people
            put_list(collection, [listed.doc_id], AccessList(codes, origin, tuple(unknown)))
        count += 1
        if unknown:
            lacking += 1
            missing.update(unknown)
    if not missing:
        return count, []
    named = ", ".join(map(repr, sorted(missing)[:NAMED_MAX]))
    more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
    return count, [
        f"{lacking} documents are restricted to names that no user or group here is called ({named}{more}); only the "
        "others of their lists and administrators may read them"
    ]
