"""The pages of golden sets: the list, one set, its settings, many questions at once, versions and differences.

The page of a test set's own rubrics: listed, added, changed, removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.collections.models import collection_choices
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.http.form_fields import WrittenField
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    RefusalMessages,
    field_of,
    find_or_404,
    next_address,
    page_of,
    render_page,
    run_action,
    submit_form,
    tell,
    whole_number,
)
from collections_app.models import Collection
from evaluation_app.golden import edits, sets
from evaluation_app.golden.formats import read_thresholds, write_thresholds
from evaluation_app.golden.questions import CATEGORIES, ExpectationState, Golden, find_drifts, read_status
from evaluation_app.golden.sets import CRITERIA, GUARDRAILS, asked_questions, compare_versions, update_set
from evaluation_app.judges.rubrics import ENTRY_POINTS, Rubric, installed_names, read_rubrics
from evaluation_app.measures.catalogue import MEASURES, measure_of
from evaluation_app.models import EvaluationRun, GoldenQuestion, GoldenSet, GoldenSetVersion
from ragd.errors import InvalidInput
from retrieval_app.answers.chat_answerer import has_chat_model

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
        field_of(self, "collection", forms.ChoiceField).choices = choices if len(choices) == 1 else [("", ""), *choices]


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
        choices=[("merge", gettext_lazy("Merge (upsert)")), ("replace", gettext_lazy("Replace all"))],
    )


def initial_of(golden: Golden, seen: str = "") -> dict[str, Any]:
    """The form's values for a question."""
    refuses = golden.expects_nothing and not golden.expected_answer.strip()
    stated = {name: getattr(golden, name) for name in QuestionForm.STATED}
    return stated | {"seen": seen, "expects": REFUSAL if refuses else ANSWER}


def known_categories(used: list[str]) -> list[str]:
    """Those that ragd knows, then those that the set uses besides."""
    return list(dict.fromkeys((*CATEGORIES, *used)))


