"""What a word is: tokens, their forms, and that the database takes each word for one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import regex
import unicodedata2

import ragd
from ragd.normalization import UNICODE_VERSION, fold_case, has_visible, normalize
from ragd.store.store import Store, fetch_all
from ragd.text.tokens import find_tokens, fold, question_forms, read_question, remove_accents, text_forms
from ragd.types import Chunk, RetrievePlan

CASES = [
    pytest.param(text, query, marks=pytest.mark.fault(fault), id=f"{fault}-{query!a}")
    for fault, text, queries in (
        ("KW-01", "Order PPR-9087 shipped to the store.", ("9087", "ppr-9087")),
        ("KW-01", "The flaw CVE-2026-2332 lets anybody in.", ("2332", "CVE-2026-2332")),
        ("KW-03", "The patch MS17-010 closes the hole.", ("010", "MS17")),
        ("KW-04", "see photo-2024.jpg and read/write access", ("photo", "write", "read", "2024", "jpg")),
        ("KW-06", "Hikvision DS-7604NI-E1/4P/A recorder", ("7604", "DS-7604", "DS-7604NI")),
        ("KW-08", "Kennung \uff21\uff22\uff23\uff11\uff12\uff13", ("ABC123",)),
        ("KW-09", "Send your r\u00e9sum\u00e9 by Friday", ("resume", "r\u00e9sum\u00e9")),
        ("KW-09", "Fabryka w \u0141\u00f3d\u017a dzia\u0142a", ("Lodz", "\u0141\u00f3d\u017a")),
        ("KW-11", "The budget 2020-2024 was approved.", ("2024",)),
        ("KW-11", "Please call 555-1234 tomorrow", ("1234",)),
        ("KW-11", "Rules on COVID-19 at work", ("19",)),
        ("N-24", "AT&T", ("AT&T",)),
        ("N-24", "node.js", ("node",)),
        ("N-24", "version v2.10.3", ("2.10.3",)),
        ("N-24", "report_final-v2.docx", ("report_final", "report", "final", "docx")),
        ("N-24", "/usr/local/bin", ("local", "bin")),
        ("N-24", "F-16", ("16",)),
        ("N-24", "UTF-8, ISO-8859-1", ("8859",)),
        ("N-24", "24/7", ("24",)),
        ("N-24", "emoji \U0001f600 rocket \U0001f680", ("\U0001f680",)),
        ("N-24", "978-3-16-148410-0", ("148410",)),
        ("N-23", "zero\u200bwidth", ("zerowidth",)),
        ("N-23", "e\ufb03cient o\ufb03ce \ufb01nd", ("office", "find")),
        ("N-23", "kettle", ("kettle\u200b", "\u202ekettle")),
        ("N-23", "soft\u00adhyphen", ("softhyphen",)),
    )
    for query in queries
]


@pytest.fixture
def store(make_store: Any) -> Store:
    made: Store = make_store(language="english")
    return made


@pytest.mark.parametrize(("text", "query"), CASES)
def test_the_words_of_a_text_hold_those_of_the_question(text: str, query: str) -> None:
    held = {form for token in find_tokens(text) for place in text_forms(token).words for form in place}
    held |= {unit for token in find_tokens(text) for unit in text_forms(token).units}
    words, units = read_question(query, paired=True)
    assert held & {*words.split(), *units}


@pytest.mark.fault("KW-09")
def test_the_exact_form_ranks_before_no_other_form_lower(store: Store) -> None:
    texts = {"exact": "Send the r\u00e9sum\u00e9 now", "bare": "Send the resume now", "other": "Send the letter now"}
    ragd.index([Chunk(name, 0, text, 0, len(text), embedding=_vector(store)) for name, text in texts.items()], store)

    def find(query: str) -> list[str]:
        return [item.doc_id for item in ragd.retrieve(query, RetrievePlan(mode="lexical"), store)]

    assert find("r\u00e9sum\u00e9") == ["exact"]
    assert find("resume") == ["bare", "exact"]


def test_the_database_takes_each_word_for_one(store: Store) -> None:
    rng = random.Random(7)
    letters = [chr(code) for code in range(0x3000) if regex.match(r"[\p{L}\p{M}\p{N}]", chr(code))]
    for pool in ("0123456789abcdeExX", letters):
        made = " ".join(
            "".join(rng.choice(pool) for _ in range(rng.randint(1, 7))) + rng.choice("-/. ") for _ in range(500)
        )
        words, _ = read_question(made, paired=False)
        rows = fetch_all(store.connection, "SELECT token FROM ts_parse('default', %(words)s)", {"words": words})
        assert [token for (token,) in rows if token.strip()] == words.split()


def test_a_word_without_accents_stands_at_the_place_of_the_word() -> None:
    assert text_forms("R\u00e9sum\u00e9").words == (("r\u00e9sum\u00e9", "resume"),)
    assert question_forms("R\u00e9sum\u00e9").words == (("r\u00e9sum\u00e9",),)
    assert remove_accents("\u0451\u0436\u0439") == "\u0435\u0436\u0439"  # \u0439 is a letter of its own


def test_raised_numbers_stay_apart_and_digits_are_those_of_ascii() -> None:
    assert question_forms("10\u00b3").units == ("10^3", "10", "3")
    assert fold("\u0662\u0660\u0662\u0664") == "2024"
    assert fold("\u0130stanbul") == "istanbul"


@pytest.mark.parametrize("name", ["C++", "C#"])
def test_a_name_that_ends_in_signs_is_a_whole(name: str) -> None:
    assert find_tokens(f"in {name}, fast") == ["in", name, "fast"]
    assert question_forms(name).units == (name.lower(),)


@pytest.mark.fault("F6")
def test_normal_forms_are_those_of_one_version_of_unicode() -> None:
    assert UNICODE_VERSION == unicodedata2.unidata_version == "18.0.0"
    assert normalize("x\u0315\U00010efd") == "x\U00010efd\u0315"
    classes = {"Lu": r"\p{Lu}", "Mn": r"\p{Mn}", "Nd": r"\p{Nd}", "Cf": r"\p{Cf}"}
    for code in range(0, 0x20000, 7):
        category = unicodedata2.category(chr(code))
        if category in classes:
            assert regex.fullmatch(classes[category], chr(code)), f"U+{code:04X}: regex knows another Unicode"


def test_capitals_that_only_newer_pythons_know_are_not_folded() -> None:
    assert [fold_case(letter) for letter in ("\ua7cb", "\U00010d50", "\U00016ea0")] == [
        "\ua7cb",
        "\U00010d50",
        "\U00016ea0",
    ]
    assert fold_case("STRASSE \u00df \u1e9e") == "strasse ss ss"


@pytest.mark.fault("F15")
@pytest.mark.parametrize("text", ["\u200b", "\u2060\u00ad \n", "\u202e\ufe0f", "", "\u115f"])
def test_text_that_does_not_show_is_empty(text: str, store: Store) -> None:
    assert not has_visible(text)
    assert ragd.chunk(text, ragd.ChunkPolicy()) == []
    with pytest.raises(ragd.InvalidInput) as caught:
        ragd.retrieve(text, RetrievePlan(mode="lexical"), store)
    assert caught.value.field == "query"
    assert has_visible(f"{text}a") and has_visible("\u0300") and has_visible("\ue000")


def _vector(store: Store) -> Sequence[float]:
    return [1.0] + [0.0] * (store.collection.embed_dims - 1)
