"""Rows of field, operator and value write a typed filter, which stays what holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from collections_app.documents.edits import edit_document
from collections_app.documents.filters import FilterRow, filter_of_rows, read_filter, rows_of_filter
from collections_app.models import RoleGrant
from ragd.conditions import parse_condition
from ragd.errors import InvalidInput
from tests.web.pages import attribute, client_of, has, texts, tree

BUILDER = "/filter-builder/"


@pytest.mark.parametrize(
    "text",
    [
        "", "page >= 3", "page >= 3 and language = de", "title = '2024' or metadata.year = 2024",
        "metadata.year = '2024' and metadata.draft != true", "metadata['the <b>'] in ('a', 3, 'b c')",
        "title starts with 'An' and metadata.size < 1.5 and tags not in (x, y)",
        "metadata.x is none and page is not none",
        "created_at > 2024-01-31", "metadata.note = 'null' and metadata.other = '{'",
    ],
)  # fmt: skip
def test_rows_say_what_the_filter_says(text: str) -> None:
    shown = rows_of_filter(text)
    assert shown is not None
    written = filter_of_rows(*shown)
    assert parse_condition(read_filter(written)) == parse_condition(read_filter(text))
    assert rows_of_filter(written) is not None


@pytest.mark.parametrize(
    "text", ["not (page = 3)", "page = 1 and (language = de or language = en)", "page >=", "x\x00"]
)
def test_what_rows_cannot_show_is_left_as_it_is(text: str) -> None:
    assert rows_of_filter(text) is None


def test_rows_that_are_not_complete_say_nothing_and_wrong_values_are_told() -> None:
    rows = [FilterRow("page", "gte", " "), FilterRow("", "eq", "x"), FilterRow("title", "exists")]
    assert filter_of_rows("and", rows) == "title is not none"
    assert (
        filter_of_rows("xor", [FilterRow("title", "eq", "a"), FilterRow("tags", "eq", "b")])
        == "title = 'a' and tags = 'b'"
    )
    for wrong in (FilterRow("page", "eq", "three"), FilterRow("page", "near", "3"), FilterRow("colour", "eq", "red")):
        with pytest.raises(InvalidInput) as caught:
            filter_of_rows("and", [wrong])
        assert caught.value.field == "filter"


@pytest.mark.parametrize(("field", "without"), [("title", "gt"), ("page", "prefix"), ("created_at", "prefix")])
def test_a_field_offers_the_operators_of_its_kind(field: str, without: str) -> None:
    offered = dict(FilterRow(field).operators)
    assert without not in offered and {"eq", "ne", "in", "nin", "exists", "missing"} <= offered.keys()
    assert len(dict(FilterRow("metadata.any").operators)) == 11


@pytest.mark.django_db
def test_the_rows_are_those_of_the_collection(visitor: Client, fill: Callable[..., Any]) -> None:
    nature, attic = fill(), fill("attic")
    edit_document(nature, "whales.md", {"metadata": {"year": 2024, "kind": "sea", "code": "007"}})
    edit_document(nature, "trees.md", {"metadata": {"code": "7"}})
    edit_document(attic, "whales.md", {"metadata": {"secret": 1}})
    asked = {"collection": "nature", "of": "documents", "id": "id_filter", "filter": "metadata.kind = sea"}
    page = visitor.get(BUILDER, asked)
    fields = {node.attributes["value"] for node in tree(page).css("[name=row-field] option")}
    assert {"metadata.year", "metadata.kind", "title"} <= fields and not {"metadata.secret", "section"} & fields
    assert [node.attributes.get("value") for node in tree(page).css("[name=row-value]")] == ["sea", ""]
    assert attribute(page, "datalist option", "value") == "sea"
    assert not has(page, "[data-expression]") and not has(page, "form") and has(page, "[name=row-field][form]")
    rows = {
        "built": "1",
        "row-join": "or",
        "row-field": ["metadata.year", "title", ""],
        "row-op": ["gte", "prefix", "eq"],
    }
    rows |= {"row-value": ["2020", "Wh", ""]}
    page = visitor.get(BUILDER, asked | rows)
    assert (
        attribute(page, "[data-for=id_filter]", "data-expression") == "metadata.year >= 2020 or title starts with 'Wh'"
    )
    assert attribute(visitor.get(BUILDER, asked | rows | {"drop": "0"}), "[data-expression]", "data-expression") == (
        "title starts with 'Wh'"
    )
    wrong = visitor.get(BUILDER, asked | rows | {"row-field": ["page", "", ""], "row-value": ["many", "", ""]})
    assert has(wrong, ".errorlist") and not has(wrong, "[data-expression]")
    coded = visitor.get(BUILDER, asked | {"filter": "metadata.code = '7'"})
    assert [node.attributes["value"] for node in tree(coded).css("datalist option")] == ["007", '"7"']
    deep = visitor.get(BUILDER, asked | {"filter": "not (title = a)"})
    assert not has(deep, "[name=row-field]") and len(texts(deep, "p")) == 1


@pytest.mark.django_db
def test_who_may_not_see_a_collection_is_told_nothing_of_it(
    visitor: Client, fill: Callable[..., Any], django_user_model: type[User]
) -> None:
    nature, attic = fill(), fill("attic")
    edit_document(attic, "whales.md", {"metadata": {"secret": "obsidian"}})
    asked = {"collection": "attic", "id": "x", "filter": "metadata.secret = a"}
    assert b"obsidian" in visitor.get(BUILDER, asked).content
    reader = django_user_model.objects.create_user("reader")
    RoleGrant.objects.create(user=reader, collection_id=nature.pk, role="viewer")
    client = client_of(reader)
    page = client.get(BUILDER, asked)
    assert page.status_code == 200 and b"obsidian" not in page.content
    assert b"metadata.secret" not in client.get(BUILDER, asked | {"filter": ""}).content
