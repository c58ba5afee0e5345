"""Questions for a number or a complete list: exact with every citation, or declined with the reason."""

from __future__ import annotations

from copy import copy

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from collections_app.chunks.edits import set_chunk_enabled
from collections_app.documents.services import ingest_text
from collections_app.index.stores import open_store
from collections_app.models import Chunk, Collection, Document
from ragd.conditions import parse_condition
from ragd.types import Filters, RetrievePlan
from retrieval_app.answers import counting
from retrieval_app.answers.count_tables import read_question
from retrieval_app.answers.counting import Count, count
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.retrieval.corpus import bearer, make_collection, post
from tests.retrieval.sheets import ELSEWHERE, TRAPS, Rows, as_markdown, make_staff, make_tickets, questions

pytestmark = pytest.mark.django_db
STAFF, TICKETS = make_staff(), make_tickets()


@pytest.fixture(scope="module")
def office_of_module(module_db: None) -> Collection:
    collection = make_collection("office")
    ingest_text(collection, "hr/staff.csv", as_markdown(STAFF), title="Staff", tags=["people", "table"])
    ingest_text(collection, "tickets.xlsx", f"## Tickets\n\n{as_markdown(TICKETS)}", metadata={"year": 2024})
    return collection


@pytest.fixture
def office(office_of_module: Collection, db: None) -> Collection:
    return copy(office_of_module)


def counted(question: str, collection: Collection, plan: RetrievePlan | None = None) -> Count | None:
    with transaction.atomic():
        return count(question, plan or RetrievePlan(), open_store(collection))


def numbers(result: Count, rows: Rows) -> list[int]:
    """Which rows of the sheet a count holds, by what it quotes."""
    places = {" | ".join(v.replace("|", "\\|") for v in row.values()).strip("| "): n for n, row in enumerate(rows)}
    return [places[row.source.content[row.start : row.end]] for row in result.rows]


def test_every_generated_question_is_counted_exactly(office: Collection) -> None:
    staff, tickets = questions(STAFF, TICKETS)
    assert len(staff) + len(tickets) >= 60
    for rows, asked in ((STAFF, staff), (TICKETS, tickets)):
        for question in asked:
            result = counted(question.text, office)
            assert result is not None and not result.declined, (question.text, result and result.declined)
            assert tuple(numbers(result, rows)) == question.rows, question.text


def test_what_cannot_be_mapped_is_declined_with_a_reason(office: Collection) -> None:
    for question in TRAPS:
        result = counted(question, office)
        assert result is not None and result.declined and not result.matches, question


def test_what_no_table_speaks_of_is_asked_of_the_texts(office: Collection) -> None:
    for question in ELSEWHERE:
        assert counted(question, office) is None, question


@pytest.mark.parametrize("question", ["How many people live here in winter?", "How many kVA does the generator have?"])
def test_a_column_named_as_a_word_of_every_question_speaks_of_no_table(question: str) -> None:
    collection = make_collection("words", empty=True)
    ingest_text(collection, "words.md", "| In | Does |\n| --- | --- |\n| ape | bee |\n| cow | dog |", title="Words")
    assert counted(question, collection) is None
    found = counted("How many rows have in ape?", collection)
    assert found is not None and len(found.rows) == 1


def test_documents_are_counted(office: Collection) -> None:
    everything = set(Document.objects.filter(collection=office).values_list("doc_id", flat=True))
    expected = {
        "How many documents are there?": everything,
        "How many documents have tag water?": {"pump.md", "boiler.md"},
        "List all documents with floor -1": {"archive.md", "boiler.md"},
        "How many files mention the red key?": {"pump.md"},
        'Wie viele Dokumente enthalten "the archive"?': {"archive.md"},
        "How many documents with tag water contain boiler?": {"boiler.md"},
    }
    for question, doc_ids in expected.items():
        result = counted(question, office)
        assert result is not None and not result.declined, (question, result and result.declined)
        assert sorted(row.source.doc_id for row in result.rows) == sorted(doc_ids), question
        behind_of = counting.CountingAnswerer(result)._headline().split()[3:4]
        assert behind_of in ([], ["documents:"], ["Dokumenten:"]), question


