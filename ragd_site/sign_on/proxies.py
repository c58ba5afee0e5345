"""Proxies that are trusted: whose word on the client's address and on who is logged in is believed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.auth.backends import RemoteUserBackend
from django.contrib.auth.middleware import RemoteUserMiddleware
from django.contrib.auth.models import User
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from collections_app.audit.origin import using_origin
from collections_app.audit.requests import REFUSED, note_refusal, origin_of
from collections_app.audit.services import note_login
from ragd_site.sign_on.adapters import set_groups

logger = logging.getLogger(__name__)
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
