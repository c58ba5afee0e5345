"""What calls cost: by the kept table, by entered prices, not at all; on spans, runs and in the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from collections_app.collections.services import create_collection
from collections_app.documents.services import reindex_documents
from collections_app.endpoints import prices
from collections_app.endpoints.prices import delete_price, find_cost, save_price, table_version
from collections_app.errors import ServiceError
from collections_app.index.stores import LOCAL_MODEL
from collections_app.models import AuditEvent, Collection, IngestJob, ModelPrice
from evaluation_app.telemetry.overview.figures import priced_models
from ragd import telemetry
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import build_plan
from retrieval_app.search.query_pipeline import QueryRequest, ask
from tests.fakes.faults import failing, without
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with
from tests.retrieval.corpus import bearer, post
from tests.telemetry.conftest import Recorder
from tests.telemetry.test_question_traces import make_span
from tests.telemetry.test_spans import attributes

pytestmark = pytest.mark.django_db
QUESTION = {"query": "How many litres does the pump move?", "k": 3}
COSTS = ("aitf.cost.", "llm.cost.", "ragd.cost.")


@pytest.fixture(autouse=True)
def entered(monkeypatch: pytest.MonkeyPatch) -> Iterator[prices.EnteredPrices]:
    """Read where they are changed, over the test's connection."""
    known = prices.EnteredPrices()
    known.read()
    monkeypatch.setattr(prices, "entered", known)
    yield known


def costs(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name.startswith(COSTS)}


def test_the_table_prices_by_provider_and_model() -> None:
    cost = find_cost("openai", "gpt-4o", 1000, 100, 500)
    assert cost is not None
    assert (cost.input, cost.output) == pytest.approx((0.001875, 0.001))
    assert (cost.source, cost.version, cost.input_per_million) == ("table", table_version(), 2.5)
    assert find_cost("mistral_ai", "mistral-large-latest", 1000, 0, 0) is not None
    tiered = find_cost("anthropic", "claude-sonnet-4-5", 150, 500, 0)
    assert tiered is not None and tiered.total == pytest.approx(0.00795) and tiered.input_per_million is None
    embedding = find_cost("openai", "text-embedding-3-small", 1_000_000, 0, 0)
    assert embedding is not None and (embedding.total, embedding.output) == (0.02, 0)


@pytest.mark.parametrize(
    ("system", "model"),
    [
        ("openai", "a-model-of-ours"),
        ("openai_compatible", "gpt-4o"),  # the same name in another house
        ("ragd.local", "all-MiniLM-L6-v2"),
        ("ragd.extractive", "extractive"),
        ("", "gpt-4o"),
    ],
)
def test_what_nobody_prices_has_no_cost(system: str, model: str) -> None:
    assert find_cost(system, model, 1000, 100, 0) is None


def test_entered_prices_go_before_the_table(django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        row = save_price("gpt-4o", input_per_million=1, output_per_million=2, cached_input_per_million=0.5, actor=None)
        save_price("gpt-4o", system="azure.ai.openai", input_per_million=7, actor=None)
    cost = find_cost("openai", "gpt-4o", 1_000_000, 1_000_000, 400_000)
    assert cost == telemetry.Cost(0.8, 2.0, "override", "", 1, 2)
    here = find_cost("openai_compatible", "gpt-4o", 1_000_000, 0, 0)
    other = find_cost("azure.ai.openai", "gpt-4o", 1_000_000, 5, 0)
    assert here is not None and other is not None
    assert (here.total, other.total) == (1.0, 7.0)
    with django_capture_on_commit_callbacks(execute=True):
        save_price("gpt-4o", input_per_million=0, actor=None)
    free = find_cost("openai", "gpt-4o", 1000, 1000, 0)
    assert free is not None and free.total == 0  # entered as free, which is a price
    with django_capture_on_commit_callbacks(execute=True):
        delete_price(row, actor=None)
    table = find_cost("openai", "gpt-4o", 1000, 0, 0)
    assert table is not None and table.source == "table"
    assert AuditEvent.objects.filter(actor_name="the system", subject_kind="modelprice").count() == 4


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"model": " "}, "model"),
        ({"system": "ragd.local"}, "system"),
        ({"input_per_million": -1}, "input_per_million"),
        ({"output_per_million": float("nan")}, "output_per_million"),
        ({"cached_input_per_million": float("inf")}, "cached_input_per_million"),
    ],
)
def test_wrong_prices_are_refused_by_name(values: dict[str, Any], field: str) -> None:
    with raises_with(ServiceError, status=422, field=field):
        save_price(**{"model": "m", "input_per_million": 1.0, "actor": None, **values})
    assert not ModelPrice.objects.exists()


