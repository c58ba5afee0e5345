"""Files over HTTP: many at once, one result per file."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja.files import UploadedFile
from ninja.params import functions as param

from collections_app.api.access import ERRORS, answer, find_collection
from collections_app.api.documents import router  # one address, so one router
from collections_app.api.schemas import UploadAnswer
from collections_app.auth import request_key
from collections_app.errors import ServiceError
from collections_app.idempotency import HEADER
from collections_app.services.documents import UploadOutcome, submit_uploads
from ragd.errors import InvalidInput

HASHED_AT_ONCE = 1_000_000
FILES = param.File(..., description="any number of files")
DOC_IDS = param.Form([], description="one per file, in the same order; the file's name when left out")
TAGS = param.Form([], description="kept with every document")


@router.post(
    "/collections/{collection}/documents", operation_id="documents-upload", response={202: UploadAnswer, **ERRORS}
)
def upload_documents(
    request: HttpRequest,
    collection: str,
    files: list[UploadedFile] = FILES,
    doc_ids: list[str] = DOC_IDS,
    tags: list[str] = TAGS,
    metadata: str = param.Form("{}", description="a JSON object, kept with every document"),
) -> HttpResponse:
    """Queue files for ingestion, one job each. A file that is refused says why and holds up no other.

    413 when every file is too large.
    """
    found = find_collection(request, collection)
    stated = _read_metadata(metadata)

    def produce() -> tuple[int, Any]:
        outcomes = submit_uploads(found, files, doc_ids=doc_ids, tags=tags, metadata=stated, actor=request_key(request))
        if outcomes and all(outcome.error_type == "too_large" for outcome in outcomes):
            raise ServiceError(outcomes[0].error, type="too_large", status=413, field="files")
        return 202, {"results": [item(outcome) for outcome in outcomes]}

    fingerprint = _fingerprint(files, [doc_ids, tags, metadata]) if HEADER in request.headers else ""
    return answer(request, produce, fingerprint=fingerprint)


def _read_metadata(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InvalidInput('metadata must be a JSON object such as {"team": "support"}', field="metadata")
    return values


def _fingerprint(files: list[UploadedFile], fields: list[Any]) -> str:
    """Names, contents and fields, as one digest."""
    digest = hashlib.sha256(json.dumps(fields).encode())
    for file in files:
        digest.update(json.dumps([file.name, file.size]).encode())
        for part in file.chunks(HASHED_AT_ONCE):
            digest.update(part)
        file.seek(0)
    return digest.hexdigest()


def item(outcome: UploadOutcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "doc_id": outcome.doc_id,
        "status": outcome.status,
        "job_id": str(outcome.job.pk) if outcome.job else None,
        "error": {"type": outcome.error_type, "message": outcome.error} if outcome.error else None,
    }
