"""The impact of changes, the promotion gate and expectations over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collections_app.documents.services import ingest_text
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IndexVersion
from evaluation_app.curation import gate as gates
from ragd.store.store import execute
from tests.evaluation.made_runs import make_set

TEXTS = {
    "keys": "API keys stay valid for ninety days and can be made anew at any time.",
    "doors": "The front door of the house is painted green every spring.",
    "rivers": "Two rivers meet below the stone bridge near the old mill.",
}
AT = "/collections/notes"
GATE = f"{AT}/evaluation"


@pytest.fixture
def asked(notes: Collection) -> Collection:
    for name, text in TEXTS.items():
        ingest_text(notes, name, text)
    make_set("basics", "notes", {"How long are API keys valid?": "keys", "Where do two rivers meet?": "rivers"})
    return notes


def error(response: Any) -> tuple[int, str, str | None]:
    told = response.json()["error"]
    return response.status_code, told["type"], told.get("field")


def test_a_read_key_may_ask_for_the_impact(asked: Collection, make_api: Callable[..., Any]) -> None:
    reader = make_api(scope="read")
    told = reader.post(f"{AT}/impact", {"action": "delete", "doc_ids": ["keys"]}).json()
    assert (told["questions"], told["looked_at"], told["counts"]["lost"], told["estimate"]) == (2, 2, 1, "")
    (lost,) = [each for each in told["changed"] if each["effect"] == "lost"]
    assert (lost["set"], lost["question"], lost["left"]) == ("basics", "How long are API keys valid?", ["keys#0"])
    assert told["means"]["hit@12"]["before"]["value"] == 1.0 and told["means"]["hit@12"]["after"]["value"] == 0.5
    assert Document.objects.filter(doc_id="keys").exists()
    for body in (
        {"action": "edit_chunk", "doc_id": "keys", "chunk_index": 0, "content": "Doors and rivers."},
        {"action": "disable_chunk", "doc_id": "keys", "chunk_index": 0},
        {"action": "policy", "chunk_policy": {"target_tokens": 50}, "set": "basics"},
        {"action": "policy", "doc_id": "keys", "chunk_policy": {"target_tokens": 50}},
    ):
        answer = reader.post(f"{AT}/impact", body)
        assert answer.status_code == 200 and answer.json()["looked_at"] == 2, answer.json()


def test_an_impact_that_makes_no_sense_is_refused(asked: Collection, make_api: Callable[..., Any]) -> None:
    api = make_api()
    assert error(api.post(f"{AT}/impact", {"action": "delete"})) == (422, "invalid_input", "doc_ids")
    assert error(api.post(f"{AT}/impact", {"action": "edit_chunk", "doc_id": "keys"}))[2] == "chunk_index"
    body = {"action": "edit_chunk", "doc_id": "keys", "chunk_index": 0}
    assert error(api.post(f"{AT}/impact", body)) == (422, "invalid_input", "content")
    assert error(api.post(f"{AT}/impact", body | {"content": "x", "chunk_index": 9}))[1] == "unknown_chunk"
    assert error(api.post(f"{AT}/impact", body | {"content": "x", "set": "others"}))[1] == "unknown_golden_set"
    limited = make_api(collections=["others"])
    assert error(limited.post(f"{AT}/impact", {"action": "delete", "doc_ids": ["keys"]}))[1] == "out_of_scope"
    assert error(limited.get(GATE))[:2] == (403, "out_of_scope")
    assert error(limited.get(f"{AT}/golden-expectations?doc_id=keys"))[:2] == (403, "out_of_scope")


def test_the_gate_is_set_holds_and_is_overruled(
    asked: Collection, make_api: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make_api()
    assert api.get(GATE).json()["gate"] is None
    assert error(api.patch(GATE, {"gate": {"set": "others"}})) == (404, "unknown_golden_set", "set")
    assert error(api.patch(GATE, {"gate": {"set": "\x00"}})) == (404, "unknown_golden_set", "set")
    assert api.patch(GATE, {"gate": {"set": "basics", "margin": 7}}).status_code == 422
    gate = {"set": "basics", "measure": "hit", "k": 5, "margin": 0}
    told = api.patch(GATE, {"gate": gate}).json()["gate"]
    assert (told["set_exists"], told["measure"], told["k"], told["margin"]) == (True, "hit", 5, 0.0)
    whole = gates.open_version

    def spoil(collection: Collection, index_version: IndexVersion) -> Any:
        store = whole(collection, index_version)
        execute(store.connection, f"DELETE FROM {store.collection.partition} WHERE doc_id = 'keys'")
        return store

    monkeypatch.setattr(gates, "open_version", spoil)
    made = api.post(f"{AT}/index-versions", {}).json()
    assert run_job(made["job_id"]) == "succeeded"
    held = api.get(f"{AT}/index-versions/2").json()
    assert (held["state"], held["gate_state"], held["gate_report"]["worse"]) == ("ready", "held", 1)
    assert error(api.patch(f"{AT}/index-versions/1", {"state": "serving", "reason": "x"}))[0] == 409
    assert api.patch(f"{AT}/index-versions/2", {"state": "serving", "reason": ""}).status_code == 422
    let = api.patch(f"{AT}/index-versions/2", {"state": "serving", "reason": "Keys are told of elsewhere."})
    assert let.status_code == 202 and run_job(let.json()["job_id"]) == "succeeded"
    serves = api.get(f"{AT}/index-versions/2").json()
    assert (serves["state"], serves["gate_state"]) == ("serving", "overruled")
    assert serves["gate_reason"] == "Keys are told of elsewhere." and serves["gate_by"].startswith("key ")
    assert api.patch(GATE, {"gate": None}).json()["gate"] is None


def test_what_expects_a_document_or_a_chunk(asked: Collection, make_api: Callable[..., Any]) -> None:
    api = make_api(scope="read")
    told = api.get(f"{AT}/golden-expectations?doc_id=keys").json()
    assert [each["question"] for each in told["questions"]] == ["How long are API keys valid?"]
    assert told["questions"][0]["last_rank"] is None and told["contribution"]["mean"] is None
    assert len(api.get(f"{AT}/golden-expectations?doc_id=keys&chunk_index=0").json()["questions"]) == 1
    assert api.get(f"{AT}/golden-expectations?doc_id=doors").json()["questions"] == []
    assert error(api.get(f"{AT}/golden-expectations?doc_id=absent"))[:2] == (404, "unknown_document")
