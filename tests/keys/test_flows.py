"""What curators, askers and evaluators do with keys that row-level security binds.
Limits of keys and people: counted exactly, told by headers, and each for its own holder.
The tools of MCP that a key is offered, and those that change something."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from collections_app.access.context import Access, Limit, using_access
from collections_app.access.limits import LimitReached, count_request, count_tokens, forget_counts
from collections_app.models import AuditEvent, Chunk, Collection, Document, IngestJob
from evaluation_app.models import EvaluationRun, GoldenQuestion
from ragd.store.store import execute, fetch_all
from retrieval_app.models import QueryRun
from tests.api.conftest import Api
from tests.builders import hold_minute
from tests.keys.conftest import FOREIGN, NARROWED, OAK, World
from tests.simultaneous import call_together
from tests.web.pages import client_of

QUESTION = {"query": f"How tall is an oak of {NARROWED}?"}


def body_of(answer: HttpResponse) -> str:
    return (b"".join(answer.streaming_content) if answer.streaming else answer.content).decode()  # type: ignore[attr-defined]


def ok(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.content
    return answer.json()


@pytest.mark.parametrize("maker", ["curator", "robots", "administrator"])
def test_a_curator_writes_edits_and_deletes_documents(world: World, maker: str) -> None:
    key = world.keys[maker]
    assert (
        ok(key.put("/collections/notes/documents/beech", {"content": "A beech has smooth bark."}))["chunks_written"]
        == 1
    )
    assert ok(key.put("/collections/notes/documents/beech", {"content": "A beech has grey bark.", "tags": ["tree"]}))
    assert Document.objects.get(doc_id="beech").text == "A beech has grey bark."
    assert ok(key.patch("/collections/notes/documents/beech", {"title": "Beech"}))["title"] == "Beech"
    disabled = key.post("/collections/notes/documents-bulk", {"action": "disable", "doc_ids": ["beech"]})
    assert ok(disabled)["counts"]["changed"] == 1
    assert not Chunk.objects.filter(doc_id="beech", enabled=True).exists()
    ok(key.post("/collections/notes/documents-bulk", {"action": "enable", "doc_ids": ["beech"]}))
    assert Chunk.objects.filter(doc_id="beech", enabled=True).exists()
    assert ok(key.patch("/collections/notes/chunks/0/beech", {"content": "A beech has bark."}))["changed"]
    assert Chunk.objects.get(doc_id="beech").content == "A beech has bark."
    ok(key.patch("/collections/notes/documents/beech", {"restore_revision": 1}))
    ok(key.delete("/collections/notes/documents/beech"))
    assert not Chunk.objects.filter(doc_id="beech").exists()


def test_what_one_may_not_read_one_does_not_overwrite(world: World) -> None:
    key = world.keys["curator"]
    before = Document.objects.get(doc_id="ash").text
    answer = key.put("/collections/notes/documents/ash", {"content": "Mine now."})
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "restricted")
    jobs = IngestJob.objects.count()
    uploaded = key.upload(
        "notes", ("ash", b"Mine now."), ("yew.txt", b"A yew is old."), fields={"doc_ids": ["ash", ""]}
    )
    ash, yew = uploaded.json()["results"]  # type: ignore[attr-defined]
    assert (ash["status"], ash["error"]["type"], yew["status"]) == ("rejected", "restricted", "queued")
    assert IngestJob.objects.count() == jobs + 1
    assert key.delete("/collections/notes/documents/ash").status_code == 404
    assert ok(key.post("/collections/notes/documents-bulk", {"action": "delete", "doc_ids": ["ash"]})) is not None
    assert Document.objects.get(doc_id="ash").text == before


def test_a_curator_builds_an_index_version(world: World) -> None:
    key = world.keys["curator"]
    made = ok(key.post("/collections/notes/index-versions", {}), 202)
    assert made["number"] == 2
    assert ok(key.get("/collections/notes/index-versions"))["items"]
    ok(key.patch("/collections/notes/index-versions/2", {"state": "cancelled"}))


def test_an_asker_searches_asks_and_chats_and_reads_nothing_narrowed(world: World) -> None:
    key = world.keys["asker"]
    found = ok(key.post("/collections/notes/search", QUESTION))
    assert {each["doc_id"] for each in found["results"]} == {"oak"}
    answered = ok(key.post("/collections/notes/ask", QUESTION))
    assert ok(key.get(f"/runs/{answered['run_id']}"))["run_id"] == answered["run_id"]
    events = body_of(key.post("/collections/notes/ask", QUESTION, Accept="text/event-stream"))
    assert "event: final" in events and "event: error" not in events
    chat = {"model": "ragd/notes", "messages": [{"role": "user", "content": QUESTION["query"]}]}
    assert ok(key.post("/chat/completions", chat))["choices"]
    streamed = body_of(key.post("/chat/completions", chat | {"stream": True}))
    assert streamed.endswith("data: [DONE]\n\n")
    ok(key.post(f"/runs/{answered['run_id']}/feedback", {"correct": True}))
    listed = ok(key.get("/runs"))["items"]
    assert {run["query"] for run in listed} == {QUESTION["query"]}
    assert len(listed) == QueryRun.objects.filter(user__username="the-asker").count() == 5
    texts = [json.dumps(found), json.dumps(answered["sources"]), json.dumps(ok(key.get("/models")))]
    assert not [text for text in texts if NARROWED in text or FOREIGN in text or "vault" in text]


def mcp(key: Api, tool: str, arguments: dict[str, Any]) -> tuple[bool, str]:
    """(whether it is an error, the text)."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    answer = key.client.post(
        "/mcp", json.dumps(message), content_type="application/json",
        headers={"Authorization": f"Bearer {key.secret}", "MCP-Protocol-Version": "2025-06-18"},
    )  # fmt: skip
    result = ok(answer)["result"]
    return bool(result.get("isError")), result["content"][0]["text"]


