"""JSON as every channel sends it."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from ninja import Schema

from ragd.types import canonical_json


def body_of(answer: Schema) -> dict[str, Any]:
    """The answer as JSON values; optional fields that it does not have are left out."""
    return answer.model_dump(exclude_unset=True)


def encode(body: Any) -> str:
    """Sorted keys, no spaces."""
    return canonical_json(body_of(body) if isinstance(body, Schema) else body)


def json_response(body: Any) -> HttpResponse:
    return HttpResponse(encode(body), content_type="application/json")
