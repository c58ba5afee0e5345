"""The explanation of a ranking: it is the ranking of every door, its sums add up, and every loss has its reason."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection, transaction
from pytest_django import Settings

import ragd
from collections_app.documents.services import change_state
from collections_app.index.stores import open_store
from collections_app.models import Chunk, Collection
from ragd.errors import InvalidInput, LexicalDisabled
from ragd.search import lexical_search
from ragd.search.retrieval import Retrieval, retrieve_detailed
from ragd.store import postings
from ragd.types import Candidate
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import build_plan
from retrieval_app.playground import ranking
from retrieval_app.playground.ranking import explain
from retrieval_app.search import query_pipeline
from retrieval_app.search.api import run_ask
from retrieval_app.search.query_pipeline import QueryRequest, search
from retrieval_app.search.schemas import AskRequest
from tests.refusals import raises_with
from tests.retrieval.corpus import make_collection

pytestmark = pytest.mark.django_db
QUERY = "How is the water pump cleaned?"


def column(found: dict[str, Any], name: str) -> dict[str, Any]:
    (wanted,) = [item for item in found["columns"] if item["name"] == name]
    return dict(wanted)


def names(found: dict[str, Any]) -> list[str]:
    return [item["name"] for item in found["columns"]]


def losses(found: dict[str, Any], reason: str) -> list[tuple[str, str, int | None]]:
    return [(item["key"], item["stage"], item["rank"]) for item in found["losses"] if item["reason"] == reason]


@pytest.mark.parametrize("mode", ["vector", "lexical", "hybrid"])
def test_the_explained_ranking_is_the_ranking(house: Collection, mode: Any) -> None:
    plan = build_plan(house, mode=mode, k=3)
    run = search(QueryRequest(house, QUERY, plan, "cli"))
    found = explain(house, QUERY, plan)
    assert json.loads(json.dumps(found)) == found
    final = column(found, "final")["rows"]
    assert [(row["key"], row["score"], row["rank"]) for row in final] == [
        (f"{result['doc_id']}#{result['chunk_index']}", result["score"], result["rank"]) for result in run.results
    ]
    for name, rows in run.lists.items():
        assert [[row["key"], row["score"]] for row in column(found, name)["rows"]] == rows
    assert found["plan_hash"] == run.plan_hash
    assert names(found) == {
        "vector": ["vector", "final"], "lexical": ["lexical", "final"],
        "hybrid": ["vector", "lexical", "fused", "final"],
    }[mode]  # fmt: skip
    for item in found["columns"]:
        assert item["size"] == len(item["rows"])
        assert {row["key"] for row in item["rows"]} <= set(found["candidates"])


@pytest.mark.parametrize(("exact", "where"), [("auto", {}), ("never", {}), ("never", {"tags_any": ["inside"]})])
def test_an_explained_answer_retrieves_once(
    house: Collection, monkeypatch: pytest.MonkeyPatch, exact: str, where: dict[str, Any]
) -> None:
    open_store(house).build_vector_index()
    calls: list[str] = []

    def counted(query: str, *details: Any, **options: Any) -> Retrieval:
        calls.append(query)
        return retrieve_detailed(query, *details, **options)

    for module in (ranking, query_pipeline):
        monkeypatch.setattr(module, "retrieve_detailed", counted)
    fields: dict[str, Any] = {"query": QUERY, "k": 2, "candidate_pool": 3, "exact": exact, **where}
    told, plain = (run_ask(house, AskRequest(**fields, explain=each), channel="rest", api_key=None)
                   for each in (True, False))  # fmt: skip
    assert calls == [QUERY, QUERY]
    lists, plain_lists = (QueryRun.objects.get(pk=answer.run_id).lists for answer in (told, plain))
    found = told.explanation
    assert found is not None and lists == plain_lists and plain.explanation is None
    for name, rows in lists.items():
        assert [[row["key"], row["score"]] for row in column(found, name)["rows"]] == rows
    purposes = [item["purpose"] for item in found["statements"]]
    assert purposes.count("vector list") == purposes.count("lexical list") == 1
    assert bool(losses(found, "filtered")) == bool(where)


def test_every_sum_adds_up(house: Collection) -> None:
    found = explain(house, QUERY, build_plan(house, weights={"vector": 0.7, "lexical": 1.9}, rrf_k=7))
    fused = {row["key"]: row["score"] for row in column(found, "fused")["rows"]}
    lexical = {row["key"]: row["score"] for row in column(found, "lexical")["rows"]}
    vector = {row["key"]: row["score"] for row in column(found, "vector")["rows"]}
    assert len(fused) == 5 and 0 < len(lexical) < 5
    for key, candidate in found["candidates"].items():
        sums = candidate["arithmetic"]
        assert sums["rrf"]["score"] == fused[key] == math.fsum(term["share"] for term in sums["rrf"]["terms"])
        for term in sums["rrf"]["terms"]:
            assert term["share"] == term["weight"] / (7 + term["rank"])
        words = sums["bm25"]
        assert words["score"] == lexical.get(key)
        assert words["sum"] == math.fsum(share["repeats"] * share["idf"] * share["weight"] for share in words["shares"])
        if key in lexical:
            assert words["sum"] + words["rounding"] == pytest.approx(words["score"], rel=1e-12)
            assert abs(words["rounding"]) <= 1e-6 * words["score"]
        else:
            assert words["shares"] == []
        assert sums["cosine"]["cosine"] == vector[key]
        assert sums["rerank"] is None


def test_packed_postings_are_explained_alike(house: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = build_plan(house, mode="lexical", k=3)
    before = explain(house, "the water of the boiler", plan)
    postings.build_postings(open_store(house))
    monkeypatch.setattr(lexical_search, "POSTINGS_MIN", 1)
    found = explain(house, "the water of the boiler", plan, analyze=True)
    lists = [
        [each["sql"] for each in told["statements"] if each["purpose"] == "lexical list"] for told in (before, found)
    ]
    assert ["chunk_segments" in sql for (sql,) in lists] == [False, True]
    assert (found["columns"], found["words"]) == (before["columns"], before["words"])
    for candidate in found["candidates"].values():
        words = candidate["arithmetic"]["bm25"]
        assert words["score"] is None or abs(words["rounding"]) <= 1e-6 * words["score"]


def test_rows_say_where_they_come_from(house: Collection) -> None:
    found = explain(house, QUERY, build_plan(house, k=3))
    places = {name: {row["key"]: row["rank"] for row in column(found, name)["rows"]} for name in names(found)}
    for row in column(found, "fused")["rows"]:
        assert row["from"] == {name: places[name].get(row["key"]) for name in ("vector", "lexical")}
        assert row["gain"] is None
    for row in column(found, "final")["rows"]:
        assert row["from"] == {"fused": places["fused"][row["key"]]}
        assert row["gain"] == 0


def test_matched_words_are_found_in_the_texts(house: Collection) -> None:
    found = explain(house, "water pumps, xylophone", build_plan(house))
    pump = found["candidates"]["pump.md#0"]
    marked = [(pump["content"][start:end], lexeme) for start, end, lexeme in pump["highlights"]["content"]]
    assert ("water", "water") in marked and ("pump", "pump") in marked
    assert [pump["context"][start:end] for start, end, _ in pump["highlights"]["context"]] == ["Pump"]
    assert {word["word"]: word["chunks"] for word in found["words"]} == {"water": 2, "pumps": 1, "xylophone": 0}


def test_what_filters_keep_out_says_which_filter(house: Collection) -> None:
    plan = build_plan(house, k=2, tags_any=["food", "inside"], metadata={"floor": 1})
    found = explain(house, QUERY, plan)
    assert [row["key"] for row in column(found, "final")["rows"]] == ["kitchen.md#0"]
    messages = {item["key"]: item["message"] for item in found["losses"] if item["reason"] == "filtered"}
    assert messages["pump.md#0"].endswith("but it has none of the tags food, inside")
    assert messages["archive.md#0"].endswith("but its floor is -1, not 1")
    assert "kitchen.md#0" not in messages
    assert found["short_result"]["reason"] == "filters"


def test_what_stays_below_the_pool_and_what_k_cuts(house: Collection) -> None:
    plan = build_plan(house, mode="vector", k=1, candidate_pool=3)
    found = explain(house, QUERY, plan)
    assert losses(found, "cut_by_k") == [
        (row["key"], "final", row["rank"]) for row in column(found, "vector")["rows"][1:]
    ]
    assert [(stage, rank) for _, stage, rank in losses(found, "below_pool")] == [("vector", 4), ("vector", 5)]
    assert len(found["candidates"]) == 5


def test_a_chunk_that_one_list_lacks_says_why(house: Collection) -> None:
    found = explain(house, "coffee", build_plan(house, candidate_pool=2, k=2))
    lacking = {
        (item["key"], item["stage"]): item["message"] for item in found["losses"] if item["reason"] == "not_in_list"
    }
    other = next(row["key"] for row in column(found, "fused")["rows"] if row["key"] != "kitchen.md#0")
    assert lacking == {(other, "lexical"): "no query terms"}


class ShortestFirst:
    """A reranker for tests: the fewer characters, the better; tells what it counted."""

    name = "shortest"

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        return [-len(text) for text in texts]

    def explain_candidates(self, query: str, candidates: Sequence[Candidate]) -> list[list[dict[str, Any]]]:
        return [[{"part": "characters", "value": -len(item.text)}] for item in candidates]


@pytest.fixture
def reranking(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_with_reranker(collection: Collection) -> ragd.Store:
        store = open_store(collection)
        store.rerankers = {"shortest": ShortestFirst()}
        return store

    monkeypatch.setattr(ranking, "open_store", open_with_reranker)


def test_the_builtin_reranker_tells_its_parts(house: Collection) -> None:
    found = explain(house, QUERY, build_plan(house, rerank="builtin"))
    for row in column(found, "reranked")["rows"]:
        told = found["candidates"][row["key"]]["arithmetic"]["rerank"]["parts"]
        assert [part["part"] for part in told] == ["maxsim", "cosine", "bm25"]
        assert math.fsum(part["share"] for part in told) == pytest.approx(row["score"], abs=1e-6)
        assert [token["token"] for token in told[0]["tokens"]][:3] == ["[CLS]", "how", "is"]


@pytest.mark.usefixtures("reranking")
def test_the_reranker_has_its_column_and_its_losses(house: Collection) -> None:
    found = explain(house, QUERY, build_plan(house, k=2, rerank="shortest"))
    assert names(found) == ["vector", "lexical", "fused", "reranked", "final"]
    fused = [row["key"] for row in column(found, "fused")["rows"]]
    reranked = column(found, "reranked")["rows"]
    assert sorted(row["key"] for row in reranked) == sorted(fused)
    for row in reranked:
        assert row["gain"] == fused.index(row["key"]) + 1 - row["rank"]
        sums = found["candidates"][row["key"]]["arithmetic"]
        assert sums["rerank"]["score"] == row["score"]
        assert sums["rerank"]["parts"] == [{"part": "characters", "value": row["score"]}]
        assert sums["rrf"]["score"] == found["candidates"][row["key"]]["ranks"]["fused"]["score"]
    final = [row["key"] for row in column(found, "final")["rows"]]
    assert final == [row["key"] for row in reranked[:2]]
    cut = {key for key, _, _ in losses(found, "cut_by_rerank")}
    assert cut == set(fused[:2]) - set(final)
    assert cut | {key for key, _, _ in losses(found, "cut_by_k")} == set(fused) - set(final)


def test_compression_says_what_the_budget_cost(house: Collection) -> None:
    found = explain(house, "water pump oven", build_plan(house, k=4, compress="sentences", token_budget=14))
    spans = {(span["doc_id"], span["chunk_index"]) for span in found["spans"]}
    kept = {f"{doc_id}#{index}" for doc_id, index in spans}
    final = [row["key"] for row in column(found, "final")["rows"]]
    named = {key for reason in ("over_budget", "no_span", "shortened") for key, _, _ in losses(found, reason)}
    assert found["tokens_after"] <= 14 < found["tokens_before"]
    assert set(final) - kept == {key for reason in ("over_budget", "no_span") for key, _, _ in losses(found, reason)}
    assert losses(found, "over_budget")
    assert kept & named == {key for key, _, _ in losses(found, "shortened")}


def test_the_statements_are_those_that_ran_and_run_again(house: Collection) -> None:
    found = explain(house, QUERY, build_plan(house, k=3))
    purposes = [item["purpose"] for item in found["statements"]]
    assert purposes.count("vector list") == purposes.count("lexical list") == 1
    for item in found["statements"]:
        assert any("Scan" in line or "Result" in line for line in item["explain"]), item["purpose"]
        assert not any("actual" in line for line in item["explain"])
        assert all(f"%({name})s" in item["sql"] for name in item["params"]), item["purpose"]
        assert item["took_ms"] >= 0
        with connection.cursor() as cursor:
            cursor.execute(item["runnable"])
            assert len(cursor.fetchall()) == item["rows"]
    (vector,) = [item for item in found["statements"] if item["purpose"] == "vector list"]
    with connection.cursor() as cursor:
        cursor.execute(vector["sql"], vector["params"])
        assert [f"{row[1]}#{row[2]}" for row in cursor.fetchall()] == [
            row["key"] for row in column(found, "vector")["rows"]
        ]


def test_analyze_measures_each_statement(house: Collection) -> None:
    found = explain(house, QUERY, build_plan(house), analyze=True)
    for item in found["statements"]:
        assert any("actual time" in line for line in item["explain"]), item["purpose"]


def test_exact_against_approximate(house: Collection, settings: Settings) -> None:
    assert explain(house, QUERY, build_plan(house))["approximate"] is None
    open_store(house).build_vector_index()
    settings.RAGD_EXACT_THRESHOLD = 0
    found = explain(house, QUERY, build_plan(house, k=2))
    both = found["approximate"]
    assert found["exact"] is False
    assert both["approximate"] == [row["key"] for row in column(found, "vector")["rows"]]
    assert sorted(both["exact"]) == sorted(both["approximate"])
    assert both["recall_at_k"] == both["recall_at_pool"] == both["overlap"]["share"] == 1.0
    assert both["missed"] == []
    settings_statement = next(item for item in found["statements"] if "set_config" in item["sql"])
    assert settings_statement["purpose"] == "state of the collection"
    assert explain(house, QUERY, build_plan(house, mode="lexical"))["approximate"] is None


def test_explaining_writes_nothing_and_leaves_no_setting(house: Collection) -> None:
    open_store(house).build_vector_index()
    before = QueryRun.objects.count()
    with transaction.atomic():
        explain(house, QUERY, build_plan(house, exact="never"), analyze=True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('transaction_read_only'), current_setting('statement_timeout')")
            assert cursor.fetchone() == ("off", "0")
            cursor.execute("UPDATE collections SET description = 'written' WHERE id = %s", [house.pk])
    assert QueryRun.objects.count() == before


def test_failures_are_those_of_every_door(house: Collection) -> None:
    plain = make_collection("plain", hybrid_enabled=False)
    with pytest.raises(LexicalDisabled):
        explain(plain, QUERY, build_plan(plain, mode="hybrid"))
    with raises_with(InvalidInput, field="query"):
        explain(house, " ", build_plan(house))


def test_an_empty_collection_and_a_query_of_no_known_word(house: Collection) -> None:
    empty = make_collection("empty", empty=True)
    found = explain(empty, QUERY, build_plan(empty))
    assert [item["size"] for item in found["columns"]] == [0, 0, 0, 0]
    assert (found["losses"], found["candidates"]) == ([], {})
    assert found["short_result"]["reason"] == "collection_empty"
    unknown = explain(house, "xylophone", build_plan(house, mode="lexical"))
    assert unknown["short_result"]["reason"] == "no_match"
    assert [word["chunks"] for word in unknown["words"]] == [0]


def test_disabled_documents_are_in_no_column_and_say_where_they_would_be(house: Collection) -> None:
    before = explain(house, QUERY, build_plan(house))
    assert losses(before, "disabled") == []
    places = {
        name: [row["rank"] for row in column(before, name)["rows"] if row["doc_id"] == "pump.md"]
        for name in ("vector", "lexical")
    }
    change_state(house, ["pump.md"], "disabled")
    found = explain(house, QUERY, build_plan(house))
    assert all(row["doc_id"] != "pump.md" for item in found["columns"] for row in item["rows"])
    assert losses(found, "disabled") == [("pump.md#0", name, places[name][0]) for name in ("vector", "lexical")]
    loss = next(item for item in found["losses"] if item["reason"] == "disabled")
    assert loss["message"].endswith("but its document is disabled")
    assert losses(explain(house, QUERY, build_plan(house, tags_all=["inside"])), "disabled") == []


def test_a_chunk_disabled_by_itself_says_so(house: Collection) -> None:
    Chunk.objects.of(house).filter(doc_id="pump.md").update(enabled=False)
    found = explain(house, QUERY, build_plan(house, mode="vector"))
    (loss,) = [item for item in found["losses"] if item["reason"] == "disabled"]
    assert loss["message"].endswith("but the chunk is disabled")
