"""What people fill in about golden sets and their questions. The services check the content; the forms the shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy

from collections_app.collections.models import collection_choices
from collections_app.http.form_fields import WrittenField
from collections_app.http.page_requests import field_of
from collections_app.models import Collection
from evaluation_app.golden.formats import read_thresholds, write_thresholds
from evaluation_app.golden.questions import CATEGORIES, Golden
from evaluation_app.golden.sets import CRITERIA, GUARDRAILS
from evaluation_app.judges.rubrics import Rubric
from evaluation_app.measures.catalogue import MEASURES, measure_of
from evaluation_app.models import GoldenQuestion
from ragd.errors import InvalidInput

CATEGORY_LIST = "categories"
ANSWER, REFUSAL = "answer", "refusal"


class ThresholdsField(WrittenField):
    """ "recall@10=1; adherence=1" as measure -> least value; {} for nothing."""

    read, write = staticmethod(read_thresholds), staticmethod(write_thresholds)


class GoldenSetForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=200,
        help_text=gettext_lazy("Used in URLs. No slash, ?, # or %."),
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    collection = forms.ChoiceField(label=gettext_lazy("Collection"), help_text=gettext_lazy("Cannot be changed later."))
    description = forms.CharField(
        label=gettext_lazy("Description"), required=False, widget=forms.Textarea(attrs={"rows": 3, "data-send": True})
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = collection_choices(Collection.objects.live().by_name())
        field_of(self, "collection", forms.ChoiceField).choices = choices


class GoldenSetChangeForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=200, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    description = forms.CharField(
        label=gettext_lazy("Description"), required=False, widget=forms.Textarea(attrs={"rows": 3, "data-send": True})
    )
    primary_measure = forms.ChoiceField(
        label=gettext_lazy("Primary metric"), required=False, help_text=gettext_lazy("Decides whether a run is better.")
    )
    guardrails = ThresholdsField(
        label=gettext_lazy("Guardrail metrics"),
        required=False,
        help_text="Metrics that must not drop by more, such as recall=0.05; right_outcome=0.02. Empty: "
        + write_thresholds(GUARDRAILS),
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false", "autocomplete": "off"}),
    )
    relevant_effect = forms.FloatField(
        label=gettext_lazy("Smallest relevant effect"),
        required=False,
        min_value=0,
        max_value=1,
        help_text=gettext_lazy("A smaller difference of the primary metric does not count."),
        widget=forms.NumberInput(attrs={"step": "any"}),
    )

    def __init__(self, *args: Any, rubrics: Sequence[Rubric] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = [rubric.measure for rubric in rubrics]
        present = self.initial.get("primary_measure", "")
        known = {name: measure_of(name).title for name in (*MEASURES, *own, present)}
        default = {"": gettext_lazy("Correctness where scored, else hit")}
        field_of(self, "primary_measure", forms.ChoiceField).choices = list((known | default).items())

    def criteria(self) -> dict[str, Any]:
        """Those of `golden.criteria` that were sent."""
        values = {name: self.cleaned_data[name] for name in CRITERIA if name in self.data}
        return {name: value for name, value in values.items() if value is not None}


class QuestionForm(forms.Form):
    """One question. What is expected is chosen beside it, by boxes that the form does not know."""

    question = forms.CharField(
        label=gettext_lazy("Question"), widget=forms.Textarea(attrs={"rows": 2, "data-send": True})
    )
    expects = forms.ChoiceField(
        label=gettext_lazy("This question"),
        required=False,
        initial=ANSWER,
        choices=[(ANSWER, gettext_lazy("Should be answered")), (REFUSAL, gettext_lazy("Should be refused"))],
        widget=forms.RadioSelect,
    )
    expected_answer = forms.CharField(
        label=gettext_lazy("Expected answer"),
        required=False,
        help_text=gettext_lazy("Answers are compared with it. Keep it short."),
        widget=forms.Textarea(attrs={"rows": 3, "data-send": True}),
    )
    match = forms.ChoiceField(
        label=gettext_lazy("Needed"), initial="any", choices=GoldenQuestion.Match.choices, required=False
    )
    category = forms.CharField(
        label=gettext_lazy("Category"),
        max_length=60,
        initial="factual",
        widget=forms.TextInput(attrs={"list": CATEGORY_LIST, "autocomplete": "off"}),
    )
    weight = forms.FloatField(
        label=gettext_lazy("Weight"),
        min_value=0,
        initial=1.0,
        help_text=gettext_lazy("Weight in means."),
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    place = forms.IntegerField(
        label=gettext_lazy("Position"),
        min_value=1,
        required=False,
        help_text=gettext_lazy("From 1. Default: unchanged."),
    )
    thresholds = ThresholdsField(
        label=gettext_lazy("Thresholds"),
        required=False,
        help_text=gettext_lazy("Pass criteria, such as recall@10=1; adherence=1."),
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false", "autocomplete": "off"}),
    )
    notes = forms.CharField(
        label=gettext_lazy("Notes"), required=False, widget=forms.Textarea(attrs={"rows": 2, "data-send": True})
    )
    find = forms.CharField(label=gettext_lazy("Search the collection"), required=False)
    seen = forms.DateTimeField(required=False, widget=forms.HiddenInput)

    STATED = ("question", "expected_answer", "match", "category", "weight", "thresholds", "notes")

    def stated(self, chosen: Mapping[str, Sequence[str]], answer: str = "") -> dict[str, Any]:
        """The fields of `Golden` that stand in the form, with the chosen documents and chunks; without a choice `match`
        stays as it is. answer: expected where none was typed. What should be refused expects nothing.

        Raises InvalidInput (field expected_answer) where an answer is wanted and nothing tells a right one.
        """
        stated = {name: self.cleaned_data[name] for name in self.STATED if name != "match" or self.cleaned_data[name]}
        stated["expected_answer"] = stated["expected_answer"].strip() or answer
        expects = self.cleaned_data["expects"]
        if expects == REFUSAL:
            return stated | {"expected_answer": "", **{name: [] for name in chosen}}
        if expects == ANSWER and not stated["expected_answer"] and not any(chosen.values()):
            raise InvalidInput(
                gettext(
                    "A question that should be answered needs an expected answer, a document or a chunk, and has none. "
                    "State one, or choose “Should be refused”."
                ),
                field="expected_answer",
            )
        return {**stated, **chosen}


class RunQuestionForm(QuestionForm):
    """A question out of a run, and the set that it goes into: a pk, or NEW_SET."""

    NEW_SET = "new"
    golden_set = forms.ChoiceField(label=gettext_lazy("Test set"))
    approve_answer = forms.BooleanField(label=gettext_lazy("Use this answer as the expected answer"), required=False)

    def __init__(self, *args: Any, sets: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", gettext_lazy("Choose a test set")), *sets, (self.NEW_SET, gettext_lazy("New test set"))]
        field_of(self, "golden_set", forms.ChoiceField).choices = choices


class ImportForm(forms.Form):
    file = forms.FileField(
        label=gettext_lazy("File"), required=False, help_text=gettext_lazy("CSV or JSON Lines, UTF-8.")
    )
    text = forms.CharField(
        label=gettext_lazy("Or paste text"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 5, "class": "mono", "spellcheck": "false"}),
    )
    mode = forms.ChoiceField(
        label=gettext_lazy("Existing questions"),
        initial="merge",
        choices=[
            ("merge", gettext_lazy("Merge (upsert)")),
            ("replace", gettext_lazy("Replace all")),
        ],
    )


def initial_of(golden: Golden, seen: str = "") -> dict[str, Any]:
    """The form's values for a question."""
    refuses = golden.expects_nothing and not golden.expected_answer.strip()
    stated = {name: getattr(golden, name) for name in QuestionForm.STATED}
    return stated | {"seen": seen, "expects": REFUSAL if refuses else ANSWER}


def known_categories(used: list[str]) -> list[str]:
    """Those that ragd knows, then those that the set uses besides."""
    return list(dict.fromkeys((*CATEGORIES, *used)))
