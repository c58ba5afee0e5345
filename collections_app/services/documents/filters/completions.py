"""What may come next in a typed filter that is being written: the fields and values that a collection really has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.db import connection

from collections_app.domain.expressions import Literal
from collections_app.domain.filter_language import LENGTH_MAX, complete_filter
from collections_app.models import Collection
from ragd.conditions import DOCUMENT_FIELDS, FIELDS, INHERITED_FIELDS, METADATA, metadata_paths
from ragd.search.conditions import OF_DOCUMENT, json_path

ROWS_READ = 10_000  # chunks and documents that are looked at
VALUES_MAX = 40
SOUGHT_CHARS_MAX = 200

KEYS = """
SELECT DISTINCT key FROM (SELECT {column} FROM {table} WHERE collection_id = %(collection_id)s LIMIT %(rows)s) AS read,
    jsonb_object_keys({column}) AS key
ORDER BY key
"""
VALUES = """
SELECT DISTINCT value FROM (SELECT {column} FROM {table} WHERE collection_id = %(collection_id)s LIMIT %(rows)s)
    AS read, {values} AS value
WHERE starts_with(lower(value #>> '{{}}'), %(begun)s) ORDER BY value LIMIT %(most)s
"""


def metadata_keys(collection: Collection) -> list[str]:
    """The fields of metadata that its first ROWS_READ documents have, by name."""
    return [str(key) for key in _read(collection, KEYS, "documents", "metadata")]


def complete(collection: Collection | None, text: str, *, of_documents: bool = False) -> list[str]:
    """The text with each word that may come next. of_documents: without the fields that only chunks have.

    Of the first ROWS_READ documents and chunks; [] for a text that is wrong already or too long. Without a collection:
    no keys of metadata and no values.
    """
    if len(text) > LENGTH_MAX or "\x00" in text:
        return []
    fields = offered_fields(collection, of_documents=of_documents)
    return complete_filter(text, fields, lambda field, begun: values_of(collection, field, begun))


def offered_fields(collection: Collection | None, *, of_documents: bool = False) -> list[str]:
    """The fields that a filter may name: those of metadata first, then those that its documents and chunks have."""
    known = OF_DOCUMENT if of_documents else tuple(FIELDS)
    if collection is None:
        return list(known)
    keys = [METADATA + key for key in metadata_keys(collection)]
    if not of_documents:
        held = {*OF_DOCUMENT, *_read(collection, KEYS, collection.chunks_table, "attributes")}
        known = tuple(field for field in known if field in held)
    return [*keys, *known]


def values_of(collection: Collection | None, field: str, begun: str = "") -> Sequence[Literal]:
    """What the field holds that begins so, at most VALUES_MAX; [] without a collection."""
    if collection is None:
        return []
    if len(begun) > SOUGHT_CHARS_MAX or (field not in FIELDS and not field.startswith(METADATA)):
        return []
    table, column, values, path = "documents", field, f"to_jsonb({field})", ""
    if field == "tags":
        values = "jsonb_array_elements(to_jsonb(tags))"
    elif field.startswith(METADATA):
        column, values = "metadata", "jsonb_path_query(metadata, %(path)s::jsonpath)"
        path = json_path(metadata_paths(field)[-1]) + "[*]"
    elif field not in {"doc_id", *DOCUMENT_FIELDS, *INHERITED_FIELDS}:
        table, column = collection.chunks_table, "attributes"
        values, path = "jsonb_path_query(attributes, %(path)s::jsonpath)", json_path([field]) + "[*]"
    found = _read(collection, VALUES, table, column, values=values, begun=begun.lower(), path=path)
    return [value for value in found if isinstance(value, Literal) and value != ""]


def _read(collection: Collection, sql: str, table: str, column: str, values: str = "", **more: Any) -> list[Any]:
    params = {"collection_id": collection.pk, "rows": ROWS_READ, "most": VALUES_MAX, **more}
    with connection.cursor() as cursor:
        cursor.execute(sql.format(table=table, column=column, values=values), params)
        rows = [row[0] for row in cursor.fetchall()]
    return [json.loads(each) for each in rows] if values else rows
