"""The record of every query: what was asked, by which plan, what came back and what it cost."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.access.models import CollectionScope
from ragd import telemetry
from ragd.identity import can_be_stored

LOOKED_AT = 1000  # newest runs whose models are offered to choose from
TOOK_MS = Cast(KeyTextTransform("total", "timings_ms"), models.FloatField())
FINISHED_AT = models.ExpressionWrapper(
    models.F("created_at")
    + models.ExpressionWrapper(
        Coalesce(TOOK_MS, 0.0) * models.Value(timedelta(milliseconds=1)), models.DurationField()
    ),
    models.DateTimeField(),
)
LONGEST_RUN = timedelta(days=1)
LIST_DEFERRED = ("results", "lists", "sources", "sentences", "citations", "system_prompt", "history")


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions that all hold; None or "" leaves one out. text is looked up in the query, case-insensitively.

    degraded: whether it did without something. model: what wrote the answer, or embedded the question. Bounds are
    included; a run whose cost is not known is outside of any bound of the cost. since, until: of the time
    at which a run was finished, since included; a time without a zone is one of the server's.
    """

    collection: str | None = None
    kind: str | None = None
    status: str | None = None
    channel: str | None = None
    environment: str | None = None
    text: str | None = None
    conversation_id: str | None = None
    degraded: bool | str | None = None
    model: str | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    since: datetime | None = None
    until: datetime | None = None


class QueryRunQuerySet(models.QuerySet["QueryRun"]):
    def newest_first(self) -> QueryRunQuerySet:
        """By creation time, newest first; ties by id, so that pages never overlap."""
        return self.order_by("-created_at", "-id")

    def for_lists(self) -> QueryRunQuerySet:
        """Rows for a table: the columns that hold whole result texts stay in the database."""
        return self.newest_first().select_related("user").defer(*LIST_DEFERRED)

    def of_production(self) -> QueryRunQuerySet:
        """What people and programs asked, at any channel: this is what a figure calls a query."""
        return self.filter(environment=telemetry.PRODUCTION)

    def of_conversations(self) -> QueryRunQuerySet:
        """Those that were asked under the name of a conversation."""
        return self.exclude(conversation_id="")

    def by_conversation(self) -> models.QuerySet[Any, Any]:
        """One dict per conversation of these rows, the one asked last first; ties by its name.

        conversation_id, questions, began, ended, failed, declined, cost: of what is priced, priced: runs whose cost is
        known, slowest: ms, took: ms of all together.
        """
        statuses = QueryRun.Status
        rows = self.of_conversations().order_by().values("conversation_id")
        return rows.annotate(
            questions=models.Count("pk"),
            began=models.Min("created_at"),
            ended=models.Max("created_at"),
            failed=models.Count("pk", filter=models.Q(status=statuses.ERROR)),
            declined=models.Count("pk", filter=models.Q(status__in=(statuses.ABSTAINED, statuses.REFUSED))),
            cost=models.Sum("cost_usd"),
            priced=models.Count("cost_usd"),
            slowest=models.Max(TOOK_MS),
            took=models.Sum(TOOK_MS),
        ).order_by("-ended", "conversation_id")

    def visible_to(self, scope: CollectionScope) -> QueryRunQuerySet:
        """Those of the collections that a key opens; a run of a deleted one belongs to none."""
        return self.filter(scope.by_id("collection_id"))

    def filtered(self, by: RunFilter) -> QueryRunQuerySet:
        requested = {
            "collection_name": by.collection,
            "kind": by.kind,
            "status": by.status,
            "channel": by.channel,
            "environment": by.environment,
            "conversation_id": by.conversation_id,
            "query__icontains": by.text,
        }
        if not all(can_be_stored(value) for value in (*requested.values(), by.model) if value):
            return self.none()
        rows = self.filter(**{name: value for name, value in requested.items() if value})
        if by.degraded not in (None, ""):
            rows = rows.exclude(degraded=[]) if by.degraded else rows.filter(degraded=[])
        if by.model:
            rows = rows.filter(models.Q(answerer=by.model) | models.Q(embed_model=by.model))
        if by.min_ms is not None or by.max_ms is not None:
            rows = rows.annotate(measured_ms=TOOK_MS)
        since, until = _aware(by.since), _aware(by.until)
        if since is not None or until is not None:
            rows = rows.annotate(ended_at=FINISHED_AT)
        bounds = {
            "measured_ms__gte": by.min_ms, "measured_ms__lte": by.max_ms, "cost_usd__gte": by.min_cost,
            "cost_usd__lte": by.max_cost, "ended_at__gte": since, "ended_at__lt": until,
            "created_at__gte": since and since - LONGEST_RUN, "created_at__lt": until,  # by the index
        }  # fmt: skip
        return rows.filter(**{name: value for name, value in bounds.items() if value is not None})

    def recent_models(self) -> list[str]:
        """The models that wrote the newest answers or embedded the newest questions, by name."""
        newest = self.newest_first().values_list("answerer", "embed_model")[:LOOKED_AT]
        return sorted({model for pair in newest for model in pair if model})

    def beside(self, run: QueryRun) -> tuple[QueryRun | None, QueryRun | None]:
        """(the next newer one, the next older one) of these rows, None at an end; the run need not be among them."""
        later = models.Q(created_at__gt=run.created_at) | models.Q(created_at=run.created_at, id__gt=run.pk)
        earlier = models.Q(created_at__lt=run.created_at) | models.Q(created_at=run.created_at, id__lt=run.pk)
        rows = self.only("id", "query")
        newer = rows.filter(later).order_by("created_at", "id").first()
        return newer, rows.filter(earlier).newest_first().first()


