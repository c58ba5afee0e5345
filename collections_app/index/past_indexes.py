"""Search a collection as of a time: a detached table in which every chunk stands as it stood then.

The table is that of the index version of then, copied, with the documents that have changed since put back. It has the
shape and the statistics of any index version, so the library ranks in it as it ranked then. Equal states share a table;
few are kept, and not for long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import OperationalError, ProgrammingError, connection, transaction
from django.utils import timezone
from psycopg.errors import LockNotAvailable, UndefinedTable

from collections_app.access.context import Access, current_access, elevated, system_access
from collections_app.access.document_access import hidden_from
from collections_app.access.permissions import Permission
from collections_app.advisory_locks import LockSpace, lock, named
from collections_app.documents.revisions.past_states import (
    BaseDocument,
    PastState,
    Unrestorable,
    not_restorable,
    past_chunks,
    read_past_state,
)
from collections_app.errors import ServiceError
from collections_app.index.embedding_checkpoints import EmbeddedChunks, KnownVectors
from collections_app.index.services import open_version
from collections_app.index.stores import embedder_for, open_store, reading
from collections_app.index.swap import WAIT_BRIEFLY, ensure_serving, spec_of
from collections_app.models import Collection, Document, IndexVersion, IndexVersionDocument, PastIndex
from ragd import telemetry
from ragd.errors import IndexVersionChanged
from ragd.store.indexing import index_stream
from ragd.store.postings import POSTINGS_MIN, build_postings, refresh_weights
from ragd.store.store import REBAKE_LIMIT, Store, execute, fetch_all, partition_name
from ragd.store.tables import LOCK_COLLECTION, PAST_FIRST, create_index_version, drop_index_version
from ragd.types import Chunk

log = logging.getLogger(__name__)

KEPT = 4  # tables per collection
KEPT_FOR = timedelta(hours=12)
ATTEMPTS = 3  # to copy while nobody has changed the collection since its chunks were prepared

Found = TypeVar("Found")

COLUMNS = """id, collection_id, doc_id, chunk_index, content, start_char, end_char, context, tags, metadata, attributes,
    token_count, revision, enabled, switched_off, embedding, fts, lexical, tokens, created_at"""

COPY_CHUNKS = "INSERT INTO {past} ({columns}) SELECT {columns} FROM {base} WHERE doc_id <> ALL(%(left_out)s)"

# documents of then may be deleted by now
DROP_TRIGGER = "DROP TRIGGER {past}_document ON {past}"

RECOUNT = "SELECT ragd_recount(%(collection_id)s, %(index_version)s)"

# as long as nothing is counted anew, the weights are those of the table that was copied
SET_LENGTH = """
UPDATE chunk_stats s SET length_baked = base.length_baked FROM chunk_stats base
WHERE s.collection_id = %(collection_id)s AND s.index_version = %(index_version)s
  AND base.collection_id = s.collection_id AND base.index_version = %(base)s
