"""What is measured and what must hold, as forms. The plan has a form of its own (`retrieval_app.plans.forms`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy

from collections_app.http.page_requests import field_of
from evaluation_app.measures.catalogue import CUTS, MEASURES
from evaluation_app.measures.ranking import DOWNSTREAM
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.scoring.judge_selection import CUT, CUT_MAX, RunSettings, has_judge_model
from retrieval_app.answers.chat_answerer import has_chat_model

SEARCH, UNJUDGED = "search", "none"
BASES = 20
MEASURED = [
    ("embedded", gettext_lazy("Answers + embedded judge")),
    ("llm", gettext_lazy("Answers + LLM judge")),
    (UNJUDGED, gettext_lazy("Answers without judge")),
    (SEARCH, gettext_lazy("Retrieval only")),
]
UNITS = [("tokens", gettext_lazy("Words")), ("sentences", gettext_lazy("Sentences (RAGBench)"))]
CORRECTIVE = [
    ("", gettext_lazy("Collection default")),
    ("yes", gettext_lazy("Enabled")),
    ("no", gettext_lazy("Disabled")),
]
GROUPS = (
    ("retrieval", gettext_lazy("Retrieval")),
    ("trace", gettext_lazy("Context and answer")),
    ("answer", gettext_lazy("Expected answer")),
    ("outcome", gettext_lazy("Outcome")),
)


class SettingsForm(forms.Form):
    """`RunSettings`, and a name for the run. A field is named as the setting; one that is left empty has its default.

    Those after `cut` are rarely changed; the check box stands last.
    """

    name = forms.CharField(
        label=gettext_lazy("Name"), required=False, max_length=200, help_text=gettext_lazy("Shown in lists.")
    )
    measured = forms.ChoiceField(label=gettext_lazy("Evaluate"), choices=MEASURED, initial="embedded")
    cut = forms.IntegerField(
        label="k",
        min_value=1,
        max_value=CUT_MAX,
        initial=CUT,
        help_text=gettext_lazy("For recall@k and other ranking metrics."),
    )
    judge_model = forms.CharField(label=gettext_lazy("Judge model"), required=False, max_length=200)
    unit = forms.ChoiceField(label=gettext_lazy("Length unit"), choices=UNITS, initial="tokens", required=False)
    corrective = forms.TypedChoiceField(
        label=gettext_lazy("Corrective step"), choices=CORRECTIVE, required=False, empty_value=None,
        coerce=lambda value: value == "yes",
    )  # fmt: skip
    llm_model = forms.CharField(label=gettext_lazy("Chat model"), required=False, max_length=200)
    system_prompt = forms.CharField(
        label=gettext_lazy("System prompt"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("Replaces the default system prompt; the citation rules are kept."),
    )
    downstream = forms.ChoiceField(
        label=gettext_lazy("eRAG metric"), choices=[(name, gettext_lazy(MEASURES[name].title)) for name in DOWNSTREAM],
        initial="f1", required=False,
    )  # fmt: skip
    contributions = forms.BooleanField(
        label=gettext_lazy("Measure the contribution of each document (eRAG)"),
        required=False,
        initial=False,
        help_text=gettext_lazy("Also answers from each retrieved document alone."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not has_judge_model():
            field_of(self, "measured", forms.ChoiceField).choices = [pair for pair in MEASURED if pair[0] != "llm"]
            del self.fields["judge_model"]
        if not has_chat_model():
            del self.fields["llm_model"], self.fields["system_prompt"]

    @property
    def usual(self) -> list[forms.BoundField]:
        return [self[name] for name in ("name", "measured", "cut")]

    @property
    def further(self) -> list[forms.BoundField]:
        """What is rarely changed."""
        return [bound for bound in self if bound not in self.usual]

    @property
    def is_changed(self) -> bool:
        """Whether any of what is rarely changed differs from its default, so that it must be seen."""
        return any(bound.value() not in (None, "", bound.field.initial) for bound in self.further)

    def run_settings(self) -> RunSettings:
        """Raises InvalidInput for what does not fit together."""
        data = self.cleaned_data
        if data["measured"] == SEARCH:
            return RunSettings(answers=False, judge="none", cut=data["cut"])
        names = (field.name for field in fields(RunSettings))
        stated: dict[str, Any] = {name: data[name] for name in names if data.get(name) not in (None, "")}
        return RunSettings(**stated, judge=data["measured"])


def settings_values(settings: RunSettings) -> dict[str, Any]:
    """Settings as the fields of `SettingsForm`, to begin from those of another run."""
    corrective = {None: "", True: "yes", False: "no"}[settings.corrective]
    return settings.as_dict() | {"measured": settings.judge if settings.answers else SEARCH, "corrective": corrective}


class BaseRunForm(forms.Form):
    """The run that a new one is compared with: one of the set's last finished ones, "" for its baseline."""

    base = forms.ChoiceField(
        label=gettext_lazy("Compare with"),
        required=False,
        help_text=gettext_lazy("Base run of the comparison."),
        widget=forms.Select,
    )

    def __init__(self, data: Mapping[str, Any] | None, *, golden_set: GoldenSet, like: EvaluationRun | None) -> None:
        super().__init__(data, initial={"base": str(like.pk) if like is not None else ""})
        done = golden_set.runs.filter(state=EvaluationRun.State.SUCCEEDED).defer("summary")
        self.runs = {str(run.pk): run for run in done.order_by("-created_at", "-id")[:BASES]}
        if like is not None and like.golden_set_id == golden_set.pk:
            self.runs.setdefault(str(like.pk), like)
        field_of(self, "base", forms.ChoiceField).choices = [
            ("", gettext_lazy("Baseline of the test set") if golden_set.baseline_id else gettext_lazy("None")),
            *((key, f"{run}, {run.created_at:%Y-%m-%d %H:%M}") for key, run in self.runs.items()),
        ]

    @property
    def chosen(self) -> EvaluationRun | None:
        """None for the set's baseline. A request that does not say it means the run that it begins from."""
        return self.runs.get(self.cleaned_data["base"] if "base" in self.data else self.initial["base"])


