"""Forms of the review queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext, gettext_lazy

from collections_app.http.page_requests import field_of
from evaluation_app.models import EvaluationItem, EvaluationRun, Review, RunScore
from evaluation_app.reviews.feedback import CORRECTION_CHARS_MAX
from evaluation_app.reviews.labels import LABEL_REQUESTS, NOTE_CHARS_MAX, LabelRequest
from evaluation_app.reviews.queue import TASKS_MAX, WANTED_MAX, WHICH, WORDS

RUNS_OFFERED = 50
LIVE = "live:"
UNTOLD = "none"


class QueueForm(forms.Form):
    """Which answers come into the queue. source: "run:ID" or "live:COLLECTION"."""

    source = forms.ChoiceField(label=gettext_lazy("Source"))
    which = forms.ChoiceField(
        label=gettext_lazy("Selection"),
        choices=[(name, gettext_lazy(WORDS[name])) for name in WHICH],
        initial="random",
        help_text=gettext_lazy(
            "Only a random sample stands for all answers: judge-human agreement and anchored scores need one."
        ),
    )
    number = forms.IntegerField(label=gettext_lazy("Number of answers"), min_value=1, max_value=TASKS_MAX, initial=30)
    wanted = forms.IntegerField(
        label=gettext_lazy("Reviewers per item"),
        min_value=1,
        max_value=WANTED_MAX,
        initial=1,
        help_text=gettext_lazy("Two or more measure inter-reviewer agreement."),
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, run: str = "") -> None:
        super().__init__(data, initial={"source": f"run:{run}"} if run else None)
        field_of(self, "source", forms.ChoiceField).choices = _sources(run)


class ReviewForm(forms.Form):
    """One verdict per measure, the sentences that nothing supports, a note."""

    note = forms.CharField(required=False, max_length=NOTE_CHARS_MAX, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, data: Mapping[str, Any] | None = None, *, sentences: list[Any]) -> None:
        super().__init__(data)
        for label in LABEL_REQUESTS:
            self.fields[label.measure] = forms.ChoiceField(required=False, choices=verdict_choices(label))
        self.fields["unsupported"] = forms.MultipleChoiceField(
            required=False, choices=[(pair[0], pair[1]) for pair in sentences]
        )

    @property
    def verdicts(self) -> dict[str, float | None]:
        data = {label.measure: self.cleaned_data.get(label.measure) for label in LABEL_REQUESTS}
        return {name: None if value == UNTOLD else float(value) for name, value in data.items() if value}


class FeedbackForm(forms.Form):
    """What who asked says of an answer."""

    correct = forms.ChoiceField(
        required=False, choices=[("yes", gettext_lazy("Correct")), ("no", gettext_lazy("Incorrect")), ("", "")]
    )
    reason = forms.ChoiceField(required=False, choices=[("", ""), *Review.Reason.choices])
    comment = forms.CharField(
        required=False,
        max_length=NOTE_CHARS_MAX,
        widget=forms.Textarea(attrs={"rows": 2}),
        label=gettext_lazy("Comment"),
    )
    correction = forms.CharField(
        required=False,
        max_length=CORRECTION_CHARS_MAX,
        widget=forms.Textarea(attrs={"rows": 3}),
        label=gettext_lazy("Correct answer"),
    )

    @property
    def values(self) -> dict[str, Any]:
        """As `give_feedback` takes them."""
        correct = self.cleaned_data["correct"]
        texts = {name: self.cleaned_data[name] for name in ("comment", "correction")}
        reason = self.cleaned_data["reason"] if correct != "yes" else ""
        return {"correct": correct == "yes" if correct else None, "reason": reason, **texts}


def verdict_choices(label: LabelRequest) -> list[tuple[str, str]]:
    """(value, label) of each level of the measure, and of "cannot tell"."""
    return [*((f"{value:g}", word) for value, word in label.choices), (UNTOLD, "cannot tell")]


def _sources(run: str) -> list[tuple[str, Any]]:
    answered = EvaluationItem.objects.filter(run=OuterRef("pk"), outcome=EvaluationItem.Outcome.ANSWERED)
    runs = EvaluationRun.objects.filter(Exists(answered)).only("name", "set_name", "created_at")
    offered = list(runs.order_by("-created_at", "-id")[:RUNS_OFFERED])
    if run and run not in {str(each.pk) for each in offered}:
        offered += list(runs.filter(pk=run))
    live = RunScore.objects.order_by("collection_name").values_list("collection_name", flat=True).distinct()
    groups: list[tuple[str, Any]] = []
    if offered:
        groups.append(
            (gettext("Evaluation runs"), [(f"run:{each.pk}", f"{each} ({each.set_name})") for each in offered])
        )
    if live:
        scored = gettext("Scored answers of %(name)s")
        groups.append((gettext("Online evaluation"), [(f"{LIVE}{name}", scored % {"name": name}) for name in live]))
    return groups
