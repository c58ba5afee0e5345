from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from collections_app.documents.services import ingest_text
from collections_app.models import Collection


def encode(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "x", "!!!", "ä", encode({}), encode([]), encode([["doc_id"], []]), encode([["name"], ["a"]]),
        encode([["doc_id"], [None]]), encode([["doc_id"], [{"at": "never"}]]), encode([["doc_id"], ["a\x00"]]),
        encode([["doc_id"], [[1]]]), encode([["doc_id"], [1.5]]),
    ],
)  # fmt: skip
def test_a_cursor_that_this_list_did_not_give_is_422(api: Any, notes: Collection, cursor: str) -> None:
    response = api.get(f"/collections/notes/documents?cursor={cursor}")
    assert (response.status_code, response.json()["error"]["field"]) == (422, "cursor")


LISTS = ["runs", "jobs", "batches", "operations", "api-keys", "evaluation-runs", "experiments"]
AT = {"at": "2026-01-01T00:00:00+00:00"}
ID = {"id": "0" * 32}


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    "values",
    [["x", "y"], [1, 2], [AT, "y"], [AT, AT], ["x", ID], [{"at": "2026-01-01T00:00:00"}, ID]],
)
def test_a_cursor_whose_values_have_not_the_types_of_the_order_is_422(api: Any, path: str, values: list[Any]) -> None:
    response = api.get(f"/{path}?cursor={encode([['-created_at', '-id'], values])}")
    assert (response.status_code, response.json()["error"]["field"]) == (422, "cursor")


def test_a_cursor_with_half_a_surrogate_pair_or_a_number_for_a_text_is_422(api: Any, notes: Collection) -> None:
    for value in ("\ud800", 7):
        response = api.get(f"/collections/notes/documents?cursor={encode([['doc_id'], [value]])}")
        assert (response.status_code, response.json()["error"]["field"]) == (422, "cursor")


def test_pages_do_not_shift_when_rows_come_and_go(api: Any, notes: Collection) -> None:
    for doc_id in ("b", "d", "f"):
        ingest_text(notes, doc_id, "text")
    first = api.get("/collections/notes/documents?limit=2").json()
    ingest_text(notes, "a", "text")
    ingest_text(notes, "e", "text")
    api.delete("/collections/notes/documents/d")
    rest = api.get(f"/collections/notes/documents?limit=2&cursor={first['next_cursor']}").json()
    assert [row["doc_id"] for row in first["items"] + rest["items"]] == ["b", "d", "e", "f"]
