"""What a line of an export may hold: the types, bounds and rules that the API and ingestion keep, checked before a row
is written. What is stored is the line itself: an import changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    FiniteFloat,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from collections_app.domain.identity import check_doc_id, clean_metadata, clean_tags, clean_title
from collections_app.errors import ServiceError
from collections_app.policies import check_policy
from collections_app.services.collections.export_parts import (
    CHUNKS,
    DOCUMENTS,
    OVERLAYS,
    REVISIONS,
    UPLOADS,
    Row,
    check_time,
    invalid_export,
)
from ragd.errors import InvalidInput
from ragd.types import ChunkPolicy

INT_MAX = 2**31 - 1
MISSING = "2000-01-01T00:00:00+00:00"  # an older export may lack a time; the column then has its default


def _checked(check: Any) -> AfterValidator:
    """The value unchanged, when `check` takes it."""

    def validate(value: Any) -> Any:
        try:
            check(value)
        except InvalidInput as error:
            raise ValueError(error.message) from None
        return value

    return AfterValidator(validate)


def _whole_policy(value: Mapping[str, Any]) -> None:
    if value:
        ChunkPolicy.from_dict(value)


Count = Annotated[StrictInt, Field(ge=0, le=INT_MAX)]
Number = Annotated[StrictInt, Field(ge=1, le=INT_MAX)]
LanguageCode = Annotated[StrictStr, Field(pattern="^([a-z]{2})?$")]
Hash = Annotated[StrictStr, Field(pattern="^([0-9a-f]{64})?$")]
Time = Annotated[StrictStr, _checked(check_time)]
DocId = Annotated[StrictStr, _checked(check_doc_id)]
Title = Annotated[StrictStr, _checked(clean_title)]
Tags = Annotated[list[StrictStr], _checked(clean_tags)]
Metadata = Annotated[dict[str, Any], _checked(clean_metadata)]
Policy = Annotated[dict[str, Any], _checked(_whole_policy)]
StatedPolicy = Annotated[dict[str, Any], _checked(check_policy)]
Seconds = FiniteFloat | None
Columns = Annotated[StrictStr, Field(pattern="^[A-Z]{1,3}(:[A-Z]{1,3})?(,[A-Z]{1,3}(:[A-Z]{1,3})?)*$")]
Rows = Annotated[StrictStr, Field(pattern="^[0-9]{1,9}(:[0-9]{1,9})?(,[0-9]{1,9}(:[0-9]{1,9})?)*$")]


class DocumentVersion(BaseModel):
    """What a document and an earlier revision of it have in common. A column that is missing has its default."""

    doc_id: DocId
    revision: Number = 1
    title: Title = ""
    tags: Tags = []
    metadata: Metadata = {}
    file_metadata: Metadata = {}
    source: StrictStr = ""
    media_type: StrictStr = "text/plain"
    text: StrictStr = ""
    size_chars: Count = 0
    chunk_count: Count = 0
    content_hash: Hash = ""
    source_hash: Hash = ""
    page_map: list[tuple[Count, Count, StrictStr]] = []
    cell_map: list[tuple[Count, Count, StrictStr, Columns, Rows]] = []
    segments: list[tuple[Count, Count, Seconds, Seconds]] = []
    chunk_policy: Policy = {}
    warnings: list[StrictStr] = []

    @model_validator(mode="after")
    def check_places(self) -> DocumentVersion:
        is_shared = isinstance(self, RevisionRow) and not self.text  # the text of a later revision is its own too
        if self.size_chars != len(self.text) and not is_shared:
            raise ValueError(f"size_chars is {self.size_chars}, and the text has {len(self.text)} characters")
        for start, end, *_ in [*self.page_map, *self.cell_map]:
            _check_place(int(start), int(end), self.size_chars)
        for segment in self.segments:
            _check_place(segment[0], segment[1], self.size_chars)
        return self


class DocumentRow(DocumentVersion):
    token_count: Count = 0
    language: LanguageCode = ""
    language_stated: LanguageCode = ""
    chunk_policy_stated: StatedPolicy = {}
    enabled: StrictBool = True
    archived_at: Time | None = None
    created_at: Time = MISSING
    updated_at: Time = MISSING


class EarlierChunk(BaseModel):
    index: Count
    start: Count
    end: Count
    content: StrictStr | None
    context: StrictStr
    enabled: StrictBool


class RevisionRow(DocumentVersion):
    chunks: list[EarlierChunk] = []
    made_at: Time
    replaced_at: Time = MISSING
    replaced_by: StrictStr = ""
    reason: StrictStr = ""

    @model_validator(mode="after")
    def check_chunks(self) -> RevisionRow:
        for chunk in self.chunks:
            if chunk.content is None:
                _check_place(chunk.start, chunk.end, self.size_chars)
        return self


class OverlayRow(BaseModel):
    doc_id: DocId
    kind: Literal["edit", "disable", "add"]
    anchor_hash: Hash = ""
    anchor_text: StrictStr = ""
    start_char: Count = 0
    content: StrictStr = ""
    applies: StrictBool = True
    revision: Number = 1
    created_by: StrictStr = ""
    created_at: Time = MISSING
    updated_at: Time = MISSING


class ChunkRow(BaseModel):
    """Whether its place lies in the document's text is seen when all are there."""

    doc_id: DocId
    chunk_index: Count
    content: StrictStr
    start_char: Count
    end_char: Count
    context: StrictStr
    tags: Tags
    metadata: dict[str, Any]
    attributes: dict[str, Any] = {}
    token_count: Count = 0
    revision: Number
    enabled: StrictBool = True
    switched_off: StrictBool
    created_at: Time = MISSING

    @model_validator(mode="after")
    def check_place(self) -> ChunkRow:
        _check_place(self.start_char, self.end_char, INT_MAX)
        return self


class UploadRow(BaseModel):
    doc_id: DocId
    sha256: Annotated[StrictStr, Field(pattern="^[0-9a-f]{64}$")]
    name: StrictStr
    media_type: StrictStr
    size_bytes: StrictInt
    created_at: Time


ROWS: Mapping[str, type[BaseModel]] = {
    DOCUMENTS.member: DocumentRow,
    REVISIONS.member: RevisionRow,
    OVERLAYS.member: OverlayRow,
    CHUNKS.member: ChunkRow,
    UPLOADS.member: UploadRow,
}


def check_row(member: str, row: Row) -> None:
    """Raise ServiceError 422 "invalid_export" for a line of the member that no collection of this version holds."""
    try:
        ROWS[member].model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its values"
        raise invalid_row(member, row, f"{where}: {first['msg']}") from None


def invalid_row(member: str, row: Row, reason: str) -> ServiceError:
    return invalid_export(
        f"{member} cannot be stored: the line of {str(row.get('doc_id'))[:200]!r} has a wrong {reason}"
    )


def _check_place(start: int, end: int, size: int) -> None:
    if not start <= end <= size:
        raise ValueError(f"a place from {start} to {end} does not lie in a text of {size} characters")
