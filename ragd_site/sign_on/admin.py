"""Sessions, second factors, log-ins and accounts of single sign-on in the admin, in place of what their apps show.

Deleting a row ends a session, takes a lost second factor from a person, parts an account from that of the provider, or
lets somebody try again who was locked out. Tables of allauth that are not used are not shown.
"""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from collections_app.admin.base import Listing, ReadOnlyAdmin, register

ATTEMPT = ("attempt_time", "ip_address", "username", "user_agent", "path_info")

TABLE: dict[type[Model], Listing] = {
    Authenticator: Listing(
        columns=("user", "type", "created_at", "last_used_at"),
        search=("user__username",),
        hidden=("data",),
        deletable=True,
    ),
    SocialAccount: Listing(
        columns=("user", "provider", "uid", "last_login"),
        search=("user__username", "uid"),
        hidden=("extra_data",),
        deletable=True,
    ),
    AccessAttempt: Listing(
        columns=(*ATTEMPT, "failures_since_start"),
        filters=("attempt_time", "path_info"),
        search=ATTEMPT[1:],
        order=("-attempt_time",),
        deletable=True,
    ),
    AccessFailureLog: Listing(
        columns=(*ATTEMPT, "locked_out"),
        filters=("attempt_time", "locked_out", "path_info"),
        search=ATTEMPT[1:],
        order=("-attempt_time",),
        deletable=True,
    ),
    AccessLog: Listing(
        columns=(*ATTEMPT, "logout_time"),
        filters=("attempt_time", "logout_time", "path_info"),
        search=ATTEMPT[1:],
        order=("-attempt_time",),
        hidden=("session_hash",),
        deletable=True,
    ),
}
SESSIONS = Listing(
    columns=("user", "user_agent", "ip", "created_at", "last_seen_at"),
    search=("user__username", "ip"),
    order=("-last_seen_at",),
    hidden=("session_key", "data"),
    deletable=True,
)


class UserSessionAdmin(ReadOnlyAdmin):
    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        obj.end()

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for session in queryset:
            session.end()


for unused in (EmailAddress, SocialApp, SocialToken):
    admin.site.unregister(unused)
register(TABLE)
register({UserSession: SESSIONS}, UserSessionAdmin)
