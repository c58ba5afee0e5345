"""Of which environment spans, runs, sums and metrics are, and that pages show production unless something else is
chosen."""

from __future__ import annotations

import html
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from evaluation_app.models import Span, SpanRollup
from evaluation_app.telemetry.overview.figures import (
    OVER_ALL,
    FigureFilter,
    consumption,
    period_until,
    roll_up,
    stage_figures,
)
from evaluation_app.telemetry.store.exporter import span_columns
from ragd import telemetry
from ragd_site.observability.tracing import LIMITS, EnvironmentProcessor, RagdSampler
from retrieval_app.models import QueryRun
from retrieval_app.runs.receipts import search_again
from tests.retrieval.corpus import bearer, get
from tests.telemetry.conftest import Recorder

PIPELINE_TYPE = "aitf.rag.pipeline"


@pytest.fixture
def spans_of() -> Any:
    """A provider with the site's processor; call it for the environments of its finished spans by name."""
    recorder = Recorder()
    recorder.recording = True
    provider = TracerProvider(sampler=RagdSampler(), span_limits=LIMITS)
    provider.add_span_processor(EnvironmentProcessor())
    provider.add_span_processor(recorder)

    def read() -> dict[str, Any]:
        return {span.name: (span.attributes or {}).get(telemetry.ENVIRONMENT) for span in recorder.spans}

    read.tracer = provider.get_tracer("django")  # type: ignore[attr-defined]
    return read


def request_of(spans_of: Any, path: str) -> Any:
    return spans_of.tracer.start_as_current_span("GET", kind=SpanKind.SERVER, attributes={"url.path": path})


@pytest.mark.parametrize(
    ("path", "environment"),
    [
        ("/evaluation/board/", "interface"),
        ("/accounts/login/", "interface"),
        ("/v1/collections/house/search", "production"),
        ("/mcp", "production"),
    ],
)
def test_a_request_is_of_the_interface_or_of_production(spans_of: Any, path: str, environment: str) -> None:
    with request_of(spans_of, path):
        spans_of.tracer.start_span("inside").end()
    assert spans_of() == {"GET": environment, "inside": environment}


def test_the_environment_around_it_reaches_every_span_of_the_trace(spans_of: Any, recorder: Recorder) -> None:
    with (
        spans_of.tracer.start_as_current_span("run/evaluate", kind=SpanKind.CONSUMER),
        telemetry.environment("evaluation"),
        telemetry.pipeline_span("house", "which pump", telemetry.QueryOrigin(str(uuid4()))),
        telemetry.ChatCall("a", "b"),
    ):
        spans_of.tracer.start_span("SELECT").end()
    assert set(spans_of().values()) == {"evaluation"}
    assert {(span.attributes or {})[telemetry.ENVIRONMENT] for span in recorder.spans} == {"evaluation"}


def test_a_question_on_a_page_is_of_production_with_its_request(spans_of: Any, recorder: Recorder) -> None:
    with request_of(spans_of, "/chat/"), telemetry.pipeline_span("house", "which pump"):
        pass
    assert spans_of() == {"GET": "production"}
    assert (recorder.named("rag.pipeline").attributes or {})[telemetry.ENVIRONMENT] == "production"
    assert telemetry.current_environment() == ""


def test_a_later_judgement_is_evaluation_and_leaves_its_request_alone(spans_of: Any, recorder: Recorder) -> None:
    with request_of(spans_of, "/traces/"), telemetry.evaluate_later_span("house", trace_id="a" * 32, span_id="b" * 16):
        pass
    assert spans_of() == {"GET": "interface"}
    assert (recorder.named("rag.evaluate").attributes or {})[telemetry.ENVIRONMENT] == "evaluation"


def test_an_environment_is_one_of_four() -> None:
    with pytest.raises(ValueError, match="production"), telemetry.environment("staging"):
        pass
    assert not trace.get_current_span().is_recording()


@pytest.mark.django_db
def test_runs_are_of_the_environment_that_asked(client: Client, admin_client: Client) -> None:
    collection = create_collection(name="house")
    ingest_text(collection, "pump.md", "The pump hums.", title="Pump")
    key = bearer(scope="write")
    asked = client.post(
        "/v1/collections/house/search", {"query": "pump"}, content_type="application/json", headers=key
    ).json()["run_id"]
    first = QueryRun.objects.get(pk=asked)
    search_again(first, channel="api")
    assert admin_client.get("/collections/house/playground/?q=pump").status_code == 200
    found = list(QueryRun.objects.order_by("created_at").values_list("environment", "channel"))
    assert found == [("production", "api"), ("playground", "api"), ("playground", "page")]
    for wanted, count in (("production", 1), ("playground", 2), ("evaluation", 0)):
        _, body = get(client, f"/v1/runs?environment={wanted}", key)
        assert {item["environment"] for item in body["items"]} <= {wanted} and len(body["items"]) == count
    assert get(client, "/v1/runs?environment=moon", key)[0] == 422


def add_span(number: int, began: datetime, name: str = "rag.pipeline house", **values: Any) -> Span:
    attributes = {telemetry.ENVIRONMENT: values.pop("environment", "production"), **values.pop("attributes", {})}
    columns = span_columns(name, "ragd", "", attributes)._asdict()
    return Span.objects.create(
        trace_id=f"{number:032x}", span_id=f"{number:016x}", name=name, kind="INTERNAL", scope="ragd",
        started_at=began, ended_at=began, duration_ms=5.0, attributes=attributes, status_code="OK",
        **columns | values,
    )  # fmt: skip


