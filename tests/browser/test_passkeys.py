"""Passkeys in a real browser with a virtual authenticator, under the content security policy; the pages around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from django.contrib.auth.models import User

from ragd_site.sign_on.sessions import link_path
from tests.browser.conftest import Visit


@pytest.fixture
def key(visit: Visit) -> Iterator[Any]:
    """A device that keeps passkeys and finds its owner present. key(True): it also knows them by PIN or finger."""
    session = visit.page.context.new_cdp_session(visit.page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
        "isUserVerified": True, "automaticPresenceSimulation": True,
    }  # fmt: skip
    made = session.send("WebAuthn.addVirtualAuthenticator", {"options": options})

    def verify(is_verified: bool) -> None:
        session.send(
            "WebAuthn.setUserVerified", {"authenticatorId": made["authenticatorId"], "isUserVerified": is_verified}
        )

    yield verify


def add_passkey(visit: Visit, *, alone: bool) -> None:
    page = visit.go("/accounts/2fa/webauthn/add/")
    page.get_by_label("Password").fill("lovelace")
    page.get_by_role("button", name="Confirm").click()
    page.get_by_label("Name").fill("My laptop")
    if alone:
        page.get_by_label("Log in with this passkey alone").check()
    page.get_by_role("button", name="Add passkey").click()
    page.wait_for_url("**/accounts/2fa/recovery-codes/")


def log_out(visit: Visit) -> None:
    visit.page.context.clear_cookies()
    visit.go("/accounts/login/")


def user_shown(visit: Visit) -> str:
    return visit.page.locator(".who").first.text_content() or ""


def test_a_passkey_logs_in_alone(visit: Visit, key: Any) -> None:
    add_passkey(visit, alone=True)
    stored = Authenticator.objects.get(type="webauthn")
    assert stored.wrap().name == "My laptop" and stored.wrap().is_passwordless is True
    log_out(visit)
    visit.page.get_by_role("button", name="Log in with a passkey").click()
    visit.page.wait_for_url("**/")
    assert "ada" in user_shown(visit)


def test_a_passkey_is_the_second_factor(visit: Visit, key: Any) -> None:
    add_passkey(visit, alone=False)
    log_out(visit)
    page = visit.page
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill("lovelace")
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url("**/accounts/2fa/authenticate/")
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url("**/")
    assert "ada" in user_shown(visit)


def test_a_passkey_of_nobody_here_is_told(visit: Visit, key: Any) -> None:
    add_passkey(visit, alone=True)
    Authenticator.objects.all().delete()
    log_out(visit)
    visit.page.get_by_role("button", name="Log in with a passkey").click()
    visit.page.locator(".toast[data-tone=bad]").wait_for()
    key(False)
    visit.page.get_by_role("button", name="Log in with a passkey").click()
    visit.page.locator("[data-passkey-failed]").wait_for()


def test_the_pages_of_logging_in_look_right(visit: Visit, key: Any, settings: Any) -> None:
    settings.RAGD_OIDC_ISSUER, settings.RAGD_OIDC_NAME = "http://127.0.0.1:1", "Example ID"
    add_passkey(visit, alone=True)
    ada = User.objects.get()
    number = Authenticator.objects.get(type="webauthn").pk
    codes = RecoveryCodes.activate(ada)
    assert len(codes.get_unused_codes()) == 10
    found: list[str] = []
    for address in (
        "2fa/",
        "2fa/totp/activate/",
        "2fa/recovery-codes/",
        "2fa/recovery-codes/generate/",
        "2fa/webauthn/",
        "2fa/webauthn/add/",
        f"2fa/webauthn/keys/{number}/edit/",
        f"2fa/webauthn/keys/{number}/remove/",
        "sessions/",
        "password/",
        "reauthenticate/?next=/",
        "2fa/webauthn/reauthenticate/?next=/",
    ):
        visit.go(f"/accounts/{address}")
        found += visit.faults()
    log_out(visit)
    found += visit.faults()
    for address in (link_path(ada), "/accounts/link/x/y/", "/accounts/oidc/cancelled/"):
        visit.go(address)
        found += visit.faults()
    visit.go("/accounts/login/")
    visit.page.get_by_label("Username").fill("ada")
    visit.page.get_by_label("Password").fill("lovelace")
    visit.page.get_by_role("button", name="Log in", exact=True).click()
    visit.page.wait_for_url("**/accounts/2fa/authenticate/")
    found += visit.faults()
    assert found == []
    visit.complaints[:] = [text for text in visit.complaints if "410" not in text]
