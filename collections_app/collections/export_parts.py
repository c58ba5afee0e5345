"""The one file that a collection travels in: its members, its manifest, and what other floors put into it.

The format is described in docs/export.md. A higher floor registers what it keeps of a collection (`register`), so that
export, import and deletion take it along without this floor knowing it.

What a line of an export may hold: the types, bounds and rules that the API and ingestion keep, checked before a row
is written. What is stored is the line itself: an import changes nothing of it.

Access lists of documents in an export: by the names of users and groups, since their numbers are of one server.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Literal

import psycopg
from django.db import connection
from django.db.models import F, Func, Model, QuerySet, TextField, Value
from django.utils import timezone
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

from collections_app.access.context import Access, system_access
from collections_app.access.document_access import (
    FROM_METADATA,
    IMPORTED,
    AccessList,
    find_principals,
    hidden_from,
    names_of,
    put_list,
)
from collections_app.chunks.policies import check_policy
from collections_app.errors import ServiceError
from collections_app.models import Chunk, ChunkOverlay, Collection, Document, DocumentRevision, StoredPage, Upload
from ragd.errors import InvalidInput
from ragd.identity import check_doc_id, clean_metadata, clean_tags, clean_title
from ragd.readers.layout import PackedWords
from ragd.store.store import fetch_all
from ragd.types import ChunkPolicy

FORMAT = "ragd-collection"
FORMAT_VERSION = 2
MANIFEST = "manifest.json"
VECTORS = "vectors.npy"
VECTORS_AT_ONCE = 256
SOURCES = "sources.bin"
FILE_SUFFIX = ".ragd.zip"
MANIFEST_MAX_BYTES = 1_000_000
SETTINGS = (
    "title", "description", "starters", "embed_model", "embed_dims", "hybrid_enabled", "language", "vector_type",
    "chunk_policy", "retention", "security", "access_from",
)  # fmt: skip

OLDEST_TIME = datetime(2000, 1, 1, tzinfo=UTC)
WRITTEN_AT_ONCE = 500
ISO_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """A member of JSON Lines with the rows of one table, each an object of `columns`, in the order of `order`."""

    member: str
    model: type[Model]
    order: str
    without: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column but the keys, which are given anew, and those that are left out."""
        left_out = {"id", "collection_id", *self.without}
        names = (column.column for column in self.model._meta.concrete_fields if not column.generated)
        return tuple(name for name in names if name is not None and name not in left_out)

    @property
    def name(self) -> str:
        return self.model._meta.db_table


LISTS = "document_access.jsonl"
DOCUMENTS = Table("documents.jsonl", Document, "doc_id", without=("access",))
REVISIONS = Table("revisions.jsonl", DocumentRevision, "doc_id, revision")
OVERLAYS = Table("overlays.jsonl", ChunkOverlay, "doc_id, id")
CHUNKS = Table(
    "chunks.jsonl", Chunk, "doc_id, chunk_index", without=("embedding", "fts", "lexical", "tokens", "access")
)
UPLOADS = Table("sources.jsonl", Upload, "doc_id, id", without=("content",))
OWN_MEMBERS = (
    DOCUMENTS.member, REVISIONS.member, OVERLAYS.member, UPLOADS.member, SOURCES, CHUNKS.member, VECTORS, LISTS,
)  # fmt: skip


def invalid_export(message: str) -> ServiceError:
    return ServiceError(message, type="invalid_export", status=422, field="file")


def check_time(text: Any) -> str:
    """The time unchanged: ISO 8601 with an offset, from 2000 to tomorrow, which pages and charts can show.

    Raises InvalidInput. PostgreSQL takes more than Python can read: years beyond 9999, BC, infinity.
    """
    moment = text if isinstance(text, datetime) else None
    if isinstance(text, str) and ISO_TIME.match(text):
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(text)
    if moment is None or moment.tzinfo is None or not OLDEST_TIME <= moment <= timezone.now() + timedelta(days=1):
        raise InvalidInput(
            f"a time from {OLDEST_TIME:%Y-%m-%d} to now, such as 2026-01-31T12:00:00+00:00, not {text!r}"
        )
    return str(text)


