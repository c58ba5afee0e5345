"""Records of what happened, whose annotations say as which attributes each field is written.

    model: Annotated[str, "gen_ai.request.model", "llm.model_name"]

A field has a name in each of the three vocabularies that know it, and a property may have names like a field. One of
a type that is a float is written as a double.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ragd.telemetry.content import Value


def attributes_of(record: Any) -> dict[str, Value | None]:
    """The attributes of a record. None and empty lists are left out."""
    attributes: dict[str, Value | None] = {}
    for field, (names, is_double) in names_of(record.__class__).items():
        value = getattr(record, field)
        if isinstance(value, list | tuple):
            value = list(value) or None
        if value is not None:
            attributes |= dict.fromkeys(names, float(value) if is_double else value)
    return attributes


def record_names(kinds: Iterable[type]) -> set[str]:
    """All attribute names of these kinds of records."""
    return {name for kind in kinds for names, _ in names_of(kind).values() for name in names}


@cache
def names_of(kind: type) -> Mapping[str, tuple[tuple[str, ...], bool]]:
    """Field or property of a record -> its attribute names, and whether they are doubles."""
    hints: dict[str, Any] = get_type_hints(kind, include_extras=True)
    for owner in kind.__mro__:
        for name, member in vars(owner).items():
            if isinstance(member, property):
                hints[name] = get_type_hints(member.fget, include_extras=True).get("return")
    return {
        name: (hint.__metadata__, float in (hint.__origin__, *get_args(hint.__origin__)))
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
    }
