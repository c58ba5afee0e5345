"""Words by the language of each document: the same ranking on every path, the old lexemes where a language is named.
What a word is: tokens, their forms, and that the database takes each word for one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import regex
import unicodedata2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ragd
from ragd.insight.score_parts import find_words, query_words, word_shares, written_forms
from ragd.insight.what_if import Supposed, WhatIf
from ragd.normalization import UNICODE_VERSION, fold_case, has_visible, normalize
from ragd.search.lexical_search import inverse_document_frequency, read_query, scanned_rows
from ragd.search.pruned_search import pruned_rows
from ragd.store.analysis import own_language_of
from ragd.store.postings import build_postings
from ragd.store.store import Store, execute, fetch_all
from ragd.store.tables import IndexVersionSpec, create_collection
from ragd.text.languages import (
    ALL_CONFIGURATIONS,
    configuration_of,
    detect_language,
    indexed_pairs,
    pairs_of,
    split_runs,
)
from ragd.text.tokens import find_tokens, fold, question_forms, read_question, remove_accents, text_forms, word_terms
from ragd.text.windows import count_words
from ragd.types import Chunk, ChunkPolicy, RetrievePlan
from tests.refusals import raises_with

TEXTS = {
    "en": ("en", "The keys are valid for ninety days and boiling water is hot"),
    "de": ("de", "Die Schlüssel gelten neunzig Tage lang"),
    "zh": ("zh", "钥匙有效期为九十天，PostgreSQL数据库保存它们。"),
    "ja": ("ja", "鍵の有効期間は九十日です。"),
    "th": ("th", "กุญแจมีอายุเก้าสิบวัน"),
    "lo": ("lo", "ກະແຈມີອາຍຸເກົ້າສິບມື້"),
    "km": ("km", "កូនសោមានសុពលភាពកៅសិបថ្ងៃ។"),
    "my": ("my", "သော့များသည် ရက်ကိုးဆယ် သက်တမ်းရှိသည်။"),
}
QUESTIONS = {
    "boils keys": "en", "Schlüssels": "de", "钥匙有效": "zh", "postgresql": "zh", "有効期間": "ja", "อายุเก้าสิบ": "th",
    "ອາຍຸເກົ້າ": "lo", "សុពលភាព": "km", "သက်တမ်း": "my",
}  # fmt: skip
SHARED_WORDS = ("cancer", "radio", "hotel", "kettle", "berlin")  # no stop word anywhere
LONG_GERMAN = " ".join(f"Am Tag {day} liegt der Schlüssel unter der Matte, und die Fähre fährt." for day in range(60))
NUMBERS = count()
VECTOR = (1.0, 0.0, 0.0)
PLAN = RetrievePlan(mode="lexical", k=20)


def make_chunk(doc_id: str, **values: Any) -> Chunk:
    language, text = TEXTS[doc_id]
    attributes = {"language": values.pop("language", language)}
    return Chunk(doc_id, 0, text, 0, len(text), embedding=VECTOR, attributes=attributes, **values)


def make_store(connection: Any, name: str, language: str = "auto") -> Store:
    create_collection(connection, name=name, embed_model="given", embed_dims=3, language=language)
    return Store(connection, name)


@pytest.fixture
def store(connection: Any) -> Iterator[Store]:
    store = make_store(connection, "tongues")
    ragd.index([make_chunk(doc_id) for doc_id in TEXTS], store)
    yield store


@pytest.mark.parametrize(("question", "expected"), QUESTIONS.items())
def test_each_script_is_found_by_a_part_of_its_text(store: Store, question: str, expected: str) -> None:
    assert ragd.retrieve(question, PLAN, store)[0].doc_id == expected


def test_the_packed_path_and_the_supposed_one_rank_as_the_scan_does(store: Store) -> None:
    build_postings(store)
    state = store.state()
    for question in QUESTIONS:
        query = read_query(question, store, state)
        packed = pruned_rows(query.weights, query.chunks, query.vector, PLAN, store)
        assert packed == scanned_rows(query, PLAN, store)
        assert packed
    supposed = WhatIf(store, Supposed(gone_documents=("zh",)))
    _, then = supposed.compare("钥匙 keys Schlüssel", PLAN, None)
    ragd.store.indexing.delete_document_chunks(["zh"], store)
    now = ragd.retrieve("钥匙 keys Schlüssel", PLAN, store)
    assert [(item.key, item.score) for item in then] == [(item.key, item.score) for item in now]


def test_another_language_parses_the_stored_text_anew_and_leaves_no_trace(connection: Any, store: Store) -> None:
    def rows(its: Store) -> list[tuple[Any, ...]]:
        sql = f"SELECT doc_id, fts::text, lexical::text FROM {its.collection.partition} ORDER BY doc_id"
        terms = "SELECT term, chunk_count FROM chunk_terms WHERE collection_id = %(id)s AND chunk_count > 0 ORDER BY 1"
        return [*fetch_all(connection, sql), *fetch_all(connection, terms, {"id": its.collection.id})]

    before = rows(store)
    counts = ragd.index([make_chunk("en", language="fr")], store)
    assert counts["written"] == 1
    assert rows(store) != before
    ragd.index([make_chunk("en")], store)
    assert rows(store) == before
    assert ragd.index([make_chunk("en")], store)["written"] == 0


@pytest.mark.parametrize("language", ["english", "simple", "german"])
def test_a_named_configuration_keeps_its_lexemes(connection: Any, language: str) -> None:
    store = make_store(connection, "named", language)
    ragd.index([make_chunk(doc_id) for doc_id in TEXTS], store)
    sql = f"""SELECT doc_id FROM {store.collection.partition} WHERE NOT tsvector_to_array(fts) @>
              tsvector_to_array(to_tsvector(%(language)s::regconfig, context || E'\\n' || content))"""
    without_blanks = {"zh", "ja", "km", "my"}  # PostgreSQL takes their full stops for letters
    assert {doc_id for (doc_id,) in fetch_all(connection, sql, {"language": language})} <= without_blanks


def test_english_documents_have_the_lexemes_of_english_and_one_marker(connection: Any) -> None:
    store = make_store(connection, "plain")
    ragd.index([make_chunk("en"), replace(make_chunk("en"), doc_id="other", attributes={})], store)
    sql = f"""SELECT tsvector_to_array(fts) @> tsvector_to_array(to_tsvector('english', content)),
              ragd_bm25(fts, %(mean)s)::text = lexical::text, array_length(tsvector_to_array(fts), 1)
              - array_length(tsvector_to_array(to_tsvector('english', content)), 1) FROM {store.collection.partition}"""
    assert fetch_all(connection, sql, {"mean": store.state().length_baked}) == [(True, True, 1)] * 2


def test_the_explanation_adds_up_and_names_each_lexeme_once(store: Store) -> None:
    question, state = "钥匙有效 keys PostgreSQL", store.state()
    words = query_words(question, store, state)
    lexemes = [word.lexeme for word in words if word.lexeme]
    assert {"钥匙", "匙有", "有效", "key", "postgresql"} <= set(lexemes)
    assert len(set(lexemes)) == len(lexemes)
    best = ragd.retrieve(question, PLAN, store)[0]
    assert best.chunk_id is not None
    shares = word_shares(words, [best.chunk_id], store)[best.chunk_id]
    assert sum(share.share for share in shares) == pytest.approx(best.score, rel=1e-5)
    forms = written_forms(words, [best.chunk_id], store)
    marked = [best.content[start:end] for start, end, _ in find_words(best.content, forms)]
    assert "".join(marked) == "钥匙有效PostgreSQL"


def test_a_word_is_as_rare_as_in_the_chunks_of_its_configuration(connection: Any) -> None:
    store = make_store(connection, "mixed")
    text = "Häuser am See"
    chunks = [
        Chunk(doc_id, 0, text, 0, len(text), embedding=VECTOR, attributes=attributes)
        for doc_id, attributes in {"a": {"language": "de"}, "b": {"language": "de"}, "unknown": {}}.items()
    ]
    ragd.index([*chunks, make_chunk("en")], store)
    query = read_query("Häuser", store, store.state())
    assert sorted(query.chunks.values()) == [1, 2] and query.lexemes == ["haus", "häuser"]
    german, english = inverse_document_frequency(2, 2), inverse_document_frequency(1, 2)
    assert set(query.weights.values()) == {german, english}
    explained = {word.lexeme: word.idf for word in query_words("Häuser", store, store.state())}
    assert explained == {"haus": german, "häuser": english}


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    own=st.lists(st.lists(st.sampled_from(SHARED_WORDS), min_size=3, max_size=3), min_size=1, max_size=6),
    others=st.lists(st.lists(st.sampled_from(SHARED_WORDS), min_size=3, max_size=3), min_size=1, max_size=6),
    languages=st.permutations(["en", "de", "fr", "ru"]),
)
def test_documents_of_another_language_change_no_score(
    connection: Any, own: list[list[str]], others: list[list[str]], languages: list[str]
) -> None:
    """All documents have three words, so that the mean length stays too."""

    def chunks(texts: list[list[str]], language: str) -> list[Chunk]:
        return [
            Chunk(f"{language}{number}", 0, text, 0, len(text), embedding=VECTOR, attributes={"language": language})
            for number, text in enumerate(map(" ".join, texts))
        ]

    def scores() -> dict[str, float]:
        found = ragd.retrieve(" ".join(SHARED_WORDS), PLAN, store)
        return {item.doc_id: item.score for item in found if item.doc_id.startswith(languages[0])}

    store = make_store(connection, f"apart{next(NUMBERS)}")
    ragd.index(chunks(own, languages[0]), store)
    before = scores()
    ragd.index(chunks(others, languages[1]), store)
    assert before and scores() == before


@pytest.mark.parametrize(
    ("text", "likely", "expected"),
    [
        ("Helicobacter pylori infection", "en", "en"),
        ("Diabetes mellitus type 2", "en", "en"),
        ("Diabetes mellitus type 2", "de", "de"),
        ("Der Hafen ist im Winter geschlossen", "en", "de"),
        ("Bonjour tout le monde", "en", "fr"),
        (LONG_GERMAN, "en", "de"),
        ("The ferry leaves the harbour at noon and returns at dusk", "de", "en"),
        ("Ключ от дома лежит под ковром у двери, а дверь закрыта", "en", "ru"),
        ("钥匙有效期为九十天", "en", "zh"),
        ("", "en", ""),
    ],
)
def test_a_text_in_doubt_is_in_the_language_of_what_stands_beside_it(text: str, likely: str, expected: str) -> None:
    asked: list[str] = []

    def look_up() -> str:
        asked.append(likely)
        return likely

    assert detect_language(text, likely) == detect_language(text, look_up) == expected
    assert not asked if expected in ("zh", "") else asked or expected != likely


def test_the_language_of_a_collection_is_that_of_most_of_its_open_chunks(connection: Any) -> None:
    store = make_store(connection, "own")

    def own() -> str:
        return own_language_of(connection, store.collection.id, store.collection.index_version)

    assert own() == ""
    ragd.index([replace(make_chunk("de"), doc_id=f"de{number}") for number in range(5)], store)
    assert own() == "de"
    hide = "INSERT INTO document_access (collection_id, doc_id, access) VALUES (%(id)s, %(doc_id)s, '{0}')"
    for number in range(3):
        execute(connection, hide, {"id": store.collection.id, "doc_id": f"en{number}"})
    ragd.index([replace(make_chunk("en"), doc_id=f"en{number}") for number in range(9)], store)
    assert own() == "en"
    for number in range(3, 9):
        execute(connection, hide, {"id": store.collection.id, "doc_id": f"en{number}"})
    assert own() == "de"


def test_the_analysis_is_part_of_what_a_index_version_is() -> None:
    named = IndexVersionSpec("given", 3, True, "english", ChunkPolicy())
    assert named.as_dict()["analysis"] == 2
    assert "analysis" not in replace(named, hybrid_enabled=False).as_dict()
    assert replace(named, language="auto").hash != named.hash


def test_pairs_of_runs() -> None:
    assert split_runs("用Postgres库") == (" Postgres ", ["用", "库"])
    assert (pairs_of("数据库"), pairs_of("库")) == (["数据", "据库"], ["库"])
    assert indexed_pairs("数据") == ["数", "据", "数据"]
    assert pairs_of("ｶﾞｽ") == ["ガス"]
    assert pairs_of("ที่นี่") == ["ที่นี่"]
    assert word_terms("हिन्दी Wörter 数据库") == ["हिन्दी", "wörter", "数据", "据库"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("钥匙有效期为九十天", "zh"), ("鍵の有効期間", "ja"), ("กุญแจ", "th"), ("ກະແຈ", "lo"), ("កូនសោ", "km"),
        ("သော့များ", "my"), ("열쇠는 유효하다", "ko"),
        ("Τα κλειδιά ισχύουν", "el"), ("", ""), ("1234 ---", ""), ("x = 1", ""),
        ("Die Schlüssel gelten neunzig Tage lang und müssen danach erneuert werden.", "de"),
        ("The keys are valid for ninety days and must be renewed after that.", "en"),
        ("Ключи действительны девяносто дней, после этого их нужно обновить.", "ru"),
        ("المفاتيح صالحة لمدة تسعين يوما ويجب تجديدها بعد ذلك.", "ar"),
    ],
)  # fmt: skip
def test_the_language_of_a_text(text: str, language: str) -> None:
    assert detect_language(text) == language
    assert configuration_of(language) in ALL_CONFIGURATIONS


@pytest.mark.parametrize("kind", ["structure", "words"])
@pytest.mark.parametrize(("sentence", "divisor"), [("钥匙有效期为九十天。之后必须更换！", 2), ("กุญแจมีอายุเก้าสิบวัน", 4)])
def test_a_long_text_without_spaces_is_cut_to_the_target(kind: Any, sentence: str, divisor: int) -> None:
    text = sentence * 200
    policy = ChunkPolicy(kind=kind, target_tokens=100, overlap_tokens=20)
    chunks = ragd.chunk(text, policy)
    assert all(text[chunk.start : chunk.end] == chunk.content for chunk in chunks)
    assert all(count_words(chunk.content) <= 100 for chunk in chunks)
    assert max(len(chunk.content) for chunk in chunks) <= 100 * divisor * 2
    assert min(len(chunk.content) for chunk in chunks[:-1]) >= 50 * divisor
    assert not any(chunk.content[0] in "。！ๅ็ีุ้่" for chunk in chunks)


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
def store_of_tokens(make_store: Any) -> Store:
    made: Store = make_store(language="english")
    return made


@pytest.mark.parametrize(("text", "query"), CASES)
def test_the_words_of_a_text_hold_those_of_the_question(text: str, query: str) -> None:
    held = {form for token in find_tokens(text) for place in text_forms(token).words for form in place}
    held |= {unit for token in find_tokens(text) for unit in text_forms(token).units}
    words, units = read_question(query, paired=True)
    assert held & {*words.split(), *units}


@pytest.mark.fault("KW-09")
def test_the_exact_form_ranks_before_no_other_form_lower(store_of_tokens: Store) -> None:
    texts = {"exact": "Send the r\u00e9sum\u00e9 now", "bare": "Send the resume now", "other": "Send the letter now"}
    ragd.index(
        [Chunk(name, 0, text, 0, len(text), embedding=_vector(store_of_tokens)) for name, text in texts.items()],
        store_of_tokens,
    )

    def find(query: str) -> list[str]:
        return [item.doc_id for item in ragd.retrieve(query, RetrievePlan(mode="lexical"), store_of_tokens)]

    assert find("r\u00e9sum\u00e9") == ["exact"]
    assert find("resume") == ["bare", "exact"]


def test_the_database_takes_each_word_for_one(store_of_tokens: Store) -> None:
    rng = random.Random(7)
    letters = [chr(code) for code in range(0x3000) if regex.match(r"[\p{L}\p{M}\p{N}]", chr(code))]
    for pool in ("0123456789abcdeExX", letters):
        made = " ".join(
            "".join(rng.choice(pool) for _ in range(rng.randint(1, 7))) + rng.choice("-/. ") for _ in range(500)
        )
        words, _ = read_question(made, paired=False)
        rows = fetch_all(
            store_of_tokens.connection, "SELECT token FROM ts_parse('default', %(words)s)", {"words": words}
        )
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
def test_text_that_does_not_show_is_empty(text: str, store_of_tokens: Store) -> None:
    assert not has_visible(text)
    assert ragd.chunk(text, ragd.ChunkPolicy()) == []
    with raises_with(ragd.InvalidInput, field="query"):
        ragd.retrieve(text, RetrievePlan(mode="lexical"), store_of_tokens)
    assert has_visible(f"{text}a") and has_visible("\u0300") and has_visible("\ue000")


def _vector(store_of_tokens: Store) -> Sequence[float]:
    return [1.0] + [0.0] * (store_of_tokens.collection.embed_dims - 1)
