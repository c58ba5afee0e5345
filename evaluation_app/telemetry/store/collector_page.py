"""Where spans are sent to: set here or by the environment, and one span sent on request, with what came back."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpResponse
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from collections_app.access.rules import ADMINISTER, needs
from collections_app.http.page_requests import PageRequest, field_of, render_page, submit_form
from evaluation_app.telemetry.store.collector import PROTOCOLS, REFRESH_S, name_endpoint, read_collector, send_test_span
from evaluation_app.telemetry.store.span_reads import collector_state
from evaluation_app.telemetry.store.stored_collector import (
    ENDPOINT_CHARS_MAX,
    CollectorSetting,
    CollectorValues,
    as_collector,
    draft_collector,
    read_headers,
    remove_collector,
    save_collector,
    stored_collector,
)

PARTS = {"collector": "evaluation/parts/collector.html"}


class CollectorForm(forms.Form):
    """row: the stored one, whose headers stay where none are entered."""

    endpoint = forms.CharField(
        label=gettext_lazy("Endpoint"),
        max_length=ENDPOINT_CHARS_MAX,
        help_text=gettext_lazy("OTLP over HTTP, such as http://127.0.0.1:4318. gRPC (4317) is not built in."),
    )
    protocol = forms.ChoiceField(label=gettext_lazy("Protocol"), choices=[(name, name) for name in PROTOCOLS])
    headers = forms.CharField(
        label=gettext_lazy("Headers"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("One a line, such as api-key: YOUR_KEY. They are stored encrypted and not shown again."),
    )
    forget_headers = forms.BooleanField(label=gettext_lazy("Delete the stored headers"), required=False)
    is_enabled = forms.BooleanField(label=gettext_lazy("Send spans"), required=False)

    def __init__(self, data: Any, row: CollectorSetting | None) -> None:
        shown = {"endpoint": row.endpoint, "protocol": row.protocol} if row else {}
        super().__init__(data, initial={"is_enabled": row.is_enabled if row else True, **shown})
        names = row.header_names if row else []
        if names:
            field_of(self, "headers", forms.CharField).widget.attrs["placeholder"] = "\n".join(
                f"{name}: ••••" for name in names
            )
        else:
            del self.fields["forget_headers"]

    def values(self) -> CollectorValues:
        """Raises InvalidInput (headers) for a line that is no header."""
        data = self.cleaned_data
        stated = read_headers(data["headers"])
        headers = stated if stated or data.get("forget_headers") else None
        return CollectorValues(data["endpoint"], data["protocol"], headers, data["is_enabled"])


@needs(ADMINISTER, everywhere=True)
@require_http_methods(["GET", "POST"])
def collector(request: PageRequest) -> HttpResponse:
    """POST with do=save keeps what is filled in, do=remove forgets it, else a test span is sent to it and nothing is
    saved. Where the environment names an endpoint there is no form, and the test span goes there."""
    found, row = read_collector(), stored_collector()
    if found.endpoint:
        trial = send_test_span(found) if request.method == "POST" else None
        stated = {"endpoint": name_endpoint(found.endpoint), "protocol": found.protocol}
        return _show_collector(request, stated | {"header_names": sorted(found.headers), "trial": trial, "row": None})
    do = request.POST.get("do", "")
    if request.method == "POST" and do == "remove":
        remove_collector(actor=request.user)
        return _show_collector(request, {"form": CollectorForm(None, None), "row": None})
    form = CollectorForm(request.POST if request.method == "POST" else None, row)

    def submit() -> HttpResponse:
        if do == "save":
            saved = save_collector(form.values(), actor=request.user)
            return _show_collector(request, {"form": CollectorForm(None, saved), "row": saved, "is_saved": True})
        trial = send_test_span(as_collector(draft_collector(form.values(), row)))
        return _show_collector(request, {"form": form, "row": row, "trial": trial})

    response, status = submit_form(request, form, submit)
    return response or _show_collector(request, {"form": form, "row": row}, status)


def _show_collector(request: PageRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    shared = {"texts": settings.RAGD_OTLP_CONTENT, "state": collector_state(), "refresh_s": round(REFRESH_S)}
    return render_page(request, "evaluation/collector.html", shared | context, parts=PARTS, status=status)
