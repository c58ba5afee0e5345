"""Every provider with every purpose that it offers, against a server that behaves as its documentation says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from django.conf import settings as site

from collections_app.endpoints.connection_test import last_tests, list_models, run_test
from collections_app.endpoints.endpoints import DATABASE, ModelEndpoint, chat_endpoint, judge_endpoint, stored
from collections_app.endpoints.model_presets import CHAT, EMBEDDINGS, JUDGE, PRESETS, PURPOSES, RERANK, chat_preset_of
from collections_app.endpoints.model_settings import SettingValues, save_setting
from collections_app.index.stores import embedder_for, open_rerankers
from collections_app.models import ModelSetting, Status
from evaluation_app.scoring import judge_selection
from retrieval_app.llm.chat_model import Endpoint, ModelParameters, complete
from tests.fakes.model_providers import KEY, SERVERS, ProviderServer, logistic
from tests.fakes.rerank_server import word_share

pytestmark = pytest.mark.django_db
CASES = [(key, purpose) for key, preset in PRESETS.items() for purpose in PURPOSES if preset.offers(purpose)]
TEXTS = ["The pump moves water.", "Rivers carry water to the sea.", "Trees are tall."]


@pytest.fixture(autouse=True)
def fresh(settings: Any) -> Iterator[None]:
    for name in ("EMBED", "LLM", "JUDGE", "RERANK"):
        setattr(settings, f"RAGD_{name}_BASE_URL", "")
        setattr(settings, f"RAGD_{name}_API_KEY", "")
    stored.forget()
    yield
    stored._rows, stored._read_at = (), 0.0


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, ProviderServer]]:
    running = {key: kind() for key, kind in SERVERS.items()}
    for server in running.values():
        server.start()
    yield running
    for server in running.values():
        server.stop()


def values_for(server: ProviderServer, key: str, purpose: str, **changes: Any) -> SettingValues:
    values = SettingValues(
        name=f"{key} {purpose}",
        purpose=purpose,
        preset=key,
        base_url=server.base(purpose),
        model="our-model",
        key=KEY if server.keyed else None,
        dims=server.own_dims if purpose == EMBEDDINGS else None,
    )
    return replace(values, **changes)


@pytest.mark.parametrize(("key", "purpose"), CASES)
def test_a_preset_works_as_its_provider_says(key: str, purpose: str, servers: dict[str, ProviderServer]) -> None:
    server = servers[key]
    row = save_setting(values_for(server, key, purpose), actor=None)
    before = len(server.requests)
    if PRESETS[key].models_path:
        assert list_models(stored.of(purpose)[0]) == (sorted(server.models), None)
        assert [each.method for each in server.requests[before:]] == ["GET"], "no model is called"
        before += 1
    result = run_test(stored.of(purpose)[0])
    assert (result.passed, result.kind, result.message) == (True, "", "")
    assert result.took_ms > 0 and len(server.requests) == before + 1, "one real call"
    assert result.dims == (server.own_dims if purpose == EMBEDDINGS else None)
    assert last_tests([stored.of(purpose)[0]]) == [result]
    if purpose == EMBEDDINGS:
        embedder = embedder_for(row.identity, server.own_dims)
        vectors = np.asarray(embedder.embed(TEXTS))
        assert vectors.shape == (3, server.own_dims) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        told_apart = key in ("jina", "cohere")
        assert np.allclose(embedder.embed_query(TEXTS[0]), vectors[0], atol=1e-6) is not told_apart
    elif purpose == RERANK:
        scores = open_rerankers()["endpoint"].score("water pump", TEXTS)
        expected = [word_share("water pump", text) for text in TEXTS]
        assert scores == pytest.approx([logistic(12 * e - 6) for e in expected] if key == "llama_cpp" else expected)
        assert open_rerankers()[row.name] is open_rerankers()["endpoint"]
    else:
        found = chat_endpoint() if purpose == CHAT else judge_endpoint()
        assert found is not None and found.setting_id == row.pk
        endpoint = Endpoint.of(found, timeout_s=5, max_tokens=50)
        fields = ModelParameters().request(max_tokens=50, limit_name=endpoint.limit_name)
        answer = complete(endpoint, found.model, [{"role": "user", "content": "hello"}], **fields)
        assert answer.text == "You said: hello"
        assert server.requests[-1].body.get("random_seed" if key == "mistral" else "seed") == 7
        if purpose == JUDGE:
            assert judge_selection.judge_model() == "our-model"
            assert judge_selection.judge_endpoint().base_url == server.base(JUDGE)


def test_azure_asks_a_deployment_with_an_api_version(servers: dict[str, ProviderServer]) -> None:
    server = servers["azure"]
    save_setting(values_for(server, "azure", EMBEDDINGS, model="my embed", api_version="2024-10-21"), actor=None)
    assert run_test(stored.of(EMBEDDINGS)[0]).passed
    assert server.requests[-1].path == "/openai/deployments/my%20embed/embeddings?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("key", "field"), [("openai", "dimensions"), ("mistral", "output_dimension"), ("cohere", "output_dimension")]
)
def test_dimensions_are_requested_by_the_providers_name(
    key: str, field: str, servers: dict[str, ProviderServer]
) -> None:
    values = values_for(servers[key], key, EMBEDDINGS, dims=8, send_dimensions=True)
    row = save_setting(values, actor=None)
    assert run_test(stored.of(EMBEDDINGS)[0]).dims == 8
    assert len(embedder_for(row.identity, 8).embed(["one"])[0]) == 8
    assert servers[key].requests[-1].body[field] == 8


def test_more_texts_than_a_provider_takes_go_in_several_requests(servers: dict[str, ProviderServer]) -> None:
    save_setting(values_for(servers["tei"], "tei", EMBEDDINGS), actor=None)
    assert site.RAGD_EMBED_BATCH_SIZE > 32
    assert len(embedder_for("our-model", 16).embed([f"text {number}" for number in range(40)])) == 40


def test_every_provider_says_what_it_needs() -> None:
    assert set(SERVERS) == set(PRESETS)
    for key, preset in PRESETS.items():
        assert preset.key == key and preset.needs and preset.documentation.startswith("https://")
        assert set(preset.models) <= set(preset.addresses) <= set(PURPOSES)


def test_chat_requests_of_the_environment_follow_the_host() -> None:
    assert chat_preset_of("").key == "openai"
    assert chat_preset_of("https://api.mistral.ai/v1").seed_name == "random_seed"
    assert chat_preset_of("http://127.0.0.1:8000/v1").limit_name == "max_tokens"


def test_a_result_is_kept_for_a_model_at_an_address(servers: dict[str, ProviderServer]) -> None:
    endpoint = ModelEndpoint(EMBEDDINGS, DATABASE, servers["ollama"].base(EMBEDDINGS), "m", "")
    run_test(endpoint)
    assert [bool(test) for test in last_tests([endpoint, replace(endpoint, model="n")])] == [True, False]
    assert Status.objects.count() == 1 and not ModelSetting.objects.exists()
