"""Every page as every person: what they may not see is not there, what they may not do is refused, nothing breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLPattern, get_resolver, reverse

from collections_app.domain.permissions import GIVEN, Permission
from collections_app.services.governance.access import access_of_user
from ragd_site.access.page_rules import rule_of
from tests.access.house import PEOPLE, House, Place, build_house
from tests.access.offers import is_refused, offers

pytestmark = pytest.mark.django_db

NAMESPACES = ("collections", "retrieval", "evaluation")
# of the server: their argument names nothing of a collection
OF_SERVER = {
    "collections:model-edit", "collections:model-delete", "collections:model-test", "collections:audit-event",
    "collections:key-rotate", "collections:key-revoke", "collections:help-page", "evaluation:new-alert-rule",
    "evaluation:alert-rule", "evaluation:delete-alert-rule", "evaluation:webhook", "evaluation:test-webhook",
    "evaluation:delete-webhook", "evaluation:deliver-again", "evaluation:retention-period",
}  # fmt: skip
# what they show was not made, or cannot be made without more than a database
NOTHING_TO_SHOW = {
    "collections:original",
    "collections:page-image",
    "collections:rollback",
    "evaluation:measured",
    "evaluation:run-without",
    "retrieval:public-assistant",  # switched off
}
# GET reads a row that only those see who see everybody's query runs
OF_A_THREAD = "chat/<"  # which its owner, root, shares with nobody
OF_A_RUN = ("runs/", "traces/<", "evaluation/sets/from-run/", "evaluation/sets/of-run/")


@pytest.fixture
def house() -> House:
    return build_house()


def every_page() -> Iterator[tuple[str, str, set[str]]]:
    """(view name, route, names of its arguments)"""
    for namespace in NAMESPACES:
        for pattern in get_resolver(f"{namespace}_app.urls").url_patterns:
            assert isinstance(pattern, URLPattern)
            if pattern.name:
                yield f"{namespace}:{pattern.name}", str(pattern.pattern), set(pattern.pattern.converters)


def addresses_of(place: Place) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """(view name, route, arguments, address) of each page that has an argument of the place, or none."""
    for view_name, route, names in every_page():
        if view_name in OF_SERVER:
            continue
        known = place.arguments(view_name, route)
        arguments = {name: known[name] for name in names}
        yield view_name, route, arguments, reverse(view_name, kwargs=arguments)


def body_of(response: Any) -> str:
    if response.streaming:
        return b"".join(response.streaming_content).decode(errors="replace")
    return response.content.decode(errors="replace")


def may(name: str, permission: Permission | None, everywhere: bool) -> bool:
    if permission is None or name == "root":
        return True
    return not everywhere and permission in GIVEN.get(name, ())


def allowed_statuses(name: str, view_name: str, route: str) -> set[int]:
    """What a GET of a page of the own collection, or of none, may answer."""
    rule = rule_of(view_name)
    if view_name == "collections:model-add":  # by the permissions of Django's admin
        return {200} if name == "root" else {403}
    if view_name == "collections:operation" and name not in ("administrator", "root"):  # somebody else's
        return {404}
    sees = name == "root" or Permission.READ in GIVEN.get(name, ())
    if "<" in route and not sees and not rule.everywhere:
        return {405} if view_name == "retrieval:public-stream" else {403, 404}
    if route.startswith(OF_A_THREAD) and name != "root":
        return {403, 404} if not may(name, rule.get, rule.everywhere) else {404, 405}
    if "<" in route and route.startswith(OF_A_RUN) and not may(name, Permission.EVALUATE, False):
        return {403, 404}
    if not may(name, rule.get, rule.everywhere):
        return {403}
    return {404} if view_name in NOTHING_TO_SHOW else {200, 302, 405}


def query_of(view_name: str, place: Place) -> str:
    """What an address needs beside its arguments."""
    run, other = (each.pk for each in place.runs)
    return {
        "evaluation:compare-question": f"?base={run}&other={other}",
        "evaluation:compare": f"?base={run}&other={other}",
        "evaluation:impact": f"?impact=delete&doc_id={place.word}.md",
        "collections:change": f"?doc_id={place.word}.md",
    }.get(view_name, "")


def forbidden_words(house: House, name: str) -> list[str]:
    words = [house.foreign.word, house.foreign.name]
    if name != "administrator":
        words.append(house.hidden)
    return [*words, house.own.word] if name == "nobody" else words


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*PEOPLE, "root"])
def test_every_page_of_the_own_collection(house: House, name: str) -> None:
    client, wrong, access = house.client(name), [], access_of_user(house.people[name])
    client.raise_request_exception = False
    for view_name, route, _arguments, address in addresses_of(house.own):
        response = client.get(address + query_of(view_name, house.own))
        allowed = allowed_statuses(name, view_name, route)
        if response.status_code not in allowed:
            wrong.append(f"{name} {view_name} {address}: {response.status_code}, not of {allowed}")
        if response.status_code < 500 and name != "root":
            body = body_of(response).replace(address, "").replace(query_of(view_name, house.own)[-8:] or "\0", "")
            told = [word for word in forbidden_words(house, name) if re.search(rf"\b{word}", body)]
            wrong += [f"{name} {view_name} {address}: tells {word}" for word in told]
        if response.status_code == 200 and response["Content-Type"].startswith("text/html"):
            wrong += [
                f"{name} {view_name} {address}: offers {'POST' if changes else 'GET'} {target}"
                for changes, target in sorted(set(offers(body_of(response), address)))
                if is_refused(access, target, changes=changes)
            ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["viewer", "administrator", "nobody"])
def test_every_page_of_the_foreign_collection_is_not_there(house: House, name: str) -> None:
    wrong = []
    client = house.client(name)
    client.raise_request_exception = False
    for view_name, _route, arguments, address in addresses_of(house.foreign):
        if not arguments:
            continue
        for response in (client.get(address), client.post(address)):
            if response.status_code not in (403, 404, 405):
                wrong.append(f"{name} {view_name} {address}: {response.status_code}")
            if response.status_code < 500 and house.foreign.word in body_of(response).replace(address, ""):
                wrong.append(f"{name} {view_name} {address}: tells of it")
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PEOPLE)
def test_changes_that_a_role_does_not_give_are_refused(house: House, name: str) -> None:
    """By the page, before its view runs."""
    client, wrong, tried = house.client(name), [], 0
    for view_name, route, _arguments, address in addresses_of(house.own):
        rule = rule_of(view_name)
        if may(name, rule.post, rule.everywhere):
            continue
        hidden = "<" in route and (route.startswith("runs/") or name == "nobody")
        response, tried = client.post(address), tried + 1
        if response.status_code != 403 and not (hidden and response.status_code == 404):
            wrong.append(f"{view_name} {address}: {response.status_code}")
    assert tried > 10
    assert not wrong, "\n".join(wrong)
