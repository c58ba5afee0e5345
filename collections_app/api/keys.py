"""API keys over HTTP. Making one needs a live key that may write, but for the first, made on the server's machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime
from typing import Any, Literal

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Field, Router, Schema
from pydantic import AwareDatetime

from collections_app.access_context import SYSTEM, set_access, system_access
from collections_app.api.access import ERRORS, answer
from collections_app.api.schemas import Request
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, bearer_secret, check_unlimited, request_key, require_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.http.senders import foreign_sender, is_loopback
from collections_app.models import ApiKey
from collections_app.services.governance import api_keys as service

router = Router(auth=BearerAuth(Permission.ADMINISTER, Permission.ADMINISTER), tags=["api-keys"])

NO_KEY_YET = "first"
OWN_SITE = ("same-origin", "none")
FIRST_KEY_RULE = "the first key is made without a key from the machine alone that the server runs on"
FIRST_KEY_ADVICE = (
    "An administrator makes it under Admin, API keys, or in a shell there: "
    "python manage.py ragd create-key --label NAME; send it as Authorization: Bearer <secret>"
)


class KeyRequest(Request):
    label: str
    scope: Literal["read", "write"] = "write"
    collections: list[str] = Field([], description="names that the key is limited to; none: all")
    expires_at: AwareDatetime | None = Field(None, description="within ten years; null: never")


class KeySecret(Schema):
    secret_once: str = Field(description="shown here and never again")


class KeyItem(Schema):
    id: int
    label: str
    prefix: str
    scope: str
    collections: list[str]
    status: Literal["live", "expired", "revoked"]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeyPage(Schema):
    items: list[KeyItem]
    next_cursor: str | None


class KeyNonce(Schema):
    """What is recorded for a replay: only this server can make the secret again from it."""

    nonce: str


class FirstKeyOpen(BearerAuth):
    """Lets a request without a bearer through while no key was ever made, if only a program here can have sent it."""

    def __call__(self, request: HttpRequest) -> Any:
        with system_access():
            is_open = bearer_secret(request) is None and not service.any_key_exists()
        if not is_open:
            return require_key(request, Permission.ADMINISTER)
        obstacle = _first_key_obstacle(request)
        if obstacle:
            raise ServiceError(
                f"{FIRST_KEY_RULE}, and {obstacle}. {FIRST_KEY_ADVICE}", type="unauthenticated", status=401
            )
        set_access(SYSTEM)  # who may make the first key may make any
        return NO_KEY_YET


def _first_key_obstacle(request: HttpRequest) -> str:
    """Why the sender may be somebody else than a program on this machine; empty when nothing tells of that."""
    if not is_loopback(settings.RAGD_HOST):
        return f"the server listens on {settings.RAGD_HOST} (RAGD_HOST), which others may reach"
    if sender := foreign_sender(request):
        return sender
    if request.content_type != "application/json":
        return f"the body must be application/json, not {request.content_type or 'untyped'}"
    if _comes_from_another_site(request):
        return "this request came from a page of another site"
    return ""


def _comes_from_another_site(request: HttpRequest) -> bool:
    own = f"{request.scheme}://{request.get_host()}"
    return request.headers.get("Origin", own) != own or request.headers.get("Sec-Fetch-Site", "none") not in OWN_SITE


@router.post("/api-keys", auth=FirstKeyOpen(), operation_id="api-keys-create", response={200: KeySecret, **ERRORS})
def create_key(request: HttpRequest, payload: KeyRequest) -> HttpResponse:
    """Make a key. Its secret is in this answer and nowhere else; only a digest is kept."""
    is_first = request.auth == NO_KEY_YET  # type: ignore[attr-defined]
    if not is_first:
        check_unlimited(request_key(request))

    def produce() -> KeyNonce:
        nonce = secrets.token_hex(16)
        _make(request, payload, derive_secret(nonce), is_first=is_first)
        return KeyNonce(nonce=nonce)

    return answer(
        request,
        produce,
        KeyNonce,
        owner=NO_KEY_YET if is_first else None,
        render=lambda stored: {"secret_once": derive_secret(stored["nonce"])},
    )


@router.get("/api-keys", operation_id="api-keys-list", response={200: KeyPage, **ERRORS})
def list_keys(request: HttpRequest, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Any:
    """All keys, newest first, without their secrets."""
    check_unlimited(request_key(request))
    return paginate(ApiKey.objects.all(), ("-created_at", "-id"), limit=limit, cursor=cursor)


@router.delete("/api-keys/{key_id}", operation_id="api-keys-revoke", response={200: KeyItem, **ERRORS})
def revoke_key(request: HttpRequest, key_id: int) -> Any:
    """End a key at once and for good."""
    check_unlimited(request_key(request))
    key = ApiKey.objects.filter(pk=key_id).first() if 0 < key_id < 2**63 else None
    if key is None:
        raise ServiceError(
            f"there is no key {key_id}; GET /v1/api-keys lists them", type="unknown_key", status=404, field="key_id"
        )
    return service.revoke_key(key, actor=request_key(request))


def derive_secret(nonce: str) -> str:
    """`ragd_` and 43 url-safe characters: 256 bits that follow from the nonce and the server's secret key."""
    digest = hmac.new(settings.SECRET_KEY.encode(), f"ragd api key {nonce}".encode(), hashlib.sha256).digest()
    return service.PREFIX + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _make(request: HttpRequest, payload: KeyRequest, secret: str, *, is_first: bool) -> None:
    values: dict[str, Any] = payload.model_dump(exclude={"label"}) | {"secret": secret}
    if not is_first:
        service.create_key(payload.label, actor=request_key(request), **values)
    elif service.create_first_key(payload.label, **values) is None:
        require_key(request, Permission.ADMINISTER)  # somebody was faster: 401 from here on
