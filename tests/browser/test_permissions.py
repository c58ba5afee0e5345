"""Sharing, and what a person is shown who may ask or may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.web.pages import client_of

if TYPE_CHECKING:
    from collections_app.models import Collection


def become(visit: Visit, name: str) -> None:
    """Go on as somebody else."""
    from django.contrib.auth.models import User

    client = client_of(User.objects.get(username=name))
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": client.cookies[settings.SESSION_COOKIE_NAME].value}
    visit.page.context.add_cookies([cookie | {"url": visit.base}])


@pytest.mark.fault("UX-F8")
def test_who_is_shared_a_collection_may_ask_and_who_may_not_is_told(visit: Visit, nature: Collection) -> None:
    from django.contrib.auth.models import User

    from collections_app.access import people
    from collections_app.collections.services import create_collection

    create_collection(name="birds")
    vera, keeper = User.objects.create_user("vera"), User.objects.create_user("keeper")
    people.grant(keeper, "administrator", nature)
    page = visit.go("/collections/nature/settings/?view=sharing")
    page.get_by_label("Person or group").fill("vera")
    expect(page.get_by_label("Role").locator("option:checked")).to_have_text("Can ask")
    page.get_by_role("button", name="Share", exact=True).click()
    expect(page.get_by_role("row", name="vera")).to_contain_text("Can ask")
    page.go_back()
    expect(page.get_by_label("Person or group")).to_be_visible()
    visit.go("/collections/birds/settings/?view=sharing")
    page.get_by_label("Person or group").fill("vera")
    page.get_by_label("Role").select_option(label="Can view")
    page.get_by_role("button", name="Share", exact=True).click()
    expect(page.get_by_role("row", name="vera")).to_contain_text("Can view")

    become(visit, "vera")
    visit.go("/collections/birds/")
    expect(page.get_by_role("link", name="Ask", exact=True)).to_have_count(0)
    expect(page.locator("[data-cannot-ask]")).to_contain_text("ada")
    expect(page.locator("[data-cannot-ask]")).not_to_contain_text("keeper")  # of another collection
    visit.go("/collections/nature/")
    expect(page.locator("[data-cannot-ask]")).to_have_count(0)
    page.get_by_role("link", name="Ask", exact=True).click()
    page.get_by_title("Collections to ask").click()
    expect(page.locator("#composer [name=collection]")).to_have_count(1)
    expect(page.locator("#composer [data-cannot-ask]")).to_contain_text("birds")
    page.get_by_label("Question").fill("Which tree is the tallest?")
    page.get_by_label("Question").press("Enter")
    expect(page.locator(".answer")).to_contain_text("redwood")
    expect(page.get_by_role("button", name="Correct", exact=True)).to_be_visible()  # it comes later than the answer

    people.replace_role(vera, "viewer", nature)
    visit.go("/collections/nature/")
    expect(page.locator("[data-cannot-ask]")).to_contain_text("keeper")
