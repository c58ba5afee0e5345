"""POST /mcp: the tools of ragd for language models, by the official SDK, without sessions.

`search` and `fetch` are as ChatGPT and research agents expect them. A tool is its name, its arguments, what it needs,
and the call that it makes.

Every request is served on its own: the SDK's server runs in an event loop of this thread, and its tools come back to
the request's thread for the database. The answers are those of REST.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.request import validate_host
from django.urls import reverse
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
    ToolAnnotations,
)
from mcp.types import Tool as ToolMessage
from ninja import Field, Schema
from ninja.errors import ValidationError as RequestError
from ninja.responses import NinjaJSONEncoder
from pydantic import BaseModel, ConfigDict, ValidationError

from collections_app.access.auth import find_collection, out_of_scope, request_key, require_key
from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.audit.requests import REFUSED, note_refusal
from collections_app.documents import api, schemas, services
from collections_app.documents.api import get_document
from collections_app.documents.bulk_changes import State
from collections_app.errors import ServiceError, UnknownError, describe, error_response, method_not_allowed
from collections_app.http.paging import DEFAULT_LIMIT
from collections_app.http.schemas import CollectionBrief, DocumentDeleted, DocumentRequest, Ingested, Request
from collections_app.http.validation import StrictInt
from collections_app.models import Collection, Document
from ragd.version import product_version
from retrieval_app.answers.streams import body_of, encode
from retrieval_app.search.api import run_ask, run_search
from retrieval_app.search.schemas import AskRequest, AskResponse, SearchRequest, SearchResponse

SomeSchema = TypeVar("SomeSchema", bound=Schema)


class Scoped(Request):
    collection: str = Field(description="Name of the collection, as collections-list gives it")


class NoArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Tool:
    """run: takes the request, whose key is known, and the arguments; answers what the REST operation answers.

    permission: what the key needs somewhere, else the tool is neither listed nor called; what it needs in the
    collection at hand is checked by the call. shape: that of the answer, None where the call answers in JSON's types.
    result: the shape of the structured content, None for text alone. read_only, destructive, repeatable (called again
    with the same arguments it changes nothing more): hints for clients, which ask people before they call.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[HttpRequest, Any], Any]
    permission: Permission
    shape: type[Schema] | None = None
    result: type[Schema] | None = None
    read_only: bool = True
    destructive: bool = False
    repeatable: bool = False

    @property
    def message(self) -> ToolMessage:
        """As clients are told of it."""
        return ToolMessage(
            name=self.name,
            description=self.description,
            input_schema=inline_schema(self.arguments.model_json_schema()),
            output_schema=inline_schema(self.result.model_json_schema()) if self.result else None,
            annotations=ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.read_only or self.repeatable,
                open_world_hint=False,
            ),
        )

    @property
    def is_offered(self) -> bool:
        """Whether who asks has the permission in some collection at least."""
        return current_access().may_anywhere(self.permission)

    def call(self, request: HttpRequest, arguments: Mapping[str, Any]) -> Any:
        """The answer, as JSON values or as a schema of REST. Raises what the call raises; ServiceError 403 for a tool
        that the key may not use, RequestError for arguments that are not acceptable."""
        if not self.is_offered:
            raise out_of_scope(request_key(request), self.permission)
        request.permission = self.permission  # type: ignore[attr-defined]  # what `find_collection` checks there
        answer = self.run(request, _read_arguments(self.arguments, arguments))
        if isinstance(answer, HttpResponse):
            return json.loads(answer.content)
        if self.shape is None:
            return answer
        # times as REST writes them
        return json.loads(json.dumps(self.shape.model_validate(answer).model_dump(), cls=NinjaJSONEncoder))


