"""What a key opens: scope, collections, and how it is sent. The lookup of a secret is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.db.models import Q
from django.test import RequestFactory

from collections_app.access import auth
from collections_app.access.auth import BearerAuth, bearer_secret, check_collection_scope, check_unlimited, require_key
from collections_app.access.context import system_access
from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.access.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import ApiKey

MADE = datetime(2026, 5, 4, tzinfo=UTC)
BIRDS = CollectionScope({7: ("birds", MADE), 9: ("frogs", MADE)})

KEYS = {
    "reads": ApiKey(label="reader", scopes=["read", "ask"]),
    "writes": ApiKey(label="writer"),
    "limited": ApiKey(label="limited", collections=["birds", "trees"]),
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(auth, "authenticate", lambda secret, address="": KEYS.get(secret))
    with system_access():  # a request sets its own for the rest of its context
        yield


def request(header: str | None = None, method: str = "get") -> object:
    headers = {} if header is None else {"Authorization": header}
    return getattr(RequestFactory(), method)("/v1/collections", headers=headers)


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("Basic writes", None),
        ("Bearer writes", "writes"),
        ("bearer writes", "writes"),
        ("BEARER  writes ", "writes"),
        ("Bearer two words", "two words"),
    ],
)
def test_the_secret_is_what_follows_the_word_bearer(header: str | None, secret: str | None) -> None:
    assert bearer_secret(request(header)) == secret  # type: ignore[arg-type]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("header", "needed", "status", "error_type"),
    [
        (None, Permission.READ, 401, "unauthenticated"),
        ("Bearer guessed", Permission.READ, 403, "invalid_key"),
        ("Bearer reads", Permission.WRITE, 403, "out_of_scope"),
    ],
)
def test_a_request_without_a_fitting_key_is_refused(
    header: str | None, needed: Permission, status: int, error_type: str
) -> None:
    asked = request(header)
    with pytest.raises(ServiceError) as caught:
        require_key(asked, needed)  # type: ignore[arg-type]
    assert (caught.value.status, caught.value.type) == (status, error_type)
    assert "key" in str(caught.value)


@pytest.mark.parametrize(
    ("secret", "needed"),
    [
        ("reads", Permission.READ),
        ("reads", Permission.ASK),
        ("writes", Permission.ADMINISTER),
        ("limited", Permission.WRITE),  # in a collection of one of its names that it makes
    ],
)
def test_a_fitting_key_is_kept_with_its_request(secret: str, needed: Permission) -> None:
    asked = request(f"Bearer {secret}")
    assert require_key(asked, needed) is KEYS[secret]  # type: ignore[arg-type]
    assert auth.request_key(asked) is KEYS[secret]  # type: ignore[arg-type]


def test_reading_is_what_is_asked_for_unless_stated() -> None:
    assert require_key(request("Bearer reads")) is KEYS["reads"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "stated", "refused"),
    [
        ("get", {}, False),
        ("head", {}, False),
        ("options", {}, False),
        ("post", {}, True),
        ("put", {}, True),
        ("patch", {}, True),
        ("delete", {}, True),
        ("post", {"changes": Permission.ASK}, False),
        ("get", {"reads": Permission.ADMINISTER}, True),
    ],
)
def test_methods_that_change_something_need_write_scope_unless_stated(
    method: str, stated: dict[str, Permission], refused: bool
) -> None:
    door, asked = BearerAuth(**stated), request("Bearer reads", method)
    if not refused:
        assert door(asked) is KEYS["reads"]  # type: ignore[arg-type]
        return
    with pytest.raises(ServiceError) as caught:
        door(asked)  # type: ignore[arg-type]
    assert (caught.value.status, caught.value.type) == (403, "out_of_scope")


def test_a_bearer_is_looked_up_by_its_secret() -> None:
    assert BearerAuth().authenticate(request(), "writes") is KEYS["writes"]  # type: ignore[arg-type]


@pytest.mark.django_db
def test_a_limited_key_may_make_its_collections() -> None:
    check_collection_scope(KEYS["limited"], "trees")


@pytest.mark.parametrize(
    ("name", "opens"),
    [
        ("birds", True),
        ("trees", False),  # another collection has the name now
        ("ponds", True),  # nothing has the name: the key may make it
        ("rivers", False),
        ("hills", False),
    ],
)
def test_a_limited_key_opens_what_it_was_limited_to(name: str, opens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Mock()
    live.objects.live.return_value.filter.side_effect = lambda name: Mock(
        exists=lambda: name in ("birds", "trees", "rivers")
    )
    monkeypatch.setattr(auth, "Collection", live)
    key: Any = SimpleNamespace(label="limited", collections=["birds", "trees", "ponds"], visible=BIRDS)
    assert auth.opens(key, name) is opens
    if opens:
        check_collection_scope(key, name)
        return
    with pytest.raises(ServiceError) as caught:
        check_collection_scope(key, name)
    assert (caught.value.status, caught.value.type, caught.value.field) == (403, "out_of_scope", "collection")


def test_the_rows_of_a_scope() -> None:
    assert EVERYTHING.by_id("collection_id") == EVERYTHING.by_name("collection", "at") == Q()
    assert (EVERYTHING.ids, EVERYTHING.names) == (None, None)
    nothing = CollectionScope({})
    assert (nothing.ids, nothing.names) == ([], [])
    assert nothing.by_id("id") == Q(id__in=[]) and nothing.by_name("name", "at") == Q(pk__in=[])
    assert (BIRDS.ids, BIRDS.names) == ([7, 9], ["birds", "frogs"])
    assert BIRDS.by_id("run__collection_id") == Q(run__collection_id__in=[7, 9])
    assert BIRDS.by_name("collection", "started_at") == Q(pk__in=[]) | Q(collection="birds", started_at__gte=MADE) | Q(
        collection="frogs", started_at__gte=MADE
    )


def test_no_key_of_some_collections_manages_keys() -> None:
    check_collection_scope(KEYS["writes"], "anything")
    check_unlimited(KEYS["writes"])
    with pytest.raises(ServiceError) as caught:
        check_collection_scope(KEYS["limited"], "rivers")
    assert (caught.value.status, caught.value.type, caught.value.field) == (403, "out_of_scope", "collection")
    assert all(word in str(caught.value) for word in ("'limited'", "birds, trees", "'rivers'"))
    with pytest.raises(ServiceError) as caught:
        check_unlimited(KEYS["limited"])
    assert (caught.value.status, caught.value.type, caught.value.field) == (403, "out_of_scope", None)
    assert all(word in str(caught.value) for word in ("'limited'", "birds, trees"))
