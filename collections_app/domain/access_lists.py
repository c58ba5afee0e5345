"""An access list as people state it: the users and groups that may read a document, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragd.errors import InvalidInput

NAMES_MAX = 500
NAME_MAX_CHARS = 150
FIELDS = ("restricted", "users", "groups", "unknown", "origin", "of")
EVERYBODY_NAME = "*"
EXAMPLE = '{"users": ["ada"], "groups": ["rangers"]}'


@dataclass(frozen=True, slots=True)
class StatedAccess:
    """restricted: only these users and groups read it, beside the administrators; else who may read the collection."""

    restricted: bool = True
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


UNRESTRICTED = StatedAccess(restricted=False)


def read_access(value: Any) -> StatedAccess:
    """From JSON such as {"users": ["ada"], "groups": ["rangers"]}, {} for administrators alone, or
    {"restricted": false}. Raises InvalidInput. What an answer adds (origin, of, unknown) may be sent back."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"access must be a JSON object such as {EXAMPLE}", field="access")
    if unknown := sorted(set(value) - set(FIELDS)):
        raise InvalidInput(f"access has no field {unknown[0]!r}; it takes users, groups and restricted", field="access")
    restricted = value.get("restricted", True)
    users, groups = (_names(value, name) for name in ("users", "groups"))
    if not isinstance(restricted, bool):
        raise InvalidInput(f"access.restricted must be true or false, not {restricted!r}", field="access")
    if not restricted and (users or groups):
        raise InvalidInput(
            "access with restricted: false names nobody, because everybody reads it; leave users and groups out",
            field="access",
        )
    return StatedAccess(restricted, users, groups)


def parse_access(text: str | None) -> StatedAccess | None:
    """From the text of a form field; None for an empty one: nothing is said."""
    if not (text or "").strip():
        return None
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        value = None
    return read_access(value)


def _names(value: Mapping[str, Any], field: str) -> tuple[str, ...]:
    names = value.get(field) or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidInput(f"access.{field} must be a list of names, such as {EXAMPLE}", field="access")
    if len(names) > NAMES_MAX or any(len(name) > NAME_MAX_CHARS for name in names):
        raise InvalidInput(
            f"access.{field} must be at most {NAMES_MAX} names of at most {NAME_MAX_CHARS} characters", field="access"
        )
    return tuple(dict.fromkeys(name.strip().replace("\x00", "") for name in names))
