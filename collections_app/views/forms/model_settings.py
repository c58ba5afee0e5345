"""What an administrator fills in about a model endpoint. The service checks the content."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy

from collections_app.domain.model_presets import EMBEDDINGS, RERANK, Preset
from collections_app.models import ModelSetting
from collections_app.services.models.model_settings import SettingValues
from ragd.models.embedding import OPENAI_WINDOW
from ragd.models.prompts import PROMPT_PRESETS, Prompts, suggest_preset

EMBEDDING_FIELDS = ("dims", "send_dimensions", "window", "query_prompt", "passage_prompt")


class ModelSettingForm(forms.Form):
    """Of one provider and purpose; fields that do not belong to them are left out. row: the setting to be changed."""

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"})
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
            "name": f"{preset.title} {model}".strip(),
            "base_url": preset.addresses[purpose],
            "model": model,
            "dims": dims,
            "query_prompt": prompts.query,
            "passage_prompt": prompts.passage,
        }

    def values(self) -> SettingValues:
        """What the services take."""
        data = dict(self.cleaned_data)
        key = data.pop("key") or None
        if data.pop("forget_key", False):
            key = ""
        return SettingValues(purpose=self.purpose, preset=self.preset.key, key=key, **data)
