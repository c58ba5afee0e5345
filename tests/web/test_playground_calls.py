"""What the playground copies is true: curl, Python and the MCP call, run as they stand, give the page's ranking."""

from __future__ import annotations

import html as html_module
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest
from django.test import Client
from mcp.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.web.pages import client_of
from tests.web.test_playground import PLAY, column, text

PLANS = (
    {"q": 'which animal\'s song is the largest?\nand "why" $HOME `x`', "mode": "hybrid", "k": "3"},
    {"q": "krill", "rrf_k": "9", "weight_lexical": "2.5", "exact": "always", "tags_any": "nature, it's", "k": "2"},
    {"q": "the tree", "compress": "sentences", "token_budget": "20", "metadata": '{"lang": "d\'été", "old": null}'},
    {"q": "whale", "plan": "tight's"},
)


@pytest.fixture
def nature(transactional_db: None, fill: Callable[..., Any]) -> Iterator[Any]:
    """A collection that a server in another thread sees, with a saved plan; gone at the end."""
    from collections_app.collections.deletion import delete_collection
    from collections_app.documents.services import ingest_text
    from ragd.types import RetrievePlan
    from retrieval_app.plans.services import save_plan

    collection = fill()
    ingest_text(collection, "été.md", "The tree of summer.", metadata={"lang": "d'été", "old": None})
    save_plan(collection, "tight's", RetrievePlan(mode="lexical", k=2))
    yield collection
    delete_collection(collection)


@pytest.fixture
def visitor(transactional_db: None, ada: Any) -> Client:
    return client_of(ada)


@pytest.fixture
def key(nature: Any) -> Iterator[str]:
    from collections_app.access.api_keys import NewKey, create_key
    from collections_app.models import ApiKey

    made, secret = create_key(NewKey("calls", scope="read"))
    yield secret
    ApiKey.objects.filter(pk=made.pk).delete()


def copied(html: str, name: str) -> str:
    found = re.search(rf'<pre id="call-{name}"[^>]*>(.*?)</pre>', html, re.DOTALL)
    assert found
    return html_module.unescape(found[1])


def shell(arguments: list[str], script: str, key: str) -> str:
    environment = {"PATH": os.environ["PATH"], "RAGD_KEY": key, "NO_PROXY": "*"}
    done = subprocess.run(arguments, input=script, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def call_tool(url: str, key: str, name: str, arguments: dict[str, Any]) -> Any:
    """By the official SDK's client."""
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {key}"}) as http,
        McpClient(streamable_http_client(url, http_client=http)) as client,
    ):
        return await client.call_tool(name, arguments)


@pytest.mark.parametrize("values", PLANS)
def test_what_is_copied_gives_the_ranking_of_the_page(
    values: dict[str, str], nature: Any, key: str, visitor: Client, live_server: Any
) -> None:
    host = live_server.url.removeprefix("http://")
    html = text(visitor.get(f"{PLAY}?{urlencode(values)}", headers={"Host": host}))
    expected = [(doc_id, int(index), json.loads(score)) for doc_id, index, _, score in column(html, "final")]
    assert expected

    def ranking(results: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
        return [(item["doc_id"], item["chunk_index"], item["score"]) for item in results]

    if shutil.which("curl"):
        assert ranking(json.loads(shell(["bash"], copied(html, "curl"), key))["results"]) == expected
    printed = [line.split() for line in shell([sys.executable, "-"], copied(html, "python"), key).splitlines()]
    assert [(doc_id, int(index), float(score)) for _, score, doc_id, index in printed] == expected
    message = json.loads(copied(html, "mcp"))
    headers = {"Authorization": f"Bearer {key}"}
    posted = Client().post("/mcp", message, content_type="application/json", headers=headers).json()["result"]
    assert ranking(json.loads(posted["content"][0]["text"])["results"]) == expected
    called = anyio.run(
        call_tool, f"{live_server.url}/mcp", key, message["params"]["name"], message["params"]["arguments"]
    )
    assert ranking(json.loads(called.content[0].text)["results"]) == expected
