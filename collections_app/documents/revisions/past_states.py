"""Read which documents a collection had at a time, and their chunks.

The state at a time is read from revisions, recorded changes and the documents that are there: in which revision each
was, enabled or not, and which index version was active. Nothing is guessed: what cannot be told, because it is kept no
longer, is refused by name. The chunks of a revision are cut again by its policy and compared with the places kept.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from collections_app.access.context import Access, current_access
from collections_app.access.document_access import hidden_from
from collections_app.chunks.overlays import ADD, EDIT, MARK
from collections_app.documents.services import draft_of
from collections_app.errors import ServiceError
from collections_app.index.ingestion import chunk_draft
from collections_app.models import Collection, Document, DocumentRevision, StateChange
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.store.store import fetch_all
from ragd.types import Chunk, ChunkPolicy, canonical_json

Kind = StateChange.Kind
SWITCHES = (Kind.ENABLED, Kind.DISABLED, Kind.ARCHIVED, Kind.UNARCHIVED)
NAMED_MAX = 5  # documents that a refusal names

# Of each document: the first revision that was replaced later, and whether the one before it is kept.
REPLACED_LATER = """
SELECT r.doc_id, r.revision, r.made_at <= %(at)s OR r.revision = 1 OR EXISTS (
           SELECT FROM document_revisions e
           WHERE e.collection_id = r.collection_id AND e.doc_id = r.doc_id AND e.revision = r.revision - 1)
FROM (SELECT DISTINCT ON (doc_id) * FROM document_revisions
      WHERE collection_id = %(collection)s AND replaced_at > %(at)s ORDER BY doc_id, revision) AS r
"""

# A present revision that began before: the one that it replaced was replaced by then.
BEGAN_BEFORE = """
SELECT d.doc_id FROM documents d JOIN document_revisions e
  ON e.collection_id = d.collection_id AND e.doc_id = d.doc_id AND e.revision = d.revision - 1
WHERE d.collection_id = %(collection)s AND e.replaced_at <= %(at)s AND d.updated_at > %(at)s
"""


@dataclass(frozen=True, slots=True)
class PastDocument:
    """One document as it was. pk: of its row, which a document that is made again under the same id does not have.

    kept: its revisions as a deletion kept them, oldest first; None: it is still there.
    """

    doc_id: str
    pk: int
    revision: int
    enabled: bool
    kept: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class PastState:
    """A collection at a time. documents: by doc_id. swapped_at: when another index version was activated since."""

    at: datetime
    index_version: int
    documents: Mapping[str, PastDocument]
    swapped_at: datetime | None

    def mixed(self, other: PastState, doc_ids: Iterable[str]) -> PastState:
        """This state with these documents as they were in the other one, of the same index version; it need never have
        been. Raises ValueError for one of another."""
        if self.index_version != other.index_version:
            raise ValueError("states of two index versions cannot be mixed")
        taken = set(doc_ids)
        documents = {name: each for name, each in self.documents.items() if name not in taken}
        documents |= {name: each for name, each in other.documents.items() if name in taken}
        swaps = [moment for moment in (self.swapped_at, other.swapped_at) if moment is not None]
        return replace(self, documents=documents, swapped_at=min(swaps, default=None))

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the index version and the state of every document. Same hash: same chunks."""
        rows = [[each.doc_id, each.pk, each.revision, each.enabled] for each in self.documents.values()]
        return hashlib.sha256(canonical_json([self.index_version, sorted(rows)]).encode()).hexdigest()


def read_past_state(collection: Collection, at: datetime, *, asker: Access | None = None) -> PastState:
    """What the collection was at `at`, changes of that very moment included.

    Raises InvalidInput for a time in the future or without a zone, ServiceError 409: "not_recorded" for a time before
    changes were recorded, "not_restorable" with the documents whose state of then is not kept, named where
    `asker` (None: who asks) may read them.
    """
    _check_time(collection, at)
    later = list(
        StateChange.objects.filter(collection=collection, made_at__gt=at).order_by("made_at", "id").defer("kept")
    )
    swap = next((change for change in later if change.kind == Kind.SERVING), None)
    current = Collection.objects.only("index_version").get(pk=collection.pk)
    reader = _Reader(collection, at, later)
    documents = {document.doc_id: document for document in reader.read()}
    if reader.missing:
        hidden = hidden_from(asker or current_access(), collection, reader.missing)
        raise not_restorable(at, reader.missing, hidden=hidden)
    return PastState(
        at=at,
        index_version=current.index_version if swap is None else int(swap.number or 0),
        documents=documents,
        swapped_at=None if swap is None else swap.made_at,
    )


def recorded_since(collection: Collection) -> datetime:
    """The earliest time that `read_past_state` takes."""
    beginnings = StateChange.objects.filter(collection=collection, kind=Kind.RECORDED).order_by("-made_at")
    return beginnings.values_list("made_at", flat=True).first() or collection.created_at


