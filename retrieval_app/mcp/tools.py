"""The tools of MCP: reading, for keys that may ask, and changing documents, for keys that may write.

`search` and `fetch` are as ChatGPT and research agents expect them. A tool is its name, its arguments, what it needs,
and the call that it makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from mcp.types import Tool as ToolMessage
from mcp.types import ToolAnnotations
from ninja import Field, Schema
from ninja.errors import ValidationError as RequestError
from ninja.responses import NinjaJSONEncoder
from pydantic import BaseModel, ConfigDict, ValidationError

from collections_app.access.auth import find_collection, out_of_scope, request_key
from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.documents import api, services
from collections_app.documents.api import get_document
from collections_app.documents.schemas import (
    DocumentChanges,
    DocumentEdited,
    DocumentFilters,
    DocumentList,
    DocumentShown,
)
from collections_app.documents.selection import State
from collections_app.errors import UnknownError
from collections_app.http.paging import DEFAULT_LIMIT
from collections_app.http.schemas import (
    CollectionBrief,
    DocumentDeleted,
    DocumentRequest,
    Ingested,
    Request,
)
from collections_app.http.validation import StrictInt
from collections_app.models import Collection, Document
from retrieval_app.answers.streams import body_of
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
        shape=DocumentShown,
    ),
    Tool(
        "collections-list",
        "The collections that can be searched.",
        NoArguments,
        list_collections,
        Permission.READ,
    ),
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


class EditArguments(DocumentChanges, DocumentArguments):
    """The body of the call, and the names that stand in its address."""


def list_documents(request: HttpRequest, arguments: DocumentsArguments) -> Any:
    filters = body_from(arguments, DocumentFilters)
    return api.list_documents(request, arguments.collection, filters, False, arguments.limit, arguments.cursor)


def ingest_document(request: HttpRequest, arguments: IngestArguments) -> Any:
    body = body_from(arguments, DocumentRequest)
    return api.ingest_document(request, arguments.collection, arguments.doc_id, body)


def edit_document(request: HttpRequest, arguments: EditArguments) -> Any:
    body = body_from(arguments, DocumentChanges)
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
        shape=DocumentList,
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
        shape=DocumentEdited,
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
