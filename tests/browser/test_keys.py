"""The pages of API keys in a browser: accessible, nothing wider than the screen, a secret to copy."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from collections_app.services.governance.api_keys import create_key, revoke_key
from tests.browser.conftest import Visit


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_keys_are_made_and_read_on_every_screen(visit: Visit, theme: str, width: int) -> None:
    User.objects.create_user("maria")
    Group.objects.create(name="robots")
    create_key("crawler", scopes=["read", "write"], groups=["robots"], requests_per_minute=120)
    create_key("assistant", scopes=["read", "ask"], acts_as="maria", tokens_per_day=200_000)
    revoke_key(create_key("old importer")[0])
    visit.look(theme, width)  # type: ignore[arg-type]
    for address in ("/keys/", "/keys/new/"):
        visit.go(address)
        assert visit.violations() == []
        assert visit.overflow_px() == 0
    labels = [each.bounding_box() for each in visit.page.locator("#id_scopes label").all()]
    assert len(labels) == 5 and all(box and box["width"] > 2 * box["height"] for box in labels)  # words, not columns
    visit.page.fill("input[name=label]", "phone")
    visit.page.click("main button.primary")
    assert visit.page.inner_text("#secret").startswith("ragd_")
    assert visit.violations() == []
    assert visit.overflow_px() == 0
