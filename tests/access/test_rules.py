"""Every address has a rule that makes sense, and every rule is of an address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client
from django.urls import URLPattern, get_resolver

from collections_app.access.permissions import GIVEN, Permission, Role
from ragd_site.access.page_rules import TARGETS, find_target
from ragd_site.operations import views
from tests.addresses import URLS, rule_named

# POST of these changes nothing that others see: they compute, download, or are the reader's own
ONLY_READING = {
    "collections:filter-builder", "collections:filter-completions", "collections:folders", "evaluation:impact",
    "evaluation:golden-of-chunk", "evaluation:golden-of-document", "evaluation:document-traces", "evaluation:query-run",
    "evaluation:spans-export", "retrieval:run-log", "retrieval:receipt", "retrieval:chat-export",
}  # fmt: skip


def patterns() -> Iterator[tuple[str, URLPattern]]:
    for namespace in URLS:
        for pattern in get_resolver(URLS[namespace]).url_patterns:
            assert isinstance(pattern, URLPattern) and pattern.name
            yield f"{namespace}:{pattern.name}", pattern


def test_every_page_has_a_rule_and_one_without_is_refused(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {name: rule_named(name) for name, _ in patterns()}
    assert admin_client.get("/").status_code == 200
    monkeypatch.delattr(views.home, "page_rule")
    assert admin_client.get("/").status_code == 403


def test_every_change_needs_more_than_reading() -> None:
    free = {name for name, _ in patterns() if rule_named(name).post in (None, Permission.READ)}
    own_check = {name for name in free if rule_named(name).post is None}
    assert free - own_check == ONLY_READING
    assert own_check == {
        "collections:theme", "collections:help", "collections:help-page",
        "collections:appearance", "collections:connections",
        "collections:list", "collections:switcher",
        "collections:operation", "operations:home", "operations:palette",
        # by the permissions of Django's admin
        "collections:models", "collections:model-add", "collections:model-edit", "collections:model-delete",
        "collections:model-test",
        # without an account, by the limits of the assistant
        "retrieval:public-assistant",
        "retrieval:public-stream",
        # of one's own, by the service
        "collections:list-view",
        "collections:keys", "collections:key-create", "collections:key-rotate", "collections:key-revoke",
    }  # fmt: skip


def test_a_change_never_needs_less_than_reading_does() -> None:
    for name, _ in patterns():
        rule = rule_named(name)
        if rule.get is not None:
            assert rule.post is not None, name
            assert any(rule.get in given and rule.post in given for given in GIVEN.values()), name


def test_what_names_something_of_a_collection_is_looked_up_in_it() -> None:
    starts = {start for start, *_ in TARGETS}
    for name, pattern in patterns():
        route = str(pattern.pattern)
        if "<str:name>" in route and route.startswith("collections/"):
            assert find_target(route, {"name": "nature"}) == (True, "nature"), name
        if route.startswith(("evaluation/", "runs/")) and ("<uuid:" in route or "<int:pk>" in route):
            followed = any(route.startswith(start) for start in starts)
            by_policy = route.startswith(("evaluation/sets/from-run/", "evaluation/sets/of-run/"))
            assert followed or by_policy, name


def test_roles_give_reading_first_and_everything_last() -> None:
    assert all(Permission.READ in GIVEN[role] for role in Role.values)
    assert GIVEN[Role.ADMINISTRATOR] == frozenset(Permission)
