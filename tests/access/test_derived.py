"""What was made from a document is as hidden as the document, also where it was made before its list changed.

One world is made with a marked word in one document, and everything that the server derives from documents. A person
who may read the collection and evaluate in it goes through pages and the API: they meet the word while the document is
open, never while it is restricted to others, and again when it is opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.context import Access, using_access
from collections_app.access.document_access import set_access, widen
from collections_app.access.permissions import Role
from collections_app.chunks.edits import edit_chunk
from collections_app.chunks.finding_scan import scan_collection
from collections_app.chunks.outliers import scan_duplicates
from collections_app.collections.services import count_documents
from collections_app.documents.edits import edit_document
from collections_app.documents.filters import complete
from collections_app.documents.services import change_state, ingest_text
from collections_app.models import (
    ApiKey,
    Chunk,
    ChunkFindings,
    ChunkOverlay,
    Document,
    DocumentRevision,
    IngestJob,
    NearDuplicate,
    Operation,
    RoleGrant,
    StateChange,
    Upload,
)
from collections_app.uploads.services import HeldFile, submit_uploads
from evaluation_app.failures.bisection import request_bisection
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenQuestion, GoldenSet, GoldenSetVersion, ReviewTask
from evaluation_app.reviews.labels import queue_run
from evaluation_app.runs import lifecycle
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun, RetrievedChunk
from retrieval_app.search.query_pipeline import QueryRequest, ask, search
from tests.access.marsh import WORD, People, run_all

pytestmark = pytest.mark.django_db
SECRET = "secret.md"
QUESTION = "Where does the heron keep its nest?"
PLAN = RetrievePlan(k=3, candidate_pool=8)


@dataclass
class World:
    people: People
    run: QueryRun
    looked: QueryRun
    golden: GoldenSet
    runs: list[EvaluationRun]
    before: datetime
    root: User
    client: Client = field(default_factory=Client)

    @property
    def base(self) -> str:
        return f"/collections/{self.people.collection.name}"

    def narrow(self) -> None:
        set_access(self.people.collection, [SECRET], users=[self.people.bob.pk])

    def open(self) -> None:
        widen(self.people.collection, [SECRET])


@pytest.fixture(scope="module")
def module_world(module_people: People) -> World:
    people = module_people
    collection = people.collection
    root = User.objects.create_superuser("root", password="heron-reed-marsh-7")
    RoleGrant.objects.create(user=people.ada, collection_id=collection.pk, role=Role.EVALUATOR)
    for number in range(4):
        ingest_text(
            collection, f"open{number}.md", f"Reeds of kind {number} grow by the water in spring and summer.",
            title=f"Reeds {number}", tags=["reeds"], metadata={"year": 2020 + number},
        )  # fmt: skip
    text = f"The heron keeps its nest in the {WORD} behind the tall reed. Nobody else knows the {WORD}."
    submit_uploads(collection, [HeldFile(SECRET, f"# {WORD} nests\n\nOld: {text}".encode())])
    run_all(collection)
    ingest_text(
        collection, SECRET, text, title=f"{WORD} nests", tags=[f"tag{WORD}"], metadata={f"key{WORD}": f"value{WORD}"}
    )
    edit_document(collection, SECRET, {"title": f"{WORD} nests again"})
    ingest_text(collection, "copy.md", "Herons are birds. Reeds grow by the water in spring and summer.")
    before = timezone.now()
    change_state(collection, [SECRET], "disabled")
    change_state(collection, [SECRET], "enabled")
    run = ask(QueryRequest(collection, QUESTION, PLAN, "ui", user=people.ada))
    looked = search(QueryRequest(collection, QUESTION, PLAN, "api", user=root))
    golden = GoldenSet.objects.create(name="nests", collection_name=collection.name)
    GoldenQuestion.objects.create(
        golden_set=golden, position=0, question=QUESTION, expected_doc_ids=[SECRET], expected_answer=f"In the {WORD}."
    )
    GoldenQuestion.objects.create(
        golden_set=golden, position=1, question="When do reeds grow?", expected_doc_ids=["open1.md"]
    )
    runs = []
    for _ in range(2):
        settings = RunSettings(answers=True, judge="none", cut=3)
        asked = lifecycle.RunRequest(PLAN, settings=settings)
        runs.append(lifecycle.run_now(lifecycle.start_run(golden, asked, send=False)))
    queue_run(runs[0], "all")
    return World(people, run, looked, golden, runs, before, root)


@pytest.fixture
def world(module_world: World, db: None) -> World:
    made = deepcopy(module_world)
    made.client.force_login(made.people.ada)
    return made


def pages(world: World) -> dict[str, bool]:
    """Address -> whether the word is met there while the document is open."""
    base, first, second = world.base, world.runs[0].pk, world.runs[1].pk
    item = f"/evaluation/runs/{first}/items/0/"
    return {
        f"{base}/": True,
        f"{base}/?q={WORD}": True,
        f"{base}/?show=statistics": False,
        f"{base}/uploads/?state=all": False,
        f"{base}/uploads/": False,
        f"{base}/health/": False,
        f"{base}/health/?view=findings": False,
        f"{base}/health/?view=never-retrieved": False,
        f"{base}/index-versions/?target_tokens=40": False,
        f"{base}/documents/{SECRET}/": True,
        f"{base}/documents/{SECRET}/?view=history": True,
        f"{base}/documents/{SECRET}/?view=revision&number=1": True,
        f"{base}/documents/{SECRET}/?view=difference&before=1&after=2": True,
        f"{base}/chunks/0/{SECRET}/": True,
        f"{base}/chunks/0/{SECRET}/?view=neighbours": True,
        f"{base}/documents/{SECRET}/?view=preview": True,
        f"{base}/documents/{SECRET}/?view=overlays": False,
        f"{base}/documents/{SECRET}/?view=readers": True,
        f"/filter-completions/?collection={world.people.collection.name}&filter=metadata.": True,
        f"/filter-completions/?of=documents&collection={world.people.collection.name}&filter=metadata.": True,
        f"/filter-builder/?of=documents&collection={world.people.collection.name}": True,
        "/activity/": False,
        f"/runs/{world.run.pk}/": True,
        f"/runs/{world.looked.pk}/": True,
        "/runs/log/?format=jsonl": True,
        f"/runs/{world.run.pk}/receipt/": False,
        f"/chat/?run={world.run.pk}": False,
        f"{base}/playground/?q=heron+nest": True,
        "/go/?q=nests": False,
        "/traces/": False,
        "/activity/traces/": False,
        "/activity/spans/": False,
        f"/runs/{world.run.pk}/?view=ranking": True,
        f"/runs/{world.run.pk}/?view=trace": False,
        f"/runs/{world.run.pk}/?view=evaluation": False,
        f"/runs/{world.run.pk}/compare/{world.looked.pk}/": True,
        "/evaluation/": False,
        "/evaluation/runs/": False,
        f"/evaluation/runs/{first}/": False,
        f"/evaluation/runs/{first}/jsonl/": True,
        item: True,
        f"{item}changes/": False,
        f"/evaluation/compare/?base={first}&other={second}": False,
        f"/evaluation/compare/?view=question&position=0&base={first}&other={second}": True,
        "/evaluation/sets/": False,
        f"/evaluation/sets/{world.golden.pk}/": False,
        f"/evaluation/sets/{world.golden.pk}/?view=suggestions": False,
        f"/evaluation/sets/{world.golden.pk}/?view=versions": False,
        f"/evaluation/sets/{world.golden.pk}/?view=versions&version=1": True,
        f"/evaluation/sets/{world.golden.pk}/export.jsonl": True,
        f"/evaluation/sets/{world.golden.pk}/export.csv": True,
        "/evaluation/board/": False,
        "/evaluation/review/": False,
        "/evaluation/review/reviews.jsonl": False,
        f"{base}/golden-document/{SECRET}/": False,
        f"{base}/golden-chunk/0/{SECRET}/": False,
        f"{base}/ingests/{SECRET}/": False,
        f"{base}/impact/?impact=disable&doc_id={SECRET}": False,
        "/": False,
    }


def read(client: Client, address: str) -> tuple[int, str]:
    answer = client.get(address)
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return answer.status_code, body.decode(errors="replace")


def test_pages_tell_nothing_of_a_document_that_was_restricted_since(world: World) -> None:
    addresses = pages(world)
    opened = {address: read(world.client, address) for address in addresses}
    broken = {address: status for address, (status, _) in opened.items() if status not in (200, 302, 404)}
    assert not broken
    missing = [address for address, expected in addresses.items() if expected and WORD not in opened[address][1]]
    assert not missing, [(address, opened[address][0]) for address in missing]
    world.narrow()
    told, failed = [], {}
    for address in addresses:
        status, body = read(world.client, address)
        if status >= 500 or status == 403:
            failed[address] = status
        typed = body.count(f"q={WORD}") + body.count(f'value="{WORD}"') if f"q={WORD}" in address else 0
        if body.count(WORD) > typed:
            told.append(address)
    assert not told
    assert not failed
    world.open()
    again = [
        address for address, expected in addresses.items() if expected and WORD not in read(world.client, address)[1]
    ]
    assert not again


def test_the_api_tells_nothing_of_a_document_that_was_restricted_since(world: World) -> None:
    name = world.people.collection.name
    key, secret = create_key(NewKey("ada's"))
    ApiKey.objects.filter(pk=key.pk).update(user=world.people.ada)
    headers = {"Authorization": f"Bearer {secret}"}
    gets = [
        f"/v1/collections/{name}/documents", f"/v1/collections/{name}/documents/{SECRET}",
        f"/v1/collections/{name}/chunks", f"/v1/collections/{name}/documents?facets=true",
        f"/v1/collections/{name}/revisions?doc_id={SECRET}", f"/v1/collections/{name}/revisions/1?doc_id={SECRET}",
        f"/v1/runs/{world.run.pk}",
        f"/v1/runs/{world.looked.pk}", "/v1/golden-sets/nests/questions",
        f"/v1/evaluation-runs/{world.runs[0].pk}/results",
    ]  # fmt: skip
    body = json.dumps({"query": QUESTION, "k": 5})

    def all_texts() -> dict[str, str]:
        texts = {address: world.client.get(address, headers=headers).content.decode() for address in gets}
        for kind in ("search", "ask"):
            answer = world.client.post(
                f"/v1/collections/{name}/{kind}", body, content_type="application/json", headers=headers
            )
            assert answer.status_code == 200, answer.content
            texts[kind] = answer.content.decode()
        return texts

    assert {address for address, text in all_texts().items() if WORD not in text} == set()
    world.narrow()
    assert {address for address, text in all_texts().items() if WORD in text} == set()
    told = world.client.get(f"/v1/collections/{name}/documents/{SECRET}", headers=headers)
    assert told.status_code == 404
    world.open()
    assert {address for address, text in all_texts().items() if WORD not in text} == set()


ROWS: dict[type[Model], Callable[[World], dict[str, Any]]] = {
    Document: lambda world: {"doc_id": SECRET},
    Chunk: lambda world: {"doc_id": SECRET},
    DocumentRevision: lambda world: {"doc_id": SECRET},
    IngestJob: lambda world: {"doc_id": SECRET},
    Upload: lambda world: {"doc_id": SECRET},
    StateChange: lambda world: {"doc_id": SECRET},
    QueryRun: lambda world: {"pk": world.run.pk},
    RetrievedChunk: lambda world: {"doc_id": SECRET},
    GoldenQuestion: lambda world: {"question": QUESTION},
    GoldenSetVersion: lambda world: {"golden_set": world.golden},
    EvaluationItem: lambda world: {"run": world.runs[0], "position": 0},
}


def test_rows_are_hidden_and_shown_with_the_list(world: World) -> None:
    submit_uploads(world.people.collection, [HeldFile(SECRET, WORD.encode())])  # it waits
    everything = {model.__name__ for model in ROWS}

    def seen(name: str) -> set[str]:
        with using_access(world.people.access(name)):
            return {
                model.__name__
                for model, where in ROWS.items()
                if model._default_manager.filter(**where(world)).exists()
            }

    assert seen("ada") == everything
    world.narrow()
    assert seen("ada") == set()
    assert "Document" in seen("bob")
    world.open()
    assert seen("ada") == everything


def test_manual_edits_duplicates_and_reviews_are_hidden(world: World) -> None:
    collection = world.people.collection
    edit_chunk(collection, SECRET, 0, f"edited {WORD}")
    scan_duplicates(collection)
    scan = scan_collection(collection)
    Operation.objects.filter(pk=scan.pk).update(report=scan.report | {"reached": [SECRET, 0]})
    models: list[type[Model]] = [ChunkOverlay, ChunkFindings, NearDuplicate, ReviewTask]

    def counts() -> list[int]:
        with using_access(world.people.access("ada")):
            return [model._default_manager.count() for model in models]

    opened = counts()
    assert opened[0] == 1 and opened[3] >= 1
    world.narrow()
    assert counts()[0] == 0
    scans = Operation.objects.filter(kind__in=("duplicates", "findings")).values_list("kind", flat=True)
    with using_access(Access()):
        assert list(scans.all()) == [], "of a collection that they may not read"
    with using_access(world.people.access("ada")):
        assert list(scans.all()) == ["duplicates"], "the other names a document"
        assert all(task.item is None or task.item.position != 0 for task in ReviewTask.objects.all())
    world.open()
    assert counts() == opened


def test_counts_and_completions_are_of_what_one_may_read(world: World) -> None:
    def facts() -> tuple[Any, str]:
        with using_access(world.people.access("ada")):
            words = str(complete(world.people.collection, "metadata.", of_documents=True))
            return count_documents(world.people.collection)["documents_by_state"]["enabled"], words

    total, words = facts()
    assert WORD in words
    world.narrow()
    assert facts()[0] == total - 1 and WORD not in facts()[1]
    world.open()
    assert facts() == (total, words)


def found(run: QueryRun) -> set[str]:
    return {key.rpartition("#")[0] for key in run.retrieved_ids}


@pytest.mark.parametrize("known", [False, True])
def test_a_search_of_the_past_obeys_the_list_of_now(world: World, known: bool) -> None:
    collection = world.people.collection

    def then(user: str) -> set[str]:
        with using_access(world.people.access(user)):
            asker = getattr(world.people, user)
            return found(search(QueryRequest(collection, QUESTION, PLAN, "api", user=asker, as_of=world.before)))

    ingest_text(collection, "later.md", "The heron keeps its nest here since today.")
    if known:
        assert SECRET in found(search(QueryRequest(collection, QUESTION, PLAN, "api", as_of=world.before)))
        assert SECRET in then("ada")
    world.narrow()
    assert SECRET not in then("ada") and then("ada")
    assert SECRET in then("bob")
    assert SECRET in found(search(QueryRequest(collection, QUESTION, PLAN, "api", as_of=world.before)))
    world.open()
    assert SECRET in then("ada")


def test_answers_of_a_bound_person_use_what_they_may_read(world: World) -> None:
    world.narrow()
    with using_access(world.people.access("ada")):
        mine = ask(QueryRequest(world.people.collection, QUESTION, PLAN, "ui", user=world.people.ada))
    with using_access(world.people.access("bob")):
        other = ask(QueryRequest(world.people.collection, QUESTION, PLAN, "ui", user=world.people.bob))
    assert WORD not in json.dumps([mine.answer, mine.results, mine.sources])
    assert WORD in json.dumps(other.results)
    with using_access(world.people.access("ada")):
        assert QueryRun.objects.filter(pk=mine.pk).exists() and not QueryRun.objects.filter(pk=other.pk).exists()


def test_a_bisection_is_as_hidden_as_its_items(world: World) -> None:
    good = world.runs[0].items.get(position=0)
    change_state(world.people.collection, [SECRET], "disabled")
    settings = RunSettings(answers=False, judge="none", cut=3)
    bad_run = lifecycle.run_now(
        lifecycle.start_run(world.golden, lifecycle.RunRequest(PLAN, settings=settings), send=False)
    )
    bad = bad_run.items.get(position=0)
    stored = request_bisection(good, bad)
    assert SECRET in {event["doc_id"] for event in stored.report["events"]}
    world.narrow()
    with using_access(world.people.access("ada")):
        assert not Operation.objects.filter(pk=stored.pk).exists()
    world.open()
    with using_access(world.people.access("ada")):
        assert Operation.objects.filter(pk=stored.pk).exists()
