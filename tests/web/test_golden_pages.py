"""Golden sets as a person works on them: by hand, from files, out of runs, from suggestions, through versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from collections_app.documents.services import ingest_text
from collections_app.models import AuditEvent
from evaluation_app.golden import suggestions
from evaluation_app.golden.edits import accept_suggestions, add_question, change_question, follow_moved_chunks
from evaluation_app.golden.question_views import ColumnChoice
from evaluation_app.golden.questions import read_marks
from evaluation_app.golden.sets import asked_questions, create_set
from evaluation_app.golden.suggestions import QuestionCandidate
from evaluation_app.models import GoldenQuestion, GoldenSet
from tests.web.conftest import TEXTS
from tests.web.pages import attribute, has, is_empty, tree, wrong_fields
from tests.web.test_every_page import check_page

pytestmark = pytest.mark.usefixtures("module_nature", "bound")


def page(visitor: Client, address: str, status: int = 200) -> str:
    response = visitor.get(address)
    assert response.status_code == status, address
    html = response.content.decode()
    check_page(html)
    return html


@pytest.fixture
def golden(fill: Callable[..., Any]) -> GoldenSet:
    fill()
    made = create_set("animals", "nature")
    add_question(made, {"question": "Which animal is the largest?", "expected_doc_ids": ["whales.md"]})
    add_question(made, {"question": "Where does the redwood grow?", "expected_chunks": ["trees.md#0"]})
    return made


def test_a_set_is_made_renamed_and_deleted(visitor: Client, fill: Callable[..., Any]) -> None:
    fill("woods", documents=0)
    fill(documents=1)
    offered = tree(visitor.get("/evaluation/sets/")).css("select[name=collection] option")
    assert [option.attributes["value"] for option in offered] == ["", "nature", "woods"]
    made = visitor.post("/evaluation/sets/", {"name": "animals", "collection": "nature", "description": "Of it."})
    golden = GoldenSet.objects.get()
    assert made["Location"] == f"/evaluation/sets/{golden.pk}/"
    assert (golden.version, golden.versions.get().questions) == (1, [])
    assert is_empty(visitor.get(made["Location"]))
    shown = page(visitor, made["Location"])
    assert "?set=animals&amp;purpose=all" in shown, "the number of runs opens those of sweeps, too"
    again = visitor.post("/evaluation/sets/", {"name": "animals", "collection": "nature"})
    assert again.status_code == 409
    assert "there is a golden set &#x27;animals&#x27; already" in again.content.decode()
    visitor.post(f"/evaluation/sets/{golden.pk}/?view=settings", {"name": "beasts", "description": ""})
    assert "beasts" in page(visitor, "/evaluation/sets/")
    assert "0 questions and 1 version will be deleted" in page(visitor, f"/evaluation/sets/{golden.pk}/?view=settings")
    visitor.post(f"/evaluation/sets/{golden.pk}/?view=settings", {"do": "delete"})
    assert not GoldenSet.objects.exists()
    messages = list(AuditEvent.objects.order_by("id").values_list("message", flat=True))
    assert messages[-1] == "deleted golden set beasts with 0 questions"


def test_by_what_runs_are_compared_is_set_on_the_settings_page(visitor: Client, golden: GoldenSet) -> None:
    address = f"/evaluation/sets/{golden.pk}/?view=settings"
    values = {
        "name": "animals",
        "description": "",
        "primary_measure": "f1",
        "guardrails": "recall=0.1",
        "relevant_effect": "0.03",
    }
    refused = visitor.post(address, values | {"guardrails": "beauty=0.1"})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["guardrails"])
    assert visitor.post(address, values).status_code == 302
    golden.refresh_from_db()
    assert (golden.primary_measure, golden.guardrails, golden.relevant_effect) == ("f1", {"recall": 0.1}, 0.03)
    shown = visitor.get(address).context["form"]
    assert (shown["primary_measure"].value(), shown["guardrails"].value()) == ("f1", "recall=0.1")


def test_what_is_expected_is_picked_by_search(visitor: Client, golden: GoldenSet) -> None:
    address = f"/evaluation/sets/{golden.pk}/?view=new"
    page(visitor, address)
    typed = {"question": "Which river flows north?", "category": "factual", "weight": "1", "thresholds": "hit@5=1"}
    found = visitor.post(address, {**typed, "do": "find", "expected_doc_ids": ["whales.md"]})
    html = found.content.decode()
    assert 'value="rivers.md#0"' in html
    assert 'name="expected_doc_ids" value="whales.md" checked' in html, "what was ticked stays ticked"
    assert "Which river flows north?" in html
    assert GoldenQuestion.objects.count() == 2, "finding writes nothing"
    part = visitor.post(
        address, {**typed, "do": "find"}, headers={"HX-Request": "true", "HX-Target": "expected"}
    ).content.decode()
    assert part.lstrip().startswith('<div id="expected"')
    visitor.post(
        address, {**typed, "do": "save", "expected_doc_ids": ["rivers.md"], "expected_chunks": ["rivers.md#0"]}
    )
    made = GoldenQuestion.objects.get(question="Which river flows north?")
    assert (made.expected_doc_ids, made.expected_chunks) == (["rivers.md"], ["rivers.md#0"])
    assert (made.thresholds, made.position) == ({"hit@5": 1.0}, 2)
    golden.refresh_from_db()
    assert (golden.version, made.match) == (4, "any")
    address = f"/evaluation/sets/{golden.pk}/?view=question&question_id={made.pk}"
    shown = page(visitor, address)
    assert 'name="match"' in shown
    both = {"do": "save", "expected_doc_ids": ["rivers.md", "whales.md"]}
    visitor.post(address, {**typed, **both, "match": "all"})
    visitor.post(address, {**typed, **both, "notes": "Match is not stated."})
    made.refresh_from_db()
    assert (made.match, made.notes) == ("all", "Match is not stated.")


@pytest.mark.fault("UX-F22")
def test_a_switch_says_whether_a_question_should_be_answered(visitor: Client, golden: GoldenSet) -> None:
    address = f"/evaluation/sets/{golden.pk}/?view=new"
    typed = {"question": "Who won?", "category": "factual", "weight": "1", "do": "save"}
    assert attribute(visitor.get(address), '[name="expects"][checked]', "value") == "answer"
    refused = visitor.post(address, typed | {"expects": "answer"})
    assert (refused.status_code, wrong_fields(refused)) == (422, ["expected_answer"])
    visitor.post(address, typed | {"expects": "answer", "expected_answer": "Kasparov."})
    made = GoldenQuestion.objects.get(question="Who won?")
    listing, row = f"/evaluation/sets/{golden.pk}/", f"#question-{made.pk} [data-refuse]"
    own = f"{listing}?view=question&question_id={made.pk}"
    assert made.expected_answer == "Kasparov." and not has(visitor.get(listing), row)
    everything = {"expected_answer": "Kasparov.", "expected_doc_ids": ["whales.md"], "expected_chunks": ["whales.md#0"]}
    visitor.post(own, typed | everything | {"expects": "refusal"})
    made.refresh_from_db()
    assert (made.expected_answer, made.expected_doc_ids, made.expected_chunks) == ("", [], [])
    assert attribute(visitor.get(own), '[name="expects"][checked]', "value") == "refusal"
    assert has(visitor.get(listing), row)


def test_a_question_that_somebody_else_changed_is_not_overwritten(visitor: Client, golden: GoldenSet) -> None:
    question = golden.questions.get(position=0)
    address = f"/evaluation/sets/{golden.pk}/?view=question&question_id={question.pk}"
    seen = question.updated_at.isoformat()
    values = {"question": "Who is largest?", "category": "factual", "weight": "1", "do": "save", "seen": seen}
    assert visitor.post(address, values).status_code == 302
    late = visitor.post(address, {**values, "question": "Who is tallest?"})
    assert late.status_code == 409
    assert has(late, ".form-errors")
    question.refresh_from_db()
    assert question.question == "Who is largest?"


def test_questions_move_and_go(visitor: Client, golden: GoldenSet) -> None:
    first, second = golden.questions.order_by("position")
    change = f"/evaluation/sets/{golden.pk}/"
    visitor.post(change, {"action": f"down {first.pk}"})
    assert list(golden.questions.order_by("position").values_list("pk", flat=True)) == [second.pk, first.pk]
    asked = visitor.post(change, {"action": "delete", "question": [first.pk]})
    assert has(asked, f"#confirm input[name=question][value='{first.pk}']")
    assert golden.questions.count() == 2
    visitor.post(change, {"action": "delete", "question": [first.pk], "confirmed": "on"})
    assert list(golden.questions.values_list("pk", "position")) == [(second.pk, 0)]


def golden_collection(golden: GoldenSet) -> Any:
    from collections_app.collections.services import get_collection

    return get_collection(golden.collection_name)


def test_the_page_of_a_set_reads_what_its_questions_expect_once(visitor: Client, golden: GoldenSet) -> None:
    with CaptureQueriesContext(connection) as captured:
        page(visitor, f"/evaluation/sets/{golden.pk}/")
    assert sum("sha256" in query["sql"] for query in captured) == 1


def test_a_chunk_that_moved_is_told_and_followed(visitor: Client, golden: GoldenSet) -> None:
    collection = golden_collection(golden)
    song = add_question(golden, {"question": "How long do they sing?", "expected_chunks": ["whales.md#1"]})
    address = f"/evaluation/sets/{golden.pk}/"
    assert "text changed" not in page(visitor, address)
    more = "# Whales\n\nWhales are mammals that live in the sea and breathe the air above it.\n\n"
    ingest_text(collection, "whales.md", TEXTS["whales.md"].replace("# Whales\n\n", more), title="Whales")
    html = page(visitor, address)
    assert 'href="?state=lost"' in html
    assert 'name="action" value="follow"' in html
    assert "moved to whales.md#2" in page(visitor, f"{address}?view=question&question_id={song.pk}")
    visitor.post(address, {"action": "follow"})
    song.refresh_from_db()
    assert song.expected_chunks == ["whales.md#2"]
    assert "text changed" not in page(visitor, address)
    golden.refresh_from_db()
    assert golden.versions.get(version=golden.version).reason == "followed 1 chunks that moved"


def test_the_present_text_can_be_taken_for_what_is_meant(visitor: Client, golden: GoldenSet) -> None:
    question = golden.questions.get(position=1)
    ingest_text(golden_collection(golden), "trees.md", "# Trees\n\nThe oak is another tree.", title="Trees")
    address = f"/evaluation/sets/{golden.pk}/?view=question&question_id={question.pk}"
    assert "text changed" in page(visitor, address)
    values = {"question": question.question, "category": "factual", "weight": "1", "do": "save"}
    version = GoldenSet.objects.get(pk=golden.pk).version
    saved = visitor.post(address, {**values, "expected_chunks": ["trees.md#0"], "keep_present": "on"})
    assert saved.status_code == 302
    assert "text changed" not in page(visitor, address)
    assert GoldenSet.objects.get(pk=golden.pk).version == version, "it expects what it expected"


def test_a_file_is_looked_at_before_it_is_imported(visitor: Client, golden: GoldenSet) -> None:
    address = f"/evaluation/sets/{golden.pk}/?view=import"
    page(visitor, address)
    text = (
        '{"question": "Which animal is the largest?", "weight": 2}\n'
        '{"question": "=1+1?", "expected_answer": "</textarea><b>2"}\n'
    )
    file = SimpleUploadedFile("more.jsonl", text.encode())
    looked = visitor.post(address, {"file": file, "mode": "merge", "do": "look"})
    html = looked.content.decode()
    check_page(html)
    assert ("1 added" in html, "1 changed" in html, "</textarea><b>" in html) == (True, True, False)
    assert golden.questions.count() == 2
    stand = GoldenSet.objects.get(pk=golden.pk).digest
    sent = {"text": text, "name": "more.jsonl", "mode": "merge", "do": "import"}
    assert visitor.post(address, {**sent, "stand": "another"}).status_code == 409
    assert golden.questions.count() == 2
    assert visitor.post(address, {**sent, "stand": stand}).status_code == 302
    assert list(golden.questions.order_by("position").values_list("question", "weight")) == [
        ("Which animal is the largest?", 2.0),
        ("Where does the redwood grow?", 1.0),
        ("=1+1?", 1.0),
    ]
    out = b"".join(visitor.get(f"/evaluation/sets/{golden.pk}/export.csv").streaming_content).decode()
    assert out.startswith("\ufeffquestion,")
    assert "\r\n'=1+1?," in out


def test_rubrics_are_added_changed_and_removed(visitor: Client, golden: GoldenSet) -> None:
    address = f"/evaluation/sets/{golden.pk}/?view=rubrics"
    page(visitor, address)
    values = {"name": "polite", "kind": "regex", "definition": "please", "must_match": "on"}
    assert visitor.post(address, values).status_code == 302
    refused = visitor.post(address, {**values, "name": "worse", "definition": "("})
    assert (refused.status_code, has(refused, ".form-errors")) == (422, True)
    page(visitor, f"{address}&edit=polite")
    settings = f"/evaluation/sets/{golden.pk}/?view=settings"
    named = {"name": "animals", "description": "", "relevant_effect": "0.1"}
    assert visitor.post(settings, {**named, "primary_measure": "rubric:rude"}).status_code == 422
    assert visitor.post(settings, {**named, "primary_measure": "rubric:polite"}).status_code == 302
    assert GoldenSet.objects.get(pk=golden.pk).primary_measure == "rubric:polite"
    visitor.post(address, {**values, "definition": "thanks", "must_match": ""})
    golden.refresh_from_db()
    assert golden.rubrics == [{"name": "polite", "kind": "regex", "definition": "thanks", "must_match": False}]
    visitor.post(address, {"remove": "polite"})
    golden.refresh_from_db()
    assert golden.rubrics == []


def test_a_question_out_of_a_run_is_a_suggestion_without_the_answer(
    visitor: Client, golden: GoldenSet, ask: Callable[..., Any]
) -> None:
    """The answer may be wrong: only what a person types or approves is expected, in the set that the person chose."""
    other = create_set("other animals", "nature")
    version = golden.version
    run = ask("Which animal is the largest of all?")
    of_run, address = (f"/evaluation/sets/{part}/{run.pk}/" for part in ("of-run", "from-run"))
    assert "<form" not in page(visitor, of_run).partition('id="golden-of-run"')[2].partition("</main>")[0]
    shown = page(visitor, address)
    assert 'name="expected_chunks" value="whales.md#0" checked' in shown
    values = {
        "question": run.query, "category": "factual", "weight": "1", "expected_doc_ids": ["whales.md"], "do": "save",
    }  # fmt: skip
    assert visitor.post(address, values).status_code == 422, "the set is chosen by the person"
    made = visitor.post(address, {**values, "golden_set": other.pk})
    question = GoldenQuestion.objects.get(question=run.query)
    assert made["Location"] == f"/evaluation/sets/{other.pk}/?view=suggestions#question-{question.pk}"
    assert (question.suggested, question.expected_answer, question.source_run) == (True, "", run.pk)
    golden.refresh_from_db()
    assert golden.version == version
    assert asked_questions(other) == [], "no run asks it before it is accepted"
    assert "in other animals" in page(visitor, of_run)
    assert page(visitor, made["Location"])
    again = visitor.post(address, {**values, "golden_set": other.pk})
    assert (again.status_code, GoldenQuestion.objects.filter(question=run.query).count()) == (409, 1)
    assert visitor.post(address, {**values, "golden_set": "new", "question": " "}).status_code == 422
    assert GoldenSet.objects.count() == 2, "a question that is refused makes no set"
    edit = f"/evaluation/sets/{other.pk}/?view=question&question_id={question.pk}"
    visitor.post(edit, {**values, "do": "accept", "expected_answer": "The blue whale."})
    question.refresh_from_db()
    assert (question.suggested, question.expected_answer) == (False, "The blue whale.")


def test_the_answer_of_a_run_is_expected_where_a_person_approves_it(
    visitor: Client, golden: GoldenSet, ask: Callable[..., Any]
) -> None:
    run = ask("Which animal is the largest of all?")
    values = {
        "question": run.query, "category": "factual", "weight": "1", "expected_doc_ids": ["whales.md"],
        "golden_set": golden.pk, "approve_answer": "on", "do": "accept",
    }  # fmt: skip
    assert visitor.post(f"/evaluation/sets/from-run/{run.pk}/", values).status_code == 302
    question = golden.questions.get(question=run.query)
    assert (question.suggested, question.position) == (False, 2)
    assert "[1]" not in question.expected_answer
    assert "largest animal" in question.expected_answer


def test_many_questions_are_changed_in_as_many_queries_as_few(golden: GoldenSet) -> None:
    mark = read_marks("nature", ["whales.md#0"])["whales.md#0"]

    def counts(number: int) -> list[int]:
        GoldenQuestion.objects.filter(golden_set=golden).delete()
        common = {"golden_set": golden, "expected_chunks": ["whales.md#1"], "chunk_marks": {"whales.md#1": mark}}
        rows = GoldenQuestion.objects.bulk_create(
            GoldenQuestion(question=f"Question {index}?", suggested=True, **common) for index in range(number)
        )
        query_counts = []
        for change in (
            lambda: accept_suggestions(golden, [row.pk for row in rows]),
            lambda: follow_moved_chunks(golden),
        ):
            with CaptureQueriesContext(connection) as captured:
                assert change() == number
            query_counts.append(len(captured))
        stored = golden.questions.order_by("position")
        assert [row.position for row in stored] == list(range(number))
        assert all(row.expected_chunks == ["whales.md#0"] and not row.suggested for row in stored)
        return query_counts

    assert counts(3) == counts(30)


def test_versions_are_listed_compared_and_brought_back(visitor: Client, golden: GoldenSet) -> None:
    question = golden.questions.get(position=0)
    before = GoldenSet.objects.get(pk=golden.pk).version
    visitor.post(
        f"/evaluation/sets/{golden.pk}/?view=question&question_id={question.pk}",
        {"question": "Which animal is the very largest?", "category": "factual", "weight": "3", "do": "save"},
    )
    versions = page(visitor, f"/evaluation/sets/{golden.pk}/?view=versions")
    assert "1 changed" in versions
    assert "by ada" in versions
    difference = page(visitor, f"/evaluation/sets/{golden.pk}/?view=versions&before={before}&after={before + 1}")
    assert "<ins>very </ins>" in difference
    back = f"/evaluation/sets/{golden.pk}/?view=versions&version={before}"
    assert "Which animal is the largest?" in page(visitor, back)
    assert has(visitor.get(back), "#confirm button[value=restore]")
    visitor.post(back, {"do": "restore"})
    golden.refresh_from_db()
    assert golden.version == before + 2
    assert golden.versions.get(version=before).digest == golden.digest
    assert set(golden.questions.values_list("question", "weight")) == {
        ("Which animal is the largest?", 1.0),
        ("Where does the redwood grow?", 1.0),
    }
    assert visitor.get(f"/evaluation/sets/{golden.pk}/?view=versions&version=99").status_code == 404


def test_suggestions_wait_until_somebody_decides(
    visitor: Client, golden: GoldenSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_text(
        golden_collection(golden),
        "tides.md",
        "# Tides\n\nA spring tide is the tide of a full or new moon. When the moon is half, the tides are weakest.",
        title="Tides",
    )
    address = f"/evaluation/sets/{golden.pk}/?view=suggestions"
    shown = page(visitor, address)
    assert "empty-state" in shown and 'name="count"' not in shown, "without a chat model nothing is generated"
    candidates = [
        QuestionCandidate("What is a spring tide?", "The tide of a full moon.", "factual", "tides.md", 0, 0, 20),
        QuestionCandidate("When are the tides weakest?", "At half moon.", "how-it-works", "tides.md", 0, 0, 20),
    ]
    monkeypatch.setattr(suggestions, "require_chat_model", lambda: None)
    monkeypatch.setattr(suggestions, "ask_model", lambda passages, timeout_s: candidates)
    version = GoldenSet.objects.get(pk=golden.pk).version
    visitor.post(address, {"count": "5", "doc_ids": "tides.md"})
    waiting = golden.questions.filter(suggested=True)
    assert set(waiting.values_list("question", flat=True)) == {"What is a spring tide?", "When are the tides weakest?"}
    assert set(waiting.values_list("category", flat=True)) == {"factual", "how-it-works"}
    assert all(row.expected_doc_ids == ["tides.md"] and row.expected_chunks for row in waiting)
    golden.refresh_from_db()
    assert golden.version == version, "what nobody accepted changes no version"
    assert "The search finds the document at rank 1" in page(visitor, address)
    assert visitor.get(address).context["by_construction_total"] == 2
    one, other = waiting.order_by("question")
    change = f"/evaluation/sets/{golden.pk}/"
    visitor.post(change, {"action": "accept", "question": [one.pk]})
    visitor.post(change, {"action": "discard", "question": [other.pk]})
    golden.refresh_from_db()
    assert golden.version == version + 1
    assert not golden.questions.filter(suggested=True).exists()
    accepted = golden.questions.get(pk=one.pk)
    assert (accepted.position, accepted.by_construction) == (2, True)
    change_question(accepted, {"notes": "seen"})
    assert accepted.by_construction
    change_question(accepted, {"question": "Which tides are the strongest?"})
    assert not accepted.by_construction, "nobody searched for these words"
    change_question(accepted, {"question": one.question})
    visitor.post(address, {"count": "5", "doc_ids": "tides.md"})
    assert list(waiting.values_list("question", flat=True)) == [other.question], (
        "what is asked already is not suggested"
    )


def test_columns_are_mapped_and_unknown_documents_told_before_an_import(visitor: Client, golden: GoldenSet) -> None:
    address = f"/evaluation/sets/{golden.pk}/?view=import"
    text = "input,expected_output,docs\nWhich animal sings?,The whale.,whales.md; birds.md\n"
    looked = visitor.post(address, {"text": text, "mode": "merge", "do": "look"})
    assert looked.context["columns"]["rows"] == [
        ColumnChoice("input", "question", "Which animal sings?"),
        ColumnChoice("expected_output", "expected_answer", "The whale."),
        ColumnChoice("docs", "", "whales.md; birds.md"),
    ]
    assert looked.context["plan"].rows[0].golden.expected_doc_ids == ()
    names = ["input", "expected_output", "docs"]
    chosen = {"column": names, "field": ["question", "expected_answer", "expected_doc_ids"]}
    looked = visitor.post(address, {"text": text, "mode": "merge", "do": "look", **chosen})
    assert looked.context["plan"].rows[0].unknown == ("birds.md",)
    assert has(looked, '.banner[data-tone="watch"]')
    assert GoldenQuestion.objects.count() == 2, "a look ahead writes nothing"
    wrong = visitor.post(address, {"text": text, "mode": "merge", "column": names, "field": ["", "", "question"]})
    assert wrong.context["plan"].rows[0].golden.question == "whales.md; birds.md"
    refused = visitor.post(address, {"text": text, "mode": "merge", "column": names, "field": ["notes", "", ""]})
    assert (refused.status_code, has(refused, ".form-errors"), has(refused, "select[name=field]")) == (422, True, True)
    stand = looked.context["plan"].stand
    done = visitor.post(address, {"text": text, "mode": "merge", "do": "import", "stand": stand, **chosen})
    assert done.status_code == 302
    made = GoldenQuestion.objects.get(question="Which animal sings?")
    assert (made.expected_answer, made.expected_doc_ids) == ("The whale.", ["whales.md", "birds.md"])


def test_a_question_out_of_a_search_is_filled_in_first(
    visitor: Client, fill: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    fill()
    run = ask("Where does the redwood grow?", do="search")
    address = f"/evaluation/sets/from-run/{run.pk}/"
    html = page(visitor, address)
    assert 'name="expected_chunks" value="trees.md#0"' in html
    values = {
        "question": run.query,
        "category": "factual",
        "weight": "1",
        "expected_doc_ids": ["trees.md"],
        "golden_set": "new",
    }
    assert visitor.post(address, {**values, "do": "save"}).status_code == 302
    assert GoldenQuestion.objects.get().expected_doc_ids == ["trees.md"]
