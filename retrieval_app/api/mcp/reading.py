"""The tools that read: those of ragd, and `search` and `fetch` as ChatGPT and research agents expect them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from ninja import Field, Schema

from collections_app.access_context import current_access
from collections_app.api.access import find_collection
from collections_app.api.documents import get_document
from collections_app.api.schemas import CollectionBrief, DocumentDetail, Request
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import request_key
from collections_app.models import Collection, Document
from collections_app.services.documents import documents
from retrieval_app.api.handlers import run_ask, run_search
from retrieval_app.api.mcp.tools import NoArguments, Scoped, Tool
from retrieval_app.api.responses import body_of
from retrieval_app.api.schemas import AskRequest, AskResponse, SearchRequest, SearchResponse

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
        raise ServiceError(
            f"an id is that of a result of search, COLLECTION/DOC_ID, not {arguments.id!r}; search first",
            type="unknown_document",
            status=404,
            field="id",
        )
    document = documents.get_document(find_collection(request, name), doc_id)
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


TOOLS = (
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
        shape=DocumentDetail,
    ),
    Tool(
        "collections-list",
        "The collections that can be searched.",
        NoArguments,
        list_collections,
        Permission.READ,
    ),
)
