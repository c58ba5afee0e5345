"""What every page does the same way: the request's type, the page or its named part, the pages of a list,
display names of collections.

Which page of the documentation helps with which page of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.forms import BaseForm, Field, Form
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render, resolve_url
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.middleware import HtmxDetails

from collections_app.access.rules import name_page
from collections_app.collections.models import collection_choices
from collections_app.errors import ServiceError, describe
from collections_app.http.navigation import find_section
from collections_app.models import Collection
from ragd.errors import InvalidInput, RagdError

Row = TypeVar("Row", bound=Model)
FieldKind = TypeVar("FieldKind", bound=Field)
PART_HEADER = "Ragd-Part"  # tells the script that the body belongs into the page, whatever the status


class PageRequest(HttpRequest):
    """A request of somebody who is logged in."""

    user: User
    htmx: HtmxDetails


def render_page(
    request: PageRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    parts: Mapping[str, str] | None = None,
    status: int = 200,
) -> HttpResponse:
    """The whole page, or only the part that an htmx request aims at.

    parts: element id -> template of that element. The id is also the hx-target; the page includes the same template.
    Messages that wait are sent along with a part.
    """
    target = request.htmx.target or ""
    if parts is None or not is_part(request, parts):
        return render(request, template, dict(context), status=status)
    values = dict(context) | {"is_part": True}
    body = render_to_string(parts[target], values, request) + render_to_string(
        "components/toasts.html", values, request
    )
    return HttpResponse(body, status=status, headers={PART_HEADER: target})


def is_part(request: PageRequest, parts: Iterable[str]) -> bool:
    """Whether an htmx request aims at one of these element ids. Whatever else it aims at gets the whole page."""
    return bool(request.htmx) and (request.htmx.target or "") in parts


def find_or_404(rows: QuerySet[Row, Row], **requested: Any) -> Row:
    """The one row, or Http404. A NUL, which no stored text can hold, finds nothing."""
    if any(isinstance(value, str) and "\x00" in value for value in requested.values()):
        raise Http404("no stored name holds a NUL character")
    return get_object_or_404(rows, **requested)


def page_of(request: HttpRequest, rows: QuerySet[Any, Any], per_page: int) -> Page[Any]:
    """The page that the address asks for; the nearest one when the number makes no sense."""
    return Paginator(rows, per_page).get_page(request.GET.get("page"))


def field_of(form: BaseForm, name: str, kind: type[FieldKind]) -> FieldKind:
    """The form's field of that name, as the kind that it is declared with: a form gives it choices of its own."""
    field = form.fields[name]
    assert isinstance(field, kind)
    return field


def refuse(form: Form, error: ServiceError | RagdError) -> int:
    """Put a service's refusal beside the field that it names, or above the form. Returns the HTTP status for it."""
    status, body = describe(error)
    field = body["error"].get("field")
    form.add_error(field if field in form.fields else None, body["error"]["message"])
    return status


def submit_form(request: HttpRequest, form: Form, save: Callable[[], HttpResponse]) -> tuple[HttpResponse | None, int]:
    """(what `save` answers, 200) for a POST of a valid form; else (None, the status of the page that shows the form).

    That is 200 for a GET, 422 for a form with mistakes, and the status of what a service refuses, which the form tells.
    """
    if request.method != "POST":
        return None, 200
    if not form.is_valid():
        return None, 422
    try:
        return save(), 200
    except (ServiceError, RagdError) as error:
        return None, refuse(form, error)


class RefusalMessages:
    """Around a block: what a service refuses in it ends the block and becomes an error message of the next page."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ServiceError | RagdError):
            return False
        messages.error(self.request, describe(error)[1]["error"]["message"])
        return True


def tell(request: HttpRequest, text: str, *to: Any) -> HttpResponse:
    """Go to what `redirect` takes, where the text is told."""
    messages.success(request, text)
    return redirect(*to)


Acts = Mapping[str, Callable[[], str | HttpResponse]]


def run_action(request: HttpRequest, acts: Acts, back: Any) -> HttpResponse:
    """Do what the form's do= names, then go back, where what it says, or why it was refused, is told; an act may answer
    itself. back: what `redirect` takes."""
    with RefusalMessages(request):
        action = request.POST.get("do", "")
        if action not in acts:
            raise InvalidInput(f"do must be one of {', '.join(acts)}, not {action!r}", field="do")
        if isinstance(done := acts[action](), HttpResponse):
            return done
        messages.success(request, done)
    return redirect(next_address(request, back))


def whole_number(text: str | None) -> int | None:
    """Of at most nine digits; None for anything else."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def read_uuid(text: str) -> UUID | None:
    """None for what is none."""
    try:
        return UUID(text)
    except ValueError:
        return None


