"""What the services demand of values, stated in the API's description, so that what it calls valid is accepted.

The services check values by themselves and say what is wrong; the schemas of requests name types alone. The same name
means the same everywhere, so one table by the names of parameters and fields is enough; FIELDS has what holds for one
schema only. A limit that is stated where a parameter is defined stays. Formats name what no pattern can tell: a cursor
that a list gave, a filter, a language of the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, get_args

from collections_app.connectors.registry import connector_kinds
from collections_app.domain.identity import DOC_ID_MAX_CHARS, LABEL_MAX_CHARS, NAME_MAX_CHARS, TAG_MAX_CHARS, TAGS_MAX
from collections_app.http.paging import LIMIT_MAX
from collections_app.models import Operation
from collections_app.policies import MAX_CHARS_LIMIT, TOKENS_LIMIT
from collections_app.services.connectors.records import SCHEDULE_MAX
from collections_app.services.governance.security_policy import SCORE_MAX
from evaluation_app.scoring.sampling import PER_DAY_MAX
from evaluation_app.spans.exports.formats import FORMATS
from evaluation_app.spans.store.columns import OI_KINDS, OTEL_KINDS
from ragd import telemetry
from ragd.types import HOPS_MAX, POOL_MAX, RRF_K_MAX, ChunkKind
from retrieval_app.runs.lineage import DAYS_MAX
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
CHUNK_KEY: Schema = {
    "maxLength": DOC_ID_MAX_CHARS + len("#999999"),
    "pattern": DOC_ID["pattern"].replace("|$", "|#").removesuffix("$") + "#[0-9]{1,6}$",
}
DOC_CHARS = rf"[^{UNSEEN}{SPACE}/.#]{{1,200}}"
LINE: Schema = {"minLength": 1, "maxLength": LABEL_MAX_CHARS, "pattern": EDGE}
VISIBLE = rf"[^{UNSEEN}{SPACE}\u00ad\u200b-\u200d\u2060-\u2064]"
TEXT: Schema = {"minLength": 1, "pattern": VISIBLE}
NUMBER: Schema = {"pattern": r"^([0-9]{1,9}(\.[0-9]{1,3})?)?$"}
TEXT_OR_NONE: Schema = {"pattern": rf"^$|{VISIBLE}"}
LANGUAGE: Schema = {"pattern": r"^([a-z]{2})?$"}
MOMENT: Schema = {
    "pattern": r"^$|^[1-9][0-9]{0,3}[mhd]$|^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$"
}
COUNT: Schema = {"minimum": 1, "maximum": POOL_MAX}
WORDS: Schema = {"minimum": 1, "maximum": TOKENS_LIMIT}
CHARS: Schema = {"minimum": 1, "maximum": MAX_CHARS_LIMIT}
SHA256: Schema = {"pattern": "^[0-9a-f]{64}$"}
SOME: Schema = {"minItems": 1}

NAMES: Schema = {"type": "array", "items": {"type": "string"}}
ACCESS: Schema = {
    "properties": {"users": NAMES, "groups": NAMES, "restricted": {"type": "boolean"}},
    "additionalProperties": False,
}

PARAMETERS: Mapping[str, Schema] = {
    "limit": {"minimum": 1, "maximum": LIMIT_MAX},
    "cursor": {"format": "cursor"},
    "after": {"format": "cursor"},
    "doc_id": DOC_ID,
    "days": {"minimum": 1, "maximum": DAYS_MAX},
    "filter": {"format": "filter"},
    "where": {"format": "span-filter"},
    "plan": NAME,
    "since": MOMENT,
    "until": MOMENT,
    "min_ms": NUMBER,
    "max_ms": NUMBER,
}
# of one operation: path and parameter
OPERATIONS: Mapping[tuple[str, str], Schema] = {
    ("/v1/operations", "kind"): {"enum": list(Operation.Kind.values)},
    ("/v1/spans/export", "content"): {"enum": ["stored"]},
    ("/v1/runs/{run_id}/spans/export", "content"): {"enum": ["stored"]},
    ("/v1/spans/export", "format"): {"enum": list(FORMATS)},
    ("/v1/runs/{run_id}/spans/export", "format"): {"enum": list(FORMATS)},
    ("/v1/audit/download", "format"): {"enum": ["jsonl", "ocsf"]},
    ("/v1/spans", "kind"): {"items": {"enum": [*OI_KINDS, *OTEL_KINDS]}},
    ("/v1/spans", "environment"): {"items": {"enum": [*telemetry.ENVIRONMENTS, "all"]}},
    ("/v1/spans", "status"): {"items": {"enum": ["ok", "error", "unset"]}},
    ("/v1/golden-sets/{golden_set}/import", "columns"): {"format": "columns"},
}
BODIES: Mapping[str, Schema] = {
    "doc_id": DOC_ID,
    "query": {"minLength": 1, "maxLength": QUERY_CHARS_MAX, "pattern": EDGE},
    "filter": {"format": "filter"},
    "where": {"format": "filter"},
    "label": LINE,
    "tags": {"maxItems": TAGS_MAX, "items": {"maxLength": TAG_MAX_CHARS}},
    "collections": {"items": NAME},
    "doc_ids": {"items": DOC_ID},
    "k": COUNT,
    "candidate_pool": COUNT,
    "rrf_k": {"minimum": 1, "maximum": RRF_K_MAX},
    "ef_search": COUNT,
    "hops": {"minimum": 1, "maximum": HOPS_MAX},
    "token_budget": {"minimum": 1, "maximum": 10_000_000},
    "weights": {"format": "weights"},
    "kind": {"enum": list(get_args(ChunkKind))},
    "target_tokens": WORDS,
    "overlap_tokens": {"minimum": 0},
    "max_chars": CHARS,
    "chunk_target_tokens": WORDS,
    "chunk_overlap_tokens": {"minimum": 0},
    "chunk_max_chars": CHARS,
    "min_score": {"minimum": 0, "maximum": SCORE_MAX},
    "rate": {"exclusiveMinimum": 0, "maximum": 1},
    "revisions": {"minimum": 0, "maximum": 1000},
    "rerank": {"pattern": "^[!-~]+$"},
    "judge_model": {"pattern": f"^[^{UNSEEN}]*$"},
    "metadata": {"format": "json"},
    "access": ACCESS,
    "runs_days": {"minimum": 0, "maximum": DAYS_MAX},
    "deleted_days": {"minimum": 0, "maximum": DAYS_MAX},
    "embed_dims": {"minimum": 1, "maximum": 2000},
    "expected_chunks": {"items": CHUNK_KEY},
    "per_day": {"minimum": 1, "maximum": PER_DAY_MAX},
    "sha256": SHA256,
    "urls": SOME,
    "models": SOME,
    "files": SOME,
    "bucket": {"minLength": 3, "maxLength": 63, "pattern": "^[a-z0-9][a-z0-9-]+[a-z0-9]$"},
    "embed_model": {"minLength": 1, "maxLength": 200, "pattern": rf"^[^{UNSEEN}{SPACE}]+$"},
    "endpoint": {"pattern": r"^(https?://[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,4})?)?$"},
    "language": LANGUAGE,
}
FIELDS: Mapping[tuple[str, str], Schema] = {
    ("CollectionRequest", "name"): NAME,
    ("ConnectorRequest", "kind"): {"enum": list(connector_kinds())},
    ("ConnectorRequest", "name"): {"minLength": 1, "maxLength": 100, "pattern": rf"^{EDGE}[^{UNSEEN}]*$"},
    ("ConnectorRequest", "prefix"): {"pattern": f"^({DOC_CHARS})?$"},
    ("ConnectorRequest", "schedule"): {"minimum": 0, "maximum": SCHEDULE_MAX},
    ("GoldenSetRequest", "name"): NAME,
    ("GoldenSetChanges", "name"): NAME,
    ("QuestionRequest", "question"): TEXT,
    ("FeedbackIn", "comment"): TEXT_OR_NONE,
    ("FeedbackIn", "correction"): TEXT_OR_NONE,
    ("CollectionRequest", "language"): {"format": "language"},
    ("CollectionChanges", "language"): {"format": "language"},
    ("DocumentRequest", "content"): TEXT,
    ("NewChunk", "content"): TEXT,
    ("ChunkChanges", "content"): TEXT,
    ("PreviewRequest", "content"): TEXT,
    ("GenerationRequest", "language"): {"format": "language"},
    ("FilterRequest", "language"): {"pattern": "^([a-z]{2}|unknown)?$"},
    ("BakeOffRequest", "k"): {"minimum": 1, "maximum": 100},
    ("GateRequest", "margin"): {"minimum": 0, "maximum": 1},
}
REFUSALS = ("400", "401", "403", "404", "422", "500", "503")
ERROR_CONTENT: Schema = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
NULL: Schema = {"type": "null"}
STATED: Schema = {"not": NULL}


def _either(first: str, second: str) -> Schema:
    """One of the two fields, and not both."""
    return {
        "oneOf": [
            {"required": [one], "properties": {one: STATED, other: NULL}}
            for one, other in ((first, second), (second, first))
        ]
    }


SCHEMAS: Mapping[str, Schema] = {
    "ChunkChanges": _either("content", "enabled"),
    "PreviewRequest": _either("doc_id", "content"),
    "BulkRequest": _either("doc_ids", "filter"),
    "QuestionRequest": {"allOf": [{"required": ["question"], "properties": {"question": STATED}}]},
    "FeedbackIn": {
        "anyOf": [
            {"required": ["correct"], "properties": {"correct": STATED}},
            {"required": ["comment"], "properties": {"comment": {"minLength": 1}}},
            {"required": ["correction"], "properties": {"correction": {"minLength": 1}}},
        ]
    },
}


def state_limits(document: Schema) -> Schema:
    """The description with the limits of the tables, changed in place. What answers are made of stays as it is."""
    for address, path in document.get("paths", {}).items():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                name = parameter["name"]
                _narrow(parameter["schema"], OPERATIONS.get((address, name)) or PARAMETERS.get(name, {}))
            for form in operation.get("requestBody", {}).get("content", {}).values():
                for name, schema in form.get("schema", {}).get("properties", {}).items():
                    _drop_null(schema)
                    _narrow(schema, BODIES.get(name, {}))
            _state_refusals(operation)
    schemas: dict[str, Schema] = document.get("components", {}).get("schemas", {})
    answers = set(_reachable(document, schemas, "responses"))
    for name in set(_reachable(document, schemas, "requestBody")) - answers:
        schemas[name].update(SCHEMAS.get(name, {}))
        for field, schema in schemas[name].get("properties", {}).items():
            _narrow(schema, FIELDS.get((name, field)) or BODIES.get(field, {}))
    return document


def _drop_null(schema: Schema) -> None:
    """A field of a form is left out and never null."""
    if "anyOf" in schema:
        schema["anyOf"] = [part for part in schema["anyOf"] if part != NULL]


def _state_refusals(operation: Schema) -> None:
    """An operation that states no refusal is answered like the others."""
    answers = operation.get("responses", {})
    if operation.get("security") and not any(str(status).startswith("4") for status in answers):
        for status in REFUSALS:
            answers[status] = {"description": HTTPStatus(int(status)).phrase, "content": ERROR_CONTENT}


def _narrow(schema: Schema, limits: Mapping[str, Any]) -> None:
    """Into each alternative that the limits can mean; what it says already stays."""
    for part in schema.get("anyOf") or [schema]:
        for pydantic, name in (("ge", "minimum"), ("le", "maximum")):  # what it could not say of a union
            if pydantic in part:
                part.setdefault(name, part.pop(pydantic))
        kind = part.get("type")
        stated = {
            name: value
            for name, value in limits.items()
            if kind in KINDS[name]
            and (name == "items" or name not in part)
            and "enum" not in part
            and "const" not in part
        }
        if isinstance(inner := stated.pop("items", None), Mapping) and "$ref" not in part.get("items", {}):
            _narrow(part.setdefault("items", {"type": "string"}), inner)
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
    "items": ("array",),
    "properties": ("object",),
    "additionalProperties": ("object",),
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
