"""Pages of golden questions: one with what it expects, chosen by searching; one out of a run; suggestions.

Import and export of golden questions on pages: a file is looked at first and imported as it was looked at.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.http.downloads import Reading, download_response
from collections_app.http.form_fields import LinesField
from collections_app.http.page_requests import PageRequest, page_of, render_page, submit_form, tell
from collections_app.models import Collection
from evaluation_app.golden import edits, formats
from evaluation_app.golden import suggestions as from_runs
from evaluation_app.golden.questions import (
    EXPECTED,
    Chosen,
    Golden,
    chosen_context,
    find_expected,
    read_chosen,
    retrieved_of,
)
from evaluation_app.golden.set_views import (
    ImportForm,
    QuestionForm,
    RunQuestionForm,
    find_set_or_404,
    initial_of,
    known_categories,
    question_rows,
    set_context,
)
from evaluation_app.golden.suggestions import COUNT, COUNT_MAX, suggest_questions
from evaluation_app.models import EvaluationItem, GoldenQuestion, GoldenSet
from retrieval_app.answers.chat_answerer import has_chat_model
from retrieval_app.models import QueryRun

RESULTS_SHOWN = 8
CHOSEN_PART = {"expected": "evaluation/golden/parts/expected.html"}
PER_PAGE = 100
WRITING = ("save", "accept")  # the buttons that write; the others search


@needs(EVALUATE, methods="GET POST")
def new_question(request: PageRequest, pk: int) -> HttpResponse:
    golden_set = find_set_or_404(pk)
    form = QuestionForm(request.POST or None, initial={"question": request.GET.get("q", "")})
    return _edit(request, golden_set, form, None, Golden("new"))


@needs(READ, EVALUATE, methods="GET POST")
def edit_question(request: PageRequest, pk: int, question_id: int) -> HttpResponse:
    golden_set = find_set_or_404(pk)
    question = get_object_or_404(GoldenQuestion, pk=question_id, golden_set=pk)
    golden = Golden.of(question)
    form = QuestionForm(request.POST or None, initial=initial_of(golden, question.updated_at.isoformat()))
    form.fields["place"].widget.attrs["placeholder"] = "" if question.suggested else question.position + 1
    return _edit(request, golden_set, form, question, golden)


def _edit(
    request: PageRequest, golden_set: GoldenSet, form: QuestionForm, question: GoldenQuestion | None, golden: Golden
) -> HttpResponse:
    """do=save writes, do=accept accepts a suggestion too; anything else that is posted searches, keeps what was typed
    and ticked, and shows it."""
    status = 200
    chosen: Chosen = {name: list(getattr(golden, name)) for name in EXPECTED}
    if request.method == "POST":
        chosen = read_chosen(request)
        if request.POST.get("do") in WRITING:
            response, status = submit_form(request, form, lambda: _save(request, golden_set, form, question, chosen))
            if response:
                return response
    context = set_context(golden_set, "questions") | {
        "form": form,
        "question": question,
        "earlier": _earlier_items(question),
        **_expected_context(request, golden_set, form, chosen, question),
    }
    return render_page(request, "evaluation/golden/question.html", context, parts=CHOSEN_PART, status=status)


def _save(
    request: PageRequest, golden_set: GoldenSet, form: QuestionForm, question: GoldenQuestion | None, chosen: Chosen
) -> HttpResponse:
    explicit, data = form.stated(chosen), form.cleaned_data
    if question is None:
        question = edits.add_question(golden_set, explicit, actor=request.user)
        messages.success(request, gettext("Question added."))
    else:
        position = data["place"] - 1 if data["place"] else None
        seen = data["seen"] or question.updated_at
        edits.change_question(question, explicit, position=position, seen=seen, actor=request.user)
        if request.POST.get("keep_present"):
            edits.keep_present_chunks(question, actor=request.user)
        if request.POST["do"] == "accept":
            edits.accept_suggestions(golden_set, [question.pk], actor=request.user)
            question.refresh_from_db()
        messages.success(request, gettext("Question saved."))
    if request.POST.get("then") == "another":
        return redirect(reverse("evaluation:golden-set", args=[golden_set.pk], query={"view": "new"}))
    return redirect(_place_of(question))


def _expected_context(
    request: PageRequest, golden_set: GoldenSet, form: QuestionForm, chosen: Chosen, question: GoldenQuestion | None
) -> dict[str, Any]:
    """What is ticked, and what a search finds besides."""
    text = (form["find"].value() or "").strip() or (form["question"].value() or "").strip()
    looks = request.method == "POST" or bool(form.initial.get("question"))
    return {
        **chosen_context(golden_set.collection_name, chosen, question.chunk_marks if question else None),
        "found": find_expected(golden_set.collection_name, text, chosen) if looks and text else None,
        "categories": known_categories(sorted(set(golden_set.questions.values_list("category", flat=True)))),
    }


def _earlier_items(question: GoldenQuestion | None) -> list[EvaluationItem]:
    """What the newest runs found of it."""
    if question is None:
        return []
    rows = EvaluationItem.objects.filter(question=question).select_related("run")
    return list(rows.defer("context", "answer_sentences", "annotation").order_by("-created_at", "-id")[:RESULTS_SHOWN])


@needs(EVALUATE, methods="GET POST")
def question_from_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """A question out of a run. do=save adds it as a suggestion, do=accept as a question; anything else searches."""
    run = get_object_or_404(QueryRun, pk=run_id)
    proposal = from_runs.propose(run)
    sets = [(str(row.pk), row.name) for row in from_runs.sets_for(run)]
    chosen: Chosen = {name: list(proposal.stated[name]) for name in EXPECTED}
    initial = {name: value for name, value in proposal.stated.items() if name not in EXPECTED} | {"weight": 1.0}
    if len(sets) == 1:
        initial["golden_set"] = sets[0][0]
    form = RunQuestionForm(request.POST or None, initial=initial, sets=sets)
    status = 200
    if request.method == "POST":
        chosen = read_chosen(request)
        if request.POST.get("do") in WRITING:
            response, status = submit_form(
                request, form, lambda: _save_from_run(request, run, form, chosen, proposal.answer)
            )
            if response:
                return response
    stand_in = GoldenSet(collection_name=run.collection_name)
    context: dict[str, Any] = {"form": form, "run": run, "golden_set": stand_in, "answer": proposal.answer}
    context |= _from_run_expected(request, run, form, chosen)
    return render_page(request, "evaluation/golden/from_run.html", context, parts=CHOSEN_PART, status=status)


def _from_run_expected(request: PageRequest, run: QueryRun, form: RunQuestionForm, chosen: Chosen) -> dict[str, Any]:
    text = (form["find"].value() or "").strip()
    result = find_expected(run.collection_name, text, chosen) if text else retrieved_of(run, chosen)
    return {**chosen_context(run.collection_name, chosen), "found": result, "categories": known_categories([])}


def _save_from_run(
    request: PageRequest, run: QueryRun, form: RunQuestionForm, chosen: Chosen, answer: str
) -> HttpResponse:
    """An answer that was typed goes over the run's that is ticked."""
    picked, accepted = form.cleaned_data["golden_set"], request.POST["do"] == "accept"
    explicit = form.stated(chosen, answer if form.cleaned_data["approve_answer"] else "")
    with transaction.atomic():  # no empty set is left behind by a question that is refused
        is_new = picked == form.NEW_SET
        golden_set = from_runs.new_set_for(run, actor=request.user) if is_new else find_set_or_404(int(picked))
        question = from_runs.make_from_run(run, golden_set, explicit, accepted=accepted, actor=request.user)
    message = gettext("Added to %(name)s.") if accepted else gettext("Added to %(name)s as a suggestion.")
    return tell(request, message % {"name": golden_set.name}, _place_of(question))


