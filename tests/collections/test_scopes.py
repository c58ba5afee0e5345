"""What a key opens: scope, collections, and how it is sent. The lookup of a secret and the counting are replaced."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db.models import Q
from django.test import RequestFactory

from collections_app.access import auth
from collections_app.access.auth import BearerAuth, bearer_secret, check_collection_scope, check_unlimited, require_key
from collections_app.access.context import NOBODY, SYSTEM, Access, current_access, set_access, system_access
from collections_app.access.limits import LimitReached, Usage
from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.access.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models import ApiKey
from tests.refusals import raises_with

MADE = datetime(2026, 5, 4, tzinfo=UTC)
BIRDS = CollectionScope({7: ("birds", MADE), 9: ("frogs", MADE)})

KEYS = {
    "reads": ApiKey(label="reader", scopes=["read", "ask"]),
    "writes": ApiKey(label="writer"),
    "limited": ApiKey(label="limited", collections=["birds", "trees"]),
    "orphan": ApiKey(label="orphan"),  # its user is gone
}
ADDRESS = "192.0.2.7"
ANN = User(pk=3, username="ann", is_superuser=True)
LEFT = Usage(60, 59, 1.5)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mock]:
    """authenticate, count_request, count_wrong_key"""
    calls, access_of_key = Mock(), auth.access_of_key
    calls.authenticate.side_effect = lambda secret, address="": KEYS.get(secret)
    calls.count_request.return_value = calls.count_wrong_key.return_value = LEFT
    for name in ("authenticate", "count_request", "count_wrong_key"):
        monkeypatch.setattr(auth, name, getattr(calls, name))
    monkeypatch.setattr(auth, "access_of_key", lambda key: None if key.label == "orphan" else access_of_key(key))
    with system_access():  # a request sets its own for the rest of its context
        yield calls


def request(header: str | None = None, method: str = "get", **meta: object) -> Any:
    headers = {} if header is None else {"Authorization": header}
    return getattr(RequestFactory(REMOTE_ADDR=ADDRESS, **meta), method)("/v1/collections", headers=headers)


@pytest.mark.parametrize(
    ("header", "secret"),
    [(None, None), ("", None), ("Bearer", None), ("Bearer ", None), ("Basic writes", None), ("Bearer writes", "writes"),
     ("bearer writes", "writes"), ("BEARER  writes ", "writes"), ("Bearer two words", "two words")],
)  # fmt: skip
def test_the_secret_is_what_follows_the_word_bearer(header: str | None, secret: str | None) -> None:
    assert bearer_secret(request(header)) == secret


@pytest.mark.parametrize(
    ("header", "needed", "status", "error_type", "counts"),
    [
        (None, Permission.READ, 401, "unauthenticated", ()),
        ("Bearer guessed", Permission.READ, 403, "invalid_key", ("authenticate", "count_wrong_key")),
        ("Bearer orphan", Permission.READ, 403, "invalid_key", ("authenticate",)),
        ("Bearer reads", Permission.WRITE, 403, "out_of_scope", ("authenticate", "count_request")),
    ],
)
def test_a_request_without_a_fitting_key_is_refused(
    header: str | None, needed: Permission, status: int, error_type: str, counts: tuple[str, ...], calls: Mock
) -> None:
    with pytest.raises(ServiceError) as caught:
        require_key(request(header), needed)
    assert (caught.value.status, caught.value.type, "key" in str(caught.value)) == (status, error_type, True)
    assert tuple(name for name, *_ in calls.mock_calls) == counts
    assert all(call.args[-1] == ADDRESS for call in (*calls.authenticate.mock_calls, *calls.count_wrong_key.mock_calls))


@pytest.mark.parametrize(
    ("secret", "needed"),
    [
        ("reads", Permission.READ), ("reads", Permission.ASK), ("reads", None), ("writes", Permission.ADMINISTER),
        ("limited", Permission.WRITE),  # in a collection of one of its names that it makes
    ],
)  # fmt: skip
def test_a_fitting_key_is_kept_with_its_request(secret: str, needed: Permission | None, calls: Mock) -> None:
    asked = request(f"Bearer {secret}")
    assert require_key(asked, needed) is auth.request_key(asked) is KEYS[secret]
    assert (asked.permission, asked.usage, current_access().name) == (needed, LEFT, f"key {KEYS[secret].label}")
    calls.count_request.assert_called_once_with(current_access())


def test_reading_is_what_is_asked_for_unless_stated(calls: Mock) -> None:
    asked = request("Bearer reads")
    del asked.META["REMOTE_ADDR"]  # as through a socket of this machine
    assert (require_key(asked), asked.permission) == (KEYS["reads"], Permission.READ)
    calls.authenticate.assert_called_once_with("reads", "")


@pytest.mark.parametrize("secret", ["reads", "guessed"])
def test_a_request_beyond_a_limit_knows_what_is_left(secret: str, calls: Mock) -> None:
    calls.count_request.side_effect = calls.count_wrong_key.side_effect = LimitReached("", LEFT, type="too_many")
    asked = request(f"Bearer {secret}")
    with pytest.raises(LimitReached):
        require_key(asked)
    assert asked.usage is LEFT


@pytest.mark.parametrize(
    ("user", "access"), [(None, SYSTEM), (User(is_active=False), NOBODY), (ANN, auth.access_of_user(ANN))]
)
def test_a_key_of_this_process_stands_for_its_person(user: User | None, access: Access, calls: Mock) -> None:
    asked = request("Bearer reads", **{auth.LOCAL_KEY: ApiKey(label="local", user=user)})
    assert require_key(asked, None).label == "local" and current_access() == access
    calls.authenticate.assert_not_called()


@pytest.mark.parametrize(
    ("permission", "collection_id", "refused"),
    [(Permission.READ, None, False), (Permission.WRITE, 7, False), (Permission.WRITE, 9, True),
     (Permission.WRITE, None, True), (None, None, False)],
)  # fmt: skip
def test_a_permission_counts_where_it_is_held(
    permission: Permission | None, collection_id: int | None, refused: bool
) -> None:
    set_access(Access(frozenset({Permission.READ}), {7: frozenset({Permission.WRITE})}))
    asked: Any = SimpleNamespace(api_key=KEYS["reads"], permission=permission)
    try:
        auth.check_permission(asked, collection_id)
    except ServiceError as error:
        assert refused and (error.status, error.type) == (403, "out_of_scope") and "'reader'" in str(error)
    else:
        assert not refused


@pytest.mark.parametrize(
    ("method", "stated", "refused"),
    [
        ("get", {}, False), ("head", {}, False), ("options", {}, False),
        ("post", {}, True), ("put", {}, True), ("patch", {}, True), ("delete", {}, True),
        ("post", {"changes": Permission.ASK}, False), ("get", {"reads": Permission.ADMINISTER}, True),
    ],
)  # fmt: skip
def test_methods_that_change_something_need_write_scope_unless_stated(
    method: str, stated: dict[str, Permission], refused: bool
) -> None:
    door, asked = BearerAuth(**stated), request("Bearer reads", method)
    if not refused:
        assert door(asked) is KEYS["reads"]
        return
    with raises_with(ServiceError, status=403, type="out_of_scope"):
        door(asked)


def test_a_bearer_is_looked_up_by_its_secret() -> None:
    assert BearerAuth().authenticate(request(), "writes") is KEYS["writes"]


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
    with raises_with(ServiceError, status=403, type="out_of_scope", field="collection") as caught:
        check_collection_scope(key, name)
    assert all(word in str(caught.value) for word in ("'limited'", "birds, trees, ponds", repr(name)))


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
    with raises_with(ServiceError, status=403, type="out_of_scope", field=None) as caught:
        check_unlimited(KEYS["limited"])
    assert all(word in str(caught.value) for word in ("'limited'", "birds, trees"))
