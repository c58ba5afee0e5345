"""Every address has a rule that makes sense, and every rule is of an address."""

from __future__ import annotations

import pytest
from django.test import Client

from collections_app.access.permissions import GIVEN, Permission, Role
from ragd_site.access.middleware import TARGETS, find_target
from ragd_site.operations import views
from tests.addresses import all_addresses, rule_named

# POST of these changes nothing that others see: they compute, download, or are the reader's own
ONLY_READING = {
    "collections:filter-builder", "collections:filter-completions", "collections:folders", "evaluation:impact",
    "evaluation:golden-of-chunk", "evaluation:golden-of-document", "evaluation:document-traces", "evaluation:query-run",
    "evaluation:spans-export", "retrieval:run-log", "retrieval:receipt", "retrieval:chat-export",
}  # fmt: skip


def test_every_page_has_a_rule_and_one_without_is_refused(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(rule_named(each.name) for each in all_addresses())
    assert admin_client.get("/").status_code == 200
    monkeypatch.delattr(views.home, "page_rule")
    assert admin_client.get("/").status_code == 403


def test_every_change_needs_more_than_reading() -> None:
    free = {each.name for each in all_addresses() if rule_named(each.name).post in (None, Permission.READ)}
    own_check = {name for name in free if rule_named(name).post is None}
    assert free - own_check == ONLY_READING
    assert own_check == {
        "collections:theme", "collections:help", "collections:help-page",
        "collections:appearance", "collections:appearance?view=connections",
        "collections:list", "collections:list?view=trash", "collections:switcher",
        "collections:operation", "operations:home", "operations:palette",
        # by the permissions of Django's admin
        "collections:models", "collections:models?view=new", "collections:models?view=edit",
        "collections:models?view=delete", "collections:models?view=test",
        # without an account, by the limits of the assistant
        "retrieval:public-assistant",
        "retrieval:public-stream",
        # of one's own, by the service
        "collections:list-view",
        "collections:keys", "collections:keys?view=new", "collections:keys?view=rotate", "collections:keys?view=revoke",
    }  # fmt: skip


def test_a_change_never_needs_less_than_reading_does() -> None:
    for each in all_addresses():
        rule = rule_named(each.name)
        if rule.get is not None:
            assert rule.post is not None, each
            assert any(rule.get in given and rule.post in given for given in GIVEN.values()), each


def test_what_names_something_of_a_collection_is_looked_up_in_it() -> None:
    starts = {start for start, *_ in TARGETS}
    for each in all_addresses():
        name, route = each.name, each.route
        if "<str:name>" in route and route.startswith("collections/"):
            assert find_target(route, {"name": "nature"}) == (True, "nature"), name
        if route.startswith(("evaluation/", "runs/")) and ("<uuid:" in route or "<int:pk>" in route):
            followed = any(route.startswith(start) for start in starts)
            by_policy = route.startswith(("evaluation/sets/from-run/", "evaluation/sets/of-run/"))
            assert followed or by_policy, name


def test_roles_give_reading_first_and_everything_last() -> None:
    assert all(Permission.READ in GIVEN[role] for role in Role.values)
    assert GIVEN[Role.ADMINISTRATOR] == frozenset(Permission)
