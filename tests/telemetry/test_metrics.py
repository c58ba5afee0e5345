"""What spans are counted as, what all processes counted together, and the page that Prometheus reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from evaluation_app.metrics import pages as metrics_page
from evaluation_app.metrics import reporting as metrics_reporting
from evaluation_app.metrics.registry import SERIES_MAX, Registry, add_up, take_away
from evaluation_app.metrics.reporting import GONE_AFTER_S, Reporter, fold_gone
from evaluation_app.metrics.spans import SpanMeter
from evaluation_app.metrics.text import render
from evaluation_app.models import MetricSnapshot, Span
from ragd import telemetry
from ragd.telemetry import metrics
from ragd_site.telemetry import connect
from tests.conftest import REPOSITORY
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import make_candidates, make_query_spans

COUNTER = metrics.Metric("test.things", "counter", "{thing}", 'Things, "quoted" \\ and more')
SIZES = metrics.Metric("test.sizes", "histogram", "By", "Sizes", (1.0, 10.0))


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def sample(found: dict[str, Metric], name: str, **labels: str) -> float:
    """The one sample of this name that has these labels, whatever others it has."""
    values = [
        each.value
        for family in found.values()
        for each in family.samples
        if each.name == name and labels.items() <= each.labels.items()
    ]
    assert len(values) == 1, (name, labels, values)
    return float(values[0])


def test_boundaries_are_those_of_the_convention() -> None:
    assert metrics.TOKEN_USAGE.buckets == (
        1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
    )  # fmt: skip
    assert metrics.OPERATION_DURATION.buckets == (
        0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    )  # fmt: skip
    assert metrics.OPERATION_FIRST_CHUNK.buckets == metrics.OPERATION_DURATION.buckets


def test_text_is_read_by_a_real_parser() -> None:
    registry = Registry()
    odd = 'a "quoted" \\ name\nover two lines, {braces} and ümlaut'
    registry.add(COUNTER, 2, {"model.name": odd, "flag": True, "none": None})
    registry.add(COUNTER, 0.5, {"model.name": odd, "flag": True})
    registry.add(COUNTER, -7, {"model.name": odd, "flag": True})
    for value in (0.5, 1.0, 1.5, 99.0):
        registry.observe(SIZES, value)
    text = render(registry.snapshot())
    found = families(text)
    assert "# HELP test_things_total " in text and "# TYPE test_things_total counter\n" in text
    assert found["test_things"].documentation == COUNTER.description
    assert [(one.name, one.labels, one.value) for one in found["test_things"].samples] == [
        ("test_things_total", {"model_name": odd, "flag": "true"}, 2.5)
    ]
    assert [(one.name, one.labels, one.value) for one in found["test_sizes"].samples] == [
        ("test_sizes_bucket", {"le": "1"}, 2.0),
        ("test_sizes_bucket", {"le": "10"}, 3.0),
        ("test_sizes_bucket", {"le": "+Inf"}, 4.0),
        ("test_sizes_sum", {}, 102.0),
        ("test_sizes_count", {}, 4.0),
    ]
    assert render(Registry().snapshot()) == ""


def test_too_many_series_are_counted_in_one() -> None:
    registry = Registry()
    for number in range(SERIES_MAX + 50):
        registry.add(COUNTER, 1, {"model": f"m{number}"})
    [data] = registry.snapshot()
    assert len(data["points"]) == SERIES_MAX + 1
    [rest] = [point for point in data["points"] if point["labels"] == {metrics.OVERFLOW: "true"}]
    assert rest["value"] == 50


def test_sums_and_differences() -> None:
    one, other = Registry(), Registry()
    one.add(COUNTER, 2, {"a": "x"})
    one.observe(SIZES, 5)
    other.add(COUNTER, 3, {"a": "x"})
    other.add(COUNTER, 4, {"a": "y"})
    other.observe(SIZES, 50)
    both = add_up([one.snapshot(), other.snapshot(), []])
    counts = {point["labels"]["a"]: point["value"] for point in both[1]["points"]}
    assert (both[0]["points"], counts) == ([{"labels": {}, "counts": [0, 1, 1], "sum": 55.0}], {"x": 5, "y": 4})
    left = take_away(both, one.snapshot())
    assert add_up([left, one.snapshot()]) == both
    changed = [{**both[0], "buckets": [7.0]}]
    assert add_up([both, changed]) == both


@pytest.fixture
def registry(provider: TracerProvider, recorder: Recorder) -> Iterator[Registry]:
    counts = Registry()
    recorder.onward = SpanMeter(counts)
    yield counts


def test_spans_become_metrics(registry: Registry) -> None:
    make_query_spans(make_candidates(3))
    with pytest.raises(TimeoutError), telemetry.chat_span("openai", "gpt-4o", stream=True):
        raise TimeoutError("no answer")
    found = families(render(registry.snapshot()))
    chat = {"gen_ai_operation_name": "chat", "gen_ai_request_model": "gpt-4o"}
    assert sample(found, "aitf_inference_errors_total", **chat) == 1
    assert sample(found, "gen_ai_client_operation_duration_count", error_type="TimeoutError", **chat) == 1
    assert sample(found, "aitf_cost_total", ragd_collection="house", **chat) == pytest.approx(0.003)
    assert sample(found, "ragd_cost_unpriced_calls_total", **chat) == 1  # the one that failed
    assert sample(found, "ragd_stage_duration_count", ragd_stage="rag.fuse") == 1
    assert sample(found, "aitf_rag_retrieval_results_bucket", le="2") == 0
    assert sample(found, "aitf_rag_retrieval_results_bucket", le="5") == 1
    assert sample(found, "aitf_rag_retrievals_total", aitf_rag_retrieve_database="postgresql+pgvector") == 1
    assert sample(found, "aitf_rag_retrieval_results_count") == 1
    assert sample(found, "aitf_rag_retrieval_duration_count") == 1
    assert sample(found, "ragd_queries_total", ragd_status="ok") == 1
    tokens = [one for one in found["gen_ai_client_token_usage"].samples if one.name.endswith("_sum")]
    assert {one.labels["gen_ai_token_type"] for one in tokens} == {"input", "output"}
    assert {one.labels["gen_ai_provider_name"] for one in tokens} >= {"openai", "ragd.test"}


def test_a_span_that_cannot_be_counted_holds_up_no_other(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    with telemetry.chat_span("openai", "odd") as call:
        telemetry.set_attributes(call.span, {telemetry.TIME_TO_FIRST_CHUNK: "soon"})
    for _ in range(2):
        with telemetry.chat_span("openai", "gpt-4o") as call:
            call.finish("yes", input_tokens=5, output_tokens=1)
        registry.count_waiting()
        registry.count_waiting()
    found = families(render(registry.snapshot()))
    assert sample(found, "aitf_inference_requests_total", gen_ai_request_model="gpt-4o") == 2
    assert "could not be counted" in caplog.text


@pytest.fixture
def table(transactional_db: None) -> Iterator[None]:
    MetricSnapshot.objects.all().delete()
    yield
    MetricSnapshot.objects.all().delete()


def stored() -> float:
    """What all processes counted together."""
    data = add_up(MetricSnapshot.objects.values_list("data", flat=True))
    return sum(point["value"] for metric in data if metric["name"] == COUNTER.name for point in metric["points"])


def reporter(registry: Registry, service: str = "web") -> Reporter:
    return Reporter(registry, connect, service)


def test_counts_of_all_processes_never_fall(table: None) -> None:
    one, other = Registry(), Registry()
    web, worker = reporter(one), reporter(other, "worker")
    one.add(COUNTER, 3)
    other.add(COUNTER, 4)
    web.write()
    worker.write()
    web.write()  # nothing new
    assert (stored(), MetricSnapshot.objects.count()) == (7, 2)
    with connect() as own:
        assert fold_gone(own) == 0
        assert fold_gone(own, gone_s=-1) == 2
        assert (stored(), set(MetricSnapshot.objects.values_list("name", flat=True))) == (7, {"sum:web", "sum:worker"})
        one.add(COUNTER, 1)
        web.write()  # it was not gone after all: only what is new comes again
        assert stored() == 8
        assert fold_gone(own, gone_s=-1) == 1
        one.add(COUNTER, 2)
        web.write()
        web.write()
        assert (stored(), fold_gone(own, gone_s=GONE_AFTER_S)) == (10, 0)


def test_a_forked_process_counts_from_nothing_under_a_name_of_its_own(table: None) -> None:
    counts = Registry()
    parent = reporter(counts)
    counts.add(COUNTER, 5)
    parent.write()
    child = os.fork()
    if not child:
        try:
            counts.add(COUNTER, 2)
            parent.write()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (stored(), MetricSnapshot.objects.count()) == (7, 2)


def test_a_database_that_is_away_costs_no_count(table: None) -> None:
    counts = Registry()

    def refuse() -> psycopg.Connection[Any]:
        raise psycopg.OperationalError("away")

    away = Reporter(counts, refuse, "web")
    counts.add(COUNTER, 5)
    assert away.try_write() is False
    away.connect = connect
    assert (away.try_write(), stored()) == (True, 5)


def test_the_page(table: None, client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Registry()
    monkeypatch.setattr(metrics_reporting, "_own", reporter(counts))
    counts.add(metrics.QUERIES, 2, {telemetry.COLLECTION: "handbook"})
    other = Registry()
    other.add(metrics.QUERIES, 5, {telemetry.COLLECTION: "handbook"})
    reporter(other, "worker").write()
    answer = client.get("/metrics")
    assert answer["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = families(answer.content.decode())
    assert sample(found, "ragd_queries_total", ragd_collection="handbook") == 7
    assert sample(found, "ragd_jobs", state="failed") == 0
    assert sample(found, "ragd_queue_depth", lane="bulk") == 0
    assert found["ragd_jobs"].type == "gauge"
    settings.RAGD_METRICS_KEY = "k"
    assert [client.get("/metrics", headers=headers).status_code for headers in ({}, {"Authorization": "Bearer x"})] == [
        401,
        401,
    ]
    assert client.get("/metrics", headers={"Authorization": "Bearer k"}).status_code == 200
    assert client.post("/metrics").status_code == 405


def test_the_page_says_when_the_database_does_not_answer(
    table: None, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page, "READ_BRIEFLY", "SET LOCAL lock_timeout = '100ms'")
    with connect() as other, other.transaction():
        other.execute("LOCK TABLE metric_snapshots IN ACCESS EXCLUSIVE MODE")
        answer = client.get("/metrics")
    assert (answer.status_code, answer["Content-Type"]) == (503, "text/plain; charset=utf-8")
    assert client.get("/metrics").status_code == 200


PROCESS = """
import sys
from ragd_site import telemetry as site
site.set_up("cli")
import django
django.setup()
from tests.telemetry.examples import make_query_spans
for _ in range(int(sys.argv[1])):
    make_query_spans()
site.shut_down()
"""


def test_a_process_that_ends_leaves_its_counts(table: None, client: Client) -> None:
    """Two real processes, with the set-up of the site, one after the other."""
    Span.objects.all().delete()
    environment = os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
    for times in ("2", "3"):
        subprocess.run([sys.executable, "-c", PROCESS, times], env=environment, cwd=REPOSITORY, check=True, timeout=60)
    found = families(client.get("/metrics").content.decode())
    assert sample(found, "ragd_queries_total", ragd_collection="house", ragd_door="api") == 5
    assert sample(found, "ragd_spans_written_total") == Span.objects.count() > 5
    assert sample(found, "ragd_spans_lost_total") == 0
    assert sample(found, "gen_ai_client_operation_duration_count", gen_ai_operation_name="chat") == 5
    Span.objects.all().delete()


def database_url() -> str:
    values = connection.settings_dict
    who = ":".join(filter(None, (values["USER"], values["PASSWORD"])))
    return f"postgresql://{who}@{values['HOST']}:{values['PORT']}/{values['NAME']}"
