"""Settings › Retention: what holds and why, what is due, and the form that changes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.models import Collection, Operation, RetentionSetting
from collections_app.retention_periods import PERIODS, stored
from collections_app.services.collections.collections import create_collection, update_collection
from retrieval_app.models import QueryRun
from tests.web.pages import texts

PAGE = "/settings/retention/"


@pytest.fixture(autouse=True)
def unstated(settings: Any) -> Iterator[None]:
    settings.RAGD_STATED = frozenset({"RAGD_SPAN_MAX_MB"})
    settings.RAGD_SPAN_MAX_MB = 500
    stored.forget()
    yield
    stored.forget()


@pytest.fixture
def notes(admin_client: Client) -> Collection:
    collection = create_collection(name="notes")
    for days in (1, 40, 80):
        QueryRun.objects.create(
            kind="search", collection=collection, collection_name="notes", query="q", channel="api",
            created_at=timezone.now() - timedelta(days=days),
        )  # fmt: skip
    return collection


def rows_of(html: str) -> dict[str, tuple[str, str, str]]:
    """key -> (source, value, due)."""
    found = re.findall(r'data-key="([^"]*)" data-source="([^"]*)" data-value="([^"]*)" data-due="([^"]*)"', html)
    return {key: (source, value, due) for key, source, value, due in found}


def test_every_kind_of_data_says_what_holds_and_what_is_due(admin_client: Client, notes: Collection) -> None:
    update_collection(notes, changes={"retention": {"runs_days": 60}})
    RetentionSetting.objects.create(key="runs_days", value=30)
    Operation.objects.create(
        kind="retention", state="succeeded", finished_at=timezone.now(), report={"runs": 3, "trashed_documents": 0}
    )
    page = admin_client.get(PAGE)
    rows = rows_of(page.content.decode())
    assert list(rows) == list(PERIODS) and {due for _, _, due in rows.values()} == {""}
    assert (rows["runs_days"][:2], rows["span_mb"][:2]) == (("database", "30"), ("environment", "500"))
    assert rows["trash_days"][:2] == ("default", "30")
    assert texts(page, "tr[data-key=runs_days] td:nth-of-type(3)") == ["3"]
    assert texts(page, "tr[data-key=runs_days] a[href='/collections/notes/settings/']") == ["notes"]
    assert not texts(page, "tr[data-key=span_mb] a[href$='span_mb/']"), "the environment holds"
    for request in ({"query_params": {"count": "on"}}, {"headers": {"HX-Request": "true", "HX-Target": "retention"}}):
        counted = rows_of(admin_client.get(PAGE, **request).content.decode())
        assert counted["runs_days"] == ("database", "30", "1"), "the collection keeps its own for 60 days"


def test_a_value_is_tried_set_and_taken_back(admin_client: Client, notes: Collection) -> None:
    address = f"{PAGE}runs_days/"
    tried = admin_client.post(
        address, {"value": "30", "do": "count"}, headers={"HX-Request": "true", "HX-Target": "retention-due"}
    )
    assert 'data-due="2"' in tried.content.decode() and not RetentionSetting.objects.exists()
    assert QueryRun.objects.count() == 3
    assert admin_client.post(address, {"value": "30"}).headers["Location"] == PAGE
    row = RetentionSetting.objects.get()
    assert (row.key, row.value, row.updated_by) == ("runs_days", 30, "admin")
    assert rows_of(admin_client.get(PAGE).content.decode())["runs_days"][:2] == ("database", "30")
    admin_client.post(address, {"value": ""})
    assert not RetentionSetting.objects.exists()


@pytest.mark.parametrize("value", ["-1", "36501", "ten", "1.5"])
def test_a_wrong_value_stays_in_the_form(value: str, admin_client: Client) -> None:
    page = admin_client.post(f"{PAGE}runs_days/", {"value": value})
    assert page.status_code == 422 and texts(page, ".errorlist li") and not RetentionSetting.objects.exists()


def test_what_the_environment_states_is_not_set_here(admin_client: Client) -> None:
    assert not texts(admin_client.get(f"{PAGE}span_mb/"), "main form button")
    assert admin_client.post(f"{PAGE}span_mb/", {"value": "3"}).status_code == 409
    assert not RetentionSetting.objects.exists()
    assert admin_client.get(f"{PAGE}nothing/").status_code == 404


def test_it_is_for_administrators_of_all_collections(notes: Collection) -> None:
    visitor = Client()
    visitor.force_login(User.objects.create_user("eve"))
    for address in (PAGE, f"{PAGE}runs_days/"):
        assert visitor.get(address).status_code == 403
    assert visitor.post(f"{PAGE}runs_days/", {"value": "1"}).status_code == 403
    assert not RetentionSetting.objects.exists()