def test_tools_of_mcp_answer_what_the_key_may(world: World) -> None:
    asker, viewer = world.keys["asker"], world.keys["viewer"]
    assert [each["name"] for each in json.loads(mcp(asker, "collections-list", {})[1])] == ["notes"]
    failed, text = mcp(asker, "collections-search", QUESTION | {"collection": "notes"})
    assert not failed and {each["doc_id"] for each in json.loads(text)["results"]} == {"oak"}
    assert not mcp(asker, "collections-ask", QUESTION | {"collection": "notes"})[0]
    assert not mcp(viewer, "documents-get", {"collection": "notes", "doc_id": "oak"})[0]
    for key, tool, arguments in (
        (asker, "documents-get", {"collection": "notes", "doc_id": "ash"}),
        (asker, "documents-get", {"collection": "vault", "doc_id": "oak"}),
        (asker, "collections-search", QUESTION | {"collection": "vault"}),
        (viewer, "collections-search", QUESTION | {"collection": "notes"}),
        (viewer, "collections-ask", QUESTION | {"collection": "notes"}),
    ):
        failed, text = mcp(key, tool, arguments)
        assert failed and FOREIGN not in text and NARROWED not in text.replace(QUESTION["query"], "")


def test_an_evaluator_makes_sets_runs_and_comparisons(world: World) -> None:
    key = world.keys["evaluator"]
    ok(key.post("/golden-sets", {"name": "own", "collection": "notes"}), 201)
    question = {"question": "How tall is an oak?", "expected_doc_ids": ["oak"]}
    ok(key.post("/golden-sets/own/questions", question), 201)
    first, second = (ok(key.post("/evaluation-runs", {"golden_set": "own", "k": k}), 202)["id"] for k in (3, 5))
    assert ok(key.get(f"/evaluation-runs/{first}"))["golden_set"] == "own"
    ok(key.get(f"/evaluation-runs/{second}/results"))
    assert ok(key.patch(f"/evaluation-runs/{first}", {"state": "cancelled"}))
    run = ok(key.post("/collections/notes/ask", {"query": "How tall is an oak?"}))
    ok(key.post(f"/runs/{run['run_id']}/judge", {}))
    # the question of the narrowed document is another's business, and its set keeps it
    assert ok(key.get("/golden-sets/set-notes/questions"))["items"] == []
    ok(key.post("/golden-sets/set-notes/questions", question), 201)
    assert GoldenQuestion.objects.filter(golden_set__name="set-notes").count() == 2
    ok(key.delete("/golden-sets/own"))


