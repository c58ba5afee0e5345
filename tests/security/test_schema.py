"""The API against its own description: nothing fails, every answer is described, what is valid is taken."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import schemathesis
from django.test import Client

from ragd_site.api import openapi_document
from tests.api.conftest import api as api
from tests.api.conftest import embeddings as embeddings
from tests.api.conftest import notes as notes
from tests.fakes.openai_server import openai_server as openai_server
from tests.security.schema_cases import examine, in_process

REQUESTS = int(os.environ.get("REQ", "320"))


@pytest.mark.timeout(1000)
def test_the_api_keeps_to_its_description(api: Any, notes: Any) -> None:
    api.put("/collections/notes/documents/a", {"content": "The pump moves water."})
    schema = schemathesis.openapi.from_dict(json.loads(openapi_document.read()))
    report = examine(
        schema,
        {"name": ["notes"], "doc_id": ["a"], "collection": ["notes"]},
        headers={"Authorization": f"Bearer {api.secret}"},
        requests=REQUESTS,
        send=in_process(Client()),
    )
    print(report.requests, len(report.operations), report.statuses, report.failures)
    for name, examples in report.examples.items():
        print("=====", name, len(examples))
        for label, shown in examples.items():
            print("---", label, "\n", shown)
