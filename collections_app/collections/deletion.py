"""A collection deleted for good, and the proof of it: what every table held of it before, and what it holds after.

The tables are asked for from the database's own catalog, so that none can be forgotten: whatever has a column
collection_id is emptied of the collection and counted.

The trash: a collection in it is invisible as any deleted one, and its rows stay where they are. What other apps keep by
its name is moved into its row, so that nothing else finds it and another collection can have the name.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from datetime import datetime, timedelta
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from django.apps import apps
from django.contrib.admin.utils import NestedObjects
from django.core import serializers
from django.db import DEFAULT_DB_ALIAS, IntegrityError, OperationalError, connection, models, transaction
from django.utils import timezone
from psycopg.errors import LockNotAvailable
from pydantic_core import to_jsonable_python

from collections_app.access.context import elevated, require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.export import READER_NAME
from collections_app.collections.export_parts import registered_parts
from collections_app.collections.models import name_actor
from collections_app.collections.retention_periods import kept_for
from collections_app.endpoints.server_settings import stored
from collections_app.errors import ServiceError
from collections_app.jobs.leases import cancel
from collections_app.jobs.operations import running
from collections_app.models import (
    ChunkOverlay,
    Collection,
    DocumentRevision,
    IndexVersion,
    IndexVersionDocument,
    IngestBatch,
    IngestJob,
    Operation,
    Upload,
)
from ragd.errors import UnknownCollection
from ragd.store.store import execute, fetch_all
from ragd.store.tables import drop_collection

log = logging.getLogger(__name__)

PURGE_ATTEMPTS = 20
PURGE_PAUSE_S = 0.5
PURGE_GRACE = timedelta(minutes=1)
BATCH_SIZE = 500

# Dropping a partition waits for whoever uses the table, and makes everybody else wait behind it.
WAIT_BRIEFLY = "SET LOCAL lock_timeout = '500ms'"

# Every table that says to which collection a row belongs. Those of chunks are apart: there is one per index version.
TABLES = r"""
SELECT c.relname, a.attnotnull
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'collection_id' AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'chunks'
  AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'chunks'::regclass)
  AND c.relname !~ '^chunks_c\d+_g\d+$'
ORDER BY c.relname
"""

CHUNK_TABLES = """
SELECT c.relname FROM pg_class c
WHERE c.relkind = 'r' AND c.relname ~ %(pattern)s
  AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'chunks'::regclass)
ORDER BY c.relname
"""

COUNT = 'SELECT count(*) FROM "{table}" WHERE collection_id = %(collection)s'
COUNT_CHUNKS = "SELECT count(*) FROM {table}"
DELETE = 'DELETE FROM "{table}" WHERE collection_id = %(collection)s'
LET_GO = 'UPDATE "{table}" SET collection_id = NULL WHERE collection_id = %(collection)s'

COUNT_INDEX_VERSION_DOCUMENTS = """
SELECT count(*) FROM index_version_documents d JOIN index_versions g ON g.id = d.index_version_id
WHERE g.collection_id = %(collection)s
"""

COUNT_FETCHED = """
SELECT count(*) FROM fetched_sources f JOIN documents d ON d.id = f.document_id WHERE d.collection_id = %(collection)s
"""

COUNT_POSTINGS = """
SELECT count(*) FROM chunk_postings p JOIN chunk_segments s ON s.id = p.segment_id
WHERE s.collection_id = %(collection)s
"""

STOP_READERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %(name)s AND usename = current_user AND pid <> pg_backend_pid()
"""

# what people call the rows of a table
NOUNS = {
    "chunk_overlays": "overlays",
    "chunk_segments": "segments",
    "chunk_stats": "statistics",
    "chunk_terms": "terms",
    "document_revisions": "revisions",
    "ingest_batches": "batches",
    "ingest_jobs": "jobs",
    "retrieval_app_queryrun": "runs",
    "retrieval_app_retrievedchunk": "retrieved_chunks",
    "retrieval_app_savedplan": "plans",
}


def delete_collection(collection: Collection, *, actor: services.Actor = None) -> dict[str, Any]:
    """Remove a collection with everything in it; returns {"before": counts, "after": counts}, each by what is counted.

    It is invisible, and its jobs are cancelled, before the first row goes; a job that runs notices at its next step,
    and an export that reads it is ended. Stored runs stay, with nothing but the collection's name. Raises
    UnknownCollection, and ServiceError 503 when something reads its rows for longer than ten seconds; they then go
    within minutes. Either way the proof is kept (`last_operation("deletion", name)`).
    """
    proof: dict[str, Any] = record_deletion(collection, actor=actor).report
    return proof


def record_deletion(collection: Collection, *, actor: services.Actor = None) -> Operation:
    """`delete_collection`; the operation that keeps its proof."""
    with (
        elevated(Permission.ADMINISTER, collection.pk),
        running(Operation.Kind.DELETION, collection.name, actor=actor) as progress,
    ):
        with transaction.atomic():
            parts = fence_collection(collection, actor=actor)
        proof = purge_collection(collection)
        left = _count_parts(collection)
        return progress.succeed({"before": parts | proof["before"], "after": left | proof["after"]})


