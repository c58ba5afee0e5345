"""Kinds of values that several groups of settings take.

Secrets that stand in files: a variable NAME_FILE holds the path of a file that holds the value of NAME.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from pathlib import Path
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


SUFFIX = "_FILE"
BYTES_MAX = 64 * 1024


def read_secret_files(names: Iterable[str], variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(name -> value of each of the names that a file gives, one sentence for each file that gives none).

    White space around a value is no part of it. Empty variables count as unset.
    """
    values: dict[str, str] = {}
    problems: list[str] = []
    for name in names:
        path = variables.get(name + SUFFIX, "")
        if not path:
            continue
        if variables.get(name):
            problems.append(f"{name} and {name}{SUFFIX} are both set: expected one of them. Unset the other.")
            continue
        value, problem = _read(Path(path))
        if problem:
            problems.append(f"{name}{SUFFIX}={path!r} is not accepted: {problem}. Correct the variable or unset it.")
        else:
            values[name] = value
    return values, problems


def _read(path: Path) -> tuple[str, str]:
    """(the value, "") or ("", what is wrong with the file)."""
    expected = f"expected a text file of at most {BYTES_MAX // 1024} kB that this user may read, but"
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        value = content.decode().strip()
    except OSError as error:
        return "", f"{expected} {(error.strerror or 'it cannot be read').lower()}"
    except UnicodeDecodeError:
        return "", f"{expected} it is not UTF-8"
    if len(content) > BYTES_MAX:
        return "", f"{expected} it is larger"
    if not value or "\0" in value:
        return "", f"{expected} it {'holds a NUL' if value else 'is empty'}"
    return value, ""


def check_accent(text: str) -> str:
    """In small letters. Raises ValueError for what is no colour."""
    text = text.lower()
    if text and (len(text) != 7 or text[0] != "#" or not set(text[1:]) <= set("0123456789abcdef")):
        raise ValueError("a colour as #rrggbb, such as #0a6a7d")
    return text