def _place_of(question: GoldenQuestion) -> str:
    """Where it is listed: among the questions of its set, or among the suggestions."""
    query = {"view": "suggestions"} if question.suggested else {}
    return f"{reverse('evaluation:golden-set', args=[question.golden_set_id], query=query)}#question-{question.pk}"


@needs(READ, EVALUATE, methods="GET")
def golden_of_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The part of a run's page that leads to making a golden question of it, or to the one that there is."""
    run = get_object_or_404(QueryRun, pk=run_id)
    context = {
        "run": run,
        "questions": from_runs.golden_of(run),
        "lives": Collection.objects.live().filter(name=run.collection_name).exists(),
    }
    parts = {"golden-of-run": "evaluation/golden/parts/of_run.html"}
    return render_page(request, "evaluation/golden/of_run.html", context, parts=parts)


class SuggestForm(forms.Form):
    count = forms.IntegerField(
        label=gettext_lazy("Number of questions"), min_value=1, max_value=COUNT_MAX, initial=COUNT
    )
    include_unfound = forms.BooleanField(
        label=gettext_lazy("Also questions that the search does not find"),
        required=False,
        help_text=gettext_lazy("Otherwise hit@10 of the questions is 1 by construction."),
    )
    doc_ids = LinesField(
        label=gettext_lazy("Documents"),
        required=False,
        widget=forms.Textarea(
            attrs={"rows": 1, "class": "mono", "spellcheck": "false", "placeholder": "IDs, one per line. Default: all"}
        ),
    )


