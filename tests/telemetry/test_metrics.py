"""What spans are counted as, what all processes counted together, and the page that Prometheus reads.
Metrics that leave for a collector, read with OpenTelemetry's own parser."""

from __future__ import annotations

import gzip
import http.server
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as SentMetric
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import Metric, values
from prometheus_client.parser import text_string_to_metric_families

from collections_app.jobs.workers import record_archive, record_backup, record_drill
from collections_app.models import Status
from evaluation_app.models import Span
from evaluation_app.telemetry.metrics import pages as metrics_page
from evaluation_app.telemetry.metrics.instruments import SERIES_MAX, Instruments, SpanMeter
from evaluation_app.telemetry.metrics.pages import read_metrics
from ragd import telemetry
from ragd.telemetry import metrics
from ragd_site.observability import tracing
from ragd_site.observability.tracing import connect, use_folder
from tests.conftest import REPOSITORY
from tests.fakes.serving import Serving
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import make_candidates, make_query_spans

MODEL_LABELS = dict(zip(metrics.MODEL, ("chat", "openai", "gpt-4o", "production"), strict=True))


@pytest.fixture
def counts(db: None, tmp_path: Path, settings: Any) -> Iterator[Instruments]:
    """Instruments that count in a folder of their own."""
    settings.RAGD_METRICS_FOLDER = tmp_path / "metrics"
    before = values.ValueClass
    use_folder(settings.RAGD_METRICS_FOLDER)
    yield Instruments()
    values.ValueClass = before


def scrape() -> dict[str, Metric]:
    return families(read_metrics().decode())


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


def test_text_is_read_by_a_real_parser(counts: Instruments) -> None:
    odd = 'a "quoted" \\ name\nover two lines, {braces} and ümlaut'
    labels = {**MODEL_LABELS, telemetry.REQUEST_MODEL: odd}
    counts.add(metrics.INFERENCE_REQUESTS, 2, labels)
    counts.add(metrics.INFERENCE_REQUESTS, 0.5, labels)
    counts.add(metrics.INFERENCE_REQUESTS, -7, labels)
    for value in (0.5, 1.0, 1.5, 99_999.0):
        counts.observe(metrics.STAGE_DURATION, value)
    found = scrape()
    assert found["aitf_inference_requests"].documentation == metrics.INFERENCE_REQUESTS.description
    assert found["aitf_inference_requests"].type == "counter"
    assert sample(found, "aitf_inference_requests_total", gen_ai_request_model=odd) == 2.5
    buckets = [sample(found, "ragd_stage_duration_bucket", le=bound) for bound in ("1.0", "2.0", "+Inf")]
    assert (buckets, sample(found, "ragd_stage_duration_sum")) == ([2, 3, 4], 100_002.0)
    assert sample(found, "ragd_stage_duration_count") == 4


def test_every_counted_metric_has_a_name_and_labels_of_its_own(counts: Instruments) -> None:
    for metric in metrics.COUNTED:
        (counts.add if metric.kind == "counter" else counts.observe)(metric, 1, dict.fromkeys(metric.labels, True))
    found = scrape()
    for metric in metrics.COUNTED:
        family = found[metric.name.replace(".", "_").removesuffix("_total")]
        labels = {name.replace(".", "_") for name in metric.labels}
        assert {name for one in family.samples for name in one.labels} - {"le"} == labels
        assert {one.labels[name] for one in family.samples for name in labels} <= {"true"}


def test_every_counter_and_histogram_is_counted() -> None:
    """Counting a metric that `COUNTED` lacks failed: ragd.queries.degraded, and what came behind it of the span."""
    declared = {value for value in vars(metrics).values() if isinstance(value, metrics.Metric)}
    assert {metric for metric in declared if metric.kind != "gauge"} == {*metrics.COUNTED}


