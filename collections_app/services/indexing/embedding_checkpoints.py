"""Where the vectors of a large document wait until it is stored: with its job in the database, or in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import psycopg
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from collections_app.models import EmbeddedBatch, IngestJob
from collections_app.models.querysets import ACTIVE_STATES
from ragd.store.store import execute

Floats = npt.NDArray[np.float32]

FAILED_KEPT = timedelta(days=1)
STORED_AS = np.dtype("<f4")

KEEP = """
INSERT INTO embedded_batches (collection_id, job, first, size, digest, vectors, made_at)
VALUES (%(collection_id)s, %(job)s, %(first)s, %(size)s, %(digest)s, %(vectors)b, now())
ON CONFLICT (job, first) DO UPDATE
SET collection_id = excluded.collection_id, size = excluded.size, digest = excluded.digest, vectors = excluded.vectors,
    made_at = excluded.made_at
"""

READ = "SELECT size, vectors FROM embedded_batches WHERE job = %(job)s AND first = %(first)s"
DROP = "DELETE FROM embedded_batches WHERE job = %(job)s"


class Holding(Protocol):
    """The run of a job; both raise when the job is no longer this run's."""

    def hold(self, *, forgive: bool = False) -> None: ...
    def check(self) -> None: ...


class EmbeddingCheckpoints(Protocol):
    """The vectors of consecutive batches of chunks; `first` is the chunk_index of a batch's first."""

    def find(self) -> dict[int, str]:
        """first -> digest of what is there already."""

    def keep(self, first: int, digest: str, vectors: Floats) -> None:
        """Keep a batch for good. vectors: [chunks, dimensions]."""

    def read(self, first: int) -> Floats:
        """A batch that was kept, [chunks, dimensions]."""

    def check(self) -> None:
        """Raise when the work is no longer wanted."""

    def drop(self) -> None:
        """Forget everything, inside the transaction that stores the document."""


class JobCheckpoints:
    """Kept with a job: another attempt finds them, also after this process or the database was killed."""

    def __init__(self, job: IngestJob, progress: Holding) -> None:
        self._collection_id, self._job, self._progress = job.collection_id, job.pk, progress

    def find(self) -> dict[int, str]:
        return dict(EmbeddedBatch.objects.filter(job=self._job).values_list("first", "digest"))

    def keep(self, first: int, digest: str, vectors: Floats) -> None:
        """One transaction, which also says that the job got on: the attempts before this one are forgiven."""
        values = {
            "collection_id": self._collection_id,
            "job": self._job,
            "first": first,
            "size": len(vectors),
            "digest": digest,
            "vectors": np.ascontiguousarray(vectors, STORED_AS).tobytes(),
        }
        with transaction.atomic():
            self._progress.hold(forgive=True)
            with _binary_cursor() as cursor:
                cursor.execute(KEEP, values)

    def read(self, first: int) -> Floats:
        with _binary_cursor() as cursor:
            row = cursor.execute(READ, {"job": self._job, "first": first}, binary=True).fetchone()
        if row is None:
            raise LookupError(f"the vectors of the chunks from {first} of job {self._job} are gone; run the job again")
        size, vectors = row
        return np.frombuffer(vectors, STORED_AS).reshape(size, -1).astype(np.float32, copy=False)

    def check(self) -> None:
        self._progress.check()

    def drop(self) -> None:
        execute(connection, DROP, {"job": self._job})


class SpooledCheckpoints:
    """Kept in a file without a name, for an ingest that its caller waits for; it goes with this object."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this object)
        self._places: dict[int, tuple[str, int, tuple[int, ...]]] = {}

    def find(self) -> dict[int, str]:
        return {first: digest for first, (digest, _, _) in self._places.items()}

    def keep(self, first: int, digest: str, vectors: Floats) -> None:
        self._places[first] = (digest, self._file.seek(0, 2), vectors.shape)
        self._file.write(np.ascontiguousarray(vectors, STORED_AS).tobytes())

    def read(self, first: int) -> Floats:
        _, place, shape = self._places[first]
        self._file.seek(place)
        size = STORED_AS.itemsize * int(np.prod(shape))
        return np.frombuffer(self._file.read(size), STORED_AS).reshape(shape).astype(np.float32, copy=False)

    def check(self) -> None: ...

    def drop(self) -> None:
        self._file.truncate(0)
        self._places.clear()


def drop_orphaned_checkpoints(now: datetime) -> int:
    """Remove what no job needs: it is gone, was cancelled, or failed a day ago; returns how many batches went.

    What a job that failed has embedded is kept that long, so that a retry goes on where it stopped.
    """
    under_way = Q(state__in=ACTIVE_STATES)
    failed = Q(state=IngestJob.State.FAILED, finished_at__gt=now - FAILED_KEPT)
    needed = IngestJob.objects.filter(under_way | failed, pk=OuterRef("job"))
    return EmbeddedBatch.objects.filter(~Exists(needed))._raw_delete("default")


@contextmanager
def _binary_cursor() -> Iterator[psycopg.Cursor[Any]]:
    """Binds on the server and in binary: in the statement's text vectors would take several times their size."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        yield cursor
