from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client

from collections_app.errors import ServiceError
from collections_app.index.stores import open_store
from collections_app.models import Collection
from ragd.errors import EmbedderError, InvalidInput
from ragd.search.retrieval import Retrieval, retrieve_detailed
from ragd.store.store import Store
from ragd.types import Candidate, RetrievePlan
from retrieval_app.answers.protocol import declines
from retrieval_app.models import Calibration, QueryRun
from retrieval_app.plans.services import build_plan, forget_calibration, keep_calibration, switch_corrective
from retrieval_app.runs.receipts import replay
from retrieval_app.search import query_pipeline
from retrieval_app.search.confidence import Measured, Rule, Weights, special_words
from retrieval_app.search.fallbacks import Corrector, cut_strips
from retrieval_app.search.query_pipeline import QueryRequest
from retrieval_app.transfer_parts import CALIBRATIONS
from tests.refusals import raises_with
from tests.retrieval.corpus import bearer, make_collection, post

pytestmark = pytest.mark.django_db

WORDS = Weights(0.0, (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.5, 0.0), (1.0, 1.0, 0.1, 1.0))
HALF = 0.5  # what WORDS says of a text that holds half of the question's words


def calibrate(
    collection: Collection, upper: float | None = 0.9, lower: float | None = 0.2, **values: Any
) -> Calibration:
    return keep_calibration(
        collection,
        Rule(WORDS, upper, lower),
        embed_model=values.pop("embed_model", collection.embed_model),
        data={"set": "house questions", "version": 1},
        figures={},
    )


def ask(collection: Collection, query: str, *, corrective: bool | None = True, **plan: Any) -> QueryRun:
    chosen = build_plan(collection, **({"k": 3} | plan))
    return query_pipeline.ask(
        QueryRequest(collection, query, chosen, "cli", corrective=corrective, llm_model="extractive")
    )


@pytest.mark.parametrize(
    ("scores", "action"),
    [
        ([0.1, 0.9], "correct"),
        ([0.95], "correct"),
        ([0.89, 0.2], "ambiguous"),
        ([0.2], "ambiguous"),
        ([0.19, 0.0], "incorrect"),
        ([], "incorrect"),
    ],
)
def test_any_high_score_is_correct_and_all_low_ones_incorrect(scores: list[float], action: str) -> None:
    assert Rule(WORDS, 0.9, 0.2).action(scores) == action


def test_a_threshold_that_the_data_did_not_give_is_never_passed() -> None:
    assert [Rule(WORDS, None, None).action([score]) for score in (0.0, 1.0)] == ["ambiguous", "ambiguous"]
    assert Rule(WORDS, None, None).action([]) == "incorrect"
    with pytest.raises(ValueError, match="lower must be at most upper"):
        Rule(WORDS, 0.2, 0.9)


def test_weights_travel_as_data() -> None:
    assert Weights.from_dict(WORDS.as_dict()) == WORDS
    assert WORDS.probability((0, 0, 0.5, 0)) == HALF
    assert (WORDS.probability((0, 0, 1e9, 0)), WORDS.probability((0, 0, -1e9, 0))) == (1.0, 0.0)
    other = WORDS.as_dict()
    other["features"]["charm"] = other["features"].pop("names")
    with pytest.raises(ValueError, match="charm"):
        Weights.from_dict(other)
    flat = WORDS.as_dict()
    flat["features"]["names"]["scale"] = 0.0
    with pytest.raises(ValueError, match="above 0"):
        Weights.from_dict(flat)


def test_names_and_numbers_are_told_from_first_words() -> None:
    assert special_words("When was the BM25 pump of Ada Lovelace built, before 1987?") == (
        "BM25",
        "Ada",
        "Lovelace",
        "1987",
    )
    assert special_words("RAGD_VAR is what?") == ("RAGD_VAR",)
    assert special_words("what is it?") == ()


def test_strips_cover_the_text_in_groups_of_sentences() -> None:
    sentences = [f"Sentence number {name} says five words." for name in ("one", "two", "three", "four", "five")]
    text = "# Head\n\n" + " ".join(sentences)
    cut = [text[start:end] for start, end in cut_strips(text)]
    assert cut == ["# Head\n\n" + " ".join(sentences[:3]), " ".join(sentences[3:])]
    assert cut_strips("One only. And two.") == [(0, 18)]
    assert cut_strips("  ") == []


