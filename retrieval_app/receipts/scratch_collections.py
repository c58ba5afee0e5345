"""An export opened as a collection that only this transaction sees, to be searched and given up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction

from collections_app.services.collections.export_parts import DOCUMENTS, LISTS, invalid_export
from collections_app.services.transfer.export_reader import Archive
from collections_app.services.transfer.import_rows import check_row
from collections_app.services.transfer.import_stage import read_spec
from collections_app.services.transfer.import_writer import SET_REVISIONS, read_chunks
from collections_app.stores import embedder_for, open_rerankers
from ragd.store.indexing import index
from ragd.store.schema import scratch_schema
from ragd.store.store import REBAKE, SET_BAKED, Store, execute
from ragd.store.tables import create_collection
from ragd.types import Chunk, canonical_json

DOCUMENTS_AT_ONCE = 200

INSERT_DOCUMENTS = """
INSERT INTO documents (collection_id, doc_id, revision, enabled)
SELECT %(collection)s, doc_id, revision, enabled
FROM jsonb_to_recordset(%(rows)s::jsonb) AS listed (doc_id text, revision integer, enabled boolean)
"""

# Nobody reads as somebody here, but scores are those of the chunks without a list.
INSERT_LISTS = """
INSERT INTO document_access (collection_id, doc_id, access)
SELECT %(collection)s, doc_id, '{0}' FROM unnest(%(doc_ids)s::text[]) AS listed (doc_id) ON CONFLICT DO NOTHING
"""


@contextmanager
def open_export(archive: Archive) -> Iterator[Store]:
    """The exported collection as a store with its embedder, in a schema that is rolled back at the end.

    archive: checked. Scores are those of the exported collection: its vectors, its words, the mean length that its
    weights were computed with. Vector search is exact. Raises ServiceError 422 for an export that is damaged.
    """
    spec = read_spec(archive.manifest)
    with transaction.atomic(), scratch_schema(connection):
        pk = create_collection(
            connection,
            name=str(archive.manifest.collection["name"]),
            embed_model=spec.embed_model,
            embed_dims=spec.embed_dims,
            hybrid_enabled=spec.hybrid_enabled,
            language=spec.language,
            policy=spec.policy,
            placement="local",
        )
        store = Store(connection, pk, exact_threshold=settings.RAGD_EXACT_THRESHOLD, rerankers=open_rerankers())
        try:
            _fill(store, archive)
        except IntegrityError as error:
            raise invalid_export(f"its rows contradict each other: {str(error).splitlines()[0]}") from None
        store.use_embedder(embedder_for(spec.embed_model, spec.embed_dims))
        yield store


def _fill(store: Store, archive: Archive) -> None:
    listed = [str(row["doc_id"]) for row in archive.rows(LISTS)]
    execute(connection, INSERT_LISTS, {"collection": store.collection.id, "doc_ids": listed})
    rows = []
    for row in archive.rows(DOCUMENTS.member):
        check_row(DOCUMENTS.member, row)
        rows.append({name: row[name] for name in ("doc_id", "revision", "enabled")})
    execute(connection, INSERT_DOCUMENTS, {"collection": store.collection.id, "rows": canonical_json(rows)})
    waiting: list[tuple[Chunk, int]] = []
    for number, (_, chunks) in enumerate(groupby(read_chunks(archive), key=lambda pair: pair[0].doc_id), 1):
        waiting += chunks
        if number % DOCUMENTS_AT_ONCE == 0:
            _index(store, waiting)
            waiting = []
    _index(store, waiting)
    if store.collection.hybrid_enabled:
        params: dict[str, Any] = store.scope | {"length_baked": float(archive.manifest.statistics["length_baked"])}
        execute(connection, REBAKE.format(chunks=store.collection.partition), params)
        execute(connection, SET_BAKED, params)


def _index(store: Store, rows: Sequence[tuple[Chunk, int]]) -> None:
    index([chunk for chunk, _ in rows], store)
    params = {
        "collection": store.collection.id,
        "doc_ids": [chunk.doc_id for chunk, _ in rows],
        "numbers": [chunk.chunk_index for chunk, _ in rows],
        "revisions": [revision for _, revision in rows],
    }
    execute(connection, SET_REVISIONS.format(chunks=store.collection.partition), params)
