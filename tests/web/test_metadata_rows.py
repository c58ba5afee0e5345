"""Metadata is typed as rows of field, type and value; JSON holds where it was changed.
Rows of field, operator and value write a typed filter, which stays what holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.test import Client

from collections_app.documents.edits import edit_document
from collections_app.documents.filters import FilterRow, filter_of_rows, read_filter, rows_of_filter
from collections_app.documents.services import get_document
from collections_app.http.form_fields import EMPTY_ROWS, KINDS, MetadataField, Row, row_of, value_of
from collections_app.models import Document, RoleGrant
from ragd.conditions import parse_condition
from ragd.errors import InvalidInput
from tests.refusals import raises_with
from tests.web.pages import attribute, client_of, has, texts, tree, wrong_fields

EDIT = "/collections/nature/documents/whales.md/?view=edit"
VALUES: dict[str, Any] = {
    "a": "text", "b": " kept  as typed ", "c": "", "d": 3, "e": -4.5, "f": True, "g": False, "h": "2024-01-31",
    "i": ["x", "y z"], "j": [], "k": [1, 2], "l": {"m": [None]}, "n": None, "o": "two\nlines", "p": ["a, b"], "q": "3",
    "r": 12345678901234567890123,
}  # fmt: skip


def sent(*rows: tuple[str, str, str], **more: str) -> dict[str, Any]:
    names = ("metadata-key", "metadata-kind", "metadata-value")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return {"title": "Whales", "tags": "nature", "expected_revision": "1", **columns, **more}


def cleaned(*rows: tuple[str, str, str], **more: str) -> dict[str, Any]:
    data = QueryDict(mutable=True)
    for name, value in sent(*rows, **more).items():
        data.setlist(name, value if isinstance(value, list) else [value])
    field = MetadataField(required=False)
    values: dict[str, Any] = field.clean(field.widget.value_from_datadict(data, {}, "metadata"))
    return values


@pytest.mark.parametrize("key", VALUES)
def test_a_row_states_the_value_that_it_shows(key: str) -> None:
    row = row_of(key, VALUES[key])
    assert row.kind in dict(KINDS) and "\n" not in row.value
    assert (value_of(row), type(value_of(row))) == (VALUES[key], type(VALUES[key]))


def test_rows_that_say_nothing_are_left_out_and_json_holds_where_it_was_changed() -> None:
    assert cleaned(("year", "number", "2024"), ("", "text", ""), (" ", "number", " ")) == {"year": 2024}
    row = ("year", "number", "2024")
    assert cleaned(row, **{"metadata": '{"n":\r\n 1}', "metadata-was": '{"n":\n 1}'}) == {"year": 2024}
    assert cleaned(row, **{"metadata": '{"n": 2}', "metadata-was": '{"n": 1}'}) == {"n": 2}
    assert cleaned(row, **{"metadata": "{}", "metadata-was": '{"n": 1}'}) == {}
    assert cleaned() == {} and MetadataField(required=False).clean(None) == {}


@pytest.mark.parametrize(
    "row",
    [
        ("n", "number", "three"), ("n", "number", "NaN"), ("n", "number", "true"), ("n", "number", ""),
        ("n", "truth", "perhaps"), ("n", "date", "31.1.2024"), ("n", "date", "2024-02-30"), ("n", "json", "{"),
        ("", "text", "x"), ("n", "json", "[" * 100_000),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_by_its_field(row: tuple[str, str, str]) -> None:
    with pytest.raises(ValidationError) as caught:
        cleaned(("fine", "text", "x"), row)
    assert len(caught.value.messages) == 1
    with pytest.raises(ValidationError):
        cleaned(("same", "text", "x"), ("same", "text", "y"))


def test_an_unknown_type_is_text() -> None:
    assert value_of(Row("n", "colour", "3")) == "3"


@pytest.mark.django_db
def test_the_form_of_a_document_shows_rows_and_keeps_what_they_show(visitor: Client, fill: Callable[..., Any]) -> None:
    nature = fill()
    edit_document(nature, "whales.md", {"metadata": VALUES})
    page = visitor.get(EDIT)
    assert len(texts(page, "[data-row-of-metadata]")) == len(VALUES) + EMPTY_ROWS
    assert json.loads(attribute(page, "[name=metadata-was]", "value") or "") == VALUES
    rows = [(row.key, row.kind, row.value) for row in (row_of(key, value) for key, value in VALUES.items())]
    same = sent(*rows, expected_revision="2")
    visitor.post(EDIT, same)
    assert (get_document(nature, "whales.md").revision, get_document(nature, "whales.md").metadata) == (2, VALUES)
    visitor.post(EDIT, sent(("year", "number", "2024"), ("seen", "truth", "yes"), expected_revision="2"))
    assert get_document(nature, "whales.md").metadata == {"year": 2024, "seen": True}
    wrong = visitor.post(EDIT, sent(("year", "number", "old"), expected_revision="3"))
    assert wrong_fields(wrong) == ["metadata-key"] and wrong.status_code == 422
    assert attribute(wrong, "[name=metadata-value]", "value") == "old"
    assert has(wrong, "[name=metadata-kind] option[value=number][selected]")


@pytest.mark.django_db
def test_every_page_that_takes_metadata_takes_rows(visitor: Client, fill: Callable[..., Any]) -> None:
    fill()
    for address in ("upload/", "upload/?view=text", "upload/?view=urls", "documents/whales.md/?view=edit"):
        page = visitor.get(f"/collections/nature/{address}")
        assert has(page, "[data-row-of-metadata] [name=metadata-kind]") and has(page, "details textarea[name=metadata]")
    values = {"doc_id": "new.md", "content": "A new text about owls."}
    visitor.post(
        "/collections/nature/upload/?view=text",
        values | sent(("year", "number", "2024"), ("topics", "list", "owls, night")),
    )
    assert Document.objects.get(doc_id="new.md").metadata == {"year": 2024, "topics": ["owls", "night"]}


@pytest.mark.django_db
def test_the_fields_that_the_collection_has_are_offered(
    visitor: Client, fill: Callable[..., Any], django_user_model: type[User]
) -> None:
    nature, attic = fill(), fill("attic")
    edit_document(nature, "whales.md", {"metadata": {"year": 2024, "the <b>": True}})
    edit_document(attic, "whales.md", {"metadata": {"secret": 1}})
    asked = attribute(visitor.get(EDIT), "[data-metadata-rows]", "hx-get")
    assert asked is not None

    def offered(client: Client, address: str) -> list[str]:
        return [
            value for value in ("year", "the <b>", "secret") if has(client.get(address), f"option[value='{value}']")
        ]

    assert offered(visitor, asked) == ["year", "the <b>"]
    reader = django_user_model.objects.create_user("reader")
    RoleGrant.objects.create(user=reader, collection_id=nature.pk, role="viewer")
    client = client_of(reader)
    assert offered(client, asked) == ["year", "the <b>"]
    assert offered(client, asked.replace("nature", "attic")) == []


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
        with raises_with(InvalidInput, field="filter"):
            filter_of_rows("and", [wrong])


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
