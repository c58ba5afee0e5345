"""The page of the leak probe: choose a person and a collection, and see what came back."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from collections_app.http.page_requests import PageRequest, field_of, render_page
from collections_app.models import Collection
from evaluation_app.leak_probe.probe import ProbeReport, probe

ROUNDS = 1  # of the page, which answers when all is asked; the command asks more


class ProbeForm(forms.Form):
    person = forms.ModelChoiceField(label=gettext_lazy("Person"), queryset=User.objects.none())
    collection = forms.ModelChoiceField(label=gettext_lazy("Collection"), queryset=Collection.objects.none())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        people = User.objects.filter(is_active=True).order_by("username")
        field_of(self, "person", forms.ModelChoiceField).queryset = people
        collection, rows = field_of(self, "collection", forms.ModelChoiceField), Collection.objects.live().by_name()
        collection.queryset = rows
        collection.choices = [("", "---------"), *((row.pk, row.label) for row in rows)]


@require_http_methods(["GET", "HEAD", "POST"])
def leak_probe(request: PageRequest) -> HttpResponse:
    form, status = ProbeForm(request.POST or None, initial=request.GET.dict()), 200
    report: ProbeReport | None = None
    if request.method == "POST":
        status = 422
        if form.is_valid():
            report = probe(form.cleaned_data["person"], [form.cleaned_data["collection"]], rounds=ROUNDS)
            status = 200
    return render_page(request, "evaluation/leak_probe.html", {"form": form, "report": report}, status=status)
