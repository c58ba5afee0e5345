"""Addresses: which are accepted, and which machines may be reached under them.

Why something could not be fetched.

What a site's robots.txt lets this program read.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote, urljoin, urlsplit

from protego import Protego

from ragd.errors import InvalidInput
from ragd.identity import DOC_ID_MAX_CHARS, check_doc_id, doc_id_from_name


class FetchError(Exception):
    """What a server, the net or a rule stood in the way of. kind: a stable word; message: what to do about it.

    retryable: another try may help. postpone_s: not before so many seconds, and that try is not counted; None: at once.
    """

    def __init__(self, kind: str, message: str, *, retryable: bool = False, postpone_s: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = retryable
        self.postpone_s = postpone_s


def too_large(limit: int) -> FetchError:
    """limit: in bytes."""
    return FetchError(
        "too_large",
        f"it has more than {limit / 1e6:g} MB; at most that is taken. Raise RAGD_MAX_DOCUMENT_MB, or take a part",
    )


ADDRESS_MAX_CHARS = 2000
HOST_MAX_CHARS = 253
SCHEMES = ("http", "https")
WELL_KNOWN_PORTS = {"http": 80, "https": 443}
FREE_PORTS = 1024  # below it only the two above are asked: the others belong to mail, shells and the like
DIGEST_CHARS = 10

HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?")
UNSAFE = re.compile("[\x00-\x20\x7f\ud800-\udfff]")
PATH_SAFE = "/%:@!$&'()*+,;=~-._"
QUERY_SAFE = PATH_SAFE + "?"

# Where clouds tell a machine its secrets. One of them is an ordinary public address.
METADATA_HOSTS = frozenset(
    ipaddress.ip_address(text)
    for text in ("169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254")
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Not of the open Internet either, though Python's tables call them global: the old site-local addresses, the second
# range for documentation (RFC 9637), and the withdrawn relays of 6to4 (RFC 7526).
OUTDATED_NETWORKS = tuple(
    ipaddress.ip_network(text) for text in ("fec0::/10", "3fff::/20", "192.88.99.0/24", "192.0.0.0/24")
)

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Address:
    """An http address in its one spelling: lower-case host in ASCII, no default port, no fragment, no password."""

    scheme: str
    host: str
    port: int
    target: str  # path and query as they are sent

    @property
    def authority(self) -> str:
        """Host and, unless it is the scheme's own, port: the Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == WELL_KNOWN_PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"

    def join(self, location: str) -> Address:
        """Where a Location header leads to from here. Raises InvalidInput."""
        return read_address(urljoin(str(self), location.strip()))


