"""POST /mcp: the tools of ragd for language models, by the official SDK, without sessions.

Every request is served on its own: the SDK's server runs in an event loop of this thread, and its tools come back to
the request's thread for the database. The answers are those of REST.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from asgiref.sync import async_to_sync, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from ninja import Field, Schema
from ninja.errors import ValidationError as RequestError
from ninja.responses import NinjaJSONEncoder
from pydantic import BaseModel, ConfigDict, ValidationError

from collections_app.api.schemas import CollectionBrief, DocumentDetail
from collections_app.errors import describe, error_response, method_not_allowed
from collections_app.http.auth import check_collection_scope, require_key
from collections_app.models import ApiKey, Collection
from collections_app.services.collections.collections import get_collection
from collections_app.services.documents import documents
from ragd.types import SPEC_VERSION
from retrieval_app.api.handlers import run_ask, run_search
from retrieval_app.api.responses import encode
from retrieval_app.api.schemas import AskRequest, AskResponse, SearchRequest, SearchResponse

log = logging.getLogger(__name__)
KEY = "ragd.api_key"
ACCEPTED = b"application/json, text/event-stream"
INSTRUCTIONS = (
    "Search curated document collections. Call collections-list for the names, then collections-search with a question "
    "or keywords, or collections-ask for an answer with citations. documents-get reads a found document whole; the "
    "start and end of a result are its place there. Cite results by doc_id and chunk_index."
)


class Scoped(Schema):
    collection: str = Field(description="Name of the collection, as collections-list gives it")


class SearchArguments(SearchRequest, Scoped):
    """The body of the search call, and the collection that stands in its address."""


class AskArguments(AskRequest, Scoped):
    """The body of the ask call, and the collection that stands in its address."""


class DocumentArguments(Scoped):
    model_config = ConfigDict(extra="forbid")

    doc_id: str = Field(description="Id of the document, as results give it")


class ListArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


def search_collection(arguments: SearchArguments, key: ApiKey) -> SearchResponse:
    return run_search(_find_collection(arguments, key), arguments, door="mcp", api_key=key)


def ask_collection(arguments: AskArguments, key: ApiKey) -> AskResponse:
    return run_ask(_find_collection(arguments, key), arguments, door="mcp", api_key=key)


def get_document(arguments: DocumentArguments, key: ApiKey) -> dict[str, Any]:
    target = documents.get_document(_find_collection(arguments, key), arguments.doc_id)
    shown: dict[str, Any] = json.loads(
        json.dumps(DocumentDetail.from_orm(target).dict(), cls=NinjaJSONEncoder)
    )  # times as REST writes them
    return shown


def _find_collection(arguments: Scoped, key: ApiKey) -> Collection:
    check_collection_scope(key, arguments.collection)
    return get_collection(arguments.collection)


def list_collections(arguments: ListArguments, key: ApiKey) -> list[dict[str, Any]]:
    rows = Collection.objects.live().allowed_to(key.visible).by_name()
    return [CollectionBrief.from_orm(collection).dict() for collection in rows]


TOOLS: Mapping[str, tuple[str, type[BaseModel], Callable[[Any, ApiKey], Any]]] = {
    "collections-search": ("Find the best chunks of a collection for a question.", SearchArguments, search_collection),
    "collections-ask": (
        "Answer a question from a collection: text with checked citations and their sources.",
        AskArguments,
        ask_collection,
    ),
    "documents-get": ("A whole document: its text, title, tags and metadata.", DocumentArguments, get_document),
    "collections-list": ("The collections that can be searched.", ListArguments, list_collections),
}


async def list_tools(context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(
        tools=[
            Tool(
                name=name,
                description=description,
                input_schema=arguments.model_json_schema(),
                annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for name, (description, arguments, _) in TOOLS.items()
        ]
    )


async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
    if params.name not in TOOLS:
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}; the tools are {', '.join(TOOLS)}")
    assert context.request is not None, "the HTTP transport sets it"
    key: ApiKey = context.request.scope[KEY]
    text, failed = await sync_to_async(run_tool, thread_sensitive=True)(params.name, params.arguments or {}, key)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)


def run_tool(name: str, arguments: Mapping[str, Any], key: ApiKey) -> tuple[str, bool]:
    """(JSON of the REST answer, whether it is an error)."""
    _, shape, run = TOOLS[name]
    try:
        return encode(run(_read_arguments(shape, arguments), key)), False
    except Exception as error:
        status, body = describe(error)
        if status >= 500:
            log.error("the tool %s failed: %s", name, body["error"]["type"], exc_info=error)
        return encode(body), True


def _read_arguments(shape: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        return shape.model_validate(dict(arguments))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise RequestError([{**problem, "loc": ("body", *problem["loc"])} for problem in problems]) from None


server: Server[dict[str, Any]] = Server(
    "ragd",
    version=SPEC_VERSION,
    title="ragd",
    instructions=INSTRUCTIONS,
    on_list_tools=list_tools,
    on_call_tool=call_tool,
)


@csrf_exempt
def mcp_view(request: HttpRequest) -> HttpResponse:
    """One JSON-RPC message. 401 and 403 as REST answers them; a GET has no stream to offer."""
    if request.method != "POST":
        return method_not_allowed(request, "POST")
    try:
        key = require_key(request)
        body = request.body
    except Exception as error:
        return error_response(request, error)
    response = HttpResponse()
    async_to_sync(_serve)(_scope(request, key), body, response)
    return response


def _scope(request: HttpRequest, key: ApiKey) -> dict[str, Any]:
    """The request as ASGI. A client that does not say what it accepts gets JSON."""
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in request.headers.items()
    ]
    selected = [(name, value) for name, value in headers if name not in (b"accept", b"authorization", b"content-type")]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": request.scheme or "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [*selected, (b"accept", ACCEPTED), (b"content-type", b"application/json")],
        "client": None,
        "server": None,
        KEY: key,
    }


async def _serve(scope: dict[str, Any], body: bytes, response: HttpResponse) -> None:
    """Run the SDK over one message and put what it sends into the response."""
    sent = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not sent:
            await anyio.sleep_forever()
        return sent.pop()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            response.status_code = message["status"]
            for name, value in message.get("headers", ()):
                if name.lower() != b"content-length":
                    response[name.decode("latin-1")] = value.decode("latin-1")
        else:
            response.write(message.get("body", b""))

    manager = StreamableHTTPSessionManager(app=server, json_response=True, stateless=True)
    async with manager.run():
        await manager.handle_request(scope, receive, send)
