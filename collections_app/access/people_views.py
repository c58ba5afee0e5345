"""Pages of people and groups with their roles, and of who has access to a collection."""

from __future__ import annotations

import secrets

from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.db.models import Count, Prefetch, Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from collections_app.access import people as service
from collections_app.access.context import current_access
from collections_app.access.forms import (
    DetailsForm,
    GroupForm,
    GroupsForm,
    MembersForm,
    OpenRoleForm,
    PersonForm,
    RoleForm,
    ShareForm,
)
from collections_app.access.mail import (
    INVITATIONS,
    can_be_invited,
    can_mail_passwords,
    link_base,
    note_link,
    send_invitation,
)
from collections_app.access.permissions import Permission, Role
from collections_app.access.rules import ADMINISTER, needs
from collections_app.collections.services import update_collection
from collections_app.collections.views import find_collection
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    find_or_404,
    page_of,
    render_page,
    submit_form,
)
from collections_app.models import Collection, RoleGrant
from ragd.errors import InvalidInput

PER_PAGE = 50
LINK_FOR = "invitation_link_for"  # of the session: whose link the next view of their page shows


@needs(ADMINISTER, everywhere=True)
@require_GET
def list_groups(request: PageRequest) -> HttpResponse:
    rows = Group.objects.order_by("name").annotate(
        members=Count("user", distinct=True), grants=Count("role_grants", distinct=True)
    )
    context = {"page": page_of(request, rows, PER_PAGE), "tab": "groups"}
    return render_page(request, "people/groups.html", context)


@needs(ADMINISTER, everywhere=True)
@require_http_methods(["GET", "POST"])
def new_group(request: PageRequest) -> HttpResponse:
    form = GroupForm(request.POST or None)

    def save() -> HttpResponse:
        made = service.make_group(form.cleaned_data["name"], actor=request.user)
        messages.success(request, gettext("Group %(name)s created.") % {"name": made.name})
        return redirect("collections:group", made.pk)

    response, status = submit_form(request, form, save)
    return response or render_page(request, "people/new_group.html", {"form": form}, status=status)


@needs(ADMINISTER, everywhere=True)
@require_GET
def group(request: PageRequest, pk: int) -> HttpResponse:
    return show_group(request, find_or_404(Group.objects.all(), pk=pk), RoleForm())


def show_group(request: PageRequest, holder: Group, form: RoleForm, *, status: int = 200) -> HttpResponse:
    context = {
        "group": holder,
        "roles": service.grants_of_group(holder),
        "form": form,
        "members_form": MembersForm(initial={"members": holder.user_set.all()}),
        "members": holder.user_set.order_by("username"),
    }
    return render_page(request, "people/group.html", context, status=status)


@needs(ADMINISTER, everywhere=True)
@require_POST
def give_group_role(request: PageRequest, pk: int) -> HttpResponse:
    holder, form = find_or_404(Group.objects.all(), pk=pk), RoleForm(request.POST)

    def save() -> HttpResponse:
        _, is_new = service.grant(holder, form.cleaned_data["role"], form.chosen(), actor=request.user)
        messages.success(request, gettext("Role added.") if is_new else gettext("This role is there already."))
        return redirect("collections:group", pk)

    response, status = submit_form(request, form, save)
    return response or show_group(request, holder, form, status=status)


@needs(ADMINISTER, everywhere=True)
@require_POST
def change_members(request: PageRequest, pk: int) -> HttpResponse:
    holder, form = find_or_404(Group.objects.all(), pk=pk), MembersForm(request.POST)
    with RefusalMessages(request):
        if form.is_valid():
            service.set_members(holder, form.cleaned_data["members"], actor=request.user)
            messages.success(request, gettext("Members saved."))
    return redirect("collections:group", pk)


@needs(ADMINISTER, everywhere=True)
@require_http_methods(["GET", "POST"])
def delete_group(request: PageRequest, pk: int) -> HttpResponse:
    holder = find_or_404(Group.objects.annotate(total=Count("user")), pk=pk)
    if request.method == "POST":
        with RefusalMessages(request):
            service.delete_group(holder, actor=request.user)
            messages.success(request, gettext("Group %(name)s deleted.") % {"name": holder.name})
            return redirect("collections:groups")
        return redirect("collections:group", pk)
    return render_page(request, "people/delete_group.html", {"group": holder})


