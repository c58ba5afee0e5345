"""What several connectors need: names that patterns choose, XML without entities."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from xml.etree import ElementTree

from django.utils.translation import gettext_lazy

from collections_app.connectors.protocol import Field, SourceError

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
