"""Which pages there are under /accounts/, who may open them, and which of allauth's there are not."""

from __future__ import annotations

import re
from typing import Any

from allauth.account import urls as account_urls
from allauth.socialaccount import urls as social_urls
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import NoReverseMatch, reverse

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
