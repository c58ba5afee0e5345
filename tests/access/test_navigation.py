"""The list of places: four of them, each page in one, and nothing offered that the reader may not open.
Every address has a rule that makes sense, and every rule is of an address."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from collections_app.access.context import SYSTEM, Access, current_access, using_access
from collections_app.access.permissions import GIVEN, Permission, Role
from collections_app.http.navigation import HOME, SECTIONS, all_pages, find_section
from collections_app.models import Collection
from ragd_site.access.middleware import TARGETS, find_target
from ragd_site.operations import views
from ragd_site.operations.views import NEW, VERBS
from tests.access.offers import is_refused
from tests.addresses import all_addresses, rule_named

ACCESSES = {
    "nobody": Access(),
    **{role: Access(collections={1: given}) for role, given in GIVEN.items()},
    "writes everywhere": Access(everywhere=GIVEN["curator"]),
    "root": SYSTEM,
}


@pytest.mark.parametrize("name", ACCESSES)
def test_a_page_is_offered_exactly_where_its_rule_lets_in(name: str) -> None:
    reader = User(is_staff=name == "root", is_superuser=name == "root")
    reader.set_password("correct horse battery")
    with using_access(ACCESSES[name]):
        for page in (*all_pages(), *NEW):
            assert page.offer(reader) is not is_refused(ACCESSES[name], page.href, changes=False), page.view


@pytest.mark.parametrize("name", ACCESSES)
def test_what_the_palette_does_with_a_collection_is_what_the_reader_may(name: str, db: None) -> None:
    collection = Collection.objects.create(pk=1, name="nature", embed_model="any", embed_dims=3)
    with using_access(ACCESSES[name]):
        for verb in VERBS:
            path = verb.address_of(collection).partition("?collection")[0]
            assert current_access().may(verb.permission, 1) is not is_refused(ACCESSES[name], path, changes=False), path


def test_every_page_without_arguments_belongs_to_a_section() -> None:
    plain = [each.name for each in all_addresses() if not each.names]
    nowhere = {name for name in plain if find_section(reverse(name.partition("?")[0])) is None}
    assert nowhere == {
        HOME.view, "collections:theme", "collections:switcher", "collections:check",
        "collections:list-view",
        "collections:filter-builder", "collections:filter-completions", "operations:palette",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "section", "view"),
    [
        ("/chat/", "Chat", "retrieval:chat"),
        ("/collections/nature/uploads/", "Library", "collections:list"),
        ("/evaluation/", "Evaluate", "evaluation:index"),
        ("/evaluation/sets/3/?view=versions", "Evaluate", "evaluation:golden-sets"),
        ("/traces/", "Admin", "evaluation:traces"),
        ("/traces/0af7/?view=span&span_id=b7ad", "Evaluate", "evaluation:activity"),
        ("/activity/spans/", "Evaluate", "evaluation:activity"),
        ("/operations/?view=field-coverage", "Admin", "operations:operations?view=field-coverage"),
        ("/operations/", "Admin", "operations:operations"),
        ("/accounts/2fa/webauthn/", "Account", "mfa_index"),
    ],
)
def test_an_address_belongs_to_the_page_with_its_longest_beginning(path: str, section: str, view: str) -> None:
    found = find_section(path)
    assert found is not None
    assert (found[0].label, found[1].view) == (section, view)


def test_keys_are_one_of_each_and_menus_have_headings() -> None:
    assert len({section.key for section in SECTIONS}) == len(SECTIONS) == 4
    assert all(page.group for page in SECTIONS[-1].pages)


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
