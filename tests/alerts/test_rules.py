"""What the rules measure, and how alerts open, fire and are resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from collections_app.collections.deletion import delete_collection
from collections_app.collections.services import create_collection
from collections_app.index.swap import ensure_serving
from collections_app.jobs.workers import record_backup, record_drill
from collections_app.models import Collection, IngestJob, Report, WorkerHeartbeat
from evaluation_app.models import Alert, AlertRule, GoldenSet
from evaluation_app.telemetry.alerts.rules import KINDS, Reading, add_rule, change_rule, evaluate_alerts
from evaluation_app.telemetry.metrics.pages import DatabaseCollector
from retrieval_app.models import QueryRun
from tests.evaluation.made_runs import make_run

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
    WorkerHeartbeat.objects.create(name="a:1", host="a", beat_at=timezone.now())
    assert read("queue_age")[0].value == pytest.approx(3600, abs=5)
    assert read("workers") == [Reading(1)]
    assert 0 < read("disk")[0].value < 1


def test_backups_are_measured_once_there_was_one() -> None:
    assert (read("backup"), read("restore_drill")) == ([], [])
    record_backup({"place": "s3://backups/"})
    Report.objects.filter(name="backup").update(made_at=timezone.now() - timedelta(hours=30))
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
