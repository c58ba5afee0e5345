"""What administrators fill in about people, groups and roles. The services check the content."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.mail import can_mail_passwords
from collections_app.access.people import label_user, list_people
from collections_app.access.permissions import Role
from collections_app.collections.models import collection_choices
from collections_app.http.page_requests import field_of
from collections_app.models import Collection

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
        help_text=gettext_lazy("A proxy that logs people in knows them by this name."),
        widget=forms.TextInput(attrs={"autofocus": True, "autocomplete": "off"}),
    )
    log_in = forms.ChoiceField(
        label=gettext_lazy("Logs in"),
        choices=PASSWORD_CHOICES,
    )
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
        if can_mail_passwords():
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
        return label_user(obj)


class MembersForm(forms.Form):
    members = PeopleField(
        label=gettext_lazy("Members"), queryset=User.objects.none(), required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field_of(self, "members", PeopleField).queryset = list_people().order_by("username")


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