PER_PAGE = 50
BULK_MAX = 1000
LOST = "lost"
VERSIONS_PER_PAGE = 30
CHANGES_PER_PAGE = 50
CHOICES_MAX = 200


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question as a table shows it, with what it expects."""

    row: GoldenQuestion
    golden: Golden
    expected: list[ExpectationState]

    @property
    def lost(self) -> int:
        return sum(item.state != "there" for item in self.expected)


def find_set_or_404(pk: int) -> GoldenSet:
    return find_or_404(sets.listed_sets(), pk=pk)


@needs(READ, EVALUATE, methods="GET POST")
def list_sets(request: PageRequest) -> HttpResponse:
    """collection=: of that one alone. A POST makes a set."""
    requested = request.GET.get("collection", "").replace("\x00", "")
    form = GoldenSetForm(request.POST or None, initial={"collection": requested})

    def save() -> HttpResponse:
        data = form.cleaned_data
        made = sets.create_set(data["name"], data["collection"], description=data["description"], actor=request.user)
        return redirect("evaluation:golden-set", made.pk)

    response, status = submit_form(request, form, save)
    rows = sets.listed_sets()
    if requested:
        rows = rows.filter(collection_name=requested)
    live = set(Collection.objects.live().values_list("name", flat=True))
    newest = newest_runs([row.pk for row in rows])
    context = {
        "rows": [(row, row.collection_name in live, newest.get(row.pk)) for row in rows],
        "collection": requested,
        "has_collections": bool(live),
        "form": form,
    }
    return response or render_page(request, "evaluation/golden/sets.html", context, status=status)


def newest_runs(set_ids: Sequence[int]) -> dict[int, EvaluationRun]:
    """The newest evaluation run of each set that has one, in one query."""
    rows = EvaluationRun.objects.filter(golden_set__in=set_ids).order_by("golden_set_id", "-created_at", "-id")
    return {row.golden_set_id: row for row in rows.distinct("golden_set_id") if row.golden_set_id is not None}


@needs(READ, EVALUATE, methods="GET POST")
def show_set(request: PageRequest, pk: int) -> HttpResponse:
    """Its questions. q: words in the question; category; state "lost": expecting what is gone. A POST changes them."""
    golden_set = find_set_or_404(pk)
    if request.method == "POST":
        return _change_questions(request, golden_set)
    accepted = golden_set.questions.filter(suggested=False).order_by("position", "id")
    all_rows = {item.row.pk: item for item in question_rows(golden_set, list(accepted))}
    lost = [item for item in all_rows.values() if item.lost]
    categories = Counter(item.row.category for item in all_rows.values())
    filters = [
        Filter(
            "category",
            gettext("Category"),
            [(name, name, categories[name]) for name in sorted(categories) if name],
            "category",
        ),
        Filter(
            "state",
            gettext("State"),
            [(LOST, gettext("Expected documents missing"), len(lost))] if lost else [],
            by=lambda rows, state: rows.filter(pk__in=[item.row.pk for item in lost]) if state else rows,
        ),
    ]
    listing = list_page(request, QUESTIONS, accepted, filters)
    context = (
        set_context(golden_set, "questions")
        | listing.context()
        | {
            "rows": [all_rows[row.pk] for row in listing.page if row.pk in all_rows],
            "lost_total": len(lost),
            "moved_total": sum(bool(expected.now) for item in lost for expected in item.expected),
            "first_place": listing.page.start_index(),
        }
    )
    return render_page(request, "evaluation/golden/set.html", context, parts={"questions": QUESTIONS_PART})


QUESTIONS_PART = "evaluation/golden/parts/questions.html"
QUESTIONS = ListKind(
    "questions",
    gettext_lazy("question,questions"),
    gettext_lazy("Search questions"),
    search_by=("question", "expected_answer"),
    per_page=PER_PAGE,
)


def question_rows(golden_set: GoldenSet, rows: Sequence[GoldenQuestion]) -> list[QuestionRow]:
    pairs = [(row, Golden.of(row)) for row in rows]
    status = read_status(golden_set.collection_name, [golden for _, golden in pairs])
    drifts = find_drifts(golden_set.collection_name, [row.chunk_marks for row in rows])
    return [
        QuestionRow(row, golden, status.of(golden, drift)) for (row, golden), drift in zip(pairs, drifts, strict=True)
    ]


def set_context(golden_set: GoldenSet, part: str) -> dict[str, Any]:
    """What every page of one set shows."""
    counts = golden_set.questions.all().values_list("suggested", flat=True)
    suggested = sum(counts)
    return {
        "golden_set": golden_set,
        "part": part,
        "questions_total": len(counts) - suggested,
        "suggested_total": suggested,
        "versions_total": golden_set.versions.count(),
        "runs_total": golden_set.runs.count(),
        "lives": Collection.objects.live().filter(name=golden_set.collection_name).exists(),
        "evaluate_href": reverse("evaluation:evaluation-runs", query={"view": "new", "set": golden_set.name}),
        # runs_total counts them all
        "runs_href": reverse("evaluation:evaluation-runs", query={"set": golden_set.name, "purpose": "all"}),
    }


@needs(EVALUATE, methods="GET POST")
def show_settings(request: PageRequest, pk: int) -> HttpResponse:
    """A POST changes name, description and criteria; do=delete deletes the set."""
    golden_set = find_set_or_404(pk)
    if request.POST.get("do") == "delete":
        counts = sets.delete_set(golden_set, actor=request.user)
        text = gettext("%(name)s deleted, with %(questions)s questions.")
        messages.success(request, text % {"name": golden_set.name, "questions": counts["questions"]})
        return redirect("evaluation:golden-sets")
    initial = {name: getattr(golden_set, name) for name in ("name", "description", *CRITERIA)}
    form = GoldenSetChangeForm(request.POST or None, initial=initial, rubrics=read_rubrics(golden_set.rubrics))

    def save() -> HttpResponse:
        names = {name: form.cleaned_data[name] for name in ("name", "description")}
        changed = sets.update_set(find_set_or_404(golden_set.pk), criteria=form.criteria(), actor=request.user, **names)
        messages.success(request, gettext("%(name)s saved.") % {"name": changed.name})
        return redirect("evaluation:golden-set", golden_set.pk)

    response, status = submit_form(request, form, save)
    context = set_context(golden_set, "settings") | {"form": form, "counts": sets.what_goes(golden_set)}
    return response or render_page(request, "evaluation/golden/settings.html", context, status=status)


def _change_questions(request: PageRequest, golden_set: GoldenSet) -> HttpResponse:
    """action: delete (asks first), accept, discard, "up ID", "down ID", follow (chunks that moved). question: ids."""
    ids = [int(text) for text in request.POST.getlist("question")[:BULK_MAX] if _is_id(text)]
    action, _, single = request.POST.get("action", "").partition(" ")
    back = next_address(request, request.path)
    if action in ("up", "down") and _is_id(single):
        with RefusalMessages(request):
            question = edits.find_question(golden_set, int(single))
            edits.move_question(question, -1 if action == "up" else 1, actor=request.user)
        return redirect(back)
    if action == "follow":
        count = edits.follow_moved_chunks(golden_set, actor=request.user)
        chunks = counted(count, gettext("expected chunk,expected chunks"))
        return tell(request, gettext("%(chunks)s updated.") % {"chunks": chunks}, back)
    if not ids:
        messages.error(request, gettext("Select questions first."))
        return redirect(back)
    if action == "delete" and not request.POST.get("confirmed"):
        rows = list(golden_set.questions.filter(pk__in=ids).order_by("position", "id"))
        context = {"golden_set": golden_set, "rows": rows, "next": back}
        return render_page(request, "evaluation/golden/delete_questions.html", context)
    known: dict[str, tuple[Callable[..., int], str]] = {
        "delete": (edits.delete_questions, gettext("%(questions)s deleted.")),
        "accept": (edits.accept_suggestions, gettext("%(questions)s accepted.")),
        "discard": (edits.discard_suggestions, gettext("%(questions)s rejected.")),
    }
    if action not in known:
        messages.error(request, gettext("Unknown action."))
        return redirect(back)
    act, message = known[action]
    with RefusalMessages(request):
        count = act(golden_set, ids, actor=request.user)
        messages.success(request, message % {"questions": counted(count, gettext("question,questions"))})
    return redirect(back)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


@needs(READ, EVALUATE, methods="GET POST")
def show_versions(request: PageRequest, pk: int) -> HttpResponse:
    """All of them; version=: what one holds; before= and after=: what of two the other does not hold. A POST makes the
    set hold again what the version= of the address held."""
    golden_set = find_set_or_404(pk)
    version, before, after = (whole_number(request.GET.get(name)) for name in ("version", "before", "after"))
    if request.method == "POST":
        acts: Acts = {"restore": lambda: _bring_back(request, golden_set, version or 0)}
        return run_action(request, acts, f"{request.path}?view=versions")
    if version is not None:
        found = _or_404(golden_set, version)
        context = set_context(golden_set, "versions") | {
            "version": found,
            "page": Paginator(goldens_of(found), CHANGES_PER_PAGE).get_page(request.GET.get("page")),
            "counts": compare_versions([golden for _, golden in asked_questions(golden_set)], goldens_of(found)).counts,
        }
        return render_page(request, "evaluation/golden/version.html", context)
    if before is not None and after is not None:
        return _show_difference(request, golden_set, before, after)
    return _list_versions(request, golden_set)


def _list_versions(request: PageRequest, golden_set: GoldenSet) -> HttpResponse:
    """The newest first, each with what it changed of the one before."""
    rows = golden_set.versions.order_by("-version")
    page = page_of(request, rows, VERSIONS_PER_PAGE)
    shown = list(page)
    states = [*shown, *list(rows[page.end_index() : page.end_index() + 1])]
    pairs = [(state, states[number + 1] if number + 1 < len(states) else None) for number, state in enumerate(shown)]
    context = set_context(golden_set, "versions") | {
        "page": page,
        "rows": [(state, before, _difference(before, state) if before else None) for state, before in pairs],
        "runs": _run_counts(golden_set),
    }
    return render_page(request, "evaluation/golden/versions.html", context)


def _run_counts(golden_set: GoldenSet) -> dict[int, int]:
    """version -> evaluation runs over it."""
    result: dict[int, int] = {}
    for version in golden_set.runs.values_list("set_version", flat=True):
        result[version] = result.get(version, 0) + 1
    return result


def goldens_of(version: GoldenSetVersion) -> list[Golden]:
    return [Golden.from_dict(item) for item in version.questions]


def _difference(before: GoldenSetVersion, after: GoldenSetVersion) -> dict[str, int]:
    return compare_versions(goldens_of(before), goldens_of(after)).counts


def _show_difference(request: PageRequest, golden_set: GoldenSet, before: int, after: int) -> HttpResponse:
    difference = compare_versions(goldens_of(_or_404(golden_set, before)), goldens_of(_or_404(golden_set, after)))
    context: dict[str, Any] = set_context(golden_set, "versions") | {
        "before": before,
        "after": after,
        "numbers": list(golden_set.versions.order_by("-version").values_list("version", flat=True)[:CHOICES_MAX]),
        "difference": difference,
        "page": Paginator(difference.changes, CHANGES_PER_PAGE).get_page(request.GET.get("page")),
    }
    return render_page(request, "evaluation/golden/difference.html", context)


def _bring_back(request: PageRequest, golden_set: GoldenSet, version: int) -> str:
    number = edits.bring_back(golden_set, _or_404(golden_set, version).version, actor=request.user)
    words = gettext("Restored version %(version)s (now version %(version_2)s).")
    return words % {"version": version, "version_2": number}


def _or_404(golden_set: GoldenSet, version: int) -> GoldenSetVersion:
    try:
        return edits.find_version(golden_set, version)
    except ServiceError as error:
        raise Http404(error.message) from None


KINDS = (
    ("regex", gettext_lazy("Regular expression")),
    ("json", "JSON"),
    ("prompt", gettext_lazy("Prompt for a chat model")),
    ("code", gettext_lazy("Code")),
)


class RubricForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=40,
        help_text=gettext_lazy("Lower-case letters, digits, _ and -. The metric is rubric:NAME."),
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off", "spellcheck": "false"}),
    )
    kind = forms.ChoiceField(label=gettext_lazy("Kind"), choices=KINDS)
    definition = forms.CharField(
        label=gettext_lazy("Definition"),
        required=False,
        strip=False,
        help_text=gettext_lazy(
            "Regular expression, JSON schema (empty: any JSON), instructions for the chat model, or entry point."
        ),
        widget=forms.Textarea(attrs={"rows": 5, "class": "mono", "spellcheck": "false", "data-send": True}),
    )
    must_match = forms.BooleanField(
        label=gettext_lazy("The regular expression must match"),
        required=False,
        initial=True,
        help_text=gettext_lazy("Otherwise it must not match."),
    )


@needs(EVALUATE, methods="GET POST")
def show_rubrics(request: PageRequest, pk: int) -> HttpResponse:
    """A POST adds the rubric, or changes the one of its name; remove=NAME removes one. ?edit=NAME fills the form."""
    golden_set, here = find_set_or_404(pk), f"{request.path}?view=rubrics"
    if name := request.POST.get("remove"):
        with RefusalMessages(request):
            _write(request, golden_set, [each for each in golden_set.rubrics if each["name"] != name])
            messages.success(request, gettext("Rubric %(name)s removed.") % {"name": name})
        return redirect(here)
    rubrics = read_rubrics(golden_set.rubrics)
    edited = next((rubric for rubric in rubrics if rubric.name == request.GET.get("edit")), None)
    form = RubricForm(request.POST or None, initial=edited.as_dict() if edited else None)

    def save() -> HttpResponse:
        rubric = Rubric(**form.cleaned_data).as_dict()
        known = [each["name"] for each in golden_set.rubrics]
        kept = [rubric if each["name"] == rubric["name"] else each for each in golden_set.rubrics]
        _write(request, golden_set, kept if rubric["name"] in known else [*kept, rubric])
        text = gettext("Rubric %(name)s saved. The next evaluation run scores it.")
        return tell(request, text % {"name": rubric["name"]}, here)

    response, status = submit_form(request, form, save)
    titles = dict(KINDS)
    context = set_context(golden_set, "rubrics") | {
        "form": form,
        "edited": edited,
        "rubrics": [(rubric, titles[rubric.kind]) for rubric in rubrics],
        "entry_points": installed_names(),
        "entry_group": ENTRY_POINTS,
        "has_model": has_chat_model(),
    }
    return response or render_page(request, "evaluation/golden/rubrics.html", context, status=status)


def _write(request: PageRequest, golden_set: GoldenSet, rubrics: list[dict[str, object]]) -> None:
    update_set(golden_set, rubrics=rubrics, actor=request.user)
