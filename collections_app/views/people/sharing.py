"""Who may what in a collection: private, shared with people and groups, open to all who are logged in."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import Group
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST

from collections_app.http.page_requests import PageRequest, RefusalMessages, find_or_404, render_page, submit_form
from collections_app.models import RoleGrant
from collections_app.services.collections.collections import update_collection
from collections_app.services.governance import people as service
from collections_app.views.collections import find_collection
from collections_app.views.forms.people import OpenRoleForm, ShareForm
from ragd.errors import InvalidInput

OFFERED = 200


@require_http_methods(["GET", "POST"])
def sharing(request: PageRequest, name: str) -> HttpResponse:
    """A POST shares the collection with a person or a group."""
    collection = find_collection(name)
    form = ShareForm(request.POST or None)

    def save() -> HttpResponse:
        try:
            holder = service.find_holder(form.cleaned_data["holder"])
        except InvalidInput as error:
            error.field = "holder"
            raise
        service.replace_role(holder, form.cleaned_data["role"], collection, actor=request.user)
        messages.success(request, gettext("Shared with %(name)s.") % {"name": service.name_holder(holder)})
        return redirect("collections:sharing", name)

    response, status = submit_form(request, form, save)
    context = {
        "collection": collection,
        "tab": "sharing",
        "form": form,
        "open_form": OpenRoleForm(initial={"open_role": collection.open_role}),
        "holdings": service.who_may(collection),
        "people": service.list_people().filter(is_active=True).order_by("username")[:OFFERED],
        "groups": Group.objects.order_by("name")[:OFFERED],
    }
    return response or render_page(request, "people/sharing.html", context, status=status)


@require_POST
def open_role(request: PageRequest, name: str) -> HttpResponse:
    collection, form = find_collection(name), OpenRoleForm(request.POST)
    with RefusalMessages(request):
        if form.is_valid():
            update_collection(collection, changes={"open_role": form.cleaned_data["open_role"]}, actor=request.user)
            messages.success(request, gettext("Sharing saved."))
    return redirect("collections:sharing", name)


@require_POST
def unshare(request: PageRequest, name: str, grant_id: int) -> HttpResponse:
    collection = find_collection(name)
    given = find_or_404(RoleGrant.objects.filter(collection_id=collection.pk), pk=grant_id)
    with RefusalMessages(request):
        service.revoke(given, actor=request.user)
        messages.success(request, gettext("Role removed."))
    return redirect("collections:sharing", name)
