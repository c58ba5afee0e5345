"""What ragd decides in allauth's flows.

The groups that come with a person from single sign-on or from a proxy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.shortcuts import render
from django.utils.translation import gettext

from collections_app.audit.services import note_login
from collections_app.endpoints import secrets
from collections_app.models import PersonalSetting
from ragd_site.sign_on.provider import verified_email

logger = logging.getLogger(__name__)
GRANT_KEY = "sign-on"
LONGEST_NAME = Group._meta.get_field("name").max_length or 0


def read_groups(claims: Mapping[str, Any], claim: str) -> list[str]:
    """The names in a claim: a list of texts, or one text. What is neither is none."""
    value = claims.get(claim)
    names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [name for name in names if isinstance(name, str)]


@transaction.atomic
def set_groups(user: User, names: Iterable[str], *, superuser: bool | None = None) -> None:
    """Make the memberships that came from outside those of `names`; groups that are new are made.

    Memberships that were given by hand stay. superuser: whether this person is an administrator by one of the groups;
    who became it otherwise stays it. None: not asked.
    """
    empty = {"groups": [], "superuser": False}
    rows = PersonalSetting.objects.select_for_update()
    setting, _ = rows.get_or_create(user=user, key=GRANT_KEY, defaults={"value": empty})
    grant = setting.value
    given, held = set(Group.objects.filter(pk__in=grant["groups"])), set(user.groups.all())
    wanted = {Group.objects.get_or_create(name=name)[0] for name in _usable(names)}
    gone, fresh = given - wanted, wanted - held
    user.groups.remove(*gone)
    user.groups.add(*fresh)
    given = given - gone | fresh
    if superuser is not None and superuser != grant["superuser"] and (grant["superuser"] or not user.is_superuser):
        user.is_superuser = user.is_staff = grant["superuser"] = superuser
        user.save(update_fields=["is_superuser", "is_staff"])
    setting.value = grant | {"groups": sorted(group.pk for group in given)}
    setting.save(update_fields=["value"])


def _usable(names: Iterable[str]) -> set[str]:
    """Without empty names and those that no group can have."""
    cleaned = {name.strip() for name in names}
    for name in cleaned:
        if len(name) > LONGEST_NAME or "\0" in name:
            logger.warning("a group name of %d characters cannot be stored; it is left out", len(name))
    return {name for name in cleaned if name and len(name) <= LONGEST_NAME and "\0" not in name}


UNKNOWN_ADDRESS = "0.0.0.0"
UNREADABLE = (
    "This second factor was set up under another key of the server (RAGD_SECRET_KEY). On the server, name that key in "
    "RAGD_SECRET_KEY_FALLBACKS or run: python manage.py reset_second_factor NAME"
)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Accounts come from administrators, single sign-on and proxies: there is no page to sign up."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def login(self, request: HttpRequest, user: Any) -> None:
        super().login(request, user)
        records = get_authentication_records(request, user)
        note_login(user, how=", ".join(dict.fromkeys(record["method"] for record in records)) or "unknown means")

    def get_client_ip(self, request: HttpRequest) -> str:
        """OriginMiddleware has found it."""
        return request.META.get("REMOTE_ADDR") or UNKNOWN_ADDRESS

    def add_message(
        self, request: HttpRequest, level: int, message_template: str | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """Without the greeting at every log-in."""
        if message_template != "account/messages/logged_in.txt":
            super().add_message(request, level, message_template, *args, **kwargs)


class SignOnAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Groups and administrators follow the provider at each log-in."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        """Raises ImmediateHttpResponse, a page with 403, for people who are new where they may not be."""
        if not settings.RAGD_OIDC_SIGNUP:
            logger.warning("single sign-on of a person who has no account: RAGD_OIDC_SIGNUP is off")
            raise ImmediateHttpResponse(render(request, "account/signup_closed.html", status=403))
        return True

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        claims = sociallogin.account.extra_data["userinfo"]
        if not sociallogin.is_existing and settings.RAGD_OIDC_LINK_EMAIL:
            known = only_user_of_email(verified_email(claims))
            if known is not None:
                sociallogin.connect(request, known)
        if sociallogin.is_existing:
            follow_claims(sociallogin.user, claims)

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        user = super().save_user(request, sociallogin, form)
        follow_claims(user, sociallogin.account.extra_data["userinfo"])
        return user

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        logger.warning("single sign-on failed: %s %s", error, exception or "the state is not that of this session")


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Secrets of second factors are encrypted like keys of models."""

    def encrypt(self, text: str) -> str:
        return secrets.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        try:
            return secrets.decrypt(encrypted_text)
        except secrets.UnreadableSecretError:
            raise ValidationError(UNREADABLE) from None

    def generate_authenticator_name(self, user: Any, type: Any) -> str:
        count = Authenticator.objects.filter(user=user, type=type).count()
        return gettext("Passkey %(number)d") % {"number": count + 1}


def follow_claims(user: Any, claims: dict[str, Any]) -> None:
    names = read_groups(claims, settings.RAGD_OIDC_GROUPS_CLAIM)
    is_administrator = bool(settings.RAGD_OIDC_ADMIN_GROUP) and settings.RAGD_OIDC_ADMIN_GROUP in names
    set_groups(cast(User, user), names, superuser=is_administrator)


def only_user_of_email(email: str) -> User | None:
    """The one active account with this address; None where there is none or several."""
    found = list(User.objects.filter(email__iexact=email, is_active=True)[:2]) if email else []
    return found[0] if len(found) == 1 else None
