"""Kinds of values that several groups of settings take."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

HTTP_SCHEMES = ("http", "https")


def split_commas(value: object) -> object:
    """ "a, b" -> ["a", "b"], lines likewise; anything that is not text passes unchanged."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.replace("\n", ",").split(",") if part.strip()]


def check_scheme(url: str, schemes: tuple[str, ...]) -> str:
    """The URL unchanged, or ValueError unless it starts with one of the schemes."""
    if url and urlsplit(url).scheme not in schemes:
        raise ValueError("a URL that starts with " + " or ".join(f"{scheme}://" for scheme in schemes))
    return url


def check_database_parts(url: str, schemes: tuple[str, ...]) -> str:
    """The URL unchanged, or ValueError where its parts cannot be told apart, most often by a sign of its password."""
    accepted = " or ".join(f"{scheme}://" for scheme in schemes)
    try:
        parts = urlsplit(url)
        is_readable = not parts.fragment and "@" not in parts.path + parts.query and (parts.port or 1) > 0
    except ValueError:
        is_readable = False
    if not is_readable:
        raise ValueError(
            f"a URL that starts with {accepted}, like postgresql://user:password@host:5432/database, with the signs"
            " / ? # [ ] @ % of user and password percent-encoded; or leave the password out and set PGPASSWORD"
        )
    return check_scheme(url, schemes)


def check_networks(networks: list[str]) -> list[str]:
    """The networks unchanged, or ValueError unless each is an address or a network of IPv4 or IPv6."""
    try:
        for network in networks:
            ip_network(network, strict=False)
    except ValueError:
        raise ValueError("networks such as 10.1.0.0/16 or fd00::/8, comma-separated") from None
    return networks


CommaList = Annotated[list[str], NoDecode, BeforeValidator(split_commas)]
Seconds = Annotated[float, Field(gt=0)]
