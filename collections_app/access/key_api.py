"""API keys over HTTP. Making one needs a live key that administers, but for the first, made on the server's machine.

A key sees and rotates itself; what is of others needs one that administers all collections.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Field, Schema
from pydantic import Strict, StrictInt

from collections_app.access import api_keys as service
from collections_app.access import auth
from collections_app.access.context import SYSTEM, current_access, set_access, system_access
from collections_app.access.permissions import Permission
from collections_app.access.services import limit_of
from collections_app.domain.senders import foreign_sender, is_loopback
from collections_app.errors import ServiceError, UnknownError
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, Label, Limit, Name, PageOf, Request
from collections_app.http.validation import Moment
from collections_app.models import ApiKey

router = auth.Router(auth=auth.BearerAuth(Permission.ADMINISTER, Permission.ADMINISTER), tags=["api-keys"])

NO_KEY_YET = "first"
OWN_SITE = ("same-origin", "none")
FIRST_KEY_RULE = "the first key is made without a key from the machine alone that the server runs on"
FIRST_KEY_ADVICE = (
    "An administrator makes it under Settings, API keys, or in a shell there: "
    "python manage.py ragd access create-key --label NAME; send it as Authorization: Bearer <secret>"
)


class KeyRequest(Request):
    """A key may at most what the one may that makes it; what is not stated of expiry, user and limits, it has of that.

    scopes: read (documents, evaluations), ask (search, answers), write (documents, settings), evaluate, administer.
    """

    label: Label
    scope: Literal["read", "write"] = Field("write", description="without scopes: read is read and ask, write is all")
    scopes: list[Annotated[Permission, Strict(False)]] | None = Field(
        None, description="what the key may; null: as scope says"
    )
    collections: list[Name] = Field([], description="names that the key is limited to; none: all")
    acts_as: str | None = Field(None, description="name of the user whose roles and access lists hold for the key")
    groups: list[str] = Field([], description="names of the groups that it belongs to, where it acts as no user")
    expires_at: Moment | None = Field(
        None, description="within ten years, or RAGD_KEY_MAX_DAYS; null: after those days, or never"
    )
    requests_per_minute: StrictInt | None = Field(None, description="0: any number; null: the server's default")
    tokens_per_day: StrictInt | None = Field(None, description="of models; 0: any number; null: the server's default")


class RotationRequest(Request):
    overlap_hours: StrictInt = Field(
        service.OVERLAP_HOURS, description="how long the earlier secret is taken too, 0 to 720"
    )


class KeySecret(Schema):
    secret_once: str = Field(description="shown here and never again")


class KeyItem(Schema):
    id: int
    label: str
    prefix: str
    scope: str
    scopes: list[str]
    collections: list[str]
    acts_as: str | None
    groups: list[str]
    status: Literal["live", "expired", "revoked"]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    last_used_from: str = Field(description="the address; '' where it was not used")
    rotated_at: datetime | None
    previous_until: datetime | None = Field(description="until when the secret before the last rotation is taken")
    requests_per_minute: int = Field(description="that hold; 0: any number")
    tokens_per_day: int = Field(description="that hold; 0: any number")
    revoked_at: datetime | None

    resolve_acts_as: ClassVar = staticmethod(service.name_user)
    resolve_groups: ClassVar = staticmethod(service.name_groups)

    @staticmethod
    def resolve_requests_per_minute(key: ApiKey) -> int:
        return limit_of(key).requests_per_minute

    @staticmethod
    def resolve_tokens_per_day(key: ApiKey) -> int:
        return limit_of(key).tokens_per_day


class KeyNonce(Schema):
    """What is recorded for a replay: only this server can make the secret again from it."""

    nonce: str


class FirstKeyOpen(auth.BearerAuth):
    """Lets a request without a bearer through while no key was ever made, if only a program here can have sent it."""

    def __call__(self, request: HttpRequest) -> Any:
        with system_access():
            is_keyless = auth.bearer_secret(request) is None and auth.LOCAL_KEY not in request.META
            is_open = is_keyless and not service.any_key_exists()
        if not is_open:
            return auth.require_key(request, Permission.ADMINISTER)
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


@router.post(
    "/api-keys", auth=FirstKeyOpen(changes=Permission.ADMINISTER), operation_id="api-keys-create", response=KeySecret
)
def create_key(request: HttpRequest, payload: KeyRequest) -> HttpResponse:
    """Make a key. Its secret is in this answer and nowhere else; only a digest is kept."""
    is_first = request.auth == NO_KEY_YET  # type: ignore[attr-defined]
    if not is_first:
        check_manager(request)

    def produce() -> KeyNonce:
        nonce = secrets.token_hex(16)
        _make(request, payload, derive_secret(nonce), is_first=is_first)
        return KeyNonce(nonce=nonce)

    return auth.answer(request, produce, KeyNonce, owner=NO_KEY_YET if is_first else None, render=show_secret)


@router.get("/api-keys", operation_id="api-keys-list", response=PageOf[KeyItem])
def list_keys(request: HttpRequest, limit: Limit = DEFAULT_LIMIT, cursor: Cursor | None = NEXT_CURSOR) -> Any:
    """All keys, newest first, without their secrets."""
    check_manager(request)
    return paginate(ApiKey.objects.all(), ("-created_at", "-id"), limit=limit, cursor=cursor)


@router.get("/api-keys/self", auth=auth.BearerAuth(reads=None), operation_id="api-keys-self", response=KeyItem)
def get_own_key(request: HttpRequest) -> Any:
    """The key that this request is sent with."""
    return find_key(auth.request_key(request).pk or 0)


@router.post(
    "/api-keys/{key_id}/rotate", auth=auth.BearerAuth(changes=None), operation_id="api-keys-rotate", response=KeySecret
)
def rotate_key(request: HttpRequest, key_id: int, payload: RotationRequest) -> HttpResponse:
    """Another secret for a key, at once; the earlier one ends after the overlap. Expiry and all else stay."""
    if key_id != auth.request_key(request).pk:
        check_manager(request)
    key = find_key(key_id)

    def produce() -> KeyNonce:
        nonce = secrets.token_hex(16)
        service.rotate_key(
            key, overlap_hours=payload.overlap_hours, actor=auth.request_key(request), secret=derive_secret(nonce)
        )
        return KeyNonce(nonce=nonce)

    return auth.answer(request, produce, KeyNonce, render=show_secret)


@router.delete("/api-keys/{key_id}", operation_id="api-keys-revoke", response=KeyItem)
def revoke_key(request: HttpRequest, key_id: int) -> Any:
    """End a key at once and for good."""
    check_manager(request)
    return service.revoke_key(find_key(key_id), actor=auth.request_key(request))


def check_manager(request: HttpRequest) -> None:
    """Raise 403 for a key that does not administer all collections."""
    auth.check_unlimited(auth.request_key(request))
    if not current_access().may(Permission.ADMINISTER):
        raise auth.out_of_scope(auth.request_key(request), Permission.ADMINISTER)


def find_key(key_id: int) -> ApiKey:
    key = ApiKey.objects.filter(pk=key_id).first() if 0 < key_id < 2**63 else None
    if key is None:
        raise UnknownError("key", f"there is no key {key_id}; GET /v1/api-keys lists them", field="key_id")
    return key


def show_secret(stored: Any) -> dict[str, str]:
    return {"secret_once": repeat_secret(stored["nonce"])}


def repeat_secret(nonce: str) -> str:
    """The secret that was made of the nonce, also under an earlier secret key. Raises ServiceError 409 without it."""
    for server_key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        secret = derive_secret(nonce, server_key)
        with system_access():  # whoever repeats the request may have the answer again
            if ApiKey.objects.filter(key_hash=service.digest(secret)).exists():
                return secret
    raise ServiceError(
        "the key was made, but its secret cannot be told again: the server's secret key was changed. Make another",
        type="secret_not_kept",
    )


def derive_secret(nonce: str, server_key: str = "") -> str:
    """`ragd_` and 43 url-safe characters: 256 bits that follow from the nonce and the server's secret key."""
    server_key = server_key or settings.SECRET_KEY
    digest = hmac.new(server_key.encode(), f"ragd api key {nonce}".encode(), hashlib.sha256).digest()
    return service.PREFIX + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _make(request: HttpRequest, payload: KeyRequest, secret: str, *, is_first: bool) -> None:
    new = service.NewKey(**payload.model_dump())
    if not is_first:
        service.create_key(new, actor=auth.request_key(request), secret=secret)
    elif service.create_first_key(new, secret) is None:
        auth.require_key(request, Permission.ADMINISTER)  # somebody was faster: 401 from here on