def page_number(request: HttpRequest) -> int:
    """The page that the address asks for, from 1; 1 when that makes no sense."""
    return max(1, whole_number(request.GET.get("page")) or 1)


def pages_around(number: int, *, has_more: bool) -> dict[str, int | None]:
    """`number`, and the pages `before` and `after` it, None at an end."""
    return {"number": number, "before": number - 1 if number > 1 else None, "after": number + 1 if has_more else None}


def next_address(request: HttpRequest, otherwise: str) -> str:
    """Where the form wants to lead back to, if that is on this server; else the address of `otherwise`."""
    requested = request.POST.get("next") or request.GET.get("next") or ""
    is_address = "/" in requested  # else it would be taken for the name of a view
    if is_address and url_has_allowed_host_and_scheme(
        requested, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        return requested
    return resolve_url(otherwise)


def collection_titles(request: HttpRequest) -> dict[str, str]:
    """name -> display name of the live collections that who asks may see, by name; one query a request."""
    kept: Any = request
    if not hasattr(kept, "kept_titles"):
        kept.kept_titles = dict(collection_choices(Collection.objects.live().by_name().only("name", "title")))
    titles: dict[str, str] = kept.kept_titles
    return titles


# view -> page of docs/, with an anchor where only a part of it is meant
HELP = {
    "operations:home": "tutorial",
    "retrieval:chat": "chat",
    "retrieval:playground": "search#debug-a-ranking",
    "evaluation:query-run": "scores",
    "evaluation:plans?view=corrective": "answering#confidence-and-the-corrective-step",
    "collections:list": "glossary",
    "collections:list?view=new": "tutorial",
    "collections:detail": "uploads",
    "collections:upload": "uploads",
    "collections:upload?view=urls": "sources#fetch-a-list-of-addresses",
    "collections:sources": "sources",
    "evaluation:health?view=gaps": "diagnosis#content-gaps",
    "collections:uploads": "jobs",
    "collections:job": "jobs",
    "collections:batch": "jobs",
    "collections:list?view=import": "export",
    "collections:document?view=preview": "chunking",
    "collections:chunk": "curation",
    "collections:document": "curation",
    "collections:document?view=edit": "curation",
    "collections:detail?view=trash": "curation#the-trash",
    "evaluation:health": "curation#read-a-document-beside-its-chunks",
    "evaluation:health?view=findings": "security",
    "collections:index_versions": "index-versions",
    "collections:settings?view=sharing": "permissions",
    "collections:document?view=readers": "permissions#restricted-documents",
    "collections:settings": "operations",
    "collections:models": "models",
    "collections:keys": "api#keys",
    "collections:people": "permissions",
    "collections:audit": "audit",
    "evaluation:index": "evaluation",
    "evaluation:evaluation-runs": "evaluation#start-a-run",
    "evaluation:golden-sets": "golden-sets",
    "evaluation:compare": "comparing",
    "evaluation:experiments": "comparing#experiments-with-retrieval-settings",
    "evaluation:board": "diagnosis",
    "evaluation:review": "reviews",
    "evaluation:live": "scores#runs-without-a-golden-question",
    "evaluation:traces": "traces",
    "evaluation:activity": "traces",
    "evaluation:alerts": "metrics#alerts",
    "operations:operations": "operations",
    "operations:server-settings?view=retention": "operations#retention",
    "operations:operations?view=field-coverage": "telemetry#field-coverage",
    "operations:operations?view=conformance": "conformance",
    "operations:operations?view=leak-probe": "permissions#how-it-is-enforced",
    "evaluation:experiments?view=models": "index-versions#compare-embedding-models",
    "mfa_index": "sign-on#second-factor",
    "sessions": "sign-on#sessions",
    "password_change": "sign-on",
}


def help_address(request: HttpRequest) -> str:
    """Of the page itself, else of the one that it stands below, else the contents."""
    match = request.resolver_match
    found = find_section(name_page(request, request.path))
    names = [name_page(request, match.view_name), match.view_name] if match else []
    names += [found[1].view] if found else []
    page, mark, anchor = next((HELP[name] for name in names if name in HELP), "").partition("#")
    return reverse("collections:help-page", args=[page]) + mark + anchor if page else reverse("collections:help")
