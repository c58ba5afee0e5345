"""Golden sets below the pages: files, differences of versions, what travels, the sample.
Questions made from documents, and what a chat model's replies give.
The questions that ship with ragd against the documentation that they ask about.
A golden set's versions: a change of what decides figures makes a new one, and nothing else does."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from collections_app.collections.services import create_collection, get_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from evaluation_app.golden import edits, suggestions
from evaluation_app.golden.formats import (
    carry_out,
    decode,
    guard,
    guess_format,
    plan_import,
    propose_columns,
    read_rows,
    unguard,
    write_csv,
)
from evaluation_app.golden.questions import MULTI_HOP, Golden, clean_golden
from evaluation_app.golden.sets import (
    asked_questions,
    compare_versions,
    create_set,
    digest_of,
    keep_version,
    update_set,
)
from evaluation_app.golden.suggestions import QuestionCandidate, suggest_questions
from evaluation_app.models import GoldenQuestion, GoldenSet
from evaluation_app.sample.loading import (
    GOLDEN_FILE,
    REPOSITORY,
    SHIPPED,
    load_golden_set,
    read_questions,
    sample_files,
)
from evaluation_app.transfer_parts import VERSIONS
from ragd.errors import InvalidInput
from ragd.types import canonical_json
from tests.refusals import raises_with

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", "\rx", "'=1", "''=1", "＝1", "plain", "'plain", ""])
def test_no_cell_is_a_formula_and_every_cell_comes_back(text: str) -> None:
    assert not guard(text).startswith(("=", "+", "-", "@", "\t", "\r", "＝"))
    assert unguard(guard(text)) == text


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("question,weight\nA?,\n", {"question": "A?", "weight": None}),
        ("Question;Expected doc ids\nA?;a.md\n", {"question": "A?", "expected_doc_ids": ["a.md"]}),
        ('question,expected_doc_ids\nA?,"a, b; c\nd"\n', {"question": "A?", "expected_doc_ids": ["a, b", "c", "d"]}),
        ('question,thresholds\nA?,"{""hit@5"": 1}"\n', {"question": "A?", "thresholds": {"hit@5": 1}}),
        ("question\tsuggested\nA?\tYes\n", {"question": "A?", "suggested": True}),
    ],
)
def test_what_people_write_as_csv_is_read(text: str, stated: dict[str, Any]) -> None:
    (row,) = read_rows("\ufeff" + text, "csv")
    assert (row.error, row.stated, row.number) == ("", stated, 2)


@pytest.mark.parametrize(
    ("names", "fields"),
    [
        ("input,expected_output", ["question", "expected_answer"]),
        ("user_input,reference_contexts,reference", ["question", "", "expected_answer"]),
        ("Question;Ground Truth;Evolution-Type", ["question", "expected_answer", "category"]),
        ("query,expected_answer,answer,doc_id", ["question", "expected_answer", "", "expected_doc_ids"]),
        ("prompt,question", ["", "question"]),
    ],
)
def test_columns_of_other_tools_are_proposed(names: str, fields: list[str]) -> None:
    assert list(propose_columns(names.replace(";", ",").split(",")).values()) == fields


def test_columns_are_read_as_they_are_mapped() -> None:
    text = "input,expected_output,id,docs\nHow old?,Very.,7,a.md; b.md\n"
    with pytest.raises(InvalidInput, match="a column 'id'"):
        read_rows(text, "csv")
    (row,) = read_rows(text, "csv", {"id": "", "docs": "expected_doc_ids"})
    assert row.stated == {"question": "How old?", "expected_answer": "Very.", "expected_doc_ids": ["a.md", "b.md"]}
    line = '{"input": "How old?", "ground_truths": ["Very."], "sources": "a.md; b.md", "id": 7}'
    (unread,) = read_rows(line, "jsonl")
    assert "'id'" in unread.error
    (row,) = read_rows(line, "jsonl", {"id": ""})
    assert row.stated == {"question": "How old?", "expected_answer": "Very.", "expected_doc_ids": ["a.md", "b.md"]}


@pytest.mark.parametrize(
    "columns", [{"colour": "notes"}, {"b": "colour"}, {"a": "question", "b": "question"}, {"a": "notes"}]
)
def test_a_mapping_that_does_not_fit_is_refused(columns: dict[str, str]) -> None:
    with raises_with(InvalidInput, field="columns"):
        read_rows("a,b\nHow old?,Very.\n", "csv", columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "question among them"),
        ("weight\n1\n", "question among them"),
        ("question,colour\nA?,red\n", "a column 'colour'"),
        ("question,question\nA?,B?\n", "names a column twice"),
        ("question\n", "holds no question"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_rows(text, "csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,weight\nA?,much\n", "weight must be a number"),
        ("question,weight\nA?,1,2\n", "the line has 3 cells and the first line 2"),
        ("question,expected_doc_ids\nA?,[a\n", "no JSON array"),
        ('question,weight\n"A?,1\n', "cannot be read as CSV"),
    ],
)
def test_a_wrong_line_is_told_by_its_number(text: str, message: str) -> None:
    (row,) = read_rows(text, "csv")
    assert (row.number, message in row.error) == (2, True)


@pytest.mark.parametrize("line", ['{"question": NaN}', "[]", '{"colour": 1}', "{", '{"suggested": 1}', "[" * 100_000])
def test_a_wrong_line_of_json_is_told(line: str) -> None:
    (row,) = read_rows(line, "jsonl")
    assert row.error


def test_encodings_and_formats_are_found_out() -> None:
    assert decode("ä".encode("utf-16")) == decode("\ufeffä".encode()) == "ä"
    with pytest.raises(InvalidInput, match="UTF-8"):
        decode("ä".encode("latin-1"))
    files = [("a.JSONL", ""), ("", ' {"q'), ("b.csv", "{"), ("", "q,w")]
    assert [guess_format(name, text) for name, text in files] == ["jsonl", "jsonl", "csv", "csv"]


def test_a_spreadsheet_knows_the_encoding() -> None:
    assert "".join(write_csv([], for_spreadsheet=True)).startswith("\ufeffquestion,")


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ({"question": " "}, "question"),
        ({"question": "x" * 20_001}, "question"),
        ({"question": "x", "weight": float("nan")}, "weight"),
        ({"question": "x", "weight": True}, "weight"),
        ({"question": "x", "expected_chunks": ["a#01"]}, "expected_chunks"),
        ({"question": "x", "expected_doc_ids": "a"}, "expected_doc_ids"),
        ({"question": "x", "expected_doc_ids": ["../a"]}, "expected_doc_ids"),
        ({"question": "x", "thresholds": {"recall@10": 2}}, "thresholds"),
        ({"question": "x", "thresholds": {"recall": 1}}, "thresholds"),
        ({"question": "x", "colour": 1}, "colour"),
        ({"question": "x", "colour": None}, "colour"),
        ({"question": "x", "thresholds": {"recall@10": True}}, "thresholds"),
        ({"question": "x", "weight": 10**400}, "weight"),
        ({"question": "x", "notes": ["x"]}, "notes"),
    ],
)
def test_what_no_question_may_hold(stated: dict[str, Any], field: str) -> None:
    with raises_with(InvalidInput, field=field):
        clean_golden(stated)


def test_versions_are_compared_by_words_and_wording() -> None:
    before = [Golden("How tall is an oak tree?"), Golden("Gone entirely?"), Golden("Same?"), Golden("Moved?")]
    after = [Golden("Moved?"), Golden("How tall is an old oak tree?", ("oak",)), Golden("Same?"), Golden("New one?")]
    found = compare_versions(before, after)
    assert found.counts == {"added": 1, "removed": 1, "changed": 1, "same": 2, "moved": 3}
    changed = next(change for change in found.changes if change.kind == "changed")
    assert [field.name for field in changed.fields] == ["question", "expected_doc_ids"]
    assert (changed.fields[1].before, changed.fields[1].after) == ("", "oak")
    assert compare_versions(before, before).is_same


@pytest.fixture
def woods(db: None) -> GoldenSet:
    create_collection(name="woods")
    made = create_set("trees", "woods", description="Of trees.")
    edits.add_question(made, {"question": "How tall?", "expected_doc_ids": ["oak"], "notes": "first"})
    edits.add_question(made, {"question": "How old?"})
    return made


def test_replacing_keeps_the_rows_that_stay(woods: GoldenSet) -> None:
    ids = dict(woods.questions.values_list("question", "pk"))
    edits.add_question(woods, {"question": "Suggested?"}, suggested=True)
    rows = read_rows('{"question": "How old?"}\n{"question": "How wide?"}', "jsonl")
    assert plan_import(woods, rows, "replace").counts["removed"] == 1
    carry_out(woods, rows, "replace")
    kept = woods.questions.filter(suggested=False).order_by("position")
    assert [(row.question, row.position) for row in kept] == [("How old?", 0), ("How wide?", 1)]
    assert kept[0].pk == ids["How old?"]
    assert woods.questions.filter(suggested=True).count() == 1, "a replacing import leaves suggestions alone"
    version = woods.version
    carry_out(woods, read_rows('{"question": "How wide?"}\n{"question": "How old?"}', "jsonl"), "replace")
    assert woods.version == version + 1, "another order is another version"


def test_a_suggestion_that_is_written_by_hand_is_accepted(woods: GoldenSet) -> None:
    made = edits.add_question(woods, {"question": "Suggested?"}, suggested=True)
    added = edits.add_question(woods, {"question": "Suggested?", "weight": 2})
    assert (added.pk, added.suggested, added.position) == (made.pk, False, 2)
    with pytest.raises(ServiceError, match="has the question"):
        edits.add_question(woods, {"question": "Suggested?"}, suggested=True)


def test_notes_change_no_version_and_nothing_changes_nothing(woods: GoldenSet) -> None:
    version, question = woods.version, woods.questions.get(position=0)
    edits.change_question(question, {"notes": "second"})
    edits.change_question(question, {"notes": "second"})
    woods.refresh_from_db()
    assert (woods.version, question.notes) == (version, "second")


def versions_of(golden_set: GoldenSet) -> list[dict[str, Any]]:
    """As an export holds them."""
    golden_set.refresh_from_db()
    set_values = {
        "set": golden_set.name, "set_description": "Of trees.", "set_version": golden_set.version,
        "set_bands": golden_set.bands, "set_primary_measure": golden_set.primary_measure,
        "set_guardrails": golden_set.guardrails, "set_relevant_effect": golden_set.relevant_effect,
        "set_rubrics": golden_set.rubrics,
    }  # fmt: skip
    fields = ("version", "digest", "questions", "reason", "made_by", "created_at")
    return [set_values | values for values in golden_set.versions.order_by("version").values(*fields)]


def test_versions_come_back_into_the_set_of_their_questions(woods: GoldenSet) -> None:
    rubrics = [{"name": "own", "kind": "code", "definition": "not installed here", "must_match": True}]
    criteria = {
        "primary_measure": "f1", "guardrails": {"recall": 0.1}, "relevant_effect": 0.25, "rubrics": rubrics,
    }  # fmt: skip
    GoldenSet.objects.filter(pk=woods.pk).update(bands={"adherence": [0.9, 0.5]}, **criteria)
    copy, rows = create_collection(name="copy"), versions_of(woods)
    renamed = GoldenSet.objects.create(name="trees (copy)", collection_name="copy", version=woods.version)
    edits.replace_questions(renamed, [golden for _, golden in asked_questions(woods)])
    assert VERSIONS.restore(copy, rows) == 3
    assert [row | {"set": "trees"} for row in versions_of(renamed)] == rows
    renamed.refresh_from_db()
    assert renamed.digest == woods.digest
    assert keep_version(renamed).version == woods.version, "what came is the version that was kept"


def test_a_set_without_questions_comes_back_by_its_versions(woods: GoldenSet) -> None:
    copy = create_collection(name="copy")
    VERSIONS.restore(copy, versions_of(woods)[:1])
    made = GoldenSet.objects.get(collection_name="copy")
    assert (made.name, made.description, made.versions.count()) == ("trees", "Of trees.", 1)


def test_a_version_that_was_tampered_with_is_refused(woods: GoldenSet) -> None:
    copy, rows = create_collection(name="copy"), versions_of(woods)
    rows[1]["questions"] = []
    with pytest.raises(InvalidInput, match="does not have the digest"):
        VERSIONS.restore(copy, rows)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"criteria": {"primary_measure": "nonsense"}}, "primary_measure"),
        ({"criteria": {"relevant_effect": -5}}, "relevant_effect"),
        ({"criteria": {"guardrails": {"recall": float("nan")}}}, "guardrails"),
        ({"criteria": {"guardrails": {"nonsense": 0.1}}}, "guardrails"),
        ({"name": "a/b"}, "name"),
        ({"description": "x" * 20_001}, "description"),
    ],
)
def test_a_set_is_checked_before_it_changes(woods: GoldenSet, changes: dict[str, Any], field: str) -> None:
    with raises_with(InvalidInput, field=field):
        update_set(woods, **changes)


def test_a_question_that_changes_is_marked_anew_and_not_by_construction(woods: GoldenSet) -> None:
    ingest_text(get_collection("woods"), "oak", "Oaks grow tall.")
    tall, old = woods.questions.order_by("position")
    woods.questions.update(by_construction=True)
    edits.change_question(tall, {"expected_doc_ids": ["elm"]})
    tall.refresh_from_db()
    assert (tall.by_construction, tall.expected_doc_ids) == (False, ["elm"])
    edits.change_question(tall, {"expected_doc_ids": [], "expected_chunks": ["oak#0"]})
    tall.refresh_from_db()
    assert list(tall.chunk_marks) == ["oak#0"], "the text that was meant"
    old.refresh_from_db()
    assert old.by_construction, "what was not touched stays"


def test_an_import_that_expects_other_documents_is_no_longer_by_construction(woods: GoldenSet) -> None:
    woods.questions.update(by_construction=True)
    text = '{"question": "How tall?", "expected_doc_ids": ["elm"]}\n{"question": "How old?", "notes": "seen"}'
    carry_out(woods, read_rows(text, "jsonl"))
    assert list(woods.questions.order_by("position").values_list("by_construction", flat=True)) == [False, True]


def test_the_sample_leaves_alone_what_a_person_made_their_own(db: None) -> None:
    item = {"question": "a?", "expected_doc_ids": ["a"], "expected_answer": "a", "category": "factual"}
    load_golden_set("set", "house", [item, {**item, "question": "b?"}])
    GoldenQuestion.objects.filter(question="a?").update(notes="ours", expected_answer="ours")
    load_golden_set("set", "house", [{**item, "expected_answer": "c"}, {**item, "question": "b?", "category": "why"}])
    rows = GoldenQuestion.objects.order_by("question").values_list("expected_answer", "category", "notes")
    assert list(rows) == [("ours", "factual", "ours"), ("a", "why", SHIPPED)]
    made = GoldenSet.objects.get()
    assert made.versions.filter(version=made.version, reason="loaded what ships with ragd").exists()


def test_questions_that_the_search_does_not_find_are_suggested_where_they_are_asked_for(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = create_collection(name="coast")
    for name in (*"abcdefghijkl", "z"):
        ingest_text(collection, name, "A spring tide is the tide of a full or new moon.")
    golden_set = create_set("tides", "coast")
    candidate = QuestionCandidate("What is a spring tide?", "The tide of a full moon.", "factual", "z", 0, 0, 10)
    monkeypatch.setattr(suggestions, "require_chat_model", lambda: None)
    monkeypatch.setattr(suggestions, "ask_model", lambda passages, timeout_s: [candidate])
    left_out = suggest_questions(golden_set, doc_ids=["z"])
    assert (left_out.made, left_out.tried, left_out.lost) == ([], 1, 1)
    (made,) = suggest_questions(golden_set, doc_ids=["z"], include_unfound=True).made
    assert (made.suggested, made.by_construction, made.expected_doc_ids) == (True, False, ["z"])
    assert "a, b, c" in made.notes, "the documents that are found instead"


CANDIDATE = suggestions.QuestionCandidate("What is a run?", "The record of one search.", "factual", "a", 0, 0, 1)


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("A run is the record of one search or answer.", "What is a run?"),
        ("BM25 is a sum of weights over the words.", "What is BM25?"),
        ("Humpback whales are the singers of the sea.", "What are Humpback whales?"),
        ("- **A [job](x.md)** is one piece of `background` work.", "What is a job?"),
        ("To back up ragd, dump its one database.", "How do I back up ragd?"),
        ("It is the record of one search.", None),
        ("A page that it names is the list of all answers.", None),
        ("PostgreSQL 17 is the oldest.", None),
        ("To do this, write a line of text.", None),
        ("A | is the | table of it.", None),
        ("Rain falls on the mountain in spring.", None),
        ("", None),
    ],
)
def test_definitions_and_instructions_become_questions(sentence: str, question: str | None) -> None:
    assert list(suggestions.turn_sentences(sentence)) == ([question] if question else [])


def test_plain_text_keeps_the_words_of_links() -> None:
    assert suggestions.plain("1. See [the **guide**](a.md), `now`.") == "See the guide, now."


@pytest.mark.parametrize(
    "reply",
    ["", "no", "[]", '{"questions": 3}', '{"questions": [{"question": "Why?"}]}', '{"questions": ["What is it?"]}'],
)
def test_a_reply_that_is_not_what_was_asked_for_gives_nothing(reply: str) -> None:
    assert suggestions.read_questions(reply, suggestions.Passage("a", 0, "text")) == []


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ('{"verdicts": [{"standalone": true, "answered": true, "useful": true}]}', 1),
        ('```json\n{"verdicts": [{"standalone": true, "answered": true, "useful": true}]}\n```', 1),
        ('{"verdicts": [{"standalone": false, "answered": true, "useful": true}]}', 0),
        ('{"verdicts": [{"standalone": true, "answered": true}]}', 0),
        ('{"verdicts": []}', 0),
        ('{"verdicts": [true]}', 0),
        ("Yes.", 0),
    ],
)
def test_what_the_critic_does_not_pass_goes(reply: str, kept: int) -> None:
    assert len(suggestions.passed_critique(reply, [CANDIDATE])) == kept


FIGURE = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])")
IDENTIFIER = re.compile(r"[\w./-]*(?:_|/|[a-z]-[a-z]|[A-Z]{2,})[\w./-]*\w")


def lacking(golden: Golden) -> list[str]:
    """The figures and identifiers of the expected answer that stand in no expected document."""
    texts = [(REPOSITORY / doc_id).read_text("utf-8") for doc_id in golden.expected_doc_ids]
    joined = " ".join(re.sub(r"[`*|]|\]\([^)]*\)|\[", " ", " ".join(texts)).split())
    parts = {*FIGURE.findall(golden.expected_answer), *IDENTIFIER.findall(golden.expected_answer)}
    return sorted(part for part in parts if part.strip("./-") not in joined)


def test_what_is_expected_stands_in_the_expected_documents() -> None:
    questions = [clean_golden(item) for item in read_questions(GOLDEN_FILE)]
    assert len({golden.question for golden in questions}) == len(questions)
    assert {doc_id for golden in questions for doc_id in golden.expected_doc_ids} <= set(sample_files())
    answered = [golden for golden in questions if not golden.expects_nothing]
    assert {golden.question: missing for golden in answered if (missing := lacking(golden))} == {}
    assert all((golden.category == MULTI_HOP) == (golden.match == "all") for golden in answered)
    declined = [golden for golden in questions if golden.expects_nothing]
    assert len(declined) >= 4 and all(golden.category == "abstain" for golden in declined)
    wrong = clean_golden({"question": "How many?", "expected_doc_ids": ["docs/mcp.md"], "expected_answer": "1,717."})
    assert lacking(wrong) == ["1,717"]


@pytest.fixture
def golden_set():
    made = GoldenSet.objects.create(name="trees", collection_name="woods")
    GoldenQuestion.objects.create(golden_set=made, position=1, question="How old?", expected_doc_ids=["oak"])
    GoldenQuestion.objects.create(golden_set=made, position=0, question="How tall?", expected_chunks=["fir#2"])
    return made


def test_a_version_holds_the_questions_in_their_order(golden_set):
    kept = keep_version(golden_set, reason="first")
    assert [item["question"] for item in kept.questions] == ["How tall?", "How old?"]
    assert (kept.version, golden_set.version, golden_set.digest) == (1, 1, kept.digest)


def test_the_same_questions_are_the_same_version(golden_set):
    first = keep_version(golden_set)
    golden_set.questions.update(notes="looked at")
    GoldenQuestion.objects.create(golden_set=golden_set, question="Suggested?", suggested=True)
    assert keep_version(golden_set).pk == first.pk


@pytest.mark.parametrize("change", [{"weight": 2.0}, {"expected_answer": "Very."}, {"category": "global"}])
def test_what_decides_a_figure_makes_a_new_version(golden_set, change):
    first = keep_version(golden_set)
    golden_set.questions.filter(position=1).update(**change)
    second = keep_version(golden_set, reason="changed")
    assert (second.version, golden_set.version) == (2, 2)
    assert first.digest != second.digest
    assert golden_set.versions.count() == 2


def test_sets_from_before_match_keep_their_digest():
    golden = Golden("How?", ("a", "b"), ("b#1",), "So.", weight=0.5, notes="n")
    fields = ("question", "expected_doc_ids", "expected_chunks", "expected_answer", "category", "weight", "thresholds")
    stored = {name: golden.as_dict()[name] for name in fields}
    assert Golden.from_dict(stored).match == "all", "as it was measured"
    assert digest_of([golden]) == hashlib.sha256(canonical_json([stored]).encode()).hexdigest()


def test_how_a_question_was_chosen_decides_no_figure():
    digests = {digest_of([Golden("How?", ("a",), by_construction=chosen)]) for chosen in (True, False)}
    assert len(digests) == 1


def test_match_decides_the_digest_where_several_are_expected():
    for docs, chunks, decides in ((("a",), ("a#1",), False), (("a", "b"), (), True), (("a",), ("a#1", "a#2"), True)):
        either = [digest_of([Golden("How?", docs, chunks, match=match)]) for match in ("any", "all")]
        assert (either[0] != either[1]) is decides, (docs, chunks)


def test_a_new_question_is_answered_by_any_of_what_it_expects():
    assert clean_golden({"question": "How?"}).match == clean_golden({"question": "How?", "match": None}).match == "any"
    before = Golden("How?", ("a", "b"), match="all")
    assert clean_golden({"weight": 2.0}, before).match == "all", "what is not stated stays"
    with raises_with(InvalidInput, field="match"):
        clean_golden({"question": "How?", "match": "some"})


def test_a_suggestion_is_not_asked(golden_set):
    golden_set.questions.filter(position=0).update(suggested=True)
    assert [golden.question for _, golden in asked_questions(golden_set)] == ["How old?"]


def test_a_golden_question_travels_as_plain_data():
    golden = Golden("How?", ("a", "b"), ("b#1", "c#2"), "So.", "global", 0.5, {"recall@10": 0.5}, "n")
    assert Golden.from_dict(golden.as_dict()) == golden
    assert golden.relevant_docs == ("a", "b", "c")


@pytest.mark.parametrize("wrong", [{"question": " "}, {"question": "x", "weight": -1}, {"question": "x", "colour": 1}])
def test_a_wrong_question_is_told(wrong):
    with pytest.raises(InvalidInput):
        Golden.from_dict(wrong)
