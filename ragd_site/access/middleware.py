"""Which collection a page is of, and what its reader may do there, for every template: the rest is not offered.

Decide the access of each request: who is logged in, whether the page is for them, and whether there is time for it.

Requests without a session, and addresses without a page, are told what to do. A request that has waited longer than
RAGD_QUEUE_MAX_S is answered at once with 503 and Retry-After: answering it would let those behind it wait as long.
Pages for people are always answered.

How large the body of a request may be, by its route. Refused by its stated length, before any of it is read.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.models import Group, User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, gettext_noop
from django.views.csrf import csrf_failure
from psycopg.errors import InsufficientPrivilege

from collections_app.access.context import NOBODY, Access, Forbidden, carried, current_access, using_access
from collections_app.access.limits import LimitReached, Usage, count_request
from collections_app.access.people import name_administrators
from collections_app.access.permissions import GIVEN, Permission, Role
from collections_app.access.rules import Rule, name_page, rule_of, view_of
from collections_app.access.services import access_of_user
from collections_app.domain.formats import MEGABYTE
from collections_app.endpoints.server_settings import stored
from collections_app.errors import ServiceError, error_body
from collections_app.http.middleware import API_PATHS
from collections_app.models import Collection, Document, IngestBatch, IngestJob, ModelSetting, Operation, Source
from evaluation_app.models import AlertRule, EvaluationRun, Experiment, GoldenSet, ReviewTask, Span, Webhook
from ragd_site.api import error_response
from ragd_site.operations.branding import find_brand
from ragd_site.sign_on.sessions import lead_to_factor, note_use
from retrieval_app.chat.threads import with_files
from retrieval_app.models import ChatAssistant, ChatThread, QueryRun


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """1 MB, and `times` the megabytes of a setting."""

    setting: str = ""
    times: int = 0

    @property
    def limit_mb(self) -> int:
        return 1 + (getattr(settings, self.setting) * self.times if self.setting else 0)


FIELDS = BodyLimit()
TEXT = BodyLimit("RAGD_MAX_DOCUMENT_MB", 2)  # a text in JSON escapes some characters; long lists of names fit too
UPLOAD = BodyLimit("RAGD_MAX_DOCUMENT_MB", 20)  # several files in one request
IMPORT = BodyLimit("RAGD_IMPORT_MAX_MB", 1)

# The first route that the address's begins with counts; all others take FIELDS.
LIMITS: tuple[tuple[str, BodyLimit], ...] = (
    ("v1/collections/import", IMPORT),
    ("v1/collections/<collection>/documents/", TEXT),
    ("v1/collections/<collection>/documents-bulk", TEXT),
    ("v1/collections/<collection>/documents", UPLOAD),
    ("v1/collections/<collection>/chunk-preview", TEXT),
    ("v1/collections/<collection>/uploads/plan", TEXT),
    ("v1/collections/<collection>/sync", TEXT),
    ("v1/collections/<collection>/urls", TEXT),
    ("v1/collections/<collection>/impact", TEXT),
    ("v1/golden-sets/<golden_set>/import", TEXT),
    ("admin/collections_app/document/add/", UPLOAD),
    ("collections/?view=import", IMPORT),
    ("collections/<str:name>/upload/?view=text", TEXT),
    ("collections/<str:name>/upload/?view=urls", TEXT),
    ("collections/<str:name>/upload/", UPLOAD),
    ("collections/<str:name>/documents/<path:doc_id>/?view=new-version", UPLOAD),
    ("collections/<str:name>/documents/<path:doc_id>/?view=edit-text", TEXT),
    ("chat/files/", UPLOAD),
    ("evaluation/sets/<int:pk>/?view=import", TEXT),
)


def body_limit(route: str) -> BodyLimit:
    return next((limit for start, limit in LIMITS if route.startswith(start)), FIELDS)


def refuse_body(request: HttpRequest) -> HttpResponseBase | None:
    """413 for a body above its route's limit, and 411 for one of unstated length, which cannot be bounded."""
    explicit = request.META.get("CONTENT_LENGTH") or ""
    if not explicit and request.headers.get("Transfer-Encoding"):
        message = "the request does not state its length; send it with Content-Length, not in chunks"
        return _refuse(request, ServiceError(message, type="length_required", status=411))
    match = request.resolver_match
    limit = body_limit(name_page(request, match.route) if match else "")
    if not explicit.isdecimal() or int(explicit) <= limit.limit_mb * MEGABYTE:
        return None
    advice = f"send it in parts, or raise {limit.setting}" if limit.setting else "send less"
    message = f"the request has {int(explicit):,} bytes, and this address takes at most {limit.limit_mb:,} MB; {advice}"
    return _refuse(request, ServiceError(message, type="too_large", status=413))


