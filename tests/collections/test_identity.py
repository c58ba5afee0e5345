from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.errors import InvalidInput
from ragd.identity import check_doc_id, clean_metadata, clean_tags, clean_title, doc_id_from_key, doc_id_from_name
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("name", "doc_id"),
    [
        ("a.txt", "a.txt"), ("folder/a.txt", "folder/a.txt"), ("folder\\a.txt", "folder/a.txt"),
        ("../../etc/passwd", "etc/passwd"), ("/a//b/./c", "a/b/c"), (" a .txt ", "a .txt"),
        ("a\x00\u202eb.txt", "ab.txt"),
        ("Cafe\u0301.txt", "Café.txt"), ("x" * 600, "x" * 512),
    ],
)  # fmt: skip
def test_a_file_name_becomes_an_acceptable_id(name: str, doc_id: str) -> None:
    assert doc_id_from_name(name) == doc_id


@pytest.mark.fault("ID-03")
@pytest.mark.parametrize("key", ["p/d//e.md", "p/d/e.md", "p//d//e.md", "a\\b.md", "x +%2B::[?#'&.md", "/a.md"])
def test_a_key_of_a_source_keeps_its_identity(key: str) -> None:
    assert doc_id_from_key(key) == key


@pytest.mark.fault("ID-01")
def test_an_id_is_kept_in_one_form() -> None:
    assert check_doc_id("Cafe\u0301.txt") == doc_id_from_key("Cafe\u0301.txt") == "Café.txt"


@given(st.text())
def test_whatever_a_name_becomes_is_acceptable_or_refused(name: str) -> None:
    try:
        doc_id = doc_id_from_name(name)
    except InvalidInput:
        return
    assert check_doc_id(doc_id) == doc_id


@given(st.text())
def test_a_clean_title_stays_clean(text: str) -> None:
    try:
        title = clean_title(text)
    except InvalidInput:
        return
    assert clean_title(title) == title and "\n" not in title and "\x00" not in title


def test_tags_lose_blanks_and_repeats() -> None:
    assert clean_tags([" a ", "b", "a", "", "\x00", "c\nd"]) == ("a", "b", "c d")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"x"])
def test_metadata_that_is_no_json_is_refused(value: object) -> None:
    with refuses("invalid_input", "metadata"):
        clean_metadata({"key": [value]})


def test_metadata_that_nests_too_deep_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(50):
        deep = {"in": deep}
    with refuses("invalid_input", "metadata", "20"):
        clean_metadata(deep)
