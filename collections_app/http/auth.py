"""Who may call the API: bearer keys, their scope and the collections they are limited to."""

from __future__ import annotations

from django.http import HttpRequest
from ninja.security import HttpBearer

from collections_app.errors import ServiceError
from collections_app.models import ApiKey, Collection
from collections_app.services.governance.api_keys import authenticate

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def bearer_secret(request: HttpRequest) -> str | None:
    """The secret of the Authorization header, or None when there is no bearer."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() or None if scheme.lower() == "bearer" else None


def require_key(request: HttpRequest, *, write: bool = False) -> ApiKey:
    """The live key of the request, kept as `request.api_key`.

    Raises ServiceError: 401 without a bearer, 403 for an unknown, revoked or expired key, or one that may only read.
    """
    secret = bearer_secret(request)
    if secret is None:
        raise ServiceError(
            "this needs a key: send the header Authorization: Bearer <secret>", type="unauthenticated", status=401
        )
    key = authenticate(secret)
    if key is None:
        raise ServiceError("this key is unknown, revoked or expired; use a live one", type="invalid_key", status=403)
    request.api_key = key  # type: ignore[attr-defined]  # also of a request that is refused: the audit log names it
    if write and key.scope != ApiKey.Scope.WRITE:
        raise ServiceError(
            f"the key {key.label!r} may only read; this needs a key with scope write", type="out_of_scope", status=403
        )
    return key


def request_key(request: HttpRequest) -> ApiKey:
    """The key that `require_key` or `BearerAuth` found for this request."""
    key: ApiKey = request.api_key  # type: ignore[attr-defined]
    return key


def check_collection_scope(key: ApiKey, name: str) -> None:
    """Raise 403 when the key is limited to other collections, whether or not this one exists.

    A live collection that has the name of one that the key was limited to, and is another, is out of its scope too.
    """
    if key.collections and not opens(key, name):
        raise ServiceError(
            f"the key {key.label!r} is limited to {', '.join(key.collections)}; {name!r} is not among them",
            type="out_of_scope",
            status=403,
            field="collection",
        )


def opens(key: ApiKey, name: str) -> bool:
    """Whether a limited key opens the live collection of this name, or may make one where there is none."""
    if name not in key.collections:
        return False
    return name in (key.visible.names or ()) or not Collection.objects.live().filter(name=name).exists()


def check_unlimited(key: ApiKey, what: str = "managing keys") -> None:
    """Raise 403 for a key that is limited to collections. what: that which needs an unlimited one."""
    if key.collections:
        raise ServiceError(
            f"the key {key.label!r} is limited to {', '.join(key.collections)}; {what} needs an unlimited one",
            type="out_of_scope",
            status=403,
        )


class BearerAuth(HttpBearer):
    """django-ninja's door. write=None: methods that change something need a key with write scope."""

    def __init__(self, *, write: bool | None = None) -> None:
        super().__init__()
        self.write = write

    def __call__(self, request: HttpRequest) -> ApiKey:
        changes = request.method not in SAFE_METHODS
        return require_key(request, write=changes if self.write is None else self.write)

    def authenticate(self, request: HttpRequest, token: str) -> ApiKey | None:
        return authenticate(token)
