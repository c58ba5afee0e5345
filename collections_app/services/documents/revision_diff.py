"""Two revisions of a document compared: their fields and their chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collections_app.domain.differences import ChunkDifference, FieldChange, compare_chunks, compare_fields
from collections_app.errors import ServiceError
from collections_app.models import Collection, Document, DocumentRevision
from collections_app.policies import policy_of
from collections_app.services.indexing.revisions import any_revision, revision_chunks

COMPARED_MAX_CHARS = 60_000_000
FIELDS = ("title", "tags", "metadata", "file_metadata", "source", "media_type", "chunk_policy", "warnings")


@dataclass(frozen=True, slots=True)
class Difference:
    """From `before` to `after`, both as revisions without their texts."""

    before: DocumentRevision
    after: DocumentRevision
    fields: list[FieldChange]
    chunks: ChunkDifference


def compare_revisions(document: Document, before: int, after: int) -> Difference:
    """What differs between two revisions, either of which may be the present one, in either order of numbers.

    Raises ServiceError 404 for one that is not kept, 413 when both texts together have more than 60 million characters.
    """
    old, new = any_revision(document, before), any_revision(document, after)
    size = old.size_chars + new.size_chars
    if size > COMPARED_MAX_CHARS:
        raise ServiceError(
            f"the two revisions have {size} characters together; at most {COMPARED_MAX_CHARS} are compared. "
            "Read them one by one",
            type="too_large",
            status=413,
        )
    chunks = compare_chunks(revision_chunks(document, before), revision_chunks(document, after))
    return Difference(old, new, compare_fields(_fields(old), _fields(new)), chunks)


def _fields(revision: DocumentRevision) -> Mapping[str, Any]:
    return {name: getattr(revision, name) for name in FIELDS}


def rollback_changes(collection: Collection, document: Document, revision: DocumentRevision) -> list[FieldChange]:
    """How the policy that a rollback would cut by differs from that of the revision; then its chunks may too."""
    return compare_fields(dict(revision.chunk_policy), policy_of(collection, document).as_dict())