def test_a_count_covers_what_the_filters_let_through_and_what_can_be_cited(
    office: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = RetrievePlan(filters=Filters(tags_any=("people",)))
    where = parse_condition({"field": "doc_id", "op": "eq", "value": "tickets.xlsx"})
    result = counted("How many staff are there?", office, people)
    assert result is not None and len(result.rows) == len(STAFF)
    assert counted("How many staff are there?", office, RetrievePlan(filters=Filters(where=where))) is None
    monkeypatch.setattr(counting, "CITED_MAX", 100)
    result = counted("How many staff are there?", office)
    assert result is not None and "100" in result.declined


def test_rows_of_disabled_chunks_are_not_counted(office: Collection) -> None:
    before = counted("How many staff are there?", office)
    assert before is not None
    next_start = Chunk.objects.get(collection=office, doc_id="hr/staff.csv", chunk_index=1).start_char
    staying = [row for row in before.rows if row.source.start + row.start >= next_start]
    set_chunk_enabled(office, "hr/staff.csv", 0, enabled=False)
    after = counted("How many staff are there?", office)
    assert after is not None and 0 < len(staying) < len(before.rows)
    assert numbers(after, STAFF) == numbers(before, STAFF)[-len(staying) :]


def test_the_answer_cites_every_row(office: Collection, client: Client) -> None:
    expected = [row for row in STAFF if row["Department"] == "R&D"]
    body = {"query": "How many staff are in R&D?"}
    status, answer = post(client, "/v1/collections/office/ask", body, bearer())
    assert (status, answer["status"], answer["answerer"]) == (200, "ok", "counting")
    assert answer["answer"].startswith(f"{len(expected)} ")
    assert len(answer["citations"]) == len(expected)
    text = Document.objects.get(collection=office, doc_id="hr/staff.csv").text
    for citation, row in zip(answer["citations"], expected, strict=True):
        assert text[citation["start"] : citation["end"]] == citation["quote"] == " | ".join(row.values())
        assert answer["answer"][citation["answer_start"] : citation["answer_end"]] == f"[{citation['marker']}]"
        source = answer["sources"][citation["marker"] - 1]
        assert (source["doc_id"], source["chunk_index"]) == (citation["doc_id"], citation["chunk_index"])
    run = QueryRun.objects.get(pk=answer["run_id"])
    assert run.retrieved_ids == [f"{source['doc_id']}#{source['chunk_index']}" for source in answer["sources"]]


def test_a_declined_count_and_one_of_an_earlier_time_are_no_answers(office: Collection) -> None:
    run = ask(QueryRequest(office, "How many staff are not in Sales?", RetrievePlan(), "api"))
    assert (run.status, run.answerer, run.citations) == ("abstained", "counting", [])
    assert run.results  # the closest passages
    assert "not" in (run.answer or "")
    at = timezone.now()
    run = ask(QueryRequest(office, "How many staff are there?", RetrievePlan(), "api", as_of=at))
    assert run.status == "abstained"


def test_a_table_without_names_of_columns_is_declined() -> None:
    collection = make_collection("numbers", empty=True)
    ingest_text(collection, "plain.csv", "| 1 | red |\n| --- | --- |\n| 2 | blue |\n| 3 | blue |", title="Plain")
    result = counted("How many rows are blue?", collection)
    assert result is not None and result.declined


def test_a_word_of_a_tables_name_that_is_a_value_restricts_the_rows() -> None:
    collection = make_collection("items", empty=True)
    rows = "| Item | Status |\n| --- | --- |\n| a | open |\n| b | closed |\n| c | open |\n| Total: | |"
    ingest_text(collection, "open.csv", rows, title="Open items")
    result = counted("How many open items are there?", collection)
    assert result is not None and len(result.rows) == 2
    everything = counted("How many items are there?", collection)
    assert everything is not None and everything.declined


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("How many items have no valve?", None), ("How many items have kind valve and no shipped?", None),
        ("How many items are a valve?", None), ("How many items have shipped no?", 2),
        ('How many items have "no"?', 2), ('How many items have kind valve and item "a"?', 1),
        ("How many items are in IT?", 1), ("How many items have kind it?", None),
    ],
)  # fmt: skip
def test_a_value_that_is_also_a_word_of_the_question_is_not_guessed(question: str, rows: int | None) -> None:
    collection = make_collection("items", empty=True)
    table = "| Item | Kind | Shipped |\n| --- | --- | --- |\n| a | valve | no |\n| b | valve | yes |\n| c | IT | no |"
    ingest_text(collection, "items.csv", table, title="Items")
    result = counted(question, collection)
    assert result is not None and bool(result.declined) is (rows is None), result and result.declined
    assert len(result.rows) == (rows or 0)