"""

# of documents that are gone by now, too
SET_ACCESS = """
UPDATE {past} c SET access = a.access FROM document_access a
WHERE a.collection_id = c.collection_id AND a.doc_id = c.doc_id
"""

SET_ENABLED = "UPDATE {past} SET enabled = %(enabled)s AND NOT switched_off WHERE doc_id = ANY(%(doc_ids)s)"


@dataclass(frozen=True, slots=True)
class AsOf:
    """What a search of the past was of. notes: what is not surely as it was then."""

    at: datetime
    index_version: int
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return {"as_of": self.at.isoformat(), "index_version": self.index_version, "as_of_notes": list(self.notes)}


class _Moved(Exception):
    """The collection was changed while the chunks of then were prepared."""


def read_as_of(collection: Collection, at: datetime, read: Callable[[Store], Found]) -> tuple[AsOf, Found]:
    """read(store) in a transaction, over the collection as it was at `at`, changes of that very moment included.

    The store's embedder is that of the index version of then; rerankers are those of now. Vector search is exact.
    Raises what `read_past_state` raises, ServiceError 409 "not_restorable" where chunks or the index version of then
    are not kept, EmbedderError, and what `read` raises.
    """
    return read_state(collection, read_whole_state(collection, at), read)


def read_whole_state(collection: Collection, at: datetime) -> PastState:
    """`read_past_state` with the documents that who asks may not read: one table serves everybody, row by row."""
    asker = current_access()
    with elevated(Permission.READ, collection.pk):
        return read_past_state(collection, at, asker=asker)


def read_state(collection: Collection, state: PastState, read: Callable[[Store], Found]) -> tuple[AsOf, Found]:
    """`read_as_of` for a state that was read before, or put together of two by `PastState.mixed`."""
    at = state.at
    with system_access():
        is_now = is_present(collection, state)
    if is_now:
        with reading():
            return AsOf(at, state.index_version), read(open_store(collection))
    try:
        return _read(collection, state, read)
    except (IndexVersionChanged, ProgrammingError) as error:  # dropped between opening and reading
        if isinstance(error, ProgrammingError) and not isinstance(error.__cause__, UndefinedTable):
            raise
        return _read(collection, state, read)


def is_present(collection: Collection, state: PastState) -> bool:
    """Whether nothing that is searched has changed since."""
    with elevated(Permission.READ, collection.pk):
        rows = Document.objects.filter(collection=collection).values_list("doc_id", "pk", "revision", "enabled")
        now = {doc_id: (pk, revision, enabled) for doc_id, pk, revision, enabled in rows}
    then = {name: (each.pk, each.revision, each.enabled) for name, each in state.documents.items()}
    return state.index_version == collection.index_version and now == then


def _read(collection: Collection, state: PastState, read: Callable[[Store], Found]) -> tuple[AsOf, Found]:
    asker = current_access()
    with elevated(Permission.READ, collection.pk):
        past = find_past_index(collection, state) or _make(collection, state, asker)
    with transaction.atomic():
        return AsOf(state.at, state.index_version, _notes(past)), read(open_past(collection, past))


def _notes(past: PastIndex) -> tuple[str, ...]:
    notes = []
    if past.embedded:
        notes.append(f"{past.embedded} chunks were embedded again; their vectors of then are not kept")
    if past.chunk_count > REBAKE_LIMIT:
        notes.append("the mean chunk length of then is that of the index version; keyword scores may differ slightly")
    if past.chunk_count > settings.RAGD_EXACT_THRESHOLD:
        notes.append("every vector was compared; a vector index may have been used then")
    return tuple(notes)


def find_past_index(collection: Collection, state: PastState) -> PastIndex | None:
    past = PastIndex.objects.filter(collection=collection, state_hash=state.hash).first()
    if past is not None:
        PastIndex.objects.filter(pk=past.pk).update(used_at=timezone.now())
    return past


def open_past(collection: Collection, past: PastIndex) -> Store:
    """The store of a past state, to be searched."""
    return open_version(collection, _index_version(collection, past.index_version), PAST_FIRST + past.pk)


def _index_version(collection: Collection, number: int) -> IndexVersion:
    current = Collection.objects.get(pk=collection.pk)
    if number == current.index_version:
        return ensure_serving(current)
    return IndexVersion.objects.get(collection_id=collection.pk, number=number)


def _make(collection: Collection, state: PastState, asker: Access) -> PastIndex:
    drop_past_indexes(timezone.now(), collection, room=1)
    maker = _Maker(collection, state, asker)
    for attempt in range(1, ATTEMPTS + 1):
        maker.prepare()
        try:
            return maker.store(patient=attempt == ATTEMPTS)
        except _Moved:
            log.info("%s changed while its state of %s was prepared", collection.name, state.at)
    raise AssertionError("the last attempt prepares while writers wait")


class _Maker:
    """One past state on its way into a table."""

    def __init__(self, collection: Collection, state: PastState, asker: Access) -> None:
        self.collection, self.state, self.asker = collection, state, asker
        self.index_version = _index_version(collection, state.index_version)
        self.table = partition_name(collection.pk, state.index_version)
        self.prepared: dict[str, Sequence[Chunk]] = {}
        self.embedded = 0

    def base(self) -> dict[str, BaseDocument]:
        """What the table of the index version of then holds now. ServiceError 409 where it is kept no longer."""
        self.index_version = _index_version(self.collection, self.state.index_version)
        if self.index_version.state == IndexVersion.State.SERVING:
            rows = Document.objects.filter(collection=self.collection)
            values: Any = rows.values_list("doc_id", "pk", "revision", "enabled", "chunk_policy")
        elif self.index_version.state == IndexVersion.State.RETIRED:
            notes = IndexVersionDocument.objects.filter(index_version=self.index_version)
            values = notes.values_list("doc_id", "document_id", "revision", "enabled", "chunk_policy")
        else:
            raise ServiceError(
                f"the collection as of {self.state.at.isoformat()} cannot be restored: index version "
                f"{self.state.index_version} was active then, and it was deleted. Choose a later time",
                type="not_restorable",
                field="as_of",
            )
        return {doc_id: BaseDocument(*rest) for doc_id, *rest in values}

    def changed(self, base: Mapping[str, BaseDocument]) -> list[str]:
        """Documents of then that the table does not hold in that state."""
        return [
            name
            for name, each in self.state.documents.items()
            if name not in base or (base[name].pk, base[name].revision) != (each.pk, each.revision)
        ]

    def prepare(self) -> None:
        """Cut and embed what has changed since, as far as that is not done."""
        base = self.base()
        lacking = [name for name in self.changed(base) if name not in self.prepared]
        chunks: dict[str, list[Chunk]] = {}
        reasons: dict[str, str] = {}
        for name in lacking:
            document = self.state.documents[name]
            try:
                chunks[name] = past_chunks(self.collection, document, self.table, base.get(name), self.state.swapped_at)
            except Unrestorable as error:
                reasons[name] = str(error)
        if reasons:
            hidden = hidden_from(self.asker, self.collection, reasons)
            raise not_restorable(self.state.at, reasons, hidden=hidden)
        self._embed(chunks)

    def _embed(self, documents: Mapping[str, Sequence[Chunk]]) -> None:
        """With vectors: of a text that any table under the same model holds of the document, else made anew."""
        past = PastIndex.objects.filter(collection=self.collection, index_version=self.state.index_version)
        tables = [partition_name(self.collection.pk, PAST_FIRST + pk) for pk in past.values_list("pk", flat=True)]
        current = Collection.objects.get(pk=self.collection.pk)
        if spec_of(self.index_version).shares_vectors(spec_of(current)):
            tables.append(partition_name(current.pk, current.index_version))
        tables.append(self.table)
        known = KnownVectors(self.collection.pk, list(documents), tables)
        embedder = embedder_for(self.index_version.embed_model, self.index_version.embed_dims)
        for name, chunks in documents.items():
            self.embedded += sum(chunk not in known for chunk in chunks)
            made = EmbeddedChunks(chunks)
            made.embed(embedder, known, batch_size=settings.RAGD_EMBED_BATCH_SIZE, advance=lambda done: None)
            self.prepared[name] = list(made)

    @transaction.atomic
    def store(self, *, patient: bool) -> PastIndex:
        """Copy the table and put back what has changed, while writers of the collection wait.

        Raises _Moved where something changed that is not prepared; `patient` prepares it here.
        """
        lock(named(int(LockSpace.PAST_INDEX), f"{self.collection.pk}:{self.state.hash}"))
        if (other := find_past_index(self.collection, self.state)) is not None:
            return other
        fetch_all(connection, LOCK_COLLECTION, {"collection_id": self.collection.pk})
        if patient:
            self.prepare()
        base = self.base()
        changed = self.changed(base)
        if any(name not in self.prepared for name in changed):
            raise _Moved
        past = PastIndex.objects.create(
            collection=self.collection, state_hash=self.state.hash, index_version=self.state.index_version
        )
        store = self._copy(past, base, changed)
        past.chunk_count, past.embedded = store.state().chunk_count, self.embedded
        past.save(update_fields=["chunk_count", "embedded"])
        return past

    def _copy(self, past: PastIndex, base: Mapping[str, BaseDocument], changed: Sequence[str]) -> Store:
        dims = self.index_version.embed_dims
        number = create_index_version(connection, self.collection.pk, dims, PAST_FIRST + past.pk, "local")
        store = open_past(self.collection, past)
        names = {"past": store.collection.partition, "base": self.table}
        execute(connection, DROP_TRIGGER.format(**names))
        left_out = {*changed, *(name for name in base if name not in self.state.documents)}
        execute(connection, COPY_CHUNKS.format(columns=COLUMNS, **names), {"left_out": list(left_out)})
        scope = {"collection_id": self.collection.pk, "index_version": number, "base": self.state.index_version}
        execute(connection, SET_ACCESS.format(**names))
        fetch_all(connection, RECOUNT, scope)
        execute(connection, SET_LENGTH, scope)
        for enabled in (True, False):
            flipped = [
                name
                for name, each in self.state.documents.items()
                if name not in left_out and each.enabled is enabled and base[name].enabled is not enabled
            ]
            if flipped:
                params = {"enabled": enabled, "doc_ids": flipped}
                execute(connection, SET_ENABLED.format(**names), params)
        self._put_back(store, changed)
        execute(connection, f"ANALYZE {names['past']}")
        return store

    def _put_back(self, store: Store, changed: Sequence[str]) -> None:
        states = self.state.documents
        store.document_states = {name: (states[name].revision, states[name].enabled) for name in changed}
        with telemetry.silenced():
            index_stream((chunk for name in sorted(changed) for chunk in self.prepared[name]), store)
        count = store.state().chunk_count
        if count <= REBAKE_LIMIT:
            refresh_weights(store)
        if count >= POSTINGS_MIN and store.collection.hybrid_enabled:
            build_postings(store)


def drop_past_indexes(now: datetime, collection: Collection | None = None, *, room: int = 0) -> int:
    """Remove tables that were not used for KEPT_FOR, and the least recently used above KEPT per collection.

    room: for how many more there shall be room. One that is being read is left for the next time. Returns how many.
    """
    rows = PastIndex.objects.order_by("collection_id", "-used_at", "-pk")
    if collection is not None:
        rows = rows.filter(collection=collection)
    dropped, counts = 0, dict.fromkeys(rows.values_list("collection_id", flat=True), 0)
    for past in rows:
        counts[past.collection_id] += 1
        if counts[past.collection_id] > KEPT - room or past.used_at < now - KEPT_FOR:
            dropped += _drop(past)
    return dropped


def _drop(past: PastIndex) -> bool:
    try:
        with transaction.atomic():
            execute(connection, WAIT_BRIEFLY)
            drop_index_version(connection, past.collection_id, PAST_FIRST + past.pk)
            past.delete()
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        return False
    return True