def _refuse(request: HttpRequest, error: ServiceError) -> HttpResponseBase:
    if request.path.startswith(API_PATHS):
        return error_response(request, error)
    return render(request, "body_refused.html", {"error": error}, status=error.status)


# How the start of an address says which collection it is of: the argument, the model, the field with its name.
TARGETS: tuple[tuple[str, str, type[Model], str], ...] = (
    ("evaluation/runs/<uuid:pk>", "pk", EvaluationRun, "collection_name"),
    ("evaluation/sets/<int:pk>", "pk", GoldenSet, "collection_name"),
    ("evaluation/experiments/<uuid:pk>", "pk", Experiment, "collection_name"),
    ("evaluation/review/<int:pk>", "pk", ReviewTask, "collection_name"),
    ("runs/<uuid:run_id>", "run_id", QueryRun, "collection_name"),
    ("collections/operation/<uuid:operation_id>", "operation_id", Operation, "subject"),
)


def find_target(route: str, arguments: Mapping[str, Any]) -> tuple[bool, str | None]:
    """(whether the address names something of a collection, the collection's name or None where that is not there)."""
    if route.startswith(("collections/<str:name>", "evaluation/live/<str:name>")):
        return True, str(arguments["name"])
    for start, argument, model, field in TARGETS:
        if route.startswith(start):
            rows = model._default_manager.filter(pk=arguments[argument])
            return True, rows.values_list(field, flat=True).first()
    return False, None


def find_collection_id(name: str) -> int | None:
    return (
        Collection.objects.live().filter(name=name).values_list("pk", flat=True).first() if "\x00" not in name else None
    )


NAMES = frozenset(Permission)


@dataclass(frozen=True)
class Rights:
    """Permissions as attributes: read, ask, write, evaluate, administer. place: a collection's id, None for all of
    them, or "somewhere"."""

    access: Access
    place: int | str | None

    def __getattr__(self, name: str) -> bool:
        if name not in NAMES:
            raise AttributeError(name)
        permission = Permission(name)
        if isinstance(self.place, str):
            return self.access.may_anywhere(permission)
        return self.access.may(permission, self.place)


def rights(request: HttpRequest) -> dict[str, Any]:
    """may: in the collection of the page, or in some where it is of none. may_all: in all. may_anywhere: in some.

    may_make: whether they may make collections. server_name: what an administrator calls this server. brand: its look.
    """
    access = current_access()
    return {
        "may": Rights(access, getattr(request, "page_collection_id", "somewhere")),
        "may_all": Rights(access, None),
        "may_anywhere": Rights(access, "somewhere"),
        "may_make": access.may_make_collections,
        "server_name": settings.RAGD_NAME,
        "brand": find_brand(),
    }


QUERY_RUN, EVALUATION_RUN = gettext_noop("Query run"), gettext_noop("Evaluation run")
# the start of the address, its argument, the model that it is the key (or the field of that name) of, the word for it
ITEMS: tuple[tuple[str, str, type[Model], str], ...] = (
    ("", "run_id", QueryRun, QUERY_RUN),
    ("", "other_id", QueryRun, QUERY_RUN),
    ("", "trace_id", Span, gettext_noop("Trace")),
    ("", "span_id", Span, gettext_noop("Span")),
    ("", "thread_id", ChatThread, gettext_noop("Thread")),
    ("", "job_id", IngestJob, gettext_noop("Job")),
    ("", "batch_id", IngestBatch, gettext_noop("Upload")),
    ("", "operation_id", Operation, gettext_noop("Operation")),
    ("", "sync_id", Operation, gettext_noop("Sync")),
    ("collections/<str:name>/sources/", "pk", Source, gettext_noop("Source")),
    ("alerts/?view=rule", "pk", AlertRule, gettext_noop("Alert rule")),
    ("alerts/?view=webhook", "pk", Webhook, gettext_noop("Webhook")),
    ("chat/assistants/", "pk", ChatAssistant, gettext_noop("Assistant")),
    ("evaluation/runs/", "pk", EvaluationRun, EVALUATION_RUN),
    ("evaluation/runs/", "other", EvaluationRun, EVALUATION_RUN),
    ("evaluation/sets/", "pk", GoldenSet, gettext_noop("Test set")),
    ("evaluation/experiments/", "pk", Experiment, gettext_noop("Experiment")),
    ("evaluation/review/", "pk", ReviewTask, gettext_noop("Review")),
    ("models/?view=", "pk", ModelSetting, gettext_noop("Model")),
    ("people/groups/", "pk", Group, gettext_noop("Group")),
    ("people/<int:pk>/", "pk", User, gettext_noop("Person")),
)


