"""The one file that a collection travels in: its members, its manifest, and what other floors put into it.

The format is described in docs/export.md. A higher floor registers what it keeps of a collection (`register`), so that
export, import and deletion take it along without this floor knowing it.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import psycopg
from django.db.models import F, Func, Model, QuerySet, TextField, Value
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.models import Chunk, ChunkOverlay, Collection, Document, DocumentRevision, StoredPage, Upload
from collections_app.parsing.layout import PackedWords
from ragd.errors import InvalidInput

FORMAT = "ragd-collection"
FORMAT_VERSION = 1
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
        names = (column.column for column in self.model._meta.concrete_fields)
        return tuple(name for name in names if name is not None and name not in left_out)

    @property
    def name(self) -> str:
        return self.model._meta.db_table


LISTS = "document_access.jsonl"
DOCUMENTS = Table("documents.jsonl", Document, "doc_id", without=("access",))
REVISIONS = Table("revisions.jsonl", DocumentRevision, "doc_id, revision")
OVERLAYS = Table("overlays.jsonl", ChunkOverlay, "doc_id, id")
CHUNKS = Table("chunks.jsonl", Chunk, "doc_id, chunk_index", without=("embedding", "fts", "lexical", "access"))
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

    def forget(self, collection: Collection) -> None:
        """In the transaction that makes a deleted collection invisible."""
        if self.forgets is not None:
            self.forgets._default_manager.filter(collection_name=collection.name).delete()


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
    def generation(self) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self.values["generation"]
        return result

    @property
    def statistics(self) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self.values["statistics"]
        return result

    @property
    def counts(self) -> Mapping[str, int]:
        result: Mapping[str, int] = self.values["counts"]
        return result
