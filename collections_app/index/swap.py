"""The moment in which another index version begins to serve, and what goes with the one before.

What must hold before an index version serves: a gate of a higher floor, what it said, and a person's word over it.

Nothing is registered, or nothing is asked of a collection: every index version that is complete may serve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from collections_app.access.context import current_access, system_access
from collections_app.audit import services
from collections_app.chunks.policies import policy_for
from collections_app.collections.models import name_actor
from collections_app.collections.retention_periods import kept_for
from collections_app.documents.revisions.services import record_serving
from collections_app.documents.stored_documents import note_all_applied
from collections_app.errors import ServiceError
from collections_app.jobs.models import ACTIVE_STATES
from collections_app.models import Collection, IndexVersion, IndexVersionDocument
from ragd.errors import InvalidInput, UnknownCollection
from ragd.store.store import execute, fetch_all
from ragd.store.tables import LOCK_COLLECTION, IndexVersionSpec, drop_index_version, swap_index_version
from ragd.types import SPEC_VERSION, ChunkPolicy, VectorType

log = logging.getLogger(__name__)

State = IndexVersion.State

# Dropping a table waits for whoever reads it, and makes everybody else wait behind it.
WAIT_BRIEFLY = "SET LOCAL lock_timeout = '500ms'"

# What the index version that serves holds, from the documents, which tell of it.
NOTE_SERVED = """
INSERT INTO index_version_documents
    (index_version_id, doc_id, document_id, revision, enabled, chunk_count, content_hash, chunk_policy)
SELECT %(old)s, doc_id, id, revision, enabled, chunk_count, content_hash, chunk_policy
FROM documents WHERE collection_id = %(collection)s
ON CONFLICT (index_version_id, doc_id) DO UPDATE
SET document_id = excluded.document_id, revision = excluded.revision, enabled = excluded.enabled,
    chunk_count = excluded.chunk_count, content_hash = excluded.content_hash, chunk_policy = excluded.chunk_policy
"""

TELL_DOCUMENTS = """
UPDATE documents d
SET chunk_count = g.chunk_count, content_hash = g.content_hash, chunk_policy = g.chunk_policy
FROM index_version_documents g
WHERE g.index_version_id = %(new)s AND d.id = g.document_id
  AND (d.chunk_count, d.content_hash, d.chunk_policy)
      IS DISTINCT FROM (g.chunk_count, g.content_hash, g.chunk_policy)
"""

LEFTOVERS = """
SELECT s.collection_id, s.index_version
FROM chunk_stats s JOIN index_versions g ON g.collection_id = s.collection_id AND g.number = s.index_version
WHERE g.state IN ('cancelled', 'dropped') AND NOT s.serving
ORDER BY s.collection_id, s.index_version
"""


class NotSettledError(Exception):
    """Something changed while the index version was to be swapped in; catch up and try again."""


def spec_of(source: IndexVersion | Collection) -> IndexVersionSpec:
    """By what an index version is built, or by what the collection is served now."""
    if isinstance(source, IndexVersion):
        policy = ChunkPolicy.from_dict(source.policy)
    else:
        policy = policy_for(source)
    return IndexVersionSpec(
        source.embed_model,
        source.embed_dims,
        source.hybrid_enabled,
        source.language,
        policy,
        cast(VectorType, source.vector_type),
    )


def ensure_serving(collection: Collection) -> IndexVersion:
    """The row of the index version that serves; made here for a collection that has none yet."""
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
        index_version, _ = IndexVersion.objects.get_or_create(
            collection_id=collection.pk, number=collection.index_version, defaults=values
        )
    return index_version


def redefine_serving(collection: Collection) -> None:
    """While a collection is empty its definition may change in place; the row that tells of it follows."""
    spec = spec_of(collection)
    IndexVersion.objects.filter(collection=collection, number=collection.index_version).update(
        hash=spec.hash,
        hybrid_enabled=spec.hybrid_enabled,
        language=spec.language,
        chunk_policy=collection.chunk_policy,
        policy=spec.policy.as_dict(),
    )


def swap_in(collection: Collection, index_version: IndexVersion, *, by: str, before: Callable[[], None]) -> None:
    """Let the index version serve; `before` runs when all writers of the collection wait. The caller's transaction.

    Everything heavy is done before the tables are exchanged, because whoever reads `chunks` waits from then on. The
    index version that served is retired; an earlier retired one is dropped. by: who asked for it. Raises SwapBlocked,
    UnknownCollection and what `before` raises.
    """
    rows = fetch_all(connection, LOCK_COLLECTION, {"collection_id": collection.pk})
    if not rows:
        raise UnknownCollection(f"collection {collection.name!r} was deleted", field="collection")
    before()
    if rows[0][0] == index_version.number:
        return
    current = Collection.objects.get(pk=collection.pk)
    served = ensure_serving(current)
    names = {"old": served.pk, "new": index_version.pk, "collection": collection.pk}
    execute(connection, NOTE_SERVED, names)
    execute(connection, TELL_DOCUMENTS, names)
    IndexVersionDocument.objects.filter(index_version=index_version).delete()
    now = timezone.now()
    stored = IndexVersion.objects.filter(collection_id=collection.pk, state=State.RETIRED).exclude(pk=index_version.pk)
    forget(stored)
    IndexVersion.objects.filter(pk=served.pk).update(state=State.RETIRED, retired_at=now, automatic=False)
    ready = {} if index_version.ready_at else {"ready_at": now}
    IndexVersion.objects.filter(pk=index_version.pk).update(
        state=State.SERVING, swapped_at=now, retired_at=None, chunks_per_s=index_version.chunks_per_s, **ready
    )
    swap_index_version(connection, collection.pk, index_version.number, spec_of(index_version))
    Collection.objects.filter(pk=collection.pk).update(chunk_policy=index_version.chunk_policy)
    record_serving(collection, served.number, by)
    note_all_applied(collection.pk)


def forget(rows: Iterable[IndexVersion]) -> int:
    """Mark index versions as dropped; `drop_leftovers` removes their tables. Returns how many."""
    ids = [index_version.pk for index_version in rows]
    IndexVersionDocument.objects.filter(index_version_id__in=ids).delete()
    return IndexVersion.objects.filter(pk__in=ids).update(state=State.DROPPED, automatic=False)


def expired_retired(now: datetime, days: int) -> QuerySet[IndexVersion]:
    """Retired index versions that nobody is bringing back, older than this."""
    old = IndexVersion.objects.filter(state=State.RETIRED, retired_at__lt=now - timedelta(days=days))
    return old.exclude(jobs__state__in=ACTIVE_STATES)


def expire_retired(now: datetime) -> int:
    """Give up retired index versions that are older than they are kept; `drop_leftovers` removes their tables."""
    return forget(expired_retired(now, kept_for("index_version_days")))


def drop_leftovers() -> int:
    """Remove the tables of index versions that were cancelled or dropped; one that is in use is left for the next
    time."""
    dropped = 0
    with system_access():
        leftovers = fetch_all(connection, LEFTOVERS)
    for collection_id, number in leftovers:
        try:
            with system_access(), transaction.atomic():
                execute(connection, WAIT_BRIEFLY)
                drop_index_version(connection, collection_id, number)
            dropped += 1
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            log.info("index version %d of collection %d is still read; it is dropped later", number, collection_id)
    return dropped


HIDDEN = "SELECT name FROM unnest(%(doc_ids)s::text[]) AS name WHERE ragd_hides(%(collection)s, ARRAY[name])"
GateState = IndexVersion.GateState
CLEARED: Mapping[str, Any] = {"gate_state": "", "gate_report": {}, "gate_reason": "", "gate_by": "", "gate_at": None}
REASON_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an index version may serve. report: plain JSON, what was compared; its "reason" says it in a sentence."""

    passed: bool
    report: Mapping[str, Any] = field(default_factory=dict)