def test_features_are_those_of_the_question_and_the_text(house: Collection) -> None:
    with transaction.atomic():
        measured = Measured("Was the pump built in 1987 or in 1988?", open_store(house))
        found = query_pipeline.search(QueryRequest(house, "pump built 1987", build_plan(house, k=5), "cli"))
        pump = next(item for item in found.results if item["doc_id"] == "pump.md")
        stored = Candidate(
            "pump.md", pump["chunk_index"], pump["content"], 0.0, context=pump["context"], chunk_id=_chunk_id(house)
        )
        (row,) = measured.of_candidates([stored])
        same, none = measured.of_texts([stored.text, "nothing of that kind"])
    assert row == pytest.approx(same, abs=1e-5)
    cosine, bm25, words, names = row
    assert 0.3 < cosine < 1 and names == 0.5
    assert words == pytest.approx(3 / 4)  # pump, built, 1987; not 1988
    assert 0 < bm25 < words
    assert none[1:] == (0.0, 0.0, 0.0) and none[0] < cosine


def _chunk_id(collection: Collection) -> int:
    from collections_app.models import Chunk

    return int(Chunk.objects.filter(collection_id=collection.pk, doc_id="pump.md").values_list("pk", flat=True)[0])


def test_nothing_is_stated_without_a_calibration(house: Collection) -> None:
    run = ask(house, "How many litres does the main pump move?", corrective=None)
    assert (run.retrieval_confidence, run.retrieval_action, run.correction) == (None, "", None)
    assert run.evidence is not None and run.fallback_triggered is False
    with raises_with(ServiceError, status=422, field="corrective") as caught:
        ask(house, "How many litres does the main pump move?")
    assert "manage.py ragd index calibrate house" in caught.value.message


def test_a_calibration_of_another_embedder_says_nothing(house: Collection) -> None:
    calibrate(house, embed_model="some-other")
    run = ask(house, "main pump", corrective=None)
    assert run.retrieval_action == ""
    with pytest.raises(ServiceError, match="some-other"):
        ask(house, "main pump")


def test_a_search_is_weighed_and_left_alone(house: Collection) -> None:
    plan = build_plan(house, k=3)
    before = query_pipeline.search(QueryRequest(house, "main pump water", plan, "cli"))
    calibrate(house)
    run = query_pipeline.search(QueryRequest(house, "main pump water", plan, "cli"))
    assert run.results == before.results
    assert (run.retrieval_action, run.retrieval_confidence) == ("correct", run.correction["scores"]["pump.md#0"])
    assert run.correction["outcome"] == "weighed" and run.fallback_triggered is False
    assert QueryRun.objects.get(pk=run.pk).correction == run.correction


def test_what_is_correct_is_cut_to_what_bears_on_the_question(house: Collection) -> None:
    calibrate(house)
    run = ask(house, "main pump water")
    assert (run.retrieval_action, run.correction["outcome"], run.status) == ("correct", "refined", "ok")
    kept = {item["doc_id"]: item["spans"] for item in run.results}
    assert kept["pump.md"] and not kept.get("garden.md")
    assert 0 < run.correction["strips"]["kept"] <= run.correction["strips"]["of"]
    assert run.compression["tokens_after"] < run.compression["tokens_before"]
    assert {citation["doc_id"] for citation in run.citations} == {"pump.md"}
    again = replay(run, channel="cli")
    assert again.differences == [] and any("corrected" in note for note in again.notes)


def test_what_is_incorrect_is_given_up_when_the_words_find_nothing_better(house: Collection) -> None:
    calibrate(house)
    run = ask(house, "planetary orbits computed numerically yesterday")
    assert (run.status, run.retrieval_action, run.correction["outcome"]) == ("abstained", "incorrect", "abstained")
    assert run.answer and declines(run.answer) and not any(map(str.isdigit, run.answer))
    assert run.fallback_triggered and run.sources and not run.citations
    assert run.token_usage["total_tokens"] == 0


def test_the_words_answer_where_the_vectors_do_not(house: Collection) -> None:
    """A search that misses the document with the words of the question; the lexical list has it."""
    plan = build_plan(house, k=2, mode="vector")

    def miss(query: str, plan: RetrievePlan, store: Store) -> Retrieval:
        found = retrieve_detailed(query, plan, store)
        others = [item for item in found.lists["vector"] if item.doc_id != "archive.md"]
        return replace(found, candidates=others[: plan.k])

    corrector = Corrector(Rule(WORDS, 0.99, 0.6), corrects=True, calibration="house", retrieve=miss)
    with transaction.atomic():
        found = corrector.retrieve("warden request", plan, open_store(house))
    made = corrector.assessment
    assert made is not None
    assert (made.action, made.outcome, made.fallback["list"]) == ("incorrect", "replaced", "lexical")
    assert [item.key for item in found.candidates] == [("archive.md", 0)] and made.fallback["taken"] == 1
    assert [item.key for item in found.lists["fallback"]] == [("archive.md", 0)]
    assert found.short_result is not None and found.short_result.reason == "withheld"
    assert {span["rank"] for span in found.spans} == {1}


