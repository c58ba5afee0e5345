"""Who may read a document, over HTTP. The doc_id stands in the query: in the path it could end as this address does."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.params import functions as param
from pydantic import StrictBool

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.fields import DocId
from collections_app.api.schemas import Request
from collections_app.domain.access_lists import UNRESTRICTED, read_access
from collections_app.http.auth import BearerAuth, request_key
from collections_app.models import Collection
from collections_app.services.documents.documents import get_document
from collections_app.services.documents.readers import Readers, change_readers, readers_of
from collections_app.services.governance.document_access import OPEN, resolve

router = Router(auth=BearerAuth(), tags=["documents"])

ADDRESS = "/collections/{collection}/document-access"
DOC_ID = param.Query(..., description="the document's id")


class AccessRequest(Request):
    """Who may read a document beside the administrators of its collection. What an answer adds may be sent back."""

    restricted: StrictBool = Field(True, description="false: everybody who may read the collection; then name nobody")
    users: list[str] = Field([], description="names of accounts")
    groups: list[str] = Field([], description="names of groups")
    origin: str = ""
    of: str = ""
    unknown: list[str] = []


class AccessAnswer(Schema):
    """Who may read a document. origin: stated; metadata (the collection's access_from); attachment: it has the list of
    the document `of`; import; '' for one that everybody who may read the collection reads."""

    doc_id: str
    restricted: bool
    users: list[str]
    groups: list[str]
    origin: Literal["", "stated", "metadata", "attachment", "import"]
    of: str = Field(description="what it was attached to")
    unknown: list[str] = Field(description="stated names of no user or group; they let nobody in")


@router.get(ADDRESS, operation_id="document-access-get", response={200: AccessAnswer, **ERRORS})
def get_access(request: HttpRequest, collection: str, doc_id: DocId = DOC_ID) -> Any:
    """Who may read the document."""
    return _answer(find_collection(request, collection), doc_id)


@router.put(ADDRESS, operation_id="document-access-set", response={200: AccessAnswer, **ERRORS})
def set_access(request: HttpRequest, collection: str, payload: AccessRequest, doc_id: DocId = DOC_ID) -> Any:
    """Let only these read the document and what was attached to it. 422 for unknown names, and for a list without you.

    409 for an attachment: it is read by whoever may read what it was attached to.
    """
    target = find_collection(request, collection)
    codes = resolve(target, read_access(payload.model_dump()))
    document = get_document(target, doc_id)
    change_readers(target, [document.doc_id], codes or OPEN, actor=request_key(request))
    return _answer(target, doc_id)


@router.delete(ADDRESS, operation_id="document-access-delete", response={200: AccessAnswer, **ERRORS})
def open_document(request: HttpRequest, collection: str, doc_id: DocId = DOC_ID) -> Any:
    """Let everybody who may read the collection read the document."""
    target = find_collection(request, collection)
    document = get_document(target, doc_id)
    change_readers(target, [document.doc_id], resolve(target, UNRESTRICTED) or OPEN, actor=request_key(request))
    return _answer(target, doc_id)


def _answer(collection: Collection, doc_id: str) -> Readers:
    return readers_of(collection, get_document(collection, doc_id))