Build = Callable[[Collection, Row, dict[str, Any]], Model]


@dataclass(frozen=True, slots=True)
class Part:
    """A table of a higher floor whose rows travel with their collection, each a JSON object of `columns` in that order.

    name: a plain plural, such as "plans", under which the rows are counted. noun: one row, in messages. owner: the
    lookup of the collection: its row, or its name where it ends in "collection_name". build: the object of a checked
    row, not saved; it raises InvalidInput; its dict is the same for all rows of one import. lookups: column -> lookup
    or expression where it is not the field of that name. single: a
    collection has one row at most, which takes the place of a stored one with that primary key. forgets: the model
    whose rows of the collection's name go with it; None: the database removes them.
    """

    name: str
    noun: str
    model: type[Model]
    owner: str
    columns: tuple[str, ...]
    build: Build
    lookups: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    single: bool = False
    forgets: type[Model] | None = None

    @property
    def member(self) -> str:
        return f"{self.name}.jsonl"

    def rows(self, collection: Collection) -> QuerySet[Model]:
        owner = collection.name if self.owner.endswith("collection_name") else collection.pk
        return self.model._default_manager.filter(**{self.owner: owner})

    def read(self, connection: psycopg.Connection[Any], collection: Collection) -> Iterator[Row]:
        """Over a connection whose transaction is the export's snapshot, by `order`. Times in ISO 8601."""
        selected = [self.lookups.get(name, name) for name in self.columns]
        rows = self.rows(collection).order_by(*self.order).values_list(*selected)
        for row in connection.execute(*rows.query.sql_with_params()):
            values = (value.isoformat() if isinstance(value, datetime) else value for value in row)
            yield dict(zip(self.columns, values, strict=True))

    def restore(self, collection: Collection, rows: Iterable[Row]) -> int:
        """Write the rows for a collection and return how many. Raises InvalidInput for one that is wrong."""
        built = self._checked(collection, rows)
        count = 0
        while batch := list(islice(built, WRITTEN_AT_ONCE)):
            if self.single:
                batch[0].save()
            else:
                self.model._default_manager.bulk_create(batch)
            count += len(batch)
        return count

    def _checked(self, collection: Collection, rows: Iterable[Row]) -> Iterator[Model]:
        shared: dict[str, Any] = {}
        for number, row in enumerate(rows):
            if set(row) != set(self.columns):
                columns = ", ".join(self.columns)
                raise InvalidInput(f"a {self.noun} has {columns}, not {', '.join(map(str, row))}", field=self.name)
            if self.single and number:
                raise InvalidInput(f"a collection has at most one {self.noun}", field=self.name)
            yield self.build(collection, row, shared)

    def attached(self, collection: Collection) -> QuerySet[Model] | None:
        """The rows that go with a collection that is deleted; None: the database removes them."""
        return None if self.forgets is None else self.forgets._default_manager.filter(collection_name=collection.name)

    def forget(self, collection: Collection) -> None:
        """In the transaction that makes a deleted collection invisible."""
        if (rows := self.attached(collection)) is not None:
            rows.delete()


_PARTS: dict[str, Part] = {}


def register(*parts: Part) -> None:
    """Let them travel with their collections from now on; a second one of the same name takes the first one's place."""
    _PARTS.update({part.name: part for part in parts})


def _page(collection: Collection, row: Row, _: dict[str, Model]) -> StoredPage:
    try:
        width, height = float(row["width"]), float(row["height"])
        words = PackedWords(base64.b64decode(row["words"]), width, height)
        if not (re.fullmatch("[0-9a-f]{64}", row["text_hash"]) and row["page"] >= 1 and min(width, height) > 0):
            raise ValueError("a page has a text_hash, a number from 1 on, and sides")
        return StoredPage(collection=collection, **row | {"words": words.data})
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a page layout cannot be read: {error}", field="page_layouts") from error


