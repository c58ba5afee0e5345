"""The pages of assistants: the list, and the form that makes or changes one."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.access.rules import ASK, WRITE, needs
from collections_app.http.form_fields import LinesField
from collections_app.http.page_requests import PageRequest, field_of, find_or_404, render_page, submit_form, tell
from collections_app.models import Collection
from retrieval_app.chat.assistants import (
    AssistantFields,
    collections_of_assistant,
    delete_assistant,
    may_write,
    save_assistant,
)
from retrieval_app.models import ChatAssistant
from retrieval_app.search.degrading import known_models


class AssistantForm(forms.Form):
    """What is said of an assistant."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=80)
    collections = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Collections"), queryset=Collection.objects.none(), widget=forms.CheckboxSelectMultiple
    )
    llm_model = forms.ChoiceField(label=gettext_lazy("Chat model"), required=False)
    prompt = forms.CharField(
        label=gettext_lazy("Instructions"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy("Replaces the system prompt. The rules for citing stay."),
    )
    greeting = forms.CharField(label=gettext_lazy("Greeting"), required=False, max_length=1000)
    starters = LinesField(
        label=gettext_lazy("Starter questions"), required=False, help_text=gettext_lazy("One a line, up to 8.")
    )

    is_public = forms.BooleanField(
        label=gettext_lazy("Public page"),
        required=False,
        help_text=gettext_lazy("Anybody who knows its address may ask, without an account."),
    )
    origins = LinesField(
        label=gettext_lazy("Sites that may show it in a frame"),
        required=False,
        help_text=gettext_lazy("One a line, such as https://www.example.org. Empty: none."),
    )
    per_minute = forms.IntegerField(
        label=gettext_lazy("Questions of one address in a minute"), min_value=1, max_value=600, initial=5
    )
    per_day = forms.IntegerField(
        label=gettext_lazy("Questions of one address in a day"), min_value=1, max_value=100_000, initial=50
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        access = current_access()
        rows = Collection.objects.live().by_name()
        if not access.may(Permission.WRITE):
            own = [pk for pk, given in access.collections.items() if Permission.WRITE in given]
            rows = rows.filter(pk__in=own)
        collections = field_of(self, "collections", forms.ModelMultipleChoiceField)
        collections.queryset, collections.choices = rows, [(row.pk, row.label) for row in rows]
        models = [("", gettext_lazy("Default")), *((name, name) for name in sorted(known_models()) if name)]
        field_of(self, "llm_model", forms.ChoiceField).choices = models

    def fields_of(self) -> AssistantFields:
        """As `save_assistant` takes them."""
        data = {name: self.cleaned_data[name] for name in self.fields}
        return AssistantFields(**data | {"collections": list(data["collections"])})


@needs(ASK, methods="GET")
def list_assistants(request: PageRequest) -> HttpResponse:
    rows = [
        {"assistant": each, "collections": collections_of_assistant(each), "may_write": may_write(each)}
        for each in ChatAssistant.objects.by_name()
    ]
    return render_page(request, "retrieval/chat/assistants.html", {"rows": rows})


@needs(WRITE, methods="GET POST")
def edit_assistant(request: PageRequest, pk: int | None = None) -> HttpResponse:
    """pk None: a new one."""
    found = _writable(pk) if pk is not None else None
    initial = (
        {name: getattr(found, name) for name in AssistantForm.base_fields if name != "collections"} if found else {}
    )
    form = AssistantForm(
        request.POST if request.method == "POST" else None,
        initial=initial | ({"collections": collections_of_assistant(found)} if found else {}),
    )

    def save() -> HttpResponse:
        saved = save_assistant(form.fields_of(), found, actor=request.user)
        return tell(request, gettext("Assistant %(name)s saved.") % {"name": saved.name}, "retrieval:chat-assistants")

    response, status = submit_form(request, form, save)
    context = {"form": form, "assistant": found, "server": f"{request.scheme}://{request.get_host()}"}
    return response or render_page(request, "retrieval/chat/assistant.html", context, status=status)


@needs(WRITE, methods="POST")
def remove_assistant(request: PageRequest, pk: int) -> HttpResponse:
    found = _writable(pk)
    delete_assistant(found, actor=request.user)
    return tell(request, gettext("Assistant %(name)s deleted.") % {"name": found.name}, "retrieval:chat-assistants")


def _writable(pk: int) -> ChatAssistant:
    """Raises PermissionDenied for who may not write in all its collections."""
    found: ChatAssistant = find_or_404(ChatAssistant.objects.all(), pk=pk)
    if not may_write(found):
        raise PermissionDenied
    return found
