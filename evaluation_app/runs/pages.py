"""Pages that start an evaluation run or a calibration, their forms, and the download of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.context import system_access
from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.errors import ServiceError
from collections_app.http.page_requests import (
    PageRequest,
    field_of,
    find_or_404,
    refuse,
    render_page,
    submit_form,
    tell,
)
from collections_app.index.stores import open_rerankers
from collections_app.models import Collection
from evaluation_app.golden.sets import listed_sets, set_named
from evaluation_app.measures.catalogue import CUTS, MEASURES
from evaluation_app.measures.scores import DOWNSTREAM
from evaluation_app.models import EvaluationRun, GoldenQuestion, GoldenSet
from evaluation_app.runs.api import jsonl_response
from evaluation_app.runs.calibration_fit import TARGET, calibrate
from evaluation_app.runs.lifecycle import RunRequest, start_run
from evaluation_app.runs.requests import count_model_calls, estimate_plans, find_run, read_answerer
from evaluation_app.scoring.judge_selection import CUT, CUT_MAX, RunSettings, has_judge_model
from ragd.errors import InvalidInput, RagdError
from ragd.types import RetrievePlan
from retrieval_app.answers.chat_answerer import has_chat_model
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.models import SavedPlan
from retrieval_app.plans.forms import PlanForm, form_values

SEARCH, UNJUDGED = "search", "none"
BASES = 20
MEASURED = [
    ("embedded", gettext_lazy("Answers + embedded judge")),
    ("llm", gettext_lazy("Answers + LLM judge")),
    ("panel", gettext_lazy("Answers + panel of judges")),
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
    judge_model = forms.CharField(
        label=gettext_lazy("Judge model"), required=False, max_length=200,
        help_text=gettext_lazy("Of a panel its judges, separated by commas: embedded, and chat models."),
    )  # fmt: skip
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
            choices = [pair for pair in MEASURED if pair[0] not in ("llm", "panel")]
            field_of(self, "measured", forms.ChoiceField).choices = choices
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


PLAN_PREFIX, LEAST_PREFIX = "plan", "least"
QUESTIONS_MAX = 300  # in a request; the command has no limit
PARTS = {"calibrate": "evaluation/calibration/form.html"}


@needs(EVALUATE, methods="GET POST")
def new_run(request: PageRequest) -> HttpResponse:
    """set=NAME chooses the golden set; run=ID begins from the plan, settings and thresholds of that run.

    404 for a set or a run that is not there; the page says which sets there are.
    """
    live = Collection.objects.live().values("name")
    sets = list(listed_sets().filter(collection_name__in=live).select_related("baseline"))
    try:
        like = _like(request)
        chosen = _chosen(request, sets, like)
    except InvalidInput as error:
        context: dict[str, Any] = {"sets": sets, "error": error.message}
        return render_page(request, "evaluation/runs/new.html", context, status=404)
    context = {"sets": sets, "golden_set": chosen, "like": like}
    collection = Collection.objects.live().filter(name=chosen.collection_name).first() if chosen else None
    if chosen is None or collection is None:
        return render_page(request, "evaluation/runs/new.html", context)
    is_sent = request.method == "POST"
    last = chosen.runs.filter(state=EvaluationRun.State.SUCCEEDED).order_by("-created_at", "-id").first()
    forms_of_run = RunForms(
        plan=_plan_form(request, collection, like),
        settings=SettingsForm(request.POST) if is_sent else SettingsForm(initial=_settings_of(like)),
        least=ThresholdsForm(
            request.POST if is_sent else None,
            initial={name.partition("@")[0]: value for name, value in like.thresholds.items()} if like else {},
            known=chosen.baseline or last,
            called="baseline" if chosen.baseline else "last",
            prefix=LEAST_PREFIX,
        ),
        base=BaseRunForm(request.POST if is_sent else None, golden_set=chosen, like=like),
    )
    is_estimate = request.POST.get("do") == "estimate"
    if is_sent and not is_estimate and (started := _start(request, chosen, forms_of_run)) is not None:
        return redirect(started)
    is_valid = forms_of_run.are_valid() if is_sent else forms_of_run.plan.is_valid()
    estimate: dict[str, Any] = _estimate(chosen, collection, forms_of_run, like) if is_valid else {}
    status = 200 if not is_sent or (is_estimate and is_valid) else 422
    context |= {
        "collection": collection,
        "form": forms_of_run.settings,
        "plan_form": forms_of_run.plan,
        "least": forms_of_run.least,
        "base_form": forms_of_run.base,
        "least_open": forms_of_run.least.is_set or bool(forms_of_run.least.errors),
        "options_open": like is not None or is_sent,
        "last": last,
        "under_way": chosen.runs.filter(state__in=("queued", "running")).count(),
        **estimate,
    }
    parts = {"estimate": "evaluation/runs/estimate.html"}
    return render_page(request, "evaluation/runs/new.html", context, parts=parts, status=status)


@dataclass(frozen=True, slots=True)
class RunForms:
    """What is filled in to start a run."""

    plan: PlanForm
    settings: SettingsForm
    least: ThresholdsForm
    base: BaseRunForm

    def are_valid(self) -> bool:
        """All are asked, so that each says what is wrong with it."""
        verdicts = [form.is_valid() for form in (self.plan, self.settings, self.least, self.base)]
        return all(verdicts)


def _estimate(
    golden_set: GoldenSet, collection: Collection, filled: RunForms, like: EvaluationRun | None
) -> dict[str, Any]:
    """What the run would take; {} where what is filled in does not fit together. A form that was not sent yet stands
    for the run that it begins from, else for the defaults."""
    try:
        if filled.settings.is_bound:
            settings = filled.settings.run_settings()
        else:
            settings = RunSettings.from_dict(like.settings) if like else RunSettings()
        plan = filled.plan.chosen().plan
        answerer, _ = read_answerer(collection, settings)
    except (ServiceError, RagdError):
        return {}
    estimate = estimate_plans(golden_set, [plan], settings)
    asks_model = answerer not in ("", ExtractiveAnswerer.model)
    calls = count_model_calls(golden_set, plan, settings, asks_model=asks_model)
    return {"estimate": estimate, "model_calls": calls, "is_answering": settings.answers}


@needs(READ, EVALUATE, methods="GET")
def download_run(request: PageRequest, pk: UUID) -> StreamingHttpResponse:
    """The run and its items as JSON Lines."""
    return jsonl_response(request, get_object_or_404(EvaluationRun, pk=pk))


def _like(request: PageRequest) -> EvaluationRun | None:
    """None without `run` in the address. Raises InvalidInput (field "run") for a run that is not there."""
    requested = request.GET.get("run", "")
    try:
        return find_run(requested) if requested else None
    except ServiceError as error:
        raise InvalidInput(f"There is no evaluation run {requested!r} to begin from.", field="run") from error


def _chosen(request: PageRequest, sets: list[GoldenSet], like: EvaluationRun | None) -> GoldenSet | None:
    """The one that the address names, else that of the run to begin from, else the first that has a question.

    Raises InvalidInput (field "set") for a name that no set over a live collection has.
    """
    requested = request.GET.get("set", "")
    if requested:
        return set_named(sets, requested)
    of_run = next((each for each in sets if like is not None and each.pk == like.golden_set_id), None)
    filled = (each for each in sets if getattr(each, "questions_total", 0))
    return of_run or next(filled, sets[0] if sets else None)


def _plan_form(request: PageRequest, collection: Collection, like: EvaluationRun | None) -> PlanForm:
    provided: Mapping[str, Any] = request.POST
    if request.method != "POST":
        explicit = form_values(RetrievePlan.from_dict(like.plan)) if like else {}
        provided = {f"{PLAN_PREFIX}-{name}": value for name, value in explicit.items()}
    saved = list(SavedPlan.objects.of(collection).by_name())
    return PlanForm(
        provided, collection=collection, saved=saved, rerankers=sorted(open_rerankers()), prefix=PLAN_PREFIX
    )


def _settings_of(like: EvaluationRun | None) -> dict[str, Any]:
    if like is None:
        return {}
    try:
        return settings_values(RunSettings.from_dict(like.settings))
    except InvalidInput:  # kept by a version that had other settings
        return {}


def _start(request: PageRequest, golden_set: GoldenSet, filled: RunForms) -> EvaluationRun | None:
    """The run; None when something does not fit, which the forms then say."""
    plan_form, form = filled.plan, filled.settings
    if not filled.are_valid():
        return None
    try:
        chosen = plan_form.chosen()
    except (ServiceError, RagdError) as error:
        refuse(plan_form, error)
        return None
    try:
        settings = form.run_settings()
        return start_run(
            golden_set,
            RunRequest(
                plan=chosen.plan,
                plan_name=chosen.name,
                settings=settings,
                name=form.cleaned_data["name"],
                thresholds=filled.least.thresholds(settings.cut),
                base_run=filled.base.chosen,
            ),
            actor=request.user,
        )
    except (ServiceError, RagdError) as error:
        field = getattr(error, "field", None)
        refuse(plan_form if field in plan_form.fields else form, error)
        return None


class CalibrateForm(forms.Form):
    """set: of the collection. unanswerable: of others."""

    set = forms.ModelChoiceField(label=gettext_lazy("Test set"), queryset=GoldenSet.objects.none(), empty_label=None)
    target = forms.FloatField(
        label=gettext_lazy("Target precision"),
        min_value=0.51,
        max_value=1.0,
        initial=TARGET,
        help_text=gettext_lazy("For retrievals classified as correct and as incorrect."),
    )
    unanswerable = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Unanswerable questions"),
        queryset=GoldenSet.objects.none(),
        required=False,
        help_text=gettext_lazy("Test sets of other collections, as negative examples."),
        widget=forms.CheckboxSelectMultiple,
    )

    def __init__(self, data: QueryDict | None, *, collection: Collection) -> None:
        super().__init__(data)
        sets = GoldenSet.objects.order_by("name")
        self.own = sets.filter(collection_name=collection.name)
        self.others = sets.exclude(collection_name=collection.name)
        field_of(self, "set", forms.ModelChoiceField).queryset = self.own
        field_of(self, "unanswerable", forms.ModelMultipleChoiceField).queryset = self.others

    def clean(self) -> None:
        super().clean()
        chosen = [self.cleaned_data.get("set"), *(self.cleaned_data.get("unanswerable") or ())]
        with system_access():
            count = GoldenQuestion.objects.filter(golden_set__in=filter(None, chosen), suggested=False).count()
        if count > QUESTIONS_MAX:
            raise forms.ValidationError(
                f"{count} questions are too many for a page, which takes at most {QUESTIONS_MAX}; run manage.py ragd "
                "calibrate instead"
            )


@needs(EVALUATE, methods="GET POST")
def calibrate_page(request: PageRequest, name: str) -> HttpResponse:
    """A POST calibrates and leads to the collection's figures."""
    collection = find_or_404(Collection.objects.live().with_counts(), name=name)
    form = CalibrateForm(request.POST if request.method == "POST" else None, collection=collection)

    def save() -> HttpResponse:
        data = form.cleaned_data
        unanswerable = list(data["unanswerable"])
        calibrate(collection, data["set"], unanswerable=unanswerable, target=data["target"], actor=request.user)
        text = gettext("%(name)s was calibrated on %(name_2)s.") % {"name": name, "name_2": data["set"].name}
        return tell(request, text, reverse("evaluation:plans", args=[name], query={"view": "corrective"}))

    response, status = submit_form(request, form, save)
    if response:
        return response
    context = {
        "collection": collection,
        "tab": "settings",
        "form": form,
        "sets": form.own.exists(),
        "others": form.others.exists(),
        "most": 100,
    }
    return render_page(request, "evaluation/calibration/calibrate.html", context, parts=PARTS, status=status)
