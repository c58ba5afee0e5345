"""POST /mcp: the tools of ragd for language models, by the official SDK, without sessions.

Every request is served on its own: the SDK's server runs in an event loop of this thread, and its tools come back to
the request's thread for the database. The answers are those of REST.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.request import validate_host
from django.utils.http import is_same_domain
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
)

from collections_app.access.auth import require_key
from collections_app.audit.requests import REFUSED, note_refusal
from collections_app.errors import ServiceError, describe, error_response, method_not_allowed
from ragd.version import product_version
from retrieval_app.answers.streams import body_of, encode
from retrieval_app.mcp.tools import Tool

log = logging.getLogger(__name__)
CALL = "ragd.call"
ACCEPTED = b"application/json, text/event-stream"
INSTRUCTIONS = (
    "Search curated document collections. search looks through all of them and fetch reads a found document. For one "
    "collection call collections-list for the names, then collections-search with a question "
    "or keywords, or collections-ask for an answer with citations. documents-get reads a found document whole; the "
    "start and end of a result are its place there. Cite results by doc_id and chunk_index."
)


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request and the tools that there are."""

    request: HttpRequest
    tools: Mapping[str, Tool]


def _call_of(context: ServerRequestContext[Any, Any]) -> Call:
    assert context.request is not None, "the HTTP transport sets it"
    call: Call = context.request.scope[CALL]
    return call


async def list_tools(context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    """Those that the key may use in some collection at least."""
    return ListToolsResult(tools=[tool.message for tool in _call_of(context).tools.values() if tool.is_offered])


async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
    call = _call_of(context)
    tool = call.tools.get(params.name)
    if tool is None:
        offered = ", ".join(name for name, known in call.tools.items() if known.is_offered)
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}; the tools are {offered}")
    return await sync_to_async(run_tool, thread_sensitive=True)(tool, call.request, params.arguments or {})


def run_tool(tool: Tool, request: HttpRequest, arguments: Mapping[str, Any]) -> CallToolResult:
    """The answer of REST as text, structured too where the tool says how; or the error of REST."""
    structured = None
    try:
        answer = tool.call(request, arguments)
        if tool.result is not None:
            structured = body_of(answer)
    except Exception as error:
        status, answer = describe(error)
        if status == REFUSED:
            note_refusal(request, tool.name)
        if status >= 500:
            log.error("the tool %s failed: %s", tool.name, answer["error"]["type"], exc_info=error)
        return CallToolResult(content=[TextContent(type="text", text=encode(answer))], is_error=True)
    return CallToolResult(content=[TextContent(type="text", text=encode(answer))], structured_content=structured)


server: Server[dict[str, Any]] = Server(
    "ragd",
    version=product_version(),
    title="ragd",
    instructions=INSTRUCTIONS,
    on_list_tools=list_tools,
    on_call_tool=call_tool,
)


def mcp_view(*tools: Tool) -> Callable[[HttpRequest], HttpResponse]:
    """The view that offers these tools.

    One JSON-RPC message for each request. 403 for a page of another site, whose browser could have been led here
    (`require_origin`); 401 and 403 as REST answers them; a GET has no stream to offer.
    """
    by_name = {tool.name: tool for tool in tools}

    @csrf_exempt
    def view(request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return method_not_allowed(request, "POST")
        try:
            require_origin(request)
            require_key(request)
            body = request.body
        except Exception as error:
            return error_response(request, error)
        response = HttpResponse()
        async_to_sync(_serve)(_scope(Call(request, by_name)), body, response)
        return response

    return view


def require_origin(request: HttpRequest) -> None:
    """Refuse a request that a page of another site made: ServiceError 403.

    Accepted are requests without `Origin`, and origins of this server: the one that was asked, RAGD_ALLOWED_HOSTS at
    any port, and RAGD_CSRF_TRUSTED_ORIGINS.
    """
    origin = request.headers.get("Origin")
    if origin is None or origin == f"{request.scheme}://{request.get_host()}":
        return
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    trusted = [urlsplit(each) for each in settings.CSRF_TRUSTED_ORIGINS]
    if any(parts.scheme == each.scheme and is_same_domain(parts.netloc, each.netloc.lstrip("*")) for each in trusted):
        return
    own_hosts = [name for name in settings.ALLOWED_HOSTS if name != "*"]
    if host and parts.scheme in ("http", "https") and validate_host(f"[{host}]" if ":" in host else host, own_hosts):
        return
    raise ServiceError(
        "this page's origin is not one of this server; call /mcp from a program, or add the origin to"
        " RAGD_CSRF_TRUSTED_ORIGINS",
        type="foreign_origin",
        status=403,
    )


def _scope(call: Call) -> dict[str, Any]:
    """The request as ASGI. A client that does not say what it accepts gets JSON."""
    request = call.request
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
        CALL: call,
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