Gate = Callable[[Collection, IndexVersion, Callable[[], object]], Verdict | None]

_GATES: dict[str, Gate] = {}


def register_gate(name: str, gate: Gate) -> None:
    """Ask this gate from now on; a second one of the same name takes the first one's place.

    gate(collection, index_version, alive): None where nothing is asked of the collection. It changes nothing, calls
    `alive` now and then, whose error ends it, and is asked outside any transaction while the index version is complete
    but for the last few changes.
    """
    _GATES[name] = gate


def may_serve(collection: Collection, index_version: IndexVersion, alive: Callable[[], object]) -> bool:
    """Ask the gates, and keep what they say with the index version. One that a person let pass is not asked again."""
    if index_version.gate_state == GateState.OVERRULED:
        return True
    result = [verdict for gate in _GATES.values() if (verdict := gate(collection, index_version, alive)) is not None]
    if not result:
        _note(index_version, **CLEARED)
        return True
    verdict = next((each for each in result if not each.passed), result[0])
    state = GateState.PASSED if verdict.passed else GateState.HELD
    _note(index_version, **{**CLEARED, "gate_state": state, "gate_report": dict(verdict.report)})
    return verdict.passed


def read_report(index_version: IndexVersion) -> dict[str, Any]:
    """`gate_report` without the questions of documents that whoever asks may not read."""
    report: dict[str, Any] = index_version.gate_report
    changed = report.get("changed", [])
    if not changed or current_access().unbound:
        return report
    doc_ids = [name for each in changed for name in each["documents"]]
    values = {"collection": index_version.collection_id, "doc_ids": doc_ids}
    hidden = {name for (name,) in fetch_all(connection, HIDDEN, values)}
    return report | {"changed": [each for each in changed if hidden.isdisjoint(each["documents"])]}


def request_again(index_version: IndexVersion) -> None:
    """What was said of it no longer counts: it has served since, or documents have gone on."""
    _note(index_version, **CLEARED)


def note_overruled(index_version: IndexVersion, reason: str, actor: services.Actor) -> None:
    """Keep that a person lets a held index version serve, and why. The caller's transaction, which locked the row.

    Raises InvalidInput without a reason, ServiceError 409 for one that is not held.
    """
    message = " ".join(reason.split())
    if not message:
        raise InvalidInput("give a reason to override the quality gate", field="reason")
    if len(message) > REASON_CHARS_MAX:
        raise InvalidInput(f"reason has {len(message)} characters; at most {REASON_CHARS_MAX}", field="reason")
    if index_version.gate_state != GateState.HELD:
        raise ServiceError(f"no gate holds index version {index_version.number}; activate it instead")
    _note(
        index_version,
        gate_state=GateState.OVERRULED,
        gate_reason=message,
        gate_by=name_actor(actor),
        gate_at=timezone.now(),
    )


def _note(index_version: IndexVersion, **values: Any) -> None:
    if all(getattr(index_version, name) == value for name, value in values.items()):
        return
    IndexVersion.objects.filter(pk=index_version.pk).update(**values)
    for name, value in values.items():
        setattr(index_version, name, value)