@pytest.mark.django_db
def test_sums_tell_environments_apart_rolled_up_or_not() -> None:
    hour = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    tokens = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 1}
    for number, (name, count) in enumerate((("production", 2), ("evaluation", 5), ("playground", 1))):
        for index in range(count):
            moment = hour - timedelta(hours=3) if index % 2 else hour
            add_span(100 * number + 2 * index, moment, environment=name)
            add_span(100 * number + 2 * index + 1, moment, "chat a", environment=name, attributes=tokens)

    def figures() -> dict[str, tuple[int, int]]:
        result = {}
        for name in ("production", "evaluation", "playground", ""):
            part = FigureFilter(period_until("24h"), environment=name)
            read = sum(each.input_tokens for each in consumption(part, "model"))
            result[name] = (stage_figures(part)[PIPELINE_TYPE].spans, read)
        return result

    expected = {"production": (2, 20), "evaluation": (5, 50), "playground": (1, 10), "": (8, 80)}
    assert figures() == expected
    assert roll_up() == 1
    assert set(SpanRollup.objects.filter(summed_over=OVER_ALL).values_list("environment", flat=True)) == {
        "production",
        "evaluation",
    }
    assert figures() == expected


@pytest.fixture(scope="module")
def traffic(module_db: None) -> None:
    """3 questions of production, 4 of evaluation and 2 of the playground, each a run with its root span, and a page."""
    now = timezone.now()
    number = 0
    for environment, count in (("production", 3), ("evaluation", 4), ("playground", 2)):
        for _ in range(count):
            number += 1
            moment = now - timedelta(minutes=number)
            run = QueryRun.objects.create(
                kind="ask", collection_name="house", query=f"{environment} {number}?", channel="api",
                environment=environment, created_at=moment, timings_ms={"total": 5.0},
            )  # fmt: skip
            add_span(number, moment, environment=environment, run_id=run.pk)
    add_span(50, now - timedelta(minutes=50), "GET evaluation/board/", environment="interface")


@pytest.mark.django_db
def test_traces_and_runs_show_the_same_number_of_queries(admin_client: Client, traffic: None) -> None:
    overview = admin_client.get("/traces/?period=7d").context["whole"].spans
    runs = admin_client.get("/activity/?period=7d").context["page"].paginator.count
    listed = len(admin_client.get("/activity/traces/").context["list"].rows)
    assert (overview, runs, listed) == (3, 3, 3)


@pytest.mark.django_db
def test_lists_show_production_unless_another_is_chosen(admin_client: Client, traffic: None) -> None:
    for address, counts in (
        ("/activity/", {"": 3, "production": 3, "evaluation": 4, "playground": 2, "all": 9}),
        ("/activity/traces/", {"": 3, "production": 3, "evaluation": 4, "playground": 2, "interface": 0, "all": 9}),
        ("/activity/spans/", {"": 3, "production": 3, "evaluation": 4, "playground": 2, "interface": 1, "all": 10}),
    ):
        for environment, count in counts.items():
            response = admin_client.get(f"{address}?environment={environment}" if environment else address)
            rows = response.context["page"] if address == "/activity/" else response.context["list"].rows
            assert len(rows) == count, (address, environment)


@pytest.mark.django_db
def test_a_list_without_production_leads_to_the_environments_that_match(admin_client: Client, traffic: None) -> None:
    wanted: dict[str, dict[str, int]] = {
        "/activity/": {"Evaluation": 4, "Playground": 2},
        "/traces/?period=24h": {"Evaluation": 4, "Playground": 2, "Interface": 1},
        "/activity/traces/": {"Evaluation": 4, "Playground": 2},
        "/activity/spans/": {"Evaluation": 4, "Playground": 2, "Interface": 1},
        "/activity/spans/?collection=shed": {},
    }
    for address in wanted:
        assert not admin_client.get(address).context.get("other_environments") or "shed" in address
    Span.objects.filter(environment="production").delete()
    QueryRun.objects.of_production().delete()
    for address, others in wanted.items():
        response = admin_client.get(address)
        assert {label: count for label, count, _ in response.context["other_environments"]} == others, address
        for _, count, href in response.context["other_environments"]:
            assert f'href="{html.escape(href)}"' in response.content.decode()
            opened = admin_client.get(address.split("?")[0] + href).context
            stages = sum(row.stage.spans for row in opened.get("stages", ()))
            assert count == (stages or len(opened["list"].rows or opened["page"]))
        everything = admin_client.get(f"{address}{'&' if '?' in address else '?'}environment=all")
        assert not everything.context.get("other_environments")


@pytest.mark.django_db
def test_the_spans_of_an_environment_over_the_api(client: Client, traffic: None) -> None:
    key = bearer(scope="read")
    for environment, count in (("production", 3), ("interface", 1), ("all", 10)):
        status, body = get(client, f"/v1/spans?environment={environment}", key)
        assert (status, len(body["items"])) == (200, count)
    assert len(get(client, "/v1/spans", key)[1]["items"]) == 10
    assert len(get(client, "/v1/spans?where=environment == 'playground'", key)[1]["items"]) == 2
    status, body = get(client, "/v1/spans?environment=moon", key)
    assert (status, body["error"]["field"]) == (422, "environment")
