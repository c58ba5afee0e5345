"""What is put right every few seconds: lost jobs, half-deleted collections, missing indexes, leftovers."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from collections_app.access.limits import forget_counts
from collections_app.advisory_locks import LockSpace, session_lock, whole
from collections_app.collections.deletion import purge_deleted
from collections_app.documents.files import drop_unused_recognition
from collections_app.index.embedding_checkpoints import drop_orphaned_checkpoints
from collections_app.index.measurements import submit_due_measurements
from collections_app.index.past_indexes import drop_past_indexes
from collections_app.index.stores import open_store
from collections_app.index.swap import drop_leftovers
from collections_app.jobs.leases import database_now
from collections_app.jobs.operations import requeue_operations
from collections_app.jobs.queue import submit_index_build
from collections_app.jobs.recovery import resend_lost_jobs, settle_index_versions, wake_fetches, wake_waiting_jobs
from collections_app.jobs.workers import forget_workers
from collections_app.models import (
    Collection,
    Document,
    IdempotencyRecord,
    IndexVersion,
    IngestBatch,
    IngestJob,
    Status,
    Upload,
)
from collections_app.sources.sync import start_syncs
from collections_app.sources.web_client import forget_hosts
from ragd.store import postings
from ragd.store.postings import POSTINGS_MIN

log = logging.getLogger(__name__)

MAINTENANCE_REPORT = "maintenance"
QUIET_FOR = timedelta(seconds=20)
IDEMPOTENCY_KEPT = timedelta(days=1)
ORPHAN_KEPT = timedelta(days=7)
ABANDONED_AFTER = timedelta(hours=6)
SESSION_LOST = timedelta(hours=1)

# Above the threshold, without a valid index on the embeddings.
UNINDEXED = """
SELECT c.id, s.chunk_count
FROM collections c
JOIN chunk_stats s ON s.collection_id = c.id AND s.index_version = c.index_version
WHERE c.deleted_at IS NULL AND s.chunk_count > %(threshold)s
  AND NOT EXISTS (
      SELECT 1 FROM pg_index i
      WHERE i.indexrelid = to_regclass('chunks_c' || c.id || '_g' || c.index_version || '_embedding') AND i.indisvalid)
ORDER BY c.id
"""

# Those on nodes get theirs with the next write: a node may be away.
UNPACKED = """
SELECT c.id
FROM collections c
JOIN chunk_stats s ON s.collection_id = c.id AND s.index_version = c.index_version
WHERE c.deleted_at IS NULL AND c.hybrid_enabled AND s.placement = 'local' AND s.chunk_count >= %(least)s
  AND NOT EXISTS (SELECT 1 FROM chunk_segments g WHERE g.collection_id = c.id AND g.index_version = c.index_version)
