"""The tools that change a collection's documents, for keys that may write."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field

from collections_app.api import documents
from collections_app.api.curation_schemas import DocumentChanges, DocumentEdited
from collections_app.api.schemas import DocumentDeleted, DocumentPage, DocumentRequest, Ingested
from collections_app.domain.permissions import Permission
from collections_app.http.paging import DEFAULT_LIMIT
from collections_app.validation import StrictInt
from retrieval_app.api.mcp.reading import DocumentArguments
from retrieval_app.api.mcp.tools import Scoped, Tool, body_from


class DocumentsArguments(Scoped):
    q: str = Field("", description="Words that id, title or source contain")
    tag: list[str] = Field([], description="Tags that all must be there")
    state: Literal["any", "present", "enabled", "disabled", "archived"] = Field(
        "any", description="present: not archived"
    )
    filter: str = Field("", description="A typed filter as text, such as title starts with 'Annual' and language = de")
    limit: StrictInt = DEFAULT_LIMIT
    cursor: str | None = Field(None, description="next_cursor of the page before")


class IngestArguments(DocumentRequest, DocumentArguments):
    """The body of the call, and the names that stand in its address."""


class EditArguments(DocumentChanges, DocumentArguments):
    """The body of the call, and the names that stand in its address."""


def list_documents(request: HttpRequest, arguments: DocumentsArguments) -> Any:
    stated = arguments.dict()
    return documents.list_documents(request, **stated, media_type="", language="", access="")


def ingest_document(request: HttpRequest, arguments: IngestArguments) -> Any:
    body = body_from(arguments, DocumentRequest)
    return documents.ingest_document(request, arguments.collection, arguments.doc_id, body)


def edit_document(request: HttpRequest, arguments: EditArguments) -> Any:
    body = body_from(arguments, DocumentChanges)
    return documents.edit_document(request, arguments.collection, arguments.doc_id, body)


def delete_document(request: HttpRequest, arguments: DocumentArguments) -> Any:
    return documents.delete_document(request, arguments.collection, arguments.doc_id)


TOOLS = (
    Tool(
        "documents-list",
        "The documents of a collection, by id, with their tags, metadata and state.",
        DocumentsArguments,
        list_documents,
        Permission.WRITE,
        shape=DocumentPage,
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
