"""Saved views of lists, which each person keeps for themselves; counts beside the filters of runs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from collections_app.access_context import using_access
from collections_app.http.list_views import VIEWS_MAX, clean_query, save_view
from collections_app.models import PersonalSetting
from collections_app.services.governance.access import access_of_user
from ragd.errors import InvalidInput
from retrieval_app.models import QueryRun
from tests.web.pages import attribute, has, texts, tones, tree

pytestmark = pytest.mark.django_db
CHANGE = "/list-view/"


def make_run(**values: Any) -> QueryRun:
    given = {"kind": "ask", "collection_name": "nature", "query": "Why?", "channel": "page", "status": "ok"} | values
    return QueryRun.objects.create(**given)


def test_a_view_keeps_a_filter_and_is_deleted(visitor: Client) -> None:
    make_run(status="error", error="broken")
    here = "/runs/?status=error&page=2&kind="
    assert attribute(visitor.get(here), 'input[name="query"]', "value") == "status=error"
    saved = visitor.post(
        CHANGE, {"do": "save", "list": "runs", "name": " Broken ", "query": "status=error", "next": here}
    )
    assert (saved.status_code, saved["Location"]) == (302, here)
    page = visitor.get("/runs/?status=error")
    assert [(node.text(), node.attributes["href"]) for node in tree(page).css(".view-list a")] == [
        ("Broken", "?status=error")
    ]
    assert has(page, '.view-list a[aria-current="true"]')
    assert not has(visitor.get("/runs/"), '.view-list a[aria-current="true"]')
    assert not has(visitor.get("/traces/spans/"), ".view-list")
    visitor.post(CHANGE, {"do": "save", "list": "runs", "name": "Broken", "query": "kind=ask"})
    assert [each["query"] for each in PersonalSetting.objects.get(key="views:runs").value] == ["kind=ask"], "replaced"
    visitor.post(CHANGE, {"do": "delete", "list": "runs", "name": "Broken"})
    assert not PersonalSetting.objects.exists()


def test_a_wrong_view_is_refused(visitor: Client) -> None:
    for wrong in (
        {"name": " "},
        {"name": "x" * 61},
        {"name": "a", "list": "others"},
        {"name": "a", "query": "q=" + "x" * 2001},
    ):
        visitor.post(CHANGE, {"do": "save", "list": "runs", "query": "kind=ask"} | wrong)
        assert tones(visitor.get("/runs/")) == ["bad"], wrong
    assert not PersonalSetting.objects.exists()
    assert visitor.get(CHANGE).status_code == 405
    assert clean_query("b=2&page=4&a=&cursor=x&b=1&a=0") == "a=0&b=2&b=1"


def test_a_list_has_so_many_views(django_user_model: Any) -> None:
    ada = django_user_model.objects.create_user("ada")
    for number in range(VIEWS_MAX):
        save_view(ada, "runs", f"view {number}", "kind=ask")
    with pytest.raises(InvalidInput) as refused:
        save_view(ada, "runs", "one more", "kind=ask")
    assert refused.value.field == "name"


def test_what_a_person_keeps_is_theirs_alone(django_user_model: Any, visitor: Client) -> None:
    ada = django_user_model.objects.get(username="ada")
    bob = django_user_model.objects.create_user("bob")
    for person in (ada, bob):
        save_view(person, "runs", f"of {person.username}", "kind=ask")
    with using_access(access_of_user(bob)):
        assert [each.value[0]["name"] for each in PersonalSetting.objects.all()] == ["of bob"]
    assert texts(visitor.get("/runs/"), ".view-list a") == ["of ada"]
    client = Client()
    client.force_login(bob)
    client.post(CHANGE, {"do": "delete", "list": "runs", "name": "of ada"})
    assert texts(visitor.get("/runs/"), ".view-list a") == ["of ada"]


def test_filters_say_how_many_runs_they_leave(visitor: Client) -> None:
    for values in ({}, {"status": "error"}, {"kind": "search"}, {"environment": "evaluation"}):
        make_run(**values)
    choices = {
        name: [node.text() for node in tree(visitor.get("/runs/?kind=ask")).css(f'select[name="{name}"] option')]
        for name in ("status", "kind", "environment")
    }
    assert [text.rpartition("(")[2] for text in choices["status"][1:]] == ["1)", "0)", "1)", "0)"]
    assert [text.rpartition("(")[2] for text in choices["kind"][1:]] == ["1)", "2)"], "whatever kind is chosen"
    assert [text.rpartition("(")[2] for text in choices["environment"][:3]] == ["2)", "1)", "0)"]