def fence_collection(collection: Collection, *, actor: services.Actor = None) -> dict[str, int]:
    """Make it invisible, cancel its jobs, and let higher floors forget theirs; returns what those held of it.

    In the caller's transaction; `purge_collection` follows. Raises UnknownCollection when it is fenced already.
    """
    require(Permission.ADMINISTER, collection.pk)
    fenced = Collection.objects.live().filter(pk=collection.pk).update(deleted_at=timezone.now())
    if not fenced:
        raise UnknownCollection(f"collection {collection.name!r} was deleted already", field="collection")
    cancel(IngestJob.objects.active().filter(collection_id=collection.pk), "the collection was deleted")
    part_counts = _count_parts(collection)
    for part in registered_parts():
        part.forget(collection)
    before = {
        "title": collection.title,
        "description": collection.description,
        "embed_model": collection.embed_model,
        "index_version": collection.index_version,
    }
    services.record(actor, [collection], services.DELETION, f"deleted collection {collection.name}", before=before)
    return part_counts


def _count_parts(collection: Collection) -> dict[str, int]:
    return {part.name: part.rows(collection).count() for part in registered_parts()}


def purge_collection(collection: Collection) -> dict[str, Any]:
    """Remove the rows of a fenced collection, without holding up the others for longer than half a second at a time.

    Returns {"before": counts, "after": counts}. Raises ServiceError 503 when it stays in use; maintenance then goes on.
    """
    for _ in range(PURGE_ATTEMPTS):
        fetch_all(connection, STOP_READERS, {"name": READER_NAME.format(collection=collection.pk)})
        try:
            return _purge(collection)
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            time.sleep(PURGE_PAUSE_S)
    raise ServiceError(
        f"{collection.name!r} is deleted and invisible, but something still reads its rows; they go within minutes",
        type="still_in_use",
        status=503,
    )


def _purge(collection: Collection) -> dict[str, Any]:
    with transaction.atomic():
        execute(connection, WAIT_BRIEFLY)
        before = count_rows(collection.pk)
        _delete_rows(collection.pk)
        drop_collection(connection, collection.pk)
        after = count_rows(collection.pk)
    return {"before": before, "after": after}


def _delete_rows(collection_id: int) -> None:
    """What points at other rows goes before them; a table that is not named here is emptied with the rest."""
    scope = {"collection": collection_id}
    Operation.objects.filter(source__collection_id=collection_id).delete()
    own = {"chunk_stats", "chunk_terms", "chunk_segments", "documents"}  # go with the collection's row
    named = (IngestJob, IngestBatch, ChunkOverlay, DocumentRevision, IndexVersion, Upload)
    for table, required in collection_tables():
        if table not in own | {model._meta.db_table for model in named}:
            execute(connection, (DELETE if required else LET_GO).format(table=table), scope)
    IndexVersionDocument.objects.filter(index_version__collection_id=collection_id).delete()
    for model in named:
        execute(connection, DELETE.format(table=model._meta.db_table), scope)


def trash_collection(collection: Collection, *, actor: services.Actor = None) -> bool:
    """Delete a collection so that it can be restored; False where it has to be deleted for good, because nothing is
    kept in the trash or it holds a person's own files. Raises UnknownCollection."""
    if not kept_for("trash_days") or collection.is_personal:
        return False
    with elevated(Permission.ADMINISTER, collection.pk), transaction.atomic():
        trash = {"by": name_actor(actor)} | _read_attached(collection)
        fence_collection(collection, actor=actor)
        cancel(Operation.objects.filter(source__collection=collection, finished_at=None), "the collection was deleted")
        Collection.objects.filter(pk=collection.pk).update(trash=trash)
    return True


def _read_attached(collection: Collection) -> dict[str, list[Any]]:
    """What fencing removes of other tables: "rows" as Django serializes them, and "links", the columns that pointed at
    them."""
    collector = NestedObjects(using=DEFAULT_DB_ALIAS, origin=None)  # finds what would go, and removes nothing
    for part in registered_parts():
        if (rows_of_part := part.attached(collection)) is not None:
            collector.collect(rows_of_part.select_for_update())
    rows = serializers.serialize("python", chain.from_iterable(collector.data.values()))
    updates: dict[Any, Any] = collector.field_updates
    links = [
        {"model": field.model._meta.label, "field": field.attname, "rows": list(each.values_list("pk", field.attname))}
        for (field, _), each in ((key, each) for key, queries in updates.items() for each in queries)
    ]
    return {"rows": to_jsonable_python(rows), "links": to_jsonable_python(links)}


def restore_collection(collection: Collection, *, actor: services.Actor = None) -> None:
    """Bring a collection back from the trash with all that it held. Jobs that waited stay cancelled.

    Raises UnknownCollection where it is not there any more, and ServiceError 409 while another one has its name.
    """
    with elevated(Permission.ADMINISTER, collection.pk), transaction.atomic():
        trash = _take_out(collection)
        try:
            with transaction.atomic():
                Collection.objects.filter(pk=collection.pk).update(deleted_at=None)
        except IntegrityError:
            raise ServiceError(
                f"{collection.name!r} cannot be restored, because another collection has its name by now; delete that"
                " one first: it goes to the trash too",
                type="name_taken",
                status=409,
            ) from None
        _put_back(trash)
        services.record(actor, [collection], "collection.restore", "restored from the trash")