@needs(ADMINISTER, everywhere=True)
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


@needs(ADMINISTER, everywhere=True)
@require_http_methods(["GET", "POST"])
def new_person(request: PageRequest) -> HttpResponse:
    """collection: the one that a first role is offered in."""
    into = request.GET.get("collection", "")
    form = PersonForm(request.POST or None, initial={"collection": into, "role": Role.ASKER} if into else None)

    def save() -> HttpResponse:
        data = form.cleaned_data
        # until the link of an invitation is used the password is nobody's
        nobodys = secrets.token_urlsafe(32)
        passwords = {"password": data["password"], "invitation": nobodys, "link": nobodys}
        password = passwords.get(data["log_in"])
        person = service.make_person(
            data["username"],
            password,
            email=data["email"],
            groups=data["groups"],
            role=data["role"],
            collection=form.chosen(),
            actor=request.user,
        )
        service.change_details(person, data["full_name"], data["email"], actor=request.user)
        messages.success(request, gettext("%(name)s added. Give roles here.") % {"name": person.username})
        if data["log_in"] == "invitation":
            _invite(request, person)
        if data["log_in"] == "link":
            request.session[LINK_FOR] = person.pk
        return redirect("collections:person", person.pk)

    response, status = submit_form(request, form, save)
    return response or render_page(request, "people/new_person.html", {"form": form}, status=status)


def _invite(request: PageRequest, invited: User) -> None:
    with RefusalMessages(request):
        send_invitation(invited, link_base(request), actor=request.user)
        messages.success(request, gettext("Invitation sent to %(address)s.") % {"address": invited.email})


@needs(ADMINISTER, everywhere=True)
@require_POST
def invite(request: PageRequest, pk: int) -> HttpResponse:
    """Send the invitation again; with do=link, show a link to hand over."""
    if request.POST.get("do") == "link":
        request.session[LINK_FOR] = pk
        return redirect("collections:person", pk)
    if not can_mail_passwords():
        raise Http404("no mail server is set up")
    _invite(request, find_person(pk))
    return redirect("collections:person", pk)


def find_person(pk: int) -> User:
    return find_or_404(service.list_people(), pk=pk)


@needs(ADMINISTER, everywhere=True)
@require_http_methods(["GET", "POST"])
def person(request: PageRequest, pk: int) -> HttpResponse:
    """A POST changes name and address."""
    holder = find_person(pk)
    details = DetailsForm(request.POST if request.method == "POST" else None, initial=_details_of(holder))

    def save() -> HttpResponse:
        data = details.cleaned_data
        service.change_details(holder, data["full_name"], data["email"], actor=request.user)
        messages.success(request, gettext("Name and address saved."))
        return redirect("collections:person", pk)

    response, status = submit_form(request, details, save)
    return response or show_person(request, holder, RoleForm(), details, status=status)


def _details_of(holder: User) -> dict[str, str]:
    return {"full_name": holder.get_full_name(), "email": holder.email}


def take_link(request: PageRequest, holder: User) -> str:
    """The link of an invitation where one was asked for just now: it is holder once, and kept nowhere. Else ""."""
    if request.method != "GET" or request.session.get(LINK_FOR) != holder.pk:
        return ""
    del request.session[LINK_FOR]
    if not can_be_invited(holder):
        return ""
    note_link(holder, actor=request.user)
    return INVITATIONS.link_for(holder, link_base(request))


def show_person(
    request: PageRequest, holder: User, form: RoleForm, details: DetailsForm | None = None, *, status: int = 200
) -> HttpResponse:
    is_invitable = can_be_invited(holder)
    context = {
        "person": holder,
        "details_form": details or DetailsForm(initial=_details_of(holder)),
        "link": take_link(request, holder),
        "link_days": INVITATIONS.lifetime.days,
        "can_link": is_invitable,
        "can_invite": is_invitable and can_mail_passwords() and bool(holder.email),
        "roles": service.roles_of(holder),
        "form": form,
        "groups_form": GroupsForm(initial={"groups": holder.groups.all()}),
        "administers": service.administrators().filter(pk=holder.pk).exists(),
    }
    return render_page(request, "people/person.html", context, status=status)


