from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.test import Client
from jsonschema import Draft202012Validator
from mcp.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult
from pydantic import BaseModel

from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.models import Collection
from evaluation_app import mcp_tools as evaluating
from retrieval_app.mcp import tools as reading
from retrieval_app.mcp.tools import inline_schema
from retrieval_app.models import QueryRun
from tests.retrieval.corpus import bearer, get, make_collection, post

TOOLS = ["search", "fetch", "collections-search", "collections-ask", "documents-get", "collections-list"]
SEARCH = {"collection": "house", "query": "how is the pump cleaned", "k": 3}


def rpc(client: Client, method: str, params: Any, headers: Mapping[str, str], **more: str) -> tuple[int, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = client.post("/mcp", message, content_type="application/json", headers=dict(headers) | more)
    return answer.status_code, answer.json() if answer.content else None


def call(client: Client, tool: str, arguments: Any, headers: Mapping[str, str]) -> tuple[bool, Any]:
    """(whether it is an error, the decoded text part)."""
    status, body = rpc(client, "tools/call", {"name": tool, "arguments": arguments}, headers)
    assert status == 200
    (part,) = body["result"]["content"]
    assert part["type"] == "text"
    return body["result"].get("isError", False), json.loads(part["text"])


def same(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer without what differs from call to call."""
    return {name: value for name, value in answer.items() if name not in ("run_id", "timings_ms", "trace_id")}


@pytest.mark.django_db
def test_a_bare_post_lists_the_tools(client: Client) -> None:
    _, body = rpc(client, "tools/list", {}, bearer(scope="read"))
    tools = {tool["name"]: tool["inputSchema"] for tool in body["result"]["tools"]}
    assert list(tools) == TOOLS
    bodies = client.get("/v1/openapi.json").json()["components"]["schemas"]
    for tool, body in (("collections-search", "SearchRequest"), ("collections-ask", "AskRequest")):
        assert set(tools[tool]["properties"]) == {"collection", *bodies[body]["properties"]}
        assert set(tools[tool]["required"]) == {"collection", "query"}
    assert tools["documents-get"]["required"] == ["collection", "doc_id"]


ORIGINS = {
    "https://evil.example": 403, "null": 403, "": 403, "http://testserver.evil.example": 403,
    "http://evil.example:80": 403, "http://[bad": 403, "file://testserver": 403, "http://testserver": 200,
    "http://localhost:6274": 200, "http://127.0.0.1": 200, "https://desk.example": 200,
    "https://sub.front.example": 200,
}  # fmt: skip


@pytest.mark.fault("MCP-06")
@pytest.mark.django_db
@pytest.mark.parametrize("origin", ORIGINS)
def test_pages_of_other_sites_are_refused(client: Client, settings: Any, origin: str) -> None:
    settings.ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1", "*"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://desk.example", "https://*.front.example"]
    status, body = rpc(client, "tools/list", {}, bearer(scope="read"), Origin=origin)
    assert status == ORIGINS[origin]
    assert status == 200 or body["error"]["type"] == "foreign_origin"
    assert rpc(client, "tools/list", {}, bearer(scope="read"))[0] == 200


@pytest.mark.fault("MCP-02")
@pytest.mark.django_db
def test_schemas_of_tools_stand_alone(client: Client) -> None:
    messages = [tool.message for tool in (*reading.READING_TOOLS, *reading.CURATION_TOOLS, *evaluating.TOOLS)]
    assert len(messages) > len(TOOLS)
    for message in messages:
        for schema in (message.input_schema, message.output_schema or {}):
            assert not re.search(r'"\$(?:ref|defs)"', json.dumps(schema)), message.name
            Draft202012Validator.check_schema(schema)


def test_a_schema_inside_itself_ends() -> None:
    class Tree(BaseModel):
        name: str
        children: list[Tree] = []

    Tree.model_rebuild()
    schema = inline_schema(Tree.model_json_schema())
    assert "$ref" not in json.dumps(schema)
    validator = Draft202012Validator(schema)
    assert validator.is_valid({"name": "a", "children": [{"name": "b", "children": []}]})
    assert not validator.is_valid({"name": "a", "children": "b"})


@pytest.mark.django_db
def test_ask_answers_as_rest_does(house: Collection, client: Client) -> None:
    headers = bearer(scope="read")
    fields = {"query": "What does coffee cost?", "k": 3, "llm_model": "extractive"}
    failed, answer = call(client, "collections-ask", {"collection": "house"} | fields, headers)
    _, rest = post(client, "/v1/collections/house/ask", fields, headers)
    assert (failed, same(answer)) == (False, same(rest))
    assert QueryRun.objects.get(pk=answer["run_id"]).channel == "mcp"
    failed, answer = call(client, "collections-ask", {"collection": "house", "query": "x", "llm_model": "m"}, headers)
    assert (failed, answer["error"]["field"]) == (True, "llm_model")


@pytest.mark.django_db
def test_a_document_is_that_of_rest(house: Collection, client: Client) -> None:
    headers = bearer(collections=["house"])
    failed, answer = call(client, "documents-get", {"collection": "house", "doc_id": "pump.md"}, headers)
    assert (failed, answer) == (False, get(client, "/v1/collections/house/documents/pump.md", headers)[1])
    for arguments, type in (
        ({"collection": "house", "doc_id": "nope"}, "unknown_document"),
        ({"collection": "house", "doc_id": ""}, "invalid_input"),
        ({"collection": "house", "doc_id": "pump.md", "more": 1}, "invalid_input"),
        ({"collection": "attic", "doc_id": "pump.md"}, "out_of_scope"),
    ):
        failed, answer = call(client, "documents-get", arguments, headers)
        assert (failed, answer["error"]["type"]) == (True, type)


@pytest.mark.django_db
def test_list_answers_as_rest_does(house: Collection, client: Client) -> None:
    make_collection("attic", empty=True, hybrid_enabled=False)
    headers = bearer()
    failed, answer = call(client, "collections-list", {}, headers)
    _, rest = get(client, "/v1/collections", headers)
    assert (failed, answer) == (False, rest)
    assert "attic" in json.dumps(answer)


def found(client: Client, query: str, headers: Mapping[str, str]) -> list[dict[str, str]]:
    """The results of `search`, which stand in the text and in the structured content alike."""
    _, body = rpc(client, "tools/call", {"name": "search", "arguments": {"query": query}}, headers)
    (part,) = body["result"]["content"]
    assert json.loads(part["text"]) == body["result"]["structuredContent"]
    assert list(body["result"]["structuredContent"]) == ["results"]
    results: list[dict[str, str]] = body["result"]["structuredContent"]["results"]
    return results


@pytest.mark.django_db
def test_search_finds_documents_of_all_collections_and_fetch_reads_them(house: Collection, client: Client) -> None:
    attic = make_collection("attic", empty=True)
    ingest_text(attic, "old/pump #2.md", "The old pump stands in the attic.\n\n" * 40, metadata={"floor": 2, "a": "b"})
    headers = bearer()
    results = found(client, "where is the old pump", headers)
    assert all(list(each) == ["id", "title", "url"] for each in results)
    ids = [each["id"] for each in results]
    assert len(ids) == len(set(ids)) and set(ids[:2]) == {"attic/old/pump #2.md", "house/pump.md"}
    assert {run.channel for run in QueryRun.objects.all()} == {"mcp"} and QueryRun.objects.count() == 2
    old = next(each for each in results if each["id"].startswith("attic/"))
    assert old["url"] == "http://testserver/collections/attic/documents/old/pump%20%232.md/"
    _, body = rpc(client, "tools/call", {"name": "fetch", "arguments": {"id": old["id"]}}, headers)
    document = body["result"]["structuredContent"]
    assert document == json.loads(body["result"]["content"][0]["text"])
    assert {name: document[name] for name in old} == old
    assert document["text"].count("The old pump stands in the attic.") == 40
    assert {name: document["metadata"][name] for name in ("collection", "doc_id", "floor", "a")} == {
        "collection": "attic", "doc_id": "old/pump #2.md", "floor": "2", "a": "b",
    }  # fmt: skip
    for id, type in (("attic/nope", "unknown_document"), ("nope", "unknown_document"), ("no/no", "unknown_collection")):
        failed, answer = call(client, "fetch", {"id": id}, headers)
        assert (failed, answer["error"]["type"]) == (True, type)
    limited = bearer(collections=["attic"])
    assert {each["id"].partition("/")[0] for each in found(client, "where is the pump", limited)} == {"attic"}
    assert call(client, "fetch", {"id": "house/pump.md"}, limited)[1]["error"]["type"] == "out_of_scope"


@pytest.mark.django_db
def test_search_leaves_out_a_collection_that_cannot_be_searched(
    house: Collection, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_collection("attic")
    search = reading.run_search

    def run(collection: Collection, *arguments: Any, **values: Any) -> Any:
        if collection.name in broken:
            raise ServiceError("no answer", type="away", status=502)
        return search(collection, *arguments, **values)

    monkeypatch.setattr(reading, "run_search", run)
    broken = ["attic"]
    assert {each["id"].partition("/")[0] for each in found(client, "pump", bearer())} == {"house"}
    broken = ["attic", "house"]
    failed, answer = call(client, "search", {"query": "pump"}, bearer())
    assert failed and answer["error"]["type"] == "away"


@pytest.mark.django_db
def test_tool_errors_say_what_rest_says(house: Collection, client: Client) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"collection": "nowhere", "query": "x"}, "unknown_collection", "collection"),
        ({"collection": "house", "query": "x", "mode": "lexical"}, "lexical_disabled", "mode"),
        ({"collection": "house", "query": " "}, "invalid_input", "query"),
        ({"collection": "house", "query": "x", "k": 0}, "invalid_input", "k"),
        ({"collection": "house", "query": "x", "mode": "magic"}, "invalid_input", "mode"),
        ({"collection": "house"}, "invalid_input", "query"),
        ({"collection": "house", "query": "x", "colour": "red"}, "invalid_input", "colour"),
    ]
    for arguments, type, field in cases:
        Collection.objects.update(hybrid_enabled=False)
        headers = bearer()
        failed, answer = call(client, "collections-search", arguments, headers)
        assert (failed, answer["error"]["type"], answer["error"].get("field")) == (True, type, field)
        body = {name: value for name, value in arguments.items() if name != "collection"}
        rest = post(client, f"/v1/collections/{arguments['collection']}/search", body, headers)[1]
        assert ("run_id" in answer) == ("run_id" in rest)  # each is a run of its own, where one was stored
        assert answer | {"run_id": ""} == rest | {"run_id": ""}


@pytest.mark.django_db
def test_a_fault_of_the_server_is_logged(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(reading, "request_key", fail)
    failed, body = call(client, "collections-list", {}, bearer())
    assert failed and body["error"]["type"] == "internal_error" and "lost" not in json.dumps(body)
    (record,) = [record for record in caplog.records if record.name == reading.__name__]
    assert record.exc_info is not None and record.exc_info[0] is RuntimeError


@pytest.mark.django_db
def test_an_unknown_tool_and_method_are_protocol_errors(client: Client) -> None:
    headers = bearer()
    assert rpc(client, "tools/call", {"name": "rm", "arguments": {}}, headers)[1]["error"]["code"] == -32602
    assert rpc(client, "tools/dance", {}, headers)[1]["error"]["code"] == -32601


@pytest.mark.django_db
@pytest.mark.parametrize("body", ["{", "[]", '"text"', '{"id": 1}'])
def test_a_malformed_message_is_refused(client: Client, body: str) -> None:
    answer = client.post("/mcp", body, content_type="application/json", headers=bearer())
    assert (answer.status_code, "error" in answer.json()) == (400, True)


@pytest.mark.django_db
def test_the_door_is_the_same_as_rest(client: Client) -> None:
    assert rpc(client, "tools/list", {}, {})[0] == 401
    assert rpc(client, "tools/list", {}, {"Authorization": "Bearer ragd_wrong"})[0] == 403
    answer = client.get("/mcp", headers=bearer())
    assert (answer.status_code, answer["Allow"], answer.json()["error"]["type"]) == (405, "POST", "method_not_allowed")


async def with_sdk(url: str, headers: Mapping[str, str], mode: str, use: Callable[[McpClient], Any]) -> Any:
    async with (
        create_mcp_http_client(headers=dict(headers)) as http,
        McpClient(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        return await use(client)


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_official_client_searches_a_live_server(
    kept_house: Collection, live_server: Any, client: Client, mode: str
) -> None:
    headers = bearer(scope="read")

    async def use(mcp: McpClient) -> tuple[list[str], list[CallToolResult], CallToolResult]:
        tools = [tool.name for tool in (await mcp.list_tools()).tools]
        found = [
            await mcp.call_tool("collections-search", SEARCH),
            await mcp.call_tool("collections-ask", SEARCH),
            await mcp.call_tool("documents-get", {"collection": "house", "doc_id": "pump.md"}),
        ]
        failed = await mcp.call_tool("collections-search", {"collection": "nowhere", "query": "x"})
        with pytest.raises(MCPError):
            await mcp.call_tool("rm", {})
        return tools, found, failed

    tools, found, failed = asyncio.run(with_sdk(f"{live_server.url}/mcp", headers, mode, use))
    asked = {"query": SEARCH["query"], "k": 3}
    rest = [
        post(client, "/v1/collections/house/search", asked, headers)[1],
        post(client, "/v1/collections/house/ask", asked, headers)[1],
        get(client, "/v1/collections/house/documents/pump.md", headers)[1],
    ]
    assert tools == TOOLS
    assert [item.is_error for item in found] == [False, False, False]
    assert [same(json.loads(item.content[0].text)) for item in found] == [same(item) for item in rest]  # type: ignore[union-attr]
    assert (failed.is_error, json.loads(failed.content[0].text)["error"]["type"]) == (True, "unknown_collection")  # type: ignore[union-attr]
