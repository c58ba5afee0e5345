"""The access of each request: who is logged in, and whether the page is for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.views.defaults import permission_denied
from psycopg.errors import InsufficientPrivilege

from collections_app.access_context import NOBODY, Forbidden, carried, current_access, using_access
from collections_app.domain.permissions import Permission
from collections_app.http.middleware import API_PATHS
from collections_app.services.governance.access import access_of_user
from collections_app.services.governance.limits import LimitReached, Usage, count_request
from ragd_site.access.page_rules import Rule, find_collection_id, find_target, rule_of

PAGES = ("collections", "retrieval", "evaluation")  # the namespaces of ragd's own pages
CHANGING = ("POST", "PUT", "PATCH", "DELETE")


class AccessMiddleware:
    """Stands behind the log-in. Pages run with the access of their reader; the API's and MCP's key sets its own.

    What one may not see is a 404, what one may see and not do a 403.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        is_api = request.path.startswith(API_PATHS) or request.path == "/mcp"
        with using_access(NOBODY if is_api else access_of_user(request.user)):
            response = self.get_response(request)
            if isinstance(response, StreamingHttpResponse) and not response.is_async:
                response.streaming_content = carried(iter(response))
            usage: Usage | None = getattr(request, "usage", None)
            for name, value in usage.headers().items() if usage else ():
                response.headers[name] = value
            return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """A service's refusal on a page, or the database's own."""
        refused = isinstance(error, Forbidden) or isinstance(error.__cause__, InsufficientPrivilege)
        return permission_denied(request, error) if refused else None

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> HttpResponseBase | None:
        match = request.resolver_match
        if match is None or match.namespace not in PAGES or current_access() == NOBODY:
            return None
        rule = rule_of(match.view_name)
        needed = rule.post if request.method in CHANGING else rule.get
        if not current_access().unbound:
            self._check(request, rule, match.route, kwargs, needed)
        return self._limit(request) if needed == Permission.ASK and request.method in CHANGING else None

    def _limit(self, request: HttpRequest) -> HttpResponseBase | None:
        """Questions of a person count like those of their keys."""
        try:
            request.usage = count_request(current_access())  # type: ignore[attr-defined]
        except LimitReached as reached:
            request.usage = reached.usage  # type: ignore[attr-defined]
            response = render(request, "429.html", {"reached": reached}, status=429)
            response.headers["Retry-After"] = str(int(reached.usage.reset_s) + 1)
            return response
        return None

    def _check(self, request: HttpRequest, rule: Rule, route: str, kwargs: Mapping[str, Any], needed: Any) -> None:
        access = current_access()
        is_of_collection, name = find_target(route, kwargs)
        if is_of_collection:
            collection_id = find_collection_id(name) if name else None
            if name is None or collection_id is None:
                raise Http404("there is nothing of that name that this reader may see")
            request.page_collection_id = collection_id  # type: ignore[attr-defined]
            if needed and not access.may(needed, None if rule.everywhere else collection_id):
                raise PermissionDenied
        elif needed and not (access.may(needed) if rule.everywhere else access.may_anywhere(needed)):
            raise PermissionDenied
