"""What ragd decides in allauth's flows.

The groups that come with a person from single sign-on or from a proxy.

Proxies that are trusted: whose word on the client's address and on who is logged in is believed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, cast

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.auth.backends import RemoteUserBackend
from django.contrib.auth.middleware import RemoteUserMiddleware
from django.contrib.auth.models import Group, User
from django.core.exceptions import MiddlewareNotUsed, ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext

from collections_app.audit.origin import using_origin
from collections_app.audit.requests import REFUSED, note_refusal, origin_of
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


Address = IPv4Address | IPv6Address
Networks = tuple[IPv4Network | IPv6Network, ...]
GROUPS_KEY = "proxy_groups"


class OriginMiddleware:
    """Where a request comes from: for the audit log, and for all that reads an address behind this.

    REMOTE_ADDR becomes the client's address behind trusted proxies. The headers that name who is logged in are removed
    from every other request. A request that is refused is an event of the audit log.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.networks = read_networks(tuple(settings.RAGD_TRUSTED_PROXIES))
        self.names = [meta_name(header) for header in identity_headers()]

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        peer = read_address(request.META.get("REMOTE_ADDR", ""))
        if peer is not None and is_within(peer, self.networks):
            forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "")
            request.META["REMOTE_ADDR"] = str(client_address(peer, forwarded, self.networks))
        else:
            for name in self.names:
                if request.META.pop(name, None) is not None:
                    logger.warning("%s came from %s, which is no trusted proxy; it is ignored", name, peer)
        with using_origin(origin_of(request)):
            response = self.get_response(request)
            if response.status_code == REFUSED:
                note_refusal(request)
        return response


class ProxyUserMiddleware(RemoteUserMiddleware):
    """Whoever a trusted proxy names is logged in, on pages."""

    def __init__(self, get_response: Any) -> None:
        if not settings.RAGD_PROXY_USER_HEADER:
            raise MiddlewareNotUsed
        super().__init__(get_response)
        self.header = meta_name(settings.RAGD_PROXY_USER_HEADER)  # type: ignore[misc]
        self.groups_header = settings.RAGD_PROXY_GROUPS_HEADER and meta_name(settings.RAGD_PROXY_GROUPS_HEADER)

    def process_request(self, request: HttpRequest) -> None:
        name = request.META.get(self.header)
        if name is not None and not is_user_name(name):
            logger.warning("the proxy sent a user name that no account can have; it is ignored")
            del request.META[self.header]
        was_known = request.user.is_authenticated
        super().process_request(request)
        if not was_known and isinstance(request.user, User):
            note_login(request.user, how="the header of a proxy")
        if self.groups_header and is_by_proxy(request):
            self.follow_groups(request)

    def follow_groups(self, request: HttpRequest) -> None:
        """The groups are those of the header, at log-in and whenever it changes."""
        header = request.META.get(self.groups_header, "")
        if request.session.get(GROUPS_KEY) != header:
            set_groups(cast(User, request.user), header.split(","))
            request.session[GROUPS_KEY] = header


class ProxyUserBackend(RemoteUserBackend):
    """Accounts of people whom a proxy names; a new one is made where RAGD_PROXY_SIGNUP says so."""

    @property
    def create_unknown_user(self) -> bool:  # type: ignore[override]
        return bool(settings.RAGD_PROXY_SIGNUP)

    def configure_user(self, request: HttpRequest | None, user: Any, created: bool = True) -> Any:
        if created:
            user.set_unusable_password()
            user.save(update_fields=["password"])
        return user


def is_by_proxy(request: HttpRequest) -> bool:
    """Whether a proxy's header logged this person in."""
    backend = request.session.get(BACKEND_SESSION_KEY) if request.user.is_authenticated else None
    return bool(backend == f"{ProxyUserBackend.__module__}.{ProxyUserBackend.__qualname__}")


def is_user_name(name: str) -> bool:
    field = User._meta.get_field("username")
    return 0 < len(name) <= (field.max_length or 0) and all(one.isalnum() or one in "@.+-_" for one in name)


def identity_headers() -> list[str]:
    return [name for name in (settings.RAGD_PROXY_USER_HEADER, settings.RAGD_PROXY_GROUPS_HEADER) if name]


def meta_name(header: str) -> str:
    """X-Forwarded-User -> HTTP_X_FORWARDED_USER"""
    return "HTTP_" + header.upper().replace("-", "_")


@lru_cache(maxsize=8)
def read_networks(texts: tuple[str, ...]) -> Networks:
    return tuple(ip_network(text, strict=False) for text in texts)


def read_address(text: str) -> Address | None:
    """The address in "192.0.2.1", "192.0.2.1:80", "2001:db8::1" or "[2001:db8::1]:80"; None for anything else.

    IPv4 in IPv6 (::ffff:192.0.2.1) is IPv4.
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_within(address: Address, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    return any(address in network for network in networks)


def client_address(peer: Address, forwarded: str, networks: Networks) -> Address:
    """The last address of X-Forwarded-For that no trusted proxy has: what stands before it, anybody may have written.

    Where it ends or cannot be read, the address before that.
    """
    for part in reversed(forwarded.split(",")):
        address = read_address(part)
        if address is None:
            break
        peer = address
        if not is_within(address, networks):
            break
    return peer
