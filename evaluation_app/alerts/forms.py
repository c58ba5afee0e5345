"""What an administrator fills in about alert rules and webhooks."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy

from collections_app.models import Collection
from evaluation_app.alerts.rules import Kind
from evaluation_app.alerts.webhooks import NAME_MAX_CHARS, WebhookValues
from evaluation_app.models import AlertRule, Webhook

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

    def __init__(self, *args: Any, kind: Kind, row: AlertRule | None = None, **kwargs: Any) -> None:
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
        label=gettext_lazy("Name"), max_length=NAME_MAX_CHARS, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    url = forms.CharField(
        label=gettext_lazy("URL"),
        max_length=2000,
        widget=forms.TextInput(attrs={"class": "mono", "inputmode": "url"}),
        help_text=gettext_lazy("Receives a POST with JSON when an alert fires or is resolved."),
    )
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)

    @classmethod
    def of(cls, data: Any, row: Webhook | None) -> WebhookForm:
        fields = {name: getattr(row, name) for name in ("name", "url", "is_enabled")} if row else None
        return cls(data, initial=fields)

    def values(self) -> WebhookValues:
        return WebhookValues(**self.cleaned_data)
