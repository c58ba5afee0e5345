"""What holds for the answers of all addresses: the shape of the API's errors, who may store an answer, the language."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.shortcuts import render
from django.utils import translation
from django.utils.cache import patch_vary_headers

from collections_app.errors import (
    DATABASE_BACK_S,
    MESSAGES,
    REMOTE_NODE,
    STATUS_TYPES,
    error_body,
    method_not_allowed,
)

log = logging.getLogger(__name__)

API_PATHS = ("/v1/", "/mcp")
PART_DEPENDS_ON = ("HX-Request", "HX-Target")


class ApiErrorMiddleware:
    """Errors that Django answers before or behind the API (unknown path, wrong method, bad host), in the API's shape.

    Stands outermost. Leaves everything alone but errors under the API's paths that are not JSON."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if response.status_code < 400 or not request.path.startswith(API_PATHS):
            return response
        if "json" in response.headers.get("Content-Type", ""):
            return response
        return _translate(request, response)


class NormalFormMiddleware:
    """Names in an address find what is stored under them in NFC, however a client composes their accents."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request.path_info = unicodedata.normalize("NFC", request.path_info)
        return self.get_response(request)


class NodeAwayMiddleware:
    """Pages that read chunks of a node of a cluster that is gone say so: 503 with Retry-After, in the frame."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exc: Exception) -> HttpResponse | None:
        node = REMOTE_NODE.search(str(exc)) if isinstance(exc, OperationalError) else None
        if node is None or request.path.startswith(API_PATHS):
            return None
        log.error("%s %s failed: the node %s does not answer", request.method, request.path, node["address"])
        response = render(request, "503.html", {"address": node["address"]}, status=503)
        response.headers["Retry-After"] = f"{DATABASE_BACK_S:.0f}"
        return response


class LanguageMiddleware(LocaleMiddleware):
    """Pages in the language of their reader; the API speaks English to everybody, as programs read it."""

    def process_request(self, request: HttpRequest) -> None:
        if request.path.startswith(API_PATHS):
            translation.activate("en")
            request.LANGUAGE_CODE = "en"
        else:
            super().process_request(request)


class CacheMiddleware:
    """No browser and no proxy stores an answer, unless its view says how. Stands behind the static files.

    A page and its parts have one address: Vary keeps them apart also where they are stored all the same.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Cache-Control", "private, no-store")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            patch_vary_headers(response, PART_DEPENDS_ON)
        return response


def _translate(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    status = response.status_code
    if status == 405:
        return method_not_allowed(request, response.headers.get("Allow", "another method"))
    kind = "internal_error" if status >= 500 else STATUS_TYPES.get(status, "bad_request")
    return JsonResponse(error_body(kind, MESSAGES.get(kind, MESSAGES["bad_request"])), status=status)
