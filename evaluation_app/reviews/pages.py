"""Pages: the queue, one answer to judge, how far judge and people agree, the download."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db.models import Exists, OuterRef, Q
from django.http import Http404, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import ASK, EVALUATE, READ, needs
from collections_app.audit.services import Subject
from collections_app.domain.formats import counted
from collections_app.errors import UnknownError
from collections_app.http.downloads import Reading, download_response
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import (
    PageRequest,
    collection_titles,
    field_of,
    page_of,
    render_page,
    run_action,
    submit_form,
    tell,
    whole_number,
)
from collections_app.jobs.operations import cancel_operation, last_report
from collections_app.models import Collection
from evaluation_app.measures.catalogue import MEASURES as CATALOGUE
from evaluation_app.models import EvaluationItem, EvaluationRun, Review, ReviewTask, RunScore
from evaluation_app.reviews.agreement import (
    CONTENT_TYPE,
    anchored_differences,
    anchored_scores,
    annotation_of,
    export_reviews,
    judge_value,
    labelled_positions,
    read_agreement,
)
from evaluation_app.reviews.calibration import (
    FITTED,
    LABELS_ADVISED,
    LABELS_MIN,
    JudgeFit,
    JudgeIdentity,
    LabelledAnswers,
    MeasureFit,
    base_version,
    fit_judge,
    labelled_answers,
    read_fits,
    take_back,
)
from evaluation_app.reviews.judge_check import ANSWERS, KIND, NUMBERS, estimate_check, request_check, running_check
from evaluation_app.reviews.labels import (
    CORRECTION_CHARS_MAX,
    LABEL_REQUESTS,
    MEASURES,
    NOTE_CHARS_MAX,
    TASKS_MAX,
    WANTED_MAX,
    WHICH,
    WORDS,
    LabelRequest,
    QueuedCount,
    count_queue,
    feedback_of,
    format_value,
    give_feedback,
    next_task,
    queue_live,
    queue_run,
    review,
    set_aside,
)
from evaluation_app.runs.run_pages.item_page import (
    context_keys,
    document_addresses,
    mark_answer,
    mark_context,
    mark_tally,
)
from evaluation_app.scoring.judge_selection import has_judge_model, judge_model
from retrieval_app.models import QueryRun

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


TASKS_PER_PAGE = 25
LABELS_AT_ONCE = 10
LATER = "review_later"  # in the session: tasks that this person skipped
LATER_MAX = 500
STATES = (
    ("open", gettext_lazy("Open")),
    ("done", gettext_lazy("Done")),
    ("skipped", gettext_lazy("Excluded")),
    (ReviewTask.FEEDBACK, gettext_lazy("Feedback")),
)
FILTER_WORDS = {
    "set_name": gettext_lazy("Test set"),
    "collection_name": gettext_lazy("Collection"),
    "judge": gettext_lazy("Judge"),
}


@dataclass(frozen=True, slots=True)
class SaidLine:
    """One measure of a task: the judge's score and what each person said."""

    title: str
    judge: float | None
    people: list[str]


@needs(READ, EVALUATE, methods="GET POST")
def queue(request: PageRequest) -> HttpResponse:
    """How much waits; POST puts answers into the queue. run=ID preselects the run; state= chooses the list."""
    is_post = request.method == "POST"
    form = QueueForm(request.POST) if is_post else QueueForm(run=_id_or_none(request.GET.get("run", "")))

    def save() -> HttpResponse:
        _tell(request, _queue(form.cleaned_data, request))
        return redirect("evaluation:review")

    response, status = submit_form(request, form, save)
    if response:
        return response
    state = request.GET.get("state") or "open"
    if state not in dict(STATES):
        raise Http404(f"there is no list {state!r}; the lists are {', '.join(dict(STATES))}")
    is_feedback = Q(reason=ReviewTask.FEEDBACK)
    chosen = is_feedback if state == ReviewTask.FEEDBACK else Q(state=state) & ~is_feedback
    rows = ReviewTask.objects.filter(chosen).prefetch_related("reviews")
    counts = count_queue(request.user.get_username())
    context = {
        "tab": "review",
        "form": form,
        "counts": counts,
        "state": state,
        "states": [(name, words, getattr(counts, name)) for name, words in STATES],
        "page": page_of(request, rows, TASKS_PER_PAGE),
        "next": next_task(request.user.get_username(), _later(request)),
    }
    return render_page(request, "evaluation/reviews/queue.html", context, status=status)


