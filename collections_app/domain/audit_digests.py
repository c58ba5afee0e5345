"""What makes a row of the audit log tamper-evident: canonical values, salted digests of what may be erased, hashes."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from ragd.types import canonical_json

WHO = ("actor_id", "actor_name", "address")
WHAT = ("subject_name", "message", "before", "after")
CORE = (
    "at", "actor_kind", "channel", "request_id", "action", "subject_kind", "subject_id", "collection_id",
    "collection_name", "outcome", "who_digest", "what_digest",
)  # fmt: skip
FIRST = "0" * 64  # stands before the first hash
SALT_BYTES = 16
LONGEST = 500  # characters of a value that is kept as it is
SECRETS = frozenset({"password", "password1", "password2", "secret", "key", "key_hash", "api_key", "token", "salt"})
TEXTS = frozenset(
    {"text", "content", "context", "anchor_text", "answer", "expected_answer", "question", "questions", "correction"}
)
HIDDEN = "***"


def audit_values(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Fields as they are kept: no secret, and of a text its SHA-256 and length. None stays None."""
    return None if values is None else {str(name): _field(str(name), value) for name, value in values.items()}


def _field(name: str, value: Any) -> Any:
    if name in SECRETS:
        return HIDDEN if value else ""
    if name in TEXTS and value:
        return text_mark(value if isinstance(value, str) else canonical_json(_plain(value)))
    return _plain(value)


def text_mark(text: str) -> dict[str, Any]:
    """{"sha256", "chars"}: enough to tell whether it was this text, and no more."""
    return {"sha256": hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest(), "chars": len(text)}


def _plain(value: Any) -> Any:
    """As jsonb gives it back: integral floats as integers, no NUL, no half surrogate pair."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {clean_text(str(name)): _field(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, datetime | date):
        return value.isoformat()
    text = clean_text(str(value))
    return text_mark(text) if len(text) > LONGEST else text


def clean_text(text: str) -> str:
    """What PostgreSQL stores of it."""
    return text.replace("\x00", "").encode(errors="replace").decode()


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both without the fields that are the same in both."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}


def seal(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a new row gets besides its own: both salts, both digests, and the digest of the whole."""
    sealed: dict[str, Any] = {"who_salt": secrets.token_bytes(SALT_BYTES), "what_salt": secrets.token_bytes(SALT_BYTES)}
    sealed["who_digest"] = group_digest(row, WHO, sealed["who_salt"])
    sealed["what_digest"] = group_digest(row, WHAT, sealed["what_salt"])
    return sealed | {"digest": core_digest({**row, **sealed})}


def group_digest(row: Mapping[str, Any], names: tuple[str, ...], salt: bytes) -> str:
    content = canonical_json({name: row[name] for name in names})
    return hmac.new(salt, content.encode(), hashlib.sha256).hexdigest()


def core_digest(row: Mapping[str, Any]) -> str:
    values = {name: row[name] for name in CORE}
    values["at"] = row["at"].astimezone(UTC).isoformat(timespec="microseconds")
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


def link_hash(position: int, prev_hash: str, digest: str) -> str:
    """As the database computes it."""
    return hashlib.sha256(f"{position} {prev_hash} {digest}".encode()).hexdigest()
