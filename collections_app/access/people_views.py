"""What administrators fill in about people, groups and roles. The services check the content.

Pages of people and groups with their roles, and of who has access to a collection.
"""

from __future__ import annotations

import secrets
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.db.models import Count, Prefetch, Q, QuerySet
from django.forms import Form
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access import mail
from collections_app.access import people as service
from collections_app.access.context import current_access
from collections_app.access.permissions import Permission, Role
from collections_app.access.rules import ADMINISTER, needs
from collections_app.collections.models import collection_choices
from collections_app.collections.services import update_collection
from collections_app.collections.views import find_collection
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    RefusalMessages,
    field_of,
    find_or_404,
    page_of,
    render_page,
    run_action,
    submit_form,
    tell,
    whole_number,
)
from collections_app.models import Collection, RoleGrant
from ragd.errors import InvalidInput

ROLE_HELP = gettext_lazy(
    "Can ask: read documents and ask questions. Can edit: also change documents and settings. Can manage: everything,"
    " and who has access. Can view: read documents without asking. Can evaluate: ask, and run evaluations."
)
# what most people are given comes first and is preselected
FIRST_ROLES = [(role.value, role.label) for role in (Role.ASKER, Role.CURATOR)]
MORE_ROLES: Any = (gettext_lazy("More"), [(role.value, role.label) for role in (Role.VIEWER, Role.EVALUATOR)])
ROLE_CHOICES: list[Any] = [*FIRST_ROLES, (Role.ADMINISTRATOR.value, Role.ADMINISTRATOR.label), MORE_ROLES]


PASSWORD_CHOICES = [
    ("link", gettext_lazy("With a password, which they set by a link that you hand over")),
    ("password", gettext_lazy("With a password, which can be changed later")),
    ("sign_on", gettext_lazy("By single sign-on only")),
]


class RoleForm(forms.Form):
    """A role, and in which collection; "" is all."""

    collection = forms.ChoiceField(label=gettext_lazy("Collection"), required=False)
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=ROLE_CHOICES, help_text=ROLE_HELP)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", gettext("All collections")), *collection_choices(Collection.objects.live().by_name())]
        field_of(self, "collection", forms.ChoiceField).choices = choices

    def chosen(self) -> Collection | None:
        name = self.cleaned_data["collection"]
        return Collection.objects.live().get(name=name) if name else None


