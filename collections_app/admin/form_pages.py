"""Pages of the admin with a form of the interface: the same fields, checks and services as its pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db.models import Model
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from collections_app.http.page_requests import submit_form

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

TEMPLATE = "admin/form_page.html"


def form_page(
    model_admin: ModelAdmin[Any],
    request: HttpRequest,
    form: Form,
    save: Callable[[], HttpResponse],
    *,
    title: str,
    submit: str,
    original: Model | None = None,
    note: str = "",
) -> HttpResponse:
    """The form, or what `save` answers to a valid one; what a service refuses stands beside its field.

    title: of the page; submit: on the button; original: the row that it is about; note: a sentence above the form. The
    caller has checked the permission.
    """
    response, status = submit_form(request, form, save)
    if response is not None:
        return response
    context = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "submit": submit,
        "opts": model_admin.opts,
        "original": original,
        "note": note,
        "form": form,
    }
    return TemplateResponse(request, TEMPLATE, context, status=status)
