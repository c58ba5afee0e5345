"""Saved views of lists, which each person keeps for themselves; counts beside the filters of runs."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from collections_app.access.context import using_access
from collections_app.access.services import access_of_user
from collections_app.http.lists import VIEWS_MAX, clean_query, save_view
from collections_app.models import PersonalSetting
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput
from retrieval_app.models import QueryRun
from tests.web.pages import attribute, client_of, has, texts, tones, tree

pytestmark = pytest.mark.django_db
CHANGE = "/list-view/"


def make_run(**values: Any) -> QueryRun:
    given = {"kind": "ask", "collection_name": "nature", "query": "Why?", "channel": "page", "status": "ok"} | values
    return QueryRun.objects.create(**given)


def test_a_view_keeps_a_filter_and_is_deleted(visitor: Client) -> None:
    make_run(status="error", error="broken")
    here = "/activity/?status=error&page=2&kind="
    assert attribute(visitor.get(here), 'input[name="query"]', "value") == "status=error"
    view = {"do": "save", "list": "runs", "name": " Broken ", "query": "status=error", "next": here}
    saved = visitor.post(CHANGE, view)
    assert (saved.status_code, saved["Location"]) == (302, here)
    page = visitor.get("/activity/?status=error")
    assert texts(page, ".view-list a") == ["Broken"] and attribute(page, ".view-list a", "href") == "?status=error"
    assert has(page, '.view-list a[aria-current="true"]')
    assert not has(visitor.get("/activity/"), '.view-list a[aria-current="true"]')
    assert not has(visitor.get("/activity/spans/"), ".view-list")
    visitor.post(CHANGE, {"do": "save", "list": "runs", "name": "Broken", "query": "kind=ask"})
    assert [each["query"] for each in PersonalSetting.objects.get(key="views:runs").value] == ["kind=ask"], "replaced"
    visitor.post(CHANGE, {"do": "delete", "list": "runs", "name": "Broken"})
    assert not PersonalSetting.objects.exists()


def test_a_wrong_view_is_refused(visitor: Client) -> None:
    long = {"name": "a", "query": "q=1&" * 501}
    for wrong in ({"name": " "}, {"name": "x" * 61}, {"name": "a", "list": "others"}, long):
        visitor.post(CHANGE, {"do": "save", "list": "runs", "query": "kind=ask"} | wrong)
        assert tones(visitor.get("/activity/")) == ["bad"], wrong
    assert not PersonalSetting.objects.exists()
    ada = User.objects.get(username="ada")
    for number in range(VIEWS_MAX):
        save_view(ada, "runs", f"view {number}", "kind=ask")
    with pytest.raises(InvalidInput, match="at most"):
        save_view(ada, "runs", "one more", "kind=ask")
    assert visitor.get(CHANGE).status_code == 405
    assert clean_query("b=2&page=4&a=&cursor=x&b=1&a=0") == "a=0&b=2&b=1"


def test_what_a_person_keeps_is_theirs_alone(django_user_model: Any, visitor: Client) -> None:
    ada = django_user_model.objects.get(username="ada")
    bob = django_user_model.objects.create_user("bob")
    for person in (ada, bob):
        save_view(person, "runs", f"of {person.username}", "kind=ask")
    with using_access(access_of_user(bob)):
        assert [each.value[0]["name"] for each in PersonalSetting.objects.all()] == ["of bob"]
    assert texts(visitor.get("/activity/"), ".view-list a") == ["of ada"]
    client = client_of(bob)
    client.post(CHANGE, {"do": "delete", "list": "runs", "name": "of ada"})
    assert texts(visitor.get("/activity/"), ".view-list a") == ["of ada"]


def test_a_chip_sets_and_removes_a_filter_and_what_makes_no_sense_is_told(visitor: Client) -> None:
    golden = GoldenSet.objects.create(name="basics", collection_name="nature")
    for number, category in enumerate(("sea", "land")):
        GoldenQuestion.objects.create(golden_set=golden, question=f"Q{number}?", category=category, position=number)
    page, wrong = (visitor.get(f"/evaluation/sets/{golden.pk}/?q=q&category={name}") for name in ("sea", "air"))
    assert attribute(page, "#filter-category > a", "href") == "?q=q" and len(tree(page).css("tbody tr")) == 1
    assert has(wrong, "[role=alert]") and len(tree(wrong).css("tbody tr")) == 2


def test_filters_say_how_many_runs_they_leave(visitor: Client) -> None:
    for values in ({}, {"status": "error"}, {"kind": "search"}, {"environment": "evaluation"}):
        make_run(**values)
    page = visitor.get("/activity/?kind=ask")
    counts = {name: texts(page, f"#filter-{name} .tally") for name in ("status", "kind")}
    assert counts == {"status": ["1", "1"], "kind": ["1", "2"]}, "whatever kind is chosen; none of none"
    assert "environment=evaluation" in page.content.decode(), "among the filters behind the button"