@needs(ADMINISTER, everywhere=True)
@require_POST
def give_role(request: PageRequest, pk: int) -> HttpResponse:
    holder, form = find_person(pk), RoleForm(request.POST)

    def save() -> HttpResponse:
        _, is_new = service.grant(holder, form.cleaned_data["role"], form.chosen(), actor=request.user)
        messages.success(request, gettext("Role added.") if is_new else gettext("This role is there already."))
        return redirect("collections:person", pk)

    response, status = submit_form(request, form, save)
    return response or show_person(request, holder, form, status=status)


@needs(ADMINISTER, everywhere=True)
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


@needs(ADMINISTER, everywhere=True)
@require_POST
def change_groups(request: PageRequest, pk: int) -> HttpResponse:
    holder, form = find_person(pk), GroupsForm(request.POST)
    with RefusalMessages(request):
        if form.is_valid():
            service.set_groups(holder, form.cleaned_data["groups"], actor=request.user)
            messages.success(request, gettext("Groups saved."))
    return redirect("collections:person", pk)


@needs(ADMINISTER, everywhere=True)
@require_POST
def switch_active(request: PageRequest, pk: int) -> HttpResponse:
    holder, is_active = find_person(pk), request.POST.get("active") == "1"
    with RefusalMessages(request):
        service.set_active(holder, is_active, actor=request.user)
        messages.success(
            request,
            (gettext("%(name)s can log in.") if is_active else gettext("%(name)s can no longer log in."))
            % {"name": holder.username},
        )
    return redirect("collections:person", pk)


OFFERED = 200


@needs(ADMINISTER)
@require_http_methods(["GET", "POST"])
def sharing(request: PageRequest, name: str) -> HttpResponse:
    """A POST shares the collection with a person or a group, or with open_role changes what everybody may. holder: what
    was typed so far, for the part `holders`."""
    collection = find_collection(name)
    if "open_role" in request.POST:
        return _change_open_role(request, collection)
    words = request.GET.get("holder", "").replace("\x00", "").strip()
    form = ShareForm(request.POST or None)

    def save() -> HttpResponse:
        try:
            holder = service.find_holder(form.cleaned_data["holder"])
        except InvalidInput as error:
            error.field = "holder"
            raise
        service.replace_role(holder, form.cleaned_data["role"], collection, actor=request.user)
        label = service.label_user(holder) if isinstance(holder, User) else service.name_holder(holder)
        messages.success(request, gettext("Shared with %(name)s.") % {"name": label})
        return redirect("collections:sharing", name)

    response, status = submit_form(request, form, save)
    context = {
        "collection": collection,
        "tab": "sharing",
        "form": form,
        "open_form": OpenRoleForm(initial={"open_role": collection.open_role}),
        "holdings": service.who_may(collection),
        "people": [service.label_user(each) for each in service.search_people(words)[:OFFERED]],
        "groups": Group.objects.filter(name__icontains=words.removeprefix("@")).order_by("name")[:OFFERED],
        "may_add_people": current_access().may(Permission.ADMINISTER),
    }
    parts = {"holders": "people/parts/holders.html"}
    return response or render_page(request, "people/sharing.html", context, parts=parts, status=status)


def _change_open_role(request: PageRequest, collection: Collection) -> HttpResponse:
    form = OpenRoleForm(request.POST)
    with RefusalMessages(request):
        if form.is_valid():
            update_collection(collection, changes={"open_role": form.cleaned_data["open_role"]}, actor=request.user)
            messages.success(request, gettext("Sharing saved."))
    return redirect("collections:sharing", collection.name)


@needs(ADMINISTER)
@require_POST
def unshare(request: PageRequest, name: str, grant_id: int) -> HttpResponse:
    collection = find_collection(name)
    given = find_or_404(RoleGrant.objects.filter(collection_id=collection.pk), pk=grant_id)
    with RefusalMessages(request):
        service.revoke(given, actor=request.user)
        messages.success(request, gettext("Role removed."))
    return redirect("collections:sharing", name)
