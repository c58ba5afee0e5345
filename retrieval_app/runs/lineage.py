"""From a chunk back to the runs that retrieved it, and the documents that none has. Each run writes its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.utils import timezone

from collections_app.domain.rows import RowReader, prepared, read_statements
from collections_app.models import Collection
from ragd.store.store import execute, fetch_all
from retrieval_app.models import QueryRun

RUNS_SHOWN = 20

# A collection that is being deleted meanwhile has no lineage to keep; the run is kept all the same.
_runs_table = RowReader(QueryRun, "r")
SQL = read_statements(__file__, insert=_runs_table.insert)


USUAL_DAYS = 30
DAYS_MAX = 36_500
SHOWN = 20


@dataclass(frozen=True, slots=True)
class RetrievedBy:
    """A run that retrieved a chunk, or several of a document: then rank and chunk_index are those of the best.

    chunks: how many of the document it retrieved. revision: that of the document then; index version: of the index.
    """

    run_id: UUID
    query: str
    kind: str
    status: str
    channel: str
    created_at: datetime
    rank: int
    cited: bool
    chunks: int
    chunk_index: int
    revision: int
    index_version: int

    @property
    def label(self) -> str:
        """Search or Answer."""
        return str(QueryRun.Kind(self.kind).label)


@dataclass(frozen=True, slots=True)
class Retrievals:
    """How many runs retrieved something, how many of their answers cite it, and when the last was; None: never."""

    runs: int = 0
    cited: int = 0
    last_at: datetime | None = None


def keep_run(run: QueryRun) -> None:
    """Store a new run and what it retrieved, in one statement."""
    results = run.results if run.collection_id is not None else []
    cited = {(citation["doc_id"], citation["chunk_index"]) for citation in run.citations}
    ids = {other["name"]: int(pk) for pk, other in run.elsewhere.items()} | {"": run.collection_id}
    lineage = {
        "collection_ids": [ids.get(result.get("collection", "")) for result in results],
        "doc_ids": [result["doc_id"] for result in results],
        "indexes": [result["chunk_index"] for result in results],
        "revisions": [result["revision"] for result in results],
        "ranks": [result["rank"] for result in results],
        "cited": [(result["doc_id"], result["chunk_index"]) in cited for result in results],
    }
    own = {"id": run.pk, "created_at": run.created_at}
    execute(prepared, SQL["keep"], _runs_table.values(run) | own | lineage)
    run._state.adding, run._state.db = False, connection.alias


def runs_of_chunk(
    collection: Collection, doc_id: str, chunk_index: int, *, limit: int = RUNS_SHOWN
) -> list[RetrievedBy]:
    """The runs that retrieved this chunk, newest first, ties by id; those of earlier revisions too."""
    return _runs(collection, doc_id, chunk_index, limit)


def runs_of_document(collection: Collection, doc_id: str, *, limit: int = RUNS_SHOWN) -> list[RetrievedBy]:
    """The runs that retrieved any chunk of this document, each once, newest first, ties by id."""
    return _runs(collection, doc_id, None, limit)


def _runs(collection: Collection, doc_id: str, chunk_index: int | None, limit: int) -> list[RetrievedBy]:
    values = {"collection_id": collection.pk, "doc_id": doc_id, "chunk_index": chunk_index, "limit": limit}
    return [RetrievedBy(*row) for row in fetch_all(connection, SQL["runs"], values)]


def count_retrievals(collection: Collection, doc_id: str, chunk_index: int | None = None) -> Retrievals:
    """Of one chunk, or of a whole document."""
    values = {"collection_id": collection.pk, "doc_id": doc_id, "chunk_index": chunk_index}
    ((runs, cited, last_at),) = fetch_all(connection, SQL["tally"], values)
    return Retrievals(runs, cited, last_at)


def retrieval_counts(collection: Collection, *, since: datetime | None = None) -> dict[str, Retrievals]:
    """doc_id -> how often it was retrieved, of every document of the collection that was.

    since: only runs from that moment on. Runs that retention has removed are not counted.
    """
    rows = fetch_all(connection, SQL["counts"], {"collection_id": collection.pk, "since": since})
    return {doc_id: Retrievals(*row) for doc_id, *row in rows}


@dataclass(frozen=True, slots=True)
class Unretrieved:
    """A document that no run retrieved. A disabled one cannot be."""

    doc_id: str
    title: str
    enabled: bool
    created_at: datetime


def list_unretrieved(
    collection: Collection, days: int = USUAL_DAYS, *, after: str = "", most: int = SHOWN
) -> tuple[Sequence[Unretrieved], int]:
    """Documents that no run of the last `days` retrieved, by doc_id behind `after`; and how many there are from there.

    Of runs that retention has removed nothing is known any more.
    """
    params = {"collection": collection.pk, "since": timezone.now() - timedelta(days=days), "after": after, "most": most}
    rows = fetch_all(connection, SQL["unretrieved"], params)
    return [Unretrieved(*row[:4]) for row in rows], int(rows[0][4]) if rows else 0