@needs(EVALUATE, methods="GET")
def go_on(request: PageRequest) -> HttpResponse:
    """To the next answer of this person, or back to the queue when there is none. last=ID: what they judged before."""
    review_task = next_task(request.user.get_username(), _later(request))
    if review_task is None:
        return tell(request, gettext("Queue empty."), "evaluation:review")
    last = request.GET.get("last", "")
    address = reverse("evaluation:review-task", args=[review_task.pk])
    return redirect(f"{address}?last={last}" if last.isdecimal() else address)


@needs(EVALUATE, methods="GET POST")
def judge(request: PageRequest, pk: int) -> HttpResponse:
    """One answer. Until this person has judged it, nothing of what the judge said is on the page. Feedback was never in
    the queue: it is on the page of its run. POST with do=skip or do=aside leaves it for later, or to nobody."""
    if (action := request.POST.get("do")) in ("skip", "aside"):
        return {"skip": _skip, "aside": _aside}[action](request, pk)
    task = get_object_or_404(ReviewTask.objects.select_related("item"), pk=pk)
    if task.reason == ReviewTask.FEEDBACK and task.query_run:
        return redirect("evaluation:query-run", task.query_run)
    reviewer = request.user.get_username()
    own = task.reviews.filter(reviewer_name=reviewer).first()
    form = ReviewForm(request.POST if request.method == "POST" else None, sentences=task.answer_sentences)

    def save() -> HttpResponse:
        data = form.cleaned_data
        review(task, form.verdicts, unsupported=data["unsupported"], note=data["note"], actor=request.user)
        if request.POST.get("then") == "stay":
            return redirect("evaluation:review-task", pk=pk)
        return redirect(reverse("evaluation:review-next", query={"last": pk}))

    response, status = submit_form(request, form, save)
    if response:
        return response
    context: dict[str, Any] = {
        "tab": "review",
        "task": task,
        "form": form,
        "label_requests": _label_requests(form),
        "own": own,
        "marked": set(request.POST.getlist("unsupported")),
        "counts": count_queue(reviewer),
        "last": _last(request),
    }
    context |= _passages(task, annotation_of(task) if own is not None else {})
    if own is not None:
        context |= _said(task)
    return render_page(request, "evaluation/reviews/task.html", context, status=status)


def _skip(request: PageRequest, pk: int) -> HttpResponse:
    """Later, for this person alone: behind all others in their queue."""
    get_object_or_404(ReviewTask, pk=pk)
    later = [each for each in _later(request) if each != pk]
    request.session[LATER] = [*later, pk][-LATER_MAX:]
    return redirect("evaluation:review-next")


def _aside(request: PageRequest, pk: int) -> HttpResponse:
    """Out of everybody's queue; back=1: into it again."""
    task = get_object_or_404(ReviewTask, pk=pk)
    is_back = bool(request.POST.get("back"))
    set_aside(task, actor=request.user, back=is_back)
    messages.success(request, gettext("Returned to the queue.") if is_back else gettext("Excluded from the queue."))
    to_queue = is_back or request.POST.get("next") == "queue"
    return redirect("evaluation:review" if to_queue else "evaluation:review-next")