@needs(EVALUATE, methods="GET POST")
def suggestions(request: PageRequest, pk: int) -> HttpResponse:
    """The suggestions that nobody has decided on; a POST makes more."""
    golden_set = find_set_or_404(pk)
    form = SuggestForm(request.POST or None)

    def save() -> HttpResponse:
        outcome = suggest_questions(golden_set, actor=request.user, **form.cleaned_data)
        tell = messages.success if outcome.made else messages.warning
        tell(request, f"{outcome.words[:1].upper()}{outcome.words[1:]}.")
        return redirect(reverse("evaluation:golden-set", args=[pk], query={"view": "suggestions"}))

    response, status = submit_form(request, form, save)
    if response:
        return response
    rows = golden_set.questions.filter(suggested=True).order_by("created_at", "position", "id")
    page = page_of(request, rows, PER_PAGE)
    context = set_context(golden_set, "suggestions") | {
        "form": form,
        "has_model": has_chat_model(),
        "page": page,
        "rows": question_rows(golden_set, list(page)),
        "by_construction_total": rows.filter(by_construction=True).count(),
    }
    return render_page(request, "evaluation/golden/suggestions.html", context, status=status)


ROWS_SHOWN = 200
EXAMPLE_CHARS = 160


@needs(EVALUATE, methods="GET POST")
def import_questions(request: PageRequest, pk: int) -> HttpResponse:
    """do=look shows what the file would do; do=import does it, if the set is still as it was looked at.

    column and field, each once per column of the file: which column holds which field, as it was chosen.
    """
    golden_set = find_set_or_404(pk)
    form = ImportForm(request.POST or None, request.FILES or None, initial={"mode": "merge"})
    context: dict[str, Any] = set_context(golden_set, "import") | {"form": form}

    def save() -> HttpResponse:
        text, name = _sent(form)
        file = formats.read_file(text, formats.guess_format(name, text))
        context.update({"text": text, "name": name, "mode": form.cleaned_data["mode"], "file": file})
        chosen = dict(zip(request.POST.getlist("column"), request.POST.getlist("field"), strict=False))
        context["columns"] = _column_choices(file, chosen)
        plan = _act(request, golden_set, form, file, chosen or dict.fromkeys(formats.unmapped(file.names), ""))
        if plan is None:
            return redirect("evaluation:golden-set", pk)
        return render_page(request, "evaluation/golden/import.html", context | {"plan": plan, **_shown(plan)})

    response, status = submit_form(request, form, save)
    return response or render_page(request, "evaluation/golden/import.html", context, status=status)


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """A column of the file, the field that it is read as ("": none), and its first value."""

    name: str
    field: str
    example: str