class DetailsForm(forms.Form):
    """What a person is called, and where mail reaches them."""

    full_name = forms.CharField(
        label=gettext_lazy("Full name"),
        max_length=150,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    email = forms.EmailField(
        label=gettext_lazy("Email"),
        required=False,
        help_text=gettext_lazy("Single sign-on can find the account by it."),
    )


class PersonForm(DetailsForm, RoleForm):
    """A new person; they may have their first role at once."""

    either = ("password",)  # needed by the choice above it, so it is not shown as optional
    username = forms.CharField(
        label=gettext_lazy("User name"),
        max_length=150,
        help_text=gettext_lazy("Also used by single sign-on."),
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    log_in = forms.ChoiceField(label=gettext_lazy("Logs in"), choices=PASSWORD_CHOICES)
    password = forms.CharField(
        label=gettext_lazy("Initial password"),
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    groups = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Groups"),
        queryset=Group.objects.order_by("name"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        log_in = field_of(self, "log_in", forms.ChoiceField)
        log_in.choices = PASSWORD_CHOICES if settings.RAGD_PASSWORD_LOGIN else PASSWORD_CHOICES[-1:]
        if mail.can_mail_passwords():
            words = gettext("With a password, which they set by a link in a mail")
            log_in.choices = [("invitation", words), *PASSWORD_CHOICES]
        role = field_of(self, "role", forms.ChoiceField)
        role.required, role.choices = False, [("", gettext("No role yet")), *ROLE_CHOICES]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("log_in") == "password" and not data.get("password"):
            self.add_error("password", gettext("Enter a password, or choose single sign-on."))
        if data.get("log_in") == "invitation" and not data.get("email") and "email" not in self.errors:
            self.add_error("email", gettext("Enter the address that the invitation is sent to."))
        return data


class GroupForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=150,
        help_text=gettext_lazy("Groups that come with single sign-on are matched by name."),
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )


class PeopleField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]  # Django's takes none when it runs
    def label_from_instance(self, obj: Any) -> str:
        return service.label_user(obj)


class MembersForm(forms.Form):
    members = PeopleField(
        label=gettext_lazy("Members"), queryset=User.objects.none(), required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field_of(self, "members", PeopleField).queryset = service.list_people().order_by("username")


class GroupsForm(forms.Form):
    groups = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Groups"),
        queryset=Group.objects.order_by("name"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )


class ShareForm(forms.Form):
    """Whom a collection is shared with, and as what."""

    holder = forms.CharField(
        label=gettext_lazy("Person or group"),
        help_text=gettext_lazy("Type a name and choose. Groups begin with @."),
        widget=forms.TextInput(
            attrs={
                "list": "holders",
                "autocomplete": "off",
                "hx-get": "",
                "hx-trigger": "input changed delay:200ms",
                "hx-target": "#holders",
                "hx-swap": "outerHTML",
            }
        ),
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=ROLE_CHOICES, help_text=ROLE_HELP)


class OpenRoleForm(forms.Form):
    open_role = forms.ChoiceField(
        label=gettext_lazy("Everybody who is logged in"),
        required=False,
        choices=[("", gettext_lazy("No role: the collection is private")), *FIRST_ROLES, MORE_ROLES],
    )


PER_PAGE = 50
LINK_FOR = "invitation_link_for"  # of the session: whose link the next view of their page shows


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def list_groups(request: PageRequest) -> HttpResponse:
    """A POST makes a group."""
    form = GroupForm(request.POST or None)

    def save() -> HttpResponse:
        made = service.make_group(form.cleaned_data["name"], actor=request.user)
        return tell(request, gettext("Group %(name)s created.") % {"name": made.name}, "collections:group", made.pk)

    response, status = submit_form(request, form, save)
    rows = Group.objects.order_by("name").annotate(
        members=Count("user", distinct=True), grants=Count("role_grants", distinct=True)
    )
    context = {"page": page_of(request, rows, PER_PAGE), "tab": "groups", "form": form}
    return response or render_page(request, "people/groups.html", context, status=status)


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def group(request: PageRequest, pk: int) -> HttpResponse:
    """do=role gives one, revoke takes the one of `grant`, members replaces them, delete deletes the group."""
    holder = find_or_404(Group.objects.all(), pk=pk)

    def change_members() -> str:
        service.set_members(holder, _read(MembersForm(request.POST))["members"], actor=request.user)
        return gettext("Members saved.")

    def delete() -> HttpResponse:
        service.delete_group(holder, actor=request.user)
        messages.success(request, gettext("Group %(name)s deleted.") % {"name": holder.name})
        return redirect(reverse("collections:people", query={"view": "groups"}))

    acts: Acts = {"members": change_members, "delete": delete, "revoke": lambda: _take_role(request, group=holder)}
    form = RoleForm(request.POST if request.POST.get("do") == "role" else None)
    response, status = _give_role(request, holder, form, acts)
    context = {
        "group": holder,
        "roles": service.grants_of_group(holder),
        "form": form,
        "members_form": MembersForm(initial={"members": holder.user_set.all()}),
        "members": holder.user_set.order_by("username"),
    }
    return response or render_page(request, "people/group.html", context, status=status)


def _give_role(
    request: PageRequest, holder: Group | User, form: RoleForm, acts: Acts
) -> tuple[HttpResponse | None, int]:
    """What a POST of the holder's page does, as `submit_form`: give the role of the form, where one was sent, else one
    of acts."""
    if request.method == "POST" and not form.is_bound:
        return run_action(request, acts, request.path), 302

    def save() -> HttpResponse:
        _, is_new = service.grant(holder, form.cleaned_data["role"], form.chosen(), actor=request.user)
        return tell(request, gettext("Role added.") if is_new else gettext("This role is there already."), request.path)

    return submit_form(request, form, save)


def _read(form: Form) -> dict[str, Any]:
    """Raises InvalidInput for what the page does not offer."""
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        raise InvalidInput(str(errors[0]), field=field)
    return form.cleaned_data


def _take_role(request: PageRequest, **of: Any) -> str:
    service.revoke(
        find_or_404(RoleGrant.objects.filter(**of), pk=whole_number(request.POST.get("grant"))), actor=request.user
    )
    return gettext("Role removed.")


@needs(ADMINISTER, everywhere=True, methods="GET")
def list_people(request: PageRequest) -> HttpResponse:
    """q: in the user name, name or address. state: active, inactive, or any."""
    whole = RoleGrant.objects.filter(collection_id=service.EVERYWHERE)
    rows = service.list_people().order_by("username").prefetch_related("groups")
    rows = rows.prefetch_related(Prefetch("role_grants", whole, to_attr="roles_everywhere"))
    rows = rows.annotate(grants=Count("role_grants", filter=~Q(role_grants__collection_id=0), distinct=True))
    states = [("", gettext("Active")), ("inactive", gettext("Inactive")), ("any", gettext("All"))]
    state = Filter("state", gettext("State"), states, _in_state, usual="active")
    context = list_page(request, PEOPLE, rows, [state]).context() | {"tab": "people"}
    return render_page(request, "people/people.html", context, parts={"people": "people/parts/people.html"})


def _in_state(rows: QuerySet[User], state: str) -> QuerySet[User]:
    return rows if state == "any" else rows.filter(is_active=not state)


NAMES = ("username", "email", "first_name", "last_name")
PEOPLE = ListKind("people", gettext_lazy("person,people"), gettext_lazy("Name or email"), NAMES, per_page=PER_PAGE)


@needs(ADMINISTER, everywhere=True, methods="GET POST")
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
        mail.send_invitation(invited, mail.link_base(request), actor=request.user)
        messages.success(request, gettext("Invitation sent to %(address)s.") % {"address": invited.email})


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def person(request: PageRequest, pk: int) -> HttpResponse:
    """do=details changes name and address, role gives one, revoke takes the one of `grant`, groups replaces them,
    active=0 or 1 lets the person log in or not; invite sends the invitation again, link shows one to hand over."""
    holder = find_or_404(service.list_people(), pk=pk)

    def send() -> HttpResponse:
        if not mail.can_mail_passwords():
            raise Http404("no mail server is set up")
        _invite(request, holder)
        return redirect(request.path)

    def show_link() -> HttpResponse:
        request.session[LINK_FOR] = pk
        return redirect(request.path)

    def change_groups() -> str:
        service.set_groups(holder, _read(GroupsForm(request.POST))["groups"], actor=request.user)
        return gettext("Groups saved.")

    def switch_active() -> str:
        is_active = request.POST.get("active") == "1"
        service.set_active(holder, is_active, actor=request.user)
        words = gettext("%(name)s can log in.") if is_active else gettext("%(name)s can no longer log in.")
        return words % {"name": holder.username}

    def save_details() -> HttpResponse:
        data = details.cleaned_data
        service.change_details(holder, data["full_name"], data["email"], actor=request.user)
        return tell(request, gettext("Name and address saved."), request.path)

    acts: Acts = {"invite": send, "link": show_link, "groups": change_groups, "active": switch_active,
            "revoke": lambda: _take_role(request, user=holder)}  # fmt: skip
    do = request.POST.get("do")
    form = RoleForm(request.POST if do == "role" else None)
    initial = {"full_name": holder.get_full_name(), "email": holder.email}
    details = DetailsForm(request.POST if do == "details" else None, initial=initial)
    if details.is_bound:
        response, status = submit_form(request, details, save_details)
    else:
        response, status = _give_role(request, holder, form, acts)
    is_invitable = mail.can_be_invited(holder)
    context = {
        "person": holder,
        "details_form": details,
        "link": take_link(request, holder),
        "link_days": mail.INVITATIONS.lifetime.days,
        "can_link": is_invitable,
        "can_invite": is_invitable and mail.can_mail_passwords() and bool(holder.email),
        "roles": service.roles_of(holder),
        "form": form,
        "groups_form": GroupsForm(initial={"groups": holder.groups.all()}),
        "administers": service.administrators().filter(pk=holder.pk).exists(),
    }
    return response or render_page(request, "people/person.html", context, status=status)


def take_link(request: PageRequest, holder: User) -> str:
    """The link of an invitation where one was asked for just now: it is holder once, and kept nowhere. Else ""."""
    if request.method != "GET" or request.session.get(LINK_FOR) != holder.pk:
        return ""
    del request.session[LINK_FOR]
    if not mail.can_be_invited(holder):
        return ""
    mail.note_link(holder, actor=request.user)
    return mail.INVITATIONS.link_for(holder, mail.link_base(request))


OFFERED = 200


@needs(ADMINISTER, methods="GET POST")
def sharing(request: PageRequest, name: str) -> HttpResponse:
    """A POST shares the collection with a person or a group; with do=open it changes what everybody may, with
    do=revoke it takes the role of `grant`. holder: what was typed so far, for the part `holders`."""
    collection = find_collection(name)
    if "do" in request.POST:
        acts: Acts = {
            "open": lambda: _change_open_role(request, collection),
            "revoke": lambda: _take_role(request, collection_id=collection.pk),
        }
        return run_action(request, acts, request.get_full_path())
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
        return redirect(reverse("collections:settings", args=[name], query={"view": "sharing"}))

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


def _change_open_role(request: PageRequest, collection: Collection) -> str:
    update_collection(collection, changes=_read(OpenRoleForm(request.POST)), actor=request.user)
    return gettext("Sharing saved.")
