"""The pages of alerts: what fires and fired, the rules, the webhooks and what they were sent."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    page_of,
    render_page,
    submit_form,
)
from collections_app.models import Collection
from evaluation_app.alerts.forms import RuleForm, WebhookForm
from evaluation_app.alerts.rules import KINDS
from evaluation_app.alerts.services import add_rule, change_rule, delete_rule
from evaluation_app.alerts.webhooks import delete_webhook, rotate_key, save_webhook, send_again, send_test
from evaluation_app.models import Alert, AlertRule, Webhook, WebhookDelivery

PER_PAGE = 50
LIST = "evaluation:alerts"


@require_GET
def alerts(request: PageRequest) -> HttpResponse:
    """What fires, the rules, the webhooks, and what was resolved, page by page."""
    open_alerts = Alert.objects.open().select_related("rule").order_by("-state", "started_at", "id")
    context: dict[str, Any] = {
        "open_alerts": list(open_alerts),
        "rules": list(AlertRule.objects.order_by("collection_id", "id")),
        "labels": collection_labels(),
        "addable": [kind for kind in KINDS.values() if kind.of_collection],
        "webhooks": list(Webhook.objects.all()),
        "page": page_of(request, Alert.objects.resolved(), PER_PAGE),
    }
    parts = {"alerts": "evaluation/alerts/parts/all.html"}
    return render_page(request, "evaluation/alerts/list.html", context, parts=parts)


def collection_labels() -> dict[int, str]:
    """What rules of one collection are of, by the collection's id."""
    ids = AlertRule.objects.exclude(collection_id=0).values_list("collection_id", flat=True)
    return {row.pk: row.label for row in Collection.objects.live().filter(pk__in=list(ids))}


@require_http_methods(["GET", "POST"])
def new_rule(request: PageRequest, kind: str) -> HttpResponse:
    """For one collection."""
    if kind not in KINDS or not KINDS[kind].of_collection:
        raise Http404(f"no rule of one collection is named {kind}")
    form = RuleForm(request.POST or None, kind=KINDS[kind])

    def save() -> HttpResponse:
        values = dict(form.cleaned_data)
        add_rule(kind, values.pop("collection"), values, actor=request.user)
        messages.success(request, gettext("Alert rule saved."))
        return redirect(LIST)

    response, status = submit_form(request, form, save)
    context = {"form": form, "kind": KINDS[kind]}
    return response or render_page(request, "evaluation/alerts/rule.html", context, status=status)


@require_http_methods(["GET", "POST"])
def edit_rule(request: PageRequest, pk: int) -> HttpResponse:
    rule = _rule(pk)
    form = RuleForm(request.POST or None, kind=KINDS[rule.kind], row=rule)

    def save() -> HttpResponse:
        change_rule(rule, form.cleaned_data, actor=request.user)
        messages.success(request, gettext("Alert rule saved."))
        return redirect(LIST)

    response, status = submit_form(request, form, save)
    label = collection_labels().get(rule.collection_id, "")
    context = {"form": form, "kind": KINDS[rule.kind], "rule": rule, "label": label}
    return response or render_page(request, "evaluation/alerts/rule.html", context, status=status)


@require_POST
def remove_rule(request: PageRequest, pk: int) -> HttpResponse:
    with RefusalMessages(request):
        delete_rule(_rule(pk), actor=request.user)
        messages.success(request, gettext("Alert rule deleted."))
    return redirect(LIST)


def _rule(pk: int) -> AlertRule:
    rule = find_or_404(AlertRule.objects.all(), pk=pk)
    if rule.kind not in KINDS:
        raise Http404("this version has no such rule")
    return rule


@require_http_methods(["GET", "POST"])
def new_webhook(request: PageRequest) -> HttpResponse:
    """After it is saved the page shows the signing key once."""
    form = WebhookForm(request.POST or None)

    def save() -> HttpResponse:
        row, key = save_webhook(form.values(), actor=request.user)
        return _webhook_page(request, row, WebhookForm.of(None, row), key=key)

    response, status = submit_form(request, form, save)
    return response or render_page(request, "evaluation/alerts/webhook.html", {"form": form}, status=status)


@require_http_methods(["GET", "POST"])
def edit_webhook(request: PageRequest, pk: int) -> HttpResponse:
    """POST with do=key gives it a new signing key, which is shown once."""
    row = find_or_404(Webhook.objects.all(), pk=pk)
    if request.method == "POST" and request.POST.get("do") == "key":
        return _webhook_page(request, row, WebhookForm.of(None, row), key=rotate_key(row, actor=request.user))
    form = WebhookForm.of(request.POST or None, row)

    def save() -> HttpResponse:
        save_webhook(form.values(), actor=request.user, row=row)
        messages.success(request, gettext("%(name)s saved.") % {"name": row.name})
        return redirect("evaluation:webhook", row.pk)

    response, status = submit_form(request, form, save)
    return response or _webhook_page(request, row, form, status=status)


def _webhook_page(
    request: PageRequest, row: Webhook, form: WebhookForm, *, key: str = "", status: int = 200
) -> HttpResponse:
    context = {"form": form, "row": row, "key": key, "page": page_of(request, row.deliveries.all(), PER_PAGE)}
    response = render_page(request, "evaluation/alerts/webhook.html", context, status=status)
    if key:
        response.headers["Cache-Control"] = "no-store"
    return response


@require_POST
def test_webhook(request: PageRequest, pk: int) -> HttpResponse:
    row = find_or_404(Webhook.objects.all(), pk=pk)
    delivery = send_test(row)
    if delivery.error:
        text = gettext("%(name)s did not take the test: %(error)s")
        messages.error(request, text % {"name": row.name, "error": delivery.error})
    else:
        text = gettext("%(name)s answered %(status)s.")
        messages.success(request, text % {"name": row.name, "status": delivery.status})
    return redirect("evaluation:webhook", row.pk)


@require_http_methods(["GET", "POST"])
def remove_webhook(request: PageRequest, pk: int) -> HttpResponse:
    """Asks first: the signing key cannot be shown again."""
    row = find_or_404(Webhook.objects.all(), pk=pk)
    if request.method == "GET":
        return render_page(request, "evaluation/alerts/delete_webhook.html", {"row": row})
    delete_webhook(row, actor=request.user)
    messages.success(request, gettext("%(name)s deleted.") % {"name": row.name})
    return redirect(LIST)


@require_POST
def deliver_again(request: PageRequest, pk: str) -> HttpResponse:
    delivery = find_or_404(WebhookDelivery.objects.all(), pk=pk)
    with RefusalMessages(request):
        send_again(delivery)
        messages.success(request, gettext("The message is sent again."))
    return redirect("evaluation:webhook", delivery.webhook_id)
