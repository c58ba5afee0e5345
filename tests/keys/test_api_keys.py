"""API keys: what they may at most, how they are made, rotated and ended, by a program, in a shell and on the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from collections_app.access.api_keys import NewKey, authenticate, create_key, rotate_key
from collections_app.access.permissions import Role
from collections_app.errors import ServiceError
from collections_app.models import ApiKey, RoleGrant
from tests.api.conftest import Api
from tests.keys.conftest import World
from tests.refusals import raises_with
from tests.web.pages import attribute, client_of, texts

pytestmark = pytest.mark.django_db
ALL = {"read", "ask", "write", "evaluate", "administer"}


def made(api: Api, **values: Any) -> Api:
    answer = api.post("/api-keys", {"label": "made"} | values)
    assert answer.status_code == 200, answer.content
    return Api(Client(), answer.json()["secret_once"])


def error(answer: Any) -> tuple[int, str, str | None]:
    body = answer.json()["error"]
    return answer.status_code, body["type"], body.get("field")


@pytest.fixture
def root(key_of: Callable[..., Api]) -> Api:
    return key_of("root")


def test_the_scope_of_older_clients_stands_for_permissions(root: Api) -> None:
    shown = {scope: made(root, scope=scope).get("/api-keys/self").json() for scope in ("read", "write")}
    assert set(shown["read"]["scopes"]) == {"read", "ask"}
    assert set(shown["write"]["scopes"]) == ALL
    named = made(root, scopes=["read", "evaluate"]).get("/api-keys/self").json()
    assert (named["scope"], named["scopes"], named["created_by"]) == ("read", ["evaluate", "read"], "key root")
    assert error(root.post("/api-keys", {"label": "x", "scopes": []})) == (422, "invalid_input", "scopes")


def test_a_key_sees_and_rotates_itself_alone(root: Api) -> None:
    reader = made(root, scopes=["read"])
    own = reader.get("/api-keys/self").json()
    assert own["label"] == "made" and own["prefix"] == reader.secret[:12]
    other = ApiKey.objects.get(label="root")
    assert error(reader.get("/api-keys"))[:2] == (403, "out_of_scope")
    assert error(reader.delete(f"/api-keys/{other.pk}"))[:2] == (403, "out_of_scope")
    assert error(reader.post(f"/api-keys/{other.pk}/rotate", {}))[:2] == (403, "out_of_scope")
    renewed = reader.post(f"/api-keys/{own['id']}/rotate", {"overlap_hours": 1}).json()["secret_once"]
    assert Api(Client(), renewed).get("/api-keys/self").json()["id"] == own["id"]
    assert reader.get("/api-keys/self").status_code == 200


def test_the_earlier_secret_ends_after_the_overlap_and_at_the_next_rotation(root: Api) -> None:
    key, first = create_key(NewKey("turning"))
    _, second = rotate_key(key, overlap_hours=24)
    assert [authenticate(secret) == key for secret in (first, second)] == [True, True]
    assert ApiKey.objects.get(pk=key.pk).prefix == second[:12]
    ApiKey.objects.filter(pk=key.pk).update(previous_until=timezone.now() - timedelta(seconds=1))
    assert [authenticate(secret) == key for secret in (first, second)] == [False, True]
    _, third = rotate_key(key, overlap_hours=0)
    assert [authenticate(secret) == key for secret in (first, second, third)] == [False, False, True]
    root.delete(f"/api-keys/{key.pk}")
    assert authenticate(third) is None
    with raises_with(ServiceError, status=409, type="key_ended"):
        rotate_key(key)
    assert error(root.post(f"/api-keys/{ApiKey.objects.get(label='root').pk}/rotate", {"overlap_hours": 721}))[0] == 422


def test_a_repeated_rotation_gives_the_same_secret(root: Api) -> None:
    pk = ApiKey.objects.get(label="root").pk
    first, again = (root.post(f"/api-keys/{pk}/rotate", {}, **{"Idempotency-Key": "r"}) for _ in range(2))
    assert first.json() == again.json() and again["Idempotency-Replayed"] == "true"


def test_a_key_makes_no_key_that_may_more_than_itself(root: Api) -> None:
    User.objects.create_superuser("boss")
    Group.objects.create(name="robots")
    soon = (timezone.now() + timedelta(days=1)).isoformat()
    later = (timezone.now() + timedelta(days=2)).isoformat()
    maker = made(root, scopes=["read", "administer"], expires_at=soon, requests_per_minute=50)
    for field, values in (
        ("scopes", {"scopes": ["read", "write"]}),
        ("expires_at", {"scopes": ["read"], "expires_at": later}),
        ("requests_per_minute", {"scopes": ["read"], "requests_per_minute": 0}),
        ("requests_per_minute", {"scopes": ["read"], "requests_per_minute": 51}),
    ):
        assert error(maker.post("/api-keys", {"label": "x"} | values)) == (403, "out_of_scope", field)
    child = made(maker, scopes=["read"]).get("/api-keys/self").json()
    assert child["expires_at"][:19] == soon[:19] and child["requests_per_minute"] == 50
    boss = made(root, acts_as="boss")
    assert made(boss).get("/api-keys/self").json()["acts_as"] == "boss"
    User.objects.create_superuser("other")
    assert error(boss.post("/api-keys", {"label": "x", "acts_as": "other"})) == (403, "out_of_scope", "acts_as")
    assert error(boss.post("/api-keys", {"label": "x", "groups": ["robots"]})) == (403, "out_of_scope", "acts_as")
    assert error(root.post("/api-keys", {"label": "x", "acts_as": "nobody"})) == (422, "invalid_input", "acts_as")
    assert error(root.post("/api-keys", {"label": "x", "groups": ["none"]})) == (422, "invalid_input", "groups")


def test_a_key_of_a_deactivated_or_deleted_person_may_nothing(world: World, people: dict[str, User]) -> None:
    key = world.keys["administrator"]
    people["administrator"].is_active = False
    people["administrator"].save()
    for answer in (
        key.get("/collections"),
        key.get("/api-keys/self"),
        key.post("/collections/notes/search", {"query": "x"}),
    ):
        assert error(answer)[:2] == (403, "invalid_key")
    people["curator"].delete()
    assert error(world.keys["curator"].get("/collections"))[:2] == (403, "invalid_key")
    assert ApiKey.objects.filter(label="curator").exists()


def test_a_narrowed_key_of_a_superuser_reads_documents(world: World, key_of: Callable[..., Api]) -> None:
    User.objects.create_superuser("boss")
    reader = key_of("narrow", acts_as="boss", scopes=["read", "ask"])
    listed = reader.get("/collections/notes/documents").json()["items"]
    assert "oak" in {item["doc_id"] for item in listed}
    assert reader.put("/collections/notes/documents/x", {"content": "x"}).status_code == 403


def test_keys_live_no_longer_than_the_server_lets_them(settings: Any, root: Api) -> None:
    settings.RAGD_KEY_MAX_DAYS = 30
    item = made(root).get("/api-keys/self").json()
    end = timezone.now() + timedelta(days=30)
    assert abs(timezone.datetime.fromisoformat(item["expires_at"]) - end) < timedelta(minutes=5)
    beyond = (timezone.now() + timedelta(days=31)).isoformat()
    assert error(root.post("/api-keys", {"label": "x", "expires_at": beyond})) == (422, "invalid_input", "expires_at")


def test_the_last_use_keeps_its_address(root: Api) -> None:
    Client().get("/v1/collections", headers={"Authorization": f"Bearer {root.secret}"}, REMOTE_ADDR="192.0.2.9")
    assert ApiKey.objects.get(label="root").last_used_from == "192.0.2.9"


def test_secrets_are_kept_as_digests_alone(root: Api) -> None:
    key, first = create_key(NewKey("turning"))
    _, second = rotate_key(key)
    row = ApiKey.objects.filter(pk=key.pk).values().get()
    kept = b"".join(
        bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode() for value in row.values()
    )
    assert not [secret for secret in (first, second) if secret.encode() in kept]


def test_a_shell_makes_keys_with_the_same_choices_and_runs_as_a_person(world: World) -> None:
    out = StringIO()
    call_command(
        "ragd", "access", "create-key", "--label", "sh", "--scopes", "read", "ask", "--acts-as", "the-asker",
        "--requests-per-minute", "9", "--json", stdout=out,
    )  # fmt: skip
    answer = json.loads(out.getvalue())
    item = Api(Client(), answer["secret_once"]).get("/api-keys/self").json()
    assert (item["scopes"], item["acts_as"], item["requests_per_minute"]) == (["ask", "read"], "the-asker", 9)
    found = StringIO()
    call_command("ragd", "--as", "the-asker", "search", "notes", "How tall is an oak?", "--json", stdout=found)
    assert {each["doc_id"] for each in json.loads(found.getvalue())["results"]} == {"oak"}
    for collection, person in (("vault", "the-asker"), ("notes", "the-viewer"), ("notes", "nobody")):
        with pytest.raises((SystemExit, Exception)) as caught:
            call_command("ragd", "--as", person, "search", collection, "oak", stdout=StringIO())
        assert getattr(caught.value, "returncode", 1) in (1, 2)


@pytest.fixture
def pages(world: World, people: dict[str, User]) -> Callable[[User], Client]:
    return client_of


def test_an_administrator_makes_rotates_and_revokes_keys_on_the_page(pages: Callable[[User], Client]) -> None:
    client = pages(User.objects.create_superuser("boss"))
    answer = client.post(
        "/keys/?view=new",
        {
            "label": "page",
            "scopes": ["read", "ask"],
            "acts_as": "the-asker",
            "collections": ["notes"],
            "tokens_per_day": 7,
        },
    )
    key = ApiKey.objects.get(label="page")
    secret = answer.context["secret"]
    assert authenticate(secret) == key and secret in answer.content.decode()
    assert (key.scopes, key.collections, key.tokens_per_day, key.created_by) == (["ask", "read"], ["notes"], 7, "boss")
    assert secret not in client.get("/keys/").content.decode()
    renewed = client.post(f"/keys/?view=rotate&pk={key.pk}", {"overlap_hours": 0}).context["secret"]
    assert (authenticate(secret), authenticate(renewed)) == (None, key)
    assert client.post(f"/keys/?view=revoke&pk={key.pk}").status_code == 302
    assert authenticate(renewed) is None
    for wrong in ({"label": "", "collections": "notes"}, {"label": "no collection"}):
        assert client.post("/keys/?view=new", {"scopes": ["read"]} | wrong).status_code == 422


def test_a_form_that_is_sent_again_makes_and_rotates_one_key(pages: Callable[[User], Client]) -> None:
    client = pages(User.objects.create_superuser("boss"))
    newest = attribute(client.get("/keys/?view=new"), "main input[name=newest]", "value")
    form = {"label": "page", "scopes": ["read"], "collections": "", "newest": newest or ""}
    secret = client.post("/keys/?view=new", form).context["secret"]
    again = client.post("/keys/?view=new", form)
    assert again.status_code == 302 and ApiKey.objects.filter(label="page").count() == 1
    assert client.post("/keys/?view=new", form | {"label": "other"}).status_code == 200
    key = ApiKey.objects.get(label="page")
    rotation = f"/keys/?view=rotate&pk={key.pk}"
    form = {"overlap_hours": "0", "prefix": attribute(client.get(rotation), "main input[name=prefix]", "value") or ""}
    renewed = client.post(rotation, form).context["secret"]
    assert client.post(rotation, form).status_code == 302
    assert (authenticate(secret), authenticate(renewed)) == (None, key)


def test_a_person_sees_and_makes_keys_that_act_as_themselves(pages: Callable[[User], Client], people: Any) -> None:
    client = pages(people["asker"])
    assert {row["key"].label for row in client.get("/keys/").context["rows"]} == {"asker"}
    assert texts(client.get("/keys/"), "tbody .chip[data-tone=good]") == ["Active"]
    assert "Service account" in texts(
        client_of(User.objects.create_superuser("root")).get("/keys/"), "tbody td:nth-child(3)"
    )
    client.post(
        "/keys/?view=new",
        {"label": "own", "scopes": ["read", "administer"], "acts_as": "the-administrator", "collections": ""},
    )
    own = ApiKey.objects.get(label="own")
    assert own.user == people["asker"]
    other = ApiKey.objects.get(label="curator")
    for action in ("rotate", "revoke"):
        assert client.post(f"/keys/{other.pk}/{action}/").status_code == 404
    assert ApiKey.objects.get(label="curator").status == "live"
    assert client.post(f"/keys/?view=revoke&pk={own.pk}").status_code == 302


def test_the_first_key_is_made_on_the_page_where_the_api_does_not_make_it(settings: Any, db: None) -> None:
    settings.RAGD_HOST = "0.0.0.0"
    body = json.dumps({"label": "x"})
    assert Client().post("/v1/api-keys", body, content_type="application/json").status_code == 401
    client = client_of(User.objects.create_superuser("boss"))
    fields = {"label": "first", "scopes": sorted(ALL), "collections": ""}
    secret = client.post("/keys/?view=new", fields).context["secret"]
    assert Api(Client(), secret).get("/api-keys").json()["items"][0]["label"] == "first"


def test_roles_that_end_end_for_keys_at_once(world: World, people: dict[str, User]) -> None:
    key = world.keys["curator"]
    RoleGrant.objects.filter(user=people["curator"], role=Role.CURATOR).delete()
    assert key.get("/collections").status_code == 403 or key.get("/collections").json() == []
    assert key.put("/collections/notes/documents/x", {"content": "x"}).status_code == 403