ORDER BY c.id
"""


def maintain() -> dict[str, int]:
    """Put everything right that is due; returns what was done. Of two calls at the same time one does nothing."""
    with session_lock(whole(LockSpace.MAINTENANCE)) as is_held:
        if not is_held:
            return {}
        now = database_now()
        done = resend_lost_jobs(now) | {
            "woken": wake_waiting_jobs(now) + wake_fetches(now),
            "operations": requeue_operations(now),
            "sources": start_syncs(now),
            "purged": purge_deleted(now),
            "index_builds": build_missing_indexes(now),
            "postings": build_missing_postings(now),
            "measurements": submit_due_measurements(),
            "index_versions": tidy_index_versions(),
            "past_indexes": drop_past_indexes(now),
            "uploads": drop_orphan_uploads(now),
            "batches": close_abandoned_batches(now),
            "kept_vectors": drop_orphaned_checkpoints(now),
            "recognized_pages": drop_unused_recognition(),
            "idempotency": IdempotencyRecord.objects.filter(created_at__lt=now - IDEMPOTENCY_KEPT).delete()[0],
            "workers": forget_workers(now),
            "hosts": forget_hosts(now),
            "counts": forget_counts(now),
            "sessions": forget_sessions(now),
        }
    Status.objects.keep(Status.Kind.RESULT, MAINTENANCE_REPORT, done)
    if any(done.values()):
        log.info("maintenance: %s", ", ".join(f"{name} {count}" for name, count in done.items() if count))
    return done


def build_missing_indexes(now: datetime) -> int:
    """Queue the build of a vector index where there are enough chunks and the load has paused.

    An index that exists makes every further insert slower, so a bulk load is waited for, up to twice the threshold.
    """
    threshold = settings.RAGD_EXACT_THRESHOLD
    with connection.cursor() as cursor:
        cursor.execute(UNINDEXED, {"threshold": threshold})
        rows = cursor.fetchall()
    queued = 0
    for collection_id, chunk_count in rows:
        if (chunk_count > 2 * threshold or not _is_loading(collection_id, now)) and submit_index_build(
            Collection.objects.get(pk=collection_id)
        ):
            queued += 1
    return queued


def build_missing_postings(now: datetime) -> int:
    """Pack the words of the first collection that has enough chunks and none packed; returns how many segments."""
    with connection.cursor() as cursor:
        cursor.execute(UNPACKED, {"least": POSTINGS_MIN})
        rows = cursor.fetchall()
    for (collection_id,) in rows:
        if _is_loading(collection_id, now):
            continue
        with transaction.atomic():
            made = postings.build_missing_postings(open_store(Collection.objects.get(pk=collection_id)))
        if made:
            return made
    return 0


def _is_loading(collection_id: int, now: datetime) -> bool:
    loads = IngestJob.objects.active().exclude(kind=IngestJob.Kind.INDEX_VERSION)
    if loads.filter(collection_id=collection_id).exists():
        return True
    return Document.objects.filter(collection_id=collection_id, updated_at__gt=now - QUIET_FOR).exists()


def tidy_index_versions() -> int:
    """End what lost its job, and remove what nobody needs; returns tables gone."""
    for collection_id in IndexVersion.objects.filter(state="building").values_list("collection_id", flat=True):
        settle_index_versions(collection_id)
    return drop_leftovers()


def close_abandoned_batches(now: datetime) -> int:
    """Close batches whose client went away: nothing of them is under way, and nothing came for hours."""
    since = now - ABANDONED_AFTER
    jobs = IngestJob.objects.filter(batch=OuterRef("pk"))
    left = IngestBatch.objects.filter(open=True, created_at__lt=since)
    return left.exclude(Exists(jobs.active())).exclude(Exists(jobs.filter(created_at__gte=since))).update(open=False)


def drop_orphan_uploads(now: datetime) -> int:
    """Remove files a week old that are no document's source and that no job needs; what is quarantined is kept."""
    needed = IngestJob.objects.filter(upload=OuterRef("pk"), state__in=("queued", "running", "quarantined"))
    made_of_it = Document.objects.filter(
        collection_id=OuterRef("collection_id"), doc_id=OuterRef("doc_id"), source_hash=OuterRef("sha256")
    )
    old = Upload.objects.filter(~Exists(needed), ~Exists(made_of_it), created_at__lt=now - ORPHAN_KEPT)
    gone = 0
    for pk in list(old.values_list("pk", flat=True)):
        gone += Upload.objects.filter(~Exists(needed), ~Exists(made_of_it), pk=pk).delete()[0]
    return gone


def forget_sessions(now: datetime) -> int:
    """Remove sessions that expired, and what is known of the log-ins of sessions that are gone."""
    gone: int = Session.objects.filter(expire_date__lt=now).delete()[0]
    alive = Session.objects.filter(session_key=OuterRef("session_key"))
    # its row may come before that of the session
    gone += UserSession.objects.filter(~Exists(alive), last_seen_at__lt=now - SESSION_LOST).delete()[0]
    return gone
