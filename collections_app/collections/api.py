"""Collections over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, answer, check_collection_scope, find_collection, request_key
from collections_app.access.permissions import Permission
from collections_app.collections import services as service
from collections_app.collections.deletion import delete_collection as request_deletion
from collections_app.http import schemas
from collections_app.http.paging import paginate
from collections_app.http.schemas import Cursor, Limit
from collections_app.models import Collection

router = Router(auth=BearerAuth(), tags=["collections"])


@router.post("/collections", operation_id="collections-create", response=schemas.CollectionBrief)
def create_collection(request: HttpRequest, payload: schemas.CollectionRequest) -> HttpResponse:
    """Make an empty collection. Its embedding model and dimensions are fixed from here on."""
    key = request_key(request)
    check_collection_scope(key, payload.name)

    def produce() -> Collection:
        policy = payload.chunk_policy.model_dump(exclude_none=True) if payload.chunk_policy else None
        values = payload.model_dump(exclude={"chunk_policy"})
        return service.create_collection(**values, chunk_policy=policy, actor=key)

    return answer(request, produce, schemas.CollectionBrief)


@router.get("/collections", operation_id="collections-list", response=list[schemas.CollectionBrief])
def list_collections(
    request: HttpRequest,
    response: HttpResponse,
    limit: Limit | None = param.Query(None, description="all when left out"),
    cursor: Cursor | None = param.Query(None, description="X-Next-Cursor of the page before"),
) -> Any:
    """The collections that the key may use, by name. With a limit, the header X-Next-Cursor leads to the next page."""
    rows = Collection.objects.live().allowed_to(request_key(request).visible)
    page = paginate(rows, ("name",), limit=limit, cursor=cursor)
    if page.next_cursor:
        response["X-Next-Cursor"] = page.next_cursor
    return page.items


@router.get("/collections/{collection}", operation_id="collections-get", response=schemas.CollectionDetail)
def get_collection(request: HttpRequest, collection: str) -> Any:
    return find_collection(request, collection)


@router.patch("/collections/{collection}", operation_id="collections-update", response=schemas.CollectionDetail)
def update_collection(request: HttpRequest, collection: str, payload: schemas.CollectionChanges) -> Any:
    """Change what may change. A new chunk_policy replaces the stated one and holds for what is ingested from now on."""
    target = find_collection(request, collection)
    changes = payload.model_dump(exclude_none=True)
    return service.update_collection(target, changes=changes, actor=request_key(request))


@router.delete(
    "/collections/{collection}",
    auth=BearerAuth(changes=Permission.ADMINISTER),
    operation_id="collections-delete",
    response=schemas.Deleted,
)
def delete_collection(request: HttpRequest, collection: str) -> Any:
    """Delete a collection with everything in it, also while jobs run; answers the counts before and after."""
    return request_deletion(find_collection(request, collection), actor=request_key(request))


@router.get("/collections/{collection}/statistics", operation_id="collections-statistics", response=schemas.Statistics)
def get_statistics(request: HttpRequest, collection: str) -> Any:
    return service.collection_statistics(find_collection(request, collection))