def test_a_value_of_another_table_that_is_a_word_of_the_question_changes_nothing(office: Collection) -> None:
    ingest_text(office, "marks.csv", "| Mark | Points |\n| --- | --- |\n| a | 1 |\n| in | 2 |", title="Marks")
    result = counted("How many staff are in a city Paris?", office)
    assert result is not None and not result.declined
    assert len(result.rows) == sum(row["City"] == "Paris" for row in STAFF)


def test_a_question_that_only_a_table_answers_is_not_given_to_an_answerer() -> None:
    collection = make_collection("items", empty=True)
    ingest_text(collection, "staff.csv", as_markdown(STAFF[:9]), title="Staff")
    run = ask(QueryRequest(collection, "How many people work with us?", RetrievePlan(), "api"))
    assert (run.status, run.answerer) == ("abstained", "counting")
    assert run.results


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("How many rows are there?", "count"), ("  wieviele Zeilen gibt es?", "count"),
        ("Wie viel Zeilen gibt es?", "count"), ("Wie viel kostet die Halle?", None),
        ("Liste mir alle Zeilen auf", "list"),
        ("Please list all rows", "list"), ("How are the rows?", None), ("Which rows are open?", None),
        ("list the keys", None), ("How many", None),
    ],
)  # fmt: skip
def test_only_questions_for_a_number_or_all_are_counted(question: str, asks: str | None) -> None:
    found = read_question(question)
    assert (found.asks if found else None) == asks


def count_in(text: str, question: str, doc_id: str = "t.md") -> Count | None:
    collection = make_collection("tables")
    ingest_text(collection, doc_id, text)
    return counted(question, collection)


@pytest.mark.fault("N-25")
@pytest.mark.parametrize(
    "text",
    [
        "# T\n\n| name | qty |\n|:--|--:|\n| item 1 | 1 |\n| item 2 | 2 |\n",
        "name | qty\n--- | ---\nitem 1 | 1\nitem 2 | 2\n",
        "Some words\nname | qty\n:-: | -\nitem 1 | 1\nitem 2 | 2\n\nmore words",
        "  | name | qty |\n  | --- | --- |\n  | item 1 | 1 |\n  | item 2 | 2\n",
        "| name | qty |\n| --- | --- |\n| item 1 | 1 |\n|  |  |\n| name | qty |\n| item 2 | 2 |\n# Next\n",
        "```text\n~~~\nname | qty\n--- | ---\nitem 9 | 9\n```\n\nname | qty\n--- | ---\nitem 1 | 1\nitem 2 | 2\n",
    ],
)
def test_every_form_of_a_markdown_table_is_counted(text: str) -> None:
    result = count_in(text, "How many rows are there?")
    assert result is not None and not result.declined, result
    assert [row.cells for row in result.rows] == [(("item 1",), ("1",)), (("item 2",), ("2",))]


@pytest.mark.parametrize(
    ("rows", "question"),
    [
        ("| EU | Cable | 12 |\n| EU | Hub | 7 |\n| Total EU |  | 19 |", "How many rows are there?"),
        ("| EU | Cable | 12 |\n| EU | Total | 12 |\n| US | Hub | 7 |", "How many rows have Region EU?"),
        ("| Europe | Europe | Europe |\n| EU | Cable | 12 |", "How many rows are there?"),
        ("| Europe |  |  |\n| EU | Cable | 12 |", "How many rows are there?"),
        ("| EU | Cable | 12 |\nEU and more", "How many rows have Region EU?"),
        (
            "| EU | Cable | 12 |\n\n| EU | Hub | 7 |\n| --- | --- | --- |\n| EU | Cord | 3 |",
            "How many rows have Region EU?",
        ),
        ("| EU | Cable | 12 |\n\nPage 2\n\n| EU | Hub | 7 |", "How many rows have Region EU?"),
    ],
)  # fmt: skip
def test_rows_that_may_be_none_or_may_be_missing_are_declined(rows: str, question: str) -> None:
    result = count_in(f"| Region | Product | Units |\n| --- | --- | --- |\n{rows}\n", question)
    assert result is not None and result.declined and not result.matches


@pytest.mark.parametrize("header", ["| A | A | B |", "| A |  | B |", "| x | A | B |"])
def test_a_header_that_names_no_columns_is_declined(header: str) -> None:
    result = count_in(f"{header}\n| --- | --- | --- |\n| x | 2 | 3 |\n| y | 4 | 5 |\n", "How many rows are there?")
    assert result is not None and result.declined


