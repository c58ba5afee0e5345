"""The models that are set up: the list, the form of an endpoint, the test of a connection.

What an administrator fills in about a model endpoint. The service checks the content.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.forms import model_to_dict
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import WRITE, needs
from collections_app.endpoints import model_settings
from collections_app.endpoints.connection_test import TestResult, run_test
from collections_app.endpoints.connection_test import list_models as list_server_models
from collections_app.endpoints.model_presets import EMBEDDINGS, PRESETS, PURPOSES, RERANK, Preset
from collections_app.endpoints.registry import GROUPS, SPARSE, check_choice, find_model, list_models
from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    render_page,
    submit_form,
    tell,
    whole_number,
)
from collections_app.models import ModelSetting
from ragd.errors import InvalidInput, RagdError
from ragd.models.embedding import OPENAI_WINDOW
from ragd.models.prompts import PROMPT_PRESETS, Prompts, suggest_preset

UNNAMED = "-"  # in place of a model, where the server is asked which there are
EMBEDDING_FIELDS = ("dims", "send_dimensions", "window", "query_prompt", "passage_prompt")


class ModelSettingForm(forms.Form):
    """Of one provider and purpose; fields that do not belong to them are left out. row: the setting to be changed."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text=gettext_lazy("Defaults to provider and model."),
    )
    base_url = forms.CharField(
        label=gettext_lazy("Base URL"), max_length=500, widget=forms.TextInput(attrs={"class": "mono"})
    )
    model = forms.CharField(
        label=gettext_lazy("Model"), max_length=200, help_text=gettext_lazy("The name that the provider knows.")
    )
    api_version = forms.CharField(
        label=gettext_lazy("API version"),
        max_length=32,
        required=False,
        help_text=gettext_lazy("Such as 2024-10-21. Empty: the v1 API."),
    )
    key = forms.CharField(
        label=gettext_lazy("API key"),
        max_length=4000,
        required=False,
        strip=True,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False),
    )
    forget_key = forms.BooleanField(label=gettext_lazy("Remove the stored key"), required=False)
    dims = forms.IntegerField(label=gettext_lazy("Dimensions"), min_value=1, max_value=4000, required=False)
    send_dimensions = forms.BooleanField(
        label=gettext_lazy("Request these dimensions"),
        required=False,
        help_text=gettext_lazy("For models that can shorten their vectors (Matryoshka)."),
    )
    window = forms.IntegerField(
        label=gettext_lazy("Window (tokens)"),
        min_value=1,
        required=False,
        help_text=gettext_lazy("Longer texts are embedded in parts."),
    )
    query_prompt = forms.CharField(label=gettext_lazy("Query prompt"), max_length=1000, required=False, strip=False)
    passage_prompt = forms.CharField(
        label=gettext_lazy("Passage prompt"),
        max_length=1000,
        required=False,
        strip=False,
        help_text=gettext_lazy("Put before each text."),
    )
    is_default = forms.BooleanField(
        label=gettext_lazy("Use by default"),
        required=False,
        help_text=gettext_lazy("Used where a request names no other model."),
    )

    def __init__(
        self, *args: Any, preset: Preset, purpose: str, row: ModelSetting | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.preset, self.purpose = preset, purpose
        has_key = row is not None and bool(row.secret)
        left_out: tuple[str, ...] = ("is_default",) if purpose == EMBEDDINGS else EMBEDDING_FIELDS
        left_out += () if preset.api_version else ("api_version",)
        left_out += () if has_key and not preset.key_required else ("forget_key",)
        for name in left_out:
            del self.fields[name]
        if purpose == RERANK:
            self.fields["model"].required = False
        key = self.fields["key"]
        key.required = preset.key_required and not has_key
        key.help_text = gettext("A key is stored. Leave this empty to keep it.") if has_key else ""
        if purpose == EMBEDDINGS:
            self.fields["window"].widget.attrs["placeholder"] = str(OPENAI_WINDOW)

    @classmethod
    def usual(cls, preset: Preset, purpose: str) -> dict[str, Any]:
        """What a new form is filled with."""
        model, dims = preset.models.get(purpose, ("", None))
        known = suggest_preset(model) if purpose == EMBEDDINGS and not preset.form.query else ""
        prompts = PROMPT_PRESETS[known].prompts if known else Prompts()
        return {
            "base_url": preset.addresses[purpose],
            "model": model,
            "dims": dims,
            "query_prompt": prompts.query,
            "passage_prompt": prompts.passage,
        }

    def values(self) -> model_settings.SettingValues:
        """What the services take."""
        data = dict(self.cleaned_data)
        data["name"] = data["name"] or f"{gettext(self.preset.title)} {data['model']}".strip()[:100]
        key = data.pop("key") or None
        if data.pop("forget_key", False):
            key = ""
        return model_settings.SettingValues(purpose=self.purpose, preset=self.preset.key, key=key, **data)


ADD, CHANGE, DELETE = (f"collections_app.{verb}_modelsetting" for verb in ("add", "change", "delete"))
RESULT = {"test-result": "models/parts/test.html", "model-field": "models/parts/model.html"}


@needs(WRITE, methods="GET")
def check_choice_page(request: PageRequest) -> HttpResponse:
    """What the forms of an index show below the model that is chosen: dimensions, languages and size, what to take for
    another language, or why the model is refused."""
    name, stated = request.GET.get("embed_model", ""), request.GET.get("embed_dims", "").strip()
    context: dict[str, Any] = {}
    try:
        if stated and whole_number(stated) is None:
            raise InvalidInput(f"dimensions must be a whole number, not {stated!r}", field="embed_dims")
        context["choice"] = check_choice(name, whole_number(stated), request.GET.get("language", ""))
    except (ServiceError, RagdError) as error:
        context["refusal"] = describe(error)[1]["error"]
    return render_page(request, "models/parts/choice.html", context)


@needs(None, methods="GET")
def list_page(request: PageRequest) -> HttpResponse:
    """For everybody who is logged in; nothing secret is in it."""
    entries = list_models()
    groups = [
        (title, of_purpose, key in (EMBEDDINGS, SPARSE))
        for key, title in GROUPS.items()
        if (of_purpose := [entry for entry in entries if entry.purpose == key])
    ]
    context = {"groups": groups, "may_add": request.user.has_perm(ADD), "may_change": request.user.has_perm(CHANGE)}
    return render_page(request, "models/list.html", context)


@needs(None, methods="GET POST")
def add(request: PageRequest) -> HttpResponse:
    """First the choice of a provider and a purpose, then its form."""
    _require(request, ADD)
    key, purpose = request.GET.get("preset", ""), request.GET.get("purpose", "")
    if not (key or purpose):
        offered = [
            (preset, [(each, PURPOSES[each]) for each in PURPOSES if preset.offers(each)])
            for preset in PRESETS.values()
        ]
        return render_page(request, "models/presets.html", {"presets": offered})
    preset = _preset(key, purpose)
    form = ModelSettingForm(
        request.POST or None, preset=preset, purpose=purpose, initial=ModelSettingForm.usual(preset, purpose)
    )
    return _edit(request, form, None)


@needs(None, methods="GET POST")
def edit(request: PageRequest, pk: int) -> HttpResponse:
    _require(request, CHANGE)
    row = find_or_404(ModelSetting.objects.all(), pk=pk)
    preset = _preset(row.preset, row.purpose)
    form = ModelSettingForm(
        request.POST or None, preset=preset, purpose=row.purpose, row=row, initial=model_to_dict(row)
    )
    return _edit(request, form, row)


def _edit(request: PageRequest, form: ModelSettingForm, row: ModelSetting | None) -> HttpResponse:
    """The form; with do=test, what one call of what is filled in finds, and nothing is saved. do=test-save saves what
    answers; dimensions that were left out are those of the answer. do=models asks the server alone what it lists."""
    result: TestResult | None = None
    if request.POST.get("do") == "models":
        for name in ("model", "dims"):
            if name in form.fields:
                form.fields[name].required = False

    def save() -> HttpResponse:
        nonlocal result
        values, do = form.values(), request.POST.get("do")
        if do == "models":
            names, result = list_server_models(
                model_settings.draft_endpoint(replace(values, model=values.model or UNNAMED), row)
            )
            if names:
                known = [*dict.fromkeys(filter(None, (values.model, *names)))]
                form.fields["model"].widget = forms.Select(choices=[(name, name) for name in known])
            return _page(request, form, row, result, 200)
        if do in ("test", "test-save"):
            result = run_test(model_settings.draft_endpoint(values, row))
            if do == "test" or not result.passed:
                return _page(request, form, row, result, 200)
            values = replace(values, dims=values.dims or result.dims)
        saved = model_settings.save_setting(values, actor=request.user, row=row)
        return tell(request, gettext("%(name)s saved.") % {"name": saved.name}, "collections:models")

    response, status = submit_form(request, form, save)
    return response or _page(request, form, row, None, status)


def _page(
    request: PageRequest, form: ModelSettingForm, row: ModelSetting | None, result: TestResult | None, status: int
) -> HttpResponse:
    context: dict[str, Any] = {
        "form": form,
        "row": row,
        "preset": form.preset,
        "purpose": PURPOSES[form.purpose],
        "result": result,
        "is_refused": form.is_bound and bool(form.errors),
        "may_delete": request.user.has_perm(DELETE),
        "uses": model_settings.uses_of(row.identity) if row is not None and row.identity else [],
    }
    return render_page(request, "models/edit.html", context, parts=RESULT, status=status)


@needs(None, methods="POST")
def test(request: PageRequest, key: str) -> HttpResponse:
    """One call of an endpoint that is set up. It may cost money: for those who may change settings."""
    _require(request, CHANGE)
    entry = find_model(key)
    if entry is None or entry.endpoint is None or not entry.can_test:
        raise Http404("no endpoint of that name is set up")
    result = run_test(entry.endpoint)
    if not request.htmx:
        level = messages.success if result.passed else messages.error
        level(request, f"{entry.title}: {'answered' if result.passed else result.message}")
        return redirect("collections:models")
    return render_page(request, "models/parts/test.html", {"result": result, "is_row": True, "anchor": entry.anchor})


@needs(None, methods="POST")
def delete(request: PageRequest, pk: int) -> HttpResponse:
    _require(request, DELETE)
    row = find_or_404(ModelSetting.objects.all(), pk=pk)
    name = row.name
    with RefusalMessages(request):
        model_settings.delete_setting(row, actor=request.user)
        messages.success(request, gettext("%(name)s deleted.") % {"name": name})
    return redirect("collections:models")


def _require(request: PageRequest, permission: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied("models are set up by administrators; ask one of them")


def _preset(key: str, purpose: str) -> Preset:
    preset = PRESETS.get(key)
    if preset is None or not preset.offers(purpose):
        raise Http404("no such provider offers that")
    return preset
