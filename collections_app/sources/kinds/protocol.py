"""A kind of source: a class that lists the items of a source and reads one of them. docs/sources.md explains it.

ragd compares the list with what it has, reads what is new or has another version, and deletes what is not listed any
more. It stores nothing and knows nothing of documents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal
from xml.etree import ElementTree

from django.utils.translation import gettext_lazy

from ragd.errors import InvalidInput
from ragd.readers.fetching import FetchError, FetchResult, Guard, read_address
from ragd.readers.fetching.addresses import too_large
from ragd.readers.fetching.buckets import Bucket, BucketKeys

__all__ = ["INCLUDE", "BaseSource", "Field", "File", "Item", "Reach", "SourceError", "matches", "read_xml"]

SourceError = FetchError  # why a source, or one item of it, cannot be read: kind, message, retryable


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of a source, as a list names it.

    id: names it for good and is unique in the source; readable, because it becomes the doc_id. version: another text
    whenever the content is another one, such as an ETag; "": not known before it is read. url: where a person finds
    it, "" for nowhere. title: "": what the file says. size: in bytes, where the list tells it.
    """

    id: str
    version: str = ""
    title: str = ""
    url: str = ""
    modified: datetime | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class File:
    """The bytes of an item. name: with a suffix where the type is not plain from the bytes."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Field:
    """A setting that a person fills in. kind lines: a list of texts; secret: kept encrypted, one per source.

    choices: (value, label). minimum, maximum: of a number, both inclusive. The value of one that is left empty is
    `default`.
    """

    name: str
    label: Any
    kind: Literal["text", "lines", "number", "switch", "choice", "secret"] = "text"
    help: Any = ""
    required: bool = False
    default: Any = ""
    choices: tuple[tuple[str, Any], ...] = ()
    minimum: int | None = None
    maximum: int | None = None


def _stay(done: int, total: int) -> None:
    return


@dataclass(frozen=True, slots=True)
class Reach:
    """What a source may reach, and how.

    guard: resolves a host to addresses that may be connected to, or raises SourceError. max_bytes: of one file.
    timeout_s: of one request. folders: folders of this machine that may be read. read_page: a page of the web, with
    robots.txt and the pause between requests honoured, redirects followed, every address checked. open_bucket: a
    bucket by endpoint ("": the server's own), name and keys (None: the server's at its own endpoint). advance: told how
    many bytes of how many came; like `pulse`, to be called in long loops, it raises when the sync was cancelled.
    """

    guard: Guard
    max_bytes: int
    timeout_s: float
    read_page: Callable[[str], FetchResult]
    open_bucket: Callable[[str, str, BucketKeys | None], Bucket]
    folders: tuple[Path, ...] = ()
    advance: Callable[[int, int], None] = _stay

    def pulse(self) -> None:
        self.advance(0, 0)

    def check_size(self, size: int) -> None:
        """Raise SourceError for a file that is too large, before it is read."""
        if size > self.max_bytes:
            raise too_large(self.max_bytes)


class BaseSource(ABC):
    """A source, opened for one sync. A class per kind; its instances are not used by two threads.

    kind: its name in the database, at most 32 characters. title, about: for people, a sentence what it reads.
    is_complete: False on an instance, or on
    a class, when the list does not name everything that the source holds; nothing is deleted then.
    """

    kind: ClassVar[str]
    title: ClassVar[Any]
    about: ClassVar[Any] = ""
    fields: ClassVar[tuple[Field, ...]]
    is_complete: bool = True
    do_not_call_in_templates: ClassVar[bool] = True  # a class is shown as it is

    def __init__(self, settings: Mapping[str, Any], secret: str, reach: Reach) -> None:
        """settings: a value for every field but the secret. May not connect yet."""
        self.settings, self.secret, self.reach = settings, secret, reach

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        """The settings as they are to be kept. Nothing is connected to. Raises InvalidInput with the field."""
        return dict(settings)

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        """Where it is, in one line without secrets; also what the secret was given for."""
        return str(next(iter(settings.values()), ""))

    @abstractmethod
    def list_items(self) -> Iterable[Item]:
        """Every item, in a stable order. Raises SourceError when the source cannot be listed: nothing is deleted then.

        `fetch` is called for an item before the next one is asked for, or not at all.
        """

    @abstractmethod
    def fetch(self, item: Item) -> File:
        """The file of an item that was listed. Raises SourceError; other items go on then."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Called once at the end, whatever happened."""


def check_url(settings: Mapping[str, Any], name: str) -> str:
    """The http address of a field in its one spelling. Raises InvalidInput with the field."""
    try:
        return str(read_address(str(settings[name])))
    except InvalidInput as error:
        raise InvalidInput(error.message, field=name) from None


INCLUDE = Field(
    "include",
    gettext_lazy("Only files like"),
    "lines",
    default=(),
    help=gettext_lazy("Patterns such as *.pdf, one per line. Empty: all files."),
)


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path, or its last part, is like one of the patterns in any case; any path without patterns."""
    if not patterns:
        return True
    whole = path.lower()
    return any(fnmatchcase(name, each.lower()) for each in patterns for name in (whole, whole.rpartition("/")[2]))


def read_xml(content: bytes, what: str) -> ElementTree.Element:
    """The root of a document. what: names it in errors. Raises SourceError, also for one that declares a type."""
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content or b"\0" in content:  # NUL: UTF-16, which would hide them
        raise SourceError("unexpected_answer", f"{what} declares a document type, so it is not read")
    try:
        return ElementTree.fromstring(content)  # noqa: S314 - entities were refused above
    except (ElementTree.ParseError, ValueError) as error:
        raise SourceError("unexpected_answer", f"{what} is no XML: {error}; check its URL") from None