def test_a_run_is_priced_on_its_spans_and_in_the_answer(
    house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        save_price("gpt-4o-mini", input_per_million=10, output_per_million=100, actor=None)
    telemetry.configure(pricer=find_cost)
    recorder.spans.clear()
    status, body = post(client, "/v1/collections/house/ask", QUESTION, bearer())
    assert status == 200
    found = attributes(recorder.named("chat gpt-4o-mini"))
    tokens = body["token_usage"]
    spent = (tokens["context_tokens"] * 10 + tokens["generation_tokens"] * 100) / 1e6
    assert found["aitf.cost.total_cost"] == found["llm.cost.total"] == pytest.approx(spent)
    assert found["aitf.cost.input_cost"] + found["aitf.cost.output_cost"] == pytest.approx(spent)
    assert (found["ragd.cost.source"], found["aitf.cost.currency"]) == ("override", "USD")
    assert body["cost_usd"] == pytest.approx(spent)
    run = QueryRun.objects.get(pk=body["run_id"])
    assert run.cost_usd == pytest.approx(spent)
    assert client.get(f"/v1/runs/{run.pk}", headers=bearer()).json()["cost_usd"] == pytest.approx(spent)
    local = [attributes(span) for span in recorder.spans if span.name.startswith("embeddings ")]
    assert local and not any(costs(each) for each in local)


@pytest.mark.parametrize(
    "fault", ["unknown model", "failed", "no pricer", "usage not reported", "local only"], ids=lambda fault: fault
)
def test_a_run_whose_cost_is_not_known_has_none(
    house: Collection,
    fault: str,
    client: Client,
    recorder: Recorder,
    chat: OpenAIServer,
    settings: Any,
    django_capture_on_commit_callbacks: Any,
) -> None:
    known = "another" if fault == "unknown model" else "gpt-4o-mini"
    with django_capture_on_commit_callbacks(execute=True):
        save_price(known, input_per_million=10, actor=None)
    telemetry.configure(pricer=None if fault == "no pricer" else find_cost)
    if fault == "failed":
        chat.script(*[failing(400)] * 3)
    if fault == "usage not reported":
        chat.script(without("usage"))
    question = QUESTION | ({"llm_model": "extractive"} if fault == "local only" else {})
    recorder.spans.clear()
    post(client, "/v1/collections/house/ask", question, bearer())
    run = QueryRun.objects.get()
    found = attributes(recorder.named("chat "))
    if fault == "usage not reported":  # counted here, and said so: an estimate of a known price
        assert found["ragd.usage.estimated"] is True
        assert run.cost_usd == found["aitf.cost.total_cost"] > 0
    else:
        assert (run.cost_usd, costs(found)) == (None, {})


def test_a_pricer_that_fails_holds_nothing_up(recorder: Recorder) -> None:
    def fail(*asked: object) -> None:
        raise RuntimeError("no table")

    telemetry.configure(pricer=fail)
    with telemetry.spending() as outer, telemetry.spending() as inner:
        with telemetry.ChatCall("openai", "gpt-4o") as call:
            call.finish("yes", input_tokens=5, output_tokens=1)
        with telemetry.ChatCall("openai", "gpt-4o") as call:
            call.cost = telemetry.Cost(0.5, 0.25, "provider")
            call.finish("yes", input_tokens=5, output_tokens=1)
    assert (inner, inner.total_usd) == (telemetry.Spending(1, 1, 0.75, 12), None)
    assert outer == inner
    assert [costs(attributes(span)).get("ragd.cost.source") for span in recorder.spans] == [None, "provider"]


def test_prices_in_the_admin(admin_client: Client, admin_user: User) -> None:
    add = reverse("admin:collections_app_modelprice_add")
    values = {"model": "m", "system": "", "input_per_million": "2", "output_per_million": "8", "note": "contract"}
    assert "US dollars per million tokens read" in admin_client.get(add).content.decode()
    assert admin_client.post(add, values | {"system": "ragd.local"}).status_code == 200
    assert not ModelPrice.objects.exists()
    assert admin_client.post(add, values).status_code == 302
    row = ModelPrice.objects.get()
    change = reverse("admin:collections_app_modelprice_change", args=[row.pk])
    admin_client.post(change, values | {"input_per_million": "3"})
    row.refresh_from_db()
    assert (row.input_per_million, row.cached_input_per_million) == (3, None)
    admin_client.post(reverse("admin:collections_app_modelprice_delete", args=[row.pk]), {"post": "yes"})
    assert not ModelPrice.objects.exists()
    entries = AuditEvent.objects.filter(actor_name=admin_user.username).values_list("action", flat=True)
    assert sorted(entries) == ["modelprice.add", "modelprice.change", "modelprice.delete"]


def test_a_job_keeps_what_its_embeddings_cost(
    client: Client, openai_server: OpenAIServer, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.RAGD_EMBED_BASE_URL, settings.RAGD_EMBED_API_KEY = openai_server.base_url, openai_server.api_key
    telemetry.configure(pricer=find_cost)
    dims = openai_server.dims
    dear = create_collection(name="dear", embed_model="text-embedding-3-small", embed_dims=dims)
    upload = SimpleUploadedFile("a.md", b"The pump moves 400 litres per minute.")
    with django_capture_on_commit_callbacks(execute=True):
        sent = client.post("/v1/collections/dear/documents", {"files": [upload]}, headers=bearer())
    assert sent.status_code == 202, sent.content
    job = IngestJob.objects.get(collection=dear)
    assert (job.state, job.cost, job.cost_usd) == ("succeeded", {"usd": 0, "priced": 0, "unpriced": 1}, None)
    with django_capture_on_commit_callbacks(execute=True):
        save_price("text-embedding-3-small", input_per_million=1_000_000, actor=None)
    with django_capture_on_commit_callbacks(execute=True):
        reindex_documents(dear, ["a.md"])
    again = IngestJob.objects.exclude(pk=job.pk).get()
    assert again.state == "succeeded" and again.cost_usd is not None and again.cost_usd >= 1, again.cost
    assert client.get(f"/v1/jobs/{again.pk}", headers=bearer()).json()["cost_usd"] == again.cost_usd


def test_the_page_says_which_model_has_which_price(
    admin_client: Client, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.RAGD_EMBED_BASE_URL = "http://127.0.0.1:9/v1"
    create_collection(name="near")
    create_collection(name="far", embed_model="text-embedding-3-small", embed_dims=8)
    asked = {telemetry.OPERATION_NAME: "chat", telemetry.PROVIDER_NAME: "groq", telemetry.REQUEST_MODEL: "our-own"}
    for number in range(3):
        make_span(
            f"chat our-own {number}",
            started_at=timezone.now(),
            model="our-own",
            type="gen_ai.inference",
            attributes=asked,
            input_tokens=100,
            output_tokens=10,
        )
    with django_capture_on_commit_callbacks(execute=True):
        save_price("text-embedding-3-small", input_per_million=0.5, actor=None)
    found = {row.model: row for row in priced_models()}
    assert {name: (row.source, row.is_local, row.calls) for name, row in found.items()} == {
        LOCAL_MODEL: ("", True, 0),
        "text-embedding-3-small": ("override", False, 0),
        "our-own": ("", False, 3),
    }
    assert (found["text-embedding-3-small"].input, found["our-own"].unpriced_calls) == (pytest.approx(0.5), 3)
    overview = admin_client.get(reverse("evaluation:traces")).context["total"]["tokens"]
    assert sum(row.tokens for row in found.values()) == overview == 330
    text = admin_client.get(reverse("collections:models")).content.decode()
    assert "local, no price" in text and ">entered<" in text
    assert f'<a href="{escape(found["our-own"].calls_href)}">3</a>' in text
    assert admin_client.get(found["our-own"].calls_href).status_code == 200
    form = admin_client.get(found["our-own"].enter_href).content.decode()
    assert 'value="our-own"' in form and 'value="groq"' in form


class Quiet:
    """Hears an answer and says nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *heard, **more: None


def test_a_streamed_answer_has_the_same_cost(
    house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        save_price("gpt-4o-mini", input_per_million=10, output_per_million=100, actor=None)
    telemetry.configure(pricer=find_cost)
    plan = build_plan(house, k=3)
    runs = [ask(QueryRequest(house, QUESTION["query"], plan, "api"), listener=each) for each in (None, Quiet())]
    [whole, streamed] = [run.cost_usd for run in runs]
    assert whole is not None and whole > 0 and streamed == whole
    spans = [attributes(span) for span in recorder.spans if span.name.startswith("chat ")]
    assert [(each["gen_ai.request.stream"], each["llm.cost.total"]) for each in spans] == [
        (False, whole),
        (True, whole),
    ]
