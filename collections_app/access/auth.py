"""Who may call the API: bearer keys, their scope and the collections they are limited to.

An Idempotency-Key has the same POST, sent twice, carried out once and answered twice the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import ninja
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import register_converter
from ninja import Schema
from ninja.operation import Operation
from ninja.security import HttpBearer
from ninja.utils import contribute_operation_callback

from collections_app.access.api_keys import authenticate
from collections_app.access.context import SYSTEM, Access, current_access, set_access, system_access
from collections_app.access.limits import LimitReached, Usage, count_request, count_wrong_key
from collections_app.access.permissions import Permission
from collections_app.access.services import access_of_key, access_of_user
from collections_app.collections.services import get_collection
from collections_app.errors import ServiceError, WrongValueError
from collections_app.http.schemas import ErrorAnswer
from collections_app.models import ApiKey, Collection, IdempotencyRecord

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
    limit (`limits`).
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

ERROR_STATUSES = (400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503)


class ErrorResponse(Schema):
    """The model that ninja would make anew for each status of each operation, which took a start half a second."""

    response: ErrorAnswer


def declare_errors(operation: Operation) -> None:
    operation.response_models |= dict.fromkeys(ERROR_STATUSES, ErrorResponse)


class Router(ninja.Router):
    """Of operations that answer errors in the one shape. response: what 200 answers, or by status."""

    def api_operation(self, methods: list[str], path: str, *, response: Any, **values: Any) -> Any:  # type: ignore[override]
        register = super().api_operation(methods, path, response=response, **values)

        def add(view: Callable[..., Any]) -> Any:
            contribute_operation_callback(view, declare_errors)
            return register(view)

        return add


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
        raise WrongValueError(f"{HEADER} must have 1 to {KEY_MAX_CHARS} printable characters", HEADER)


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
            field=HEADER,
        )
    return held
