"""Every page as every person: what they may not see is not there, what they may not do is refused, nothing breaks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape
from selectolax.lexbor import LexborHTMLParser

from collections_app.access.permissions import GIVEN, Permission
from collections_app.access.services import access_of_user
from tests.access.house import PEOPLE, House, Place
from tests.access.offers import is_refused, offers
from tests.addresses import all_addresses, rule_named
from tests.web.pages import texts
from tests.web.test_every_page import FRAGMENTS, check_page

pytestmark = pytest.mark.django_db

# of the server: their argument names nothing of a collection
OF_SERVER = {
    "collections:models?view=edit", "collections:models?view=delete", "collections:models?view=test",
    "collections:audit?view=event",
    "collections:keys?view=rotate", "collections:keys?view=revoke", "collections:help-page",
    "evaluation:alerts?view=new", "evaluation:alerts?view=rule", "evaluation:alerts?view=webhook",
    "operations:server-settings?view=period",
}  # fmt: skip
# what they show was not made, or cannot be made without more than a database
NOTHING_TO_SHOW = {
    "collections:original", "collections:page-image", "collections:document?view=rollback", "evaluation:measured",
    "retrieval:public-assistant",  # switched off
}  # fmt: skip
# included in pages
PARTS = FRAGMENTS | {
    "collections:folders", "collections:jobs-lines", "collections:jobs-strip", "collections:transfers",
    "evaluation:anchored-comparison", "evaluation:anchored-scores", "evaluation:feedback",
}  # fmt: skip
# GET reads a row that only those see who see everybody's query runs
OF_A_THREAD = "chat/<"  # which its owner, root, shares with nobody
OF_A_RUN = ("runs/", "traces/<", "evaluation/review/<", "evaluation/sets/from-run/", "evaluation/sets/of-run/")
RUNS_AND_TRACES = ("/runs/", "/traces/")


def addresses_of(place: Place) -> Iterator[tuple[str, str, frozenset[str], str]]:
    """(view name, route, names of its arguments, address) of each page that has an argument of the place, or none."""
    for each in all_addresses():
        if each.name not in OF_SERVER:
            known = place.arguments(each.name, each.route)
            yield each.name, each.route, each.names.union(each.asked), each.of(known, query_of(each.name, place))


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
    rule = rule_named(view_name)
    if view_name == "collections:models?view=new":  # by the permissions of Django's admin
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
        "evaluation:compare?view=question": f"&base={run}&other={other}",
        "evaluation:compare": f"&base={run}&other={other}",
        "evaluation:impact": f"&impact=delete&doc_id={place.word}.md",
        "collections:detail?view=change": f"&doc_id={place.word}.md",
    }.get(view_name, "")


def forbidden_words(house: House, name: str) -> list[str]:
    words = [house.foreign.word, house.foreign.name]
    if name != "administrator":
        words.append(house.hidden)
    return [*words, house.own.word] if name == "nobody" else words


def is_page(response: Any) -> bool:
    return bool(response.status_code == 200 and response["Content-Type"].startswith("text/html"))


def list_hollow(body: str) -> list[str]:
    """What opens to nothing, and sections of a heading alone."""
    page = LexborHTMLParser(body)
    hollow = [node for node in page.css("main details") if node.css_first("summary + *") is None]
    for node in page.css("main section:not(:has([hx-get], svg, img))"):
        heads = "".join(head.text() for head in node.css(":is(h2, h3):not(section section *)"))
        if "".join(node.text().split()) == "".join(heads.split()):
            hollow.append(node)
    return [node.html or "" for node in hollow]


def list_strays(body: str, address: str) -> list[str]:
    """What a page at a view of its address leads to without that view: relative links, and forms that GET."""
    path = address.partition("?")[0]
    return [
        node.html or ""
        for node in LexborHTMLParser(body).css("main a[href^='?'], main form:not([method=post])")
        if (node.attributes.get("action") or path).partition("#")[0] == path
        and "view=" not in (node.attributes.get("href") or "") and node.css_first("input[name=view]") is None
    ]  # fmt: skip


VIEWS_OF_A_PAGE = (
    "/settings/server/?view=retention&count=on",
    "/collections/nature/?state=archived&tag=whale",
    "/collections/nature/sources/?view=new&kind=website",
    "/collections/nature/documents/whale.md/?view=formatted",
    "/collections/nature/documents/whale.md/?flagged=1",
    "/collections/nature/playground/?q=whale&ab=on&b-mode=vector",
    "/collections/nature/playground/0/whale.md/?q=whale",
    "/collections/nature/playground/answer/?q=whale",
)


@pytest.mark.timeout(300)
def test_every_page_is_whole_where_an_unknown_part_of_it_is_asked_for(house: House) -> None:
    client, wrong, parts = house.client("root"), [], set()
    pages = [
        (view_name, allowed_statuses("root", view_name, route), address)
        for view_name, route, _, address in addresses_of(house.own)
    ]
    for view_name, allowed, address in [*pages, *(("", {200}, address) for address in VIEWS_OF_A_PAGE)]:
        response = client.get(address, headers={"HX-Request": "true", "HX-Target": "x"})
        if response.status_code not in allowed:
            wrong.append(f"{view_name} {address}: {response.status_code}, not of {allowed}")
        if is_page(response) and "<html" in body_of(response):
            check_page(body_of(response))
            strays = list_strays(body_of(response), address) if "?view=" in view_name else []
            wrong += [f"{address} leads away: {each[:200]}" for each in strays]
        elif is_page(response):
            parts.add(view_name)
    assert not wrong, "\n".join(wrong)
    assert parts <= PARTS, sorted(parts - PARTS)


def test_without_logging_in_every_page_leads_there(house: House) -> None:
    client = Client()
    open_ones = {
        view_name
        for view_name, _, _, address in addresses_of(house.own)
        for response in (client.get(address), client.post(address))
        if not response.headers.get("Location", "").startswith("/accounts/login/?next=")
    }
    # by the limits of the assistant, and the reader's own cookie
    assert open_ones == {"retrieval:public-assistant", "retrieval:public-stream", "collections:theme"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PEOPLE)
def test_every_page_of_the_own_collection(house: House, name: str) -> None:
    client, wrong, access = house.client(name), [], access_of_user(house.people[name])
    is_missing = cache(lambda target: client.get(target).status_code == 404)
    refused = cache(lambda target, changes: is_refused(access, target, changes=changes))  # most stand on every page
    client.raise_request_exception = False
    for view_name, route, _arguments, address in addresses_of(house.own):
        response = client.get(address)
        allowed = allowed_statuses(name, view_name, route)
        if response.status_code not in allowed:
            wrong.append(f"{name} {view_name} {address}: {response.status_code}, not of {allowed}")
        if response.status_code < 500:
            body = body_of(response)
            others = body.replace(escape(address), "").replace(query_of(view_name, house.own)[-8:] or "\0", "")
            told = [word for word in forbidden_words(house, name) if re.search(rf"\b{word}", others)]
            wrong += [f"{name} {view_name} {address}: tells {word}" for word in told]
        if is_page(response):
            if view_name not in PARTS:
                check_page(body)
            wrong += [
                f"{name} {view_name} {address}: offers {'POST' if changes else 'GET'} {target}"
                for changes, target in sorted(set(offers(body, address)))
                if refused(target, changes)
                or (not changes and target.startswith(RUNS_AND_TRACES) and "?" not in target and is_missing(target))
            ]
            wrong += [f"{name} {view_name} {address}: nothing in {node[:200]}" for node in list_hollow(body)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(300)
def test_every_page_of_the_foreign_collection_is_not_there(house: House) -> None:
    wrong = []
    client = house.client("administrator")
    client.raise_request_exception = False
    for view_name, _route, names, address in addresses_of(house.foreign):
        if not names - {"level"}:
            continue
        for response in (client.get(address), client.post(address)):
            if response.status_code not in (403, 404, 405):
                wrong.append(f"{view_name} {address}: {response.status_code}")
            if response.status_code < 500 and house.foreign.word in body_of(response).replace(escape(address), ""):
                wrong.append(f"{view_name} {address}: tells of it")
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(300)
def test_changes_that_a_role_does_not_give_are_refused(house: House) -> None:
    """By the page, before its view runs. Each page refuses one of those who may not, in turn."""
    clients, wrong, tried = {name: house.client(name) for name in PEOPLE}, [], Counter[str]()
    for view_name, route, _arguments, address in addresses_of(house.own):
        rule = rule_named(view_name)
        refused = [name for name in PEOPLE if not may(name, rule.post, rule.everywhere)]
        if not refused:
            continue
        name = min(refused, key=lambda each: tried[each])
        tried[name] += 1
        hidden = "<" in route and (route.startswith(("runs/", "evaluation/review/<")) or name == "nobody")
        response = clients[name].post(address)
        if response.status_code != 403 and not (hidden and response.status_code == 404):
            wrong.append(f"{name} {view_name} {address}: {response.status_code}")
    assert min(tried[name] for name in PEOPLE) > 10
    assert not wrong, "\n".join(wrong)


def test_rail_menus_and_tabs_are_those_of_the_reader(house: House) -> None:
    rails, menus, tabs = {}, {}, {}
    for name in (*PEOPLE, "root"):
        account = house.client(name).get("/settings/appearance/")
        rails[name] = texts(account, ".rail li a .label")
        assert texts(account, ".rail [aria-current], .side [aria-current]") == ["Appearance"]
        menus[name] = texts(house.client(name).get("/models/"), ".side a")
        tabs[name] = texts(house.client(name).get("/collections/nature/"), ".tabs a")
    assert rails["nobody"] == rails["viewer"] == ["Library"]
    assert rails["asker"] == ["Chat", "Library"]
    assert rails["curator"] == rails["evaluator"] == ["Chat", "Library", "Evaluate"]
    assert rails["root"] == ["Chat", "Library", "Evaluate", "Admin"]
    assert set(menus["root"]) - set(menus["viewer"]) >= {"Alerts", "Operations", "Audit log", "Leak probe"}
    assert "Content health" in tabs["curator"] and "Content health" not in tabs["asker"]
    assert texts(house.client("viewer").get("/activity/spans/"), ".segments [aria-current]") == ["Spans"]
