"""A folder in step with a collection over HTTP: compare, send what differs, delete what is named."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from collections_app.api.access import ERRORS, answer, find_collection
from collections_app.api.schemas import SyncAnswer, SyncCommit, SyncCommitted, SyncRequest
from collections_app.http.auth import BearerAuth, request_key
from collections_app.services.uploads.folder_sync import Sync, SyncOutcome, commit_sync, open_sync
from collections_app.services.uploads.upload_plan import Entry
from collections_app.services.uploads.uploads import find_batch

router = Router(auth=BearerAuth(), tags=["documents"])


@router.post("/collections/{collection}/sync", operation_id="sync-open", response={200: SyncAnswer, **ERRORS})
def open_folder_sync(request: HttpRequest, collection: str, payload: SyncRequest) -> HttpResponse:
    """Compare a folder by its hashes and open a batch for it. Upload the paths of `send` with it, then commit it.

    Nothing is deleted before the commit names it; an empty manifest with delete_missing is refused.
    """
    target = find_collection(request, collection)

    def produce() -> Sync:
        return open_sync(
            target,
            [Entry(each.path, each.sha256, each.size) for each in payload.manifest],
            **payload.model_dump(exclude={"manifest"}),
            actor=request_key(request),
        )

    return answer(request, produce, SyncAnswer)


@router.post(
    "/collections/{collection}/sync/{batch_id}/commit",
    operation_id="sync-commit",
    response={200: SyncCommitted, **ERRORS},
)
def commit_folder_sync(request: HttpRequest, collection: str, batch_id: str, payload: SyncCommit) -> HttpResponse:
    """Delete the documents that are named, and close the batch. What was changed meanwhile is kept, and told."""
    target = find_collection(request, collection)

    def produce() -> SyncOutcome:
        return commit_sync(target, find_batch(target, batch_id), payload.delete, actor=request_key(request))

    return answer(request, produce, SyncCommitted)
