"""The shapes of what curation asks and answers: edits of one document and of many, revisions and their differences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from ninja import Field, Schema
from pydantic import StrictBool

from collections_app.access.document_access import Readers, readers_of
from collections_app.documents.bulk_changes import Access as AccessFilter
from collections_app.documents.bulk_changes import Action, DocumentFilter, DocumentResult, Facet, State
from collections_app.documents.filters import read_filter
from collections_app.documents.revisions.differences import Change, FieldChange, Part
from collections_app.http import schemas
from collections_app.http.schemas import Access, DocId, Filter, FilterText, LanguageCode, Metadata, Tags, either
from collections_app.http.validation import StrictInt
from collections_app.models import Document, DocumentRevision
from ragd.conditions import Condition, parse_condition
from ragd.types import ChunkPolicy


class DocumentChanges(schemas.Request):
    """What is left out stays. tags and metadata replace what is there."""

    title: str | None = Field(None, description="part of what is embedded: the chunks are embedded again")
    tags: Tags | None = None
    metadata: Metadata | None = None
    language: LanguageCode | None = Field(None, description="ISO 639-1 code of the text; '' to have it found")
    chunk_policy: schemas.ChunkPolicyRequest | None = Field(
        None, description="stated for this document alone, over the collection's; {} for the collection's"
    )
    state: Literal["enabled", "disabled", "archived"] | None = Field(
        None, description="disabled: kept, not retrieved; archived: read-only too"
    )
    access: Access | None = Field(
        None,
        description='who may read it: {"users": [...], "groups": [...]} by name, or {"restricted": false}; goes with'
        " nothing else",
    )
    restore_revision: StrictInt | None = Field(
        None, description="make it what it was in this revision, as a new one; goes with nothing else"
    )
    expected_revision: StrictInt | None = Field(
        None, description="409 when the document is at another one: nobody's change is lost"
    )


class FilterFields(Schema):
    """The fields that a filter has alike in the address of a request and in its body."""

    q: str = Field("", description="words that id, title or source contain")
    state: State = Field("present", description="present: not archived")
    media_type: str = Field("", description="only of this one")
    language: str = Field("", description="only in this one, by its ISO 639-1 code; unknown: in none")
    access: AccessFilter | Literal[""] = Field(
        "", description="restricted: only some may read it; open: everybody who may read the collection"
    )

    def choose(self, tags: Sequence[str], where: Condition | None) -> DocumentFilter:
        alike = {name: getattr(self, name) for name in FilterFields.model_fields}
        return DocumentFilter(**alike, tags=tuple(tags), where=where)


class DocumentFilters(FilterFields):
    """In the address of a request."""

    state: State = Field("any", description="present: not archived")
    tag: list[str] = Field([], description="tags that all must be there")
    filter: FilterText = Field(
        "", description="a typed filter as text, such as title starts with 'Annual' and language = de"
    )

    def read(self) -> DocumentFilter:
        return self.choose(self.tag, parse_condition(read_filter(self.filter)))


class FilterRequest(FilterFields, schemas.Request):
    """All documents that it lets through; what is left out matches all."""

    tags: Tags = Field([], description="tags that all must be there")
    where: Filter | None = Field(
        None, description="a typed filter over metadata.KEY, tags, doc_id, title, language, media_type and times"
    )

    def read(self) -> DocumentFilter:
        return self.choose(self.tags, parse_condition(self.where))


class BulkRequest(schemas.Request):
    """Name the documents by doc_ids or by a filter, not both."""

    model_config = either("doc_ids", "filter")

    action: Action
    doc_ids: list[DocId] | None = Field(None, description="at most 10,000")
    filter: FilterRequest | None = None
    expected: StrictInt | None = Field(
        None, description="how many documents matched when you looked; 409 when there are more or fewer by now"
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


class BulkError(schemas.Failure):
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


class DocumentEdited(schemas.DocumentBrief):
    """The document as it is now."""


class AccessOut(Schema):
    """Who may read a document, beside the administrators of its collection."""

    restricted: bool
    users: list[str]
    groups: list[str]
    origin: Literal["", "stated", "metadata", "attachment", "import"] = Field(
        description="metadata: of the collection's access_from; attachment: that of the document `of`; '' when open"
    )
    of: str = Field(description="what it was attached to")
    unknown: list[str] = Field(description="stated names of no user or group; they let nobody in")


class DocumentShown(schemas.DocumentDetail):
    access: AccessOut

    @staticmethod
    def resolve_access(document: Document) -> Readers:
        return readers_of(document.collection, document)


class FacetAnswer(Schema):
    """Documents by value of each filter, under the other filters; the most frequent first."""

    states: list[Facet]
    tags: list[Facet]
    media_types: list[Facet]
    languages: list[Facet]
    access: list[Facet]


class DocumentList(schemas.PageOf[schemas.DocumentBrief]):
    facets: FacetAnswer | None = Field(description="of all that the filters leave, where facets was true")


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
    chunk_policy: schemas.Stored[ChunkPolicy]
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


class RevisionChunkItem(Schema):
    chunk_index: int = Field(validation_alias="index")
    start: int
    end: int
    content: str
    context: str
    enabled: bool


class ChangeItem(Schema):
    """A chunk that differs; or, of kind same, a run of `count` equal ones that begins at before and after."""

    kind: Literal["same", "changed", "added", "removed"]
    count: int
    before: int | None = Field(description="chunk_index in the earlier revision")
    after: int | None = Field(description="chunk_index in the later revision")
    parts: list[Part] = Field(description="the words of both in order; [] for a run of equal ones")

    @staticmethod
    def resolve_before(change: Change) -> int | None:
        return change.before.index if change.before else None

    @staticmethod
    def resolve_after(change: Change) -> int | None:
        return change.after.index if change.after else None

    @staticmethod
    def resolve_parts(change: Change) -> list[Part]:
        return [] if change.kind == "same" else change.parts()


class DifferenceAnswer(Schema):
    before: int
    after: int
    fields: list[FieldChange] = Field(description="title, tags, metadata, policy and the like, where they differ")
    counts: dict[str, int] = Field(description="chunks: same, changed, added, removed")
    paired_by_order: bool = Field(description="some long runs of chunks were paired by their order alone")
    changes: list[ChangeItem]
    next_cursor: str | None
