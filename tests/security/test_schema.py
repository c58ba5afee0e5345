"""The API against its own description: nothing fails, every answer is described, and what is valid is taken."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from django.test import Client

from collections_app.models import Collection
from ragd.identity import DOC_ID_MAX_CHARS, NAME_MAX_CHARS
from ragd_site import web
from ragd_site.api import openapi_document
from tests.api.conftest import Api
from tests.api.conftest import api as api
from tests.api.conftest import embeddings as embeddings
from tests.api.conftest import notes as notes
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.openai_server import openai_server as openai_server
from tests.security.schema_cases import ACCEPTED, examine, in_process, show

REQUESTS = 320


def described() -> Any:
    return json.loads(openapi_document.read())


@pytest.mark.timeout(300)
def test_the_api_keeps_to_its_description(
    api: Api, notes: Collection, openai_server: OpenAIServer, settings: Any
) -> None:
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, openai_server.api_key
    settings.RAGD_LLM_MODEL = "gpt-4o-mini"
    api.put("/collections/notes/documents/a", {"content": "The pump moves water."})
    report = examine(
        schemathesis.openapi.from_dict(described()),
        {"doc_id": ["a"], "collection": ["notes"]},
        headers={"Authorization": f"Bearer {api.secret}"},
        requests=REQUESTS,
        send=in_process(Client()),
    )
    show(report)
    total = sum(len(path) for path in described()["paths"].values())
    assert report.requests >= 1.9 * total and len(report.operations) == total
    assert report.statuses[200] > 50, "the requests get past the key and the look-ups"
    assert {name: found for name, found in report.examples.items() if found and name != ACCEPTED} == {}


@pytest.mark.parametrize("value", [True, False, "3", 1e308, 2.5])
def test_a_whole_number_is_no_boolean_text_or_fraction(api: Api, notes: Collection, value: Any) -> None:
    for path, body in (
        ("/collections/notes/chunks/0/a", {"enabled": False, "revision": value}),
        ("/collections/notes", {"chunk_policy": {"target_tokens": value}}),
        ("/collections/notes/overlays/1", {"chunk_index": value}),
    ):
        response = api.send("PATCH", path, body)
        assert (response.status_code, response.json()["error"]["type"]) == (422, "invalid_input"), path


def test_a_whole_number_with_a_point_is_one(api: Api, notes: Collection) -> None:
    answer = api.send("PATCH", "/collections/notes", {"chunk_policy": {"target_tokens": 30.0}})
    assert (answer.status_code, answer.json()["chunk_policy_stated"]["target_tokens"]) == (200, 30)


def test_a_policy_that_no_integer_of_the_database_holds_is_refused(api: Api, notes: Collection) -> None:
    """It was kept, and the page of outliers failed from then on."""
    answer = api.send("PATCH", "/collections/notes", {"chunk_policy": {"target_tokens": 10**40}})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "target_tokens")


def test_the_description_states_what_services_demand() -> None:
    schemas = described()["components"]["schemas"]
    assert schemas["CollectionRequest"]["properties"]["name"]["maxLength"] == 128
    assert schemas["CollectionBrief"]["properties"]["name"].keys() & {"maxLength", "pattern"} == set(), "an answer"
    margin = schemas["GateRequest"]["properties"]["margin"]
    assert [(part["minimum"], part["maximum"]) for part in margin["anyOf"]] == [(0, 1), (0, 1)]
    listed = described()["paths"]["/v1/runs"]["get"]["parameters"]
    assert next(item["schema"] for item in listed if item["name"] == "limit")["anyOf"][0]["maximum"] == 500
    assert "404" in described()["paths"]["/v1/runs/{run_id}/spans"]["get"]["responses"]


def test_the_longest_name_and_doc_id_make_an_address_that_the_server_reads() -> None:
    """Ids of 512 characters outside of the Basic Multilingual Plane were answered with 414."""
    encoded = len(quote("\U0001f9dc"))
    path = max(len(path) for path in described()["paths"] if "{doc_id}" in path)
    assert (NAME_MAX_CHARS + DOC_ID_MAX_CHARS) * encoded + path + 40 < web.limit_request_line
