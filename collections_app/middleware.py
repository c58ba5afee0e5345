"""Errors that Django answers before or behind the API (unknown path, wrong method, bad host) in the API's one shape."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from collections_app.errors import MESSAGES, STATUS_TYPES, error_body, method_not_allowed

API_PATHS = ("/v1/", "/mcp")


class ApiErrorMiddleware:
    """Stands outermost. Leaves everything alone but errors under the API's paths that are not JSON."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if response.status_code < 400 or not request.path.startswith(API_PATHS):
            return response
        if "json" in response.headers.get("Content-Type", ""):
            return response
        return _translate(request, response)


def _translate(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    status = response.status_code
    if status == 405:
        return method_not_allowed(request, response.headers.get("Allow", "another method"))
    kind = "internal_error" if status >= 500 else STATUS_TYPES.get(status, "bad_request")
    return JsonResponse(error_body(kind, MESSAGES.get(kind, MESSAGES["bad_request"])), status=status)