def inline_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without `$ref` and `$defs`, which many clients do not follow.

    A shape inside itself is described by its type and description alone.
    """
    shapes = schema.get("$defs", {})

    def inline(value: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [inline(each, inside) for each in value]
        if not isinstance(value, dict):
            return value
        own = {name: inline(each, inside) for name, each in value.items() if name not in ("$ref", "$defs")}
        if not isinstance(value.get("$ref"), str):
            return own
        name = value["$ref"].rpartition("/")[2]
        if name in inside:
            return {key: each for key, each in shapes[name].items() if key in ("type", "description")} | own
        return inline(shapes[name], (*inside, name)) | own

    inlined: dict[str, Any] = inline(schema, ())
    return inlined


def _read_arguments(shape: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        return shape.model_validate(dict(arguments))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise RequestError([{**problem, "loc": ("body", *problem["loc"])} for problem in problems]) from None


def body_from(arguments: Schema, body: type[SomeSchema]) -> SomeSchema:
    """The body of the REST call: those arguments that are its fields, as far as they were stated."""
    return body.model_validate(arguments.model_dump(include=set(body.model_fields), exclude_unset=True))


RESULTS_MAX = 20
CHUNKS_READ = 20  # of each collection: several may be of one document


class SearchArguments(SearchRequest, Scoped):
    """The body of the search call, and the collection that stands in its address."""


class AskArguments(AskRequest, Scoped):
    """The body of the ask call, and the collection that stands in its address."""


class DocumentArguments(Scoped):
    doc_id: str = Field(description="Id of the document, as results give it")


class FindArguments(Request):
    query: str = Field(description="A question or keywords; all collections are searched")


class FetchArguments(Request):
    id: str = Field(description="Id of a result of search")


class FoundDocument(Schema):
    id: str
    title: str
    url: str


class FoundDocuments(Schema):
    results: list[FoundDocument]


class FetchedDocument(FoundDocument):
    text: str
    metadata: dict[str, str]


def search_collection(request: HttpRequest, arguments: SearchArguments) -> SearchResponse:
    collection = find_collection(request, arguments.collection)
    return run_search(collection, arguments, channel="mcp", api_key=request_key(request))


def ask_collection(request: HttpRequest, arguments: AskArguments) -> AskResponse:
    collection = find_collection(request, arguments.collection)
    return run_ask(collection, arguments, channel="mcp", api_key=request_key(request))


def read_document(request: HttpRequest, arguments: DocumentArguments) -> Document:
    document: Document = get_document(request, arguments.collection, arguments.doc_id)
    return document


def list_collections(request: HttpRequest, arguments: NoArguments) -> list[dict[str, Any]]:
    rows = Collection.objects.live().allowed_to(request_key(request).visible).by_name()
    return [CollectionBrief.from_orm(collection).dict() for collection in rows]


def find_documents(request: HttpRequest, arguments: FindArguments) -> FoundDocuments:
    """The best documents of all collections that the key may ask: by rank in their collection, then by similarity.

    One query run for each collection. A collection that cannot be searched is left out; when none can be, its error is
    raised.
    """
    key, errors, searched = request_key(request), [], 0
    query = SearchRequest.model_validate({"query": arguments.query, "k": CHUNKS_READ})
    found: list[tuple[int, float, FoundDocument]] = []
    for collection in Collection.objects.live().allowed_to(key.visible).by_name():
        if not current_access().may(Permission.ASK, collection.pk):
            continue
        try:
            answer = run_search(collection, query, channel="mcp", api_key=key)
        except Exception as error:
            errors.append(error)
            continue
        searched += 1
        best: dict[str, Mapping[str, Any]] = {}
        for result in body_of(answer)["results"]:
            best.setdefault(result["doc_id"], result)
        for rank, (doc_id, result) in enumerate(best.items()):
            similarity = result["ranks"].get("vector", {}).get("score", 0.0)
            found.append((rank, -similarity, _found(request, collection.name, doc_id, result["title"])))
    if errors and not searched:
        raise errors[0]
    found.sort(key=lambda item: (*item[:2], item[2].id))
    return FoundDocuments(results=[document for *_, document in found[:RESULTS_MAX]])


def fetch_document(request: HttpRequest, arguments: FetchArguments) -> FetchedDocument:
    """A document by `collection/doc_id`: a collection's name holds no slash. Raises ServiceError 404 as for others."""
    name, slash, doc_id = arguments.id.partition("/")
    if not slash:
        raise UnknownError(
            "document",
            f"an id is that of a result of search, COLLECTION/DOC_ID, not {arguments.id!r}; search first",
            field="id",
        )
    document = services.get_document(find_collection(request, name), doc_id)
    own = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in document.metadata.items()
    }
    stored = {
        "collection": name,
        "doc_id": doc_id,
        "tags": ", ".join(document.tags),
        "language": document.language,
        "source": document.source,
        "updated_at": document.updated_at.isoformat(),
    }
    shown = _found(request, name, doc_id, document.title)
    return FetchedDocument(**shown.dict(), text=document.text, metadata=own | stored)


