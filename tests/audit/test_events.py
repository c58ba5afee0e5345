"""Every change, reading, log-in and refusal leaves an event with who, when, from where, and what before and after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.contrib.auth.models import Group, User
from django.db.models import Max, QuerySet
from django.test import Client

from collections_app.access import people
from collections_app.access.api_keys import NewKey, create_key, revoke_key
from collections_app.admin.base import AuditedAdmin
from collections_app.audit import log
from collections_app.audit.log import class_of, describe_event, ocsf_event
from collections_app.audit.origin import Channel, Origin, current_origin, using_origin
from collections_app.audit.services import Subject, record_event
from collections_app.collections.services import update_collection
from collections_app.documents.edits import edit_document
from collections_app.documents.services import change_state, delete_documents, ingest_text
from collections_app.endpoints.endpoints import stored
from collections_app.endpoints.model_settings import SettingValues, save_setting
from collections_app.endpoints.prices import delete_price, save_price
from collections_app.models import AuditEvent, Collection
from evaluation_app.curation.gate import set_gate
from evaluation_app.golden.edits import add_question
from evaluation_app.golden.sets import create_set, update_set
from evaluation_app.models import EvaluationRun
from evaluation_app.runs import lifecycle
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.modes import keep_bands
from ragd.types import RetrievePlan
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests import event_schemas
from tests.retrieval.corpus import bearer, make_collection
from tests.web.pages import client_of, texts

pytestmark = pytest.mark.django_db
SCHEMAS = Path(log.__file__).parent / "audit_schemas"
ADDRESS = "203.0.113.7"


@pytest.fixture(autouse=True)
def forget_models() -> Iterator[None]:
    """What a test sets up is kept in the process."""
    yield
    stored._rows, stored._read_at = (), 0.0


@pytest.fixture
def events(db: None) -> QuerySet[AuditEvent]:
    """Those of the test: `house` leaves some in the module."""
    return AuditEvent.objects.filter(id__gt=AuditEvent.objects.aggregate(last=Max("id", default=0))["last"])


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root", password="correct-horse-9")


def newest(action: str) -> AuditEvent:
    return AuditEvent.objects.filter(action=action).latest("id")


assert_valid = partial(event_schemas.assert_valid, SCHEMAS)


def change_collection(house: Collection, root: User) -> None:
    update_collection(house, changes={"description": "new"}, actor=root)


def change_document(house: Collection, root: User) -> None:
    edit_document(house, "pump.md", {"metadata": {"floor": 7}}, actor=root)


def retitle_document(house: Collection, root: User) -> None:
    edit_document(house, "pump.md", {"title": "Big pump"}, actor=root)


def replace_text(house: Collection, root: User) -> None:
    ingest_text(house, "pump.md", "Another text.", actor=root)


def switch_document(house: Collection, root: User) -> None:
    change_state(house, ["pump.md"], "disabled", actor=root)


def price(house: Collection, root: User) -> None:
    save_price("m", input_per_million=1.0, actor=root)
    save_price("m", input_per_million=2.5, actor=root)


def revoke(house: Collection, root: User) -> None:
    revoke_key(create_key(NewKey("robot"), actor=root)[0], actor=root)


def bands(house: Collection, root: User) -> None:
    keep_bands(create_set("s", house.name, actor=root), {"recall": [0.9, 0.5]}, actor=root)


def rename_set(house: Collection, root: User) -> None:
    update_set(create_set("s", house.name, actor=root), name="t", actor=root)


def change_questions(house: Collection, root: User) -> None:
    add_question(create_set("s", house.name, actor=root), {"question": "Why?"}, actor=root)


def gate(house: Collection, root: User) -> None:
    create_set("s", house.name, actor=root)
    set_gate(house, "s", margin=0.1, actor=root)
    set_gate(house, "s", margin=0.2, actor=root)


def model(house: Collection, root: User) -> None:
    values = SettingValues(
        name="Chat", purpose="chat", preset="other", base_url="http://127.0.0.1:9/v1", model="m", key="sk-top-secret"
    )
    row = save_setting(values, actor=root)
    save_setting(
        SettingValues(name="Chat", purpose="chat", preset="other", base_url="http://127.0.0.1:9/v1", model="n"),
        actor=root,
        row=row,
    )


CHANGES: dict[str, tuple[Callable[[Collection, User], None], dict[str, Any], dict[str, Any]]] = {
    "collection.change": (change_collection, {"description": ""}, {"description": "new"}),
    "document.change metadata": (
        change_document,
        {"metadata": {"floor": 1, "source": "manual"}},
        {"metadata": {"floor": 7}},
    ),
    "document.change title": (retitle_document, {"title": "Pump"}, {"title": "Big pump"}),
    "document.change enabled": (switch_document, {"state": "enabled"}, {"state": "disabled"}),
    "modelprice.change": (
        price,
        {"input_per_million": 1, "output_per_million": 0, "cached_input_per_million": None, "note": ""},
        {"input_per_million": 2.5, "output_per_million": 0, "cached_input_per_million": None, "note": ""},
    ),
    "apikey.revoke": (revoke, {"status": "live"}, {"status": "revoked"}),
    "goldenset.thresholds": (bands, {"bands": {}}, {"bands": {"recall": [0.9, 0.5]}}),
    "goldenset.change name": (rename_set, {"name": "s"}, {"name": "t"}),
    "collection.gate": (
        gate,
        {"set_name": "s", "measure": "recall", "k": 10, "margin": 0.1},
        {"set_name": "s", "measure": "recall", "k": 10, "margin": 0.2},
    ),
    "modelsetting.change": (model, {"model": "m"}, {"model": "n"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_keeps_what_was_before_and_after(name: str, house: Collection, root: User) -> None:
    change, before, after = CHANGES[name]
    origin = Origin(channel=Channel.WEB, address=ADDRESS, request_id="r-1")
    with using_origin(origin):
        change(house, root)
    event = newest(name.partition(" ")[0])
    assert (event.before, event.after) == (before, after)
    assert (event.actor_kind, event.actor_id, event.actor_name) == ("user", str(root.pk), "root")
    assert (event.channel, event.address, event.request_id, event.outcome) == ("web", ADDRESS, "r-1", "succeeded")
    assert "sk-top-secret" not in str(event.__dict__)


def test_texts_are_told_by_hash_and_length(house: Collection, root: User) -> None:
    replace_text(house, root)
    event = newest("document.change")
    assert event.after is not None and event.before is not None
    assert event.after["size_chars"] == len("Another text.") and event.before["content_hash"]
    delete_documents(house, ["pump.md"], actor=root)
    gone = newest("document.delete")
    assert gone.before is not None and gone.before["content_hash"] == event.after["content_hash"]
    assert (gone.subject_kind, gone.subject_name, gone.collection_id) == ("document", "pump.md", house.pk)
    change_questions(house, root)
    changed = newest("goldenset.change")
    assert changed.before is not None and changed.after is not None and changed.before != changed.after
    assert not AuditEvent.objects.filter(before__icontains="Another text").exists()


def test_deleting_a_price_and_index_versions(house: Collection, root: User) -> None:
    delete_price(save_price("m", input_per_million=1.0, actor=root), actor=root)
    event = newest("modelprice.delete")
    assert event.before is not None and event.before["input_per_million"] == 1 and event.after is None


def test_log_ins_and_log_outs(events: QuerySet[AuditEvent], root: User) -> None:
    client = Client(REMOTE_ADDR=ADDRESS)
    client.post("/accounts/login/", {"username": "root", "password": "wrong"})
    client.post("/accounts/login/", {"username": "hunter2-typed-in-the-wrong-field", "password": "x"})
    client.post("/accounts/login/", {"username": "root", "password": "correct-horse-9"})
    client.post("/accounts/logout/")
    client.post("/accounts/login/?next=/admin/", {"username": "root", "password": "correct-horse-9"})
    client.post(
        "/accounts/password/",
        {"old_password": "correct-horse-9", "new_password1": "staple-battery-42", "new_password2": "staple-battery-42"},
    )
    client.post("/admin/logout/")
    rows = events.order_by("id").values_list("action", "actor_kind", "actor_name", "outcome", "channel")
    assert list(rows) == [
        ("session.login", "anonymous", "root", "refused", "web"),
        ("session.login", "anonymous", "an unknown user name", "refused", "web"),
        ("session.login", "user", "root", "succeeded", "web"),
        ("session.logout", "user", "root", "succeeded", "web"),
        ("session.login", "user", "root", "succeeded", "web"),
        ("user.password", "user", "root", "succeeded", "web"),
        ("session.logout", "user", "root", "succeeded", "admin"),
    ]
    logged_in = events.filter(action="session.login", outcome="succeeded")
    assert all(event.message.endswith("by password") for event in logged_in)
    assert set(events.values_list("address", flat=True)) == {ADDRESS}
    for event in events.all():
        assert class_of(event).uid == (3002 if event.action.startswith("session") else 3001)


def test_refusals_name_who_was_refused(house: Collection) -> None:
    reading = bearer(scope="read")
    client = Client(REMOTE_ADDR=ADDRESS, HTTP_X_REQUEST_ID="abc-1")
    assert client.get("/v1/audit", headers=reading).status_code == 403
    event = newest("access.refuse")
    assert (event.actor_name, event.outcome, event.channel) == ("key tests", "refused", "api")
    assert client.get("/v1/collections", headers={"Authorization": "Bearer ragd_wrong"}).status_code == 403
    event = newest("access.refuse")
    assert (event.actor_kind, event.subject_name, event.request_id) == ("anonymous", "/v1/collections", "abc-1")
    limited = bearer(collections=["house"])
    assert client.get("/v1/collections/other", headers=limited).status_code == 403
    event = newest("access.refuse")
    assert (event.actor_kind, event.actor_name, event.address) == ("key", "key tests", ADDRESS)
    client.force_login(User.objects.create_user("eve"))
    assert client.get("/audit/").status_code == 403
    event = newest("access.refuse")
    assert (event.actor_kind, event.actor_name, event.channel) == ("user", "eve", "web")


def test_the_admin_tells_of_users_groups_and_permissions(events: QuerySet[AuditEvent], root: User) -> None:
    client = client_of(root)
    client.post("/admin/auth/group/add/", {"name": "curators"})
    group = Group.objects.get()
    assert newest("group.add").after == {"name": "curators"}
    passwords = {"password1": "staple-battery-42", "password2": "staple-battery-42"}
    client.post("/admin/auth/user/add/", {"username": "eve", "usable_password": "true", **passwords})
    eve = User.objects.get(username="eve")
    added = newest("user.add")
    assert added.after is not None and added.after["username"] == "eve" and "staple" not in str(added.after)
    joined = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00", "username": "eve"}
    client.post(
        f"/admin/auth/user/{eve.pk}/change/", {**joined, "groups": [group.pk], "is_active": "on", "is_staff": "on"}
    )
    changed = newest("user.change")
    assert changed.before is not None and changed.after is not None
    assert (changed.before["is_staff"], changed.after["is_staff"]) == (False, True)
    assert (changed.before["groups"], changed.after["groups"]) == ([], ["curators"])
    client.post(f"/admin/auth/user/{eve.pk}/delete/", {"post": "yes"})
    gone = newest("user.delete")
    assert gone.before is not None and gone.before["username"] == "eve" and gone.before["password"] == "***"
    assert set(events.values_list("channel", flat=True)) == {"admin"}
    history = client.get(f"/admin/auth/group/{group.pk}/history/")
    assert history["Location"] == f"/audit/?kind=group&subject={group.pk}"
    for event in events.all():
        assert_valid(ocsf_event(event))


def test_every_admin_writes_to_the_audit_log() -> None:
    admins = [site.get_model_admin(model) for model in apps.get_models() if site.is_registered(model)]
    assert {type(admin).__name__ for admin in admins if not isinstance(admin, AuditedAdmin)} == set()


def evaluate(house: Collection) -> EvaluationRun:
    golden_set = create_set("pumps", house.name)
    add_question(golden_set, {"question": "How fast is the pump?", "expected_doc_ids": ["pump.md"]})
    settings = RunSettings(answers=False, judge="none")
    return lifecycle.run_now(
        lifecycle.start_run(golden_set, lifecycle.RunRequest(RetrievePlan(k=2), settings=settings), send=False)
    )


@pytest.mark.django_db(transaction=True)
def test_what_leaves_in_files_is_told_with_its_rows() -> None:
    house = make_collection()
    evaluated = evaluate(house)
    run = ask(QueryRequest(house, "How fast is the pump?", RetrievePlan(k=1), "api"))
    headers = bearer()
    addresses = {
        "collection.export": ("/v1/collections/house/export", {"documents": 5}),
        "queryrun.export": ("/v1/runs?format=jsonl", {"rows": 2}),
        "span.export": ("/v1/spans/export", {}),
        "span.export.sent": (f"/v1/spans/export?run_id={run.pk}", {"rows": 0, "complete": True}),
        "goldenset.export": ("/v1/golden-sets/pumps/questions?format=jsonl", {"rows": 1}),
        "evaluationrun.export": (f"/v1/evaluation-runs/{evaluated.pk}/results?format=jsonl", {"rows": 1}),
        "audit.export": ("/v1/audit?format=jsonl", {}),
    }
    for action, (address, after) in addresses.items():
        response = Client(REMOTE_ADDR=ADDRESS).get(address, headers=headers)
        assert response.status_code == 200, (address, response.content)
        b"".join(response.streaming_content)  # type: ignore[attr-defined]
        event = newest(action)
        assert (event.actor_name, event.channel, event.address) == ("key tests", "api", ADDRESS)
        assert event.after is not None and after.items() <= event.after.items(), (action, event.after)
    root = User.objects.create_superuser("root")
    client = client_of(root)
    b"".join(client.get("/evaluation/review/reviews.jsonl").streaming_content)  # type: ignore[attr-defined]
    event = newest("review.export")
    assert event.after == {"rows": 0} and event.actor_name == "root"


def test_events_as_ocsf_are_valid_and_of_the_right_class(house: Collection, root: User) -> None:
    for change, _, _ in CHANGES.values():
        if change not in (rename_set, gate):
            change(house, root)
    delete_documents(house, ["pump.md"], actor=root)
    record_event(root, "access.refuse", "", outcome="refused", subject=Subject("address", "/x"))
    with using_origin(Origin(channel=Channel.API, address=ADDRESS)):
        create_key(NewKey("other"), actor=root)
    found: dict[str, tuple[int, int]] = {}
    for event in AuditEvent.objects.all():
        written = ocsf_event(event)
        assert_valid(written)
        found[event.action] = (written["class_uid"], written["activity_id"])
    assert found["document.delete"] == (6005, 7) and found["document.change"] == (6005, 2)
    assert found["collection.add"] == (6005, 6) and found["apikey.add"] == (3005, 1)
    assert found["apikey.revoke"] == (3005, 2) and found["modelprice.change"] == (6003, 3)
    assert found["access.refuse"] == (6003, 99)
    again = [ocsf_event(event)["metadata"]["uid"] for event in AuditEvent.objects.all()]
    assert len(set(again)) == AuditEvent.objects.count()


def test_an_ocsf_event_with_a_missing_field_is_not_valid(house: Collection) -> None:
    written = ocsf_event(newest("collection.add"))
    schema = event_schemas.validators(SCHEMAS)[6005]
    for name in ("actor", "class_uid", "time", "database"):
        assert list(schema.iter_errors({key: value for key, value in written.items() if key != name}))


def test_the_api_pages_filters_and_downloads(house: Collection, root: User) -> None:
    headers = bearer()
    update_collection(house, changes={"description": "one"}, actor=root)
    client = Client()

    def get(query: str) -> Any:
        return client.get(f"/v1/audit{query}", headers=headers).json()

    first = get("?limit=2")
    assert len(first["items"]) == 2
    second = get(f"?limit=2&cursor={first['next_cursor']}")
    ids = [item["id"] for page in (first, second) for item in page["items"]]
    assert ids == sorted(ids, reverse=True) and len(set(ids)) == 4
    (changed,) = get("?action=collection.change")["items"]
    assert (changed["before"], changed["after"]) == ({"description": ""}, {"description": "one"})
    assert changed["actor"] == {"kind": "user", "id": str(root.pk), "name": "root"}
    assert {item["action"] for item in get("?action=document")["items"]} == {"document.add"}
    assert {item["subject"]["name"] for item in get("?q=pump")["items"]} == {"pump.md"}
    assert get("?actor=root")["items"] == [changed] and get("?collection=none")["items"] == []
    assert len(get(f"?kind=collection&subject={house.pk}")["items"]) == 2
    today = changed["at"][:10]
    assert get(f"?since={today}&until={today}")["items"] and get("?until=2020-01-01")["items"] == []
    assert get("?since=soon")["error"]["field"] == "since"
    assert get("?channel=mcp")["items"] == [] and get("?outcome=refused")["items"] == []
    response = client.get("/v1/audit?format=ocsf&action=collection", headers=headers)
    lines = [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]  # type: ignore[attr-defined]
    assert len(lines) == 2
    for line in lines:
        assert_valid(line)
    response = client.get("/v1/audit?format=jsonl&action=collection.change", headers=headers)
    (line,) = b"".join(response.streaming_content).splitlines()  # type: ignore[attr-defined]
    assert json.loads(line) == describe_event(AuditEvent.objects.get(pk=changed["id"]))
    assert client.get("/v1/audit?format=cef", headers=headers).json()["error"]["field"] == "format"
    assert client.get("/v1/audit", headers=bearer(scope="read")).status_code == 403
    assert client.get("/v1/audit", headers=bearer(collections=["house"])).status_code == 403


def test_the_page_shows_filters_and_one_event(house: Collection, root: User) -> None:
    client = client_of(root)
    for number in range(60):
        record_event(root, "test.change", f"number {number}", before={"n": number, "gone": 1}, after={"n": number + 1})
    page = client.get("/audit/").content.decode()
    assert "Number 59" in page and "Number 9<" not in page
    oldest = AuditEvent.objects.filter(message="number 10").get()
    older = client.get(f"/audit/?before={oldest.pk}").content.decode()
    assert "Number 9<" in older and "Number 10<" not in older and f"after={oldest.pk - 1}" in older
    assert "Number 59" in client.get(f"/audit/?after={oldest.pk}").content.decode()
    assert "Number 59" not in client.get("/audit/?action=collection").content.decode()
    assert client.get("/audit/?since=soon").status_code == 200
    event = client.get(f"/audit/?view=event&pk={oldest.pk}").content.decode()
    assert ">10<" in event and ">11<" in event and "gone" in event
    assert client.get("/audit/?view=event&pk=999999999").status_code == 404
    for form in ("jsonl", "ocsf"):
        body = client.get(f"/audit/?view=download&format={form}&q=number").getvalue()
        assert len(body.splitlines()) == 60
    assert client.get("/audit/?view=download&format=xml").status_code == 302


def test_the_page_names_actions_and_objects_in_the_language_of_the_reader(house: Collection, root: User) -> None:
    rita = User.objects.create_user("rita")
    given, _ = people.grant(rita, "viewer", house, actor=root)
    people.revoke(given, actor=root)
    gone, made = AuditEvent.objects.filter(subject_kind="rolegrant")[:2]
    assert made.message == "gave rita the role “Can view”" and gone.message == "took the role “Can view” from rita"
    assert made.subject_name == f"rita: Can view in {house.name}"
    client = client_of(root)
    rows = texts(client.get("/audit/?action=rolegrant.add"), "#audit-rows tbody td.wide")
    assert rows[0].startswith("Gave rita the role “Can view”Role: added")
    assert texts(client.get("/audit/?action=rolegrant.add"), ".filter summary .clip")[0] == "Role: added"
    german = client.get("/audit/", headers={"Accept-Language": "de"})
    assert {"Rolle: hinzugefügt", "Rolle: gelöscht"} <= set(texts(german, "#audit-rows tbody td.wide > a"))
    assert "Gave rita" not in german.content.decode()


def test_an_origin_holds_for_its_block_alone() -> None:
    assert current_origin().channel == "cli"
    with using_origin(Origin(channel=Channel.MCP)):
        assert record_event(None, "test.change", "").channel == "mcp"
    assert record_event(None, "test.change", "").channel == "cli"
