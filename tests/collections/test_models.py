from __future__ import annotations

import pytest
from django.db import connection

from collections_app.models import (
    ApiKey,
    Chunk,
    Collection,
    Document,
    IdempotencyRecord,
    IndexVersion,
    IndexVersionDocument,
    IngestJob,
    Upload,
    WorkerHeartbeat,
)

COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
# what Django calls a type -> what the catalogue does
NAMES = {"timestamp with time zone": "timestamp with time zone", "varchar": "character varying", "serial": "integer"}

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "model",
    [
        Collection,
        Document,
        Chunk,
        ApiKey,
        Upload,
        IngestJob,
        WorkerHeartbeat,
        IdempotencyRecord,
        IndexVersion,
        IndexVersionDocument,
    ],
)
def test_the_model_is_what_the_catalogue_holds(model: type) -> None:
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS, [model._meta.db_table])  # type: ignore[attr-defined]
        live = {name: (kind, required) for name, kind, required in cursor.fetchall()}
    fields = model._meta.local_concrete_fields  # type: ignore[attr-defined]
    declared = {}
    for field in fields:
        kind = field.db_type(connection).split(" COLLATE")[0].replace("varchar", "character varying")
        declared[field.column] = (kind, not field.null)
    assert declared == live
