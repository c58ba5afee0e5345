"""Numbers that a reader is told do not change with documents that they may not read."""

from __future__ import annotations

import difflib
import json

import pytest
from django.db import connection

from collections_app.access.context import using_access
from collections_app.access.services import access_of_user
from collections_app.collections.invariants import check_invariants
from ragd.store.store import fetch_all
from ragd_site.operations.leak_probe import Person
from retrieval_app.plans.services import build_plan
from retrieval_app.playground.ranking import explain
from tests.access.oracle import OTHERS, SEARCHES, Answers, Oracle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

OPEN = {
    "open1": "The ferry leaves the harbour at noon and returns at dusk.",
    "open2": "The kettle boils water in the kitchen of the harbour office.",
    "open3": "Somebody painted the harbour wall green.",
    "open4": "Der Hafen ist im Winter geschlossen, und die Fähre bleibt liegen.",
}
HIDDEN = {
    "secret1": "Project Falconridge takes over the company in May. The harbour is sold.",
    "secret2": "Das Vorhaben Falkengrat wird im Herbst bekannt gegeben und betrifft den Hafen.",
    "secret3": "Le projet de la crête du faucon concerne le port et la bouilloire du bureau.",
}
WORDS = ("Falconridge", "harbour Hafen")


@pytest.fixture
def oracle() -> Oracle:
    return Oracle(OPEN, HIDDEN)


def differences(before: Answers, after: Answers) -> list[str]:
    found = []
    for key, body in before.items():
        if after[key] != body:
            pieces = (text.replace(",", ",\n").splitlines() for text in (body, after[key]))
            lines = list(difflib.unified_diff(*pieces, lineterm="", n=0))[3:9]
            found.append(f"{key}: {lines}")
    return found


@pytest.mark.fault("SEC-01")
def test_no_answer_changes_with_what_is_hidden(oracle: Oracle) -> None:
    def told() -> Answers:
        return oracle.told(WORDS, SEARCHES) | oracle.told(WORDS[:1], OTHERS)

    before = told()
    assert all(name in before["API search lexical", "harbour Hafen"] for name in ("open1", "explanation"))
    for change in (oracle.hide, oracle.open_and_hide_again, oracle.write_anew, oracle.remove):
        change()
        found = differences(before, told())
        assert not found, "\n".join([change.__name__, *found])
        assert check_invariants(oracle.collection).report["findings"] == []


@pytest.mark.fault("SEC-01")
def test_who_may_read_them_finds_hidden_documents_by_words_that_stand_nowhere_else(oracle: Oracle) -> None:
    oracle.hide()
    with Person(oracle.bob).opened() as person:
        for word, doc_id in (("Falconridge", "secret1"), ("Falkengrat", "secret2"), ("bouilloire", "secret3")):
            body = {"query": word, "mode": "lexical", "explain": True}
            told = json.loads(person.api("POST", f"/v1/collections/{oracle.collection.name}/search", body))
            assert [item["doc_id"] for item in told["results"]] == [doc_id]
            assert {each["chunks"] for each in told["explanation"]["words"]} == {0}
            parts = told["explanation"]["candidates"][f"{doc_id}#0"]["arithmetic"]["bm25"]
            assert parts["sum"] == pytest.approx(told["results"][0]["score"], rel=1e-5)


@pytest.mark.fault("SEC-03")
def test_plans_are_for_who_reads_everything(oracle: Oracle) -> None:
    oracle.hide()
    plan = build_plan(oracle.collection, mode="lexical")
    whole = explain(oracle.collection, "Falconridge", plan, analyze=True)
    assert whole["plans_hidden"] is False and all(each["explain"] for each in whole["statements"] if each["rows"])
    with using_access(access_of_user(oracle.ada)):
        shown = explain(oracle.collection, "Falconridge", plan, analyze=True)
    assert shown["plans_hidden"] is True and shown["statements"]
    assert all(not each["explain"] and not each["params"] and each["rows"] is None for each in shown["statements"])


def test_an_owner_has_the_same_scores_as_a_reader(oracle: Oracle) -> None:
    oracle.hide()
    sql = "SELECT chunk_count, open_count FROM chunk_stats WHERE collection_id = %(id)s"
    assert fetch_all(connection, sql, {"id": oracle.collection.pk}) == [(len(OPEN) + len(HIDDEN), len(OPEN))]
    body = {"query": "harbour", "mode": "lexical"}
    scores = []
    for user in (oracle.ada, oracle.bob):
        with Person(user).opened() as person:
            told = json.loads(person.api("POST", f"/v1/collections/{oracle.collection.name}/search", body))
            scores.append({item["doc_id"]: (item["score"], item["unit_score"]) for item in told["results"]})
    assert scores[1].keys() - scores[0].keys() == {"secret1"}
    assert {name: scores[1][name] for name in scores[0]} == scores[0]
