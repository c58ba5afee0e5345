"""People: the list, one person with their roles and where each comes from, and making one."""

from __future__ import annotations

import secrets

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Count, Prefetch, Q
from django.http import Http404, HttpResponse
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
from collections_app.models import RoleGrant
from collections_app.services.governance import people as service
from collections_app.services.governance.mail import can_mail_passwords, link_base, send_invitation
from collections_app.views.forms.people import GroupsForm, PersonForm, RoleForm

PER_PAGE = 50


@require_GET
def list_people(request: PageRequest) -> HttpResponse:
    """q: in the user name, name or address. state: active, inactive, or any."""
    words, state = request.GET.get("q", "").replace("\x00", "").strip(), request.GET.get("state", "active")
    whole = RoleGrant.objects.filter(collection_id=service.EVERYWHERE)
    rows = service.list_people().order_by("username").prefetch_related("groups")
    rows = rows.prefetch_related(Prefetch("role_grants", whole, to_attr="roles_everywhere"))
    rows = rows.annotate(grants=Count("role_grants", filter=~Q(role_grants__collection_id=0), distinct=True))
    if state in ("active", "inactive"):
        rows = rows.filter(is_active=state == "active")
    if words:
        rows = rows.filter(
            Q(username__icontains=words)
            | Q(email__icontains=words)
            | Q(first_name__icontains=words)
            | Q(last_name__icontains=words)
        )
    context = {"page": page_of(request, rows, PER_PAGE), "q": words, "state": state, "tab": "people"}
    return render_page(request, "people/people.html", context, parts={"people": "people/parts/people.html"})


@require_http_methods(["GET", "POST"])
def new_person(request: PageRequest) -> HttpResponse:
    form = PersonForm(request.POST or None)

    def save() -> HttpResponse:
        data = form.cleaned_data
        is_invited = data["log_in"] == "invitation"
        # whom the mail does not reach uses Forgot password, or is invited again: the password is nobody's
        password = {"password": data["password"], "invitation": secrets.token_urlsafe(32)}.get(data["log_in"])
        person = service.make_person(
            data["username"],
            password,
            email=data["email"],
            groups=data["groups"],
            role=data["role"],
            collection=form.chosen(),
            actor=request.user,
        )
        messages.success(request, gettext("%(name)s added. Give roles here.") % {"name": person.username})
        if is_invited:
            _invite(request, person)
        return redirect("collections:person", person.pk)

    response, status = submit_form(request, form, save)
    return response or render_page(request, "people/new_person.html", {"form": form}, status=status)


def _invite(request: PageRequest, invited: User) -> None:
    with RefusalMessages(request):
        send_invitation(invited, link_base(request), actor=request.user)
        messages.success(request, gettext("Invitation sent to %(address)s.") % {"address": invited.email})


@require_POST
def invite(request: PageRequest, pk: int) -> HttpResponse:
    """Send the invitation again."""
    if not can_mail_passwords():
        raise Http404("no mail server is set up")
    _invite(request, find_person(pk))
    return redirect("collections:person", pk)


def find_person(pk: int) -> User:
    return find_or_404(service.list_people(), pk=pk)


@require_GET
def person(request: PageRequest, pk: int) -> HttpResponse:
    return show_person(request, find_person(pk), RoleForm())


def show_person(request: PageRequest, shown: User, form: RoleForm, *, status: int = 200) -> HttpResponse:
    context = {
        "person": shown,
        "roles": service.roles_of(shown),
        "form": form,
        "groups_form": GroupsForm(initial={"groups": shown.groups.all()}),
        "can_invite": can_mail_passwords()
        and bool(shown.email and shown.has_usable_password() and not shown.last_login),
        "administers": service.administrators().filter(pk=shown.pk).exists(),
    }
    return render_page(request, "people/person.html", context, status=status)


@require_POST
def give_role(request: PageRequest, pk: int) -> HttpResponse:
    shown, form = find_person(pk), RoleForm(request.POST)

    def save() -> HttpResponse:
        _, is_new = service.grant(shown, form.cleaned_data["role"], form.chosen(), actor=request.user)
        messages.success(request, gettext("Role added.") if is_new else gettext("This role is there already."))
        return redirect("collections:person", pk)

    response, status = submit_form(request, form, save)
    return response or show_person(request, shown, form, status=status)


@require_POST
def take_role(request: PageRequest, pk: int) -> HttpResponse:
    """Of a grant, of a person or a group, by its id; back to whose it was."""
    given = find_or_404(RoleGrant.objects.all(), pk=pk)
    with RefusalMessages(request):
        service.revoke(given, actor=request.user)
        messages.success(request, gettext("Role removed."))
    if given.user_id:
        return redirect("collections:person", given.user_id)
    return redirect("collections:group", given.group_id)


@require_POST
def change_groups(request: PageRequest, pk: int) -> HttpResponse:
    shown, form = find_person(pk), GroupsForm(request.POST)
    with RefusalMessages(request):
        if form.is_valid():
            service.set_groups(shown, form.cleaned_data["groups"], actor=request.user)
            messages.success(request, gettext("Groups saved."))
    return redirect("collections:person", pk)


@require_POST
def switch_active(request: PageRequest, pk: int) -> HttpResponse:
    shown, is_active = find_person(pk), request.POST.get("active") == "1"
    with RefusalMessages(request):
        service.set_active(shown, is_active, actor=request.user)
        messages.success(
            request,
            (gettext("%(name)s can log in.") if is_active else gettext("%(name)s can no longer log in."))
            % {"name": shown.username},
        )
    return redirect("collections:person", pk)