@needs(READ, EVALUATE, methods="GET")
def anchored(request: PageRequest, pk: UUID) -> HttpResponse:
    """Part of the page of an evaluation run: its anchored scores, or how to come by them.

    labelled=1 (the dashboard): nothing where there is no label.
    """
    run = get_object_or_404(EvaluationRun, pk=pk)
    scores = anchored_scores(run)
    if not scores and request.GET.get("labelled"):
        return HttpResponse()
    label_form = {"source": f"run:{run.pk}", "which": "random", "number": LABELS_AT_ONCE, "wanted": 1}
    context = {"run": run, "anchored": scores, "label_form": label_form}
    return render_page(request, "evaluation/reviews/anchored.html", context)


@needs(READ, EVALUATE, methods="GET")
def anchored_comparison(request: PageRequest, pk: UUID, other: UUID) -> HttpResponse:
    """Part of the page that compares two runs: what both have labels for."""
    base, against = (get_object_or_404(EvaluationRun, pk=each) for each in (pk, other))
    context = {"differences": anchored_differences(base, against)}
    return render_page(request, "evaluation/reviews/anchored_comparison.html", context)


@needs(ASK, methods="GET POST")
def feedback(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Part of an answer: what people said of it, and a form for this person's own. POST gives it."""
    run = get_object_or_404(QueryRun.objects.for_lists(), pk=run_id)
    given = feedback_of(run.pk)
    own = next((each for each in given if each.reviewer_name == request.user.get_username()), None)
    before = {"comment": own.note, "correction": own.correction, "reason": own.reason} if own else None
    form = FeedbackForm(request.POST if request.method == "POST" else None, initial=before)

    def save() -> HttpResponse:
        give_feedback(run, **form.values, actor=request.user)
        view = "evaluation:feedback" if request.htmx else "evaluation:query-run"
        return redirect(reverse(view, args=[run.pk], query={"given": "on"}))

    response, status = submit_form(request, form, save)
    if response:
        return response
    context = {"run": run, "form": form, "given": given, "own": own}
    return render_page(request, "evaluation/reviews/feedback.html", context, status=status)


@dataclass(frozen=True, slots=True)
class CalibratedJudge:
    """A judge of one collection. labels: answers with labels that it scored; missing: until a fit; short: of what is
    advised. source: of the queue form. fits: every version, the newest first."""

    judge: str
    version: str
    labels: int
    missing: int
    short: int
    source: str
    fits: list[JudgeFit]

    @property
    def in_force(self) -> JudgeFit | None:
        return next((fit for fit in self.fits if not fit.is_taken_back), None)

    @property
    def lines(self) -> list[tuple[str, MeasureFit]]:
        """(title, fit) of what is in force."""
        measures = self.in_force.measures if self.in_force else {}
        return [(CATALOGUE[name].title, measures[name]) for name in FITTED if name in measures]


def _calibrated_judges(collection: Collection) -> list[CalibratedJudge]:
    """Judges whose scores have labels or a fit, else the judge of the newest run."""
    answers, fits = labelled_answers(collection), read_fits(collection)
    sources: dict[JudgeIdentity, str] = {}
    runs = EvaluationRun.objects.filter(
        collection_name=collection.name, created_at__gte=collection.created_at, state=EvaluationRun.State.SUCCEEDED
    ).exclude(judge="none")
    for run in runs.order_by("-created_at", "-id").only("judge", "judge_version")[:RUNS_OFFERED]:
        sources.setdefault((run.judge, base_version(run.judge_version)), f"run:{run.pk}")
    rows = []
    for judge in sorted({**answers, **fits} or list(sources)[:1]):
        labels = answers.get(judge, LabelledAnswers()).answers
        missing, short = (max(0, least - labels) for least in (LABELS_MIN, LABELS_ADVISED))
        source = sources.get(judge, f"{LIVE}{collection.name}")
        rows.append(CalibratedJudge(*judge, labels, missing, short, source, fits.get(judge, [])))
    return rows


def _judge_check(collection: Collection) -> dict[str, Any]:
    """The check of the connected judge: what it would cost, one that is under way, and the last result."""
    last, has_model = last_report(KIND, collection), has_judge_model()
    shifts = {kind: last.report[kind]["shifts"] for kind in ("again", "order", "length")} if last else {}
    return {
        "judge_model": judge_model() if has_model else "",
        "estimate": estimate_check(collection) if has_model else None,
        "running": running_check(collection),
        "last": last,
        "shifts": [(CATALOGUE[name].title, [each.get(name) for each in shifts.values()]) for name in NUMBERS],
        "number": ANSWERS,
    }


def _change_judges(request: PageRequest, name: str) -> HttpResponse:
    """do=fit and do=take-back a calibration, do=check the connected model and do=stop that."""
    if name not in collection_titles(request):
        raise Http404(f"there is no collection {name!r} that you may see")
    collection = Collection.objects.live().get(name=name)
    values = request.POST

    def fit() -> str:
        number = fit_judge(collection, values.get("judge", ""), values.get("version", ""), actor=request.user).number
        return gettext("Calibration %(number)s is used for what is scored from now on.") % {"number": number}

    def back() -> str:
        number = take_back(collection, whole_number(values.get("number")) or 0, actor=request.user).number
        return gettext("Calibration %(number)s taken back.") % {"number": number}

    def check() -> str:
        request_check(collection, number=whole_number(values.get("number")) or 0, actor=request.user)
        return gettext("Checking the judge.")

    def stop() -> str:
        if (operation := running_check(collection)) is None:
            raise UnknownError("operation", f"no check of the judge on {name!r} is under way")
        cancel_operation(operation, actor=request.user)
        return gettext("Check stopped.")

    back_to = reverse("evaluation:review", query={"view": "agreement", "collection_name": name})
    return run_action(request, {"fit": fit, "take-back": back, "check": check, "stop": stop}, f"{back_to}#calibration")


@needs(READ, EVALUATE, methods="GET POST")
def agreement(request: PageRequest) -> HttpResponse:
    """set_name, collection_name and judge choose the tasks. With a collection: its calibrations, and the check of the
    connected judge; a POST changes them (`_change_judges`)."""
    if request.method == "POST":
        return _change_judges(request, request.POST.get("collection_name", "").replace("\x00", ""))
    chosen = _chosen(request.GET)
    rows = ReviewTask.objects.filter(Exists(Review.objects.filter(task=OuterRef("pk"))), **chosen)
    rows = rows.exclude(reason=ReviewTask.FEEDBACK)
    tasks = (
        rows.select_related("item").prefetch_related("reviews").only("judged", "query_run", "item", "item__annotation")
    )
    names = {
        name: ReviewTask.objects.exclude(**{name: ""}).order_by(name).values_list(name, flat=True).distinct()
        for name in FILTER_WORDS
    }
    filters = [Filter(name, words, names[name], free=True) for name, words in FILTER_WORDS.items()]
    context = {
        "list": list_page(request, ListKind("", ""), None, filters),
        "tab": "review",
        "agreement": read_agreement(tasks),
        "query": urlencode(chosen),
        "titles": collection_titles(request),
    }
    collection = Collection.objects.live().filter(name=chosen.get("collection_name", "")).first()
    if collection is not None:
        context |= {"collection": collection, "judges": _calibrated_judges(collection)} | _judge_check(collection)
        context |= {"advised": LABELS_ADVISED}
    return render_page(request, "evaluation/reviews/agreement.html", context)


@needs(READ, EVALUATE, methods="GET")
def download(request: PageRequest) -> StreamingHttpResponse:
    """Every review as JSON Lines, by the same filters."""
    chosen = {f"task__{name}": value for name, value in _chosen(request.GET).items()}
    rows = Review.objects.filter(**chosen)
    reading = Reading("review.export", "downloaded reviews", subject=Subject("review"), rows=rows.count())
    return download_response(request, export_reviews(rows), CONTENT_TYPE, "reviews.jsonl", reading=reading)


def _queue(values: dict[str, Any], request: PageRequest) -> QueuedCount:
    source, which = values["source"], values["which"]
    numbers = {"number": values["number"], "wanted": values["wanted"]}
    if source.startswith(LIVE):
        return queue_live(source.removeprefix(LIVE), which, **numbers, actor=request.user)
    run = get_object_or_404(EvaluationRun, pk=UUID(source.removeprefix("run:")))
    labelled = labelled_positions(run) if which == "random" else ()
    return queue_run(run, which, **numbers, without=labelled, actor=request.user)


def _tell(request: PageRequest, made: QueuedCount) -> None:
    added = counted(made.created, gettext("answer,answers"))
    known = gettext(" %(known)s already queued.") % {"known": counted(made.known, gettext("answer,answers"))}
    if made.created:
        message = gettext("%(answers)s added to the queue.") % {"answers": added}
        messages.success(request, message + (known if made.known else ""))
    else:
        messages.warning(
            request, gettext("No answers added.") + (known if made.known else gettext(" No answers match."))
        )


def _later(request: PageRequest) -> list[int]:
    return [each for each in request.session.get(LATER, []) if isinstance(each, int)]


def _last(request: PageRequest) -> dict[str, Any] | None:
    """What this person judged just before, beside what the judge said of it; None for anything else."""
    requested = request.GET.get("last", "")
    if not requested.isdecimal() or len(requested) > 18:
        return None
    task = ReviewTask.objects.select_related("item").filter(pk=int(requested)).first()
    if task is None or not task.reviews.filter(reviewer=request.user).exists():
        return None
    return {"task": task, "lines": _lines(task, [task.reviews.get(reviewer=request.user)])}


def _said(task: ReviewTask) -> dict[str, Any]:
    """What judge and people said of a task that this person has judged."""
    reviews = list(task.reviews.order_by("created_at", "id"))
    marked = [
        (sentence, [each.reviewer_name for each in reviews if sentence.key in each.unsupported])
        for sentence in mark_answer(_as_item(task, annotation_of(task)))
    ]
    return {"reviews": reviews, "lines": _lines(task, reviews), "said": marked}


def _passages(task: ReviewTask, annotation: Mapping[str, Any]) -> dict[str, Any]:
    """The context, marked by the judge where an annotation is given."""
    item = _as_item(task, annotation)
    passages = mark_context(item, document_addresses(task.collection_name, context_keys(item)))
    return {"passages": passages, "tally": mark_tally(passages)}


def _as_item(task: ReviewTask, annotation: Mapping[str, Any]) -> EvaluationItem:
    """What the marks are read of: the task keeps its texts when the item is gone."""
    return EvaluationItem(
        context=task.context, answer_sentences=task.answer_sentences, annotation=dict(annotation), golden={}
    )


def _lines(task: ReviewTask, reviews: list[Review]) -> list[SaidLine]:
    return [
        SaidLine(
            CATALOGUE[name].title,
            judge_value(task, name),
            [format_value(name, each.verdicts[name]) if name in each.verdicts else "–" for each in reviews],
        )
        for name in MEASURES
    ]


def _label_requests(form: ReviewForm) -> list[dict[str, Any]]:
    """The questions with their choices as the page draws them: number keys go by place."""
    return [
        {
            "measure": item.measure,
            "question": gettext(item.question),
            "field": form[item.measure],
            "choices": [
                (value, gettext(word), form[item.measure].value() == value) for value, word in verdict_choices(item)
            ],
        }
        for item in LABEL_REQUESTS
    ]


def _chosen(query: QueryDict) -> dict[str, str]:
    return {name: value for name in FILTER_WORDS if (value := query.get(name, "").replace("\x00", ""))}


def _id_or_none(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        return ""
