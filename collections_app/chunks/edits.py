"""What a person does to single chunks: edit, disable, add, undo. Kept as overlays, so that re-chunking loses nothing.

A change is an ingest of the text that the document has, with one overlay more, fewer or different: what it does not
touch keeps its vector, and the state before is kept as a revision, so that a chunk which a run names stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.chunks.document_snapshot import ChunkChange, DocumentSnapshot, OverlayChange, change_overlays
from collections_app.chunks.overlays import ADD, DISABLE, EDIT
from collections_app.errors import ServiceError, UnknownError
from collections_app.models import ChunkOverlay, Collection
from ragd.errors import EmptyContent, InvalidInput
from ragd.normalization import has_visible, normalize
from ragd.store.indexing import CONTENT_MAX_CHARS

__all__ = [
    "ChunkChange", "add_chunk", "attach_overlay", "edit_chunk", "get_overlay", "list_overlays", "propose_edit",
    "propose_switch", "remove_overlay", "set_chunk_enabled",
]  # fmt: skip


def edit_chunk(
    collection: Collection,
    doc_id: str,
    chunk_index: int,
    content: str,
    *,
    revision: int | None = None,
    actor: services.Actor = None,
) -> ChunkChange:
    """Let a chunk say something else than the text has there; of an added chunk, change what was added.

    The text as it was cut takes the edit back. revision: the one that the caller saw; another one is a conflict.
    Raises ServiceError 404 (no such document or chunk) and 409 (archived, changed meanwhile, no text kept),
    EmptyContent, InvalidInput, EmbedderError.
    """
    require(Permission.WRITE, collection.pk)
    propose = propose_edit(chunk_index, content)
    return change_overlays(collection, doc_id, propose, f"chunk {chunk_index} edited", revision=revision, actor=actor)


def propose_edit(chunk_index: int, content: str) -> Callable[[DocumentSnapshot], OverlayChange]:
    """What `edit_chunk` wants of a document. Raises as it for the content at once, else when it is asked."""
    text = _check_content(content)

    def propose(scene: DocumentSnapshot) -> OverlayChange:
        source = scene.at(chunk_index)
        if source.add is not None:
            return scene.with_content(source.add, text)
        original = scene.original(source.anchor)
        if source.edit is not None:
            return scene.without(source.edit) if text == original else scene.with_content(source.edit, text)
        return scene.same() if text == original else scene.with_new(EDIT, source.anchor, text)

    return propose


def set_chunk_enabled(
    collection: Collection,
    doc_id: str,
    chunk_index: int,
    *,
    enabled: bool,
    revision: int | None = None,
    actor: services.Actor = None,
) -> ChunkChange:
    """Keep a chunk out of every result, or let it in again. Raises as `edit_chunk`; 409 for an added chunk."""
    require(Permission.WRITE, collection.pk)
    propose = propose_switch(doc_id, chunk_index, enabled=enabled)
    message = f"chunk {chunk_index} {'enabled' if enabled else 'disabled'}"
    return change_overlays(collection, doc_id, propose, message, revision=revision, actor=actor)


def propose_switch(doc_id: str, chunk_index: int, *, enabled: bool) -> Callable[[DocumentSnapshot], OverlayChange]:
    """What `set_chunk_enabled` wants of a document."""

    def propose(scene: DocumentSnapshot) -> OverlayChange:
        source = scene.at(chunk_index)
        if source.add is not None and not enabled:
            raise _refuse_added(doc_id, chunk_index, "remove it instead of disabling it")
        if enabled == (source.disable is None):
            return scene.same()
        return scene.with_new(DISABLE, source.anchor) if source.disable is None else scene.without(source.disable)

    return propose


def add_chunk(
    collection: Collection,
    doc_id: str,
    content: str,
    *,
    after: int | None = None,
    revision: int | None = None,
    actor: services.Actor = None,
) -> ChunkChange:
    """Add a chunk behind chunk `after` and behind what was added there before; None: at the end of the document.

    It takes the heading path, page, tags and metadata of the chunk that it follows. Raises as `edit_chunk`.
    """
    require(Permission.WRITE, collection.pk)
    text = _check_content(content)

    def propose(scene: DocumentSnapshot) -> OverlayChange:
        return scene.with_new(ADD, None if after is None else scene.at(after).anchor, text)

    message = "a chunk added at the end" if after is None else f"a chunk added after chunk {after}"
    return change_overlays(collection, doc_id, propose, message, revision=revision, actor=actor)


def remove_overlay(
    collection: Collection, doc_id: str, overlay_id: int, *, actor: services.Actor = None
) -> ChunkChange:
    """Undo one change: the chunk is again what the policy cuts; one that was added goes. ServiceError 404, 409."""
    require(Permission.WRITE, collection.pk)

    def propose(scene: DocumentSnapshot) -> OverlayChange:
        return scene.without(scene.position(overlay_id))

    return change_overlays(collection, doc_id, propose, f"change {overlay_id} of a chunk undone", actor=actor)


def attach_overlay(
    collection: Collection, doc_id: str, overlay_id: int, chunk_index: int, *, actor: services.Actor = None
) -> ChunkChange:
    """Lay a change over another chunk, such as one whose own text is no longer in the document.

    Raises as `edit_chunk`, and 409 when that chunk has a change of the same kind, or was added by hand.
    """
    require(Permission.WRITE, collection.pk)

    def propose(scene: DocumentSnapshot) -> OverlayChange:
        position = scene.position(overlay_id)
        source = scene.at(chunk_index)
        kind = scene.overlays[position].kind
        if source.add is not None and kind != ADD:
            raise _refuse_added(doc_id, chunk_index, "attach the change to a chunk of the text")
        if {EDIT: source.edit, DISABLE: source.disable}.get(kind) not in (None, position):
            raise ServiceError(
                f"chunk {chunk_index} of {doc_id!r} was changed in this way already; undo that first",
                type="overlay_taken",
                field="chunk_index",
            )
        return scene.with_anchor(position, source.anchor)

    message = f"change {overlay_id} attached to chunk {chunk_index}"
    return change_overlays(collection, doc_id, propose, message, actor=actor)


def list_overlays(collection: Collection, doc_id: str) -> list[ChunkOverlay]:
    """Every change of a document's chunks in the order in which it was made, those that apply nowhere too."""
    return list(ChunkOverlay.objects.filter(collection=collection, doc_id=doc_id).order_by("pk"))


def get_overlay(collection: Collection, overlay_id: int) -> ChunkOverlay:
    """ServiceError 404."""
    record = ChunkOverlay.objects.filter(collection=collection, pk=overlay_id).first()
    if record is None:
        raise UnknownError(
            "overlay",
            f"collection {collection.name!r} has no change {overlay_id} of a chunk; it was undone, perhaps",
            field="overlay_id",
        )
    return record


def _refuse_added(doc_id: str, chunk_index: int, instead: str) -> ServiceError:
    return ServiceError(
        f"chunk {chunk_index} of {doc_id!r} was added by hand; {instead}", type="added_chunk", field="chunk_index"
    )


def _check_content(content: str) -> str:
    text = normalize(content).strip()
    if not has_visible(text):
        raise EmptyContent("a chunk must have some text; to keep it out of results, disable it", field="content")
    if len(text) > CONTENT_MAX_CHARS:
        raise InvalidInput(
            f"a chunk holds at most {CONTENT_MAX_CHARS} characters, not {len(text)}; split it", field="content"
        )
    return text