def spell_missing(request: HttpRequest) -> str:
    """The first of what the address names that is not there for this reader; "" where all is, or nothing is named.

    The same for what there is and the reader may not see.
    """
    match = request.resolver_match
    named = match.kwargs if match else {}
    if match is None or not request.user.is_authenticated or any("\x00" in str(value) for value in named.values()):
        return ""
    collection = named.get("name")
    collection_id = None if collection is None else find_collection_id(collection)
    if collection is not None and collection_id is None:
        return gettext("There is no collection %(collection)s.") % {"collection": collection}
    item = _find_missing(name_page(request, match.route), named, collection_id)
    if item is not None:
        values = {"kind": gettext(item[0]), "name": item[1], "collection": collection}
        if collection is None:
            return gettext("%(kind)s %(name)s is not there.") % values
        return gettext("%(kind)s %(name)s is not in collection %(collection)s.") % values
    return "" if collection_id is None or "doc_id" not in named else _spell_missing_document(collection_id, named)


def _find_missing(route: str, named: Mapping[str, Any], collection_id: int | None) -> tuple[str, str] | None:
    """(its kind, its name)."""
    for start, argument, model, kind in ITEMS:
        if argument not in named or not route.startswith(start):
            continue
        fields = {field.name for field in model._meta.get_fields()}
        conditions = {argument if argument in fields else "pk": named[argument]}
        if collection_id is not None and "collection" in fields:
            conditions["collection_id"] = collection_id
        if not model._default_manager.filter(**conditions).exists():
            return kind, str(named[argument])
    return None


def _spell_missing_document(collection_id: int, named: Mapping[str, Any]) -> str:
    values = {"collection": named["name"], "document": named["doc_id"], "index": named.get("index")}
    if not Document.objects.filter(collection_id=collection_id, doc_id=values["document"]).exists():
        return gettext("Document %(document)s is not in collection %(collection)s.") % values
    if values["index"] is not None:
        return gettext("Chunk %(index)s is not in document %(document)s.") % values
    return gettext("It is not in document %(document)s.") % values


PAGES = ("collections", "retrieval", "evaluation", "operations")  # the namespaces of ragd's own pages
UUID_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CHANGING = ("POST", "PUT", "PATCH", "DELETE")


