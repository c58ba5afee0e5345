"""Who is logged in by the word of a proxy, and whose word it is; the client's address behind proxies."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from collections_app.access.context import NOBODY, using_access
from ragd_site.environment import SettingError, read_environment
from ragd_site.sign_on.adapters import client_address, read_address
from tests.sign_on.conftest import who

PROXY = "10.0.0.5"
NETWORKS = (ip_network("10.0.0.0/24"), ip_network("fd00::/8"))


@pytest.fixture
def proxied(settings: Any, db: None) -> None:
    settings.RAGD_TRUSTED_PROXIES = ["10.0.0.0/24"]
    settings.RAGD_PROXY_USER_HEADER = "X-Forwarded-User"
    settings.RAGD_PROXY_GROUPS_HEADER = "X-Forwarded-Groups"


def by_proxy(client: Client, name: str, *, peer: str = PROXY, path: str = "/accounts/sessions/", **more: str) -> Any:
    return client.get(path, headers={"X-Forwarded-User": name, **more}, REMOTE_ADDR=peer)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"), (" 192.0.2.1:4711 ", "192.0.2.1"), ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:80", "2001:db8::1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("unknown", None), ("", None),
        ("192.0.2", None),
    ],
)  # fmt: skip
def test_addresses_are_read(text: str, address: str | None) -> None:
    found = read_address(text)
    assert (str(found) if found else None) == address


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("127.0.0.1, 192.0.2.7", "192.0.2.7"),  # the first is what the client claims
        ("192.0.2.7, 10.0.0.9", "192.0.2.7"),  # through two proxies
        ("192.0.2.7, fd00::1, 10.0.0.9", "192.0.2.7"),
        ("10.0.0.8, 10.0.0.9", "10.0.0.8"),  # a client in the proxies' own network
        ("192.0.2.7, nonsense", "10.0.0.5"),
        ("nonsense, 192.0.2.7", "192.0.2.7"),
        ("", "10.0.0.5"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(forwarded: str, client: str) -> None:
    peer = read_address(PROXY)
    assert peer is not None
    assert str(client_address(peer, forwarded, NETWORKS)) == client


def test_the_proxy_says_who_it_is(proxied: None, client: Client) -> None:
    answer = by_proxy(client, "grace@example.org", **{"X-Forwarded-Groups": "readers, curators"})
    assert answer.status_code == 200
    user = User.objects.get(username="grace@example.org")
    assert who(client) == user.username and not user.has_usable_password()
    assert sorted(user.groups.values_list("name", flat=True)) == ["curators", "readers"]


def test_it_needs_no_rights_in_the_database_before_it_is_known_who_asks(proxied: None, client: Client) -> None:
    """In the web server nobody is anybody until the request has told."""
    with using_access(NOBODY):
        assert by_proxy(client, "grace", **{"X-Forwarded-Groups": "readers"}).status_code == 200
    assert User.objects.get().groups.get().name == "readers"


def test_groups_follow_the_header_and_those_given_by_hand_stay(proxied: None, client: Client) -> None:
    by_proxy(client, "grace", **{"X-Forwarded-Groups": "readers"})
    user = User.objects.get()
    user.groups.add(Group.objects.create(name="by hand"))
    by_proxy(client, "grace", **{"X-Forwarded-Groups": "curators"})
    assert sorted(user.groups.values_list("name", flat=True)) == ["by hand", "curators"]
    by_proxy(client, "grace")
    assert sorted(user.groups.values_list("name", flat=True)) == ["by hand"]


@pytest.mark.parametrize("peer", ["127.0.0.1", "192.0.2.7", "10.0.1.5", "::1", ""])
def test_nobody_else_is_believed(proxied: None, client: Client, peer: str) -> None:
    User.objects.create_superuser("admin")
    for forwarded in ("", PROXY, f"{PROXY}, {PROXY}"):
        answer = by_proxy(client, "admin", peer=peer, **{"X-Forwarded-For": forwarded})
        assert answer["Location"].startswith("/accounts/login/"), forwarded
        assert who(client) is None
    assert by_proxy(client, "admin").status_code == 200  # from the proxy it would have


def test_nobody_is_believed_while_it_is_off(db: None, client: Client, settings: Any) -> None:
    settings.RAGD_TRUSTED_PROXIES = ["10.0.0.0/24"]
    User.objects.create_superuser("admin")
    assert by_proxy(client, "admin").status_code == 302
    for name in ("Remote-User", "X-Remote-User", "Remote_User"):
        assert client.get("/accounts/sessions/", headers={name: "admin"}, REMOTE_ADDR=PROXY).status_code == 302


@pytest.mark.parametrize("name", ["a,b", "a b", "x" * 151, "a\x00b", "", "<script>"])
def test_a_name_that_no_account_can_have_is_ignored(proxied: None, client: Client, name: str) -> None:
    assert by_proxy(client, name).status_code == 302
    assert User.objects.count() == 0


def test_the_session_ends_with_the_header_and_changes_with_the_name(proxied: None, client: Client) -> None:
    by_proxy(client, "grace")
    by_proxy(client, "alan")
    assert who(client) == "alan"
    client.get("/accounts/login/", REMOTE_ADDR=PROXY)
    assert who(client) is None
    by_proxy(client, "grace")
    client.get("/accounts/login/", headers={"X-Forwarded-User": "grace"}, REMOTE_ADDR="192.0.2.7")
    assert who(client) is None  # the cookie alone, past the proxy, opens nothing


def test_a_person_without_an_account_is_refused_without_sign_up(proxied: None, client: Client, settings: Any) -> None:
    settings.RAGD_PROXY_SIGNUP = False
    assert by_proxy(client, "grace").status_code == 302
    assert User.objects.count() == 0
    User.objects.create_user("grace")
    assert by_proxy(client, "grace").status_code == 200


def test_a_disabled_account_stays_closed(proxied: None, client: Client) -> None:
    User.objects.create_user("grace", is_active=False)
    assert by_proxy(client, "grace").status_code == 302


def test_the_api_takes_keys_alone(proxied: None, client: Client) -> None:
    User.objects.create_superuser("admin")
    for path in ("/v1/collections", "/mcp"):
        assert by_proxy(client, "admin", path=path).status_code in (401, 405)
    assert who(client) is None


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RAGD_PROXY_USER_HEADER": "X-Forwarded-User"}, "RAGD_TRUSTED_PROXIES"),
        ({"RAGD_PROXY_USER_HEADER": "X User", "RAGD_TRUSTED_PROXIES": "10.0.0.1"}, "X-Forwarded-User"),
        ({"RAGD_TRUSTED_PROXIES": "the proxy"}, "10.1.0.0/16"),
        ({"RAGD_OIDC_ISSUER": "https://id.example.org"}, "RAGD_OIDC_CLIENT_ID"),
        ({"RAGD_OIDC_ISSUER": "id.example.org", "RAGD_OIDC_CLIENT_ID": "ragd"}, "https://"),
        ({"RAGD_PASSWORD_LOGIN": "false"}, "RAGD_OIDC_ISSUER"),
        ({"RAGD_REQUIRE_MFA": "all"}, "administrators"),
    ],
)
def test_settings_that_open_too_much_or_nothing_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError) as caught:
        read_environment()
    lines = str(caught.value).splitlines()
    assert len(lines) == 1 and next(iter(variables)) in lines[0] and named in lines[0]