def not_restorable(at: datetime, reasons: Mapping[str, str], *, hidden: AbstractSet[str] = frozenset()) -> ServiceError:
    """reasons: doc_id -> why its state of then cannot be made again. hidden: those that are not named."""
    told = {doc_id: repr(doc_id) for doc_id in reasons if doc_id not in hidden}
    named = [f"{told.get(doc_id, 'a document')} ({reasons[doc_id]})" for doc_id in sorted(reasons)[:NAMED_MAX]]
    more = f" and {len(reasons) - NAMED_MAX} more" if len(reasons) > NAMED_MAX else ""
    return ServiceError(
        f"the collection as of {at.isoformat()} cannot be restored: {', '.join(named)}{more}. Choose a later time, and "
        "keep more in the collection's settings (revisions, deleted_days) for the times to come",
        type="not_restorable",
        field="as_of",
    )


def _check_time(collection: Collection, at: datetime) -> None:
    if at.tzinfo is None:
        raise InvalidInput(f"as_of must be a time with a zone, such as 2026-01-31T12:00:00Z, not {at}", field="as_of")
    if at > timezone.now():
        raise InvalidInput(f"as_of must not be in the future, and {at.isoformat()} is", field="as_of")
    since = recorded_since(collection)
    if at < since:
        raise ServiceError(
            f"changes of {collection.name!r} are recorded since {since.isoformat()}; what it was at {at.isoformat()} "
            "is not known. Choose a later time",
            type="not_recorded",
            field="as_of",
        )


class _Reader:
    """The documents of one moment. missing: doc_id -> why its state is not known, filled by `read`."""

    def __init__(self, collection: Collection, at: datetime, later: Sequence[StateChange]) -> None:
        self.collection, self.at = collection, at
        self.scope = {"collection": collection.pk, "at": at}
        self.missing: dict[str, str] = {}
        self.switches: dict[int, list[StateChange]] = defaultdict(list)
        self.deletions: list[StateChange] = []
        for change in later:
            if change.kind == Kind.DELETED and change.began_at is not None and change.began_at <= at:
                self.deletions.append(change)
            elif change.kind in SWITCHES and change.document_id is not None:
                self.switches[change.document_id].append(change)

    def read(self) -> list[PastDocument]:
        return [*self._present(), *self._deleted()]

    def _enabled(self, pk: int, last: bool) -> bool:
        """The state before the first switch that came later; without one the last known."""
        changes = self.switches.get(pk)
        return bool(changes[0].enabled_before) if changes else last

    def _present(self) -> Iterable[PastDocument]:
        replaced = {name: (number, known) for name, number, known in fetch_all(connection, REPLACED_LATER, self.scope)}
        began_before = {name for (name,) in fetch_all(connection, BEGAN_BEFORE, self.scope)}
        rows = Document.objects.filter(collection=self.collection, created_at__lte=self.at).order_by("doc_id")
        for pk, doc_id, revision, enabled, updated_at in rows.values_list(
            "pk", "doc_id", "revision", "enabled", "updated_at"
        ):
            number, known = replaced.get(doc_id, (revision, True))
            if number == revision:
                known = revision == 1 or updated_at <= self.at or doc_id in began_before
            if not known:
                self.missing[doc_id] = "its revision of then is kept no longer"
            yield PastDocument(doc_id, pk, number, self._enabled(pk, enabled))

    def _deleted(self) -> Iterable[PastDocument]:
        kept = dict(
            StateChange.objects.filter(pk__in=[change.pk for change in self.deletions]).values_list("pk", "kept")
        )
        for change in self.deletions:
            revisions: Any = kept.get(change.pk)
            pk = int(change.document_id or 0)
            if revisions is None:
                self.missing[change.doc_id] = f"deleted at {change.made_at.isoformat()}, and its content is not kept"
                continue
            # the last one is what the deletion ended, which took effect some moments after it was kept
            later = [*(row for row in revisions[:-1] if _time(row["replaced_at"]) > self.at), revisions[-1]]
            number = int(later[0]["revision"])
            before = any(int(row["revision"]) == number - 1 for row in revisions)
            if number > 1 and not before and _time(later[0]["made_at"]) > self.at:
                self.missing[change.doc_id] = "its revision of then is kept no longer"
            enabled = self._enabled(pk, bool(change.enabled_before))
            yield PastDocument(change.doc_id, pk, number, enabled, kept=later)


def read_revision(collection_id: int, values: Mapping[str, Any]) -> DocumentRevision:
    """A revision as a deletion kept it, unsaved."""
    times = {name: _time(values[name]) for name in ("made_at", "replaced_at")}
    return DocumentRevision(collection_id=collection_id, **{**values, **times})


def _time(text: str) -> datetime:
    read = parse_datetime(text)
    assert read is not None, text
    return read