def _found(request: HttpRequest, collection: str, doc_id: str, title: str) -> FoundDocument:
    address = request.build_absolute_uri(reverse("collections:document", args=[collection, doc_id]))
    return FoundDocument(id=f"{collection}/{doc_id}", title=title or doc_id, url=address)


READING_TOOLS = (
    Tool(
        "search",
        "Find documents in all collections for a question or keywords. fetch reads one of them.",
        FindArguments,
        find_documents,
        Permission.ASK,
        result=FoundDocuments,
    ),
    Tool(
        "fetch",
        "A whole document that search found: its text, title, address and metadata.",
        FetchArguments,
        fetch_document,
        Permission.READ,
        result=FetchedDocument,
    ),
    Tool(
        "collections-search",
        "Find the best chunks of a collection for a question.",
        SearchArguments,
        search_collection,
        Permission.ASK,
    ),
    Tool(
        "collections-ask",
        "Answer a question from a collection: text with checked citations and their sources.",
        AskArguments,
        ask_collection,
        Permission.ASK,
    ),
    Tool(
        "documents-get",
        "A whole document: its text, title, tags and metadata.",
        DocumentArguments,
        read_document,
        Permission.READ,
        shape=schemas.DocumentShown,
    ),
    Tool("collections-list", "The collections that can be searched.", NoArguments, list_collections, Permission.READ),
)


class DocumentsArguments(Scoped):
    q: str = Field("", description="Words that id, title or source contain")
    tag: list[str] = Field([], description="Tags that all must be there")
    state: State = Field("any", description="present: not archived")
    filter: str = Field("", description="A typed filter as text, such as title starts with 'Annual' and language = de")
    limit: StrictInt = DEFAULT_LIMIT
    cursor: str | None = Field(None, description="next_cursor of the page before")


class IngestArguments(DocumentRequest, DocumentArguments):
    """The body of the call, and the names that stand in its address."""


class EditArguments(schemas.DocumentChanges, DocumentArguments):
    """The body of the call, and the names that stand in its address."""


def list_documents(request: HttpRequest, arguments: DocumentsArguments) -> Any:
    filters = body_from(arguments, schemas.DocumentFilters)
    return api.list_documents(request, arguments.collection, filters, False, arguments.limit, arguments.cursor)


def ingest_document(request: HttpRequest, arguments: IngestArguments) -> Any:
    body = body_from(arguments, DocumentRequest)
    return api.ingest_document(request, arguments.collection, arguments.doc_id, body)


def edit_document(request: HttpRequest, arguments: EditArguments) -> Any:
    body = body_from(arguments, schemas.DocumentChanges)
    return api.edit_document(request, arguments.collection, arguments.doc_id, body)


def delete_document(request: HttpRequest, arguments: DocumentArguments) -> Any:
    return api.delete_document(request, arguments.collection, arguments.doc_id)


CURATION_TOOLS = (
    Tool(
        "documents-list",
        "The documents of a collection, by id, with their tags, metadata and state.",
        DocumentsArguments,
        list_documents,
        Permission.WRITE,
        shape=schemas.DocumentList,
    ),
    Tool(
        "documents-ingest",
        "Add a document from text, or replace the text of the one that has this id. The earlier text stays a revision.",
        IngestArguments,
        ingest_document,
        Permission.WRITE,
        shape=Ingested,
        read_only=False,
        destructive=True,
        repeatable=True,
    ),
    Tool(
        "documents-edit",
        "Change title, tags, metadata or language of a document, disable or enable it, archive it or bring it back. "
        "Tags and metadata replace what is there.",
        EditArguments,
        edit_document,
        Permission.WRITE,
        shape=schemas.DocumentEdited,
        read_only=False,
        destructive=True,
        repeatable=True,
    ),
    Tool(
        "documents-delete",
        "Delete a document with its chunks, revisions and files.",
        DocumentArguments,
        delete_document,
        Permission.WRITE,
        shape=DocumentDeleted,
        read_only=False,
        destructive=True,
        repeatable=True,
    ),
)


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