def _aware(moment: datetime | None) -> datetime | None:
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment


class QueryRun(models.Model):
    """One search or one answer. Stored once, never changed, except trace_scores and its kin when it is judged later.

    collection may point at a row that is gone, because collections are deleted outside the ORM: show collection_name.
    retrieved_ids: "doc_id#chunk_index" in rank order. results: `services.result_dict` of each, in rank order.
    lists: every ranked list by name, each [["doc_id#chunk_index", raw score], ...].
    citations: one record per citation that stands in the answer (see `retrieval_app.answers.citations`).
    sentences: the answer's sentences with their citations and support. timings_ms: stage name -> milliseconds.
    token_usage: context_tokens, generation_tokens, total_tokens, estimated, or {} for a search.
    plan_name: the saved plan that the plan began from, "" for none. compression: {"tokens_before", "tokens_after"} of
    the results, null where the plan does not compress; each result then has its spans. history: earlier turns of the
    conversation, [{"role", "content"}], that the answerer was given. cost_usd: of all model calls of the run; null: the
    price of at least one is not known. findings: [{"place": "query", "history", "prompt", "source" or "answer", "key":
    "doc_id#chunk_index" of a source, "part": "context" of it, "action": "flagged", "redacted", "withheld" or "refused",
    ...`Finding.as_dict()`}]; risk_score: 0 to 100 of them all, null: not looked for. status "refused": the
    collection's security action turned the question or the answer away (see `retrieval_app.search.inspection`).
    store_state: see `query_pipeline.describe_state`; of a search as of an earlier time with "as_of" and
    "as_of_notes".
    elsewhere: what came from other collections that were searched beside it, {"collection id": {"name", "keys":
    "doc_id#chunk_index" of the results}}; {} for most. Results and sources of those have "collection", its name.
    environment: of production is what people and programs ask; evaluation asks golden questions, the playground and
    replays try plans. replay_of: the run whose plan and query were run again. evidence: 0 to 1, of the answer's best
    sentence, where the answerer measures it. retrieval_confidence, retrieval_action and fallback_triggered: of a
    collection that is calibrated (`search.corrective`); correction: how they came about, null where nothing
    was weighed. degraded: [{"step", "reason"}] of what it did without (see `retrieval_app.search.fallbacks`).
    conversation_id: the caller's name of the turns that the run belongs to, the thread's id for the chat;
    "" for none.
    """

    class Kind(models.TextChoices):
        SEARCH = "search", gettext_lazy("Search")
        ASK = "ask", gettext_lazy("Answer")

    class Status(models.TextChoices):
        OK = "ok", gettext_lazy("Answered")
        ABSTAINED = "abstained", gettext_lazy("No answer")
        ERROR = "error", gettext_lazy("Error")
        REFUSED = "refused", gettext_lazy("Blocked")

    class Channel(models.TextChoices):
        PAGE = "page", gettext_lazy("Web")
        API = "api", gettext_lazy("API")
        MCP = "mcp", gettext_lazy("MCP")
        CLI = "cli", gettext_lazy("CLI")
        CHAT = "chat", gettext_lazy("Chat")
        WORKER = "worker", gettext_lazy("Worker")

    class Environment(models.TextChoices):
        PRODUCTION = telemetry.PRODUCTION, gettext_lazy("Production")
        EVALUATION = telemetry.EVALUATION, gettext_lazy("Evaluation")
        PLAYGROUND = telemetry.PLAYGROUND, gettext_lazy("Playground")

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
    index_version = models.IntegerField(default=1)
    embed_model = models.TextField(blank=True)
    spec_version = models.CharField(max_length=20, blank=True)

    retrieved_ids = models.JSONField(default=list, blank=True)
    results = models.JSONField(default=list, blank=True, encoder=DjangoJSONEncoder)
    lists = models.JSONField(default=dict, blank=True)
    short_result = models.JSONField(null=True, blank=True)
    exact_used = models.BooleanField(null=True, blank=True)
    compression = models.JSONField(null=True, blank=True)
    store_state = models.JSONField(default=dict, blank=True)
    elsewhere = models.JSONField(default=dict, blank=True, db_default=models.Value({}, models.JSONField()))
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

    degraded = models.JSONField(default=list, blank=True, db_default=models.Value([], models.JSONField()))
    status = models.CharField(max_length=10, choices=Status, default=Status.OK)
    error = models.TextField(blank=True)
    error_type = models.CharField(max_length=60, blank=True)
    channel = models.CharField(max_length=10, choices=Channel)
    environment = models.CharField(
        max_length=10, choices=Environment, default=Environment.PRODUCTION, db_default=Environment.PRODUCTION.value
    )
    trace_id = models.CharField(max_length=32, blank=True)
    conversation_id = models.TextField(blank=True, default="", db_default="")
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
            models.Index(fields=["environment", "-created_at", "-id"], name="queryrun_environment_newest"),
            models.Index(
                fields=["conversation_id", "created_at", "id"],
                condition=~models.Q(conversation_id=""),
                name="queryrun_conversation",
            ),
            models.Index(
                fields=["-created_at", "-id"], condition=~models.Q(degraded=[]), name="queryrun_degraded_newest"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} in {self.collection_name}: {self.query[:60]}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:query-run", args=[self.id])

    @property
    def finished_at(self) -> datetime:
        """When it was about to be stored."""
        return self.created_at + timedelta(milliseconds=self.timings_ms.get("total") or 0.0)

    @property
    def cited_ids(self) -> list[str]:
        """Document ids that the answer cites, each once, in order of first use."""
        return list(dict.fromkeys(citation["doc_id"] for citation in self.citations))

    @property
    def collection_names(self) -> list[str]:
        """Of all collections that were chosen, the run's own first; files of a thread come without being chosen."""
        others = (other["name"] for other in self.elsewhere.values() if "files" not in other)
        return [self.collection_name, *others]

    @property
    def as_of(self) -> str | None:
        """The time as of which the collection was searched, ISO 8601; None: as it was when it was asked."""
        moment: str | None = self.store_state.get("as_of")
        return moment

    @property
    def as_of_notes(self) -> list[str]:
        """What of that time is not surely as it was."""
        return list(self.store_state.get("as_of_notes", ()))

    @property
    def confidence(self) -> float | None:
        """0 to 1, one figure: of the retrieval where the collection is calibrated, else of the answer's best sentence
        where the answerer measures it, else None."""
        return self.evidence if self.retrieval_confidence is None else self.retrieval_confidence

    @property
    def took_ms(self) -> float:
        return float(self.timings_ms.get("total", 0.0))

    @property
    def plan_mode(self) -> str:
        return str(self.plan.get("mode", ""))

    @property
    def plan_weights(self) -> dict[str, float] | None:
        """Of the lists of a hybrid search; None in other modes."""
        return dict(self.plan.get("weights") or {}) if self.plan_mode == "hybrid" else None


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
