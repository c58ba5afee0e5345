"""The page that brings documents from a list of addresses."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods

from collections_app.domain.formats import counted
from collections_app.http.page_requests import PageRequest, field_of, render_page, submit_form
from collections_app.services.governance.document_access import resolve
from collections_app.services.sources.source_jobs import SENT, SourcePlan
from collections_app.services.sources.url_lists import submit_urls
from collections_app.views.collections import find_collection
from collections_app.views.forms.metadata import MetadataField
from collections_app.views.forms.sources import UrlsForm
from collections_app.views.jobs import active_jobs

LINES_SHOWN = 500


@require_http_methods(["GET", "POST"])
def fetch_urls(request: PageRequest, name: str) -> HttpResponse:
    """Addresses in; a look at what would be done, or the batch that does it."""
    collection = find_collection(name)
    form = UrlsForm(request.POST or None, request.FILES or None)
    field_of(form, "metadata", MetadataField).complete_in(name)
    plan: SourcePlan | None = None

    def submit() -> HttpResponse:
        nonlocal plan
        plan = submit_urls(
            collection,
            form.entries(),
            dry_run="go" not in request.POST,
            access=resolve(collection, form.stated_access()),
            actor=request.user,
            **form.labels(),
        )
        if plan.batch is None:
            return page(200)
        sent = counted(sum(line.status in SENT for line in plan.lines), gettext("document,documents"))
        messages.success(request, gettext("%(documents)s queued.") % {"documents": sent})
        return redirect("collections:batch", collection.name, plan.batch.pk)

    def page(status: int) -> HttpResponse:
        lines = plan.lines if plan else []
        context = {
            "collection": collection,
            "form": form,
            "tab": "documents",
            "adding": "urls",
            "plan": plan,
            "lines": lines[:LINES_SHOWN],
            "hidden_lines": max(0, len(lines) - LINES_SHOWN),
        }
        return render_page(request, "collections/urls.html", context | active_jobs(collection), status=status)

    response, status = submit_form(request, form, submit)
    return response or page(status)
