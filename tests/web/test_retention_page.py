"""Settings of the server on pages. Retention: what holds and why, what is due, and the form that changes it."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings as site
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from collections_app.collections.retention_periods import PERIODS
from collections_app.collections.services import create_collection, update_collection
from collections_app.endpoints.secrets import decrypt
from collections_app.endpoints.server_settings import stored
from collections_app.models import AuditEvent, Collection, Operation, ServerSetting
from ragd_site.environment import ON_PAGES_ALONE, Environment
from ragd_site.operations.settings_page import SUBJECTS
from retrieval_app.models import QueryRun
from tests.web.pages import client_of, texts, tree, wrong_fields

SERVER = "/settings/server/"
PAGE, PERIOD = f"{SERVER}?view=retention", f"{SERVER}?view=period&period="


@pytest.fixture(autouse=True)
def unstated(settings: Any) -> Iterator[None]:
    settings.RAGD_STATED = frozenset({"RAGD_SPAN_MAX_MB"})
    settings.RAGD_SPAN_MAX_MB = 500
    yield
    stored.apply({})


@pytest.fixture
def notes(admin_client: Client) -> Collection:
    collection = create_collection(name="notes")
    for days in (1, 40, 80):
        QueryRun.objects.create(
            kind="search", collection=collection, collection_name="notes", query="q", channel="api",
            created_at=timezone.now() - timedelta(days=days),
        )  # fmt: skip
    return collection


def rows_of(html: str) -> dict[str, tuple[str, str, str]]:
    """key -> (source, value, due)."""
    found = re.findall(r'data-key="([^"]*)" data-source="([^"]*)" data-value="([^"]*)" data-due="([^"]*)"', html)
    return {key: (source, value, due) for key, source, value, due in found}


def test_every_kind_of_data_says_what_holds_and_what_is_due(admin_client: Client, notes: Collection) -> None:
    update_collection(notes, changes={"retention": {"runs_days": 60}})
    ServerSetting.objects.create(key="RAGD_RUN_RETENTION_DAYS", value=30)
    stored.take_over()
    Operation.objects.create(
        kind="retention", state="succeeded", finished_at=timezone.now(), report={"runs": 3, "trashed_documents": 0}
    )
    page = admin_client.get(PAGE)
    rows = rows_of(page.content.decode())
    assert list(rows) == list(PERIODS) and {due for _, _, due in rows.values()} == {""}
    assert (rows["runs_days"][:2], rows["span_mb"][:2]) == (("database", "30"), ("environment", "500"))
    assert rows["trash_days"][:2] == ("default", "30")
    assert texts(page, "tr[data-key=runs_days] td:nth-of-type(3)") == ["3"]
    assert texts(page, "tr[data-key=runs_days] a[href='/collections/notes/settings/']") == ["notes"]
    assert not texts(page, "tr[data-key=span_mb] a[href$='period=span_mb']"), "the environment holds"
    for more, headers in (("&count=on", {}), ("", {"HX-Request": "true", "HX-Target": "retention"})):
        counted = rows_of(admin_client.get(PAGE + more, headers=headers).content.decode())
        assert counted["runs_days"] == ("database", "30", "1"), "the collection keeps its own for 60 days"


def test_a_value_is_tried_set_and_taken_back(admin_client: Client, notes: Collection) -> None:
    address = f"{PERIOD}runs_days"
    tried = admin_client.post(
        address, {"value": "30", "do": "count"}, headers={"HX-Request": "true", "HX-Target": "retention-due"}
    )
    assert 'data-due="2"' in tried.content.decode() and not ServerSetting.objects.exists()
    assert QueryRun.objects.count() == 3
    assert admin_client.post(address, {"value": "30"}).headers["Location"] == PAGE
    row = ServerSetting.objects.get()
    assert (row.key, row.value, row.updated_by) == ("RAGD_RUN_RETENTION_DAYS", 30, "admin")
    assert rows_of(admin_client.get(PAGE).content.decode())["runs_days"][:2] == ("database", "30")
    admin_client.post(address, {"value": ""})
    assert not ServerSetting.objects.exists()


@pytest.mark.parametrize("value", ["-1", "36501", "ten", "1.5"])
def test_a_wrong_value_stays_in_the_form(value: str, admin_client: Client) -> None:
    page = admin_client.post(f"{PERIOD}runs_days", {"value": value})
    assert page.status_code == 422 and texts(page, ".errorlist li") and not ServerSetting.objects.exists()


def test_what_the_environment_states_is_not_set_here(admin_client: Client) -> None:
    assert not texts(admin_client.get(f"{PERIOD}span_mb"), "main form button")
    assert admin_client.post(f"{PERIOD}span_mb", {"value": "3"}).status_code == 409
    assert not ServerSetting.objects.exists()
    assert admin_client.get(f"{PERIOD}nothing").status_code == 404


def test_it_is_for_administrators_of_all_collections(notes: Collection) -> None:
    visitor = client_of(User.objects.create_user("eve"))
    for address in (PAGE, f"{PERIOD}runs_days", SERVER):
        assert visitor.get(address).status_code == 403
    assert visitor.post(f"{PERIOD}runs_days", {"value": "1"}).status_code == 403
    assert visitor.post(SERVER, {"RAGD_PARSE_TIMEOUT_S": "1"}).status_code == 403
    assert not ServerSetting.objects.exists()


def test_settings_of_a_page_hold_at_once_and_in_other_processes(admin_client: Client, settings: Any) -> None:
    settings.RAGD_STATED = frozenset()
    form = {"RAGD_PARSE_TIMEOUT_S": "7.5", "RAGD_DEGRADE": "false", "RAGD_SOURCE_FOLDERS": "/srv/a\n/srv/b"}
    for subject, page in SUBJECTS.items():
        values = {name: text for name, text in form.items() if name in page.names}
        assert admin_client.post(f"{SERVER}?subject={subject}", values).status_code == 302
    rows = dict(ServerSetting.objects.values_list("key", "value"))
    assert rows == {"RAGD_PARSE_TIMEOUT_S": 7.5, "RAGD_DEGRADE": False, "RAGD_SOURCE_FOLDERS": ["/srv/a", "/srv/b"]}
    assert (site.RAGD_PARSE_TIMEOUT_S, site.RAGD_DEGRADE) == (7.5, False)
    field = tree(admin_client.get(SERVER)).css_first("[name=RAGD_PARSE_TIMEOUT_S]")
    assert field is not None and field.attributes.get("value") == "7.5"
    stored.apply({})  # as another process, which has not looked yet
    assert site.RAGD_PARSE_TIMEOUT_S == 60
    settings.RAGD_FOLLOWS_PAGES, stored._read_at = True, None
    assert admin_client.get(SERVER).status_code == 200 and site.RAGD_PARSE_TIMEOUT_S == 7.5
    stored.apply({})  # as a command, which looks before it runs
    stored._read_at = None
    call_command("ragd", "jobs", stdout=StringIO())
    assert site.RAGD_PARSE_TIMEOUT_S == 7.5
    admin_client.post(f"{SERVER}?subject=limits", {"RAGD_PARSE_TIMEOUT_S": ""})
    assert site.RAGD_PARSE_TIMEOUT_S == 60 and len(ServerSetting.objects.all()) == 2


def test_a_secret_is_encrypted_kept_and_never_shown(admin_client: Client, settings: Any) -> None:
    settings.RAGD_STATED = frozenset({"RAGD_MAIL_PORT"})
    address, values = f"{SERVER}?subject=mail", {"RAGD_MAIL_FROM": "r@example.org", "RAGD_MAIL_HOST": "127.0.0.1"}
    assert wrong_fields(admin_client.post(address, {"RAGD_MAIL_HOST": "127.0.0.1"})) == ["RAGD_MAIL_HOST"]
    values["RAGD_MAIL_SECURITY"] = "tls"
    admin_client.post(address, values | {"RAGD_MAIL_PASSWORD": "wordpass", "RAGD_MAIL_PORT": "1"})
    assert (site.EMAIL_HOST, site.EMAIL_HOST_PASSWORD, site.EMAIL_USE_SSL) == ("127.0.0.1", "wordpass", True)
    assert not ServerSetting.objects.filter(key="RAGD_MAIL_PORT").exists(), "the environment states it"
    row = ServerSetting.objects.get(key="RAGD_MAIL_PASSWORD")
    assert (row.value, decrypt(row.secret)) == (None, "wordpass") and "wordpass" not in row.secret
    admin_client.post(address, values | {"RAGD_MAIL_PASSWORD": ""})
    assert site.EMAIL_HOST_PASSWORD == "wordpass" and "wordpass" not in admin_client.get(address).content.decode()
    events = AuditEvent.objects.filter(action="serversetting.change")
    assert events.count() == 4 and "wordpass" not in str(list(events.values()))
    admin_client.post(address, values | {"forget-RAGD_MAIL_PASSWORD": "on"})
    assert site.EMAIL_HOST_PASSWORD == "" and not ServerSetting.objects.filter(key="RAGD_MAIL_PASSWORD").exists()


def test_sign_on_is_set_up_on_a_page(admin_client: Client, client: Client, settings: Any) -> None:
    settings.RAGD_STATED = frozenset()
    address, alone = f"{SERVER}?subject=sign-on", {"RAGD_PASSWORD_LOGIN": "false"}
    assert wrong_fields(admin_client.post(address, alone)) == ["RAGD_PASSWORD_LOGIN"]
    values = {"RAGD_OIDC_CLIENT_ID": "ragd", "RAGD_OIDC_CLIENT_SECRET": "s", "RAGD_OIDC_ISSUER": "https://id.example"}
    assert admin_client.post(address, values | {"RAGD_OIDC_NAME": "Example ID"}).status_code == 302
    [provider] = site.SOCIALACCOUNT_PROVIDERS["oidc"]["APPS"]
    assert (provider["name"], provider["secret"], provider["client_id"]) == ("Example ID", "s", "ragd")
    assert "Example ID" in client.get("/accounts/login/").content.decode()


def test_a_server_has_a_name_of_its_own(admin_client: Client, client: Client, settings: Any) -> None:
    assert admin_client.post(f"{SERVER}?subject=name", {"RAGD_NAME": "A<b>"}).status_code == 302
    for page in (admin_client.get(SERVER), client.get("/accounts/login/")):
        title, _, body = page.content.decode().partition("</title>")
        assert title.endswith(" · A&lt;b&gt;") and "A&lt;b&gt;" in body and "A<b>" not in body
    assert wrong_fields(admin_client.post(f"{SERVER}?subject=name", {"RAGD_NAME": "x" * 41})) == ["RAGD_NAME"]


def draw_png(width: int, height: int, *more: tuple[bytes, bytes]) -> bytes:
    rows = zlib.compress(b"".join(b"\0" + b"\x0a\x6a\x7d" * width for _ in range(height)))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), *more, (b"IDAT", rows), (b"IEND", b"")]
    packed = [struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in
              chunks]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def test_a_server_looks_as_its_administrator_wants(admin_client: Client, client: Client) -> None:
    address, logo = f"{SERVER}?subject=name", draw_png(200, 200, (b"tEXt", b"Comment\0<script>"))
    plain = client.get("/widget.js")
    assert plain.status_code == 200 and plain.headers["ETag"] and "#0a6a7d" in plain.content.decode()
    assert client.get("/widget.js", headers={"If-None-Match": plain.headers["ETag"]}).status_code == 304
    usual = client.get("/brand/manifest.webmanifest").json()["icons"]
    assert [icon["sizes"] for icon in usual] == ["any", "192x192", "512x512"]
    assert all(finders.find(icon["src"].removeprefix("/static/")) for icon in usual)
    assert client.get("/brand/logo.png").status_code == client.get("/brand/secret_key").status_code == 404
    values = {"RAGD_ACCENT": "#CC0066", "RAGD_LOGO": ContentFile(logo + b"<script>", "logo.png"), "RAGD_NAME": "Acme"}
    assert admin_client.post(address, values).status_code == 302
    page = tree(client.get("/accounts/login/"))
    [icon], [theme] = page.css("link[rel=icon]"), page.css("link[href^='/brand/theme.css']")
    sent = client.get(str(icon.attributes["href"]))
    assert sent.content == draw_png(200, 200) and sent.headers["Content-Type"] == "image/png", "what draws it alone"
    assert page.css(".brand img[src^='/brand/logo.png']") and client.get(str(theme.attributes["href"])).content
    manifest = client.get(str(page.css("link[rel=manifest]")[0].attributes["href"])).json()
    assert (manifest["name"], [icon["sizes"] for icon in manifest["icons"]]) == ("Acme", ["200x200"])
    script = client.get("/widget.js")
    assert manifest["theme_color"] in script.content.decode() and script.headers["ETag"] != plain.headers["ETag"]
    assert len(str(AuditEvent.objects.filter(subject_id="RAGD_LOGO").values())) < 2000, "not the picture itself"
    assert admin_client.post(address, values | {"RAGD_LOGO": "", "RAGD_ACCENT": ""}).status_code == 302
    assert site.RAGD_LOGO and not site.RAGD_ACCENT
    assert admin_client.post(address, {"forget-RAGD_LOGO": "on"}).status_code == 302
    assert site.RAGD_LOGO == "" and client.get("/brand/logo.png").status_code == 404


@pytest.mark.parametrize(
    "content",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", draw_png(200, 300), draw_png(64, 64),
        draw_png(200, 200)[:-30], draw_png(200, 200).replace(b"IDAT", b"IDAX"), b"\x89PNG\r\n\x1a\n",
        draw_png(200, 200) + bytes(100_000),
    ],
)  # fmt: skip
def test_a_picture_that_is_no_logo_is_refused(admin_client: Client, content: bytes) -> None:
    page = admin_client.post(f"{SERVER}?subject=name", {"RAGD_LOGO": ContentFile(content, "logo.png")})
    assert wrong_fields(page) == ["RAGD_LOGO"] and page.status_code == 422 and not site.RAGD_LOGO
    assert wrong_fields(admin_client.post(f"{SERVER}?subject=name", {"RAGD_ACCENT": "red;}"})) == ["RAGD_ACCENT"]


def test_every_setting_of_a_page_is_on_one() -> None:
    names = [name for subject in SUBJECTS.values() for name in subject.names]
    assert len(names) == len(set(names)) and set(names) <= Environment.model_fields.keys()
    assert {*names, *(period.variable for period in PERIODS.values())} >= ON_PAGES_ALONE
