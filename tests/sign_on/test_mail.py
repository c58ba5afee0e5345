"""Mail: the test message, forgotten passwords, invitations; and who gets none."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from collections_app.access import mail
from collections_app.access.mail import INVITATIONS, RESETS
from collections_app.access.permissions import Permission
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.errors import ServiceError
from collections_app.models import AuditEvent
from ragd_site.sign_on.views import send_password_reset
from tests.fakes.smtp_server import SmtpServer, smtp_server
from tests.sign_on.conftest import who
from tests.web.pages import client_of, texts, wrong_fields

__all__ = ["smtp_server"]

OLD, NEW = "seven green kettles", "eight purple lanterns"
FORGOTTEN = "/accounts/forgotten/"


@pytest.fixture
def ada(db: None) -> User:
    cache.clear()  # what is counted for limits
    return User.objects.create_user("ada", "ada@example.org", OLD)


@pytest.fixture
def ask(client: Client, django_capture_on_commit_callbacks: Any) -> Callable[[str], Any]:
    """Ask for a new password for an address, and let the worker do what was sent to it."""

    def send(address: str) -> Any:
        with django_capture_on_commit_callbacks(execute=True):
            return client.post(FORGOTTEN, {"email": address})

    return send


def link_of(server: SmtpServer, number: int = -1) -> str:
    found = re.search(r"http://testserver(/\S+)", server.messages[number].get_content())
    assert found is not None
    return found[1]


def set_password(client: Client, link: str, password: str = NEW) -> Any:
    page = client.get(link, follow=True)
    address = page.redirect_chain[-1][0] if page.redirect_chain else link
    return client.post(address, {"new_password1": password, "new_password2": password})


def test_a_forgotten_password_is_set_by_the_link_of_a_mail(
    ada: User, smtp_server: SmtpServer, client: Client, ask: Callable[[str], Any]
) -> None:
    assert texts(client.get("/accounts/login/"), f"a[href='{FORGOTTEN}']")
    assert ask("Ada@Example.org").headers["Location"] == "/accounts/forgotten/sent/"
    (message,) = smtp_server.messages
    assert (message["To"], message["From"]) == ("ada@example.org", "ragd <ragd@example.org>")
    link = link_of(smtp_server)
    assert wrong_fields(set_password(client, link, "short")) == ["new_password2"]
    assert set_password(client, link).headers["Location"] == "/accounts/login/"
    ada.refresh_from_db()
    assert ada.check_password(NEW)
    assert client.get(link).status_code == 410, "it works once"
    event = AuditEvent.objects.filter(action="user.password").get()
    assert (event.subject_name, event.channel) == ("ada", "web")
    assert client.post("/accounts/login/", {"username": "ada", "password": NEW}).status_code == 302
    assert who(client) == "ada"


def test_nothing_tells_whether_there_is_an_account(
    ada: User, smtp_server: SmtpServer, client: Client, ask: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("ragd_site.sign_on.views.enqueue", lambda *args: asked.append(args))
    answers = [client.post(FORGOTTEN, {"email": address}) for address in ("ada@example.org", "bob@example.org")]
    assert len({(answer.status_code, answer.headers["Location"], answer.content) for answer in answers}) == 1
    assert [args[1] for args in asked] == ["ada@example.org", "bob@example.org"], "the worker looks, after the answer"
    assert not smtp_server.messages
    monkeypatch.undo()
    ask("bob@example.org")
    assert not smtp_server.messages


def test_who_has_no_password_here_gets_no_link(ada: User, smtp_server: SmtpServer, ask: Callable[[str], Any]) -> None:
    both = User.objects.create_user("grace", "grace@example.org", OLD)
    SocialAccount.objects.create(user=both, provider="oidc", uid="grace")
    User.objects.create_user("proxied", "proxied@example.org")
    User.objects.create_user("gone", "gone@example.org", OLD, is_active=False)
    for name in ("grace", "proxied", "gone"):
        ask(f"{name}@example.org")
    assert not smtp_server.messages
    ask("ada@example.org")
    assert [message["To"] for message in smtp_server.messages] == ["ada@example.org"]


def test_links_end_by_time_by_a_log_in_and_with_the_account(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    for links in (RESETS, INVITATIONS):
        token = links.make_token(ada)
        assert links.check_token(ada, token)
        assert not links.check_token(ada, token[:-1] + ("a" if token[-1] != "a" else "b"))
        assert not links.check_token(None, token) and not links.check_token(ada, None)
        assert not (INVITATIONS if links is RESETS else RESETS).check_token(ada, token)
        assert not links.check_token(User.objects.create_user(f"other-{links.purpose}", ada.email, OLD), token)
        monkeypatch.setattr(links, "lifetime", timedelta(seconds=-1))
        assert not links.check_token(ada, token)
    monkeypatch.undo()
    token = RESETS.make_token(ada)
    ada.last_login = timezone.now()
    assert not RESETS.check_token(ada, token)
    ended = RESETS.link_for(ada, "")
    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert Client().get(ended).status_code == 410


def test_the_number_of_mails_is_limited(ada: User, smtp_server: SmtpServer, ask: Callable[[str], Any]) -> None:
    assert [ask("ada@example.org").status_code for _ in range(4)] == [302, 302, 302, 429]
    assert [ask("bob@example.org").status_code for _ in range(4)] == [302, 302, 302, 429], "there is no such account"
    assert len(smtp_server.messages) == 3
    assert [ask(f"c{number}@example.org").status_code for number in range(15)].count(429) == 3, "20 from one place"


def test_without_a_mail_server_or_passwords_there_is_no_such_page(
    ada: User, client: Client, settings: Any, smtp_server: SmtpServer
) -> None:
    link = RESETS.link_for(ada, "")
    settings.RAGD_PASSWORD_LOGIN = False
    assert [client.get(path).status_code for path in (FORGOTTEN, f"{FORGOTTEN}sent/", link)] == [404, 404, 404]
    settings.RAGD_PASSWORD_LOGIN, settings.EMAIL_HOST = True, ""
    assert client.get(FORGOTTEN).status_code == client.post(FORGOTTEN, {"email": "a@b.org"}).status_code == 404
    assert not texts(client.get("/accounts/login/"), f"a[href='{FORGOTTEN}']")


def test_a_mail_server_that_fails_is_logged(
    ada: User, smtp_server: SmtpServer, caplog: pytest.LogCaptureFixture
) -> None:
    smtp_server.refused.add("ada@example.org")
    send_password_reset("ada@example.org", "http://testserver", "de")
    assert "550 no such mailbox" in caplog.text and "/accounts/set/" not in caplog.text


def test_an_invitation_is_sent_with_a_person_and_again(
    ada: User, smtp_server: SmtpServer, admin_client: Client, client: Client
) -> None:
    form = admin_client.get("/people/?view=new")
    assert len(texts(form, "#id_log_in option")) == 4
    values = {"username": "bob", "log_in": "invitation"}
    assert wrong_fields(admin_client.post("/people/?view=new", values)) == ["email"]
    admin_client.post("/people/?view=new", values | {"email": "bob@example.org"})
    bob = User.objects.get(username="bob")
    assert smtp_server.messages[0]["To"] == "bob@example.org"
    page = f"/people/{bob.pk}/"
    assert texts(admin_client.get(page), "button[value=invite]")
    admin_client.post(page, {"do": "invite"})
    first, second = link_of(smtp_server, 0), link_of(smtp_server, 1)
    assert set_password(client, first).headers["Location"] == "/accounts/login/"
    bob.refresh_from_db()
    assert bob.check_password(NEW) and client.get(second).status_code == 410
    client.post("/accounts/login/", {"username": "bob", "password": NEW})
    assert who(client) == "bob" and not texts(admin_client.get(page), "button[value=invite]")
    admin_client.post(page, {"do": "invite"})
    assert len(smtp_server.messages) == 2, "who has logged in is not invited"
    assert AuditEvent.objects.filter(action="user.change", message__contains="invited").count() == 2
    assert client.post(f"/people/{ada.pk}/", {"do": "invite"}).status_code == 403


def test_a_person_is_there_where_the_invitation_was_not_sent(
    ada: User, smtp_server: SmtpServer, admin_client: Client
) -> None:
    smtp_server.refused.add("bob@example.org")
    values = {"username": "bob", "log_in": "invitation", "email": "bob@example.org"}
    page = admin_client.post("/people/?view=new", values, follow=True)
    assert User.objects.get(username="bob").has_usable_password()
    assert "550 no such mailbox" in page.content.decode()


def test_a_link_that_is_handed_over_sets_one_password_once(
    admin_client: Client, client: Client, ada: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMAIL_HOST = ""
    nature, secret = create_collection(name="nature"), create_collection(name="secret")
    values = {"username": "bob", "full_name": "Bob  van Dyk", "log_in": "link", "role": "asker", "collection": "nature"}
    page = admin_client.post("/people/?view=new", values, follow=True)
    bob, [link] = User.objects.get(username="bob"), texts(page, "#invitation-link")
    address = f"/people/{bob.pk}/"
    assert (bob.first_name, bob.last_name) == ("Bob van", "Dyk")
    assert not texts(admin_client.get(address), "#invitation-link"), "it is shown once"
    ask_for = {"do": "link"}
    client.force_login(ada)
    assert client.post(address, ask_for).status_code == 403 and client.get(address).status_code == 403
    client.logout()
    monkeypatch.setattr(INVITATIONS, "lifetime", timedelta(seconds=-1))
    assert client.get(link).status_code == 410, "it has expired"
    monkeypatch.undo()
    [second] = texts(admin_client.post(address, ask_for, follow=True), "#invitation-link")
    admin_client.post(address, {"do": "active", "active": "0"})
    assert client.get(link).status_code == 410, "the account is closed"
    admin_client.post(address, {"do": "active", "active": "1"})
    assert set_password(client, link).status_code == 302
    assert [client.get(each).status_code for each in (link, second)] == [410, 410], "each works once"
    access = access_of_user(User.objects.get(pk=bob.pk))
    assert (access.may(Permission.ASK, nature.pk), access.may(Permission.ASK, secret.pk)) == (True, False)
    assert AuditEvent.objects.filter(action="user.change", message__contains="invited").count() == 2


def test_without_a_mail_server_people_get_an_initial_password(admin_client: Client, settings: Any) -> None:
    settings.EMAIL_HOST = ""
    assert len(texts(admin_client.get("/people/?view=new"), "#id_log_in option")) == 3
    admin_client.post("/people/?view=new", {"username": "bob", "log_in": "invitation", "email": "bob@example.org"})
    assert not User.objects.filter(username="bob").exists()
    admin_client.post("/people/?view=new", {"username": "bob", "log_in": "password", "password": OLD})
    bob = User.objects.get(username="bob")
    assert bob.check_password(OLD) and admin_client.post(f"/people/{bob.pk}/", {"do": "invite"}).status_code == 404


def test_the_test_message(smtp_server: SmtpServer, admin_client: Client, ada: User, settings: Any) -> None:
    address = "/settings/server/?view=mail"
    smtp_server.login = ("ragd", "wordpass")
    settings.EMAIL_HOST_USER, settings.EMAIL_HOST_PASSWORD = "ragd", "wordpass"
    page = admin_client.get(address)
    assert texts(page, "#mail input[name=to]") == [""] and "wordpass" not in page.content.decode()
    sent = admin_client.post(address, {"to": "x@example.org"}, headers={"HX-Request": "true", "HX-Target": "mail"})
    assert 'data-sent="x@example.org"' in sent.content.decode()
    assert smtp_server.messages[0]["X-Recipient"] == "x@example.org"
    settings.EMAIL_HOST_PASSWORD = "other"
    refused = admin_client.post(address, {"to": "x@example.org"})
    assert refused.status_code == 502 and "535" in refused.content.decode() and "other" not in texts(refused, "#mail")
    settings.EMAIL_HOST_USER, settings.EMAIL_USE_TLS = "", True
    assert "RAGD_MAIL_SECURITY" in admin_client.post(address, {"to": "x@example.org"}).content.decode()
    settings.EMAIL_USE_TLS = False
    smtp_server.stop()
    unreached = admin_client.post(address, {"to": "x@example.org"})
    assert unreached.status_code == 502 and "RAGD_MAIL_HOST" in unreached.content.decode()
    assert len(smtp_server.messages) == 1
    visitor = client_of(ada)
    assert visitor.get(address).status_code == visitor.post(address, {"to": "x@example.org"}).status_code == 403


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of 127.0.0.1, signed by itself, with its key in the same file."""
    key, path = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=mail"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + key.read_text())
    return path


@pytest.mark.parametrize("mode", ["starttls", "tls"])
def test_mails_are_sent_encrypted_and_only_to_a_server_that_is_trusted(
    mode: str, smtp_server: SmtpServer, certificate: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    smtp_server.certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    smtp_server.certificate.load_cert_chain(certificate)
    smtp_server.begins_encrypted = mode == "tls"
    settings.EMAIL_USE_TLS, settings.EMAIL_USE_SSL = mode == "starttls", mode == "tls"
    with pytest.raises(ServiceError, match="not trusted") as refused:
        mail.send_test("x@example.org", actor=None)
    assert refused.value.status == 502 and not smtp_server.messages
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    mail.send_test("x@example.org", actor=None)
    assert [message["X-Encrypted"] for message in smtp_server.messages] == ["True"]


def test_links_begin_with_the_public_address(rf: Any, settings: Any) -> None:
    assert mail.link_base(rf.get("/people/")) == "http://testserver"
    settings.RAGD_PUBLIC_URL = "https://rag.example.org/"
    assert mail.link_base(rf.get("/people/")) == "https://rag.example.org"
