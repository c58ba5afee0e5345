"""People, groups and roles: what administrators change, who sees where a role comes from, and who stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from collections_app.access import people
from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.context import Forbidden, using_access
from collections_app.access.permissions import Permission, Role
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.errors import ServiceError
from collections_app.models import AuditEvent, Collection
from tests.refusals import raises_with
from tests.web.pages import client_of, has, texts, tones, tree, wrong_fields

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root", password="a long password")


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", password="another long password")


@pytest.fixture
def nature() -> Collection:
    return create_collection(name="nature")


def test_roles_say_where_they_come_from(root: User, ada: User, nature: Collection) -> None:
    rangers = people.make_group("rangers")
    people.set_members(rangers, [ada])
    people.grant(ada, Role.ASKER, nature)
    people.grant(rangers, Role.CURATOR, nature)
    Collection.objects.filter(pk=nature.pk).update(open_role=Role.VIEWER)
    held = {(each.collection, each.role, each.source) for each in people.roles_of(ada)}
    assert held == {("nature", "asker", "own"), ("nature", "curator", "group"), ("nature", "viewer", "open")}
    assert next((each.role, each.source) for each in people.roles_of(root)) == ("administrator", "superuser")
    nature.refresh_from_db()
    assert {(each.name, each.role, each.source) for each in people.who_may(nature)} == {
        ("ada", "asker", "own"), ("rangers", "curator", "group"), ("", "viewer", "open"),
        ("root", "administrator", "superuser"),
    }  # fmt: skip
    page = client_of(root).get(f"/people/{ada.pk}/")
    assert page.status_code == 200 and len(page.context["roles"]) == 3


def test_the_last_administrator_stays(root: User, ada: User) -> None:
    rangers = people.make_group("rangers")
    people.set_members(rangers, [ada])
    given, _ = people.grant(rangers, Role.ADMINISTRATOR)
    people.set_active(root, False)
    for change in (
        lambda: people.revoke(given),
        lambda: people.delete_group(rangers),
        lambda: people.set_members(rangers, []),
        lambda: people.set_groups(ada, []),
        lambda: people.set_active(ada, False),
    ):
        with raises_with(ServiceError, status=409, type="last_administrator"):
            change()
    assert list(people.administrators()) == [ada]
    people.set_active(root, True)
    people.revoke(given)
    assert list(people.administrators()) == [root]


def test_the_admin_keeps_the_last_administrator_too(root: User) -> None:
    client = client_of(root)
    client.post(f"/admin/auth/user/{root.pk}/delete/", {"post": "yes"})
    assert User.objects.filter(pk=root.pk).exists()
    other = User.objects.create_superuser("other")
    client.post(f"/admin/auth/user/{other.pk}/delete/", {"post": "yes"})
    assert not User.objects.filter(pk=other.pk).exists()


def test_pages_make_people_groups_and_roles_and_log_it(root: User, nature: Collection) -> None:
    client = client_of(root)
    weak = {"username": "bob", "log_in": "password", "password": "123"}
    assert client.post("/people/?view=new", weak).status_code == 422
    assert client.post("/people/?view=new", {"username": "bob", "log_in": "password"}).status_code == 422
    assert client.post("/people/?view=groups", {"name": "rangers"}).status_code == 302
    rangers = Group.objects.get()
    made = {"username": "bob", "log_in": "sign_on", "groups": [rangers.pk]}
    assert client.post("/people/?view=new", made).status_code == 302
    assert client.post("/people/?view=new", made).status_code == 409
    bob = User.objects.get(username="bob")
    assert not bob.has_usable_password() and list(bob.groups.all()) == [rangers]
    role = {"do": "role", "role": "curator", "collection": "nature"}
    assert client.post(f"/people/{bob.pk}/", role).status_code == 302
    assert client.post(f"/people/groups/{rangers.pk}/", role | {"role": "viewer", "collection": ""}).status_code == 302
    assert access_of_user(bob).may(Permission.WRITE, nature.pk) and access_of_user(bob).may(Permission.READ)
    assert texts(client.get("/people/"), "tbody th a") == ["bob", "root"]
    assert client.get("/people/?view=groups").status_code == 200
    client.post(f"/people/groups/{rangers.pk}/", {"do": "members", "members": []})
    assert not access_of_user(bob).may(Permission.READ)
    taken = {"do": "revoke", "grant": bob.role_grants.get().pk}
    assert client.post(f"/people/{root.pk}/", taken).status_code == 404
    client.post(f"/people/{bob.pk}/", taken)
    client.post(f"/people/{bob.pk}/", {"do": "active", "active": "0"})
    bob.refresh_from_db()
    assert not bob.is_active and not bob.role_grants.exists()
    assert texts(client.get("/people/?state=inactive"), "tbody th a") == ["bob"]
    told = set(AuditEvent.objects.filter(actor_name=root.get_username()).values_list("subject_kind", flat=True))
    assert {"user", "group", "rolegrant"} <= told


@pytest.mark.parametrize("role", ["", *Role.values])
def test_people_are_for_administrators_of_all_collections(ada: User, root: User, nature: Collection, role: str) -> None:
    if role:
        people.grant(ada, role, nature)
    client = client_of(ada)
    for address in ("/people/", "/people/?view=new", f"/people/{ada.pk}/", "/people/?view=groups"):
        assert client.get(address).status_code == 403
    assert client.post(f"/people/{ada.pk}/", {"do": "role", "role": "administrator"}).status_code == 403
    with using_access(access_of_user(ada)):
        for change in (
            lambda: people.grant(ada, Role.ADMINISTRATOR),
            lambda: people.make_person("eve"),
            lambda: people.make_group("eves"),
            lambda: people.set_active(root, False),
        ):
            with pytest.raises(Forbidden):
                change()
    assert not people.administrators().filter(pk=ada.pk).exists()


def test_sharing_is_for_administrators_of_the_collection(ada: User, nature: Collection) -> None:
    bob = User.objects.create_user("bob")
    people.grant(ada, Role.CURATOR, nature)
    client, address = client_of(ada), "/collections/nature/settings/?view=sharing"
    assert client.get(address).status_code == 403
    settings = "/collections/nature/settings/"
    assert not has(client.get(settings), f'a[href="{address}"]')
    people.replace_role(ada, Role.ADMINISTRATOR, nature)
    assert has(client.get(settings), f'a[href="{address}"]')
    assert client.post(address, {"holder": "nobody", "role": "viewer"}).status_code == 422
    assert tones(client.post(address, {"holder": "bob", "role": "viewer"}, follow=True)) == ["good"]
    assert tones(client.post(address, {"holder": "bob", "role": "asker"}, follow=True)) == ["good"]
    assert list(bob.role_grants.values_list("role", flat=True)) == ["asker"]
    root = User.objects.create_superuser("root")
    for full_name in ("Bob Marsh", "Bob  Marsh"):
        people.change_details(bob, full_name, "bob@example.org", actor=root)
    assert AuditEvent.objects.filter(action="user.change").count() == 1, "the same name again is no change"
    typing = {"HX-Request": "true", "HX-Target": "holders"}
    offered = tree(client.get(f"{address}&holder=mars", headers=typing)).css("option")
    assert [each.attributes["value"] for each in offered] == ["Bob Marsh (bob)"]
    for typed in ("bob marsh", "Bob Marsh (bob)"):
        assert people.find_holder(typed) == bob
    User.objects.create_user("bob2", first_name="Bob", last_name="Marsh")
    assert wrong_fields(client.post(address, {"holder": "Bob Marsh", "role": "viewer"})) == ["holder"]
    assert client.get(f"/people/?view=new&collection={nature.name}").status_code == 403
    assert tones(client.post(address, {"do": "open", "open_role": "viewer"}, follow=True)) == ["good"]
    nature.refresh_from_db()
    assert nature.open_role == "viewer"
    client.post(address, {"do": "revoke", "grant": bob.role_grants.get().pk})
    assert not bob.role_grants.exists()
    other = create_collection(name="other")
    foreign, _ = people.grant(bob, Role.VIEWER, other)
    assert client.post(address, {"do": "revoke", "grant": foreign.pk}).status_code == 404
    assert client.post(address.replace("nature", "other"), {"holder": "ada", "role": "viewer"}).status_code == 404


def test_the_api_shares_a_collection(ada: User, nature: Collection) -> None:
    _, secret = create_key(NewKey("all", scopes=["read", "write", "administer"]))
    client = Client(headers={"Authorization": f"Bearer {secret}"})

    def send(method: str, values: dict[str, Any]) -> Any:
        return getattr(client, method)("/v1/collections/nature/grants", json.dumps(values), "application/json")

    answer = send("put", {"holder": "ada", "role": "viewer"})
    assert answer.status_code == 200, answer.content
    assert {"holder": "ada", "role": "viewer", "source": "own", "everywhere": False} in answer.json()
    assert send("put", {"holder": "@none", "role": "viewer"}).status_code == 422
    assert send("put", {"holder": "ada", "role": "owner"}).status_code == 422
    assert client.get("/v1/collections/nature/grants").json() == answer.json()
    assert all(each["source"] != "own" for each in send("put", {"holder": "ada", "role": None}).json())
    changed = client.patch("/v1/collections/nature", json.dumps({"open_role": "asker"}), "application/json")
    assert changed.json()["open_role"] == "asker"
    made = client.post("/v1/collections", json.dumps({"name": "b", "open_role": "viewer"}), "application/json")
    assert made.status_code == 200 and Collection.objects.get(name="b").open_role == "viewer"
    _, weak = create_key(NewKey("writes", scopes=["read", "write"]))
    client = Client(headers={"Authorization": f"Bearer {weak}"})
    assert client.get("/v1/collections/nature/grants").status_code == 403
    opened = client.patch("/v1/collections/nature", json.dumps({"open_role": ""}), "application/json")
    assert opened.status_code == 403 and Collection.objects.get(name="nature").open_role == "asker"


def test_the_command_gives_and_takes_roles(ada: User, nature: Collection, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> Any:
        call_command("ragd", *arguments, "--json")
        return json.loads(capsys.readouterr().out)

    assert run("access", "grant", "ada", "curator", "nature")["changed"] is True
    assert run("access", "grant", "ada", "curator", "nature")["changed"] is False
    held = run("access", "list", "nature")["holdings"]
    assert [(each["holder"], each["role"], each["source"]) for each in held] == [("ada", "curator", "own")]
    assert run("access", "revoke", "ada", "all", "nature")["changed"] is True
    assert run("access", "list", "nature")["holdings"] == []


def test_an_empty_home_says_whom_to_ask(root: User, ada: User) -> None:
    page = client_of(ada).get("/")
    assert page.status_code == 200 and page.context["administrators"] == ["root"]
    assert has(page, ".empty-state") and not has(page, "#composer")
    assert not has(client_of(root).get("/"), ".page-error")


def test_error_pages_keep_the_frame_with_the_menu(ada: User, nature: Collection) -> None:
    client = client_of(ada)
    for address, status in (("/collections/nature/", 404), ("/people/", 403)):
        answer = client.get(address)
        assert answer.status_code == status
        assert has(answer, "nav.rail a[href='/collections/']") and len(texts(answer, "h1")) == 1
