"""The pages of alerts: what fires and fired, the rules, the webhooks and what they were sent.

What an administrator fills in about alert rules and webhooks.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import ADMINISTER, needs
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    page_of,
    render_page,
    submit_form,
    tell,
)
from collections_app.jobs.operations import retry_operation
from collections_app.models import Collection
from evaluation_app.models import Alert, AlertRule, Webhook
from evaluation_app.telemetry.alerts import rules

DAY_MINUTES = 1440
UNITS = {
    "share": gettext_lazy("Percent."),
    "ms": gettext_lazy("Milliseconds."),
    "s": gettext_lazy("Seconds."),
    "count": gettext_lazy("A number."),
    "usd": gettext_lazy("US dollars."),
}


class CollectionField(forms.ModelChoiceField):  # type: ignore[type-arg]  # Django's class takes none
    def label_from_instance(self, obj: Any) -> str:
        return str(obj.label)


class RuleForm(forms.Form):
    """Of one kind. A share is typed in percent. row: the rule to be changed; a new one is asked for its collection."""

    collection = CollectionField(
        label=gettext_lazy("Collection"), queryset=Collection.objects.none(), to_field_name="name"
    )
    threshold = forms.FloatField(min_value=0, max_value=1e9)
    window_minutes = forms.IntegerField(
        label=gettext_lazy("Window (minutes)"),
        min_value=1,
        max_value=DAY_MINUTES,
        help_text=gettext_lazy("How far back it looks."),
    )
    for_minutes = forms.IntegerField(
        label=gettext_lazy("Fires after (minutes)"),
        min_value=0,
        max_value=DAY_MINUTES,
        help_text=gettext_lazy("How long the threshold must be exceeded. 0: at once."),
    )
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False)

    def __init__(self, *args: Any, kind: rules.Kind, row: AlertRule | None = None, **kwargs: Any) -> None:
        self.kind, self.scale = kind, 100 if kind.unit == "share" else 1
        base = row or AlertRule(kind=kind.name, threshold=kind.threshold, for_minutes=kind.for_minutes)
        initial = {
            "threshold": round(base.threshold * self.scale, 6),
            "window_minutes": base.window_minutes,
            "for_minutes": base.for_minutes,
            "is_enabled": base.is_enabled,
        }
        super().__init__(*args, **kwargs)
        self.initial = initial
        threshold = self.fields["threshold"]
        threshold.label = gettext("Fires below") if kind.below else gettext("Fires above")
        threshold.help_text = UNITS[kind.unit]
        if not kind.window:
            del self.fields["window_minutes"]
        if row is not None:
            del self.fields["collection"]
        else:
            choice = self.fields["collection"]
            assert isinstance(choice, forms.ModelChoiceField)
            choice.queryset = Collection.objects.live().by_name()

    def clean_threshold(self) -> float:
        value = self.cleaned_data["threshold"] / self.scale
        if self.kind.unit == "share" and value > 1:
            raise forms.ValidationError(gettext("Enter at most 100 percent."))
        return float(value)


class WebhookForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=rules.NAME_MAX_CHARS,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    url = forms.CharField(
        label=gettext_lazy("Send to"),
        max_length=2000,
        widget=forms.TextInput(attrs={"class": "mono", "inputmode": "url"}),
        help_text=gettext_lazy(
            "When an alert fires or is resolved: a web address gets a POST with JSON, whose text Slack shows;"
            " mailto:ops@example.org gets a mail."
        ),
    )
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)

    @classmethod
    def of(cls, data: Any, row: Webhook | None) -> WebhookForm:
        fields = {name: getattr(row, name) for name in ("name", "url", "is_enabled")} if row else None
        return cls(data, initial=fields)

    def values(self) -> rules.WebhookValues:
        return rules.WebhookValues(**self.cleaned_data)


PER_PAGE = 50
LIST = "evaluation:alerts"


@needs(ADMINISTER, everywhere=True, methods="GET")
def alerts(request: PageRequest) -> HttpResponse:
    """What fires, the rules, the webhooks, and what was resolved, page by page."""
    open_alerts = Alert.objects.open().select_related("rule").order_by("-state", "started_at", "id")
    context: dict[str, Any] = {
        "open_alerts": list(open_alerts),
        "rules": list(AlertRule.objects.order_by("collection_id", "id")),
        "labels": collection_labels(),
        "addable": [kind for kind in rules.KINDS.values() if kind.of_collection],
        "webhooks": list(Webhook.objects.all()),
        "page": page_of(request, Alert.objects.resolved(), PER_PAGE),
    }
    parts = {"alerts": "evaluation/alerts/parts/all.html"}
    return render_page(request, "evaluation/alerts/list.html", context, parts=parts)


def collection_labels() -> dict[int, str]:
    """What rules of one collection are of, by the collection's id."""
    ids = AlertRule.objects.exclude(collection_id=0).values_list("collection_id", flat=True)
    return {row.pk: row.label for row in Collection.objects.live().filter(pk__in=list(ids))}


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def new_rule(request: PageRequest, kind: str) -> HttpResponse:
    """For one collection."""
    if kind not in rules.KINDS or not rules.KINDS[kind].of_collection:
        raise Http404(f"no rule of one collection is named {kind}")
    form = RuleForm(request.POST or None, kind=rules.KINDS[kind])

    def save() -> HttpResponse:
        values = dict(form.cleaned_data)
        rules.add_rule(kind, values.pop("collection"), values, actor=request.user)
        return tell(request, gettext("Alert rule saved."), LIST)

    response, status = submit_form(request, form, save)
    context = {"form": form, "kind": rules.KINDS[kind]}
    return response or render_page(request, "evaluation/alerts/rule.html", context, status=status)


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def edit_rule(request: PageRequest, pk: int) -> HttpResponse:
    """POST with do=delete removes it."""
    rule = _rule(pk)
    if request.POST.get("do") == "delete":
        with RefusalMessages(request):
            rules.delete_rule(rule, actor=request.user)
            messages.success(request, gettext("Alert rule deleted."))
        return redirect(LIST)
    form = RuleForm(request.POST or None, kind=rules.KINDS[rule.kind], row=rule)

    def save() -> HttpResponse:
        rules.change_rule(rule, form.cleaned_data, actor=request.user)
        return tell(request, gettext("Alert rule saved."), LIST)

    response, status = submit_form(request, form, save)
    label = collection_labels().get(rule.collection_id, "")
    context = {"form": form, "kind": rules.KINDS[rule.kind], "rule": rule, "label": label}
    return response or render_page(request, "evaluation/alerts/rule.html", context, status=status)


