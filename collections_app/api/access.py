"""What the endpoints share: the collection that a key may use, and answers that are given once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Schema

from collections_app.api.schemas import ErrorAnswer
from collections_app.http.auth import check_collection_scope, request_key
from collections_app.http.idempotency import answer_once
from collections_app.models import Collection
from collections_app.services.collections.collections import get_collection

ERRORS: dict[Any, Any] = {frozenset({400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503}): ErrorAnswer}


def find_collection(request: HttpRequest, name: str) -> Collection:
    """The live collection, if the key may use it. 403 comes before 404: a limited key learns nothing of others."""
    check_collection_scope(request_key(request), name)
    return get_collection(name)


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
