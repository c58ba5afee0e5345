"""What the endpoints share: the collection that a key may use, and answers that are given once.

Idempotency-Key: the same POST sent twice is carried out once and answered twice the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import register_converter
from ninja import Schema

from collections_app.api.schemas import ErrorAnswer
from collections_app.errors import ServiceError
from collections_app.http.auth import check_collection_scope, check_permission, request_key
from collections_app.models import Collection, IdempotencyRecord
from collections_app.services.collections.collections import get_collection


class DocIdConverter:
    """Any text, line feeds too, so that `check_doc_id` says what is wrong with it."""

    regex = "(?s:.+)"

    def to_python(self, value: str) -> str:
        return value

    to_url = to_python


register_converter(DocIdConverter, "doc")

HEADER = "Idempotency-Key"
KEY_MAX_CHARS = 255

Answer = tuple[int, Any]  # status and body as JSON values

ERRORS: dict[Any, Any] = {frozenset({400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503}): ErrorAnswer}


def find_collection(request: HttpRequest, name: str) -> Collection:
    """The live collection, if the key may use it. 403 comes before 404: a limited key learns nothing of others."""
    check_collection_scope(request_key(request), name)
    collection = get_collection(name)
    check_permission(request, collection.pk)
    return collection


def answer(
    request: HttpRequest,
    produce: Callable[[], Any],
    shape: type[Schema],
    *,
    status: int = 200,
    owner: str | None = None,
    fingerprint: str = "",
    render: Callable[[Any], Any] | None = None,
) -> HttpResponse:
    """The JSON answer of a POST that creates, under its Idempotency-Key: what `produce` returns, in its shape.

    render makes the body of what was recorded, where that is not the answer itself.
    """

    def record() -> tuple[int, Any]:
        return status, shape.model_validate(produce()).model_dump(mode="json")

    status, body, replayed = answer_once(
        request, owner or f"key:{request_key(request).pk}", record, fingerprint=fingerprint
    )
    response = JsonResponse(render(body) if render else body, status=status)
    if replayed:
        response["Idempotency-Replayed"] = "true"
    return response


def answer_once(
    request: HttpRequest, owner: str, produce: Callable[[], Answer], *, fingerprint: str = ""
) -> tuple[int, Any, bool]:
    """(status, body, replayed). Without the header `produce` simply runs.

    With it, `produce` and the record of its answer are committed together; what it raises is not kept, so that the
    client may try again. fingerprint stands for the body where that was read as a form.
    Raises ServiceError: 422 for the key of another request, 409 while the first one is still running.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return *produce(), False
    _check_key(key)
    requested = hash_request(request, fingerprint)
    record = _begin(owner, key, requested)
    if record.status is not None:
        return record.status, json.loads(record.response), True
    try:
        with transaction.atomic():
            held = _hold(record)
            if held.status is not None:
                return held.status, json.loads(held.response), True
            status, body = produce()
            IdempotencyRecord.objects.filter(pk=record.pk).update(status=status, response=json.dumps(body))
    except BaseException:
        _forget(record)
        raise
    return status, body, False


def hash_request(request: HttpRequest, fingerprint: str = "") -> str:
    """SHA-256 over method, path and body."""
    digest = hashlib.sha256(f"{request.method} {request.path}\n".encode())
    digest.update(fingerprint.encode() if fingerprint else request.body)
    return digest.hexdigest()


def _check_key(key: str) -> None:
    if not 1 <= len(key) <= KEY_MAX_CHARS or not key.isprintable():
        raise ServiceError(
            f"{HEADER} must have 1 to {KEY_MAX_CHARS} printable characters",
            type="invalid_input",
            status=422,
            field=HEADER,
        )


def _begin(owner: str, key: str, requested: str) -> IdempotencyRecord:
    """The record of an equal request, finished or not, or a new one."""
    record, _ = IdempotencyRecord.objects.get_or_create(owner=owner, key=key, defaults={"request_hash": requested})
    if record.request_hash != requested:
        raise ServiceError(
            f"this {HEADER} was used for another request; use a new one for each request",
            type="idempotency_key_reused",
            status=422,
            field=HEADER,
        )
    return record


def _forget(record: IdempotencyRecord) -> None:
    """Take the record away, unless it is finished or somebody else carries the request out."""
    with transaction.atomic():
        unfinished = IdempotencyRecord.objects.select_for_update(skip_locked=True).filter(status__isnull=True)
        for held in unfinished.filter(pk=record.pk):
            held.delete()


def _hold(record: IdempotencyRecord) -> IdempotencyRecord:
    """The record as it is now, held until the transaction ends: who holds it carries the request out.

    The lock goes with the process or connection that held it, so a request that was cut off can be repeated at once.
    """
    held = IdempotencyRecord.objects.select_for_update(skip_locked=True).filter(pk=record.pk).first()
    if held is None:
        raise ServiceError(
            "the first request with this key is still running; ask again in a moment",
            type="idempotency_key_in_use",
            status=409,
            field=HEADER,
        )
    return held