def test_an_answer_is_repeated_to_the_key_that_got_it_alone(world: World, key_of: Callable[..., Api]) -> None:
    key, body = world.keys["evaluator"], {"name": "once", "collection": "notes"}
    first = key.post("/golden-sets", body, **{"Idempotency-Key": "a"})
    again = key.post("/golden-sets", body, **{"Idempotency-Key": "a"})
    assert first.json() == again.json() and again["Idempotency-Replayed"] == "true"
    other = key_of("second", acts_as="the-evaluator").post("/golden-sets", body, **{"Idempotency-Key": "a"})
    assert (other.status_code, "Idempotency-Replayed" in other) == (409, False)


def test_text_of_then_is_searched_by_who_may_read_it(world: World) -> None:
    moment = Document.objects.get(doc_id="ash").updated_at.isoformat()
    ok(world.keys["curator"].put("/collections/notes/documents/oak", {"content": OAK + " It is old."}))
    found = ok(world.keys["asker"].post("/collections/notes/search", QUESTION | {"as_of": moment}))
    assert {each["doc_id"] for each in found["results"]} == {"oak"}
    everything = ok(world.keys["administrator"].post("/collections/notes/search", QUESTION | {"as_of": moment}))
    assert {each["doc_id"] for each in everything["results"]} == {"oak", "ash"}


@pytest.mark.django_db
def test_one_request_too_many_is_429_until_the_minute_ends(key_of: Callable[..., Api]) -> None:
    key = key_of(requests_per_minute=3)
    first = key.get("/collections")
    hold_minute()
    assert [key.get("/collections").status_code for _ in range(3)] == [200, 200, 429]
    assert (first["X-RateLimit-Limit"], first["X-RateLimit-Remaining"]) == ("3", "2")
    refused = key.get("/collections")
    assert refused.json()["error"]["type"] == "too_many_requests"
    assert refused["X-RateLimit-Remaining"] == "0" and int(refused["Retry-After"]) >= 1
    assert int(refused["X-RateLimit-Reset"]) >= 1
    chat = key.post("/chat/completions", {"model": "ragd/x", "messages": []})
    assert (chat.status_code, chat.json()["error"]["type"]) == (429, "rate_limit_error") and "Retry-After" in chat
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {key.secret}"}
    assert Client().post("/mcp", message, content_type="application/json", headers=headers).status_code == 429
    execute(connection, "UPDATE usage_counts SET minute = minute - interval '3 minutes'")
    assert key.get("/collections").status_code == 200


@pytest.mark.django_db
def test_keys_of_one_person_share_that_persons_limit(key_of: Callable[..., Api], settings: Any, db: None) -> None:
    settings.RAGD_REQUESTS_PER_MINUTE = 3
    User.objects.create_superuser("boss")
    one, two = (key_of(name, acts_as="boss", requests_per_minute=0) for name in "ab")
    one.get("/collections")
    hold_minute()
    assert [key.get("/collections").status_code for key in (two, one, two)] == [200, 200, 429]
    assert key_of("alone").get("/collections")["X-RateLimit-Remaining"] == "2"
    assert "X-RateLimit-Limit" not in key_of("free", requests_per_minute=0).get("/collections")


