"""The language of typed filters: what is read, that writing is its inverse, where errors stand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from collections_app.documents.filters import complete_filter, read_filter, write_filter
from ragd.conditions import parse_condition
from ragd.errors import InvalidInput
from tests.refusals import raises_with
from tests.typed_filters import random_filter


def compare(field: str, op: str, value: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" ", {}),
        ("page >= 3", compare("page", "gte", 3)),
        ("metadata.price<-1.5e1", compare("metadata.price", "lt", -15.0)),
        ("language = de", compare("language", "eq", "de")),
        ("media_type == text/plain", compare("media_type", "eq", "text/plain")),
        ("created_at > 2024-01-31", compare("created_at", "gt", "2024-01-31")),
        ("created_at <= 2024-01-31T10:00:00+02:00", compare("created_at", "lte", "2024-01-31T10:00:00+02:00")),
        ("metadata.done = TRUE", compare("metadata.done", "eq", True)),
        ("metadata['my key'] <> 'it\\'s'", compare("metadata.my key", "ne", "it's")),
        ("tags not in ('a b', c)", compare("tags", "nin", ["a b", "c"])),
        ("tags in [a, 'b c']", compare("tags", "in", ["a", "b c"])),
        ("tags in ()", compare("tags", "in", [])),
        ("sender = anna@example.org", compare("sender", "eq", "anna@example.org")),
        ("section starts with (Guide, 'Install')", compare("section", "prefix", ["Guide", "Install"])),
        ("title starts 'Dr'", compare("title", "prefix", "Dr")),
        ("sheet is not null", compare("sheet", "exists", True)),
        ("sheet IS none", compare("sheet", "exists", False)),
        (
            "page = 1 and not (row = 2 or row = 3)",
            {"and": [compare("page", "eq", 1), {"not": {"or": [compare("row", "eq", 2), compare("row", "eq", 3)]}}]},
        ),
        (
            "page = 1 or page = 2 and row = 3",
            {"or": [compare("page", "eq", 1), {"and": [compare("page", "eq", 2), compare("row", "eq", 3)]}]},
        ),
    ],
)  # fmt: skip
def test_a_text_is_read_as_json(text: str, expected: dict[str, Any]) -> None:
    assert read_filter(text) == expected


def test_what_is_written_is_read_as_the_same() -> None:
    chance = random.Random(3)
    texts = set()
    for _ in range(400):
        condition = parse_condition(random_filter(chance))
        assert condition is not None
        text = write_filter(condition)
        assert parse_condition(read_filter(text)) == condition, text
        texts.add(text)
    assert len(texts) > 300


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("page >=", 8), ("page ? 3", 6), ("page = 3 and", 13), ("page 3", 6), ("prise = 3", 1),
        ("page = 1 and page = x", 14), ("(page = 1", 10), ("created_at > 2024-02-30", 1),
        ("page = 1 and title contains Annual", 14), ("'a' in tags", 8),
    ],
)  # fmt: skip
def test_an_error_says_where(text: str, position: int) -> None:
    with raises_with(InvalidInput, field="filter") as refusal:
        read_filter(text)
    assert f"position {position}" in refusal.value.message


@pytest.mark.parametrize("text", ["(" * 60, "not " * 60 + "page = 1", "page = 1 or " * 1000])
def test_a_filter_that_is_too_large_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_filter(text)


@pytest.mark.parametrize(
    ("text", "offered", "missing"),
    [
        ("", {"page", "metadata.price", "metadata['my key']", "not"}, {"page =", "sheet"}),
        ("pa", {"page"}, {"metadata.price"}),
        ("page ", {"page >=", "page in (", "page is not none"}, {"page starts with"}),
        ("tags ", {"tags =", "tags starts with"}, {"tags >="}),
        ("tags = ", {"tags = 'a b'", "tags = 'c'"}, {"tags = page"}),
        ("tags = a", {"tags = 'a b'"}, {"tags = 'c'"}),
        ("tags = 'a", {"tags = 'a b'"}, {"tags = 'c'"}),
        ("tags in (c, ", {"tags in (c, 'a b'"}, set()),
        ("metadata['my key'] = ", {"metadata['my key'] = 3"}, set()),
        ("page = 1 ", {"page = 1 and", "page = 1 or"}, {"page = 1 not"}),
        ("page = 1 and not ti", {"page = 1 and not title"}, set()),
        ("page ? ", set(), set()),
    ],
)  # fmt: skip
def test_what_may_come_next_is_offered(text: str, offered: set[str], missing: set[str]) -> None:
    held = {"tags": ["a b", "c"], "metadata.my key": [3]}

    def values_of(field: str, begun: str) -> list[Any]:
        return held.get(field, [])

    fields = ["page", "tags", "title", "metadata.price", "metadata.my key"]
    found = set(complete_filter(text, fields, values_of))
    assert offered <= found and not missing & found
    assert found or not offered
