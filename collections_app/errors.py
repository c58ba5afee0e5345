"""What a caller is told: the one table from exceptions to HTTP, and the one JSON shape."""

from __future__ import annotations

import logging
import re
from typing import Any

import psycopg
from django.core.exceptions import (
    ObjectDoesNotExist,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from ninja.errors import HttpError, Throttled, ValidationError
from psycopg.errors import InsufficientPrivilege

from collections_app.access.context import Forbidden
from collections_app.http.validation import describe_problems
from ragd import errors
from ragd.readers.types import ParseError

log = logging.getLogger(__name__)

INTERNAL = "internal server error; nothing was changed. See the server's log"
BAD_JSON = "Cannot parse request body"


class ServiceError(Exception):
    """A refusal by a service. type is a stable word for programs, status the HTTP status, field the wrong input.

    Without a status it is 409: what is stored does not allow it now. retry_after_s: seconds after which it may be asked
    again, sent as Retry-After.
    """

    def __init__(
        self,
        message: str,
        *,
        type: str = "conflict",
        status: int = 409,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.type = type
        self.status = status
        self.field = field
        self.retry_after_s = retry_after_s


class UnknownError(ServiceError):
    """There is no such thing: 404, of the type "unknown_" and what it is."""

    def __init__(self, what: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message, type=f"unknown_{what}", status=404, field=field)


class WrongValueError(ServiceError):
    """A value of a request that is not acceptable: 422."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message, type="invalid_input", status=422, field=field)


# The first match counts, so a child stands before its parent. None: the exception says it itself.
# COPY raises the driver's own errors
AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
TABLE: tuple[tuple[type[BaseException], int, str], ...] = (
    (Forbidden, 403, "forbidden"),
    (errors.EmptyContent, 400, "empty_content"),
    (errors.DimensionMismatch, 400, "dimension_mismatch"),
    (errors.LexicalDisabled, 400, "lexical_disabled"),
    (errors.InvalidInput, 422, "invalid_input"),
    (errors.UnknownCollection, 404, "unknown_collection"),
    (errors.IndexVersionChanged, 409, "index_version_changed"),
    (errors.UnsupportedDatabase, 503, "unsupported_database"),
    (errors.EmbedderError, 502, "embedder_failed"),
    (errors.RerankerError, 502, "reranker_failed"),
    (errors.RagdError, 500, "internal_error"),
    (ParseError, 422, "unreadable_file"),
    (Http404, 404, "not_found"),
    (ObjectDoesNotExist, 404, "gone"),  # deleted, or closed to this reader, while it was read
    (PermissionDenied, 403, "forbidden"),
    (RequestDataTooBig, 413, "too_large"),
    (TooManyFilesSent, 413, "too_many_files"),
    (TooManyFieldsSent, 413, "too_many_fields"),
    (UnreadablePostError, 400, "request_interrupted"),
    (MultiPartParserError, 400, "bad_request"),
    (SuspiciousOperation, 400, "bad_request"),
    *((kind, 503, "database_unavailable") for kind in AWAY),
    (DatabaseError, 500, "internal_error"),
)

MESSAGES = {
    "not_found": "not found; check the path, the names in it and the method",
    "gone": "what this reads was deleted or restricted while it was read; read the list that it stood in again",
    "forbidden": "this needs a permission that you do not have",
    "too_large": "the request is larger than the server takes; send a smaller document, or raise RAGD_MAX_DOCUMENT_MB",
    "too_many_files": "too many files in one request; send them in several requests",
    "too_many_fields": "too many form fields in one request; send fewer",
    "request_interrupted": "the request ended before it was complete; send it again",
    "bad_request": "the request is not well-formed; check it and send it again",
    "database_unavailable": "the database does not answer or broke off; nothing was changed. Try again in a moment",
    "internal_error": INTERNAL,
}

# of Citus, where a node is gone: "connection to the remote node ragd@node2:5432 failed with ..."
REMOTE_NODE = re.compile(r"connection to the remote node (?:\S+@)?(?P<address>\S+:\d+)")
NODE_AWAY = (
    "the cluster node {address}, which holds chunks of this collection, does not answer; nothing was changed. Try again"
    " in a moment; an administrator sees the nodes on the page Cluster, or with `ragd status --cluster`"
)
DATABASE_BACK_S = 5.0  # about what a database or a node takes to start again

STATUS_TYPES = {
    400: "bad_request", 401: "unauthenticated", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    409: "conflict", 413: "too_large", 422: "invalid_input", 429: "too_many_requests",
}  # fmt: skip


def note_run(exc: BaseException, run_id: object) -> None:
    """Let `describe` name the stored run that failed with this exception."""
    vars(exc)["run_id"] = str(run_id)


def describe(exc: BaseException) -> tuple[int, dict[str, Any]]:
    """(status, {"error": {"type", "message", "field"?}, "detail": message, "run_id"?}). run_id: see `note_run`.

    Never shows what is inside the server.
    """
    status, body = _describe(exc)
    run_id = vars(exc).get("run_id")
    return status, body | ({"run_id": run_id} if run_id else {})


def _describe(exc: BaseException) -> tuple[int, dict[str, Any]]:
    if isinstance(exc, ServiceError):
        return exc.status, error_body(exc.type, exc.message, exc.field)
    if isinstance(exc, ValidationError):
        return 422, error_body("invalid_input", *describe_problems(exc.errors))
    if isinstance(exc, HttpError):
        return _describe_http_error(exc)
    if isinstance(exc.__cause__, InsufficientPrivilege):  # row-level security refused what no check before it did
        return 403, error_body("forbidden", MESSAGES["forbidden"])
    if isinstance(exc, AWAY) and (node := REMOTE_NODE.search(str(exc))):
        return 503, error_body("node_unavailable", NODE_AWAY.format(address=node["address"]))
    for kind, status, name in TABLE:
        if isinstance(exc, kind):
            return status, _describe_known(exc, status, name)
    return 500, error_body("internal_error", INTERNAL)


def error_body(type: str, message: str, field: str | None = None) -> dict[str, Any]:
    error = {"type": type, "message": message}
    if field:
        error["field"] = field
    return {"error": error, "detail": message}


def error_response(request: HttpRequest, exc: BaseException) -> JsonResponse:
    """The answer for an exception; logs what is the server's own fault."""
    status, body = describe(exc)
    if status >= 500:
        log.error("%s %s failed: %s", request.method, request.path, body["error"]["type"], exc_info=exc)
    response = JsonResponse(body, status=status)
    if status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="ragd"'
    wait_s = exc.wait if isinstance(exc, Throttled) else getattr(exc, "retry_after_s", None)
    if wait_s is None and status == 503 and isinstance(exc, AWAY):
        wait_s = DATABASE_BACK_S
    if wait_s is not None:
        response["Retry-After"] = str(int(wait_s) + 1)
    return response


def unknown_route(request: HttpRequest, **_: Any) -> JsonResponse:
    """The view behind every path of the API that names nothing."""
    message = f"there is no {request.method} {request.path}; /v1/openapi.json lists what there is"
    return JsonResponse(error_body("not_found", message), status=404)


def method_not_allowed(request: HttpRequest, allowed: str) -> JsonResponse:
    message = f"{request.path} does not take {request.method}; it takes {allowed}"
    return JsonResponse(error_body("method_not_allowed", message), status=405, headers={"Allow": allowed})


def _describe_known(exc: BaseException, status: int, name: str) -> dict[str, Any]:
    if isinstance(exc, errors.RagdError) and status != 500:
        if isinstance(exc, errors.EmbedderError) and not isinstance(exc, errors.QueryVectorError):
            name = f"{name}_{exc.kind}"
        return error_body(name, exc.message, exc.field)
    if isinstance(exc, ParseError):
        return error_body(name, exc.message, "file")
    return error_body(name, MESSAGES.get(name, INTERNAL))


def _describe_http_error(exc: HttpError) -> tuple[int, dict[str, Any]]:
    if exc.status_code == 400 and str(exc).startswith(BAD_JSON):
        return 422, error_body("invalid_json", "the body must be one JSON object in UTF-8; this one cannot be read")
    return exc.status_code, error_body(STATUS_TYPES.get(exc.status_code, "http_error"), str(exc))
