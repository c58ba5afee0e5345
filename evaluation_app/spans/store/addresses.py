"""Addresses in spans without what opens something: keys and tokens that a caller put into a path or behind the "?"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from ragd.security import redact
from ragd.security.secrets import find_secrets
from ragd.telemetry import names

HIDDEN = "[secret]"
ADDRESS_NAMES = (names.URL_FULL, names.HTTP_URL, names.HTTP_TARGET, "url.path")
# of a parameter; sessions and sign-in come back with a code, buckets are signed
SECRET_NAME = re.compile(
    r"(?:key|token|secret|passw(?:or)?d|passphrase|pwd|passcode|passwort|kennwort|credentials?|signature|\bsig|\bauth"
    r"|authorization|assertion|jwt|session(?:_?id)?|\bsid|\bcode|samlresponse)$",
    re.IGNORECASE,
)
USER_INFO = re.compile(r"(?<=://)[^/?#@\s]+@")


def mask_addresses(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with secrets hidden in those that hold an address or the query of one."""
    masked = dict(attributes)
    for name in ADDRESS_NAMES:
        if isinstance(masked.get(name), str):
            masked[name] = mask_address(masked[name])
    if isinstance(masked.get(names.URL_QUERY), str):
        masked[names.URL_QUERY] = mask_query(masked[names.URL_QUERY])
    return masked


def mask_address(address: str) -> str:
    """Without user and password, and its query as `mask_query` leaves it."""
    path, mark, query = USER_INFO.sub("", address).partition("?")
    return redact(path, find_secrets(path)) + mark + mask_query(query)


def mask_query(query: str) -> str:
    """Values of parameters that are called like a secret, or look like one, are "[secret]"; the rest is unchanged."""
    return "&".join(_mask_parameter(parameter) for parameter in query.split("&"))


def _mask_parameter(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if not equals:
        return HIDDEN if _holds_secret(parameter) else parameter
    is_secret = value and (SECRET_NAME.search(unquote_plus(name)) or _holds_secret(value))
    return f"{name}={HIDDEN}" if is_secret else parameter


def _holds_secret(value: str) -> bool:
    return any(find_secrets(unquote_plus(value)))
