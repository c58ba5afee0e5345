"""Sessions: listed and ended by their person and by an administrator, ended by time and by a new password."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ragd_site.sign_on.sessions import SEEN_KEY, name_device
from tests.sign_on.conftest import who
from tests.web.pages import has, texts

PASSWORD = "seven green kettles"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Version/17.5 Mobile/15E148 Safari/604.1"


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password=PASSWORD)


def log_in(agent: str = FIREFOX, address: str = "192.0.2.7", name: str = "ada") -> Client:
    client = Client(REMOTE_ADDR=address, HTTP_USER_AGENT=agent)
    assert client.post("/accounts/login/", {"username": name, "password": PASSWORD}).status_code == 302
    return client


@pytest.mark.parametrize(
    ("agent", "device"),
    [
        (FIREFOX, "Firefox 130, Linux"),
        (PHONE, "Safari 17, iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/126.0.0.0 Safari/537.36 Edg/126.0.0.0", "Edge 126, Windows"),
        ("Mozilla/5.0 (Linux; Android 14) Chrome/126.0.0.0 Mobile Safari/537.36", "Chrome 126, Android"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", ""),
    ],
)
def test_devices_are_named(agent: str, device: str) -> None:
    assert name_device(agent) == device


def test_a_person_sees_their_own_sessions_and_ends_one(ada: User) -> None:
    User.objects.create_user("grace", password=PASSWORD)
    here, phone, other = log_in(), log_in(PHONE, "198.51.100.4"), log_in(name="grace")
    page = here.get("/accounts/sessions/")
    assert [text.split(" this one")[0] for text in texts(page, "tbody th")] == [
        "Firefox 130, Linux",
        "Safari 17, iPhone",
    ]
    assert texts(page, "tbody td.mono") == ["192.0.2.7", "198.51.100.4"]
    theirs = UserSession.objects.get(user__username="grace")
    assert here.post("/accounts/sessions/", {"end": theirs.pk}).status_code == 302
    assert who(other) == "grace"
    assert here.post("/accounts/sessions/", {"end": UserSession.objects.get(ip="198.51.100.4").pk}).status_code == 302
    assert phone.get("/accounts/sessions/")["Location"].startswith("/accounts/login/")
    assert who(here) == "ada"


@pytest.mark.parametrize("wrong", ["", "x", "-1", "9" * 40, "0"])
def test_what_names_no_session_ends_none(ada: User, wrong: str) -> None:
    here, phone = log_in(), log_in(PHONE)
    assert here.post("/accounts/sessions/", {"end": wrong}).status_code == 302
    assert (who(here), who(phone)) == ("ada", "ada")


def test_all_others_end_together(ada: User) -> None:
    here, *others = log_in(), log_in(PHONE), log_in()
    assert has(here.get("/accounts/sessions/"), "button[value=others]")
    here.post("/accounts/sessions/", {"end": "others"})
    assert [who(client) for client in (here, *others)] == ["ada", None, None]
    assert not has(here.get("/accounts/sessions/"), "button[value=others]")


def test_an_administrator_ends_the_session_of_another(ada: User, admin_client: Client) -> None:
    theirs = log_in()
    row = UserSession.objects.get(user=ada)
    assert admin_client.get("/admin/usersessions/usersession/").status_code == 200
    assert admin_client.post(f"/admin/usersessions/usersession/{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert who(theirs) is None
    first, second = log_in(), log_in(PHONE)
    keys = list(UserSession.objects.filter(user=ada).values_list("pk", flat=True))
    data = {"action": "delete_selected", "_selected_action": keys, "post": "yes"}
    assert admin_client.post("/admin/usersessions/usersession/", data).status_code == 302
    assert (who(first), who(second)) == (None, None)


def test_a_new_password_ends_the_others(ada: User) -> None:
    here, other = log_in(), log_in(PHONE)
    data = {"old_password": PASSWORD, "new_password1": "eight " + PASSWORD, "new_password2": "eight " + PASSWORD}
    assert here.post("/accounts/password/", data).status_code == 302
    assert (who(here), who(other)) == ("ada", None)
    assert len(texts(here.get("/accounts/sessions/"), "tbody th")) == 1


def test_a_session_ends_some_hours_after_its_last_request(ada: User, settings: Any) -> None:
    settings.SESSION_COOKIE_AGE = 3600
    client = log_in()
    key = client.session.session_key

    def remaining() -> timedelta:
        return Session.objects.get(session_key=key).expire_date - timezone.now()

    session = client.session
    session[SEEN_KEY] = int(time.time()) - 301
    session.save()
    Session.objects.filter(session_key=key).update(expire_date=timezone.now() + timedelta(minutes=5))
    UserSession.objects.update(last_seen_at=timezone.now() - timedelta(minutes=55))
    client.get("/accounts/sessions/")
    assert remaining() > timedelta(minutes=59)
    assert timezone.now() - UserSession.objects.get().last_seen_at < timedelta(minutes=1)
    Session.objects.filter(session_key=key).update(expire_date=timezone.now() - timedelta(seconds=1))
    assert client.get("/accounts/sessions/")["Location"].startswith("/accounts/login/")


def test_a_session_is_not_written_with_every_request(ada: User) -> None:
    client = log_in()
    client.get("/accounts/password/")
    with CaptureQueriesContext(connection) as queries:
        client.get("/accounts/password/")
    assert [query["sql"] for query in queries if not query["sql"].strip().startswith(("SELECT", "WITH"))] == []
    assert not [query["sql"] for query in queries if "usersessions" in query["sql"]]
