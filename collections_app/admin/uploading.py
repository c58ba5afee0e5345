"""Files into a collection through the admin: the form, and what became of the files that needed no job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext_lazy

from collections_app.admin.form_pages import form_page
from collections_app.http.page_requests import field_of
from collections_app.models import Collection, IngestBatch
from collections_app.services.uploads.uploads import UploadOutcome, submit_uploads
from collections_app.views.forms.collections import FileFields
from collections_app.views.forms.fields import FilesField

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

OUTCOMES = "admin_uploads"
BATCHES_KEPT = 5
LINES_KEPT = 200
ADD_DOCUMENTS = "collections_app.add_document"
NOTE = "Tags and metadata that are left empty stay as they are. A ZIP or TAR is unpacked; each file is a document."


class FilesForm(FileFields):
    """Files, and what is said about them."""

    uploads = FilesField(label=gettext_lazy("Files"), help_text=gettext_lazy("One or many."))
    field_order = ("collection", "uploads")


class DocumentsForm(FilesForm):
    """The same, into a collection that is chosen here."""

    collection = forms.ModelChoiceField(label=gettext_lazy("Collection"), queryset=Collection.objects.none())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field_of(self, "collection", forms.ModelChoiceField).queryset = Collection.objects.live().by_name()


def upload_page(
    model_admin: ModelAdmin[Any], request: HttpRequest, kind: type[FilesForm], collection: Collection | None = None
) -> HttpResponse:
    """The form, then the page of the batch that the files came to. Without a collection the form asks for one.

    The caller has checked the permission.
    """
    form = kind(request.POST or None, request.FILES or None)

    def save() -> HttpResponse:
        chosen = collection or form.cleaned_data["collection"]
        outcomes = submit_uploads(chosen, form.cleaned_data["uploads"], actor=request.user, **form.labels())
        batch = outcomes[0].batch
        assert batch is not None  # a submission makes one
        _keep(request, batch, [outcome for outcome in outcomes if outcome.status != "queued"])
        return redirect("admin:collections_app_ingestbatch_change", batch.pk)

    return form_page(
        model_admin, request, form, save, title="Upload files", submit="Upload", original=collection, note=NOTE
    )


def _keep(request: HttpRequest, batch: IngestBatch, outcomes: Sequence[UploadOutcome]) -> None:
    """Those that were rejected come first: their errors stand nowhere else."""
    first = sorted(outcomes, key=lambda each: each.status != "rejected")[:LINES_KEPT]
    lines = [{"name": each.name, "status": each.status, "reason": each.error or each.reason} for each in first]
    kept = dict(request.session.get(OUTCOMES, {}))
    kept[str(batch.pk)] = lines
    request.session[OUTCOMES] = dict(list(kept.items())[-BATCHES_KEPT:])


def outcomes_of(request: HttpRequest, batch: IngestBatch) -> list[dict[str, str]]:
    """Files of the batch that needed no job, as this session sent them: name, status, reason."""
    lines: list[dict[str, str]] = request.session.get(OUTCOMES, {}).get(str(batch.pk), [])
    return lines
