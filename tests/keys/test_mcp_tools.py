"""The tools of MCP that a key is offered, and those that change something."""

from __future__ import annotations

import json
from typing import Any

from collections_app.models import AuditEvent, Document
from evaluation_app.models import EvaluationRun, GoldenQuestion
from tests.api.conftest import Api
from tests.keys.conftest import FOREIGN, NARROWED, World
from tests.keys.test_flows import mcp, ok

READING = {"fetch", "documents-get", "collections-list"}
ASKING = READING | {"search", "collections-search", "collections-ask"}
CURATION = {"documents-list", "documents-ingest", "documents-edit", "documents-delete"}
EVALUATION = {
    "golden-sets-list", "golden-questions-suggest", "evaluation-runs-create", "evaluation-runs-get",
    "evaluation-runs-results",
}  # fmt: skip
OFFERED = {
    "viewer": READING,
    "asker": ASKING,
    "curator": ASKING | CURATION,
    "evaluator": ASKING | EVALUATION,
    "administrator": ASKING | CURATION | EVALUATION,
}
CHANGING = {"documents-ingest", "documents-edit", "documents-delete"}
ADDING = {"golden-questions-suggest", "evaluation-runs-create"}


def offered(key: Api) -> dict[str, Any]:
    """Tool -> its annotations."""
    answer = key.client.post(
        "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}), content_type="application/json",
        headers={"Authorization": f"Bearer {key.secret}"},
    )  # fmt: skip
    return {tool["name"]: tool["annotations"] for tool in ok(answer)["result"]["tools"]}


def call(key: Api, tool: str, **arguments: Any) -> Any:
    failed, text = mcp(key, tool, arguments)
    assert not failed, text
    return json.loads(text)


def refusal(key: Api, tool: str, **arguments: Any) -> str:
    failed, text = mcp(key, tool, arguments)
    assert failed and FOREIGN not in text and NARROWED not in text
    kind: str = json.loads(text)["error"]["type"]
    return kind


def test_a_key_is_offered_what_it_may_use(world: World) -> None:
    assert {role: set(offered(world.keys[role])) for role in OFFERED} == OFFERED
    hints = offered(world.keys["administrator"])
    assert {name for name, each in hints.items() if not each["readOnlyHint"]} == CHANGING | ADDING
    assert {name for name, each in hints.items() if each["destructiveHint"]} == CHANGING


def test_a_curator_changes_documents(world: World) -> None:
    key, notes = world.keys["curator"], {"collection": "notes"}
    doc = notes | {"doc_id": "elm"}
    made = call(key, "documents-ingest", **doc, content="An elm is a tree.", title="Elm", tags=["tree"])
    assert made == {"chunks_written": 1, "tokens_estimated": 5, "unchanged": False, "revision": 1}
    listed = call(key, "documents-list", **notes, tag=["tree"])
    assert ([each["doc_id"] for each in listed["items"]], listed["next_cursor"]) == (["elm"], None)
    assert {each["doc_id"] for each in call(key, "documents-list", **notes)["items"]} == {"oak", "elm"}
    edited = call(key, "documents-edit", **doc, tags=["wood"], metadata={"height": 30}, state="disabled")
    assert (edited["tags"], edited["metadata"], edited["enabled"]) == (["wood"], {"height": 30}, False)
    assert edited == {name: call(key, "documents-get", **doc)[name] for name in edited}
    assert call(key, "documents-edit", **doc, state="enabled")["enabled"]
    assert call(key, "documents-delete", **doc)["documents"] == 1
    assert not Document.objects.filter(doc_id="elm").exists()
    events = AuditEvent.objects.filter(channel="mcp", subject_name="elm")
    assert {event.actor_name for event in events} == {"key curator"} and events.count() >= 4
    # what it may not: other collections, restricted documents, wrong arguments
    vault = {"collection": "vault", "doc_id": "oak"}
    assert refusal(key, "documents-ingest", **vault, content="x") == "unknown_collection"
    assert refusal(key, "documents-list", collection="vault") == "unknown_collection"
    assert refusal(key, "documents-delete", collection="notes", doc_id="ash") == "unknown_document"
    assert refusal(key, "documents-edit", **doc, colour="red") == "invalid_input"


def test_an_evaluator_suggests_a_question_and_reads_a_run(world: World) -> None:
    key = world.keys["evaluator"]
    assert [each["name"] for each in call(key, "golden-sets-list")["items"]] == ["set-notes"]
    question = call(
        key, "golden-questions-suggest", golden_set="set-notes", question="What feeds jays?", expected_doc_ids=["oak"]
    )
    assert (question["suggested"], question["expected_doc_ids"], question["lost"]) == (True, ["oak"], [])
    assert GoldenQuestion.objects.get(pk=question["id"]).suggested
    accepted = {"question": "How tall is an oak?", "expected_doc_ids": ["oak"]}
    ok(key.post("/golden-sets/set-notes/questions", accepted), 201)
    run = call(key, "evaluation-runs-create", golden_set="set-notes", k=3, settings={"judge": "none"})
    assert run == json.loads(json.dumps(run)) and EvaluationRun.objects.get(pk=run["id"]).created_by == "key evaluator"
    assert call(key, "evaluation-runs-get", run_id=run["id"]) == ok(key.get(f"/evaluation-runs/{run['id']}"))
    results = call(key, "evaluation-runs-results", run_id=run["id"])
    assert results == ok(key.get(f"/evaluation-runs/{run['id']}/results?content=false"))
    assert refusal(key, "golden-questions-suggest", golden_set="set-vault", question="x") == "unknown_golden_set"
    foreign = world.ids["vault"]["evaluation_run"]
    assert refusal(key, "evaluation-runs-get", run_id=foreign) == "unknown_evaluation_run"


def test_a_tool_that_is_not_offered_is_refused_and_noted(world: World) -> None:
    oak = {"collection": "notes", "doc_id": "oak"}
    for role, tool, arguments in (
        ("asker", "documents-delete", oak),
        ("evaluator", "documents-ingest", oak | {"content": "x"}),
        ("curator", "evaluation-runs-create", {"golden_set": "set-notes"}),
        ("viewer", "search", {"query": "oak"}),
    ):
        before = AuditEvent.objects.count()
        assert refusal(world.keys[role], tool, **arguments) == "out_of_scope"
        assert AuditEvent.objects.count() == before + 1
        event = AuditEvent.objects.order_by("-pk")[0]
        assert (event.action, event.channel, event.outcome, event.actor_name) == (
            "access.refuse", "mcp", "refused", f"key {role}",
        )  # fmt: skip
        assert event.message.endswith(tool)
