"""Which addresses are accepted, and which machines may be reached."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from ragd.errors import InvalidInput
from ragd.readers.fetching import FetchError, Guard, doc_id_of, read_address
from tests.refusals import raises_with


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("HTTP://Example.ORG:80", "http://example.org/"),
        ("https://example.org:443/a/./b/../c?x=1#part", "https://example.org/a/c?x=1"),
        ("https://exämple.org/ä?q=ü", "https://xn--exmple-cua.org/%C3%A4?q=%C3%BC"),
        ("https://example.org/a%20b%2Fc", "https://example.org/a%20b%2Fc"),
        ("http://[::ffff:7f00:1]:8080/x", "http://[::ffff:7f00:1]:8080/x"),
        ("  https://example.org./x  ", "https://example.org/x"),
    ],
)
def test_an_address_has_one_spelling(written: str, kept: str) -> None:
    assert str(read_address(written)) == kept


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "1 to 2000 characters"),
        ("https://example.org/" + "a" * 2000, "1 to 2000 characters"),
        ("ftp://example.org/", "must begin with http"),
        ("file:///etc/passwd", "must begin with http"),
        ("example.org/page", "must begin with http"),
        ("https://user:word@example.org/", "user or a password"),
        ("https://example.org:22/", "port 22"),
        ("https://example.org:99999/", "not an address"),
        ("https://exa mple.org/", "space or a control"),
        ("https://example.org/\r\nHost: other", "space or a control"),
        ("https:///path", "names no host"),
        ("https://-bad-.org/", "names no host"),
        ("https://a..b/", "names no host"),
    ],
)
def test_a_wrong_address_says_what_is_expected(written: str, why: str) -> None:
    with raises_with(InvalidInput, match=why, field="urls"):
        read_address(written)


@pytest.mark.parametrize(
    ("written", "doc_id"),
    [
        ("https://example.org/", "example.org"),
        ("https://example.org/docs/", "example.org/docs"),
        ("https://example.org:8443/a%20b.html?lang=de", "example.org:8443/a b.html?lang=de"),
        ("https://example.org/caf%C3%A9", "example.org/café"),
    ],
)
def test_a_page_is_called_by_host_and_path(written: str, doc_id: str) -> None:
    assert doc_id_of(read_address(written)) == doc_id


def test_long_addresses_keep_apart() -> None:
    first, second = (doc_id_of(read_address(f"https://example.org/{'a' * 1000}{end}")) for end in "xy")
    assert first != second
    assert len(first) == len(second) == 512


REFUSED = [
    "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "169.254.1.1", "168.63.129.16", "192.0.2.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1",
    "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "2002:7f00:1::", "2002:a00:1::", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2001:db8::1", "::127.0.0.1",
    "fec0::1", "3fff::1", "3fff:fff::1", "192.88.99.1", "64:ff9b::c058:6301", "192.0.0.8",
]  # fmt: skip


@pytest.mark.parametrize("machine", REFUSED)
def test_only_the_open_internet_is_asked(machine: str) -> None:
    assert Guard().refuse(ipaddress.ip_address(machine))


@pytest.mark.parametrize("machine", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8"])
def test_the_open_internet_is_asked(machine: str) -> None:
    assert Guard().refuse(ipaddress.ip_address(machine)) == ""


def test_a_network_is_allowed_but_never_where_secrets_are() -> None:
    guard = Guard(["10.1.0.0/16", "127.0.0.0/8", "169.254.0.0/16"])
    assert guard.refuse(ipaddress.ip_address("10.1.2.3")) == ""
    assert guard.refuse(ipaddress.ip_address("::ffff:127.0.0.1")) == ""
    assert guard.refuse(ipaddress.ip_address("10.2.0.1")) == "a private address"
    assert "secrets" in guard.refuse(ipaddress.ip_address("169.254.169.254"))


@pytest.mark.parametrize("spelling", ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "::1"])
def test_every_spelling_of_this_machine_is_refused(spelling: str) -> None:
    with raises_with(FetchError, kind="address_refused") as caught:
        Guard().resolve(spelling, 80)
    assert "RAGD_FETCH_ALLOWED_NETWORKS" in caught.value.message
    assert not caught.value.retryable


def test_one_private_address_refuses_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (machine, 80)) for machine in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(FetchError, match=r"10\.0\.0\.1, a private address"):
        Guard().resolve("twofold.example", 80)
    assert Guard(["10.0.0.0/8"]).resolve("twofold.example", 80) == ["8.8.8.8", "10.0.0.1"]
