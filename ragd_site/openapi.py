"""What the services demand of values, stated in the API's description, so that what it calls valid is accepted.

The services check values by themselves and say what is wrong; the schemas of requests name types alone. The same name
means the same everywhere, so one table by the names of parameters and fields is enough; FIELDS has what holds for one
schema only. A limit that is stated where a parameter is defined stays. Formats name what no pattern can tell: a cursor
that a list gave, a filter, a language of the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from collections_app.domain.identity import DOC_ID_MAX_CHARS, LABEL_MAX_CHARS, NAME_MAX_CHARS, TAGS_MAX
from collections_app.http.paging import LIMIT_MAX
from collections_app.services.governance.security_policy import SCORE_MAX
from retrieval_app.runs.query_pipeline import QUERY_CHARS_MAX

Schema = dict[str, Any]

UNSEEN = r"\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
SPACE = r"\u0009-\u000d\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
EDGE = rf"[^{UNSEEN}{SPACE}]"
IN_NAME = rf"{UNSEEN}/\\?#%"
NAME: Schema = {
    "minLength": 1,
    "maxLength": NAME_MAX_CHARS,
    "pattern": rf"^[^.{SPACE}{IN_NAME}]([^{IN_NAME}]*[^{SPACE}{IN_NAME}])?$",
}
DOC_ID: Schema = {
    "minLength": 1,
    "maxLength": DOC_ID_MAX_CHARS,
    "pattern": rf"^(?!\.\.?(?:/|$))(?!.*/\.\.?(?:/|$))[^{UNSEEN}{SPACE}]([^{UNSEEN}]*[^{UNSEEN}{SPACE}])?$",
}
LINE: Schema = {"minLength": 1, "maxLength": LABEL_MAX_CHARS, "pattern": EDGE}
TEXT: Schema = {"minLength": 1, "pattern": r"[A-Za-z0-9]"}
LANGUAGE: Schema = {"pattern": r"^([a-z]{2})?$"}
MOMENT: Schema = {
    "pattern": r"^$|^[1-9][0-9]{0,3}[mhd]$|^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"
}
POSITIVE: Schema = {"minimum": 1}

PARAMETERS: Mapping[str, Schema] = {
    "limit": {"minimum": 1, "maximum": LIMIT_MAX},
    "cursor": {"format": "cursor"},
    "doc_id": DOC_ID,
    "filter": {"format": "filter"},
    "where": {"format": "span-filter"},
    "since": MOMENT,
    "until": MOMENT,
}
BODIES: Mapping[str, Schema] = {
    "doc_id": DOC_ID,
    "query": {"minLength": 1, "maxLength": QUERY_CHARS_MAX, "pattern": EDGE},
    "filter": {"format": "filter"},
    "where": {"format": "filter"},
    "label": LINE,
    "tags": {"maxItems": TAGS_MAX},
    "target_tokens": POSITIVE,
    "max_chars": POSITIVE,
    "min_score": {"minimum": 0, "maximum": SCORE_MAX},
    "rate": {"exclusiveMinimum": 0, "maximum": 1},
}
FIELDS: Mapping[tuple[str, str], Schema] = {
    ("CollectionRequest", "name"): NAME,
    ("CollectionRequest", "language"): {"format": "language"},
    ("CollectionChanges", "language"): {"format": "language"},
    ("DocumentRequest", "language"): LANGUAGE,
    ("DocumentRequest", "content"): TEXT,
    ("DocumentChanges", "language"): LANGUAGE,
    ("NewChunk", "content"): TEXT,
}


def state_limits(document: Schema) -> Schema:
    """The description with the limits of the tables, changed in place. What answers are made of stays as it is."""
    for path in document.get("paths", {}).values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                _narrow(parameter["schema"], PARAMETERS.get(parameter["name"], {}))
    schemas: dict[str, Schema] = document.get("components", {}).get("schemas", {})
    answers = set(_reachable(document, schemas, "responses"))
    for name in set(_reachable(document, schemas, "requestBody")) - answers:
        for field, schema in schemas[name].get("properties", {}).items():
            _narrow(schema, FIELDS.get((name, field)) or BODIES.get(field, {}))
    return document


def _narrow(schema: Schema, limits: Mapping[str, Any]) -> None:
    """Into each alternative that the limits can mean; what it says already stays."""
    for part in schema.get("anyOf") or [schema]:
        kind = part.get("type")
        stated = {
            name: value
            for name, value in limits.items()
            if kind in KINDS[name] and name not in part and "enum" not in part and "const" not in part
        }
        part.update(stated)


KINDS: Mapping[str, tuple[str, ...]] = {
    "minimum": ("integer", "number"),
    "maximum": ("integer", "number"),
    "exclusiveMinimum": ("integer", "number"),
    "minLength": ("string",),
    "maxLength": ("string",),
    "pattern": ("string",),
    "format": ("string", "object"),
    "enum": ("string",),
    "minItems": ("array",),
    "maxItems": ("array",),
}


def _reachable(document: Schema, schemas: Mapping[str, Schema], part: str) -> Iterator[str]:
    """The names of the schemas that this part of any operation is made of."""
    waiting = [operation.get(part) for path in document.get("paths", {}).values() for operation in path.values()]
    seen: set[str] = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            name = str(item.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                yield name
                waiting.append(schemas.get(name))
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