class ThresholdsForm(forms.Form):
    """The least mean that passes, one field per measure, without the cut; an empty one demands nothing.

    known: a run whose means are shown in the empty fields; called: what it is.
    """

    def __init__(self, *args: Any, known: EvaluationRun | None = None, called: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        measured: Mapping[str, Any] = known.summary.get("measures", {}) if known else {}
        means = {name.partition("@")[0]: mean["value"] for name, mean in measured.items()}
        for measure in MEASURES.values():
            if measure.group not in dict(GROUPS):
                continue
            shown = f"{called} {means[measure.name]:.3f}" if means.get(measure.name) is not None else ""
            self.fields[measure.name] = forms.FloatField(
                label=gettext(measure.title), required=False, min_value=0, max_value=1,
                widget=forms.NumberInput(
                    attrs={"step": "any", "placeholder": shown, "title": gettext(measure.meaning)}
                ),
            )  # fmt: skip

    @property
    def groups(self) -> list[tuple[str, list[forms.BoundField]]]:
        """(title, fields) in the catalogue's order."""
        return [(str(title), [self[name] for name in self._names(group)]) for group, title in GROUPS]

    @property
    def is_set(self) -> bool:
        return any(self[name].value() not in (None, "") for name in self.fields)

    def thresholds(self, cut: int) -> dict[str, float]:
        return {
            f"{name}@{cut}" if name in CUTS else name: value
            for name, value in self.cleaned_data.items()
            if value is not None
        }

    def _names(self, group: str) -> Sequence[str]:
        return [name for name, measure in MEASURES.items() if measure.group == group]


def threshold_values(thresholds: Mapping[str, float]) -> dict[str, float]:
    """Thresholds of another run as the fields of `ThresholdsForm`."""
    return {name.partition("@")[0]: value for name, value in thresholds.items()}