def test_what_cannot_be_counted_is_an_error(counts: Instruments) -> None:
    with pytest.raises(ValueError, match="soon"):
        counts.observe(metrics.STAGE_DURATION, "soon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="colour"):
        counts.add(metrics.QUERIES, 1, {"colour": "blue"})


def test_too_many_series_are_counted_in_one(counts: Instruments) -> None:
    for number in range(SERIES_MAX + 50):
        counts.add(metrics.BLOCKED, 1, {telemetry.COLLECTION: f"c{number}"})
    found = scrape()
    assert len(found["aitf_security_requests_blocked"].samples) == SERIES_MAX + 1
    assert sample(found, "aitf_security_requests_blocked_total", ragd_collection=metrics.OVERFLOW) == 50


@pytest.fixture
def metered(provider: TracerProvider, recorder: Recorder, counts: Instruments) -> Iterator[Instruments]:
    recorder.onward = SpanMeter(counts)
    yield counts


def test_spans_become_metrics(metered: Instruments) -> None:
    make_query_spans(make_candidates(3))
    with pytest.raises(TimeoutError), telemetry.ChatCall("openai", "gpt-4o", stream=True):
        raise TimeoutError("no answer")
    found = scrape()
    chat = {"gen_ai_operation_name": "chat", "gen_ai_request_model": "gpt-4o"}
    assert sample(found, "aitf_inference_errors_total", **chat) == 1
    assert sample(found, "gen_ai_client_operation_duration_count", error_type="TimeoutError", **chat) == 1
    assert sample(found, "aitf_cost_total", ragd_collection="house", **chat) == pytest.approx(0.003)
    assert sample(found, "ragd_cost_unpriced_calls_total", **chat) == 1  # the one that failed
    assert sample(found, "ragd_stage_duration_count", ragd_stage="rag.fuse") == 1
    assert sample(found, "aitf_rag_retrieval_results_bucket", le="2.0") == 0
    assert sample(found, "aitf_rag_retrieval_results_bucket", le="5.0") == 1
    assert sample(found, "aitf_rag_retrievals_total", aitf_rag_retrieve_database="postgresql+pgvector") == 1
    assert sample(found, "aitf_rag_retrieval_results_count") == 1
    assert sample(found, "aitf_rag_retrieval_duration_count") == 1
    assert sample(found, "ragd_queries_total", ragd_status="ok", ragd_environment="production") == 1
    tokens = [one for one in found["gen_ai_client_token_usage"].samples if one.name.endswith("_sum")]
    assert {one.labels["gen_ai_token_type"] for one in tokens} == {"input", "output"}
    assert {one.labels["gen_ai_provider_name"] for one in tokens} >= {"openai", "ragd.test"}


def test_a_span_that_cannot_be_counted_holds_up_no_other(
    metered: Instruments, caplog: pytest.LogCaptureFixture
) -> None:
    with telemetry.ChatCall("openai", "odd") as call:
        telemetry.set_attributes(call.span, {telemetry.TIME_TO_FIRST_CHUNK: "soon"})
    for _ in range(2):
        with telemetry.ChatCall("openai", "gpt-4o") as call:
            call.finish("yes", input_tokens=5, output_tokens=1)
    found = scrape()
    assert sample(found, "aitf_inference_requests_total", gen_ai_request_model="gpt-4o") == 2
    assert "could not be counted" in caplog.text


def test_processes_are_added_up_and_a_fork_counts_for_itself(counts: Instruments) -> None:
    counts.add(metrics.QUERIES, 5)
    child = os.fork()
    if not child:
        counts.add(metrics.QUERIES, 2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert sample(scrape(), "ragd_queries_total") == 7
    counts.add(metrics.QUERIES, 1)
    assert sample(scrape(), "ragd_queries_total") == 8


def test_totals_of_others_are_counted_once(counts: Instruments, recorder: Recorder, provider: TracerProvider) -> None:
    total = 0
    recorder.onward = meter = SpanMeter(counts, {metrics.SPANS_WRITTEN: lambda: total})
    seen = []
    for current in (3, 3, 10, 0, 4):
        total = current
        with telemetry.ChatCall("openai", "gpt-4o") as call:
            call.finish("yes", input_tokens=5, output_tokens=1)
        seen.append(sample(scrape(), "ragd_spans_written_total"))
    total = 6
    meter.shutdown()
    assert (seen, sample(scrape(), "ragd_spans_written_total")) == ([3, 3, 10, 10, 14], 16)


def test_ages_of_backups_are_gauges(counts: Instruments) -> None:
    assert scrape()["ragd_backup_age"].samples == []
    record_backup({})
    record_archive({"until": (timezone.now() - timedelta(minutes=3)).isoformat()})
    record_drill({}, passed=False)
    found = scrape()
    assert {each.labels["ragd_backup_part"] for each in found["ragd_backup_age"].samples} == {"backup", "archive"}
    assert sample(found, "ragd_backup_age", ragd_backup_part="archive") == pytest.approx(180, abs=5)
    record_drill({}, passed=True)
    Status.objects.filter(name="backup").update(made_at=timezone.now() - timedelta(hours=2))
    record_drill({}, passed=False)
    found = scrape()
    assert sample(found, "ragd_backup_age", ragd_backup_part="drill") < 5, "that of the one that passed"
    assert sample(found, "ragd_backup_age", ragd_backup_part="backup") == pytest.approx(7200, abs=5)


def test_the_page(counts: Instruments, client: Client, settings: Any) -> None:
    counts.add(metrics.QUERIES, 7, {telemetry.COLLECTION: "handbook"})
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


ELSEWHERE: tuple[dict[str, Any], ...] = (
    {"REMOTE_ADDR": "192.0.2.7"},
    {"REMOTE_ADDR": "::ffff:192.0.2.7"},
    {"REMOTE_ADDR": ""},
    {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
    {"HTTP_X_REAL_IP": "127.0.0.1"},
    {"HTTP_FORWARDED": "for=127.0.0.1"},
    {"HTTP_VIA": "1.1 proxy"},
)


def test_without_a_key_only_this_machine_reads(counts: Instruments, client: Client, settings: Any) -> None:
    counts.add(metrics.QUERIES, 1, {telemetry.COLLECTION: "secret-plans"})
    for sender in ELSEWHERE:
        refused = client.get("/metrics", **sender)
        assert (refused.status_code, refused.get("WWW-Authenticate")) == (401, 'Bearer realm="ragd metrics"'), sender
        assert b"secret-plans" not in refused.content and b"RAGD_METRICS_KEY" in refused.content
    assert b"secret-plans" in client.get("/metrics").content
    assert b"secret-plans" in client.get("/metrics", REMOTE_ADDR="::1").content
    settings.RAGD_METRICS_KEY = "k"
    for sender in ELSEWHERE:
        sent = client.get("/metrics", headers={"Authorization": "Bearer k"}, **sender)
        assert b"secret-plans" in sent.content, sender


@pytest.mark.django_db
def test_scores_of_what_serves_are_gauges(
    house: Any, counts: Instruments, client: Client, django_assert_max_num_queries: Any
) -> None:
    from collections_app.models import Collection
    from evaluation_app.models import GoldenSet
    from retrieval_app.plans.services import choose_plan
    from tests.evaluation.made_runs import make_run

    plan = choose_plan(house, None, {}).plan
    index_version = Collection.objects.get(name="house").index_version
    birds, trees = (GoldenSet.objects.create(name=name, collection_name="house") for name in ("birds", "trees"))
    GoldenSet.objects.create(name="gone", collection_name="gone")
    serving = {"collection_name": "house", "index_version": index_version}

    def evaluate(golden_set: GoldenSet, correctness: float, **values: Any) -> Any:
        scores: dict[str, float | None] = {
            "correctness": correctness,
            "hit@10": 1.0,
            "f1": 0.3,
            "mrr@10": None,
            "adherence": 1.0,
        }
        return make_run([scores], golden_set=golden_set, plan=plan, **serving | values)

    evaluate(birds, 0.2)
    evaluate(birds, 0.75)
    evaluate(birds, 0.1, purpose="fix")
    evaluate(birds, 0.1, index_version=index_version + 1)
    evaluate(birds, 0.1, state="failed")
    evaluate(birds, 0.1, settings={"answers": True, "judge": "none", "cut": 10, "unit": "tokens", "llm_model": "m"})
    quoting = evaluate(trees, 0.5, answerer="extractive")
    quoting.summary["by_construction"] = ["adherence"]
    quoting.save()
    make_run([{"correctness": 0.1}], golden_set=None, plan=plan, **serving)
    with django_assert_max_num_queries(15):
        found = families(client.get("/metrics").content.decode())
    family = found["ragd_evaluation_score"]
    told = {tuple(each.labels.values()): each.value for each in family.samples}
    assert family.type == "gauge" and [*family.samples[0].labels] == [
        "ragd_collection",
        "ragd_golden_set",
        "ragd_measure",
    ]
    assert told == {
        ("house", "birds", "correctness"): 0.75, ("house", "birds", "hit@10"): 1.0,
        ("house", "birds", "adherence"): 1.0,
        ("house", "trees", "correctness"): 0.5, ("house", "trees", "hit@10"): 1.0,
    }, "quotations are supported by construction"  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_the_page_says_when_the_database_does_not_answer(
    counts: Instruments, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page, "READ_BRIEFLY", "SET LOCAL lock_timeout = '100ms'")
    with connect() as other, other.transaction():
        other.execute("LOCK TABLE ingest_jobs IN ACCESS EXCLUSIVE MODE")
        answer = client.get("/metrics")
    assert (answer.status_code, answer["Content-Type"]) == (503, "text/plain; charset=utf-8")
    assert client.get("/metrics").status_code == 200


PROCESS = """
import sys
from ragd_site.observability import tracing as site
site.set_up("cli")
import django
django.setup()
from tests.telemetry.examples import make_query_spans
for _ in range(int(sys.argv[1])):
    make_query_spans()
site.shut_down()
"""


@pytest.mark.django_db(transaction=True)
def test_a_process_that_ends_leaves_its_counts(client: Client, settings: Any, tmp_path: Path) -> None:
    """Two real processes, with the set-up of the site, one after the other."""
    Span.objects.all().delete()
    settings.RAGD_METRICS_FOLDER = tmp_path / "metrics"
    environment = os.environ | {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "ragd_site.settings",
        "RAGD_VAR": str(tmp_path),
    }
    for times in ("2", "3"):
        subprocess.run([sys.executable, "-c", PROCESS, times], env=environment, cwd=REPOSITORY, check=True, timeout=60)
    found = families(client.get("/metrics").content.decode())
    assert sample(found, "ragd_queries_total", ragd_collection="house", ragd_channel="api") == 5
    assert sample(found, "ragd_spans_written_total") == Span.objects.count() > 5
    assert sample(found, "ragd_spans_lost_total") == 0
    assert sample(found, "gen_ai_client_operation_duration_count", gen_ai_operation_name="chat") == 5
    Span.objects.all().delete()


def database_url() -> str:
    values = connection.settings_dict
    who = ":".join(filter(None, (values["USER"], values["PASSWORD"])))
    return f"postgresql://{who}@{values['HOST']}:{values['PORT']}/{values['NAME']}"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the requests that it takes; refuses them while `status` is not 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.taken: list[tuple[str, ExportMetricsServiceRequest]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.server.status == 200:
            self.server.taken.append((self.path, ExportMetricsServiceRequest.FromString(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    server = Collector()
    with Serving(server) as serving:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", serving.address)
        yield server


def by_name(request: ExportMetricsServiceRequest) -> dict[str, SentMetric]:
    [resource] = request.resource_metrics
    [scope] = resource.scope_metrics
    names = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert (names["service.name"], scope.scope.name) == ("ragd-web", "ragd")
    return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
def exporter(collector: Collector) -> tracing.CountingExporter:
    return tracing.CountingExporter()


def test_a_collector_gets_cumulative_counts_and_misses_nothing(
    collector: Collector, exporter: tracing.CountingExporter
) -> None:
    provider = tracing.build_provider(exporter, tracing.build_resource("web"))
    counts = Instruments(provider.get_meter("ragd"))
    exporter.count_failure = lambda: counts.add(metrics.OTLP_FAILURES, 1, {metrics.SIGNAL: "metrics"})
    counts.add(metrics.COST, 0.5, {"gen_ai.request.model": "gpt-4o"})
    counts.observe(metrics.TOKEN_USAGE, 5, {metrics.TOKEN_TYPE: "input"})
    collector.status = 400  # refused for good: an exporter does not ask again within one export
    provider.force_flush()
    assert collector.taken == []
    collector.status = 200
    counts.add(metrics.COST, 0.25, {"gen_ai.request.model": "gpt-4o"})
    provider.force_flush()
    [(path, request)] = collector.taken
    assert path == "/v1/metrics"
    found = by_name(request)
    cost = found["aitf.cost.total"]
    [point] = cost.sum.data_points
    assert (cost.unit, cost.sum.is_monotonic, point.as_double) == ("USD", True, 0.75)
    assert [(item.key, item.value.string_value) for item in point.attributes] == [("gen_ai.request.model", "gpt-4o")]
    assert cost.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    [tokens] = found["gen_ai.client.token.usage"].histogram.data_points
    assert (tokens.count, tokens.sum, list(tokens.bucket_counts)) == (1, 5, [0, 0, 1, *[0] * 12])
    assert tuple(tokens.explicit_bounds) == metrics.TOKEN_BUCKETS
    assert found["ragd.otlp.failures"].sum.data_points[0].as_int == 1
    provider.shutdown()


def test_the_end_of_a_process_sends_once_more(
    collector: Collector, exporter: tracing.CountingExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    meter = tracing.ReportingMeter(Instruments())
    meter.provider = tracing.build_provider(exporter, tracing.build_resource("web"))
    Instruments(meter.provider.get_meter("ragd")).add(metrics.QUERIES, 1)
    assert collector.taken == []
    meter.shutdown()
    assert [list(by_name(request)) for _, request in collector.taken] == [["ragd.queries"]]


def test_nothing_is_sent_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert not tracing.sends_metrics()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:9/v1/metrics")
    assert tracing.sends_metrics()