class AccessMiddleware:
    """Stands behind the log-in. Pages run with the access of their reader; the API's and MCP's key sets its own.

    What one may not see is a 404, what one may see and not do a 403.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        is_api = request.path.startswith(API_PATHS) or request.path == "/mcp"
        with using_access(NOBODY if is_api else _page_access(request)):
            response = self.get_response(request)
            if isinstance(response, StreamingHttpResponse) and not response.is_async:
                response.streaming_content = carried(iter(response))
            usage: Usage | None = getattr(request, "usage", None)
            for name, value in usage.headers().items() if usage else ():
                response.headers[name] = value
            return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """A service's refusal on a page, or the database's own; what went while it was read is not there."""
        is_gone = isinstance(error, ObjectDoesNotExist) or (isinstance(error, ServiceError) and error.status == 404)
        if is_gone and not request.path.startswith(API_PATHS):
            return page_not_found(request, Http404(str(error)))
        refused = isinstance(error, Forbidden) or isinstance(error.__cause__, InsufficientPrivilege)
        return page_refused(request, error) if refused else None

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> HttpResponseBase | None:
        match = request.resolver_match
        if match is None or match.namespace not in PAGES or current_access() == NOBODY:
            return None
        rule = rule_of(view_of(view, request.GET.get("view", "")))
        if rule is None:
            raise PermissionDenied
        needed = rule.post if request.method in CHANGING else rule.get
        if not current_access().may(Permission.ADMINISTER):
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
                raise PermissionDenied(needed, collection_id)  # for `page_refused`
        elif needed and not (access.may(needed) if rule.everywhere else access.may_anywhere(needed)):
            raise PermissionDenied


def _page_access(request: HttpRequest) -> Access:
    """Of who is logged in. At the address of a thread of theirs, of its files and of its runs they read its files."""
    access = access_of_user(request.user)
    ids = UUID_TEXT.findall(request.path) if access.user_id else []
    return with_files(access, ids) if ids else access


LOGIN_HEADER = "Ragd-Login"  # with 401: where a script leads to, and back from with what was typed


def is_of_script(request: HttpRequest) -> bool:
    """Whether a script waits for the answer: htmx, a fetch of the pages, an event stream."""
    return "HX-Request" in request.headers or "text/event-stream" in request.headers.get("Accept", "")


class PageLoginMiddleware(LoginRequiredMiddleware):
    """A page leads to the log-in and back. A script is told with 401, as it would take the log-in for its part.

    What was sent by a form leads back to the page of the form: its address may be one that is only sent to.
    Who is logged in keeps the session alive, and is led to a second factor where one is required.
    """

    def process_request(self, request: HttpRequest) -> None:
        note_use(request)

    def process_view(
        self, request: HttpRequest, view_func: Any, view_args: tuple[Any, ...], view_kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        refused: HttpResponseBase | None = super().process_view(request, view_func, view_args, view_kwargs)
        if refused is None:
            return lead_to_factor(request, view_func)
        if is_of_script(request):
            return HttpResponse(status=401, headers={LOGIN_HEADER: resolve_url(settings.LOGIN_URL)})
        referer = request.headers.get("Referer", "")
        if request.method == "POST" and url_has_allowed_host_and_scheme(referer, {request.get_host()}):
            parts = urlsplit(referer)
            return redirect_to_login(f"{parts.path}?{parts.query}" if parts.query else parts.path)
        return refused


def refuse_forgery(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """A form without the token of its session. For who has no session at all it has ended."""
    if is_of_script(request) and not request.user.is_authenticated:
        return HttpResponse(status=401, headers={LOGIN_HEADER: resolve_url(settings.LOGIN_URL)})
    return csrf_failure(request, reason)


def page_refused(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403 with the least role that allows it, and who gives it; neither for who is not logged in."""
    is_of_page = isinstance(exception, PermissionDenied) and len(exception.args) == 2
    permission, place = exception.args if is_of_page else (None, 0)
    collection = Collection.objects.live().filter(pk=place).first() if permission else None
    role = next((role.label for role in Role if permission in GIVEN[role]), "")
    names = name_administrators(collection) if request.user.is_authenticated else []
    return render(request, "403.html", {"role": role, "names": names}, status=403)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 with what is missing where, as far as the reader may know it."""
    return render(request, "404.html", {"missing": spell_missing(request)}, status=404)


REFUSED = ("/v1/", "/mcp", "/a/")
NEVER_REFUSED = ("/v1/health",)

_waited = threading.local()


def stamp(pool: Executor) -> None:
    """Let each task of the pool know how long it waited for a thread."""
    submit = pool.submit

    def stamped(task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        began = time.monotonic()

        def run() -> Any:
            _waited.seconds = time.monotonic() - began
            return task(*args, **kwargs)

        return submit(run)

    pool.submit = stamped  # type: ignore[method-assign]


def take_wait_s() -> float:
    """For how long the task of this thread waited; 0 when it is asked again, and where no pool is stamped."""
    seconds: float = getattr(_waited, "seconds", 0.0)
    _waited.seconds = 0.0
    return seconds


class LoadMiddleware:
    """Refuses what waited too long, and bodies that are too large.

    Its `process_view` runs before all others: the check of forms against forgery reads the body already.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.RAGD_FOLLOWS_PAGES and request.path not in NEVER_REFUSED:
            stored.refresh()
        wait_s, limit_s = take_wait_s(), settings.RAGD_QUEUE_MAX_S
        if limit_s and wait_s > limit_s and request.path.startswith(REFUSED) and request.path not in NEVER_REFUSED:
            message = (
                f"this server has more requests than it can answer: this one waited {wait_s:.1f} s, and at most"
                f" {limit_s:g} s is allowed (RAGD_QUEUE_MAX_S). Ask again after the seconds of Retry-After"
            )
            retry_after = {"Retry-After": str(int(wait_s) + 1)}
            return JsonResponse(error_body("overloaded", message), status=503, headers=retry_after)
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *view: Any) -> HttpResponseBase | None:
        return refuse_body(request)
