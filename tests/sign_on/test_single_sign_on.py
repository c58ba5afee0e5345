"""OpenID Connect against a real provider on loopback: there and back, groups, and everything that is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.test import Client

from tests.sign_on.conftest import Provider, who
from tests.web.pages import attribute, has, texts

SignOn = Callable[..., Any]


def groups_of(name: str) -> list[str]:
    return sorted(User.objects.get(username=name).groups.values_list("name", flat=True))


def test_a_person_logs_in_with_code_and_pkce(sign_on: SignOn, provider: Provider, client: Client) -> None:
    asked = parse_qs(urlsplit(client.get("/accounts/oidc/login/")["Location"]).query)
    assert asked["response_type"] == ["code"] and asked["code_challenge_method"] == ["S256"]
    assert len(asked["code_challenge"][0]) == 43 and len(asked["nonce"][0]) == 64 and asked["state"][0]
    answer = sign_on(client, "grace", "/activity/")
    assert (answer.status_code, answer["Location"]) == (302, "/activity/")
    user = User.objects.get(username="grace")
    assert who(client) == "grace"
    assert (user.email, user.first_name, user.has_usable_password()) == ("grace@example.org", "Grace", False)
    assert (user.is_superuser, user.is_staff) == (False, False)
    account = SocialAccount.objects.get(user=user)
    assert account.provider == provider.issuer
    assert client.get("/accounts/sessions/").status_code == 200
    again = Client()
    assert sign_on(again, "grace").status_code == 302 and who(again) == "grace"
    assert User.objects.count() == 1


def test_the_provider_refuses_to_go_without_pkce(provider: Provider, client: Client, settings: Any) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["oidc"]["APPS"][0]["settings"]["oauth_pkce_enabled"] = False
    address = client.get("/accounts/oidc/login/")["Location"]
    assert "code_challenge" not in address
    assert "error=invalid_request" in provider.approve(address, "grace")


def test_groups_arrive_and_leave_and_those_given_by_hand_stay(
    sign_on: SignOn, provider: Provider, client: Client
) -> None:
    provider.say("grace", groups=["readers", "curators"])
    sign_on(client, "grace")
    assert groups_of("grace") == ["curators", "readers"]
    user = User.objects.get(username="grace")
    user.groups.add(Group.objects.create(name="by hand"), Group.objects.create(name="both"))
    provider.say("grace", groups=["curators", "both"])
    sign_on(Client(), "grace")
    assert groups_of("grace") == ["both", "by hand", "curators"]
    provider.say("grace", groups=[])
    sign_on(Client(), "grace")
    assert groups_of("grace") == ["both", "by hand"]
    assert Group.objects.filter(name="readers").exists()


@pytest.mark.parametrize(
    ("claim", "found"),
    [("one", ["one"]), (None, []), (7, []), ([1, None, "two", ""], ["two"]), (["x" * 151, "y"], ["y"])],
)
def test_a_claim_of_another_shape_gives_what_it_names(
    sign_on: SignOn, provider: Provider, client: Client, claim: Any, found: list[str]
) -> None:
    provider.say("grace", groups=claim)
    assert sign_on(client, "grace").status_code == 302
    assert groups_of("grace") == found


def test_the_administrators_group_makes_administrators_and_takes_it_back(
    sign_on: SignOn, provider: Provider, client: Client, settings: Any
) -> None:
    settings.RAGD_OIDC_ADMIN_GROUP = "ops"
    provider.say("grace", groups=["ops"])
    sign_on(client, "grace")
    assert User.objects.get(username="grace").is_superuser
    assert client.get("/admin/").status_code == 200
    provider.say("grace", groups=[])
    sign_on(Client(), "grace")
    user = User.objects.get(username="grace")
    assert (user.is_superuser, user.is_staff) == (False, False)
    assert client.get("/admin/").status_code == 302  # the session that was open is no administrator's any more
    user.is_superuser = user.is_staff = True  # by hand
    user.save()
    provider.say("grace", groups=["ops"])
    sign_on(Client(), "grace")
    provider.say("grace", groups=[])
    sign_on(Client(), "grace")
    assert User.objects.get(username="grace").is_superuser


def refused(answer: Any, client: Client) -> bool:
    assert not User.objects.filter(username="grace").exists()
    return bool(answer.status_code == 401 and who(client) is None and has(answer, "h1"))


FAULTS: dict[str, dict[str, Any]] = {
    "another nonce": {"claims": {"nonce": "0" * 64}},
    "no nonce": {"claims": {"nonce": None}},
    "another audience": {"claims": {"aud": "another"}},
    "audiences without a party": {"claims": {"aud": ["ragd", "another"]}},
    "issued to another party": {"claims": {"azp": "another"}},
    "another issuer": {"claims": {"iss": "http://evil.example/o"}},
    "expired": {"later_s": -36_000 - 60},
    "another key": {"key": "other"},
    "no signature": {"alg": "none"},
    "signed with the secret": {"alg": "HS256"},
    "no subject": {"claims": {"sub": None}},
    "a subject that is too long": {"claims": {"sub": "s" * 192}},
    "user information of somebody else": {"userinfo": {"sub": "99"}},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_token_with_a_fault_opens_nothing(sign_on: SignOn, provider: Provider, client: Client, fault: str) -> None:
    provider.fail(**FAULTS[fault])
    assert refused(sign_on(client, "grace"), client)


def test_a_token_of_the_same_way_without_a_fault_opens(sign_on: SignOn, provider: Provider, client: Client) -> None:
    provider.fail(claims={})
    assert sign_on(client, "grace").status_code == 302 and who(client) == "grace"


def callback(provider: Provider, client: Client, name: str = "grace") -> str:
    address = client.get("/accounts/oidc/login/")["Location"]
    return provider.approve(address, name).removeprefix("http://testserver")


@pytest.mark.parametrize("state", ["", "wrong", "of another session"])
def test_a_state_that_is_not_of_the_session_is_refused(provider: Provider, client: Client, state: str) -> None:
    back = callback(provider, client)
    if state == "of another session":
        assert refused(Client().get(back), client)
    else:
        assert refused(client.get(back.partition("state=")[0] + f"state={state}"), client)


def test_a_code_works_once(provider: Provider, client: Client) -> None:
    back = callback(provider, client)
    assert client.get(back).status_code == 302 and who(client) == "grace"
    thief = Client()
    thief.get("/accounts/oidc/login/")
    assert thief.get(back).status_code == 401 and who(thief) is None
    own_state = parse_qs(urlsplit(thief.get("/accounts/oidc/login/")["Location"]).query)["state"][0]
    assert thief.get(back.partition("state=")[0] + f"state={own_state}").status_code == 401 and who(thief) is None


def test_a_code_of_another_session_is_refused_though_it_was_not_used(provider: Provider, client: Client) -> None:
    """The code is bound to the verifier of the session that asked for it."""
    back = callback(provider, client)
    thief = Client()
    own_state = parse_qs(urlsplit(thief.get("/accounts/oidc/login/")["Location"]).query)["state"][0]
    assert refused(thief.get(back.partition("state=")[0] + f"state={own_state}"), thief)


def test_who_is_new_is_refused_without_sign_up(sign_on: SignOn, client: Client, settings: Any) -> None:
    settings.RAGD_OIDC_SIGNUP = False
    assert sign_on(client, "grace").status_code == 403
    assert User.objects.count() == 0 and who(client) is None
    settings.RAGD_OIDC_SIGNUP = True
    sign_on(client, "grace")
    settings.RAGD_OIDC_SIGNUP = False
    later = Client()
    assert sign_on(later, "grace").status_code == 302 and who(later) == "grace"


def test_a_disabled_account_stays_closed(sign_on: SignOn, client: Client) -> None:
    sign_on(client, "grace")
    User.objects.update(is_active=False)
    later = Client()
    assert sign_on(later, "grace")["Location"] == "/accounts/inactive/" and who(later) is None
    assert later.get("/accounts/inactive/").status_code == 403


def test_an_account_of_the_same_name_is_not_taken_over(sign_on: SignOn, client: Client) -> None:
    User.objects.create_superuser("grace", "grace@example.org", "a password of hers")
    sign_on(client, "grace")
    assert who(client) not in (None, "grace")
    assert SocialAccount.objects.get().user.username == who(client)


def test_a_verified_address_opens_its_one_account_where_that_is_switched_on(
    sign_on: SignOn, provider: Provider, client: Client, settings: Any
) -> None:
    settings.RAGD_OIDC_LINK_EMAIL = True
    known = User.objects.create_user("g.hopper", "Grace@Example.org")
    provider.say("grace", email_verified=False)
    sign_on(client, "grace")
    assert who(client) == "grace"
    assert User.objects.get(username="grace").email == ""  # else it would stand in the way of who has it
    SocialAccount.objects.all().delete()
    provider.say("grace", email_verified=True)
    sign_on(later := Client(), "grace")
    assert who(later) == "g.hopper" and groups_of("g.hopper") == ["readers"]
    SocialAccount.objects.all().delete()
    User.objects.create_user("second", known.email)
    sign_on(last := Client(), "grace")
    assert who(last) not in ("g.hopper", "second")


def test_what_the_provider_refuses_is_told(provider: Provider, client: Client) -> None:
    state = parse_qs(urlsplit(client.get("/accounts/oidc/login/")["Location"]).query)["state"][0]
    cancelled = client.get(f"/accounts/oidc/callback/?error=access_denied&state={state}", follow=True)
    assert cancelled.redirect_chain == [("/accounts/oidc/cancelled/", 302)] and cancelled.status_code == 200


def test_a_provider_that_is_away_is_told(provider: Provider, client: Client, settings: Any) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["oidc"]["APPS"][0]["settings"]["server_url"] = "http://127.0.0.1:1/o"
    assert client.get("/accounts/oidc/login/").status_code == 401


def test_a_provider_that_names_another_issuer_is_refused(provider: Provider, client: Client, settings: Any) -> None:
    """What answers at that address could be another provider, with other people of the same numbers."""
    address = provider.issuer.replace("127.0.0.1", "localhost")
    assert requests.get(provider.issuer + "/.well-known/openid-configuration", timeout=5).json()["issuer"] != address
    application = settings.SOCIALACCOUNT_PROVIDERS["oidc"]["APPS"][0]
    application["settings"]["openid_configuration_overrides"] = {"issuer": address}
    assert client.get("/accounts/oidc/login/").status_code == 401


def test_it_only_leads_where_the_site_is(sign_on: SignOn, client: Client) -> None:
    assert sign_on(client, "grace", "https://evil.example/")["Location"] == "/"


def test_nobody_links_an_account_that_is_open(provider: Provider, client: Client) -> None:
    """Another site could send the browser here with an account of its own at the provider."""
    user = User.objects.create_user("ada")
    client.force_login(user)
    address = client.get("/accounts/oidc/login/?process=connect")["Location"]
    client.get(provider.approve(address, "grace").removeprefix("http://testserver"))
    assert who(client) == "grace" and not SocialAccount.objects.filter(user=user).exists()


def test_logging_out_ends_the_session(sign_on: SignOn, client: Client) -> None:
    sign_on(client, "grace")
    key = client.session.session_key
    assert client.post("/accounts/logout/")["Location"] == "/accounts/login/"
    assert who(client) is None
    stolen = Client()
    stolen.cookies["sessionid"] = key or ""
    assert stolen.get("/accounts/sessions/")["Location"].startswith("/accounts/login/")


def test_the_page_offers_it_beside_the_password_or_alone(provider: Provider, client: Client, settings: Any) -> None:
    page = client.get("/accounts/login/?next=/activity/")
    assert attribute(page, ".ways a.button", "href") == "/accounts/oidc/login/?next=/activity/"
    assert has(page, "input[type=password]")
    settings.RAGD_PASSWORD_LOGIN = False
    page = client.get("/accounts/login/")
    assert not has(page, "input[type=password]") and not has(page, "[data-passkey]")
    assert len(texts(page, ".ways a.button")) == 1
    User.objects.create_superuser("ada", password="a password of hers")
    answer = client.post("/accounts/login/", {"username": "ada", "password": "a password of hers"})
    assert answer.status_code == 403 and who(client) is None


def test_without_a_provider_there_is_no_way_to_one(client: Client, db: None) -> None:
    assert client.get("/accounts/oidc/login/").status_code == 404
    assert client.get("/accounts/oidc/callback/?code=x&state=y").status_code == 404
    assert not has(client.get("/accounts/login/"), ".ways a.button")


def test_a_second_factor_is_asked_for_too(sign_on: SignOn, client: Client, settings: Any) -> None:
    settings.RAGD_REQUIRE_MFA = "everyone"
    sign_on(client, "grace")
    assert client.get("/")["Location"] == "/accounts/2fa/"
    TOTP.activate(User.objects.get(username="grace"), "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP")
    assert sign_on(later := Client(), "grace", "/activity/")["Location"] == "/accounts/2fa/authenticate/"
    assert who(later) is None
    code = format_hotp_value(hotp_value("JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP", int(time.time()) // 30))
    assert later.post("/accounts/2fa/authenticate/", {"code": code})["Location"] == "/activity/"
    assert who(later) == "grace"
