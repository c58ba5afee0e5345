"""People and groups in the admin, which never leaves nobody who administers all collections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from collections_app.admin.base import AuditedAdmin
from collections_app.errors import ServiceError
from collections_app.services.governance import people as service


class KeepsAnAdministrator(AuditedAdmin):
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
