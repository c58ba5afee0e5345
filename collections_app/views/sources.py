"""The pages that bring documents from elsewhere: a list of addresses, a prefix of a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods

from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, refuse, render_page
from collections_app.models import Collection
from collections_app.services.governance.document_access import Codes, resolve
from collections_app.services.sources.buckets import submit_prefix
from collections_app.services.sources.source_jobs import SENT, SourcePlan
from collections_app.services.sources.url_lists import submit_urls
from collections_app.views.collections import find_collection
from collections_app.views.forms.collections import AccessFields, IntakeFields
from collections_app.views.forms.sources import BucketForm, UrlsForm
from collections_app.views.jobs import active_jobs
from ragd.errors import RagdError

LINES_SHOWN = 500

Submit = Callable[[bool], SourcePlan]


@require_http_methods(["GET", "POST"])
def fetch_urls(request: PageRequest, name: str) -> HttpResponse:
    """Addresses in; a look at what would be done, or the batch that does it."""
    collection = find_collection(name)
    form = UrlsForm(request.POST or None, request.FILES or None)

    def submit(dry_run: bool) -> SourcePlan:
        return submit_urls(
            collection,
            form.entries(),
            dry_run=dry_run,
            access=_codes(collection, form),
            actor=request.user,
            **form.labels(),
        )

    return _answer(request, collection, form, submit, "collections/urls.html", {"adding": "urls"})


@require_http_methods(["GET", "POST"])
def fetch_bucket(request: PageRequest, name: str) -> HttpResponse:
    """A prefix in; always a look at what would be done first, then the batch that does it."""
    collection = find_collection(name)
    form = BucketForm(request.POST or None)

    def submit(dry_run: bool) -> SourcePlan:
        data = form.cleaned_data
        return submit_prefix(
            collection,
            data["bucket"],
            data["prefix"],
            endpoint=data["endpoint"],
            delete_missing=data["delete_missing"],
            dry_run=dry_run,
            access=_codes(collection, form),
            actor=request.user,
            **form.labels(),
        )

    own = settings.RAGD_S3_ENDPOINT or "Amazon S3"
    context = {"adding": "s3", "own_endpoint": own, "has_keys": bool(settings.AWS_ACCESS_KEY_ID)}
    return _answer(request, collection, form, submit, "collections/s3.html", context)


def _codes(collection: Collection, form: AccessFields) -> Codes | None:
    return resolve(collection, form.stated_access())


def _answer(
    request: PageRequest,
    collection: Collection,
    form: IntakeFields,
    submit: Submit,
    template: str,
    more: dict[str, Any],
) -> HttpResponse:
    plan, status = None, 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                plan = submit(_must_look(request, form, submit))
                status = 200
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
    if plan is not None and plan.batch is not None:
        messages.success(request, _describe_plan(plan))
        return redirect("collections:batch", collection.name, plan.batch.pk)
    context = {
        "collection": collection,
        "form": form,
        "tab": "documents",
        "plan": plan,
        "lines": plan.lines[:LINES_SHOWN] if plan else [],
        "hidden_lines": max(0, len(plan.lines) - LINES_SHOWN) if plan else 0,
        "sent_total": sum(line.status in SENT for line in plan.lines) if plan else 0,
    }
    return render_page(request, template, context | more | active_jobs(collection), status=status)


def _must_look(request: PageRequest, form: IntakeFields, submit: Submit) -> bool:
    """Whether only the plan is asked for, or deletes something else than what was seen and agreed to."""
    if "go" not in request.POST:
        return True
    if not form.cleaned_data.get("delete_missing"):
        return False
    return str(len(submit(True).deletions)) != request.POST.get("agreed", "")


def _describe_plan(plan: SourcePlan) -> str:
    sent = sum(line.status in SENT for line in plan.lines)
    noun = gettext("document,documents")
    message = gettext("%(documents)s queued.") % {"documents": counted(sent, noun)}
    if plan.deletions:
        message += " " + gettext("%(documents)s deleted.") % {"documents": counted(len(plan.deletions), noun)}
    return message
