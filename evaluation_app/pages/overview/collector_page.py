"""Where spans are sent to, and one span sent on request, with what came back."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpResponse
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from collections_app.http.page_requests import PageRequest, refuse, render_page
from evaluation_app.spans.store.collector_export import name_endpoint
from evaluation_app.spans.store.collector_trial import read_collector, send_test_span
from evaluation_app.spans.store.span_reads import collector_state
from ragd.errors import InvalidInput


class EndpointForm(forms.Form):
    endpoint = forms.CharField(
        label=gettext_lazy("Endpoint"),
        max_length=2000,
        help_text=gettext_lazy("OTLP over HTTP, such as http://127.0.0.1:4318. gRPC (4317) is not built in."),
    )


@require_http_methods(["GET", "POST"])
def collector(request: PageRequest) -> HttpResponse:
    """POST sends a test span: to the endpoint of the environment where there is one, else to the one of the form."""
    found = read_collector()
    form = None if found.endpoint else EndpointForm(request.POST if request.method == "POST" else None)
    context: dict[str, Any] = {
        "form": form,
        "endpoint": name_endpoint(found.endpoint) if found.endpoint else "",
        "protocol": found.protocol,
        "header_names": sorted(found.headers),
        "texts": settings.RAGD_OTLP_CONTENT,
        "state": collector_state(),
    }
    status = 200
    if request.method == "POST":
        status = 422
        if form is None or form.is_valid():
            try:
                context["trial"] = send_test_span(found, form.cleaned_data["endpoint"] if form else "")
                status = 200
            except InvalidInput as error:
                assert form is not None, "the endpoint of the environment is an address"
                status = refuse(form, error)
    part = {"collector": "evaluation/parts/collector.html"}
    return render_page(request, "evaluation/collector.html", context, parts=part, status=status)
