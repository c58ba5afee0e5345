"""The record of every query: what was asked, by which plan, what came back and what it cost."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.urls import reverse
from django.utils import timezone

from ragd.types import RetrievePlan
from retrieval_app.corrective.evaluator import Weights
from retrieval_app.corrective.rules import Rule
from retrieval_app.models.querysets import QueryRunQuerySet, SavedPlanQuerySet


class QueryRun(models.Model):
    """One search or one answer. Stored once, never changed, except trace_scores and its kin when it is judged later.

    collection may point at a row that is gone, because collections are deleted outside the ORM: show collection_name.
    retrieved_ids: "doc_id#chunk_index" in rank order. results: `services.result_dict` of each, in rank order.
    lists: every ranked list by name, each [["doc_id#chunk_index", raw score], ...].
    citations: one record per citation that stands in the answer (see `retrieval_app.citations.citations`).
    sentences: the answer's sentences with their citations and support. timings_ms: stage name -> milliseconds.
    token_usage: context_tokens, generation_tokens, total_tokens, estimated, or {} for a search.
    plan_name: the saved plan that the plan began from, "" for none. compression: {"tokens_before", "tokens_after"} of
    the results, null where the plan does not compress; each result then has its spans. history: earlier turns of the
    conversation, [{"role", "content"}], that the answerer was given. cost_usd: of all model calls of the run; null: the
    price of at least one is not known. findings: [{"place": "query", "history", "prompt", "source" or "answer", "key":
    "doc_id#chunk_index" of a source, "part": "context" of it, "action": "flagged", "redacted", "withheld" or "refused",
    ...`Finding.as_dict()`}]; risk_score: 0 to 100 of them all, null: not looked for. status "refused": the
    collection's security action turned the question or the answer away (see `retrieval_app.runs.inspection`).
    store_state: see `replaying.read_store_state`.
    replay_of: the run whose plan and query were run again. evidence: 0 to 1, of the answer's best sentence, where the
    answerer measures it. retrieval_confidence, retrieval_action and fallback_triggered: of a collection that is
    calibrated (see `retrieval_app.corrective`); correction: how they came about, null where nothing was weighed.
    """

    class Kind(models.TextChoices):
        SEARCH = "search", "Search"
        ASK = "ask", "Answer"

    class Status(models.TextChoices):
        OK = "ok", "Answered"
        ABSTAINED = "abstained", "No answer"
        ERROR = "error", "Error"
        REFUSED = "refused", "Blocked"

    class Door(models.TextChoices):
        PAGE = "page", "Web"
        API = "api", "API"
        MCP = "mcp", "MCP"
        CLI = "cli", "CLI"
        CHAT = "chat", "Chat"
        WORKER = "worker", "Worker"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=10, choices=Kind)
    collection = models.ForeignKey(
        "collections_app.Collection",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        related_name="runs",
    )
    collection_name = models.TextField()
    query = models.TextField()
    plan = models.JSONField(default=dict)
    plan_hash = models.CharField(max_length=64, blank=True)
    plan_name = models.TextField(blank=True)
    generation = models.IntegerField(default=1)
    embed_model = models.TextField(blank=True)
    spec_version = models.CharField(max_length=20, blank=True)

    retrieved_ids = models.JSONField(default=list, blank=True)
    results = models.JSONField(default=list, blank=True, encoder=DjangoJSONEncoder)
    lists = models.JSONField(default=dict, blank=True)
    short_result = models.JSONField(null=True, blank=True)
    exact_used = models.BooleanField(null=True, blank=True)
    compression = models.JSONField(null=True, blank=True)
    store_state = models.JSONField(default=dict, blank=True)
    replay_of = models.UUIDField(null=True, blank=True)

    answer = models.TextField(null=True, blank=True)  # null: no answer was asked for
    answerer = models.TextField(blank=True)
    system_prompt = models.TextField(blank=True)
    history = models.JSONField(default=list, blank=True)
    sources = models.JSONField(default=list, blank=True)
    citations = models.JSONField(default=list, blank=True)
    sentences = models.JSONField(default=list, blank=True)
    removed_citations = models.IntegerField(default=0)

    trace_scores = models.JSONField(null=True, blank=True)
    evidence = models.FloatField(null=True, blank=True)
    retrieval_confidence = models.FloatField(null=True, blank=True)
    doc_contribution_scores = models.JSONField(null=True, blank=True)
    retrieval_action = models.TextField(blank=True)
    fallback_triggered = models.BooleanField(default=False)
    correction = models.JSONField(null=True, blank=True)
    token_usage = models.JSONField(default=dict, blank=True)
    cost_usd = models.FloatField(null=True, blank=True)
    findings = models.JSONField(default=list, blank=True)
    risk_score = models.FloatField(null=True, blank=True)
    timings_ms = models.JSONField(default=dict, blank=True)

    status = models.CharField(max_length=10, choices=Status, default=Status.OK)
    error = models.TextField(blank=True)
    error_type = models.CharField(max_length=60, blank=True)
    door = models.CharField(max_length=10, choices=Door)
    trace_id = models.CharField(max_length=32, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    api_key_label = models.TextField(blank=True)

    # not stored: 16 hex digits of the root span, as long as the run is in the hands of the process that made it
    root_span_id: str = ""

    objects = QueryRunQuerySet.as_manager()

    class Meta:
        verbose_name = "query run"
        ordering: ClassVar[list[str]] = ["-created_at", "-id"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["-created_at", "-id"], name="queryrun_newest"),
            models.Index(fields=["collection_name", "-created_at", "-id"], name="queryrun_collection_newest"),
            models.Index(fields=["trace_id"], name="queryrun_trace"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} in {self.collection_name}: {self.query[:60]}"

    def get_absolute_url(self) -> str:
        return reverse("retrieval:run", args=[self.id])

    @property
    def cited_ids(self) -> list[str]:
        """Document ids that the answer cites, each once, in order of first use."""
        return list(dict.fromkeys(citation["doc_id"] for citation in self.citations))

    @property
    def took_ms(self) -> float:
        return float(self.timings_ms.get("total", 0.0))

    @property
    def plan_mode(self) -> str:
        return str(self.plan.get("mode", ""))


class RetrievedChunk(models.Model):
    """That a run retrieved a chunk: the results of `QueryRun`, one row each, so that a chunk can tell who found it.

    revision is the document's then. cited: the answer cites it. The rows go with their run and with their collection,
    by the database.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(
        QueryRun, on_delete=models.DO_NOTHING, db_constraint=False, related_name="retrieved", db_index=False
    )
    collection = models.ForeignKey(
        "collections_app.Collection", on_delete=models.DO_NOTHING, db_constraint=False, related_name="+", db_index=False
    )
    doc_id = models.TextField(db_collation="C")
    chunk_index = models.IntegerField()
    revision = models.IntegerField()
    rank = models.IntegerField()
    cited = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = "retrieved chunk"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["run", "rank"], name="retrievedchunk_place")
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["collection", "doc_id", "chunk_index", "-created_at"],
                name="retrievedchunk_chunk",
                include=["run", "rank", "cited", "revision"],
            )
        ]

    def __str__(self) -> str:
        return f"{self.doc_id}#{self.chunk_index} at rank {self.rank}"


