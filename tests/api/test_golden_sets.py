"""Golden sets over HTTP.
The impact of changes, the promotion gate and expectations over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.jobs.dispatch import run_job
from collections_app.models import AuditEvent, Collection, Document, IndexVersion
from evaluation_app.curation import gate as gates
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.store.store import execute
from retrieval_app.plans.services import build_plan
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.evaluation.made_runs import make_set

FIRST = {"question": "How tall is an oak?", "expected_doc_ids": ["oak"], "thresholds": {"recall@10": 1}}


@pytest.fixture
def trees(api: Any, notes: Any) -> Any:
    ingest_text(
        notes, "oak", "# Oak\n\nAn oak is a tree of forty metres. When an oak is old, it is hollow.", title="Oak"
    )
    assert api.post("/golden-sets", {"name": "trees", "collection": "notes"}).status_code == 201
    assert api.post("/golden-sets/trees/questions", FIRST).status_code == 201
    return api


def test_sets_are_made_listed_changed_and_deleted(trees: Any) -> None:
    got = trees.get("/golden-sets/trees").json()
    assert (got["collection"], got["questions"], got["suggested"], got["version"]) == ("notes", 1, 0, 2)
    assert trees.get("/golden-sets?collection=notes&limit=1").json()["items"] == [got]
    assert trees.post("/golden-sets", {"name": "trees", "collection": "notes"}).status_code == 409
    assert trees.post("/golden-sets", {"name": "a/b", "collection": "notes"}).json()["error"]["field"] == "name"
    assert trees.patch("/golden-sets/trees", {"name": "wood"}).json()["name"] == "wood"
    assert trees.get("/golden-sets/trees").status_code == 404
    assert trees.delete("/golden-sets/wood").json() == {"questions": 1, "versions": 2, "runs": 0}
    assert trees.get("/golden-sets").json() == {"items": [], "next_cursor": None}
    words = AuditEvent.objects.order_by("-id").values_list("message", flat=True)[0]
    assert words == "deleted golden set wood with 1 question"


def test_a_name_is_free_in_another_collection_and_tells_a_limited_key_nothing(
    trees: Any, make_api: Callable[..., Any]
) -> None:
    create_collection(name="other")
    limited = make_api(collections=["other"])
    assert limited.post("/golden-sets", {"name": "trees", "collection": "other"}).status_code == 201
    assert limited.get("/golden-sets/trees").json()["collection"] == "other"
    several = trees.get("/golden-sets/trees")
    assert (several.status_code, several.json()["error"]["type"]) == (409, "ambiguous_golden_set")
    assert trees.get("/golden-sets/notes:trees").json()["collection"] == "notes"
    assert trees.get("/golden-sets/other:trees").json()["questions"] == 0
    assert limited.get("/golden-sets/notes:trees").status_code == 404
    taken = limited.post("/golden-sets", {"name": "trees", "collection": "other"})
    assert (taken.status_code, taken.json()["error"]["type"]) == (409, "name_taken")


def test_by_what_runs_are_compared_is_stated_checked_and_makes_no_version(trees: Any) -> None:
    before = trees.get("/golden-sets/trees").json()
    assert (before["primary_measure"], before["guardrails"], before["relevant_effect"]) == ("", {}, 0.02)
    stated = {"primary_measure": "recall", "guardrails": {"right_outcome": 0.1, "hit@10": 0}, "relevant_effect": 0.05}
    got = trees.patch("/golden-sets/trees", stated).json()
    assert {name: got[name] for name in stated} == stated
    assert got["version"] == before["version"]
    wrong = [
        ("primary_measure", "beauty"),
        ("guardrails", {"beauty": 0.1}),
        ("guardrails", {"f1": 2}),
        ("relevant_effect", -1),
    ]
    for field, value in wrong:
        refused = trees.patch("/golden-sets/trees", {"description": "other", field: value})
        assert (refused.status_code, refused.json()["error"]["field"]) == (422, field)
    assert trees.get("/golden-sets/trees").json() == got
    assert trees.patch("/golden-sets/trees", {"primary_measure": ""}).json()["primary_measure"] == ""


def test_questions_are_changed_moved_and_deleted(trees: Any) -> None:
    second = trees.post("/golden-sets/trees/questions", {"question": "How old is it?", "weight": 0.5}).json()
    assert (second["position"], second["lost"], second["category"]) == (1, [], "factual")
    one = f"/golden-sets/trees/questions/{second['id']}"
    moved = trees.patch(one, {"position": 0, "expected_doc_ids": ["elm"], "weight": None}).json()
    assert (moved["position"], moved["lost"], moved["weight"]) == (0, ["elm"], 1.0)
    listed = trees.get("/golden-sets/trees/questions?limit=1").json()
    assert listed["items"] == [moved]
    rest = trees.get(f"/golden-sets/trees/questions?limit=1&cursor={listed['next_cursor']}").json()
    assert [item["question"] for item in rest["items"]] == ["How tall is an oak?"]
    assert trees.patch(one, {"question": FIRST["question"]}).json()["error"]["type"] == "question_taken"
    assert trees.patch(one, {"thresholds": {"beauty": 1}}).json()["error"]["field"] == "thresholds"
    assert trees.patch(one, {"expected_chunks": ["oak"]}).json()["error"]["field"] == "expected_chunks"
    assert trees.delete(one).json() == {"count": 1}
    assert trees.get(one).status_code == 404
    assert list(GoldenQuestion.objects.values_list("question", "position")) == [("How tall is an oak?", 0)]


def test_versions_are_compared_and_brought_back(trees: Any) -> None:
    question = GoldenQuestion.objects.get()
    trees.patch(f"/golden-sets/trees/questions/{question.pk}", {"expected_answer": "Forty metres."})
    versions = trees.get("/golden-sets/trees/versions").json()["items"]
    found = [(item["version"], item["questions"], item["made_by"]) for item in versions]
    assert found == [(3, 1, "key tests"), (2, 1, "key tests"), (1, 0, "key tests")]
    difference = trees.get("/golden-sets/trees/versions/3?since=2").json()["difference"]
    assert difference["changes"] == [
        {
            "kind": "changed",
            "place": 1,
            "question": "How tall is an oak?",
            "fields": [{"field": "expected_answer", "before": "", "after": "Forty metres."}],
        }
    ]
    back = trees.patch("/golden-sets/trees", {"version": 2}).json()
    assert (back["version"], back["digest"]) == (4, versions[1]["digest"])
    question.refresh_from_db()
    assert question.expected_answer == "", "the row stays, with what it had"
    assert trees.get("/golden-sets/trees/versions/2").json()["questions"][0]["question"] == FIRST["question"]
    assert trees.get("/golden-sets/trees/versions/9").status_code == 404
    trees.post("/golden-sets", {"name": "bushes", "collection": "notes"})
    assert trees.patch("/golden-sets/trees", {"version": 3, "name": "bushes"}).status_code == 409
    assert trees.get("/golden-sets/trees").json()["version"] == 4, "all of a change or nothing"


def read(response: Any) -> str:
    return b"".join(response.streaming_content).decode()


@pytest.mark.parametrize(("format", "kind"), [("csv", "text/csv"), ("jsonl", "application/x-ndjson")])
def test_what_goes_out_comes_back_the_same(trees: Any, format: str, kind: str) -> None:
    odd = {
        "question": '=cmd|"/c calc"!A1, "really"?\n\'Yes?',
        "expected_doc_ids": ["a; b", "[c]"],
        "expected_chunks": ["d#e#3"],
        "expected_answer": "-1\n+1",
        "category": "@home",
        "weight": 1 / 3,
        "thresholds": {"adherence": 1, "recall@10": 0.1},
        "notes": "'=quoted",
        "match": "all",
        "by_construction": True,
    }
    assert trees.post("/golden-sets/trees/questions", odd).status_code == 201
    before = list(GoldenQuestion.objects.order_by("position").values(*odd))
    out = read(trees.get(f"/golden-sets/trees/questions?format={format}"))
    if format == "csv":
        assert "\n=cmd" not in out and '"=cmd' not in out, "no cell begins a formula"
    trees.post("/golden-sets", {"name": "copy", "collection": "notes"})
    assert trees.send("POST", "/golden-sets/copy/import", out).json()["error"]["field"] == "format"
    got = trees.send("POST", "/golden-sets/copy/import", out.encode(), **{"Content-Type": kind})
    assert got.json()["counts"] == {"added": 2, "changed": 0, "unchanged": 0, "error": 0, "removed": 0}
    assert list(GoldenQuestion.objects.filter(golden_set__name="copy").order_by("position").values(*odd)) == before
    assert GoldenSet.objects.get(name="copy").digest == GoldenSet.objects.get(name="trees").digest


def test_an_import_is_whole_or_nothing(trees: Any) -> None:
    lines = ['{"question": "New?"}', '{"question": "How tall is an oak?", "weight": -1}', "{", '{"question": "New?"}']
    path = "/golden-sets/trees/import?format=jsonl"
    dry = trees.send("POST", f"{path}&dry_run=true", "\n".join(lines)).json()
    assert dry["counts"] == {"added": 1, "changed": 0, "unchanged": 0, "error": 3, "removed": 0}
    assert [line["line"] for line in dry["lines"] if line["status"] == "error"] == [2, 3, 4]
    refused = trees.send("POST", path, "\n".join(lines))
    assert refused.status_code == 422
    assert "3 of 4 lines are wrong: line 2: weight: " in refused.json()["error"]["message"]
    assert GoldenQuestion.objects.count() == 1
    merged = trees.send("POST", path, "\n".join([lines[0], '{"question": "How tall is an oak?", "weight": 2}'])).json()
    assert (merged["counts"]["added"], merged["counts"]["changed"], merged["lines"][1]["fields"]) == (1, 1, ["weight"])
    assert GoldenQuestion.objects.get(position=0).expected_doc_ids == ["oak"], "what a line leaves out stays"
    replaced = trees.send("POST", f"{path}&mode=replace", '{"question": "New?"}').json()
    assert replaced["removed"] == ["How tall is an oak?"]
    assert list(GoldenQuestion.objects.values_list("question", "position")) == [("New?", 0)]


def test_rubrics_are_stated_whole(trees: Any) -> None:
    rubric = {"name": "polite", "kind": "regex", "definition": "please", "must_match": True}
    assert trees.get("/golden-sets/trees").json()["rubrics"] == []
    version = trees.get("/golden-sets/trees").json()["version"]
    changed = trees.patch("/golden-sets/trees", {"rubrics": [rubric]})
    assert (changed.status_code, changed.json()["rubrics"], changed.json()["version"]) == (200, [rubric], version)
    for wrong in ([{**rubric, "definition": "("}], [rubric, rubric], [{"name": "a"}], [{**rubric, "kind": "sql"}]):
        assert trees.patch("/golden-sets/trees", {"rubrics": wrong}).status_code == 422, wrong
    assert trees.patch("/golden-sets/trees", {"description": "Of trees."}).json()["rubrics"] == [rubric]


def test_columns_of_other_tools_are_imported_and_unknown_documents_told(trees: Any) -> None:
    body = b"input,expected_output,docs\nHow wide is an oak?,Wide.,oak; elm\n"
    path = "/golden-sets/trees/import?format=csv&dry_run=true"
    refused = trees.send("POST", path, body)
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "file")
    mapping = {"docs": "expected_doc_ids"}
    dry = trees.send("POST", f"{path}&columns={quote(json.dumps(mapping))}", body).json()
    assert dry["columns"] == {"input": "question", "expected_output": "expected_answer", "docs": "expected_doc_ids"}
    assert [(line["status"], line["unknown"]) for line in dry["lines"]] == [("added", ["elm"])]
    for wrong in ("[]", "{", '{"docs": 1}', '{"docs": "colour"}'):
        got = trees.send("POST", f"{path}&columns={quote(wrong)}", body)
        assert (got.status_code, got.json()["error"]["field"]) == (422, "columns"), wrong
    assert GoldenQuestion.objects.count() == 1, "a look ahead writes nothing"


def test_a_question_of_a_run(trees: Any, notes: Any, make_api: Callable[..., Any]) -> None:
    run = ask(QueryRequest(notes, "What is an oak?", build_plan(notes), "api"))
    made = trees.post("/golden-sets/trees/questions", {"run_id": str(run.pk), "category": "why"}).json()
    assert (made["question"], made["category"], made["source_run"]) == ("What is an oak?", "why", str(run.pk))
    assert made["expected_doc_ids"] == run.cited_ids == ["oak"]
    assert (made["suggested"], made["expected_answer"]) == (True, "")
    assert trees.get("/golden-sets/trees").json()["questions"] == 1, "no run asks it before it is accepted"
    assert trees.post("/golden-sets/trees/questions", {"run_id": str(run.pk)}).status_code == 409


def test_a_chat_model_suggests_and_a_person_decides(trees: Any, openai_server: Any, settings: Any) -> None:
    address = "/golden-sets/trees/suggestions"
    refused = trees.post(address, {"count": 5})
    assert (refused.status_code, refused.json()["error"]["type"]) == (422, "no_chat_model")
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    settings.RAGD_LLM_MODEL = "gpt-4o-mini"
    items = [
        {"question": "How many metres does an oak tree reach?", "answer": "Forty.", "kind": "factual"},
        {"question": "Not a question", "answer": "So."},
        {"question": "Why is an old oak hollow?", "answer": "It is old.", "kind": "why"},
    ]
    verdict = {"standalone": True, "answered": True, "useful": True}

    def reply(messages: list[dict[str, Any]]) -> str:
        is_critic = "verdicts" in messages[0]["content"]
        count = messages[-1]["content"].count('"question":')
        return json.dumps({"verdicts": [verdict] * count} if is_critic else {"questions": items})

    openai_server.chat_reply = reply
    verdict["useful"] = False
    assert trees.post(address, {}).json()["items"] == []
    verdict["useful"] = True
    items.pop(1)
    made = trees.post(address, {"count": 5}).json()["items"]
    assert [(item["question"], item["expected_answer"], item["category"]) for item in made] == [
        (item["question"], item["answer"], item["kind"]) for item in items
    ]
    assert all(item["suggested"] and item["lost"] == [] for item in made)
    assert all(item["by_construction"] for item in made), "the search had to find them"
    assert trees.get("/golden-sets/trees").json()["suggested"] == 2
    ids = [item["id"] for item in made]
    assert trees.patch(address, {"accept": ids[:1], "discard": ids}).json() == {"accepted": 1, "discarded": 1}
    assert [item["question"] for item in trees.get("/golden-sets/trees/questions").json()["items"]] == [
        FIRST["question"],
        items[0]["question"],
    ]
    openai_server.chat_reply = lambda messages: "I would rather not."
    assert trees.post(address, {}).json()["items"] == []


def test_a_value_that_no_number_or_list_is_names_its_line(trees: Any) -> None:
    cases: list[tuple[str, str]] = [
        ("csv", "question,expected_doc_ids\nq," + "[" * 100_000),
        ("csv", "question,thresholds\nq,{" + '"a":{' * 50_000),
        ("jsonl", '{"question": "q", "weight": ' + "9" * 400 + "}"),
        ("jsonl", '{"question": "q", "thresholds": {"hit@5": ' + "9" * 400 + "}}"),
    ]
    for format, body in cases:
        told = trees.post(f"/golden-sets/trees/import?format={format}&dry_run=true", body).json()
        assert told["counts"]["error"] == 1, told


def test_what_nothing_stored_can_hold_is_not_found(trees: Any) -> None:
    assert trees.get("/golden-sets?collection=%00").json()["items"] == []
    assert trees.get("/golden-sets/trees/questions?category=%00").json()["items"] == []
    refused = trees.post("/golden-sets", {"name": "x", "collection": "\ud800"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (404, "unknown_collection")
    settings = {"judge": "embedded", "judge_model": "\x00"}
    refused = trees.post("/evaluation-runs", {"golden_set": "trees", "settings": settings})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "judge_model")
    told = trees.patch("/collections/notes/evaluation", {"sampling": {"enabled": False, "judge_model": "a\x00b"}})
    assert told.json()["sampling"]["judge_model"] == "a b"
    experiment = {"kind": "plans", "golden_set": "trees", "grid": {"k": [1, 3]}, "name": "\ud800wide"}
    made = trees.post("/experiments", experiment).json()
    assert made["name"] == "wide"
    for wanted in ("%00", "9999999999999999"):
        assert trees.get(f"/experiments/{made['id']}?by={wanted}").status_code == 422


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
