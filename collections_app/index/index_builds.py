"""The build of a vector index by a worker: watched, cancelled with its job, done once however many begin it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, InterfaceError, OperationalError, connection

import ragd
from collections_app.advisory_locks import index_version, release_session_lock, try_session_lock
from collections_app.index.measurements import submit_measurement
from collections_app.index.stores import open_store
from collections_app.jobs.attempts import IngestOutcome, JobProgress
from collections_app.jobs.leases import LeaseLostError
from collections_app.models import Collection, IngestJob
from ragd.store.index_versions import sqlstate
from ragd.store.placement import build_progress
from ragd.store.store import CollectionInfo, fetch_all, partition_name

log = logging.getLogger(__name__)

WATCH_EVERY_S = 1.0
QUERY_CANCELED = "57014"

SELECT_PID = "SELECT pg_backend_pid()"
CANCEL = "SELECT pg_cancel_backend(%(pid)s)"


def run_index_build(collection: Collection, job: IngestJob, progress: JobProgress) -> None:
    """The job: the index of the index version that serves; what it finds again is measured afterwards."""
    progress.enter(IngestJob.Stage.STORE)
    build_index(open_store(collection), progress)
    progress.finish(IngestOutcome(0, 0, False, 0))
    submit_measurement(collection, created_by="the index build")


def build_index(store: ragd.Store, progress: JobProgress) -> bool:
    """Build the vector index of the store's index version unless there is one; returns whether this call built it.

    Reads and writes go on meanwhile. Of two workers the second waits for the first, also for the statement of one that
    was killed, which the database finishes or gives up by itself; a broken index that is left is built anew. Raises
    LeaseLostError when the job is cancelled; the build then ends within seconds.
    """
    if connection.in_atomic_block:
        return store.build_vector_index()
    # the session that builds holds it until its statement has ended, also when its worker was killed meanwhile
    key = index_version(store.scope["collection_id"], store.scope["index_version"])
    while not try_session_lock(key):
        progress.hold()
        time.sleep(WATCH_EVERY_S)
    ((pid,),) = fetch_all(connection, SELECT_PID, {})
    try:
        with _watched(store.collection, pid, progress):
            return store.build_vector_index(concurrently=True)
    except OperationalError as error:
        if sqlstate(error) == QUERY_CANCELED:
            progress.hold()  # LeaseLostError when it was cancelled through its job
        raise
    finally:
        try:
            release_session_lock(key)
        except (DatabaseError, InterfaceError):
            log.warning("the lock on the build of %s ends with its session", store.collection.partition)


@contextmanager
def _watched(info: CollectionInfo, pid: int, progress: JobProgress) -> Iterator[None]:
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(info, pid, progress.job, stop), daemon=True, name="ragd-index")
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _watch(info: CollectionInfo, pid: int, job: IngestJob, stop: threading.Event) -> None:
    """Write how far the build is to the job, and end it when the job is no longer this run's."""
    while not stop.wait(WATCH_EVERY_S):
        try:
            mine = IngestJob.objects.filter(pk=job.pk, state=IngestJob.State.RUNNING, attempts=job.attempts)
            _, done, total = build_progress(connection, info.id, info.partition) or ("", 0, 0)
            if not mine.update(chunks_done=_small(done), chunks_total=_small(total)):
                fetch_all(connection, CANCEL, {"pid": pid})
                return
        except (DatabaseError, InterfaceError) as error:
            log.warning("the build of %s could not be watched: %s", info.partition, error)
        finally:
            connection.close()


def _small(count: int) -> int:
    return min(count, 2**31 - 1)


def index_progress(collection: Collection, number: int) -> tuple[str, int] | None:
    """(phase, percent) of the index that is being built now for that index version, or None."""
    result = build_progress(connection, collection.pk, partition_name(collection.pk, number))
    if result is None:
        return None
    phase, done, total = result
    return phase, min(100, 100 * done // total) if total else 0


__all__ = ["LeaseLostError", "build_index", "index_progress"]
