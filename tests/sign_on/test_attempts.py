"""Wrong passwords: by name and address, and by address over all names."""

from __future__ import annotations

from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

PASSWORD = "a password of hers"


@pytest.fixture(autouse=True)
def people(db: None) -> None:
    User.objects.create_user("ada", password=PASSWORD)
    User.objects.create_user("grace", password=PASSWORD)


def attempt(client: Client, name: str, password: str = "wrong", address: str = "192.0.2.7", **more: Any) -> int:
    data = {"username": name, "password": password}
    return client.post("/accounts/login/", data, REMOTE_ADDR=address, **more).status_code


def keep_attempts(count: int) -> None:
    """What wrong passwords for so many names leave behind."""
    AccessAttempt.objects.bulk_create(
        AccessAttempt(username=f"name{number}", ip_address="192.0.2.7", failures_since_start=1)
        for number in range(count)
    )


def test_ten_wrong_passwords_for_one_name_from_one_address(client: Client) -> None:
    assert [attempt(client, "ada") for _ in range(9)] == [200] * 9
    assert attempt(client, "ada") == 429
    assert attempt(client, "ada", PASSWORD) == 429
    assert attempt(client, "ada", PASSWORD, address="192.0.2.8") == 302
    assert attempt(Client(), "grace", PASSWORD) == 302


def test_fifty_names_from_one_address_lock_it_and_no_other(client: Client) -> None:
    assert {attempt(client, f"name{number}", "Summer2026") for number in range(49)} == {200}
    assert attempt(client, "one more", "Summer2026") == 429
    assert attempt(client, "ada", PASSWORD) == 429
    assert attempt(client, "ada", PASSWORD, address="192.0.2.8") == 302


def test_a_log_in_does_not_forgive_the_address(client: Client) -> None:
    """Else one account of one's own would make the number of tries unlimited."""
    keep_attempts(49)
    assert attempt(client, "ada", PASSWORD) == 302
    assert attempt(Client(), "one more") == 429


def test_what_is_older_than_a_quarter_of_an_hour_is_forgiven(client: Client) -> None:
    keep_attempts(50)
    assert attempt(client, "ada", PASSWORD) == 429
    AccessAttempt.objects.update(attempt_time=timezone.now() - timezone.timedelta(minutes=16))
    assert attempt(client, "ada", PASSWORD) == 302


def test_one_attacker_behind_the_proxy_locks_out_nobody_else(client: Client, settings: Any) -> None:
    settings.RAGD_TRUSTED_PROXIES = ["10.0.0.5"]

    def through_proxy(name: str, password: str, forwarded: str) -> int:
        headers = {"X-Forwarded-For": forwarded}
        return attempt(Client(), name, password, address="10.0.0.5", headers=headers)

    assert [through_proxy("ada", "wrong", "198.51.100.1") for _ in range(10)][-1] == 429
    assert through_proxy("ada", PASSWORD, "198.51.100.1") == 429
    assert through_proxy("ada", PASSWORD, "198.51.100.2") == 302
    # what the attacker writes into the header stands before what the proxy adds
    assert through_proxy("ada", PASSWORD, "198.51.100.2, 198.51.100.1") == 429


def test_who_is_no_proxy_cannot_change_their_address(client: Client, settings: Any) -> None:
    settings.RAGD_TRUSTED_PROXIES = ["10.0.0.5"]
    codes = [attempt(client, "ada", headers={"X-Forwarded-For": f"198.51.100.{number}"}) for number in range(10)]
    assert codes[-1] == 429
    assert set(AccessAttempt.objects.values_list("ip_address", flat=True)) == {"192.0.2.7"}