PAGES = Part(
    "page_layouts",
    "page layout",
    StoredPage,
    "collection",
    ("doc_id", "text_hash", "page", "width", "height", "words"),
    _page,
    lookups={"words": Func(F("words"), Value("base64"), function="encode", output_field=TextField())},
    order=("doc_id", "text_hash", "page"),
)
register(PAGES)


def registered_parts() -> tuple[Part, ...]:
    """By name."""
    return tuple(_PARTS[name] for name in sorted(_PARTS))


@dataclass(frozen=True, slots=True)
class Member:
    """What the manifest says of a member. rows: lines, vectors or, of sources, files."""

    name: str
    sha256: str
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an export says of itself. values: the whole of it; members: by name."""

    values: Mapping[str, Any]
    members: Mapping[str, Member]

    @property
    def collection(self) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self.values["collection"]
        return result

    @property
    def index_version(self) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self.values["index_version"]
        return result

    @property
    def statistics(self) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self.values["statistics"]
        return result

    @property
    def counts(self) -> Mapping[str, int]:
        result: Mapping[str, int] = self.values["counts"]
        return result


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
    state: Literal["enabled", "disabled", "archived"] = "enabled"
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


NAMED_MAX = 20
ALL_LISTS = """
SELECT doc_id, access, origin, unknown FROM document_access WHERE collection_id = %(collection)s ORDER BY doc_id
"""
Name = Annotated[StrictStr, Field(min_length=1, max_length=150, pattern="^[^\x00]*$")]


class ListRow(BaseModel):
    doc_id: Annotated[StrictStr, Field(min_length=1, max_length=512)]
    users: list[Name] = []
    groups: list[Name] = []
    origin: Annotated[StrictStr, Field(pattern="^(stated|metadata|attachment|import)$")] = "stated"
    unknown: list[Name] = []


def read_lists(collection: Collection, access: Access) -> Iterator[tuple[bytes, int]]:
    """Lines of JSON, each counted as one: the lists of documents, there or gone, that somebody may read."""
    with system_access():
        rows = fetch_all(connection, ALL_LISTS, {"collection": collection.pk})
    hidden = hidden_from(access, collection, [row[0] for row in rows])
    for doc_id, codes, origin, unknown in rows:
        if doc_id not in hidden and codes[0] >= 0:
            stated = names_of(codes)
            row = {"doc_id": doc_id, "users": stated.users, "groups": stated.groups, "origin": origin}
            yield json.dumps(row | {"unknown": unknown}, ensure_ascii=False).encode() + b"\n", 1


def write_lists(collection: Collection, rows: Iterable[Row]) -> tuple[int, list[str]]:
    """(how many lists, warnings). Before the documents are there. Names of nobody let nobody in, and are told.

    Raises ServiceError 422 for a line that is no list.
    """
    count, lacking, missing = 0, 0, set[str]()
    for row in rows:
        try:
            listed = ListRow.model_validate(row)
        except ValidationError as error:
            raise invalid_export(f"an access list cannot be kept: {error.errors()[0]['msg']}") from None
        codes, unknown = find_principals(listed.users, listed.groups)
        origin = listed.origin if listed.origin in (FROM_METADATA, "attachment") else IMPORTED
        unknown = list(dict.fromkeys([*listed.unknown, *unknown]))
        with system_access():  # whoever imports it is not yet of its people
            put_list(collection, [listed.doc_id], AccessList(codes, origin, tuple(unknown)))
        count += 1
        if unknown:
            lacking += 1
            missing.update(unknown)
    if not missing:
        return count, []
    named = ", ".join(map(repr, sorted(missing)[:NAMED_MAX]))
    more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
    return count, [
        f"{lacking} documents are restricted to names that no user or group here is called ({named}{more}); only the "
        "others of their lists and administrators may read them"
    ]