def test_what_is_ambiguous_is_completed(house: Collection) -> None:
    calibrate(house, upper=0.999, lower=0.01)
    run = ask(house, "main pump opened by warden on request", mode="vector", k=5)
    assert (run.retrieval_action, run.correction["outcome"]) == ("ambiguous", "completed")
    assert run.fallback_triggered and run.correction["fallback"]["list"] == "lexical"
    assert len(run.retrieved_ids) == len(set(run.retrieved_ids))
    assert [item["rank"] for item in run.results] == list(range(1, len(run.results) + 1))


def test_the_collection_says_whether_answers_take_the_step(house: Collection) -> None:
    calibrate(house)
    assert ask(house, "main pump water", corrective=None).correction["outcome"] == "weighed"
    switch_corrective(house, True)
    assert ask(house, "main pump water", corrective=None).correction["outcome"] == "refined"
    assert ask(house, "main pump water", corrective=False).correction["outcome"] == "weighed"
    assert calibrate(house).corrects  # a new calibration leaves the switch as it was
    assert forget_calibration(house) and not forget_calibration(house)
    with pytest.raises(ServiceError):
        switch_corrective(house, True)


def test_an_embedder_that_fails_leaves_the_answer_without_the_step(
    house: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate(house)

    def fail(*_: Any) -> Any:
        raise EmbedderError("the endpoint is away", kind="unreachable", retryable=True)

    monkeypatch.setattr(Measured, "of_texts", fail)
    run = ask(house, "main pump water")
    assert (run.status, run.retrieval_action, run.correction["error"]) == ("ok", "", "EmbedderError")


def test_the_same_over_http(client: Client, house: Collection) -> None:
    calibrate(house)
    status, body = post(
        client, "/v1/collections/house/ask", {"query": "main pump water", "corrective": True, "k": 3}, bearer()
    )
    assert (status, body["retrieval_action"], body["fallback_triggered"]) == (200, "correct", False)
    stored = client.get(f"/v1/runs/{body['run_id']}", headers=bearer()).json()
    assert stored["retrieval_confidence"] == body["retrieval_confidence"] >= 0.9
    assert stored["correction"]["outcome"] == "refined"
    forget_calibration(house)
    status, body = post(client, "/v1/collections/house/ask", {"query": "main pump", "corrective": True}, bearer())
    assert (status, body["error"]["type"]) == (422, "not_calibrated")


def test_a_calibration_travels_and_a_bad_one_is_refused(house: Collection) -> None:
    made = calibrate(house)
    connection.ensure_connection()
    (row,) = CALIBRATIONS.read(connection.connection, house)
    # Django's connection leaves JSON as text; the export's own does not
    row = {name: json.loads(value) if name in ("weights", "data", "figures") else value for name, value in row.items()}
    other = make_collection("cabin", empty=True)
    assert CALIBRATIONS.restore(other, [row]) == CALIBRATIONS.rows(other).count() == 1
    came = Calibration.objects.get(collection_id=other.pk)
    assert (came.rule, came.data, came.created_at) == (made.rule, made.data, made.created_at)
    for wrong in (row | {"weights": {}}, row | {"upper": 0.1}, row | {"data": []}, {"upper": 0.5}):
        with pytest.raises(InvalidInput):
            CALIBRATIONS.restore(other, [wrong])
    with pytest.raises(InvalidInput, match="one calibration"):
        CALIBRATIONS.restore(other, [row, row])


def test_the_pages_show_what_was_calibrated_and_what_a_run_was_thought_to_be(client: Client, house: Collection) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    page = "/collections/house/plans/?view=corrective"
    assert "Not calibrated" in client.get(page).content.decode()
    calibrate(house)
    assert client.post(page, {"do": "on"}).status_code == 302
    shown = client.get(page).content.decode()
    assert "corrective step on" in shown and "house questions" in shown and "correct from 90.0 %" in shown
    run = ask(house, "planetary orbits computed numerically yesterday", corrective=None)
    shown = client.get(f"/runs/{run.pk}/?view=ranking").content.decode()
    assert "the results are unlikely to contain the answer" in shown and run.retrieved_ids[0] in shown
    client.post(page, {"do": "forget"})
    assert not Calibration.objects.exists()


def test_the_calibration_over_http(client: Client, house: Collection) -> None:
    path = "/v1/collections/house/calibration"
    headers = bearer()
    assert client.get(path, headers=headers).json()["error"]["type"] == "not_calibrated"
    calibrate(house)
    changed = client.patch(path, {"corrects": True}, content_type="application/json", headers=headers).json()
    assert (changed["corrects"], changed["holds"], changed["upper"]) == (True, True, 0.9)
    assert client.get(path, headers=bearer(collections=["elsewhere"])).status_code in (403, 404)
    assert (
        client.patch(
            path, {"corrects": False}, content_type="application/json", headers=bearer(scope="read")
        ).status_code
        == 403
    )
    assert client.delete(path, headers=headers).json() == {"deleted": 1}