@pytest.mark.parametrize(
    ("question", "rows"), [("How many workers are there?", None), ("How many rows have default 4?", 1)]
)
def test_the_name_of_a_row_is_no_thing_to_count(question: str, rows: int | None) -> None:
    result = count_in("| setting | default |\n| --- | --- |\n| `workers` | 4 |\n| retries | 3 |\n", question)
    assert (result and len(result.rows)) == rows


def test_a_thing_with_the_name_of_a_column_behind_it_is_counted() -> None:
    result = count_in(
        "# Errors\n\n| code | meaning |\n| --- | --- |\n| E1 | lost |\n| E2 | late |\n",
        "How many error codes are there?",
    )
    assert result is not None and (result.declined, len(result.rows)) == ("", 2)


LEAVE = "| kind of leave | days | paid |\n| --- | --- | --- |\n| annual | 28 | yes |\n| study | 5 | no |\n"


@pytest.mark.parametrize(
    ("question", "before", "answerer", "quotes"),
    [
        ("How many days of leave do I have?", "Everyone has 28 days of paid leave a year.\n\n", "extractive",
         "Everyone has 28 days of paid leave a year."),
        ("How many days of leave do I have?", "", "counting", None),
        ("How many days is study leave?", "", "extractive", "study | 5 | no"),
        ("How many rows have paid no?", "Everyone has 28 days of paid leave a year.\n\n", "counting", "study | 5 | no"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_quoted_where_it_is_said(
    question: str, before: str, answerer: str, quotes: str | None
) -> None:
    collection = make_collection("leave", empty=True)
    ingest_text(collection, "rules.md", f"# Rules\n\n## Leave\n\n{before}{LEAVE}", title="Rules")
    run = ask(QueryRequest(collection, question, RetrievePlan(), "api"))
    assert (run.answerer, [each["quote"] for each in run.citations]) == (answerer, [quotes] if quotes else [])


@pytest.mark.parametrize(
    ("question", "quotes"),
    [
        ("How many camping stoves are in stock?", ["Camping stove | 32 | red"]),
        ("How many tents are in stock?", []),  # of two rows
        ("How many small tents can I find in the stock?", ["Small tent | 5 | red"]),
        ("How many camping stoves are red?", []),
    ],
)
def test_one_cell_of_a_row_that_is_named_says_how_many(question: str, quotes: list[str]) -> None:
    rows = "| Camping stove | 32 | red |\n| Small tent | 5 | red |\n| Large tent | 4 | green |\n"
    collection = make_collection("shop", empty=True)
    ingest_text(collection, "shop.md", f"# Shop\n\n| name | stock | colour |\n|---|---|---|\n{rows}", title="Shop")
    run = ask(QueryRequest(collection, question, RetrievePlan(), "api"))
    assert [each["quote"] for each in run.citations if run.answerer == "extractive"] == quotes


@pytest.mark.parametrize(
    ("question", "answerer", "quotes"),
    [
        ("How many groups are allowed?", "counting", ["Adults | yes | 3", "Students | yes | 12"]),
        ("How many groups are not allowed?", "counting", ["Dogs | no | 2"]),
        ("Which groups are allowed?", "extractive", ["Adults | yes | 3", "Students | yes | 12"]),
        ("Which groups are not allowed?", "extractive", ["Dogs | no | 2"]),
        ("Which groups have size 12?", "extractive", ["Students | yes | 12"]),
    ],
)
def test_a_column_of_yes_and_no_says_which(question: str, answerer: str, quotes: list[str]) -> None:
    rows = "| Adults | yes | 3 |\n| Dogs | no | 2 |\n| Students | yes | 12 |\n"
    collection = make_collection("hall", empty=True)
    text = f"# Groups in the hall\n\n| Group | Allowed | Size |\n|---|---|---|\n{rows}"
    ingest_text(collection, "hall.md", text, title="Groups in the hall")
    run = ask(QueryRequest(collection, question, RetrievePlan(), "api"))
    assert (run.answerer, [each["quote"] for each in run.citations]) == (answerer, quotes)


def test_a_row_that_sums_up_does_not_stand_in_the_way_of_others() -> None:
    text = "| Region | Product | Units |\n| --- | --- | --- |\n| EU | Hub | 7 |\n| US | Hub | 3 |\n| Total |  | 10 |\n"
    result = count_in(text, "How many rows have Region EU?")
    assert result is not None and not result.declined and len(result.rows) == 1
