"""Files as they are offered: their names as doc_ids, their sizes, and what is said of them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from django.conf import settings

from collections_app.domain.identity import DOC_ID_MAX_CHARS, check_doc_id, doc_id_from_name
from collections_app.domain.units import MEGABYTE
from ragd.errors import InvalidInput

CLASHES = ("replace", "skip", "keep_both")
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it is offered. doc_id "": made from the name. sha256 in hex, "" when unknown. size in bytes.

    on_clash: "replace", "skip" or "keep_both" for this one; "": what holds for all.
    """

    doc_id: str
    sha256: str
    size: int
    name: str = ""
    on_clash: str = ""


class RefusedError(Exception):
    """Why one file is not taken; it holds up no other."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(message)
        self.type = type
        self.message = message


def numbered(doc_id: str, number: int) -> str:
    """ "a/b.pdf" and 2 make "a/b (2).pdf"; a name that is too long for it loses its end before the number."""
    stem, suffix = posixpath.splitext(doc_id)
    mark = f" ({number}){suffix}"
    return stem[: DOC_ID_MAX_CHARS - len(mark)].rstrip() + mark


def check_size(entry: Entry) -> None:
    """RefusedError for a file that is empty or larger than documents may be."""
    limit = settings.RAGD_MAX_DOCUMENT_MB
    name = entry.name or entry.doc_id
    if entry.size > limit * MEGABYTE:
        raise RefusedError(
            "too_large",
            f"{name} has {entry.size / MEGABYTE:.1f} MB; at most {limit} MB are taken. "
            "Split it, or raise RAGD_MAX_DOCUMENT_MB.",
        )
    if not entry.size:
        raise RefusedError("empty_content", f"{name} is empty; upload a file with some content")


def is_refused(entry: Entry) -> bool:
    """Whether the size or the name alone rules it out, so that its bytes need not be read."""
    try:
        name_document(entry)
        check_size(entry)
    except RefusedError:
        return True
    return False


def name_document(entry: Entry) -> str:
    """The doc_id that an entry asks for, or a RefusedError when it is not acceptable."""
    try:
        return check_doc_id(entry.doc_id) if entry.doc_id else doc_id_from_name(entry.name)
    except InvalidInput as error:
        raise RefusedError("invalid_input", error.message) from None


def wanted_id(entry: Entry) -> str:
    """The doc_id that an entry asks for, "" when it is not acceptable."""
    try:
        return name_document(entry)
    except RefusedError:
        return ""


def check_clash(on_clash: str) -> None:
    if on_clash not in CLASHES:
        raise InvalidInput(f"on_clash must be one of {', '.join(CLASHES)}, not {on_clash!r}", field="on_clash")


def check_entry(entry: Entry) -> None:
    if entry.on_clash:
        check_clash(entry.on_clash)
    if entry.sha256 and not SHA256.fullmatch(entry.sha256):
        raise InvalidInput(
            f"sha256 must be 64 hexadecimal digits in lower case, not {entry.sha256[:80]!r}", field="sha256"
        )


def is_archive_name(name: str) -> bool:
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def folder_of(doc_id: str) -> str:
    """Where the members of an archive come: beside it."""
    folder = doc_id.rpartition("/")[0]
    return f"{folder}/" if folder else ""


def clean_prefix(prefix: str) -> str:
    """A folder as the beginning of doc_ids, with a slash at its end; "" for everything. Raises InvalidInput."""
    kept = prefix.strip("/ ")
    return f"{check_doc_id(kept)}/" if kept else ""
