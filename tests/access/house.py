"""Two collections with everything that pages show, people with each role in one of them, and the arguments of pages."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import Collection, IngestBatch, IngestJob, Operation, RoleGrant, Source, SourceChange
from evaluation_app.golden.sets import keep_version
from evaluation_app.models import EvaluationItem, EvaluationRun, Experiment, GoldenQuestion, GoldenSet, ReviewTask, Span
from evaluation_app.reviews.labels import queue_run
from evaluation_app.telemetry.store.exporter import span_columns
from ragd.types import RetrievePlan
from retrieval_app.models import ChatAssistant, ChatMessage, QueryRun
from tests.evaluation.made_runs import make_run
from tests.web.pages import client_of

SCORES = [{"recall@10": 1.0, "completeness": 0.5, "adherence": 1.0}, {"recall@10": 0.0, "completeness": 0.2}]
POLICY = {"target_tokens": 16, "overlap_tokens": 4}
PEOPLE = ("viewer", "asker", "curator", "evaluator", "administrator", "nobody")


@dataclass
class Place:
    """A collection and one of everything in it. `word` stands in every text of it."""

    collection: Collection
    word: str
    golden_set: GoldenSet
    question: GoldenQuestion
    runs: list[EvaluationRun]
    experiment: Experiment
    batch: IngestBatch
    job: IngestJob
    operation: Operation
    task: ReviewTask
    query: QueryRun
    span: Span
    group: Group
    grant: RoleGrant
    source: Source
    sync: Operation
    assistant: ChatAssistant

    @property
    def name(self) -> str:
        return self.collection.name

    @cached_property
    def keeper_id(self) -> int:
        """Of the one person in the group."""
        return self.group.user_set.get().pk

    @cached_property
    def thread_id(self) -> uuid.UUID:
        """Of the thread of `root` that the query is in."""
        return ChatMessage.objects.get(run_id=self.query.pk).thread_id

    @cached_property
    def message_id(self) -> int:
        return ChatMessage.objects.get(run_id=self.query.pk).pk

    def arguments(self, view_name: str, route: str) -> dict[str, Any] | None:
        """Values for the arguments of an address; None where it has one that this place knows nothing of."""
        known: dict[str, Any] = {
            "name": self.name, "doc_id": f"{self.word}.md", "index": 0, "number": 1, "before": 1, "after": 1,
            "batch_id": self.batch.pk, "job_id": self.job.pk, "operation_id": self.operation.pk, "key": "chat",
            "run_id": self.query.pk, "trace_id": self.span.trace_id, "span_id": self.span.span_id, "version": 1,
            "position": 0, "question_id": self.question.pk, "format": "jsonl", "other": self.runs[1].pk,
            "grant_id": self.grant.pk, "page": "chunking", "other_id": self.query.pk, "sync_id": self.sync.pk,
            "thread_id": self.thread_id, "extension": "md", "slug": self.assistant.slug, "period": "runs_days",
            "level": "conversations",
        }  # fmt: skip
        for start, pk in {
            "evaluation/runs/": self.runs[0].pk,
            "evaluation/sets/": self.golden_set.pk,
            "evaluation/experiments/": self.experiment.pk,
            "evaluation/review/": self.task.pk,
            "people/groups/": self.group.pk,
            "collections/<str:name>/sources/": self.source.pk,
            "people/<": self.keeper_id,
            "chat/assistants/": self.assistant.pk,
            "chat/messages/": self.message_id,
        }.items():
            if route.startswith(start):
                known["pk"] = pk
        return known


@dataclass
class House:
    """The place that people have roles in, the foreign one, and who they are. `hidden` is in a document of the first
    that only its administrators may read."""

    own: Place
    foreign: Place
    people: dict[str, User]
    hidden: str = "obsidianite"

    def client(self, name: str) -> Client:
        return client_of(self.people[name])


def build_place(name: str, word: str, asked_by: User) -> Place:
    collection = create_collection(name=name, chunk_policy=POLICY, description=f"All about {word}")
    for doc_id in (f"{word}.md", f"{word}-more.md"):
        text = f"# {word}\n\nThe {word} is the largest of {doc_id}. It eats krill.\n\n## Song\n\nIt sings of {word}."
        ingest_text(collection, doc_id, text, title=f"{word} title", tags=[word])
    batch = IngestBatch.objects.create(collection=collection, label=f"{word} batch", submitted=2)
    job = IngestJob.objects.create(
        collection=collection, batch=batch, doc_id=f"{word}.md", state="failed", error=f"{word} is locked",
        error_type="x",
    )  # fmt: skip
    operation = Operation.objects.create(
        kind=Operation.Kind.EXPORT, subject=name, state=Operation.State.SUCCEEDED, created_by=asked_by.get_username()
    )
    golden_set = GoldenSet.objects.create(name=f"{word} set", collection_name=name)
    question = GoldenQuestion.objects.create(
        golden_set=golden_set, question=f"What does the {word} eat?", expected_doc_ids=[f"{word}.md"]
    )
    keep_version(golden_set)
    item = {
        "question_text": question.question,
        "golden": {"question": question.question, "expected_doc_ids": [f"{word}.md"], "category": "factual"},
        "retrieved_ids": [f"{word}.md#0"],
        "context": [{"key": f"{word}.md#0", "sentences": [["0a", f"The {word} eats krill."]]}],
        "answer": f"The {word} eats krill.",
        "answer_sentences": [["a", f"The {word} eats krill."]],
        "modes": ["low_completeness"],
    }
    runs = [
        make_run(
            SCORES, golden_set=golden_set, set_name=golden_set.name, collection_name=name, items={0: item},
            name=f"{word} run {n}", created_at=timezone.now(),
        )
        for n in range(2)
    ]  # fmt: skip
    runs[1].experiment = Experiment.objects.create(kind="fix", collection_name=name, base=runs[0])
    runs[1].purpose = EvaluationRun.Purpose.FIX
    runs[1].save()
    experiment = Experiment.objects.create(kind="plans",
        golden_set=golden_set, set_name=golden_set.name, set_version=1, set_digest="d" * 64, collection_name=name,
        name=f"{word} experiment", measure="mrr", doc_ids=[f"{word}.md"],
        questions=[{"question": f"Where is the {word}?"}], variants=[RetrievePlan().as_dict()],
    )  # fmt: skip
    EvaluationRun.objects.filter(pk=runs[0].pk).update(experiment=experiment, place=0)
    queue_run(runs[0], "all")
    client = client_of(asked_by)
    response = client.post("/chat/", {"query": f"How large is the {word}?", "collection": name, "do": "ask"})
    assert response.status_code == 302
    query = QueryRun.objects.latest("created_at")
    attributes = {"ragd.collection": name, "input.value": f"{word}?"}
    columns = span_columns(f"rag.pipeline {name}", "ragd", "", attributes)._asdict() | {"status_code": "OK"}
    span = Span.objects.create(
        trace_id=query.trace_id or f"{query.pk.int:032x}", span_id=f"{query.pk.int % 2**63:016x}",
        name=f"rag.pipeline {name}", kind="INTERNAL", scope="ragd", started_at=timezone.now(), ended_at=timezone.now(),
        duration_ms=5.0, collection=name, attributes=attributes, run_id=query.pk, **columns,
    )  # fmt: skip
    EvaluationItem.objects.filter(run__in=runs).update(query_run=query.pk, trace_id=span.trace_id)
    task = ReviewTask.objects.filter(collection_name=name)[0]
    group = Group.objects.create(name=f"keepers {collection.pk}")
    group.user_set.add(User.objects.create_user(f"keeper {collection.pk}"))
    grant = RoleGrant.objects.create(group=group, collection_id=collection.pk, role=Role.VIEWER)
    source = Source.objects.create(
        collection=collection, kind="website", name=f"{word} source", settings={"url": f"https://{word}.example/"},
        last_error=f"no {word}",
    )  # fmt: skip
    sync = Operation.objects.create(
        kind="sync", subject=name, source=source, state="failed", finished_at=timezone.now(), error=f"no {word}",
        report=dict.fromkeys(("dry_run", "added", "updated", "deleted", "failed", "held"), 0),
    )  # fmt: skip
    SourceChange.objects.create(run=sync, collection=collection, doc_id=f"{word}.md", kind="added")
    assistant = ChatAssistant.objects.create(
        name=f"{word} guide", slug=f"{word}-guide", greeting=f"Ask about the {word}.", starters=[f"What is {word}?"],
        collection_ids=[collection.pk],
    )  # fmt: skip
    return Place(
        collection, word, golden_set, question, runs, experiment, batch, job, operation, task, query, span, group,
        grant, source, sync, assistant,
    )  # fmt: skip


def build_house() -> House:
    root = User.objects.create_superuser("root")
    own, foreign = build_place("nature", "whale", root), build_place("vault", "zanzibarite", root)
    house = House(own, foreign, {name: User.objects.create_user(name) for name in PEOPLE} | {"root": root})
    for name, user in house.people.items():
        if name in Role.values:
            RoleGrant.objects.create(user=user, collection_id=own.collection.pk, role=name)
    ingest_text(own.collection, "secret.md", f"# Secret\n\nThe {house.hidden} lies below.", title=house.hidden)
    set_access(own.collection, ["secret.md"])
    SourceChange.objects.create(
        run=own.sync, collection=own.collection, doc_id="secret.md", kind="failed", reason=f"the {house.hidden} is torn"
    )
    return house