class SavedPlan(models.Model):
    """A plan under a name that is unique in its collection. plan: every field, as `RetrievePlan.as_dict` gives it.

    The default plan of a collection, at most one, is where every door begins when the caller names none. The rows go
    with their collection, by the database.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        "collections_app.Collection", on_delete=models.CASCADE, db_constraint=False, related_name="plans"
    )
    name = models.TextField(db_collation="C")
    plan = models.JSONField(default=dict)
    description = models.TextField(default="", blank=True)
    is_default = models.BooleanField(default=False)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects = SavedPlanQuerySet.as_manager()

    class Meta:
        ordering: ClassVar[list[str]] = ["collection", "name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["collection", "name"], name="savedplan_name"),
            models.UniqueConstraint(
                fields=["collection"], name="savedplan_one_default", condition=models.Q(is_default=True)
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def retrieve_plan(self) -> RetrievePlan:
        return RetrievePlan.from_dict(self.plan)


class Calibration(models.Model):
    """What tells for one collection whether a retrieval is likely to answer: weights and thresholds, fitted on data.

    weights: `evaluator.Weights.as_dict()`. upper, lower: `rules.Rule`, null where the data gave none. embed_model: it
    holds for this one only. data: what it was fitted on {"set", "version", "digest", "questions", "lists", "plan",
    "plan_hash", "generation"}. figures: how well it told the held-out questions (`calibration.figures`). corrects:
    whether answers take the corrective step where a request does not say. At most one per collection; it goes with it.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        "collections_app.Collection", on_delete=models.CASCADE, db_constraint=False, related_name="+"
    )
    weights = models.JSONField(default=dict)
    upper = models.FloatField(null=True, blank=True)
    lower = models.FloatField(null=True, blank=True)
    embed_model = models.TextField()
    data = models.JSONField(default=dict)
    figures = models.JSONField(default=dict)
    corrects = models.BooleanField(default=False)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering: ClassVar[list[str]] = ["collection"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["collection"], name="calibration_one")
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """What it was fitted on and when."""
        return f"{self.data.get('set', 'given data')} v{self.data.get('version', 1)}, {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def rule(self) -> Rule:
        return Rule(Weights.from_dict(self.weights), self.upper, self.lower)
