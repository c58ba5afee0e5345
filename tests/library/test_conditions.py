"""Typed filters: what they mean, that SQL and Python mean the same, and what is refused."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from django.db import connection as django_connection

from ragd import conditions
from ragd.errors import InvalidInput
from ragd.search.conditions import condition_sql, document_condition_sql
from ragd.types import Filters, RetrievePlan
from tests.refusals import raises_with
from tests.typed_filters import random_filter, random_record

OF_CHUNKS = set(conditions.FIELDS) - {"tags", "doc_id", "title", "language", "media_type", "created_at", "updated_at"}
MAKE = """
CREATE TEMP TABLE rows_tried (number int, doc_id text COLLATE "C", tags text[], metadata jsonb, attributes jsonb)
    ON COMMIT DROP;
CREATE TEMP TABLE documents_tried (collection_id int, doc_id text COLLATE "C", title text, media_type text,
    language text, created_at timestamptz, updated_at timestamptz, tags text[], metadata jsonb) ON COMMIT DROP;
"""


def check(values: object, record: dict[str, Any]) -> bool:
    condition = conditions.parse_condition(values)
    assert condition is not None
    return conditions.matches(condition, record)


def compare(field: str, op: str, value: Any = None) -> dict[str, Any]:
    return {"field": field, "op": op} | ({} if value is None else {"value": value})


def test_sql_and_python_pass_the_same_rows(db: None) -> None:
    chance = random.Random(13)
    records = [random_record(chance, number) for number in range(250)]
    documents = {record["doc_id"]: record | {"attributes": {}} for record in records}
    counts, of_documents = [], 0
    with django_connection.cursor() as cursor:
        cursor.execute(MAKE)
        for number, record in enumerate(records):
            values = [
                number,
                record["doc_id"],
                record["tags"],
                *(json.dumps(record[k]) for k in ("metadata", "attributes")),
            ]
            cursor.execute("INSERT INTO rows_tried VALUES (%s, %s, %s, %s, %s)", values)
        for record in documents.values():
            names = ("doc_id", "title", "media_type", "language", "created_at", "updated_at", "tags")
            cursor.execute(
                "INSERT INTO documents_tried VALUES (7, %s, %s, %s, %s, %s, %s, %s, %s)",
                [*(record[name] for name in names), json.dumps(record["metadata"])],
            )
        for _ in range(700):
            stated = random_filter(chance)
            condition = conditions.parse_condition(stated)
            assert condition is not None
            sql, params = condition_sql(condition, "documents_tried")
            cursor.execute(f"SELECT number FROM rows_tried WHERE {sql}", params | {"collection_id": 7})
            passed = {number for (number,) in cursor.fetchall()}
            expected = {number for number, record in enumerate(records) if conditions.matches(condition, record)}
            assert passed == expected, stated
            counts.append(len(passed))
            if any(each.field in OF_CHUNKS for each in conditions.compared_fields(condition)):
                with pytest.raises(InvalidInput):
                    document_condition_sql(condition)
                continue
            sql, params = document_condition_sql(condition)
            cursor.execute(f"SELECT doc_id FROM documents_tried WHERE {sql}", params)
            chosen = {doc_id for doc_id, record in documents.items() if conditions.matches(condition, record)}
            assert {doc_id for (doc_id,) in cursor.fetchall()} == chosen, stated
            of_documents += 0 < len(chosen) < len(documents)
    assert sum(0 < count < len(records) for count in counts) > 300, "most filters tell rows apart"
    assert of_documents > 50


@pytest.mark.parametrize(
    ("stated", "metadata", "passes"),
    [
        (compare("metadata.n", "eq", 3), {"n": 3.0}, True),
        (compare("metadata.n", "eq", 3), {"n": "3"}, False),
        (compare("metadata.n", "eq", 1), {"n": True}, False),
        (compare("metadata.n", "eq", True), {"n": True}, True),
        (compare("metadata.n", "gt", 2), {"n": [1, 3]}, True),
        (compare("metadata.n", "lt", "b"), {"n": "B"}, True),
        (compare("metadata.n", "ne", 3), {}, True),
        (compare("metadata.n", "ne", 3), {"n": [1, 3]}, False),
        (compare("metadata.n", "nin", [1, 2]), {"n": 3}, True),
        (compare("metadata.n", "in", []), {"n": 3}, False),
        (compare("metadata.n", "exists"), {"n": None}, False),
        (compare("metadata.n", "exists"), {"n": False}, True),
        (compare("metadata.n", "exists", False), {"n": []}, True),
        (compare("metadata.a.b", "eq", 1), {"a": {"b": 1}}, True),
        (compare("metadata.a.b", "eq", 1), {"a.b": 1}, True),
        (compare("metadata.a.b", "eq", 1), {"a": [{"b": 2}, {"b": 1}]}, True),
        (compare("metadata.day", "gte", "2024-03-01"), {"day": "2024-03-01T00:30:00+02:00"}, False),
        (compare("metadata.day", "lte", "2024-02-29"), {"day": "2024-03-01T00:30:00+02:00"}, True),
        (compare("metadata.day", "gt", "2024-02-29"), {"day": "2024-02-29T23:59:59Z"}, False),
        (compare("metadata.day", "lt", "2024-03-01"), {"day": "soon"}, False),
        (compare("metadata.day", "lt", "2024-03-01"), {"day": "2023-02-30"}, False),
        ({"not": compare("metadata.n", "gt", 2)}, {}, True),
        ({"or": [compare("metadata.n", "eq", 1), compare("metadata.m", "eq", 1)]}, {"m": 1}, True),
        ({"and": [compare("metadata.n", "eq", 1), compare("metadata.m", "eq", 1)]}, {"m": 1}, False),
    ],
)  # fmt: skip
def test_metadata_is_compared_by_type(stated: dict[str, Any], metadata: dict[str, Any], passes: bool) -> None:
    assert check(stated, {"metadata": metadata}) is passes


@pytest.mark.parametrize(
    ("stated", "passes"),
    [
        (compare("page", "eq", 4), True),
        (compare("page", "eq", 6), False),
        (compare("page", "gte", 5), True),
        (compare("page", "gt", 5), False),
        (compare("page", "lt", 4), True),
        (compare("page", "in", [1, 5]), True),
        (compare("page", "ne", 4), False),
        (compare("section", "eq", "Install"), True),
        (compare("section", "prefix", ["Guide", "Install"]), True),
        (compare("section", "prefix", ["Install"]), False),
        (compare("section", "prefix", "Inst"), True),
        (compare("sent_at", "eq", "2024-03-01"), True),
        (compare("sent_at", "gt", "2024-03-01T08:00:00+02:00"), True),
        (compare("media_type", "prefix", "text/"), True),
        (compare("language", "exists"), False),
    ],
)  # fmt: skip
def test_a_chunk_is_found_by_its_place(stated: dict[str, Any], passes: bool) -> None:
    attributes = {"page": 3, "page_end": 5, "section": ["Guide", "Install"], "sent_at": "2024-03-01T07:00:00Z"}
    assert check(stated, {"attributes": attributes, "media_type": "text/html"}) is passes


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        (compare("price", "eq", 3), "price"),
        (compare("metadata.", "eq", 3), "metadata."),
        (compare("metadata.n", "like", "x"), "metadata.n"),
        (compare("page", "eq", "3"), "page"),
        (compare("page", "eq", True), "page"),
        (compare("page", "gte", 2.5), "page"),
        (compare("page", "prefix", "3"), "page"),
        (compare("title", "eq", 3), "title"),
        (compare("created_at", "gt", "yesterday"), "created_at"),
        (compare("created_at", "gt", "2024-02-30"), "created_at"),
        (compare("created_at", "gt", "2024-02-01T10:00:00"), "created_at"),
        (compare("metadata.day", "gt", "2024-02-01T10:00:00"), "metadata.day"),
        (compare("metadata.n", "gt", True), "metadata.n"),
        (compare("metadata.n", "gt", [1]), "metadata.n"),
        (compare("metadata.n", "in", "abc"), "metadata.n"),
        (compare("metadata.n", "exists", 1), "metadata.n"),
        (compare("metadata.n", "eq", float("nan")), "metadata.n"),
        (compare("metadata.n", "eq", "\x00"), "metadata.n"),
        (compare("metadata.n", "eq"), "metadata.n"),
        ({"field": "metadata.n", "op": "eq", "value": None}, "metadata.n"),
        (compare("metadata.n", "in", list(range(conditions.VALUES_MAX + 1))), "metadata.n"),
        (compare("metadata.n", "eq", "x" * 3000), "metadata.n"),
        ({**compare("page", "eq", 3), "boost": 2}, "boost"),
        ({"and": []}, "and"),
        ({"and": [compare("page", "eq", 3)], "or": []}, "and"),
        ([compare("page", "eq", 3)], "field"),
        ("page = 3", "field"),
        ({"field": ["page"], "op": "eq", "value": 3}, "field"),
        ({"or": [compare("page", "eq", 3)] * conditions.PARTS_MAX}, str(conditions.PARTS_MAX)),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_by_name(stated: object, named: str) -> None:
    with raises_with(InvalidInput, field="filter") as refusal:
        conditions.parse_condition(stated)
    assert named in refusal.value.message


def test_depth_is_limited() -> None:
    stated: dict[str, Any] = compare("page", "eq", 3)
    for _ in range(conditions.DEPTH_MAX - 1):
        stated = {"not": stated}
    assert conditions.parse_condition(stated)
    with pytest.raises(InvalidInput):
        conditions.parse_condition({"not": stated})


def test_equal_filters_have_one_form_and_one_hash() -> None:
    one, two, three = compare("page", "gte", 3), compare("metadata.n", "in", [2, 1.0, 2]), compare("title", "exists")
    same = (
        {"and": [one, two, three]},
        {
            "and": [
                {"value": 3, "op": "gte", "field": "page"},
                {"and": [three, compare("metadata.n", "in", [1, 2])]},
                one,
            ]
        },
    )
    plans = [RetrievePlan(filters=Filters(where=conditions.parse_condition(stated))) for stated in same]
    assert plans[0].hash == plans[1].hash
    assert RetrievePlan.from_dict(plans[0].as_dict()) == plans[0]
    assert RetrievePlan.from_dict(json.loads(json.dumps(plans[0].as_dict()))).hash == plans[0].hash
    assert (
        plans[0].hash != RetrievePlan(filters=Filters(where=conditions.parse_condition({"or": [one, two, three]}))).hash
    )


def test_a_plan_without_a_typed_filter_keeps_its_form() -> None:
    assert RetrievePlan().as_dict()["filters"] == {"tags_any": [], "tags_all": [], "metadata": {}}
    assert Filters.from_dict({"where": {}}) == Filters() and not Filters()
    assert Filters(where=conditions.parse_condition(compare("page", "eq", 1)))


def test_the_part_that_fails_is_told() -> None:
    page, kind = compare("page", "eq", 3), compare("metadata.kind", "eq", "x")
    condition = conditions.parse_condition({"and": [page, kind]})
    assert condition is not None
    failure = conditions.first_failure(condition, {"attributes": {"page": 3}, "metadata": {}})
    assert failure is not None and failure.as_dict() == kind
    assert conditions.first_failure(condition, {"attributes": {"page": 3}, "metadata": {"kind": "x"}}) is None
