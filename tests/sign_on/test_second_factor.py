"""The second factor: at the log-in, at set-up, and where it is required. Passkeys: tests/browser/test_passkeys.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from tests.sign_on.conftest import who
from tests.web.pages import attribute, has, texts, toasts

PASSWORD = "seven green kettles"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """moment() is the present code of SECRET, of a time that stands still."""
    now = time.time()
    monkeypatch.setattr("allauth.mfa.totp.internal.auth.time.time", lambda: now)
    yield lambda: code_of(SECRET, now)


def code_of(secret: str, now: float) -> str:
    return format_hotp_value(hotp_value(secret, int(now) // 30))


@pytest.fixture
def ada(db: None) -> User:
    user = User.objects.create_user("ada", password=PASSWORD)
    with_app(user)
    return user


def with_app(user: User) -> None:
    TOTP.activate(user, SECRET)
    RecoveryCodes.activate(user)


def password(client: Client, name: str = "ada", address: str = "/accounts/login/") -> Any:
    return client.post(address, {"username": name, "password": PASSWORD, "next": "/activity/"})


def factor(client: Client, code: str) -> Any:
    return client.post("/accounts/2fa/authenticate/", {"code": code})


def test_the_password_alone_opens_nothing(ada: User, client: Client, moment: Callable[[], str]) -> None:
    assert password(client)["Location"] == "/accounts/2fa/authenticate/"
    assert who(client) is None
    for address in ("/", "/activity/", "/admin/login/", "/accounts/2fa/", "/accounts/sessions/"):
        assert client.get(address)["Location"].startswith("/accounts/login/"), address
    page = client.get("/accounts/2fa/authenticate/")
    assert has(page, "input[name=code]") and has(page, "form[data-passkey=authenticate]")
    assert factor(client, "000000" if moment() != "000000" else "111111").status_code == 200
    assert who(client) is None
    assert factor(client, moment())["Location"] == "/activity/"
    assert who(client) == "ada"


def test_a_code_works_once(ada: User, client: Client, moment: Callable[[], str]) -> None:
    password(client)
    assert factor(client, moment()).status_code == 302
    password(thief := Client())
    assert factor(thief, moment()).status_code == 200 and who(thief) is None


def test_a_recovery_code_works_once(ada: User, client: Client) -> None:
    code = RecoveryCodes(Authenticator.objects.get(type="recovery_codes")).get_unused_codes()[0]
    password(client)
    assert factor(client, code).status_code == 302 and who(client) == "ada"
    password(thief := Client())
    assert factor(thief, code).status_code == 200 and who(thief) is None


def test_wrong_codes_end_after_five_in_all_processes(ada: User, client: Client, moment: Callable[[], str]) -> None:
    wrong = "000000" if moment() != "000000" else "111111"
    for _ in range(5):
        password(client)
        assert factor(client, wrong).status_code == 200
    password(other := Client(REMOTE_ADDR="192.0.2.8"))
    assert factor(other, moment()).status_code == 200 and who(other) is None
    cache.clear()  # as time does; it is a table of the database, which all processes share
    assert factor(other, moment()).status_code == 302


def test_giving_up_forgets_the_password(ada: User, client: Client, moment: Callable[[], str]) -> None:
    password(client)
    assert client.post("/accounts/logout/").status_code == 302
    assert factor(client, moment())["Location"] == "/accounts/login/" and who(client) is None


def test_the_admin_has_no_way_around_it(ada: User, client: Client, moment: Callable[[], str]) -> None:
    User.objects.update(is_superuser=True, is_staff=True)
    assert client.get("/admin/login/?next=/admin/")["Location"] == "/accounts/login/?next=%2Fadmin%2F"
    data = {"username": "ada", "password": PASSWORD}
    assert client.post("/admin/login/?next=/admin/", data)["Location"].startswith("/accounts/login/")
    assert who(client) is None
    assert client.post("/accounts/login/", {**data, "next": "/admin/"})["Location"] == "/accounts/2fa/authenticate/"
    assert factor(client, moment())["Location"] == "/admin/"
    assert client.get("/admin/").status_code == 200


def test_secrets_are_stored_encrypted_and_not_shown_in_the_admin(ada: User, admin_client: Client) -> None:
    row = Authenticator.objects.get(type="totp")
    assert SECRET not in str(row.data) and len(row.data["secret"]) > 60
    page = admin_client.get(f"/admin/mfa/authenticator/{row.pk}/change/")
    assert page.status_code == 200 and row.data["secret"] not in page.content.decode()


def test_a_secret_of_another_server_key_is_told(ada: User, client: Client, settings: Any) -> None:
    settings.SECRET_KEY = "another"
    password(client)
    assert has(factor(client, "123456"), ".errorlist, .form-errors") and who(client) is None


def test_set_up_of_an_app(db: None, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    User.objects.create_user("ada", password=PASSWORD)
    password(client)
    page = client.get("/accounts/2fa/totp/activate/")
    secret = attribute(page, "#authenticator-key", "value")
    assert secret and str(attribute(page, "img.qr", "src")).startswith("data:image/svg+xml")
    now = time.time()
    monkeypatch.setattr("allauth.mfa.totp.internal.auth.time.time", lambda: now)
    assert client.post("/accounts/2fa/totp/activate/", {"code": "x"}).status_code == 200
    done = client.post("/accounts/2fa/totp/activate/", {"code": code_of(secret, now)})
    assert done["Location"] == "/accounts/2fa/recovery-codes/"
    assert len(texts(client.get(done["Location"]), ".codes li")) == 10
    assert client.get("/accounts/2fa/recovery-codes/download/")["Content-Type"].startswith("text/plain")
    assert password(Client())["Location"] == "/accounts/2fa/authenticate/"
    assert client.post("/accounts/2fa/totp/deactivate/").status_code == 302
    assert Authenticator.objects.count() == 0
    assert password(Client())["Location"] == "/activity/"


def test_a_log_in_that_is_old_is_confirmed_before_set_up(db: None, client: Client) -> None:
    user = User.objects.create_user("ada", password=PASSWORD)
    client.force_login(user)
    to = client.get("/accounts/2fa/totp/activate/")["Location"]
    assert to.startswith("/accounts/reauthenticate/?next=")
    assert client.post(to, {"password": "wrong"}).status_code == 200
    assert client.post(to, {"password": PASSWORD})["Location"] == "/accounts/2fa/totp/activate/"
    assert client.get("/accounts/2fa/totp/activate/").status_code == 200


REQUIRED = {
    "": {"person": False, "staff": False},
    "administrators": {"person": False, "staff": True},
    "everyone": {"person": True, "staff": True},
}


@pytest.mark.parametrize("value", REQUIRED)
@pytest.mark.parametrize("kind", ["person", "staff"])
def test_who_must_have_one_is_led_to_it(db: None, client: Client, settings: Any, value: str, kind: str) -> None:
    settings.RAGD_REQUIRE_MFA = value
    user = User.objects.create_user("ada", password=PASSWORD, is_staff=kind == "staff")
    password(client)
    answer = client.get("/")
    if not REQUIRED[value][kind]:
        assert answer.status_code == 200
        return
    assert answer["Location"] == "/accounts/2fa/"
    pages = ("/models/", "/accounts/sessions/", "/accounts/password/", "/admin/", "/accounts/2fa/recovery-codes/")
    for address in pages:
        assert client.get(address)["Location"] == "/accounts/2fa/", address
    assert client.post("/theme/", {"theme": "dark"}).status_code == 302
    page = client.get("/accounts/2fa/")
    assert page.status_code == 200 and "watch" in [tone for tone, _ in toasts(page)]
    assert client.get("/accounts/2fa/totp/activate/").status_code == 200
    with_app(user)
    assert client.get("/").status_code == 200
    assert client.post("/accounts/logout/").status_code == 302


def test_keys_of_the_api_need_none(db: None, client: Client, settings: Any) -> None:
    settings.RAGD_REQUIRE_MFA = "everyone"
    user = User.objects.create_superuser("ada", password=PASSWORD)
    _, secret = create_key(NewKey(label="first"))
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.get("/v1/collections", headers=headers).status_code == 200
    client.force_login(user)
    assert client.get("/v1/collections", headers=headers).status_code == 200
    assert client.get("/v1/collections").status_code == 401


def test_who_comes_by_a_proxy_is_the_proxys_to_check(db: None, client: Client, settings: Any) -> None:
    settings.RAGD_REQUIRE_MFA = "everyone"
    settings.RAGD_TRUSTED_PROXIES = ["127.0.0.1"]
    settings.RAGD_PROXY_USER_HEADER = "X-Forwarded-User"
    assert client.get("/", headers={"X-Forwarded-User": "grace"}).status_code == 200


def test_the_shell_removes_a_factor_that_was_lost(ada: User, client: Client) -> None:
    call_command("reset_second_factor", "ada")
    assert password(client)["Location"] == "/activity/"


def test_an_administrator_removes_one_too(ada: User, admin_client: Client, client: Client) -> None:
    for row in Authenticator.objects.all():
        assert admin_client.post(f"/admin/mfa/authenticator/{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert password(client)["Location"] == "/activity/"