@pytest.mark.django_db
def test_tokens_of_a_day_are_those_of_the_models_of_its_runs(world: World, key_of: Callable[..., Api]) -> None:
    key = key_of("spender", tokens_per_day=5)
    answer = key.post("/collections/notes/search", {"query": "How tall is an oak, and how old?"})
    assert answer.status_code == 200
    ((used,),) = fetch_all(connection, "SELECT tokens FROM usage_counts WHERE holder LIKE 'key:%%'")
    assert used >= 5
    refused = key.post("/collections/notes/search", {"query": "again"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "too_many_tokens")
    assert 1 <= int(refused["Retry-After"]) <= 86_401
    execute(connection, "UPDATE usage_counts SET day = day - 1")
    assert key.post("/collections/notes/search", {"query": "again"}).status_code == 200


@pytest.mark.django_db
def test_questions_on_pages_count_for_the_person(world: World, people: dict[str, User], settings: Any) -> None:
    settings.RAGD_REQUESTS_PER_MINUTE = 1
    client = client_of(people["asker"])
    form = {"query": "How tall is an oak?", "collection": "notes"}
    first = client.post("/chat/", form)
    hold_minute()
    refused = client.post("/chat/", form)
    assert first.status_code < 400
    assert refused.status_code == 429 and int(refused["Retry-After"]) >= 1
    assert client.get("/chat/").status_code == 200


@pytest.mark.django_db
def test_unknown_keys_from_one_address_are_limited_and_live_ones_are_not(
    key_of: Callable[..., Api], settings: Any
) -> None:
    settings.RAGD_WRONG_KEYS_PER_MINUTE = 5
    live, wrong = key_of(), Api(Client(), "ragd_" + "x" * 43)
    wrong.get("/collections")
    hold_minute()
    assert [wrong.get("/collections").status_code for _ in range(59)] == [403] * 4 + [429] * 55
    assert wrong.get("/collections").json()["error"]["type"] == "too_many_wrong_keys"
    assert live.get("/collections").status_code == 200
    elsewhere = Client().get("/v1/collections", headers={"Authorization": "Bearer x"}, REMOTE_ADDR="192.0.2.1")
    assert elsewhere.status_code == 403


@pytest.mark.django_db
def test_counts_of_days_ago_are_forgotten() -> None:
    with using_access(Access(limits=(Limit("key:1", 1, 10),))):
        count_tokens(4)
    assert forget_counts(timezone.now()) == 0
    execute(connection, "UPDATE usage_counts SET minute = minute - interval '4 days', day = day - 4")
    assert forget_counts(timezone.now()) == 1


@pytest.mark.django_db
def test_a_model_or_prompt_of_ones_own_needs_write_or_the_collections_setting(world: World) -> None:
    asker, curator = world.keys["asker"], world.keys["curator"]
    for fields in ({"llm_model": "another-model"}, {"system_prompt": "Answer in verse."}):
        body = {"query": "How tall is an oak?"} | fields
        refused = asker.post("/collections/notes/ask", body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "override_refused")
        assert refused.json()["error"]["field"] in fields
        assert "override_refused" not in curator.post("/collections/notes/ask", body).content.decode()
    assert asker.post("/collections/notes/ask", {"query": "How tall?", "llm_model": "extractive"}).status_code == 200
    question = {"model": "ragd/notes", "messages": [{"role": "user", "content": "How tall?"}]}
    chat = asker.post("/chat/completions", question | {"ragd": {"llm_model": "another-model"}})
    assert (chat.status_code, chat.json()["error"]["code"]) == (403, "override_refused")
    Collection.objects.filter(name="notes").update(security={"allow_overrides": True})
    opened = asker.post("/collections/notes/ask", {"query": "How tall?", "system_prompt": "Verse."})
    assert opened.json().get("error", {}).get("type") != "override_refused"


def test_many_at_once_are_counted_exactly(committed: None) -> None:
    access = Access(limits=(Limit("key:1", 50), Limit("user:1", 1000)))
    count_request(access)
    hold_minute()

    def ask() -> int:
        answered = 0
        for _ in range(20):
            with suppress(LimitReached):
                count_request(access)
                answered += 1
        return answered

    assert sum(call_together(*[ask] * 8)) == 49
    assert dict(fetch_all(connection, "SELECT holder, requests FROM usage_counts")) == {"key:1": 161, "user:1": 161}


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
