"""The chunks of a document in an earlier revision, cut again by its policy and compared with the places kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection

from collections_app.domain.overlays import ADD, EDIT, MARK
from collections_app.models import Collection, Document, DocumentRevision
from collections_app.services.documents.documents import draft_of
from collections_app.services.history.past_states import PastDocument, read_revision
from collections_app.services.indexing.ingestion import chunk_draft
from ragd import telemetry
from ragd.store.store import fetch_all
from ragd.types import Chunk, ChunkPolicy

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