def purge_trashed(collection: Collection, *, actor: services.Actor = None) -> Operation:
    """Delete a collection of the trash for good; the operation that keeps the proof. Raises as `delete_collection`."""
    with (
        elevated(Permission.ADMINISTER, collection.pk),
        running(Operation.Kind.DELETION, collection.name, actor=actor) as progress,
    ):
        with transaction.atomic():
            _take_out(collection)
            services.record(actor, [collection], "collection.purge", "deleted from the trash")
        return progress.succeed(purge_collection(collection))


def _take_out(collection: Collection) -> dict[str, Any]:
    """What its row kept; from now on maintenance may delete it."""
    row = Collection.objects.trashed(timezone.now()).select_for_update().filter(pk=collection.pk).first()
    if row is None:
        raise UnknownCollection(f"{collection.name!r} is not in the trash any more", field="collection")
    Collection.objects.filter(pk=row.pk).update(trash=None, deleted_at=timezone.now())
    trash: dict[str, Any] = row.trash
    return trash


def _put_back(trash: dict[str, list[Any]]) -> None:
    """The rows under their old keys, and what pointed at them, as far as that is there."""
    records: dict[type[models.Model], list[models.Model]] = defaultdict(list)
    for each in serializers.deserialize("python", trash["rows"], ignorenonexistent=True):
        records[type(each.object)].append(each.object)
    for model, objects in records.items():
        model._default_manager.bulk_create(objects, batch_size=BATCH_SIZE, ignore_conflicts=True)
    changes = [(model, [each.pk for each in objects]) for model, objects in records.items()]
    for link in trash["links"]:
        model, field = apps.get_model(link["model"]), link["field"]
        for target, pairs in groupby(sorted(link["rows"], key=itemgetter(1)), key=itemgetter(1)):
            rows = model._default_manager.filter(pk__in=[pk for pk, _ in pairs], **{f"{field}__isnull": True})
            rows.update(**{field: target})
        changes.append((model, [pk for pk, _ in link["rows"]]))
    for model, ids in changes:
        _unlink(model, ids)


def _unlink(model: type[models.Model], ids: list[Any]) -> None:
    """Empty the columns of these rows that point at what is gone, such as a baseline that was too old to be kept."""
    for field in model._meta.concrete_fields:
        if field.related_model is not None and field.null:
            there = field.related_model._default_manager.values("pk")
            rows = model._default_manager.filter(pk__in=ids, **{f"{field.attname}__isnull": False})
            rows.exclude(**{f"{field.attname}__in": there}).update(**{field.attname: None})


def purge_deleted(now: datetime) -> int:
    """Delete what has been in the trash for longer than it is kept, and finish what a stopped process left fenced,
    deletions and imports alike; returns how many collections went.

    One that is still in use waits for the next time, and holds up no other.
    """
    gone = 0
    stored.take_over()  # what was set a moment ago holds
    Collection.objects.trashed(now - timedelta(days=kept_for("trash_days"))).update(trash=None)
    for collection in Collection.objects.filter(deleted_at__lt=now - PURGE_GRACE, trash__isnull=True):
        try:
            proof = purge_collection(collection)
        except ServiceError as error:
            log.info("%s", error.message)
            continue
        with running(Operation.Kind.DELETION, collection.name) as progress:
            progress.succeed(proof)
        gone += 1
    return gone


def collection_tables() -> list[tuple[str, bool]]:
    """Every table with a column collection_id, by name, and whether that must be filled; those of chunks apart."""
    return [(str(name), bool(required)) for name, required in fetch_all(connection, TABLES)]


def chunk_tables(collection_id: int) -> list[str]:
    """The tables of the collection's index versions, whatever they hold and whether they serve or not."""
    rows = fetch_all(connection, CHUNK_TABLES, {"pattern": rf"^chunks_c{collection_id:d}_g\d+$"})
    return [str(name) for (name,) in rows]


def count_rows(collection_id: int) -> dict[str, int]:
    """What the database holds of a collection: noun -> rows, by table; chunk_tables counts tables."""
    scope = {"collection": collection_id}
    tables = chunk_tables(collection_id)
    counts = {NOUNS.get(table, table): _count(COUNT.format(table=table), scope) for table, _ in collection_tables()}
    chunks = sum(_count(COUNT_CHUNKS.format(table=table), {}) for table in tables)
    return counts | {
        "chunks": chunks,
        "chunk_tables": len(tables),
        "index_version_documents": _count(COUNT_INDEX_VERSION_DOCUMENTS, scope),
        "fetched_sources": _count(COUNT_FETCHED, scope),
        "postings": _count(COUNT_POSTINGS, scope),
    }


def _count(sql: str, params: dict[str, int]) -> int:
    ((count,),) = fetch_all(connection, sql, params)
    return int(count)