def _rule(pk: int) -> AlertRule:
    rule = find_or_404(AlertRule.objects.all(), pk=pk)
    if rule.kind not in rules.KINDS:
        raise Http404("this version has no such rule")
    return rule


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def edit_webhook(request: PageRequest, pk: int) -> HttpResponse:
    """pk 0: a new one, whose page shows the signing key once. POST with do=key gives another one; do=test sends a
    message; do=again one that failed, the delivery; do=delete deletes the webhook."""
    row, action = find_or_404(Webhook.objects.all(), pk=pk) if pk else None, request.POST.get("do")
    if row is not None:
        if action in ("test", "again"):
            _send(request, row, action)
            return redirect(reverse("evaluation:alerts", query={"view": "webhook", "pk": row.pk}))
        if action == "key":
            return _webhook_page(request, row, WebhookForm.of(None, row), key=rules.rotate_key(row, actor=request.user))
        if action == "delete":
            rules.delete_webhook(row, actor=request.user)
            return tell(request, gettext("%(name)s deleted.") % {"name": row.name}, LIST)
    form = WebhookForm.of(request.POST or None, row) if row else WebhookForm(request.POST or None)

    def save() -> HttpResponse:
        kept, key = rules.save_webhook(form.values(), actor=request.user, row=row)
        if row is None:
            return _webhook_page(request, kept, WebhookForm.of(None, kept), key=key)
        messages.success(request, gettext("%(name)s saved.") % {"name": kept.name})
        return redirect(reverse("evaluation:alerts", query={"view": "webhook", "pk": kept.pk}))

    response, status = submit_form(request, form, save)
    if row is not None:
        return response or _webhook_page(request, row, form, status=status)
    return response or render_page(request, "evaluation/alerts/webhook.html", {"form": form}, status=status)


def _webhook_page(
    request: PageRequest, row: Webhook, form: WebhookForm, *, key: str = "", status: int = 200
) -> HttpResponse:
    context = {"form": form, "row": row, "key": key, "page": page_of(request, rules.deliveries(row), PER_PAGE)}
    response = render_page(request, "evaluation/alerts/webhook.html", context, status=status)
    if key:
        response.headers["Cache-Control"] = "no-store"
    return response


def _send(request: PageRequest, row: Webhook, action: str) -> None:
    if action == "again":
        pk = request.POST.get("delivery")
        delivery = next((each for each in rules.deliveries(row) if str(each.pk) == pk), None)
        if delivery is None:
            raise Http404(f"no delivery of {row.name} is named {pk}")
        with RefusalMessages(request):
            retry_operation(delivery)
            messages.success(request, gettext("The message is sent again."))
    elif (delivery := rules.send_test(row, actor=request.user)).error:
        text = gettext("%(name)s did not take the test: %(error)s")
        messages.error(request, text % {"name": row.name, "error": delivery.error})
    else:
        text = gettext("%(name)s answered %(status)s.")
        messages.success(request, text % {"name": row.name, "status": delivery.report["status"]})
