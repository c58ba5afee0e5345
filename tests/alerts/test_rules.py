"""What the rules measure, and how alerts open, fire and are resolved.
Webhooks on a real server: signed, tried again, told once for each change."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from collections_app.collections.deletion import delete_collection
from collections_app.collections.services import create_collection
from collections_app.endpoints.model_settings import renew_secrets
from collections_app.endpoints.secrets import decrypt
from collections_app.errors import ServiceError
from collections_app.index.swap import ensure_serving
from collections_app.jobs.leases import RESEND_AFTER, overdue
from collections_app.jobs.operations import PAUSE_MAX, process_operation, requested_operations, retry_operation
from collections_app.jobs.workers import record_backup, record_drill
from collections_app.models import AuditEvent, Collection, IngestJob, Operation, Status
from evaluation_app.models import Alert, AlertRule, GoldenSet
from evaluation_app.telemetry.alerts.rules import (
    KINDS,
    RETRIES,
    Reading,
    Webhook,
    WebhookValues,
    add_rule,
    change_rule,
    deliveries,
    evaluate_alerts,
    save_webhook,
    send_test,
)
from evaluation_app.telemetry.metrics.pages import DatabaseCollector
from retrieval_app.models import QueryRun
from tests.evaluation.made_runs import make_run
from tests.fakes.smtp_server import SmtpServer, smtp_server
from tests.fakes.web_server import Page, WebServer
from tests.refusals import raises_with
from tests.web.pages import texts, tones, wrong_fields

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=timezone.get_default_timezone())


def rule_of(kind: str) -> AlertRule:
    return AlertRule.objects.get(kind=kind, collection_id=0)


def read(kind: str) -> list[Reading]:
    return list(KINDS[kind].read(rule_of(kind)))


def gauge() -> dict[str, float]:
    """The metric ragd_alerts by rule."""
    [family] = [each for each in DatabaseCollector().collect() if each.name == "ragd_alerts"]
    return {sample.labels["rule"]: sample.value for sample in family.samples}


def ask(number: int, status: str = "ok", took_ms: float = 100, **values: Any) -> None:
    for position in range(number):
        QueryRun.objects.create(
            kind="ask", query=f"q{position}", channel="api", status=status, timings_ms={"total": took_ms},
            **{"collection_name": "house", **values},
        )  # fmt: skip


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Reading]]]:
    """What each kind reads, as the test states it; kinds that are not named read nothing."""
    told: dict[str, list[Reading]] = {}
    for kind in KINDS.values():
        monkeypatch.setitem(KINDS, kind.name, _told(kind, told))
    yield told


def _told(kind: Any, told: dict[str, list[Reading]]) -> Any:
    return replace(kind, read=lambda rule: told.get(kind.name, []))


def test_every_kind_has_a_rule_with_its_usual_threshold() -> None:
    rules = {rule.kind: (rule.threshold, rule.for_minutes, rule.is_enabled) for rule in AlertRule.objects.all()}
    assert rules == {kind.name: (kind.threshold, kind.for_minutes, True) for kind in KINDS.values()}


def test_error_rate_and_latency_are_of_production_within_the_window_and_of_ten_queries_at_least() -> None:
    ask(8)
    ask(1, "error", 9_000)
    assert (read("error_rate"), read("latency")) == ([], [])
    ask(1, "ok", 20_000)
    ask(5, "error", 60_000, environment="evaluation")
    ask(1, "error")
    QueryRun.objects.filter(query="q0", status="error", timings_ms__total=100).update(
        created_at=timezone.now() - timedelta(minutes=16)
    )
    assert read("error_rate") == [Reading(0.1)]
    assert read("latency") == [Reading(20_000.0)]


def test_a_rule_of_a_collection_measures_that_one_alone() -> None:
    house, garden = create_collection(name="house"), create_collection(name="garden")
    ask(10, "error", collection=house)
    ask(10, collection=garden, collection_name="garden")
    values = {"threshold": 0.1, "window_minutes": 15, "for_minutes": 0, "is_enabled": True}
    rules = [add_rule("error_rate", each, values, actor=None) for each in (house, garden)]
    assert [KINDS["error_rate"].read(rule) for rule in rules] == [[Reading(1.0)], [Reading(0.0)]]
    assert read("error_rate") == [Reading(0.5)]


def test_queue_workers_and_disk() -> None:
    assert (read("queue_age"), read("workers")) == ([Reading(0.0)], [Reading(0)])
    collection = create_collection(name="house")
    IngestJob.objects.create(
        collection=collection, doc_id="a", state="queued", created_at=timezone.now() - timedelta(hours=1)
    )
    Status.objects.create(kind="worker", name="a:1")
    assert read("queue_age")[0].value == pytest.approx(3600, abs=5)
    assert read("workers") == [Reading(1)]
    assert 0 < read("disk")[0].value < 1


def test_backups_are_measured_once_there_was_one() -> None:
    assert (read("backup"), read("restore_drill")) == ([], [])
    record_backup({"place": "s3://backups/"})
    Status.objects.filter(name="backup").update(made_at=timezone.now() - timedelta(hours=30))
    record_drill({"error": ""}, passed=True)
    assert read("backup")[0].value == pytest.approx(108_000, abs=5)
    assert read("backup")[0].value > KINDS["backup"].threshold
    assert read("restore_drill") == [Reading(0.0)]
    record_drill({"error": "a part is missing"}, passed=False)
    assert read("restore_drill") == [Reading(1.0)]


def test_recall_is_of_what_serves() -> None:
    collection = create_collection(name="house")
    row = ensure_serving(collection)
    for recall in (0.9, 0.1):
        row.measurements = {"recall": {"plain": {"mean": recall}, "filtered": {"mean": None}}}
        row.save()
        row.pk, row.number, row.state = None, 99, "retired"
    assert read("recall") == [Reading(0.9, "house")]


def test_an_evaluation_is_held_against_its_baseline_by_the_headline_metric_that_lost_most() -> None:
    collection = create_collection(name="house")
    golden_set = GoldenSet.objects.create(collection_name="house", name="birds")
    values = {"collection_name": "house", "golden_set": golden_set, "index_version": collection.index_version}
    before = make_run([{"correctness": 0.9, "mrr@10": 0.5, "faithfulness": 1.0}], **values)
    assert read("evaluation") == []
    golden_set.baseline = before
    golden_set.save()
    assert read("evaluation") == []
    make_run([{"correctness": 0.6, "mrr@10": 0.9, "faithfulness": 0.1}], **values)
    [reading] = read("evaluation")
    assert (reading.subject, round(reading.value, 6)) == ("house: birds", 0.3)


def test_an_alert_waits_fires_and_is_resolved(levels: dict[str, list[Reading]]) -> None:
    levels["queue_age"] = [Reading(1000)]
    assert evaluate_alerts(NOW) == len(KINDS)
    alert = Alert.objects.get()
    assert (alert.state, alert.value, alert.threshold) == ("pending", 1000, 900)
    evaluate_alerts(NOW + timedelta(minutes=4))
    assert Alert.objects.get().state == "pending"
    levels["queue_age"] = [Reading(5000)]
    evaluate_alerts(NOW + timedelta(minutes=5))
    assert gauge()["queue_age"] == 1
    levels["queue_age"] = [Reading(2000)]
    evaluate_alerts(NOW + timedelta(minutes=6))
    alert = Alert.objects.get()
    assert (alert.state, alert.value, alert.worst) == ("firing", 2000, 5000)
    levels["queue_age"] = [Reading(3)]
    evaluate_alerts(NOW + timedelta(minutes=7))
    alert = Alert.objects.get()
    assert (alert.state, alert.value, alert.resolved_at) == ("resolved", 3, NOW + timedelta(minutes=7))
    assert gauge() == dict.fromkeys(KINDS, 0)


def test_what_clears_before_it_fires_leaves_nothing(levels: dict[str, list[Reading]]) -> None:
    levels["queue_age"] = [Reading(1000)]
    evaluate_alerts(NOW)
    levels["queue_age"] = [Reading(0)]
    evaluate_alerts(NOW + timedelta(minutes=1))
    assert not Alert.objects.exists()


def test_subjects_have_alerts_of_their_own_and_one_that_is_gone_is_resolved(levels: dict[str, list[Reading]]) -> None:
    levels["recall"] = [Reading(0.5, "house"), Reading(0.99, "garden"), Reading(0.2, "sea")]
    evaluate_alerts(NOW)
    levels["recall"] = [Reading(0.1, "house")]
    evaluate_alerts(NOW + timedelta(minutes=1))
    found = Alert.objects.order_by("subject").values_list("subject", "state", "value", "worst")
    assert list(found) == [("house", "firing", 0.1, 0.1), ("sea", "resolved", None, 0.2)]


def test_a_rule_that_is_disabled_resolves_what_fires_and_one_that_fails_says_why(
    levels: dict[str, list[Reading]], monkeypatch: pytest.MonkeyPatch
) -> None:
    levels["cost"], levels["disk"] = [Reading(100)], [Reading(0.99, "a")]
    evaluate_alerts(NOW)
    change_rule(rule_of("cost"), {"is_enabled": False}, actor=None)

    def broken(rule: AlertRule) -> list[Reading]:
        raise OSError("no such disk")

    def unknown(rule: AlertRule) -> list[Reading]:
        raise KeyError("a metric of an earlier version")

    monkeypatch.setitem(KINDS, "disk", _with(KINDS["disk"], broken))
    monkeypatch.setitem(KINDS, "error_rate", _with(KINDS["error_rate"], unknown))
    assert evaluate_alerts(NOW + timedelta(minutes=6)) == len(KINDS) - 1
    assert "earlier version" in rule_of("error_rate").error
    states = dict(Alert.objects.values_list("rule__kind", "state"))
    assert states == {"cost": "resolved", "disk": "pending"}
    assert (rule_of("disk").error, rule_of("cost").error) == ("no such disk", "")


def _with(kind: Any, read: Any) -> Any:
    return replace(kind, read=read)


def test_rules_go_with_their_collection_when_it_is_deleted(visitor: Any) -> None:
    collection = create_collection(name="house")
    values = {"threshold": 0.1, "window_minutes": 15, "for_minutes": 0, "is_enabled": True}
    add_rule("latency", collection, values, actor=None)
    delete_collection(collection)
    assert not AlertRule.objects.exclude(collection_id=0).exists()
    assert not Collection.objects.live().exists()


def test_every_kind_is_measured_on_an_empty_server() -> None:
    assert evaluate_alerts() == len(KINDS)
    assert {rule.kind: rule.error for rule in AlertRule.objects.all()} == dict.fromkeys(KINDS, "")


NEW = "/alerts/?view=webhook&pk=0"

__all__ = ["smtp_server"]


def make(server: WebServer, path: str = "/hook", name: str = "ops") -> tuple[Webhook, str]:
    return save_webhook(WebhookValues(name, server.url(path)), actor=None)


def fire_and_resolve() -> None:
    """The rule of workers fires, since there is none, and is resolved by another threshold."""
    rules = AlertRule.objects.filter(kind="workers")
    AlertRule.objects.exclude(kind="workers").update(is_enabled=False)
    rules.update(for_minutes=0)
    evaluate_alerts()
    rules.update(threshold=0)
    evaluate_alerts()


def deliver_due() -> int:
    """Attempt what is new or due again, as workers do; returns how many."""
    now = timezone.now()
    due = Q(report={}) | overdue(now, now - RESEND_AFTER, ahead=PAUSE_MAX)
    ids = list(requested_operations().filter(due).order_by("created_at").values_list("pk", flat=True))
    for pk in ids:
        process_operation(str(pk))
    return len(ids)


def make_due(delivery: Operation) -> None:
    Operation.objects.filter(pk=delivery.pk).update(sent_at=timezone.now() - 2 * RESEND_AFTER)


def test_firing_and_resolved_are_sent_with_a_signature_that_the_receiver_can_check(web_server: WebServer) -> None:
    web_server.pages["/hook"] = Page(status=204)
    row, key = make(web_server)
    fire_and_resolve()
    assert deliver_due() == 2
    first, second = web_server.asked
    told = [json.loads(each.body) for each in (first, second)]
    assert [each["type"] for each in told] == ["alert.firing", "alert.resolved"]
    assert told[0]["data"] | {"started_at": ""} == {
        "alert_id": Alert.objects.get().pk, "rule": "workers", "title": "Workers", "state": "firing", "subject": "",
        "unit": "count", "value": 0.0, "worst": 0.0, "threshold": 1.0, "started_at": "", "resolved_at": None,
    }  # fmt: skip
    for asked in (first, second):
        signed = f"{asked.headers['webhook-id']}.{asked.headers['webhook-timestamp']}.".encode() + asked.body
        secret = base64.b64decode(key.removeprefix("whsec_"))
        expected = "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
        assert asked.headers["webhook-signature"] == expected
        assert abs(int(asked.headers["webhook-timestamp"]) - timezone.now().timestamp()) < 10
    assert [(each.state, each.report) for each in deliveries(row)] == 2 * [
        ("succeeded", {"attempts": 1, "status": 204})
    ]
    assert deliver_due() == 0


def test_a_receiver_that_fails_is_tried_again_with_the_same_id_until_it_answers(web_server: WebServer) -> None:
    row, _ = make(web_server)
    web_server.pages["/hook"] = Page(status=500)
    fire_and_resolve()
    Operation.objects.filter(arguments__payload__type="alert.resolved").delete()
    assert deliver_due() == 1
    delivery = deliveries(row).get()
    assert (delivery.is_running, delivery.report) == (True, {"attempts": 1, "status": 500})
    assert delivery.next_at > timezone.now() + timedelta(seconds=5)
    assert deliver_due() == 0
    web_server.pages["/hook"] = Page(status=200)
    make_due(delivery)
    assert deliver_due() == 1
    delivery.refresh_from_db()
    assert (delivery.state, delivery.report, delivery.error) == ("succeeded", {"attempts": 2, "status": 200}, "")
    assert len({asked.headers["webhook-id"] for asked in web_server.asked}) == 1


def test_a_message_fails_after_the_last_attempt_and_a_person_can_send_it_again(web_server: WebServer) -> None:
    row, _ = make(web_server)
    web_server.pages["/hook"] = Page(status=503)
    fire_and_resolve()
    Operation.objects.filter(arguments__payload__type="alert.resolved").delete()
    delivery = deliveries(row).get()
    for _ in range(RETRIES.max_attempts):
        make_due(delivery)
        deliver_due()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.report["attempts"]) == ("failed", RETRIES.max_attempts)
    retry_operation(delivery)
    web_server.pages["/hook"] = Page(status=200)
    assert deliver_due() == 1
    delivery.refresh_from_db()
    assert (delivery.state, delivery.report["attempts"]) == ("succeeded", 1)
    with raises_with(ServiceError, status=409):
        retry_operation(delivery)


def test_gone_ends_the_attempts_and_a_disabled_webhook_is_left_alone(web_server: WebServer) -> None:
    gone, _ = make(web_server, "/gone", "gone")
    silent, _ = make(web_server, "/silent", "silent")
    web_server.pages["/gone"] = Page(status=410)
    fire_and_resolve()
    save_webhook(WebhookValues("silent", silent.url, is_enabled=False), actor=None, row=silent)
    assert deliver_due() == 4
    assert set(web_server.paths()) == {"/gone"}
    assert {each.state for each in deliveries(gone)} == {"failed"}
    assert {each.is_running for each in deliveries(silent)} == {True}


def test_alerts_are_sent_by_mail(smtp_server: SmtpServer, settings: Any, admin_client: Client) -> None:
    values = WebhookValues("people", "MAILTO:ops@example.org")
    row, key = save_webhook(values, actor=None)
    assert (row.url, key) == ("mailto:ops@example.org", "") and row.secret
    settings.RAGD_PUBLIC_URL = "https://rag.example.org/"
    fire_and_resolve()
    assert deliver_due() == 2
    firing, resolved = smtp_server.messages
    assert {firing["To"], resolved["To"]} == {"ops@example.org"} and firing["Subject"] != resolved["Subject"]
    assert "https://rag.example.org/alerts/" in firing.get_content()
    assert (send_test(row).report["status"], len(smtp_server.messages)) == (250, 3)
    settings.EMAIL_PORT = 1
    assert send_test(row).state == "failed"
    form = {"name": "others", "url": "mailto:nobody", "is_enabled": "on"}
    assert wrong_fields(admin_client.post(NEW, form)) == ["url"]
    settings.EMAIL_HOST = ""
    form["url"] = "mailto:ops@example.org"
    assert wrong_fields(admin_client.post(NEW, form)) == ["url"] and Webhook.objects.count() == 1


def test_a_test_message_says_what_came_back_and_addresses_are_guarded(web_server: WebServer, settings: Any) -> None:
    web_server.pages["/hook"] = Page(status=200)
    row, _ = make(web_server)
    assert [(each.state, each.report["status"]) for each in (send_test(row), send_test(row))] == 2 * [
        ("succeeded", 200)
    ]
    settings.RAGD_FETCH_ALLOWED_NETWORKS = []
    delivery = send_test(row)
    assert (delivery.state, delivery.report["status"]) == ("failed", None)
    assert "RAGD_FETCH_ALLOWED_NETWORKS" in delivery.error
    assert len(web_server.asked) == 2


@pytest.mark.parametrize(
    ("values", "field"),
    [(WebhookValues("", "https://a.example/"), "name"), (WebhookValues("a", "ftp://a.example/"), "url"),
     (WebhookValues("a", "https://me:secret@a.example/"), "url"), (WebhookValues("ops", "https://a.example/"), "name")],
)  # fmt: skip
def test_bad_values_are_refused_with_the_field(values: WebhookValues, field: str, web_server: WebServer) -> None:
    make(web_server)
    with raises_with(ServiceError, status=422, field=field):
        save_webhook(values, actor=None)
    assert Webhook.objects.count() == 1


def test_the_signing_key_is_encrypted_and_follows_a_new_server_key(web_server: WebServer, settings: Any) -> None:
    row, key = make(web_server)
    row.refresh_from_db()
    assert key not in row.secret and decrypt(row.secret) == key
    old, stored = settings.SECRET_KEY, row.secret
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another-key", [old]
    assert renew_secrets(actor=None) == 1
    settings.SECRET_KEY_FALLBACKS = []
    row.refresh_from_db()
    assert row.secret != stored and decrypt(row.secret) == key


def test_the_pages_from_the_first_webhook_to_a_delivery(visitor: Client, web_server: WebServer) -> None:
    web_server.pages["/hook"] = Page(status=200)
    made = visitor.post(NEW, {"name": "ops", "url": web_server.url("/hook"), "is_enabled": "on"})
    [key] = texts(made, "#signing-key")
    row = Webhook.objects.get()
    assert decrypt(row.secret) == key and made["Cache-Control"] == "no-store"
    page = f"/alerts/?view=webhook&pk={row.pk}"
    assert texts(visitor.get(page), "#signing-key") == []
    visitor.post(page, {"do": "test"})
    assert len(texts(visitor.get(page), 'tr[data-delivery="test"]')) == 1
    [new] = texts(visitor.post(page, {"do": "key"}), "#signing-key")
    row.refresh_from_db()
    assert new != key and decrypt(row.secret) == new
    fire_and_resolve()
    AlertRule.objects.filter(kind="workers").update(threshold=1)
    evaluate_alerts()
    for address in ("/", "/operations/"):
        assert len(texts(visitor.get(address), '.banner[data-alert="workers"]')) == 1
    assert len(texts(visitor.get("/alerts/"), 'tr[data-alert="workers"]')) == 1
    visitor.post(page, {"do": "delete"})
    assert not Operation.objects.filter(kind="delivery").exists()
    actions = AuditEvent.objects.filter(subject_kind="webhook").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["webhook.add", "webhook.change", "webhook.delete"]


def test_rules_are_changed_on_their_page(visitor: Client) -> None:
    rule = AlertRule.objects.get(kind="error_rate")
    page = f"/alerts/?view=rule&pk={rule.pk}"
    wrong = visitor.post(page, {"threshold": "150", "window_minutes": "15", "for_minutes": "0"})
    assert wrong.status_code == 422
    visitor.post(page, {"threshold": "7.5", "window_minutes": "30", "for_minutes": "2", "is_enabled": "on"})
    rule.refresh_from_db()
    assert (rule.threshold, rule.window_minutes, rule.for_minutes, rule.is_enabled) == (0.075, 30, 2, True)
    assert tones(visitor.post(page, {"do": "delete"}, follow=True))[-1] == "bad"
    assert AlertRule.objects.filter(pk=rule.pk).exists()
