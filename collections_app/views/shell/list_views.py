"""The person's own views of a list: saved and deleted; and the expert view."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.views.decorators.http import require_POST

from collections_app.http.list_views import EXPERT_SETTINGS, delete_view, keep_setting, save_view
from collections_app.http.page_requests import PageRequest, RefusalMessages, next_address


@require_POST
def change(request: PageRequest) -> HttpResponse:
    """do=save (name, query) or delete (name), of list=; back to `next`.

    do=expert keeps whether the expert settings are open (open=on); nothing is answered.
    """
    given, name = request.POST, request.POST.get("name", "")
    name_of_list, action = given.get("list", ""), given.get("do", "")
    if action == "expert":
        keep_setting(request.user, EXPERT_SETTINGS, bool(given.get("open")) or None)
        return HttpResponse(status=204)
    with RefusalMessages(request):
        if action == "save":
            save_view(request.user, name_of_list, name, given.get("query", ""))
            messages.success(request, gettext("View %(name)s saved.") % {"name": name.strip()})
        elif action == "delete":
            delete_view(request.user, name_of_list, name)
            messages.success(request, gettext("View %(name)s deleted.") % {"name": name})
    return HttpResponseRedirect(next_address(request, "evaluation:home"))