def _column_choices(file: formats.File, chosen: formats.Mapped) -> dict[str, Any]:
    """For the table of columns: each with its field as chosen, else as proposed."""
    proposed = formats.propose_columns(file.names)
    rows = [
        ColumnChoice(name, chosen.get(name, proposed[name]), file.example(name)[:EXAMPLE_CHARS]) for name in file.names
    ]
    return {"rows": rows, "fields": formats.COLUMNS, "is_as_named": all(row.field == row.name for row in rows)}


def _sent(form: ImportForm) -> tuple[str, str]:
    """(text, the file's name). Raises InvalidInput for bytes that are no text."""
    file = form.cleaned_data["file"]
    if file is not None:
        return formats.decode(file.read()), str(file.name)
    return formats.decode(form.cleaned_data["text"].encode()), form.data.get("name", "")


def _act(
    request: PageRequest, golden_set: GoldenSet, form: ImportForm, file: formats.File, columns: formats.Mapped
) -> formats.ImportPlan | None:
    """The plan to be looked at; None once it is carried out."""
    rows, mode = formats.map_rows(file, columns), form.cleaned_data["mode"]
    if request.POST.get("do") != "import":
        return formats.plan_import(golden_set, rows, mode)
    done = formats.carry_out(golden_set, rows, mode, expected=request.POST.get("stand", ""), actor=request.user)
    counts = done.counts
    summary = ", ".join(
        f"{counts[what]} {what}" for what in ("added", "changed", "removed", "unchanged") if counts[what]
    )
    messages.success(request, gettext("Imported: %(summary)s.") % {"summary": summary})
    return None


def _shown(plan: formats.ImportPlan) -> dict[str, Any]:
    """Wrong lines first, then those that expect unknown documents, then those that change something."""
    order = {"error": 0, "added": 2, "changed": 2, "unchanged": 3}
    rows = sorted(plan.rows, key=lambda row: (1 if row.unknown else order[row.status], row.number))
    return {"rows": Paginator(rows, ROWS_SHOWN).get_page(1), "rows_more": max(len(rows) - ROWS_SHOWN, 0)}


@needs(READ, EVALUATE, methods="GET")
def export_questions(request: PageRequest, pk: int, format: str) -> StreamingHttpResponse:
    """The accepted questions as a file; ?suggested=1: the suggestions too."""
    golden_set = find_set_or_404(pk)
    if format not in formats.MEDIA_TYPES:
        raise Http404(f"there is no format {format!r}; there are csv and jsonl")
    rows = golden_set.questions.all() if request.GET.get("suggested") else golden_set.questions.filter(suggested=False)
    return export_response(request, golden_set, rows, format, for_spreadsheet=True)


def export_response(
    request: HttpRequest, golden_set: GoldenSet, rows: QuerySet[GoldenQuestion], format: str, *, for_spreadsheet: bool
) -> StreamingHttpResponse:
    """Questions of the set as a file, suggestions behind the others."""
    questions = [(Golden.of(row), row.suggested) for row in rows.order_by("suggested", "position", "id")]
    is_csv = format == "csv"
    lines = formats.write_csv(questions, for_spreadsheet=for_spreadsheet) if is_csv else formats.write_jsonl(questions)
    name = f"{golden_set.name}-v{golden_set.version}.{format}"
    reading = Reading("goldenset.export", f"downloaded {golden_set.name}", golden_set, rows=len(questions))
    return download_response(request, lines, formats.MEDIA_TYPES["csv" if is_csv else "jsonl"], name, reading=reading)
