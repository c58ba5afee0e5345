"""Rules of passwords, the first administrator's password, and the ways in from the shell.
Which pages there are under /accounts/, who may open them, and which of allauth's there are not."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import pytest
from allauth.account import urls as account_urls
from allauth.socialaccount import urls as social_urls
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import NoReverseMatch, reverse

from ragd_site import prepare
from tests.sign_on.conftest import who
from tests.web.pages import wrong_fields

GOOD = "seven green kettles"


@pytest.mark.parametrize("password", ["Summer2026", "plainplain", "aaaaaaaaaaa", "123456789012", "adalovelace-1"])
def test_weak_passwords_are_refused(password: str) -> None:
    validate_password(GOOD, User(username="adalovelace"))
    with pytest.raises(ValidationError):
        validate_password(password, User(username="adalovelace"))


def test_the_page_refuses_a_weak_one(client: Client, db: None) -> None:
    client.force_login(User.objects.create_user("ada", password=GOOD))
    data = {"old_password": GOOD, "new_password1": "Summer2026", "new_password2": "Summer2026"}
    assert wrong_fields(client.post("/accounts/password/", data)) == ["new_password2"]


@pytest.fixture
def folder(tmp_path: Path, settings: Any, db: None) -> Path:
    settings.RAGD_VAR = tmp_path
    settings.RAGD_ADMIN_USER = "admin"
    settings.RAGD_ADMIN_PASSWORD = ""
    return tmp_path


def test_the_first_password_is_in_a_file_and_not_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prepare.ensure_admin()
    kept = folder / "admin_password"
    password = kept.read_text().strip()
    assert User.objects.get(username="admin").check_password(password)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    printed = "".join(capfd.readouterr())
    assert str(kept) in printed and password not in printed


def test_the_file_goes_with_the_first_change_wherever_it_is_made(folder: Path) -> None:
    prepare.ensure_admin()
    kept = folder / "admin_password"
    other = User.objects.create_user("ada", password=GOOD)
    other.set_password(GOOD + "s")
    other.save()
    client = Client()
    assert (
        client.post("/accounts/login/", {"username": "admin", "password": kept.read_text().strip()}).status_code == 302
    )
    assert kept.exists()  # neither another's change nor a log-in
    old = kept.read_text().strip()
    data = {"old_password": old, "new_password1": GOOD, "new_password2": GOOD}
    assert client.post("/accounts/password/", data)["Location"] == "/accounts/password/done/"
    assert not kept.exists()
    kept.write_text("again")
    user = User.objects.get(username="admin")
    user.set_password("another " + GOOD)  # as `manage.py changepassword` and the admin do
    user.save()
    assert not kept.exists()


@pytest.mark.parametrize("password", ["changeme", "12345678901234", "password1234"])
def test_a_weak_password_of_the_environment_stops_the_start(folder: Path, settings: Any, password: str) -> None:
    settings.RAGD_ADMIN_PASSWORD = password
    with pytest.raises(SystemExit) as caught:
        prepare.ensure_admin()
    assert "RAGD_ADMIN_PASSWORD" in str(caught.value) and password not in str(caught.value)
    assert User.objects.count() == 0


def test_a_good_password_of_the_environment_is_taken_and_kept_nowhere(folder: Path, settings: Any) -> None:
    settings.RAGD_ADMIN_PASSWORD = GOOD
    prepare.ensure_admin()
    assert User.objects.get(username="admin").check_password(GOOD)
    assert list(folder.iterdir()) == []
    settings.RAGD_ADMIN_PASSWORD = "weak"  # it is not asked for again
    prepare.ensure_admin()


def make_link(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    call_command("login_link", name)
    return "/accounts/" + capsys.readouterr().out.strip().split("/accounts/")[1]


def test_a_link_of_the_shell_logs_in_once_also_without_passwords(
    folder: Path, client: Client, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.RAGD_PASSWORD_LOGIN = False
    User.objects.create_superuser("admin")
    link, second = make_link("admin", capsys), make_link("admin", capsys)
    assert client.get(link).status_code == 200 and who(client) is None
    assert client.post(link)["Location"] == "/" and who(client) == "admin"
    assert client.get("/admin/").status_code == 200
    for used in (link, second):
        assert Client().post(used).status_code == 410


def test_a_link_that_is_old_or_changed_opens_nothing(
    folder: Path, client: Client, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    User.objects.create_superuser("admin")
    User.objects.create_superuser("other")
    link, others = make_link("admin", capsys), make_link("other", capsys)
    mixed = "/".join([*others.split("/")[:4], *link.split("/")[4:]])
    for wrong in (mixed, link[:-2] + "x/", "/accounts/link/x/y/", "/accounts/link/OTk5OTk5/y/"):
        assert client.post(wrong).status_code == 410, wrong
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert client.post(link).status_code == 410 and who(client) is None
    settings.PASSWORD_RESET_TIMEOUT = 900
    assert client.post(link).status_code == 302
    with pytest.raises(CommandError):
        call_command("login_link", "nobody")


OURS = {
    "account_inactive",
    "account_login",
    "account_logout",
    "account_reauthenticate",
    "socialaccount_login_cancelled",
}
UNWANTED = [
    "/accounts/", "/accounts/signup/", "/accounts/email/", "/accounts/confirm-email/", "/accounts/password/reset/",
    "/accounts/password/set/", "/accounts/password/change/", "/accounts/login/code/",
    "/accounts/login/code/confirm/", "/accounts/3rdparty/", "/accounts/3rdparty/signup/", "/accounts/social/signup/",
    "/accounts/2fa/webauthn/signup/", "/accounts/2fa/trust/",
]  # fmt: skip
LOGGED_IN = [
    "/accounts/2fa/", "/accounts/2fa/recovery-codes/", "/accounts/2fa/recovery-codes/generate/",
    "/accounts/2fa/totp/activate/", "/accounts/2fa/totp/deactivate/", "/accounts/2fa/webauthn/",
    "/accounts/2fa/webauthn/add/", "/accounts/password/", "/accounts/password/done/", "/accounts/reauthenticate/",
    "/accounts/sessions/",
]  # fmt: skip
PAGES = ["/accounts/2fa/", "/accounts/2fa/webauthn/", "/accounts/password/", "/accounts/sessions/"]
OUTSIDE = [
    "/accounts/login/", "/accounts/inactive/", "/accounts/oidc/cancelled/", "/accounts/link/x/y/",
    "/accounts/set/x/y/", "/accounts/set/OTk5OTk5OTk5OTk5OTk5OTk5OTk5/y/", "/accounts/invitation/x/%00/",
]  # fmt: skip


def test_pages_that_nobody_wants_are_not_there(client: Client, admin_client: Client) -> None:
    for path in UNWANTED:
        for visitor in (client, admin_client):
            assert visitor.get(path).status_code == 404, path
            assert visitor.post(path, {"email": "a@example.org"}).status_code == 404, path


def test_no_other_page_of_allauth_is_open() -> None:
    known = set()
    for pattern in (*account_urls.urlpatterns, *social_urls.urlpatterns):
        try:
            reverse(str(pattern.name))
            known.add(pattern.name)
        except NoReverseMatch:
            continue
    assert known == OURS


def test_strangers_are_sent_to_the_login(client: Client, db: None) -> None:
    for path in LOGGED_IN:
        assert client.get(path)["Location"].startswith("/accounts/login/"), path


def check(html: str) -> None:
    assert len(re.findall(r"<h1[ >]", html)) == 1 and len(re.findall(r"<main[ >]", html)) == 1
    assert re.search(r"<title>[^<]+ · ragd</title>", html)
    # data in JSON is no script
    assert not re.search(r"<script(?![^>]*(?:\bsrc=|type=\"application/json\"))|<style|\sstyle=|\son[a-z]+=", html)


def test_pages_before_the_login_and_behind_it(client: Client, db: None) -> None:
    for path in OUTSIDE:
        answer = client.get(path)
        check(answer.content.decode())
        assert answer["Cache-Control"] and "no-store" in answer["Cache-Control"], path
    client.force_login(User.objects.create_user("ada", password="seven green kettles"))
    for path in PAGES:
        answer = client.get(path)
        assert answer.status_code == 200, path
        check(answer.content.decode())


def test_who_has_no_password_here_cannot_change_it(client: Client, db: None) -> None:
    client.force_login(User.objects.create_user("ada"))
    assert client.get("/accounts/password/").status_code == 404
    assert "/accounts/password/" not in client.get("/accounts/sessions/").content.decode()


def test_the_admin_shows_what_is_used_and_adds_nothing(admin_client: Client) -> None:
    labels = ("account", "socialaccount", "mfa", "usersessions", "sign_on")
    registered = [model._meta for model in apps.get_models() if admin.site.is_registered(model)]
    shown = {options.label for options in registered if options.app_label in labels}
    assert shown == {"mfa.Authenticator", "socialaccount.SocialAccount", "usersessions.UserSession"}
    for label in shown:
        model: Any = apps.get_model(label)
        base = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        assert admin_client.get(base).status_code == 200
        assert admin_client.get(base + "add/").status_code == 403
