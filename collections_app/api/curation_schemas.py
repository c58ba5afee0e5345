"""The shapes of what curation asks and answers: edits of one document and of many, revisions and their differences."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import StrictBool

from collections_app.api.fields import Access, DocId, Filter, LanguageCode, Metadata, Tags, accepts, either
from collections_app.api.schemas import ChunkPolicyRequest, DocumentBrief, Failure, Request, Stored
from collections_app.domain.differences import Change, Part
from collections_app.models import DocumentRevision
from collections_app.services.documents.bulk_changes import DocumentResult
from collections_app.validation import StrictInt
from ragd.types import ChunkPolicy


class DocumentChanges(Request):
    """What is left out stays. tags and metadata replace what is there."""

    title: str | None = Field(None, description="part of what is embedded: the chunks are embedded again")
    tags: Tags | None = None
    metadata: Metadata | None = None
    language: LanguageCode | None = Field(None, description="ISO 639-1 code of the text; '' to have it found")
    chunk_policy: ChunkPolicyRequest | None = Field(
        None, description="stated for this document alone, over the collection's; {} for the collection's"
    )
    enabled: StrictBool | None = None
    archived: StrictBool | None = Field(None, description="true: read-only and not retrieved; false: back, and enabled")
    expected_revision: StrictInt | None = Field(
        None, description="409 when the document is at another one: nobody's change is lost"
    )


class FilterRequest(Request):
    """All documents that it lets through; what is left out matches all."""

    q: str = Field("", description="words that id, title or source contain")
    tags: Tags = Field([], description="tags that all must be there")
    state: Literal["any", "present", "enabled", "disabled", "archived"] = Field(
        "present", description="present: not archived"
    )
    media_type: str = ""
    language: Annotated[str, accepts(pattern="^([a-z]{2}|unknown)?$")] = Field(
        "", description="ISO 639-1 code; unknown: none is known"
    )
    access: Literal["", "restricted", "open"] = Field("", description="restricted: only some may read it")
    where: Filter | None = Field(
        None, description="a typed filter over metadata.KEY, tags, doc_id, title, language, media_type and times"
    )


class BulkRequest(Request):
    """Name the documents by doc_ids or by a filter, not both."""

    model_config = either("doc_ids", "filter")

    action: Literal[
        "enable", "disable", "archive", "unarchive", "add_tags", "remove_tags", "set_metadata", "remove_metadata",
        "set_language", "set_access", "reindex", "delete",
    ]  # fmt: skip
    doc_ids: list[DocId] | None = Field(None, description="at most 10,000")
    filter: FilterRequest | None = None
    expected: StrictInt | None = Field(
        None, description="how many the filter matched when you looked; 409 when it matches more or fewer by now"
    )
    dry_run: StrictBool = Field(False, description="only name the documents that are meant")
    tags: Tags = Field([], description="for add_tags and remove_tags")
    key: str = Field("", description="for set_metadata and remove_metadata")
    value: Any = Field(None, description="for set_metadata: any JSON")
    only_existing: StrictBool = Field(False, description="set_metadata: only where the key is there already")
    language: LanguageCode = Field("", description="for set_language: ISO 639-1 code; '' to have it found")
    access: Access | None = Field(
        None, description='for set_access: {"users": [...], "groups": [...]} by name, or {"restricted": false}'
    )


class BulkError(Failure):
    pass


class BulkItem(Schema):
    doc_id: str
    status: Literal["meant", "changed", "queued", "deleted", "unchanged", "unknown", "refused"]
    error: BulkError | None = None

    @staticmethod
    def resolve_error(result: DocumentResult) -> DocumentResult | None:
        return result if result.error else None


class BulkAnswer(Schema):
    """One result per document; what one refuses holds up no other."""

    counts: dict[str, int] = Field(description="documents by status")
    removed: dict[str, int] = Field(description="delete: what went, by kind")
    results: list[BulkItem]


class DocumentEdited(DocumentBrief):
    """The document as it is now."""


class FacetItem(Schema):
    value: str
    count: int


class FacetAnswer(Schema):
    """Documents by value of each filter, under the other filters; the most frequent first."""

    states: list[FacetItem]
    tags: list[FacetItem]
    media_types: list[FacetItem]
    languages: list[FacetItem]
    access: list[FacetItem]


class RevisionItem(Schema):
    revision: int
    present: bool = Field(description="whether it is the one that is served")
    title: str
    tags: list[str]
    metadata: dict[str, Any]
    file_metadata: dict[str, Any] = Field(description="what the file of this revision said of itself")
    source: str
    media_type: str
    size_chars: int
    chunk_count: int
    chunk_policy: Stored[ChunkPolicy]
    content_hash: str
    made_at: datetime
    replaced_at: datetime | None = Field(description="null for the present one")
    replaced_by: str = Field(description="who replaced it")
    reason: str = Field(description="what replaced it: text, upload, re-index, edit, rollback to n ...")

    @staticmethod
    def resolve_present(revision: DocumentRevision) -> bool:
        return revision.pk is None

    @staticmethod
    def resolve_replaced_at(revision: DocumentRevision) -> datetime | None:
        return None if revision.pk is None else revision.replaced_at


class RevisionDetail(RevisionItem):
    content: str = Field(validation_alias="text")
    page_map: list[Any] = Field(description="[start, end, label] in characters of content")
    segments: list[Any] = Field(description="[start, end, t_start, t_end]; times in seconds")
    warnings: list[str]


class RevisionPage(Schema):
    items: list[RevisionItem] = Field(description="newest first, the present one at the head")
    next_cursor: str | None


class RevisionChunkItem(Schema):
    chunk_index: int = Field(validation_alias="index")
    start: int
    end: int
    content: str
    context: str
    enabled: bool


class RevisionChunkPage(Schema):
    items: list[RevisionChunkItem]
    next_cursor: str | None


class PartItem(Schema):
    kind: Literal["same", "removed", "added"]
    text: str


class ChangeItem(Schema):
    """A chunk that differs; or, of kind same, a run of `count` equal ones that begins at before and after."""

    kind: Literal["same", "changed", "added", "removed"]
    count: int
    before: int | None = Field(description="chunk_index in the earlier revision")
    after: int | None = Field(description="chunk_index in the later revision")
    parts: list[PartItem] = Field(description="the words of both in order; [] for a run of equal ones")

    @staticmethod
    def resolve_before(change: Change) -> int | None:
        return change.before.index if change.before else None

    @staticmethod
    def resolve_after(change: Change) -> int | None:
        return change.after.index if change.after else None

    @staticmethod
    def resolve_parts(change: Change) -> list[Part]:
        return [] if change.kind == "same" else change.parts()


class FieldItem(Schema):
    name: str
    before: Any = None
    after: Any = None


class DifferenceAnswer(Schema):
    before: int
    after: int
    fields: list[FieldItem] = Field(description="title, tags, metadata, policy and the like, where they differ")
    counts: dict[str, int] = Field(description="chunks: same, changed, added, removed")
    paired_by_order: bool = Field(description="some long runs of chunks were paired by their order alone")
    changes: list[ChangeItem]
    next_cursor: str | None


class RolledBack(Schema):
    revision: int = Field(description="the document's present one")
    chunks_written: int
    unchanged: bool = Field(description="it had that content already; nothing was done")
