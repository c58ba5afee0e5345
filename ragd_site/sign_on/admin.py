"""Sessions, second factors and accounts of single sign-on in the admin; allauth's other tables are not used."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.http import HttpRequest

from collections_app.admin.base import ReadOnlyAdmin

for unused in (EmailAddress, SocialApp, SocialToken, Authenticator, SocialAccount, UserSession):
    admin.site.unregister(unused)


@admin.register(UserSession)
class UserSessionAdmin(ReadOnlyAdmin):
    """Deleting a row ends the session."""

    deletable = True
    list_display = ("user", "user_agent", "ip", "created_at", "last_seen_at")
    list_select_related = ("user",)
    fields = ("user", "user_agent", "ip", "created_at", "last_seen_at")
    search_fields = ("user__username", "ip")
    ordering = ("-last_seen_at",)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        obj.end()

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for session in queryset:
            session.end()


@admin.register(Authenticator)
class AuthenticatorAdmin(ReadOnlyAdmin):
    """Deleting a row takes a second factor that was lost from a person. Its secret is not shown."""

    deletable = True
    list_display = ("user", "type", "created_at", "last_used_at")
    list_select_related = ("user",)
    fields = ("user", "type", "created_at", "last_used_at")
    search_fields = ("user__username",)


@admin.register(SocialAccount)
class SocialAccountAdmin(ReadOnlyAdmin):
    """Deleting a row parts an account of ragd from that of the provider."""

    deletable = True
    list_display = ("user", "provider", "uid", "last_login")
    list_select_related = ("user",)
    fields = ("user", "provider", "uid", "date_joined", "last_login")
    search_fields = ("user__username", "uid")
