"""Import and export of golden questions on pages: a file is looked at first and imported as it was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods

from collections_app.http.downloads import Reading, download_response
from collections_app.http.page_requests import PageRequest, render_page, submit_form
from evaluation_app.golden.pages.forms import ImportForm
from evaluation_app.golden.pages.sets import find_set_or_404, set_context
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.transfer.columns import COLUMNS, Mapped, propose_columns, unmapped
from evaluation_app.golden.transfer.formats import (
    MEDIA_TYPES,
    File,
    decode,
    guess_format,
    map_rows,
    read_file,
    write_csv,
    write_jsonl,
)
from evaluation_app.golden.transfer.imports import ImportPlan, carry_out, plan_import
from evaluation_app.models import GoldenSet

ROWS_SHOWN = 200
EXAMPLE_CHARS = 160


@require_http_methods(["GET", "POST"])
def import_questions(request: PageRequest, pk: int) -> HttpResponse:
    """do=look shows what the file would do; do=import does it, if the set is still as it was looked at.

    column and field, each once per column of the file: which column holds which field, as it was chosen.
    """
    golden_set = find_set_or_404(pk)
    form = ImportForm(request.POST or None, request.FILES or None, initial={"mode": "merge"})
    context: dict[str, Any] = set_context(golden_set, "import") | {"form": form}

    def save() -> HttpResponse:
        text, name = _sent(form)
        file = read_file(text, guess_format(name, text))
        context.update({"text": text, "name": name, "mode": form.cleaned_data["mode"], "file": file})
        chosen = dict(zip(request.POST.getlist("column"), request.POST.getlist("field"), strict=False))
        context["columns"] = _column_choices(file, chosen)
        plan = _act(request, golden_set, form, file, chosen or dict.fromkeys(unmapped(file.names), ""))
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


def _column_choices(file: File, chosen: Mapped) -> dict[str, Any]:
    """For the table of columns: each with its field as chosen, else as proposed."""
    proposed = propose_columns(file.names)
    rows = [
        ColumnChoice(name, chosen.get(name, proposed[name]), file.example(name)[:EXAMPLE_CHARS]) for name in file.names
    ]
    return {"rows": rows, "fields": COLUMNS, "is_as_named": all(row.field == row.name for row in rows)}


def _sent(form: ImportForm) -> tuple[str, str]:
    """(text, the file's name). Raises InvalidInput for bytes that are no text."""
    file = form.cleaned_data["file"]
    if file is not None:
        return decode(file.read()), str(file.name)
    return decode(form.cleaned_data["text"].encode()), form.data.get("name", "")


def _act(
    request: PageRequest, golden_set: GoldenSet, form: ImportForm, file: File, columns: Mapped
) -> ImportPlan | None:
    """The plan to be looked at; None once it is carried out."""
    rows, mode = map_rows(file, columns), form.cleaned_data["mode"]
    if request.POST.get("do") != "import":
        return plan_import(golden_set, rows, mode)
    done = carry_out(golden_set, rows, mode, expected=request.POST.get("stand", ""), actor=request.user)
    counts = done.counts
    summary = ", ".join(
        f"{counts[what]} {what}" for what in ("added", "changed", "removed", "unchanged") if counts[what]
    )
    messages.success(request, gettext("Imported: %(summary)s.") % {"summary": summary})
    return None


def _shown(plan: ImportPlan) -> dict[str, Any]:
    """Wrong lines first, then those that expect unknown documents, then those that change something."""
    order = {"error": 0, "added": 2, "changed": 2, "unchanged": 3}
    rows = sorted(plan.rows, key=lambda row: (1 if row.unknown else order[row.status], row.number))
    return {"rows": Paginator(rows, ROWS_SHOWN).get_page(1), "rows_more": max(len(rows) - ROWS_SHOWN, 0)}


@require_GET
def export_questions(request: PageRequest, pk: int, format: str) -> StreamingHttpResponse:
    """The accepted questions as a file; ?suggested=1: the suggestions too."""
    golden_set = find_set_or_404(pk)
    if format not in MEDIA_TYPES:
        raise Http404(f"there is no format {format!r}; there are csv and jsonl")
    with_suggested = bool(request.GET.get("suggested"))
    return export_response(request, golden_set, format, with_suggested=with_suggested, for_spreadsheet=True)


def export_response(
    request: HttpRequest, golden_set: GoldenSet, format: str, *, with_suggested: bool, for_spreadsheet: bool
) -> StreamingHttpResponse:
    rows = golden_set.questions.order_by("suggested", "position", "id")
    if not with_suggested:
        rows = rows.filter(suggested=False)
    questions = [(Golden.of(row), row.suggested) for row in rows]
    is_csv = format == "csv"
    lines = write_csv(questions, for_spreadsheet=for_spreadsheet) if is_csv else write_jsonl(questions)
    name = f"{golden_set.name}-v{golden_set.version}.{format}"
    reading = Reading("goldenset.export", f"downloaded {golden_set.name}", golden_set, rows=len(questions))
    return download_response(request, lines, MEDIA_TYPES["csv" if is_csv else "jsonl"], name, reading=reading)
