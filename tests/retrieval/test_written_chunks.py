"""Chunks that a person wrote, in results and answers: quoted as they are, placed where the text is they replace."""

from __future__ import annotations

import pytest

from collections_app.chunks.edits import add_chunk, edit_chunk
from collections_app.models import Collection, Document
from ragd.search.compression import CompressPolicy, compress
from ragd.types import Candidate, RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest

QUESTION = "What does the turbine move per minute?"
EDITED = "The turbine of the north hall moves 900 litres of water per minute. It is painted green. Nobody knows why."


@pytest.fixture
def house(house: Collection) -> Collection:
    edit_chunk(house, "pump.md", 0, EDITED)
    add_chunk(house, "garden.md", "The turbine garden opens at nine, and its turbine moves air.")
    return house


def ask(house: Collection) -> QueryRun:
    return query_pipeline.ask(QueryRequest(house, QUESTION, RetrievePlan(mode="lexical", k=3), "api"))


def test_results_say_that_a_person_wrote_them_and_where_their_place_is(house: Collection) -> None:
    run = query_pipeline.search(QueryRequest(house, "turbine", RetrievePlan(mode="lexical"), "api"))
    found = {result["doc_id"]: result for result in run.results}
    text = Document.objects.get(collection=house, doc_id="pump.md").text
    pump, garden = found["pump.md"], found["garden.md"]
    assert (pump["content"], pump["attributes"]["overlay"]) == (EDITED, "edit")
    assert "400 litres" in text[pump["start"] : pump["end"]]
    assert (garden["attributes"]["overlay"], garden["start"]) == ("add", garden["end"])


def test_a_citation_quotes_what_the_chunk_says_and_points_at_its_place(house: Collection) -> None:
    run = ask(house)
    citation = run.citations[0]
    assert citation["quote"] in EDITED
    assert "900 litres" in citation["quote"]
    result = next(result for result in run.results if result["doc_id"] == "pump.md")
    assert (citation["start"], citation["end"]) == (result["start"], result["end"])
    source = next(source for source in run.sources if source["doc_id"] == "pump.md")
    assert source["excerpt"] in EDITED
    assert "900 litres" in source["excerpt"]
    assert (source["excerpt_start"], source["excerpt_end"]) == (result["start"], result["end"])


def test_what_compression_keeps_is_placed_at_the_chunk(house: Collection) -> None:
    plan = RetrievePlan(mode="lexical", k=3, compress="sentences")
    run = query_pipeline.search(QueryRequest(house, "turbine litres", plan, "api"))
    result = next(result for result in run.results if result["doc_id"] == "pump.md")
    assert result["spans"]
    for span in result["spans"]:
        assert span["content"] in EDITED
        assert (span["start"], span["end"]) == (result["start"], result["end"])


def test_compression_keeps_what_would_lie_over_another_chunk_of_its_document() -> None:
    cut = Candidate("d", 0, "The engine is loud in the hall at night.", 1.0, start=0, end=40)
    added = Candidate("d", 1, "The turbine is loud too.", 0.9, attributes={"overlay": "add"}, start=0, end=0)
    spans = compress("loud turbine", [cut, added], CompressPolicy(kind="sentences", token_budget=500))
    assert [span["content"] for span in spans] == [cut.content, added.content]
