"""People, groups and role grants in the admin, which never leaves nobody who administers all collections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.admin.base import Base, ReadOnlyAdmin, row_action
from collections_app.admin.form_pages import form_page
from collections_app.domain.permissions import Role
from collections_app.errors import ServiceError
from collections_app.models import Collection, RoleGrant
from collections_app.services.governance import people as service


class KeepsAnAdministrator(Base):
    """An admin whose changes and deletions are undone where they would leave nobody who administers all collections."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._kept(request, super().changeform_view, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._kept(request, super().delete_view, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._kept(request, super().changelist_view, *args, **kwargs)

    def _kept(
        self, request: HttpRequest, show: Callable[..., HttpResponseBase], *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        if request.method != "POST":
            return show(request, *args, **kwargs)
        try:
            with service.keeping_an_administrator():
                return show(request, *args, **kwargs)
        except ServiceError as error:
            self.message_user(request, error.message, messages.ERROR)
            return redirect(request.get_full_path())


class PeopleAdmin(KeepsAnAdministrator, UserAdmin):  # type: ignore[type-arg]
    pass


class GroupsAdmin(KeepsAnAdministrator, GroupAdmin):
    pass


admin.site.unregister(User)
admin.site.unregister(Group)
admin.site.register(User, PeopleAdmin)
admin.site.register(Group, GroupsAdmin)


class RoleGrantForm(forms.Form):
    holder = forms.CharField(
        label=gettext_lazy("Person or group"), help_text=gettext_lazy("A user name, or @ and a group's name.")
    )
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices)
    collection = forms.ModelChoiceField(
        label=gettext_lazy("Collection"),
        queryset=Collection.objects.live().by_name(),
        required=False,
        empty_label=gettext_lazy("All collections"),
    )


@admin.register(RoleGrant)
class RoleGrantAdmin(ReadOnlyAdmin):
    """Which roles people and groups have. Made and taken away by services, which log it."""

    list_display = ("holder", "role", "where", "created_by", "created_at")
    list_filter = ("role",)
    list_select_related = ("user", "group")
    search_fields = ("user__username", "group__name")
    addable = True
    actions = ("take",)

    take = row_action("Take the selected roles away", lambda row, user: service.revoke(row, actor=user), "taken")

    @admin.display(description=gettext_lazy("Person or group"))
    def holder(self, row: RoleGrant) -> str:
        return service.name_holder(row.user or row.group)

    @admin.display(description=gettext_lazy("Collection"))
    def where(self, row: RoleGrant) -> str:
        if not row.collection_id:
            return gettext("All collections")
        return str(Collection.objects.filter(pk=row.collection_id).first() or row.collection_id)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = RoleGrantForm(request.POST or None)

        def save() -> HttpResponse:
            data, actor = form.cleaned_data, cast(User, request.user)
            service.grant(service.find_holder(data["holder"]), data["role"], data["collection"], actor=actor)
            return redirect(reverse("admin:collections_app_rolegrant_changelist"))

        return form_page(self, request, form, save, title="Add role", submit="Give the role")
