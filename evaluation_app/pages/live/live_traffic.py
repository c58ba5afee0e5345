"""Live traffic: what is scored of each collection while it serves, and the settings of that."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.http.page_requests import PageRequest, field_of, find_or_404, page_of, render_page, submit_form
from collections_app.models import Collection
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.scores import Score
from evaluation_app.models import RunScore, Sampling
from evaluation_app.models.runs import RunScoreQuerySet
from evaluation_app.pages.dashboard.run_page import mode_rows
from evaluation_app.pages.live.figures import (
    DAYS,
    OVERVIEW,
    USUAL_DAYS,
    collection_rows,
    first_moment,
    live_address,
    live_panels,
    read_rows,
)
from evaluation_app.scoring.judge_selection import has_judge_model, judge_model
from evaluation_app.scoring.modes.catalogue import bands_for, find_mode, mode_title
from evaluation_app.scoring.sampling import PER_DAY_MAX, sampling_of, save_sampling
from ragd.errors import InvalidInput

PER_PAGE = 25
COLUMNS = (*OVERVIEW, "answer_relevance")


class SamplingForm(forms.Form):
    """percent: 0.01 to 100. The judge "llm" can only be chosen where a chat model is set up, or was chosen before."""

    enabled = forms.BooleanField(label=gettext_lazy("Enable online evaluation"), required=False)
    percent = forms.FloatField(
        label=gettext_lazy("Sampling rate (%)"),
        min_value=0.01,
        max_value=100,
        help_text=gettext_lazy("Sampled by query run ID."),
    )
    per_day = forms.IntegerField(
        label=gettext_lazy("Daily limit"),
        min_value=1,
        max_value=PER_DAY_MAX,
        help_text=gettext_lazy("Per day (UTC)."),
    )
    judge = forms.ChoiceField(label=gettext_lazy("Judge"))
    judge_model = forms.CharField(label=gettext_lazy("Chat model"), max_length=200, required=False)

    def __init__(self, data: QueryDict | None, *, sampling: Sampling) -> None:
        initial = {
            "enabled": sampling.enabled,
            "percent": f"{sampling.rate * 100:.6g}",
            "per_day": sampling.per_day,
            "judge": sampling.judge,
            "judge_model": sampling.judge_model,
        }
        super().__init__(data, initial=initial)
        choices = [("embedded", gettext_lazy("Embedded judge (no cost)"))]
        self.has_model = has_judge_model() or sampling.judge == "llm"
        if self.has_model:
            choices.append(("llm", gettext_lazy("Chat model")))
            self.fields["judge_model"].help_text = f"Default: {judge_model()}"
        else:
            del self.fields["judge_model"]
        field_of(self, "judge", forms.ChoiceField).choices = choices

    @property
    def values(self) -> dict[str, Any]:
        """What `save_sampling` takes."""
        data = self.cleaned_data
        return {
            "enabled": data["enabled"],
            "rate": data["percent"] / 100,
            "per_day": data["per_day"],
            "judge": data["judge"],
            "judge_model": data.get("judge_model", ""),
        }


@require_GET
def live(request: PageRequest) -> HttpResponse:
    """Every collection with the means of what was scored of it. days= of DAYS; 422 for another."""
    try:
        days = _days(request)
    except InvalidInput as error:
        context: dict[str, Any] = {"error": error.message, "all_href": live_address()}
        return render_page(request, "evaluation/scoring/live.html", context, status=422)
    rows = collection_rows(days)
    bands = bands_for()
    context = {
        "rows": rows,
        "columns": [measure_of(name, bands) for name in OVERVIEW],
        "days": days,
        "stretches": [(each, live_address(days=each)) for each in DAYS],
        "enabled": sum(row.sampling.enabled for row in rows),
    }
    return render_page(request, "evaluation/scoring/live.html", context)


@require_http_methods(["GET", "POST"])
def live_collection(request: PageRequest, name: str) -> HttpResponse:
    """One collection: trends, spread, the newest scored runs, the settings. A POST changes the settings.

    days= of DAYS, day= and mode= narrow the table; 422 without figures for one that says nothing.
    """
    collection = find_or_404(Collection.objects.live(), name=name)
    sampling = sampling_of(name)
    form = SamplingForm(request.POST if request.method == "POST" else None, sampling=sampling)

    def save() -> HttpResponse:
        save_sampling(collection, **form.values, actor=request.user)
        messages.success(request, _sampling_message(form))
        return redirect("evaluation:live-collection", name)

    response, status = submit_form(request, form, save)
    if response:
        return response
    context = {"collection": collection, "sampling": sampling, "form": form}
    try:
        context |= _describe(request, name)
    except InvalidInput as error:
        context |= {"error": error.message, "all_href": live_address(name)}
        status = 422
    parts = {"scored-runs": "evaluation/scoring/parts/scored_runs.html"}
    return render_page(request, "evaluation/scoring/live_collection.html", context, parts=parts, status=status)


def _sampling_message(form: SamplingForm) -> str:
    if not form.cleaned_data["enabled"]:
        return gettext("Online evaluation disabled.")
    text = gettext("Online evaluation enabled: sampling rate %(percent)s %%.")
    return text % {"percent": f"{form.cleaned_data['percent']:g}"}


def _describe(request: PageRequest, name: str) -> dict[str, Any]:
    days, bands = _days(request), bands_for()
    stretch = RunScore.objects.filter(collection_name=name).since(first_moment(days))
    rows = read_rows(stretch.sampled()).get(name, [])
    counts = Counter(mode for modes in stretch.sampled().values_list("modes", flat=True) for mode in modes)
    listed, requested = _listed(request, name, stretch)
    page = page_of(request, listed, PER_PAGE)
    return {
        "days": days,
        "has_bands": bool(bands),
        "stretches": [(each, live_address(name, days=each)) for each in DAYS],
        "rows": rows,
        "judges": sorted({row.judge for row in rows}),
        "panels": live_panels(name, rows, days),
        "outcomes": Counter(row.outcome for row in rows).most_common(),
        **mode_rows(counts, len(rows), lambda key: live_address(name, days=days, mode=key) + "#newest"),
        "page": page,
        "columns": [measure_of(each, bands) for each in COLUMNS],
        "listed": [(score, {key: Score.from_dict(value) for key, value in score.scores.items()}) for score in page],
        "wanted": requested,
        "all_href": live_address(name, days=days) + "#newest",
    }


def _listed(request: PageRequest, name: str, stretch: RunScoreQuerySet) -> tuple[RunScoreQuerySet, str]:
    """The rows of the table, newest first, and in words what they are narrowed to. Raises InvalidInput."""
    details, rows = [], stretch
    if requested := request.GET.get("day", ""):
        day = _day(requested)
        begin = timezone.make_aware(datetime(day.year, day.month, day.day))
        rows = RunScore.objects.filter(
            collection_name=name, asked_at__gte=begin, asked_at__lt=begin + timedelta(days=1)
        )
        details.append(f"of {day.day} {day:%B}")
    if mode := request.GET.get("mode", ""):
        find_mode(mode)
        rows = rows.filter(modes__contains=[mode])
        details.append(f"with “{mode_title(mode)}”")
    return rows.without_texts().order_by("-asked_at", "-query_run"), " ".join(details)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"day must be a date such as 2026-01-31, not {text!r}", field="day") from None


def _days(request: PageRequest) -> int:
    requested = request.GET.get("days", "") or str(USUAL_DAYS)
    days = next((days for days in DAYS if str(days) == requested), None)
    if days is None:
        known = ", ".join(map(str, DAYS))
        raise InvalidInput(f"days must be one of {known}, not {requested!r}", field="days")
    return days
