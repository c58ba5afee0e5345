"""Groups: the list, one group with its members and roles, making and deleting one."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import Group
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    page_of,
    render_page,
    submit_form,
)
from collections_app.services.governance import people as service
from collections_app.views.forms.people import GroupForm, MembersForm, RoleForm

PER_PAGE = 50


@require_GET
def list_groups(request: PageRequest) -> HttpResponse:
    rows = Group.objects.order_by("name").annotate(
        members=Count("user", distinct=True), grants=Count("role_grants", distinct=True)
    )
    context = {"page": page_of(request, rows, PER_PAGE), "tab": "groups"}
    return render_page(request, "people/groups.html", context)


@require_http_methods(["GET", "POST"])
def new_group(request: PageRequest) -> HttpResponse:
    form = GroupForm(request.POST or None)

    def save() -> HttpResponse:
        made = service.make_group(form.cleaned_data["name"], actor=request.user)
        messages.success(request, gettext("Group %(name)s created.") % {"name": made.name})
        return redirect("collections:group", made.pk)

    response, status = submit_form(request, form, save)
    return response or render_page(request, "people/new_group.html", {"form": form}, status=status)


@require_GET
def group(request: PageRequest, pk: int) -> HttpResponse:
    return show_group(request, find_or_404(Group.objects.all(), pk=pk), RoleForm())


def show_group(request: PageRequest, shown: Group, form: RoleForm, *, status: int = 200) -> HttpResponse:
    context = {
        "group": shown,
        "roles": service.grants_of_group(shown),
        "form": form,
        "members_form": MembersForm(initial={"members": shown.user_set.all()}),
        "members": shown.user_set.order_by("username"),
    }
    return render_page(request, "people/group.html", context, status=status)


@require_POST
def give_role(request: PageRequest, pk: int) -> HttpResponse:
    shown, form = find_or_404(Group.objects.all(), pk=pk), RoleForm(request.POST)

    def save() -> HttpResponse:
        _, is_new = service.grant(shown, form.cleaned_data["role"], form.chosen(), actor=request.user)
        messages.success(request, gettext("Role added.") if is_new else gettext("This role is there already."))
        return redirect("collections:group", pk)

    response, status = submit_form(request, form, save)
    return response or show_group(request, shown, form, status=status)


@require_POST
def change_members(request: PageRequest, pk: int) -> HttpResponse:
    shown, form = find_or_404(Group.objects.all(), pk=pk), MembersForm(request.POST)
    with RefusalMessages(request):
        if form.is_valid():
            service.set_members(shown, form.cleaned_data["members"], actor=request.user)
            messages.success(request, gettext("Members saved."))
    return redirect("collections:group", pk)


@require_http_methods(["GET", "POST"])
def delete_group(request: PageRequest, pk: int) -> HttpResponse:
    shown = find_or_404(Group.objects.annotate(total=Count("user")), pk=pk)
    if request.method == "POST":
        with RefusalMessages(request):
            service.delete_group(shown, actor=request.user)
            messages.success(request, gettext("Group %(name)s deleted.") % {"name": shown.name})
            return redirect("collections:groups")
        return redirect("collections:group", pk)
    return render_page(request, "people/delete_group.html", {"group": shown})
