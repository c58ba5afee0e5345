"""The list of places: five of them, each page in one, and nothing offered that the reader may not open."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.urls import NoReverseMatch, get_resolver, reverse

from collections_app.access_context import SYSTEM, Access, current_access, using_access
from collections_app.domain.permissions import GIVEN
from collections_app.http.places import HOME, PLACES, SETTINGS, all_pages, find_place
from collections_app.models import Collection
from evaluation_app.pages.overview.palette import NEW, VERBS
from tests.access.house import PEOPLE, House, build_house
from tests.access.offers import is_refused
from tests.web.pages import texts

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
            path = verb.address_of(collection).partition("?")[0]
            assert current_access().may(verb.permission, 1) is not is_refused(ACCESSES[name], path, changes=False), path


def test_every_page_without_arguments_belongs_to_a_place() -> None:
    names = [
        f"{namespace}:{pattern.name}"
        for namespace in ("collections", "retrieval", "evaluation")
        for pattern in get_resolver(f"{namespace}_app.urls").url_patterns
    ]
    nowhere = set()
    for name in names:
        try:
            path = reverse(name)
        except NoReverseMatch:
            continue
        if find_place(path) is None:
            nowhere.add(name)
    assert nowhere == {
        HOME.view, "collections:theme", "collections:switcher", "collections:check",
        "collections:list-view",
        "collections:filter-builder", "collections:filter-completions", "evaluation:palette",
        None,
    } - {None}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "place", "view"),
    [
        ("/chat/", "Chat", "retrieval:chat"),
        ("/collections/nature/jobs/", "Knowledge", "collections:list"),
        ("/evaluation/", "Quality", "evaluation:index"),
        ("/evaluation/sets/3/versions/", "Quality", "evaluation:golden-sets"),
        ("/traces/", "Monitor", "evaluation:traces"),
        ("/traces/0af7/spans/b7ad/", "Monitor", "evaluation:trace-list"),
        ("/traces/spans/", "Monitor", "evaluation:spans"),
        ("/traces/evidence/", "Settings", "evaluation:evidence"),
        ("/operations/", "Monitor", "evaluation:operations"),
        ("/operations/prices/", "Settings", "evaluation:prices"),
        ("/accounts/2fa/webauthn/", "Settings", "mfa_index"),
    ],
)
def test_an_address_belongs_to_the_page_with_its_longest_beginning(path: str, place: str, view: str) -> None:
    found = find_place(path)
    assert found is not None
    assert (found[0].label, found[1].view) == (place, view)


def test_keys_and_headings_are_complete() -> None:
    assert len({place.key for place in PLACES}) == len(PLACES) == 5
    assert all(page.group and page.about for page in SETTINGS.pages[1:])


@pytest.mark.django_db
def test_navigation_tabs_and_settings_are_those_of_the_reader() -> None:
    house: House = build_house()
    rails: dict[str, list[str]] = {}
    for name in (*PEOPLE, "root"):
        settings = house.client(name).get("/settings/")
        rails[name] = texts(settings, ".rail li a .label")
        assert texts(settings, ".rail [aria-current]") == ["Settings"]
    assert rails["nobody"] == ["Knowledge", "Settings"]
    assert rails["viewer"] == ["Knowledge", "Quality", "Monitor", "Settings"]
    assert rails["asker"] == rails["root"] == ["Chat", "Knowledge", "Quality", "Monitor", "Settings"]
    tabs = {name: texts(house.client(name).get("/runs/"), ".tabs a") for name in ("viewer", "root")}
    assert tabs["root"] == [*tabs["viewer"], "Alerts", "Operations"]
    assert texts(house.client("viewer").get("/traces/spans/"), ".tabs [aria-current]") == ["Spans"]
    assert texts(house.client("viewer").get("/settings/"), ".setting-cards strong")[0] == "Models"
