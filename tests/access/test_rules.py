"""Every address has a rule that makes sense, and every rule is of an address."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import URLPattern, get_resolver

from collections_app.domain.permissions import GIVEN, Permission, Role
from ragd_site.access.page_rules import RULES, TARGETS, find_target, rule_of

NAMESPACES = ("collections", "retrieval", "evaluation")
# POST of these changes nothing that others see: they compute, download, or are the reader's own
ONLY_READING = {
    "collections:filter-builder",
    "collections:filter-completions",
    "collections:folders",
    "evaluation:impact",
    "evaluation:golden-of-chunk",
    "evaluation:golden-of-document",
    "evaluation:document-traces",
    "retrieval:pin-run",
    "evaluation:spans-export",
    "retrieval:run-log",
    "retrieval:receipt",
    "retrieval:chat-markdown",
    "retrieval:chat-json",
}


def patterns() -> Iterator[tuple[str, URLPattern]]:
    for namespace in NAMESPACES:
        for pattern in get_resolver(f"{namespace}_app.urls").url_patterns:
            assert isinstance(pattern, URLPattern)
            if pattern.name:
                yield f"{namespace}:{pattern.name}", pattern


def test_every_rule_is_of_an_address() -> None:
    assert set(RULES) <= {name for name, _ in patterns()}


def test_every_change_needs_more_than_reading() -> None:
    free = {name for name, _ in patterns() if rule_of(name).post in (None, Permission.READ)}
    own_check = {name for name in free if rule_of(name).post is None}
    assert free - own_check == ONLY_READING
    assert own_check == {
        "collections:theme", "collections:server-settings", "collections:help", "collections:help-page",
        "collections:appearance", "collections:connections",
        "collections:list", "collections:switcher",
        "collections:operation", "evaluation:home", "evaluation:palette", "evaluation:status",
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
        rule = rule_of(name)
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
