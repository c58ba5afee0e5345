"""Rules of passwords, the first administrator's password, and the ways in from the shell."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client

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
