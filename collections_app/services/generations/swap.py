"""The moment in which another generation begins to serve, and what goes with the one before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import cast

from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from collections_app.access_context import system_access
from collections_app.models import Collection, Generation, GenerationDocument
from collections_app.models.jobs import ACTIVE_STATES
from collections_app.policies import policy_for
from collections_app.retention_periods import kept_for
from collections_app.services.indexing.state_changes import record_serving
from collections_app.services.indexing.stored_documents import note_all_applied
from ragd.errors import UnknownCollection
from ragd.store.generations import LOCK_COLLECTION, GenerationSpec, drop_generation, swap_generation
from ragd.store.store import execute, fetch_all
from ragd.types import SPEC_VERSION, ChunkPolicy, VectorType

log = logging.getLogger(__name__)

State = Generation.State

# Dropping a table waits for whoever reads it, and makes everybody else wait behind it.
WAIT_BRIEFLY = "SET LOCAL lock_timeout = '500ms'"

# What the generation that serves holds, from the documents, which tell of it.
NOTE_SERVED = """
INSERT INTO generation_documents
    (generation_id, doc_id, document_id, revision, enabled, chunk_count, content_hash, chunk_policy)
SELECT %(old)s, doc_id, id, revision, enabled, chunk_count, content_hash, chunk_policy
FROM documents WHERE collection_id = %(collection)s
ON CONFLICT (generation_id, doc_id) DO UPDATE
SET document_id = excluded.document_id, revision = excluded.revision, enabled = excluded.enabled,
    chunk_count = excluded.chunk_count, content_hash = excluded.content_hash, chunk_policy = excluded.chunk_policy
"""

TELL_DOCUMENTS = """
UPDATE documents d
SET chunk_count = g.chunk_count, content_hash = g.content_hash, chunk_policy = g.chunk_policy
FROM generation_documents g
WHERE g.generation_id = %(new)s AND d.id = g.document_id
  AND (d.chunk_count, d.content_hash, d.chunk_policy)
      IS DISTINCT FROM (g.chunk_count, g.content_hash, g.chunk_policy)
"""

LEFTOVERS = """
SELECT s.collection_id, s.generation
FROM chunk_stats s JOIN generations g ON g.collection_id = s.collection_id AND g.number = s.generation
WHERE g.state IN ('cancelled', 'dropped') AND NOT s.serving
ORDER BY s.collection_id, s.generation
"""


class NotSettledError(Exception):
    """Something changed while the generation was to be swapped in; catch up and try again."""


def spec_of(source: Generation | Collection) -> GenerationSpec:
    """By what a generation is built, or by what the collection is served now."""
    if isinstance(source, Generation):
        policy = ChunkPolicy.from_dict(source.policy)
    else:
        policy = policy_for(source)
    return GenerationSpec(
        source.embed_model,
        source.embed_dims,
        source.hybrid_enabled,
        source.language,
        policy,
        cast(VectorType, source.vector_type),
    )


def ensure_serving(collection: Collection) -> Generation:
    """The row of the generation that serves; made here for a collection that has none yet."""
    spec = spec_of(collection)
    values = {
        "hash": spec.hash,
        "spec_version": SPEC_VERSION,
        "embed_model": spec.embed_model,
        "embed_dims": spec.embed_dims,
        "hybrid_enabled": spec.hybrid_enabled,
        "language": spec.language,
        "vector_type": spec.vector_type,
        "chunk_policy": collection.chunk_policy,
        "policy": spec.policy.as_dict(),
        "state": State.SERVING,
        "created_at": collection.created_at,
        "swapped_at": collection.created_at,
    }
    with system_access():
        generation, _ = Generation.objects.get_or_create(
            collection_id=collection.pk, number=collection.generation, defaults=values
        )
    return generation


def redefine_serving(collection: Collection) -> None:
    """While a collection is empty its definition may change in place; the row that tells of it follows."""
    spec = spec_of(collection)
    Generation.objects.filter(collection=collection, number=collection.generation).update(
        hash=spec.hash,
        hybrid_enabled=spec.hybrid_enabled,
        language=spec.language,
        chunk_policy=collection.chunk_policy,
        policy=spec.policy.as_dict(),
    )


def swap_in(collection: Collection, generation: Generation, *, by: str, before: Callable[[], None]) -> None:
    """Let the generation serve; `before` runs when all writers of the collection wait. The caller's transaction.

    Everything heavy is done before the tables are exchanged, because whoever reads `chunks` waits from then on. The
    generation that served is retired; an earlier retired one is dropped. by: who asked for it. Raises SwapBlocked,
    UnknownCollection and what `before` raises.
    """
    rows = fetch_all(connection, LOCK_COLLECTION, {"collection_id": collection.pk})
    if not rows:
        raise UnknownCollection(f"collection {collection.name!r} was deleted", field="collection")
    before()
    if rows[0][0] == generation.number:
        return
    current = Collection.objects.get(pk=collection.pk)
    served = ensure_serving(current)
    names = {"old": served.pk, "new": generation.pk, "collection": collection.pk}
    execute(connection, NOTE_SERVED, names)
    execute(connection, TELL_DOCUMENTS, names)
    GenerationDocument.objects.filter(generation=generation).delete()
    now = timezone.now()
    stored = Generation.objects.filter(collection_id=collection.pk, state=State.RETIRED).exclude(pk=generation.pk)
    forget(stored)
    Generation.objects.filter(pk=served.pk).update(state=State.RETIRED, retired_at=now, automatic=False)
    ready = {} if generation.ready_at else {"ready_at": now}
    Generation.objects.filter(pk=generation.pk).update(
        state=State.SERVING, swapped_at=now, retired_at=None, chunks_per_s=generation.chunks_per_s, **ready
    )
    swap_generation(connection, collection.pk, generation.number, spec_of(generation))
    Collection.objects.filter(pk=collection.pk).update(chunk_policy=generation.chunk_policy)
    record_serving(collection, served.number, by)
    note_all_applied(collection.pk)


def forget(rows: Iterable[Generation]) -> int:
    """Mark generations as dropped; `drop_leftovers` removes their tables. Returns how many."""
    ids = [generation.pk for generation in rows]
    GenerationDocument.objects.filter(generation_id__in=ids).delete()
    return Generation.objects.filter(pk__in=ids).update(state=State.DROPPED, automatic=False)


def expired_retired(now: datetime, days: int) -> QuerySet[Generation]:
    """Retired generations that nobody is bringing back, older than this."""
    old = Generation.objects.filter(state=State.RETIRED, retired_at__lt=now - timedelta(days=days))
    return old.exclude(jobs__state__in=ACTIVE_STATES)


def expire_retired(now: datetime) -> int:
    """Give up retired generations that are older than they are kept; `drop_leftovers` removes their tables."""
    return forget(expired_retired(now, kept_for("index_version_days")))


def drop_leftovers() -> int:
    """Remove the tables of generations that were cancelled or dropped; one that is in use is left for the next time."""
    dropped = 0
    with system_access():
        leftovers = fetch_all(connection, LEFTOVERS)
    for collection_id, number in leftovers:
        try:
            with system_access(), transaction.atomic():
                execute(connection, WAIT_BRIEFLY)
                drop_generation(connection, collection_id, number)
            dropped += 1
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            log.info("generation %d of collection %d is still read; it is dropped later", number, collection_id)
    return dropped
