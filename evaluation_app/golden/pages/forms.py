"""What people fill in about golden sets and their questions. The services check the content; the forms the shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from collections_app.http.page_requests import field_of
from collections_app.models import Collection
from evaluation_app.golden.criteria import CRITERIA, GUARDRAILS
from evaluation_app.golden.questions import CATEGORIES, Golden
from evaluation_app.golden.transfer.formats import read_thresholds, write_thresholds
from evaluation_app.measures.catalogue import MEASURES, measure_of
from evaluation_app.models import GoldenQuestion
from evaluation_app.rubrics.definitions import Rubric
from ragd.errors import InvalidInput

CATEGORY_LIST = "categories"


class ThresholdsField(forms.CharField):
    """ "recall@10=1; adherence=1" as measure -> least value; {} for nothing."""

    def to_python(self, value: Any) -> Any:
        try:
            return read_thresholds(str(value or ""))
        except InvalidInput as error:
            raise ValidationError(error.message) from None

    def validate(self, value: Any) -> None:
        return

    def run_validators(self, value: Any) -> None:
        return

    def prepare_value(self, value: Any) -> Any:
        return write_thresholds(value) if isinstance(value, Mapping) else value


class GoldenSetForm(forms.Form):
    name = forms.CharField(
        label="Name",
        max_length=200,
        help_text="Used in URLs. No slash, ?, # or %.",
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    collection = forms.ChoiceField(label="Collection", help_text="Cannot be changed later.")
    description = forms.CharField(
        label="Description", required=False, widget=forms.Textarea(attrs={"rows": 3, "data-send": True})
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Collection.objects.live().by_name().values_list("name", flat=True)
        field_of(self, "collection", forms.ChoiceField).choices = [(name, name) for name in names]


class GoldenSetChangeForm(forms.Form):
    name = forms.CharField(label="Name", max_length=200, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(
        label="Description", required=False, widget=forms.Textarea(attrs={"rows": 3, "data-send": True})
    )
    primary_measure = forms.ChoiceField(
        label="Primary metric", required=False, help_text="Decides whether a run is better."
    )
    guardrails = ThresholdsField(
        label="Guardrail metrics",
        required=False,
        help_text="Metrics that must not drop by more, such as recall=0.05; right_outcome=0.02. Empty: "
        + write_thresholds(GUARDRAILS),
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false", "autocomplete": "off"}),
    )
    relevant_effect = forms.FloatField(
        label="Smallest relevant effect",
        required=False,
        min_value=0,
        max_value=1,
        help_text="A smaller difference of the primary metric does not count.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )

    def __init__(self, *args: Any, rubrics: Sequence[Rubric] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = [rubric.measure for rubric in rubrics]
        present = self.initial.get("primary_measure", "")
        known = {name: measure_of(name).title for name in (*MEASURES, *own, present)}
        default = {"": "Correctness where scored, else hit"}
        field_of(self, "primary_measure", forms.ChoiceField).choices = list((known | default).items())

    def criteria(self) -> dict[str, Any]:
        """Those of `golden.criteria` that were sent."""
        values = {name: self.cleaned_data[name] for name in CRITERIA if name in self.data}
        return {name: value for name, value in values.items() if value is not None}


class QuestionForm(forms.Form):
    """One question. What is expected is chosen beside it, by boxes that the form does not know."""

    question = forms.CharField(label="Question", widget=forms.Textarea(attrs={"rows": 2, "data-send": True}))
    expected_answer = forms.CharField(
        label="Expected answer",
        required=False,
        help_text="Answers are compared with it. Keep it short.",
        widget=forms.Textarea(attrs={"rows": 3, "data-send": True}),
    )
    match = forms.ChoiceField(label="Needed", initial="any", choices=GoldenQuestion.Match.choices, required=False)
    category = forms.CharField(
        label="Category",
        max_length=60,
        initial="factual",
        widget=forms.TextInput(attrs={"list": CATEGORY_LIST, "autocomplete": "off"}),
    )
    weight = forms.FloatField(
        label="Weight",
        min_value=0,
        initial=1.0,
        help_text="Weight in means.",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    place = forms.IntegerField(label="Position", min_value=1, required=False, help_text="From 1. Default: unchanged.")
    thresholds = ThresholdsField(
        label="Thresholds",
        required=False,
        help_text="Pass criteria, such as recall@10=1; adherence=1.",
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false", "autocomplete": "off"}),
    )
    notes = forms.CharField(label="Notes", required=False, widget=forms.Textarea(attrs={"rows": 2, "data-send": True}))
    find = forms.CharField(label="Search the collection", required=False)
    seen = forms.DateTimeField(required=False, widget=forms.HiddenInput)

    STATED = ("question", "expected_answer", "match", "category", "weight", "thresholds", "notes")

    def stated(self) -> dict[str, Any]:
        """The fields of `Golden` that stand in the form; without a choice `match` stays as it is."""
        return {name: self.cleaned_data[name] for name in self.STATED if name != "match" or self.cleaned_data[name]}


class RunQuestionForm(QuestionForm):
    """A question out of a run, and the set that it goes into: a pk, or NEW_SET."""

    NEW_SET = "new"
    golden_set = forms.ChoiceField(label="Test set")
    approve_answer = forms.BooleanField(label="Use this answer as the expected answer", required=False)

    def __init__(self, *args: Any, sets: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", "Choose a test set"), *sets, (self.NEW_SET, "New test set")]
        field_of(self, "golden_set", forms.ChoiceField).choices = choices


class ImportForm(forms.Form):
    file = forms.FileField(label="File", required=False, help_text="CSV or JSON Lines, UTF-8.")
    text = forms.CharField(
        label="Or paste text",
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 5, "class": "mono", "spellcheck": "false"}),
    )
    mode = forms.ChoiceField(
        label="Existing questions",
        initial="merge",
        choices=[
            ("merge", "Merge (upsert)"),
            ("replace", "Replace all"),
        ],
    )


def initial_of(golden: Golden, seen: str = "") -> dict[str, Any]:
    """The form's values for a question."""
    return {name: getattr(golden, name) for name in QuestionForm.STATED} | {"seen": seen}


def known_categories(used: list[str]) -> list[str]:
    """Those that ragd knows, then those that the set uses besides."""
    return list(dict.fromkeys((*CATEGORIES, *used)))
