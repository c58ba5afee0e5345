"""Typed filters as one SQL condition over a chunk's row; `ragd.conditions` says what they mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ragd import conditions
from ragd.errors import InvalidInput

# A comparison that knows no answer, as of a value that is not there, is not true: AND and OR of the parts give the same
# rows either way, and what is negated is asked with IS NOT TRUE.
JSON_MATCHES = "{column} @@ {value}::jsonpath"
IN_DOCUMENT = """(doc_id IN (SELECT d.doc_id FROM {documents} d
        WHERE d.collection_id = %(collection_id)s AND {condition})) IS TRUE"""
# what the chunk says of itself, else its document
OF_CHUNK_OR_DOCUMENT = "({of_chunk} OR (NOT attributes ? '{field}' AND {of_document}))"
HAS_TAG = "tags @> ARRAY[{value}::text]"
HAS_ANY_TAG = "tags && {value}::text[]"
# Functions and JSON paths where a subquery over the row would say the same: a spread table takes no such subquery.
SOME_TAG = "to_jsonb(tags) @@ {value}::jsonpath"
SOME_TIME = "ragd_has_time({column}, {path}::jsonpath, {low}, {high})"

OF_DOCUMENT = ("tags", "doc_id", *sorted(conditions.DOCUMENT_FIELDS | conditions.INHERITED_FIELDS))
NEVER, ALWAYS, INSTANT = "'-infinity'", "'infinity'", "interval '1 microsecond'"
SIGNS = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def condition_sql(condition: conditions.Condition, documents: str = "documents") -> tuple[str, dict[str, Any]]:
    """The condition over the columns doc_id, tags, metadata and attributes of a row of chunks, and its parameters.

    It also reads %(collection_id)s. documents: the table of the documents, with collection_id.
    """
    writer = _Writer(documents)
    return f"({writer.write(condition)})", writer.params


def document_condition_sql(condition: conditions.Condition) -> tuple[str, dict[str, Any]]:
    """The condition over a row of documents, and its parameters. Raises InvalidInput for a field of chunks alone."""
    for comparison in conditions.compared_fields(condition):
        if comparison.kind != "json" and comparison.field not in OF_DOCUMENT:
            raise InvalidInput(
                f"{comparison.field} is of chunks; documents are filtered by metadata.KEY, {', '.join(OF_DOCUMENT)}",
                field="filter",
            )
    writer = _Writer("")
    return f"({writer.write(condition)})", writer.params


def is_indexed(condition: conditions.Condition) -> bool:
    """Whether an index of the chunks finds what passes: equality of some part that all must satisfy."""
    if isinstance(condition, conditions.AllOf):
        return any(map(is_indexed, condition.parts))
    if (
        not isinstance(condition, conditions.Comparison)
        or condition.op not in ("eq", "in")
        or condition.kind in ("pages", "time")
    ):
        return False
    return condition.field not in conditions.DOCUMENT_FIELDS | conditions.INHERITED_FIELDS


class _Writer:
    """documents: their table; "" where the row is one of it."""

    def __init__(self, documents: str) -> None:
        self.documents = documents
        self.params: dict[str, Any] = {}

    def write(self, condition: conditions.Condition) -> str:
        if isinstance(condition, conditions.Comparison):
            return self._comparison(condition)
        if isinstance(condition, conditions.Negation):
            return f"({self.write(condition.part)}) IS NOT TRUE"
        word = " AND " if isinstance(condition, conditions.AllOf) else " OR "
        return word.join(f"({self.write(part)})" for part in condition.parts)

    def _comparison(self, comparison: conditions.Comparison) -> str:
        field, op, value = comparison.field, comparison.op, comparison.value
        if op in conditions.OPPOSITES:
            return f"({self._comparison(conditions.Comparison(field, conditions.OPPOSITES[op], value))}) IS NOT TRUE"
        if op == "exists" and value is False:
            return f"({self._comparison(conditions.Comparison(field, op, True))}) IS NOT TRUE"
        if op == "in" and not value:
            return "false"
        if field == "tags":
            return self._tags(op, value)
        if field == "doc_id":
            return self._column("doc_id", op, value)
        if field in conditions.DOCUMENT_FIELDS or (not self.documents and field in conditions.INHERITED_FIELDS):
            return self._of_document(comparison)
        of_chunk = self._json(comparison)
        if field not in conditions.INHERITED_FIELDS:
            return of_chunk
        return OF_CHUNK_OR_DOCUMENT.format(of_chunk=of_chunk, of_document=self._of_document(comparison), field=field)

    def _of_document(self, comparison: conditions.Comparison) -> str:
        name = f"d.{comparison.field}" if self.documents else comparison.field
        inside = self._time if comparison.kind == "time" else self._column
        condition = f"({inside(name, comparison.op, comparison.value)})"
        if not self.documents:
            return condition
        return IN_DOCUMENT.format(documents=self.documents, condition=condition)

    def _param(self, value: Any) -> str:
        name = f"where_{len(self.params)}"
        self.params[name] = value
        return f"%({name})s"

    def _tags(self, op: str, value: Any) -> str:
        if op == "exists":
            return "cardinality(tags) > 0"
        if op == "eq":
            return HAS_TAG.format(value=self._param(value))
        if op == "in":
            return HAS_ANY_TAG.format(value=self._param(list(value)))
        test = _path_test("@", op, value)
        return SOME_TAG.format(value=self._param(f'exists($[*] ? (@ != "" && {test}))'))

    def _column(self, name: str, op: str, value: Any) -> str:
        """A comparison of a text column that is '' where there is no value."""
        if op == "exists":
            return f"{name} <> ''"
        if op == "in":
            return f"{name} = ANY({self._param(list(value))}::text[]) AND {name} <> ''"
        if op == "prefix":
            return f"starts_with({name}, {self._param(value)}::text) AND {name} <> ''"
        return f"{name} COLLATE \"C\" {SIGNS[op]} {self._param(value)}::text AND {name} <> ''"

    def _time(self, expression: str, op: str, value: Any) -> str:
        """A comparison of a timestamptz that is there."""
        if op == "exists":
            return "true"
        if op == "in":
            return " OR ".join(f"({self._time(expression, 'eq', item)})" for item in value)
        period = conditions.parse_period(value)
        assert period is not None, "the condition was read"
        if op == "eq":
            low, high = self._param(period.first.isoformat()), self._param(period.last.isoformat())
            return f"{expression} BETWEEN {low}::timestamptz AND {high}::timestamptz"
        end = period.last if op in ("gt", "lte") else period.first
        return f"{expression} {SIGNS[op]} {self._param(end.isoformat())}::timestamptz"

    def _json(self, comparison: conditions.Comparison) -> str:
        """Of a value in metadata or attributes."""
        field, op, value = comparison.field, comparison.op, comparison.value
        of_metadata = field.startswith(conditions.METADATA)
        column = "metadata" if of_metadata else "attributes"
        paths = conditions.metadata_paths(field) if of_metadata else [[field]]
        if op != "exists" and (
            comparison.kind == "time" or (of_metadata and op in conditions.ORDER_OPS and _is_time(value))
        ):
            values = value if op == "in" else [value]
            return " OR ".join(self._some_time(column, path, op, each) for path in paths for each in values)
        if comparison.kind == "pages" and op != "exists":
            tests = _span_tests(field, op, value)
        else:
            tests = " || ".join(_path_test(json_path(steps), op, value) for steps in paths)
        return JSON_MATCHES.format(column=column, value=self._param(tests))

    def _some_time(self, column: str, steps: Sequence[str], op: str, value: Any) -> str:
        period = conditions.parse_period(value)
        assert period is not None, "the condition was read"
        first, last = (f"{self._param(end.isoformat())}::timestamptz" for end in (period.first, period.last))
        bounds = {
            "gt": (f"{last} + {INSTANT}", ALWAYS),
            "gte": (first, ALWAYS),
            "lt": (NEVER, f"{first} - {INSTANT}"),
            "lte": (NEVER, last),
        }
        low, high = bounds.get(op, (first, last))
        return SOME_TIME.format(column=column, path=self._param(json_path(steps) + "[*]"), low=low, high=high)


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and conditions.parse_period(value) is not None


def json_path(steps: Sequence[str]) -> str:
    """A path of the SQL/JSON path language to these keys."""
    return "$" + "".join(f".{json.dumps(step)}" for step in steps)


def _path_test(path: str, op: str, value: Any) -> str:
    """A predicate of the SQL/JSON path language, in its lax mode: of a list, any element."""
    if op == "exists":
        return f'exists({path} ? (@.type() != "null"))'
    if op == "in":
        return "(" + " || ".join(f"{path} == {json.dumps(item)}" for item in value) + ")"
    if op == "prefix" and isinstance(value, tuple):
        return "(" + " && ".join(f"{path}[{place}] == {json.dumps(item)}" for place, item in enumerate(value)) + ")"
    sign = {"eq": "==", "prefix": "starts with"}.get(op) or SIGNS[op]
    return f"{path} {sign} {json.dumps(value)}"


def _span_tests(field: str, op: str, value: Any) -> str:
    """Of a span of whole numbers: whether any from the first to the last satisfies the comparison."""
    first, last = json_path([field]), json_path([conditions.SPAN_ENDS[field]])
    if op == "in":
        return " || ".join(f"({_span_tests(field, 'eq', item)})" for item in value)
    if op == "eq":
        return f"{first} == {value} || ({first} <= {value} && {last} >= {value})"
    if op in ("gt", "gte"):
        return f"{first} {SIGNS[op]} {value} || (exists({first}) && {last} {SIGNS[op]} {value})"
    return f"{first} {SIGNS[op]} {value}"
