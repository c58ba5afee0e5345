"""One plan through every door: the canonical JSON of the results must be the same, byte for byte."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from functools import partial
from io import StringIO
from typing import Any

import openai
import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client

from collections_app.access.permissions import Role
from collections_app.documents.services import ingest_text
from collections_app.index.stores import open_store
from collections_app.models import Collection, RoleGrant
from ragd.search.retrieval import retrieve_detailed
from ragd.store.store import Store
from ragd.types import RetrievePlan, canonical_json
from retrieval_app.answers.protocol import result_dict, with_spans
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import build_plan, save_plan
from retrieval_app.search.query_pipeline import QueryRequest, search
from tests.retrieval.corpus import bearer, kept, make_collection, post

QUERY = "Which water does the pump move, and what does the boiler heat?"
TWIN = "# Tank\n\nThe tank stores water for the pump and the boiler. It is cleaned every year."
Json = dict[str, Any]

PLANS: Mapping[str, Json] = {
    "what nobody states": {},
    "vector": {"mode": "vector", "k": 4, "exact": "always"},
    "vector, index preferred": {"mode": "vector", "k": 3, "exact": "never", "ef_search": 77},
    "lexical": {"mode": "lexical", "k": 5},
    "hybrid, weighted": {"mode": "hybrid", "k": 6, "weights": {"vector": 0.3, "lexical": 1.7}, "rrf_k": 7},
    "hybrid, one list": {"mode": "hybrid", "weights": {"vector": 0, "lexical": 1}, "candidate_pool": 3, "k": 2},
    "filters": {"tags_any": ["water", "food"], "tags_all": ["machine"], "metadata": {"source": "manual"}},
    "filters that nothing passes": {"tags_all": ["nowhere"]},
    "more than there is": {"mode": "hybrid", "k": 1000, "candidate_pool": 1000},
    "compressed": {"mode": "hybrid", "k": 4, "compress": "window", "token_budget": 25},
    "reranked": {"mode": "hybrid", "k": 5, "candidate_pool": 6, "rerank": "builtin"},
}  # fmt: skip


def make_house() -> Collection:
    """The usual corpus, and a text that three documents share, so that ties have to be broken."""
    collection = make_collection()
    for doc_id in ("tank-b.md", "tank-a.md", "Tank-Ä.md"):
        ingest_text(collection, doc_id, TWIN, title="Tank", tags=["water", "machine"], metadata={"source": "manual"})
    return collection


def by_library(plan: RetrievePlan, store: Store) -> list[Json]:
    found = retrieve_detailed(QUERY, plan, store)
    results = [result_dict(candidate, rank) for rank, candidate in enumerate(found.candidates, 1)]
    return with_spans(results, found.spans) if plan.compress else results


def by_rest(fields: Json, client: Client, headers: Json) -> list[Json]:
    status, body = post(client, "/v1/collections/house/search", {"query": QUERY} | fields, headers)
    assert status == 200, body
    return list(body["results"])


def by_ask(fields: Json, client: Client, headers: Json) -> list[Json]:
    return list(post(client, "/v1/collections/house/ask", {"query": QUERY} | fields, headers)[1]["results"])


def by_saved_plan(fields: Json, client: Client, headers: Json) -> list[Json]:
    put = client.put("/v1/collections/house/plans/drift", fields, content_type="application/json", headers=headers)
    assert put.status_code == 200, put.content
    return by_rest({"plan": "drift"}, client, headers)


def by_replay(fields: Json, client: Client, headers: Json) -> list[Json]:
    run_id = post(client, "/v1/collections/house/search", {"query": QUERY} | fields, headers)[1]["run_id"]
    return list(client.post(f"/v1/runs/{run_id}/replay", headers=headers).json()["now"])


def by_mcp(fields: Json, client: Client, headers: Json) -> list[Json]:
    arguments = {"collection": "house", "query": QUERY} | fields
    params = {"name": "collections-search", "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = client.post("/mcp", message, content_type="application/json", headers=headers).json()
    return list(json.loads(answer["result"]["content"][0]["text"])["results"])


def by_chat(fields: Json, client: Client, headers: Json) -> list[Json]:
    body = {"model": "ragd/house", "messages": [{"role": "user", "content": QUERY}], "ragd": fields}
    extension = post(client, "/v1/chat/completions", body, headers)[1]["ragd"]
    names = ("doc_id", "chunk_index", "score")
    sources = [[source[name] for name in names] for source in extension["sources"]]
    assert sources == [[result[name] for name in names] for result in extension["results"]][: len(sources)]
    return list(extension["results"])


def by_chat_stream(fields: Json, client: Client, headers: Json) -> list[Json]:
    messages = [{"role": "user", "content": QUERY}]
    body = {"model": "ragd/house", "messages": messages, "ragd": fields, "stream": True}
    answer = client.post("/v1/chat/completions", body, content_type="application/json", headers=headers)
    events = b"".join(answer.streaming_content).decode().split("\n\n")  # type: ignore[attr-defined]
    return list(json.loads(events[-3].removeprefix("data: "))["ragd"]["results"])


def by_shell(fields: Json, *_: Any) -> list[Json]:
    options: list[str] = []
    for name, value in fields.items():
        if name in ("weights", "metadata"):
            option = "--weight" if name == "weights" else "--metadata"
            options += [part for key, item in value.items() for part in (option, f"{key}={item}")]
        elif name in ("tags_any", "tags_all"):
            options += [part for tag in value for part in (f"--{name.replace('tags', 'tag').replace('_', '-')}", tag)]
        else:
            options += ["-k" if name == "k" else f"--{name.replace('_', '-')}", str(value)]
    out = StringIO()
    call_command("ragd", "search", "house", QUERY, *options, "--json", stdout=out)
    return list(json.loads(out.getvalue())["results"])


def by_worker(fields: Json, *_: Any) -> list[Json]:
    """As evaluation runs search in a worker: by a plan that was stored as JSON."""
    collection = Collection.objects.get(name="house")
    plan = RetrievePlan.from_dict(json.loads(json.dumps(build_plan(collection, **fields).as_dict())))
    run = search(QueryRequest(collection, QUERY, plan, QueryRun.Channel.WORKER))
    assert (run.channel, run.status) == ("worker", "ok")
    return list(run.results)


DOORS: Mapping[str, Callable[[Json, Client, Json], list[Json]]] = {
    "REST": by_rest,
    "REST, ask": by_ask,
    "REST, saved plan": by_saved_plan,
    "REST, replay": by_replay,
    "MCP": by_mcp,
    "chat": by_chat,
    "chat, streamed": by_chat_stream,
    "shell": by_shell,
    "worker": by_worker,
}


def by_page(fields: Json) -> tuple[str, str]:
    """What the answer to the form and the page of the run show: (doc_id, chunk_index, rank, score) of each result. The
    user is an asker, whom row-level security binds."""
    visitor, ada = Client(), User.objects.create(username="ada")
    RoleGrant.objects.create(user=ada, collection_id=0, role=Role.ASKER)
    visitor.force_login(ada)
    form: Json = {"collection": "house", "query": QUERY, "do": "search"}
    for name, value in fields.items():
        if name == "weights":
            form |= {f"weight_{list_name}": weight for list_name, weight in value.items()}
        elif name == "metadata":
            form["metadata"] = json.dumps(value)
        else:
            form[name] = ", ".join(value) if isinstance(value, list) else value
    answer = visitor.post("/chat/", form)
    assert answer.status_code == 302, answer.content.decode()
    run_id = QueryRun.objects.latest("created_at").pk
    pages = [visitor.get(address).content.decode() for address in (answer["Location"], f"/runs/{run_id}/?view=ranking")]
    return tuple(canonical_json(read_rows(page)) for page in pages)  # type: ignore[return-value]


def read_rows(page: str) -> list[list[Any]]:
    row = r'data-doc-id="([^"]*)" data-chunk-index="(\d+)" data-rank="(\d+)" data-score="([^"]+)"'
    return [
        [html.unescape(doc_id), int(chunk_index), int(rank), json.loads(score)]
        for doc_id, chunk_index, rank, score in re.findall(row, page)
    ]


def short(results: Sequence[Json]) -> str:
    return canonical_json([[item[name] for name in ("doc_id", "chunk_index", "rank", "score")] for item in results])


@pytest.fixture(scope="module")
def house_with_ties(module_db: None) -> Collection:
    return make_house()


@pytest.mark.django_db
@pytest.mark.parametrize("name", PLANS)
def test_every_door_gives_the_same_bytes(client: Client, house_with_ties: Collection, name: str) -> None:
    collection, fields = copy(house_with_ties), PLANS[name]
    headers = bearer()
    plan = build_plan(collection, **fields)
    with transaction.atomic():
        expected = by_library(plan, open_store(collection))
    wrong = [
        door for door, ask in DOORS.items() if canonical_json(ask(fields, client, headers)) != canonical_json(expected)
    ]
    assert wrong == []
    assert by_page(fields) == (short(expected), short(expected))
    assert set(QueryRun.objects.values_list("plan_hash", flat=True)) == {plan.hash}
    assert set(QueryRun.objects.values_list("channel", flat=True)) == {"api", "mcp", "chat", "cli", "worker", "page"}
    stored = {canonical_json(run.results) for run in QueryRun.objects.all()}
    assert stored == {canonical_json(expected)}
    if "nothing passes" in name:
        assert expected == []
    else:
        assert len(expected) >= min(plan.k, 2)
    if name == "more than there is":
        tanks = [item["doc_id"] for item in expected if item["content"] == TWIN]
        assert (len(expected), tanks) == (8, ["Tank-Ä.md", "tank-a.md", "tank-b.md"])


@pytest.fixture
def kept_house(transactional_db: None) -> Iterator[Collection]:
    with kept(make_house()) as collection:
        yield collection


def test_a_bare_connection_and_a_real_client_give_the_same_bytes(kept_house: Collection, live_server: Any) -> None:
    """The library over psycopg without Django, and the openai client over HTTP."""
    fields = PLANS["hybrid, weighted"]
    plan = build_plan(kept_house, **fields)
    settings = connection.get_connection_params()
    wanted = {name: settings[name] for name in ("dbname", "user", "password", "host", "port") if name in settings}
    with closing(psycopg.connect(**wanted)) as bare:
        store = Store(bare, "house", open_store(kept_house).embedder)
        expected = canonical_json(by_library(plan, store))
    secret = bearer()["Authorization"].removeprefix("Bearer ")
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key=secret, max_retries=0) as model:
        ask = partial(model.chat.completions.create, model="ragd/house", messages=[{"role": "user", "content": QUERY}])
        stated = ask(extra_body={"ragd": fields})
        save_plan(kept_house, "usual", plan, is_default=True)
        by_default = ask()
    for answer in (stated, by_default):
        assert canonical_json((answer.model_extra or {})["ragd"]["results"]) == expected
