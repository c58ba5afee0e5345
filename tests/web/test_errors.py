"""Error pages stand in the same design, also when there is no request, no database and no log-in.
A body that is too large is refused by its stated length, before anything of it is read or written to disk.
No answer is stored by a browser or a proxy, and a page and its part are never taken for each other."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.template.loader import render_to_string
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from pytest_django import Settings

from collections_app.access.api_keys import NewKey, create_key
from collections_app.models import RoleGrant
from ragd_site.access.middleware import LIMITS, page_refused
from retrieval_app.models import QueryRun
from tests.addresses import all_addresses
from tests.web.pages import attribute, client_of, has, text, texts

NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize("name", ["400", "403", "403_csrf", "404", "500", "503", "lockout"])
def test_an_error_page_needs_nothing(name: str) -> None:
    html = render_to_string(f"{name}.html")
    assert len(re.findall("<h1>", html)) == 1
    assert 'href="/"' in html
    assert "<title>" in html


def test_an_unknown_address(visitor: Client) -> None:
    response = visitor.get("/nothing/here/")
    assert response.status_code == 404
    assert len(texts(response, "h1")) == 1
    assert "404" in texts(response, "p.muted")


@pytest.mark.parametrize(
    ("address", "missing"),
    [
        ("/collections/none/", "There is no collection none."),
        ("/collections/nature/documents/none.pdf/", "Document none.pdf is not in collection nature."),
        ("/collections/nature/chunks/99/whales.md/", "Chunk 99 is not in document whales.md."),
        ("/collections/nature/documents/whales.md/?view=revision&number=7", "It is not in document whales.md."),
        (f"/runs/{NOBODY}/", f"Query run {NOBODY} is not there."),
        (f"/runs/{NOBODY}/?view=trace", f"Query run {NOBODY} is not there."),
        ("/runs/RUN/compare/00000000-0000-4000-8000-000000000000/", f"Query run {NOBODY} is not there."),
        (f"/collections/nature/uploads/files/{NOBODY}/", f"Job {NOBODY} is not in collection nature."),
        (f"/collections/nature/uploads/{NOBODY}/", f"Upload {NOBODY} is not in collection nature."),
        (f"/chat/{NOBODY}/", f"Thread {NOBODY} is not there."),
        (f"/evaluation/runs/{NOBODY}/", f"Evaluation run {NOBODY} is not there."),
        ("/evaluation/sets/99/", "Test set 99 is not there."),
        ("/alerts/?view=rule&pk=999", "Alert rule 999 is not there."),
        ("/traces/none/", "Trace none is not there."),
        ("/collections/nature/sources/99/", "Source 99 is not in collection nature."),
    ],
)
def test_what_is_missing_is_named_in_the_frame(
    visitor: Client, fill: Callable[..., Any], address: str, missing: str
) -> None:
    nature = fill(documents=1)
    run = QueryRun.objects.create(kind="search", collection=nature, collection_name="nature", query="q", channel="page")
    response = visitor.get(address.replace("RUN", str(run.pk)))
    assert (response.status_code, texts(response, ".page-error strong")) == (404, [missing])
    assert has(response, "nav.rail") and has(response, "#palette")


def test_a_run_that_one_may_not_see_is_as_little_there_as_one_that_never_was(
    visitor: Client, fill: Callable[..., Any]
) -> None:
    nature = fill(documents=1)
    run = QueryRun.objects.create(kind="search", collection=nature, collection_name="nature", query="q", channel="page")
    eve = User.objects.create_user("eve")
    stranger = client_of(eve)
    said = [texts(stranger.get(f"/runs/{pk}/"), ".page-error strong") for pk in (run.pk, NOBODY)]
    assert said == [[f"Query run {run.pk} is not there."], [f"Query run {NOBODY} is not there."]]
    assert visitor.get(f"/runs/{run.pk}/").status_code == 200


def test_a_refusal_names_the_role_and_who_gives_it_to_those_who_may_know(visitor: Client, fill: Any, rf: Any) -> None:
    nature, eve = fill(documents=1), User.objects.create_user("eve")
    RoleGrant.objects.create(user=eve, collection_id=nature.pk, role="viewer")
    refused = client_of(eve).get("/collections/nature/settings/")
    assert (refused.status_code, refused.context["role"], refused.context["names"]) == (403, "Can edit", ["ada"])
    others = client_of(eve).get("/operations/")
    assert (others.status_code, others.context["role"], others.context["names"]) == (403, "", ["ada"])
    request = rf.get("/admin/")
    request.user = AnonymousUser()
    assert "ada" not in page_refused(request, PermissionDenied()).content.decode()


def test_a_script_without_a_session_is_told_and_a_form_leads_back_to_its_page(client: Client, db: None) -> None:
    for headers in ({"HX-Request": "true"}, {"Accept": "text/event-stream"}):
        response = client.post("/chat/stream/", {"question": "Why?"}, headers=headers)
        assert (response.status_code, response.headers["Ragd-Login"]) == (401, "/accounts/login/")
    checked = Client(enforce_csrf_checks=True)
    assert checked.post("/chat/stream/", headers={"HX-Request": "true"}).status_code == 401
    page = "/collections/nature/?state=archived"
    sent = client.post("/collections/nature/?view=change", headers={"Referer": f"http://testserver{page}"})
    assert sent["Location"] == f"/accounts/login/?{urlencode({'next': page}, safe='/')}"
    foreign = client.post("/collections/nature/?view=change", headers={"Referer": "https://elsewhere.example/x/"})
    assert foreign["Location"] == "/accounts/login/?next=/collections/nature/%3Fview%3Dchange"


def test_what_goes_while_its_page_is_made_is_not_there(
    visitor: Client, fill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections_app.documents.revisions import views
    from collections_app.documents.services import delete_documents

    nature, read = fill(documents=1), views.revision_text

    def delete_first(*place: Any) -> str:
        delete_documents(nature, ["whales.md"])
        return read(*place)

    address = "/collections/nature/documents/whales.md/?view=revision&number=1"
    assert visitor.get(address).status_code == 200
    monkeypatch.setattr(views, "revision_text", delete_first)
    response = visitor.get(address)
    assert response.status_code == 404 and has(response, "h1")


def test_a_view_that_breaks(visitor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from ragd_site.operations import views

    def explode() -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(views, "attention_summary", explode)
    visitor.raise_request_exception = False
    response = visitor.get("/")
    assert response.status_code == 500
    assert has(response, "h1")
    assert "a secret detail" not in response.content.decode()


def test_a_wrong_password_keeps_the_name(client: Client, visitor: Client) -> None:
    response = client.post("/accounts/login/", {"username": "ada", "password": "wrong", "next": "/activity/"})
    html = response.content.decode()
    assert response.status_code == 200
    assert 'value="ada"' in html
    assert has(response, "[name=password][autofocus]") and not has(response, "[name=username][autofocus]")
    assert 'name="next" value="/activity/"' in html
    assert 'role="alert"' in html


def test_logging_in_leads_to_where_one_wanted(client: Client, visitor: Client) -> None:
    response = client.post("/accounts/login/", {"username": "ada", "password": "lovelace", "next": "/activity/"})
    assert response["Location"] == "/activity/"


def test_a_user_name_that_no_account_can_have_is_refused_beside_its_field(client: Client, db: None) -> None:
    for length in (151, 256, 100_000):
        response = client.post("/accounts/login/", {"username": "x" * length, "password": "wrong"})
        assert response.status_code == 200
        assert list(response.context["form"].errors) == ["username"]


LARGE = "200000000000"


class UnreadBody(io.RawIOBase):
    """A body that must not be read."""

    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the body was read")

    readinto = readline = read  # type: ignore[assignment]


def post(client: Client, path: str, length: str = LARGE, content_type: str = "multipart/form-data; boundary=x") -> Any:
    values: dict[str, Any] = {"wsgi.input": UnreadBody(), "CONTENT_LENGTH": length, "CONTENT_TYPE": content_type}
    return client.generic("POST", path, **values)


def routes(patterns: list[URLPattern | URLResolver], prefix: str = "") -> list[str]:
    found = []
    for each in patterns:
        route = prefix + str(each.pattern)
        found += routes(each.url_patterns, route) if isinstance(each, URLResolver) else [route]
    return found


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/", "/collections/x/upload/", "/theme/", "/chat/"])
def test_a_page_answers_413_as_a_page(client: Client, db: None, path: str) -> None:
    response = post(client, path)
    assert (response.status_code, response["Content-Type"]) == (413, "text/html; charset=utf-8")
    assert "<h1>" in response.content.decode()


@pytest.mark.parametrize(
    "path", ["/v1/collections", "/v1/collections/x/documents", "/v1/collections/import", "/mcp", "/v1/x"]
)
def test_the_api_answers_413_as_json_without_asking_for_a_key(client: Client, db: None, path: str) -> None:
    response = post(client, path)
    assert (response.status_code, response.json()["error"]["type"]) == (413, "too_large")


def test_the_facade_answers_413_in_its_own_shape(client: Client, db: None) -> None:
    response = post(client, "/v1/chat/completions", content_type="application/json")
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_what_fits_is_read(client: Client, db: None, settings: Settings) -> None:
    settings.RAGD_MAX_DOCUMENT_MB = 1
    for path, limit_mb in (
        ("/v1/api-keys", 1),
        ("/v1/collections/x/documents/y", 3),
        ("/v1/collections/x/documents", 21),
    ):
        assert post(client, path, str(limit_mb * 1_000_000 + 1)).status_code == 413
        fits = client.generic("POST" if path != "/v1/collections/x/documents/y" else "PUT", path, b"x" * 1000)
        assert fits.status_code != 413


def test_a_body_of_unstated_length_is_refused(client: Client, db: None) -> None:
    for path in ("/v1/collections", "/accounts/login/"):
        response = client.generic("POST", path, **{"wsgi.input": UnreadBody(), "HTTP_TRANSFER_ENCODING": "chunked"})
        assert response.status_code == 411


def test_every_limit_is_that_of_a_route() -> None:
    known = routes(get_resolver().url_patterns)
    known += [each.route + "".join(each.name.partition("?")[1:]) for each in all_addresses()]
    assert [start for start, _ in LIMITS if not any(route.startswith(start) for route in known)] == []


def test_each_view_of_an_address_has_a_limit_of_its_own(client: Client, db: None) -> None:
    for view, status in (("", 413), ("?view=edit", 413), ("?view=new-version", 302)):
        assert client.generic("POST", f"/collections/x/documents/y/{view}", b"x" * 2_000_000).status_code == status


@pytest.mark.parametrize(
    "path", ["/", "/collections/nature/", "/activity/", "/traces/", "/nothing/", "/accounts/login/", "/admin/"]
)
def test_pages_are_not_stored_and_vary_by_the_part_that_is_asked_for(
    visitor: Client, fill: Callable[..., Any], path: str
) -> None:
    fill(documents=1)
    response = visitor.get(path)
    assert "no-store" in response["Cache-Control"]
    if response.headers.get("Content-Type", "").startswith("text/html") and response.content:
        assert {"HX-Request", "HX-Target"} <= set(response["Vary"].split(", "))


def test_a_part_is_not_stored(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=1)
    part = visitor.get("/collections/nature/?q=w", headers={"HX-Request": "true", "HX-Target": "documents"})
    assert "<html" not in part.content.decode()
    assert part["Cache-Control"] == "private, no-store"
    assert {"HX-Request", "HX-Target"} <= set(part["Vary"].split(", "))


def test_answers_of_the_api_are_not_stored_and_protect_a_browser(client: Client, fill: Callable[..., Any]) -> None:
    fill(documents=1)
    bearer = {"Authorization": f"Bearer {create_key(NewKey('reader'))[1]}"}
    for path in ("/v1/collections", "/v1/collections/nature/documents/whales.md", "/v1/collections/nature/export"):
        headers = client.get(path, headers=bearer).headers
        assert {"Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options"} <= set(headers)
        assert headers["Cache-Control"] == "private, no-store"


def test_the_log_in_page_shows_no_address(client: Client, db: None) -> None:
    page = client.get("/accounts/login/?next=/collections/nature/%3Fview%3Dchange")
    assert attribute(page, "input[name=next]", "value") == "/collections/nature/?view=change"
    assert "view=change" not in " ".join(texts(page, "body")) and "Log in to open the page" in text(page)