def read_address(text: str) -> Address:
    """An address as a person or a server wrote it. Raises InvalidInput (field "urls").

    Only http and https, at most 2,000 characters, no user and password, and of the ports below 1024 only 80 and 443.
    What is not ASCII is encoded, a fragment is dropped.
    """
    cleaned = text.strip()
    if not cleaned or len(cleaned) > ADDRESS_MAX_CHARS:
        raise _wrong(f"an address must have 1 to {ADDRESS_MAX_CHARS} characters; this one has {len(cleaned)}")
    shown = cleaned[:200]
    if UNSAFE.search(cleaned):
        raise _wrong(f"{shown!r} holds a space or a control character; write the address as the browser shows it")
    try:
        parts = urlsplit(cleaned)
        port = parts.port
    except ValueError:
        raise _wrong(f"{shown!r} is not an address; expected something like https://example.org/page") from None
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES:
        raise _wrong(f"{shown!r} must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise _wrong("an address must not hold a user or a password: it is stored and shown as the document's source")
    port = WELL_KNOWN_PORTS[scheme] if port is None else port
    if port not in WELL_KNOWN_PORTS.values() and port < FREE_PORTS:
        raise _wrong(f"{shown!r}: port {port} is not asked; 80, 443 and those from {FREE_PORTS} on are")
    target = quote(urlsplit(urljoin("//host/", parts.path or "/")).path, safe=PATH_SAFE)  # without . and ..
    if parts.query:
        target += "?" + quote(parts.query, safe=QUERY_SAFE)
    return Address(scheme, _clean_host(parts.hostname or "", shown), port, target)


def _clean_host(host: str, shown: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if len(name) > HOST_MAX_CHARS or not HOST.fullmatch(name) or ".." in name:
        raise _wrong(f"{shown!r} names no host; expected something like https://example.org/page")
    return name.removesuffix(".")


def doc_id_of(address: Address) -> str:
    """The doc_id of a page: host, path and query, as a person reads them. What is too long ends in a digest."""
    path, _, query = address.target.partition("?")
    name = unquote(f"{address.authority}{path}".rstrip("/")) + (f"?{unquote(query)}" if query else "")
    if len(name) > DOC_ID_MAX_CHARS:
        digest = hashlib.sha256(str(address).encode()).hexdigest()[:DIGEST_CHARS]
        name = f"{name[: DOC_ID_MAX_CHARS - DIGEST_CHARS - 1]}~{digest}"
    return check_doc_id(doc_id_from_name(name))


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(message, field="urls")


class Guard:
    """Decides which machines may be reached: those of the open Internet, and of the networks that are allowed."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """allowed: networks such as 10.1.0.0/16. Raises ValueError for anything else."""
        self.allowed: tuple[Network, ...] = tuple(ipaddress.ip_network(text, strict=False) for text in allowed)

    def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a host, each of them checked, in the order in which they are to be tried.

        Only these may be connected to: another look-up could answer something else. One refused address refuses the
        host. Raises FetchError.
        """
        result = _look_up(host, port)
        for text in result:
            if refusal := self.refuse(ipaddress.ip_address(text)):
                raise FetchError(
                    "address_refused",
                    f"{host} leads to {text}, {refusal}, which is not asked from here. If it is a server of your own, "
                    "its administrator adds its network to RAGD_FETCH_ALLOWED_NETWORKS",
                )
        return result

    def refuse(self, ip: Ip) -> str:
        """Why a machine must not be reached, in words; "" when it may."""
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        for inner in (ip, *_embedded(ip)):
            if inner in METADATA_HOSTS:
                return "where clouds keep a machine's secrets"
            if any(inner.version == network.version and inner in network for network in self.allowed):
                continue
            if word := _describe(inner):
                return word
        return ""


def find_metadata_host(host: str, port: int | None) -> str:
    """The address behind the host where clouds keep a machine's secrets, or a link-local or multicast one; "" where it
    leads to none, or is not found: the call itself says so."""
    try:
        found = {str(row[4][0]).partition("%")[0] for row in socket.getaddrinfo(host, port or 80)}
    except (OSError, UnicodeError):
        return ""
    for text in sorted(found):
        ip = ipaddress.ip_address(text)
        ip = getattr(ip, "ipv4_mapped", None) or ip
        if ip in METADATA_HOSTS or ip.is_link_local or ip.is_multicast:
            return str(ip)
    return ""


def _look_up(host: str, port: int) -> list[str]:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise FetchError(
                "name_server_failed", f"the name server did not answer for {host}; it may work later", retryable=True
            ) from None
        raise FetchError("unknown_host", f"there is no host {host}; check how the address is spelled") from None
    except (UnicodeError, OSError):
        raise FetchError("unknown_host", f"there is no host {host}; check how the address is spelled") from None
    return list(dict.fromkeys(str(row[4][0]).partition("%")[0] for row in rows))


def _embedded(ip: Ip) -> Sequence[ipaddress.IPv4Address]:
    """IPv4 addresses that an IPv6 address only wraps."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ()
    wrapped = [ip.sixtofour, *(ip.teredo or ())]
    if ip in NAT64:
        wrapped.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return [inner for inner in wrapped if inner is not None]


def _describe(ip: Ip) -> str:
    """What makes an address unfit, in words; "" for one of the open Internet."""
    for word, holds in (
        ("this machine itself", ip.is_loopback or ip.is_unspecified),
        ("a link-local address", ip.is_link_local),
        ("a multicast address", ip.is_multicast),
        ("a reserved address", ip.is_reserved or any(ip in network for network in OUTDATED_NETWORKS)),
        ("a private address", not ip.is_global),
    ):
        if holds:
            return word
    return ""


AGENT = "ragd"
ROBOTS_MAX_BYTES = 512_000  # what lies beyond is not read, as RFC 9309 has it
KEPT_FOR_S = 24 * 3600
CRAWL_DELAY_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules of one origin; "" allows everything."""

    rules: str = ""

    def allows(self, address: Address) -> bool:
        return not self.rules or bool(Protego.parse(self.rules).can_fetch(str(address), AGENT))

    def pause_s(self) -> float:
        """Seconds that the site wants between two requests, at most 30; 0 when it does not say."""
        delay = Protego.parse(self.rules).crawl_delay(AGENT) if self.rules else None
        return min(float(delay or 0), CRAWL_DELAY_MAX_S)


def robots_address(address: Address) -> Address:
    return Address(address.scheme, address.host, address.port, "/robots.txt")


def read_rules(body: bytes) -> str:
    """The text of a robots.txt: UTF-8, without what a database cannot keep. Up to 512 KB."""
    return body[:ROBOTS_MAX_BYTES].decode("utf-8", "replace").replace("\x00", "").removeprefix("\ufeff")
