"""Names that callers choose, and the texts beside them: what is accepted, in which form it is kept."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from ragd.errors import InvalidInput
from ragd.normalization import normalize
from ragd.types import canonical_json

NAME_MAX_CHARS = 128
DOC_ID_MAX_CHARS = 512
TITLE_MAX_CHARS = 500
COLLECTION_TITLE_MAX_CHARS = 200
LABEL_MAX_CHARS = 200
STARTERS_MAX, STARTER_CHARS_MAX = 8, 200
TAGS_MAX = 100
TAG_MAX_CHARS = 200
METADATA_MAX_BYTES = 65_536
METADATA_MAX_DEPTH = 20
RESERVED_NAMES = ("new", "import")

# control characters, format marks that do not show, lone surrogates
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
SPACES = re.compile(r"\s+")
LANGUAGE_CODE = re.compile("[a-z]{2}")
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def check_collection_name(name: str) -> str:
    """The name in NFC, or InvalidInput. Up to 128 characters; no slash, no control characters, no space at an end."""
    cleaned = unicodedata.normalize("NFC", name)
    if not cleaned or len(cleaned) > NAME_MAX_CHARS:
        raise InvalidInput(
            f"name must have 1 to {NAME_MAX_CHARS} characters; this one has {len(cleaned)}", field="name"
        )
    _refuse_unseen(cleaned, "name")
    if cleaned != cleaned.strip():
        raise InvalidInput("name must not begin or end with a space", field="name")
    if any(mark in cleaned for mark in "/\\?#%"):
        raise InvalidInput("name is part of addresses: it must not contain / \\ ? # or %", field="name")
    if cleaned in (".", "..") or cleaned.lower() in RESERVED_NAMES:
        raise InvalidInput(
            f"{cleaned!r} cannot be a collection's name, because addresses use it; choose another", field="name"
        )
    return cleaned


def check_doc_id(doc_id: str) -> str:
    """The id in NFC, or InvalidInput. Slashes are fine: an id may be a path. Else it is compared exactly."""
    doc_id = unicodedata.normalize("NFC", doc_id)
    if not doc_id or len(doc_id) > DOC_ID_MAX_CHARS:
        raise InvalidInput(
            f"doc_id must have 1 to {DOC_ID_MAX_CHARS} characters; this one has {len(doc_id)}", field="doc_id"
        )
    _refuse_unseen(doc_id, "doc_id")
    if doc_id != doc_id.strip():
        raise InvalidInput("doc_id must not begin or end with a space", field="doc_id")
    if any(part in (".", "..") for part in doc_id.split("/")):
        raise InvalidInput(
            "doc_id must not hold . or .. between slashes: clients would resolve them away", field="doc_id"
        )
    return doc_id


def doc_id_from_key(key: str) -> str:
    """A doc_id for an item of a source: its key with all of its slashes, cleaned as a name only where it must be."""
    try:
        return check_doc_id(key)
    except InvalidInput:
        return doc_id_from_name(key)


def doc_id_from_name(name: str) -> str:
    """A doc_id for an uploaded file: its name or relative path, cleaned until it is acceptable."""
    parts = unicodedata.normalize("NFC", UNSEEN.sub("", name)).replace("\\", "/").split("/")
    selected = [part.strip() for part in parts if part.strip() not in ("", ".", "..")]
    return check_doc_id("/".join(selected)[:DOC_ID_MAX_CHARS].strip())


def clean_title(title: str, longest: int = TITLE_MAX_CHARS) -> str:
    """The display name of a document: one line, of at most 500 characters unless another number is given."""
    cleaned = clean_line(title)
    if len(cleaned) > longest:
        raise InvalidInput(f"title must have at most {longest} characters; this one has {len(cleaned)}", field="title")
    return cleaned


def clean_collection_title(title: str) -> str:
    """The display name of a collection: one line of at most 200 characters."""
    return clean_title(title, COLLECTION_TITLE_MAX_CHARS)


def clean_starters(starters: Iterable[str]) -> list[str]:
    """Questions to begin with: one line each, without blanks and repeats, in the order given."""
    cleaned = list(dict.fromkeys(text for text in map(clean_line, starters) if text))
    if len(cleaned) > STARTERS_MAX or any(len(text) > STARTER_CHARS_MAX for text in cleaned):
        longest = max(map(len, cleaned))
        raise InvalidInput(
            f"there may be {STARTERS_MAX} starter questions of {STARTER_CHARS_MAX} characters, one a line; "
            f"there are {len(cleaned)}, the longest of {longest}",
            field="starters",
        )
    return cleaned


def clean_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Without blanks and repeats, in the order given."""
    cleaned = tuple(dict.fromkeys(tag for tag in (clean_line(tag) for tag in tags) if tag))
    if len(cleaned) > TAGS_MAX:
        raise InvalidInput(f"tags must be at most {TAGS_MAX}, not {len(cleaned)}", field="tags")
    if long := next((tag for tag in cleaned if len(tag) > TAG_MAX_CHARS), None):
        raise InvalidInput(f"a tag must have at most {TAG_MAX_CHARS} characters; one has {len(long)}", field="tags")
    return cleaned


def clean_label(label: str) -> str:
    cleaned = clean_line(label)
    if not cleaned or len(cleaned) > LABEL_MAX_CHARS:
        raise InvalidInput(
            f"label must have 1 to {LABEL_MAX_CHARS} characters; this one has {len(cleaned)}", field="label"
        )
    return cleaned


def clean_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """JSON that the database can keep: texts normalized, no NaN or infinity, at most 64 KiB and 20 levels."""
    selected: dict[str, Any] = _clean_value(dict(metadata or {}), 0)
    size = len(canonical_json(selected).encode())
    if size > METADATA_MAX_BYTES:
        raise InvalidInput(
            f"metadata must have at most {METADATA_MAX_BYTES} bytes as JSON; this has {size}", field="metadata"
        )
    return selected


def _clean_value(value: Any, depth: int) -> Any:
    if depth > METADATA_MAX_DEPTH:
        raise InvalidInput(f"metadata must not nest deeper than {METADATA_MAX_DEPTH} levels", field="metadata")
    if isinstance(value, str):
        return normalize(value)
    if isinstance(value, Mapping):
        return {normalize(str(key)): _clean_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean_value(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"metadata must hold finite numbers only, not {value}", field="metadata")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise InvalidInput(f"metadata must be JSON; {type(value).__name__} is not", field="metadata")


def check_language(language: str) -> str:
    """The ISO 639-1 code of a language in lower case; "" where none is said."""
    code = language.strip().lower()
    if code and not LANGUAGE_CODE.fullmatch(code):
        raise InvalidInput(
            f"language must be the two letters of a language in ISO 639-1, such as en, de or zh, not {language!r}; "
            "leave it empty to have it found",
            field="language",
        )
    return code


def can_be_stored(text: str) -> bool:
    """Whether the database could hold it: nothing that is looked up by another text is there."""
    return not UNSTORABLE.search(text)


def clean_line(text: str) -> str:
    """One line in the form that is kept: without control and invisible characters, single spaces; may be empty."""
    return SPACES.sub(" ", UNSEEN.sub(" ", unicodedata.normalize("NFC", text))).strip()


def _refuse_unseen(text: str, field: str) -> None:
    if match := UNSEEN.search(text):
        raise InvalidInput(
            f"{field} must not contain control or invisible characters; there is U+{ord(match.group()):04X} "
            f"at position {match.start()}",
            field=field,
        )
