"""Who may call the API: bearer keys, their scope and the collections they are limited to."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from ninja.security import HttpBearer

from collections_app.access_context import SYSTEM, Access, current_access, set_access, system_access
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import ApiKey, Collection
from collections_app.services.governance.access import access_of_key, access_of_user
from collections_app.services.governance.api_keys import authenticate
from collections_app.services.governance.limits import LimitReached, Usage, count_request, count_wrong_key

LOCAL_KEY = "ragd.local_key"  # where a request of this very process has its key; no header of a client gets there
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def bearer_secret(request: HttpRequest) -> str | None:
    """The secret of the Authorization header, or None when there is no bearer."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() or None if scheme.lower() == "bearer" else None


def require_key(request: HttpRequest, permission: Permission | None = Permission.READ) -> ApiKey:
    """The live key of the request, kept as `request.api_key`; what follows runs with its access.

    permission: what the request needs (`check_permission`). Raises ServiceError: 401 without a bearer, 403 for an
    unknown, revoked or expired key, one of a deactivated user, or one that has the permission nowhere; 429 beyond a
    limit (`services.governance.limits`).
    """
    key, access = _local_caller(request) or _bearer(request)
    set_access(access)
    request.api_key = key  # type: ignore[attr-defined]
    request.permission = permission  # type: ignore[attr-defined]
    refuse_limited(request, lambda: count_request(access))
    if permission is not None and not access.may_anywhere(permission):
        raise out_of_scope(key, permission)
    return key


def _local_caller(request: HttpRequest) -> tuple[ApiKey, Access] | None:
    """A key that is stored nowhere, and the access of the person whom it stands for, or of the server itself."""
    key: ApiKey | None = request.META.get(LOCAL_KEY)
    if key is None:
        return None
    return key, SYSTEM if key.user is None else access_of_user(key.user)


def _bearer(request: HttpRequest) -> tuple[ApiKey, Access]:
    secret = bearer_secret(request)
    if secret is None:
        raise ServiceError(
            "this needs a key: send the header Authorization: Bearer <secret>", type="unauthenticated", status=401
        )
    address = request.META.get("REMOTE_ADDR", "")
    with system_access():
        key = authenticate(secret, address)
    if key is None:
        refuse_limited(request, lambda: count_wrong_key(address))
        raise ServiceError("this key is unknown, revoked or expired; use a live one", type="invalid_key", status=403)
    access = access_of_key(key)
    if access is None:
        raise ServiceError(
            f"the user that the key {key.label!r} acts as is deactivated or gone; use another key",
            type="invalid_key",
            status=403,
        )
    return key, access


def refuse_limited(request: HttpRequest, count: Callable[[], Usage | None]) -> None:
    """Count the request; what is left of the limit is kept as `request.usage`, for the headers of the answer."""
    try:
        request.usage = count()  # type: ignore[attr-defined]
    except LimitReached as reached:
        request.usage = reached.usage  # type: ignore[attr-defined]
        raise


def check_permission(request: HttpRequest, collection_id: int | None = None) -> None:
    """Raise 403 unless the request's key has what the request needs in that collection, or in all."""
    permission: Permission | None = request.permission  # type: ignore[attr-defined]
    if permission is not None and not current_access().may(permission, collection_id):
        raise out_of_scope(request_key(request), permission)


def out_of_scope(key: ApiKey, permission: Permission) -> ServiceError:
    return ServiceError(
        f"the key {key.label!r} has no permission {permission.value!r} here; this needs a key with that scope, and a"
        " role that gives it where the key acts as a user or for groups",
        type="out_of_scope",
        status=403,
    )


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
    with system_access():  # also where there is one that the key may not see
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
    """The log-in of django-ninja's operations. reads, changes: what a method needs that reads, or changes something."""

    def __init__(
        self, reads: Permission | None = Permission.READ, changes: Permission | None = Permission.WRITE
    ) -> None:
        super().__init__()
        self.reads, self.changes = reads, changes

    def __call__(self, request: HttpRequest) -> ApiKey:
        return require_key(request, self.reads if request.method in SAFE_METHODS else self.changes)

    def authenticate(self, request: HttpRequest, token: str) -> ApiKey | None:
        return authenticate(token)
