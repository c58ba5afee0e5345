"""Answer every request: the API by the few middlewares of `API_MIDDLEWARE`, all else by those of `MIDDLEWARE`.

For both: the form of names in an address, the shape of the API's errors, who may store an answer, a node that is away.
Pages are compressed.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.handlers.base import BaseHandler
from django.core.handlers.exception import convert_exception_to_response
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.module_loading import import_string

from collections_app.errors import DATABASE_BACK_S, MESSAGES, REMOTE_NODE, STATUS_TYPES, error_body, method_not_allowed

log = logging.getLogger(__name__)

API_PATHS = ("/v1/", "/mcp")
PART_DEPENDS_ON = ("HX-Request", "HX-Target")


class ApiHandler(BaseHandler):
    """Run a view behind the middlewares of `API_MIDDLEWARE`, as Django's own handler does behind `MIDDLEWARE`."""

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        handler = convert_exception_to_response(self._get_response)  # type: ignore[attr-defined]  # stubs leave it out
        for name in reversed(settings.API_MIDDLEWARE):
            middleware = import_string(name)(handler)
            if hasattr(middleware, "process_view"):
                self._view_middleware.insert(0, middleware.process_view)
            if hasattr(middleware, "process_exception"):
                self._exception_middleware.append(middleware.process_exception)
            handler = convert_exception_to_response(middleware)
        self._middleware_chain = handler

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Programs read English, and log in with a key: there is no session."""
        translation.activate("en")
        request.LANGUAGE_CODE = "en"
        request.user = AnonymousUser()
        response = cast(HttpResponseBase, self._middleware_chain(request))
        response.headers.setdefault("Content-Language", "en")
        return response


class RequestMiddleware:
    """Stands outermost, and sends requests of the API past the middlewares that only pages need.

    Names in an address find what is stored under them in NFC, however a client composes their accents. Errors of the
    API that Django answers (unknown path, wrong method, bad host) get the API's shape. No browser and no proxy stores
    an answer, unless its view says how; Vary keeps a page apart from its parts, which have the same address.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.answer_page = get_response
        self.compress = GZipMiddleware(get_response).process_response  # pads by chance, against guesses at secrets
        self.answer_api = ApiHandler()
        self.answer_api.load_middleware()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request.path_info = unicodedata.normalize("NFC", request.path_info)
        is_api = request.path.startswith(API_PATHS)
        response = self.answer_api(request) if is_api else self.answer_page(request)
        content_type = response.headers.get("Content-Type", "")
        if is_api and response.status_code >= 400 and "json" not in content_type:
            response = _translate(request, response)
        response.headers.setdefault("Cache-Control", "private, no-store")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            patch_vary_headers(response, PART_DEPENDS_ON)
            response = self.compress(request, response)
        return response

    def process_exception(self, request: HttpRequest, exc: Exception) -> HttpResponse | None:
        """A page that reads chunks of a cluster's node that is gone says so: 503 with Retry-After, in the frame."""
        node = REMOTE_NODE.search(str(exc)) if isinstance(exc, OperationalError) else None
        if node is None:
            return None
        log.error("%s %s failed: the node %s does not answer", request.method, request.path, node["address"])
        response = render(request, "503.html", {"address": node["address"]}, status=503)
        response.headers["Retry-After"] = f"{DATABASE_BACK_S:.0f}"
        return response


def _translate(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    status = response.status_code
    if status == 405:
        return method_not_allowed(request, response.headers.get("Allow", "another method"))
    kind = "internal_error" if status >= 500 else STATUS_TYPES.get(status, "bad_request")
    return JsonResponse(error_body(kind, MESSAGES.get(kind, MESSAGES["bad_request"])), status=status)
