"""Whole collections over HTTP: exported as one file, imported from one."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Field, Schema
from ninja.files import UploadedFile
from ninja.params import functions as param

from collections_app.access import auth
from collections_app.access.context import require, require_making, system_access
from collections_app.access.permissions import Permission
from collections_app.collections.export import Export, open_export
from collections_app.collections.export_reader import read_manifest
from collections_app.collections.import_stage import import_collection
from collections_app.http.downloads import download_response
from collections_app.http.schemas import DIMENSIONS, EmbedModel, Omitted
from collections_app.models import Collection

HASHED_AT_ONCE = 1_000_000
FILE = param.File(..., description="what GET /v1/collections/{collection}/export answered")

router = auth.Router(auth=auth.BearerAuth(), tags=["collections"])


class Imported(Schema):
    """A collection that was made of an export."""

    collection: str
    counts: dict[str, int] = Field(description="rows by what they are: documents, chunks, sources, revisions, ...")
    index_version_hash: str = Field(description="the same as that of the index version which was exported")
    index_version: int | None = Field(description="the one that is built with another model, where that was asked for")
    warnings: list[str]
    replaced: bool = Field(description="whether it took the place of a collection of its name")
    seconds: float


@router.get(
    "/collections/{collection}/export",
    auth=auth.BearerAuth(reads=Permission.WRITE),
    operation_id="collections-export",
    response={200: None},
    openapi_extra={
        "responses": {200: {"content": {Export.content_type: {"schema": {"type": "string", "format": "binary"}}}}}
    },
)
def export_collection(request: HttpRequest, collection: str) -> StreamingHttpResponse:
    """The whole collection at this moment as one ZIP file, streamed; writers go on meanwhile.

    A stream that ends without the archive's directory at its end is incomplete: no reader of ZIP files accepts it. 429
    when three exports run already.
    """
    export = open_export(auth.find_collection(request, collection), actor=auth.request_key(request))
    return download_response(request, export, export.content_type, export.name, reading=None)


@router.post("/collections/import", operation_id="collections-import", response={201: Imported})
def import_file(
    request: HttpRequest,
    file: UploadedFile = FILE,
    name: str | Omitted = param.Form(None, description="the exported name when left out"),
    replace: bool = param.Form(False, description="take the place of the collection of that name"),
    embed_model: EmbedModel | Omitted = param.Form(
        None, description="another model: an index version with it is built afterwards"
    ),
    embed_dims: Annotated[int, DIMENSIONS] | Omitted = param.Form(None),
) -> HttpResponse:
    """Make a collection of an export: checked whole first, and seen when it is complete. All of it or nothing.

    It searches exactly as the exported one did, and no embedder is asked. 422 for a file that is damaged, foreign or of
    another version, 409 for a name that is taken, 413 for one that is too large.
    """
    key = auth.request_key(request)
    require_making()
    source: Any = file.file
    requested = name or str(read_manifest(source)["collection"]["name"])
    auth.check_collection_scope(key, requested)
    replaced = Collection.objects.live().filter(name=requested).first() if replace else None
    if replaced is not None:
        require(Permission.ADMINISTER, replaced.pk)

    def produce() -> dict[str, Any]:
        with system_access():  # who may make collections, as was checked
            return import_collection(
                source,
                name=requested,
                replace=replace,
                embed_model=embed_model or None,
                embed_dims=embed_dims,
                actor=key,
            )

    fingerprint = (
        _fingerprint(file, [requested, replace, embed_model, embed_dims]) if auth.HEADER in request.headers else ""
    )
    return auth.answer(request, produce, Imported, status=201, fingerprint=fingerprint)


def _fingerprint(file: UploadedFile, fields: list[Any]) -> str:
    digest = hashlib.sha256(repr(fields).encode())
    for part in file.chunks(HASHED_AT_ONCE):
        digest.update(part)
    file.seek(0)
    return digest.hexdigest()
