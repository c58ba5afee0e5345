"""Error pages stand in the same design, also when there is no request, no database and no log-in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.template.loader import render_to_string
from django.test import Client

from collections_app.models import RoleGrant
from ragd_site.access.middleware import page_refused
from retrieval_app.models import QueryRun
from tests.web.pages import client_of, has, texts

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