BASE_CHUNKS = """
SELECT chunk_index, start_char, end_char, context, CASE WHEN attributes ? %(mark)s THEN content END, NOT switched_off
FROM {chunks} WHERE collection_id = %(collection)s AND doc_id = %(doc_id)s ORDER BY chunk_index
"""


class Unrestorable(Exception):
    """Why the chunks of a document cannot be made again."""


@dataclass(frozen=True, slots=True)
class BaseDocument:
    """A document in the table of its index version. policy: that cut its chunks there."""

    pk: int
    revision: int
    enabled: bool
    policy: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Place:
    """A chunk as it was kept. content: None where it is what the policy cuts there."""

    start: int
    end: int
    context: str
    content: str | None
    enabled: bool


def past_chunks(
    collection: Collection, document: PastDocument, table: str, base: BaseDocument | None, swapped_at: datetime | None
) -> list[Chunk]:
    """The chunks in order, bound, without vectors.

    table, base: that of the index version of then, and what it holds of the document. swapped_at: when another index
    version was activated; what was replaced after it was cut by that one. Raises Unrestorable.
    """
    revisions = _revisions(collection, document)
    if not revisions:
        raise Unrestorable("its revision of then is kept no longer")
    own = revisions[0]
    if not own.size_chars:
        raise Unrestorable("it came in as chunks without a text")
    places = _places(collection, document, revisions, table, base, swapped_at)
    own.text = next((each.text for each in revisions if each.text), "") or _present_text(collection, document)
    with telemetry.silenced():
        cut = list(chunk_draft(draft_of(own), own.text, ChunkPolicy.from_dict(own.chunk_policy)))
    return _lay(cut, places)


def _revisions(collection: Collection, document: PastDocument) -> list[DocumentRevision]:
    """From the one of then on, oldest first; of a document that is there without its present state."""
    if document.kept is not None:
        return [read_revision(collection.pk, row) for row in document.kept]
    rows = DocumentRevision.objects.filter(collection=collection, doc_id=document.doc_id)
    return list(rows.filter(revision__gte=document.revision).order_by("revision"))


def _present_text(collection: Collection, document: PastDocument) -> str:
    rows = Document.objects.filter(collection=collection, pk=document.pk)
    return rows.values_list("text", flat=True).first() or ""


def _places(
    collection: Collection,
    document: PastDocument,
    revisions: Sequence[DocumentRevision],
    table: str,
    base: BaseDocument | None,
    swapped_at: datetime | None,
) -> list[_Place]:
    """Those of the first state from then on that has any: a revision, or the table of the index version."""
    own = revisions[0]
    for each in revisions:
        if base is not None and base.pk == document.pk and each.revision == base.revision:
            break
        if each.chunks or not each.chunk_count:
            if swapped_at is not None and each.replaced_at > swapped_at:
                raise Unrestorable("its chunks of then were cut again by another index version")
            return _kept_places(each, own)
    if base is None or base.pk != document.pk or base.policy != own.chunk_policy:
        raise Unrestorable("its chunks of then were cut again by another policy")
    scope = {"collection": collection.pk, "doc_id": document.doc_id, "mark": MARK}
    rows = fetch_all(connection, BASE_CHUNKS.format(chunks=table), scope)
    return [_Place(start, end, context, content, enabled) for _, start, end, context, content, enabled in rows]


def _kept_places(holder: DocumentRevision, own: DocumentRevision) -> list[_Place]:
    if holder.chunk_policy != own.chunk_policy:
        raise Unrestorable("its chunks of then were cut again by another policy")
    return [
        _Place(each["start"], each["end"], each["context"], each["content"], each["enabled"]) for each in holder.chunks
    ]


def _lay(cut: Sequence[Chunk], places: Sequence[_Place]) -> list[Chunk]:
    """What was edited, disabled and added laid over the chunks that the policy cuts. An added chunk has no length."""
    made: list[Chunk] = []
    stream = iter(cut)
    last: Chunk | None = None
    for place in places:
        number = len(made)
        if place.start == place.end and last is not None and place.content is not None:
            written = replace(last, content=place.content, start=last.end, attributes={**last.attributes, MARK: ADD})
            made.append(replace(written, chunk_index=number, enabled=True))
            continue
        last = next(stream, None)
        if last is not None and last.context.partition("\n")[0] == place.context:  # cut before headers were repeated
            last = replace(last, context=place.context)
        if last is None or (last.start, last.end, last.context) != (place.start, place.end, place.context):
            raise Unrestorable("this version of ragd cuts its text differently")
        made.append(_laid(last, place, number))
    if next(stream, None) is not None:
        raise Unrestorable("this version of ragd cuts its text differently")
    return made


def _laid(chunk: Chunk, place: _Place, number: int) -> Chunk:
    if place.content is None:
        return replace(chunk, chunk_index=number, enabled=place.enabled)
    attributes = {**chunk.attributes, MARK: EDIT}
    return replace(chunk, chunk_index=number, content=place.content, attributes=attributes, enabled=place.enabled)
