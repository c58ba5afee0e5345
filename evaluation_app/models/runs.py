"""Evaluation runs, experiments and comparisons, what they found of each question, and judgements that are kept."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.jobs.leases import LeasedWork
from evaluation_app.measures.catalogue import failures


class EvaluationRun(LeasedWork):
    """One golden set, asked by one plan and judged by one judge, with all that decides its figures.

    settings: `RunSettings.as_dict()`. prompt_hash: SHA-256 of the system prompt that the answerer used. calibration:
    by which the corrective step worked, "" where it was off. purpose: why it was made. summary: what
    `runs.summaries.summarize` gives, written anew as items come; of a run that tries an embedding model {"embedded":
    [done, total]} of its chunks, then {"trial": `Trial.as_dict()`}. place: among the experiment's variants.
    thresholds: measure -> least mean that passes; passed: None without thresholds, False whenever an item failed.
    took_ms: time at work, over all attempts. cost_usd: of answers, and judge_cost_usd of the judge; None: a price is
    not known. attempts_forgiven: those before the last one that stored an item. retries: how often its failed
    questions were asked again.
    """

    class State(models.TextChoices):
        QUEUED = "queued", gettext_lazy("Queued")
        RUNNING = "running", gettext_lazy("Running")
        SUCCEEDED = "succeeded", gettext_lazy("Succeeded")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")

    class Purpose(models.TextChoices):
        MANUAL = "manual", gettext_lazy("Manual")
        API = "api", gettext_lazy("API")
        CLI = "cli", gettext_lazy("CLI")
        EXPERIMENT = "experiment", gettext_lazy("Experiment")
        FIX = "fix", gettext_lazy("Fix")
        GATE = "gate", gettext_lazy("Quality gate")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    golden_set = models.ForeignKey(
        "evaluation_app.GoldenSet", null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    set_name = models.CharField(max_length=200)
    set_version = models.IntegerField()
    set_digest = models.CharField(max_length=64)
    collection_name = models.TextField(db_collation="C")
    name = models.TextField(default="", blank=True)
    purpose = models.CharField(max_length=10, choices=Purpose, default=Purpose.MANUAL)
    experiment = models.ForeignKey(
        "evaluation_app.Experiment", null=True, blank=True, on_delete=models.CASCADE, related_name="runs"
    )
    place = models.IntegerField(null=True, blank=True)

    plan = models.JSONField(default=dict)
    plan_hash = models.CharField(max_length=64)
    plan_name = models.TextField(default="", blank=True)
    settings = models.JSONField(default=dict)
    answerer = models.TextField(default="", blank=True)
    prompt_hash = models.CharField(max_length=64, default="", blank=True)
    judge = models.CharField(max_length=20, default="none")
    judge_version = models.TextField(default="", blank=True)
    calibration = models.TextField(default="", blank=True)
    index_version = models.IntegerField(default=1)
    embed_model = models.TextField(default="", blank=True)
    spec_version = models.CharField(max_length=20, default="", blank=True)
    code_version = models.CharField(max_length=60, default="", blank=True)

    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    cancel_requested = models.BooleanField(default=False)
    total = models.IntegerField(default=0)
    done = models.IntegerField(default=0)
    failed = models.IntegerField(default=0)
    summary = models.JSONField(default=dict, blank=True)
    thresholds = models.JSONField(default=dict, blank=True)
    passed = models.BooleanField(null=True, blank=True)
    cost_usd = models.FloatField(null=True, blank=True)
    judge_cost_usd = models.FloatField(null=True, blank=True)
    token_usage = models.JSONField(default=dict, blank=True)
    took_ms = models.FloatField(default=0.0)
    error = models.TextField(default="", blank=True)
    error_type = models.CharField(max_length=60, default="", blank=True)

    retries = models.IntegerField(default=0)
    heartbeat_at = models.DateTimeField(null=True, blank=True, db_column="beat_at")
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "evaluation_runs"
        ordering: ClassVar[list[str]] = ["-created_at", "-id"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["set_name", "-created_at"], name="evaluation_runs_of_set"),
            models.Index(fields=["collection_name", "-created_at"], name="evaluation_runs_of_coll"),
            models.Index(fields=["state", "lease_until"], name="evaluation_runs_state"),
        ]

    def __str__(self) -> str:
        return self.name or f"{self.set_name}, {self.created_at:%Y-%m-%d %H:%M}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:evaluation-run", args=[self.pk])

    @property
    def judge_identity(self) -> str:
        """Name and version of the judge, "none" without one."""
        return f"{self.judge} {self.judge_version}".rstrip()

    @property
    def is_active(self) -> bool:
        return self.state in (self.State.QUEUED, self.State.RUNNING)

    @property
    def base_run(self) -> EvaluationRun | None:
        """The run that this one tries to better."""
        return self.experiment.base if self.experiment else None

    @property
    def tries_model(self) -> bool:
        """Whether it tries an embedding model, so that it has no items of its own."""
        return self.experiment is not None and self.experiment.kind == "models"


class Scored(models.Model):
    """What is kept of one question that was asked and scored.

    scores: measure -> `Score.as_dict()`. context: per retrieved chunk {"key": "doc_id#index", "sentences": [[key,
    text]]}; answer_sentences: [[key, text]]. annotation: {"relevant": [key], "utilized": [key], "support": [{"key",
    "by": [key], "supported"}]}, {} where nothing was judged. contributions: [{"key", "alone", "without",
    "contribution", "effect"}] by rank. modes: keys of failure modes and diagnostics. details: what a measure wants to
    tell besides (rationale, probabilities, "components" of the expected answer, "citations"). judge_usage:
    {"input_tokens", "output_tokens", "cost_usd", "cached"}.
    """

    question_text = models.TextField()
    trace_id = models.CharField(max_length=32, default="", blank=True)
    retrieved_ids = models.JSONField(default=list, blank=True)
    answer = models.TextField(default="", blank=True)
    scores = models.JSONField(default=dict, blank=True)
    context = models.JSONField(default=list, blank=True)
    answer_sentences = models.JSONField(default=list, blank=True)
    annotation = models.JSONField(default=dict, blank=True)
    contributions = models.JSONField(default=list, blank=True)
    modes = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    details = models.JSONField(default=dict, blank=True)
    judge_usage = models.JSONField(default=dict, blank=True)
    took_ms = models.FloatField(default=0.0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.question_text


class EvaluationItem(Scored):
    """One golden question in one run, complete in itself: it is written once, when it is done.

    golden: `Golden.as_dict()` as it was asked. query_run: the stored run of the question (it may be gone by retention).
    outcome: answered, abstained (the answerer declined), refused (the collection's security), searched (no answer was
    asked for) or error.
    """

    class Outcome(models.TextChoices):
        ANSWERED = "answered", gettext_lazy("Answered")
        ABSTAINED = "abstained", gettext_lazy("No answer")
        REFUSED = "refused", gettext_lazy("Blocked")
        SEARCHED = "searched", gettext_lazy("Search")
        ERROR = "error", gettext_lazy("Error")

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="items")
    position = models.IntegerField()
    question = models.ForeignKey(
        "evaluation_app.GoldenQuestion", null=True, blank=True, on_delete=models.SET_NULL, related_name="items"
    )
    category = models.CharField(max_length=60, default="", blank=True)
    weight = models.FloatField(default=1.0)
    golden = models.JSONField(default=dict)
    query_run = models.UUIDField(null=True, blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome)
    confidence = models.FloatField(null=True, blank=True)
    action = models.CharField(max_length=12, default="", blank=True)
    cost_usd = models.FloatField(null=True, blank=True)
    error = models.TextField(default="", blank=True)
    error_type = models.CharField(max_length=60, default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "evaluation_items"
        ordering: ClassVar[list[str]] = ["run", "position"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["run", "position"], name="evaluation_item_once")
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["query_run"], name="evaluation_items_query_run"),
            GinIndex(fields=["modes"], name="evaluation_items_modes"),
        ]

    @property
    def judge_identity(self) -> str:
        return self.run.judge_identity

    @property
    def is_failing(self) -> bool:
        """Whether it failed with an error or shows a mode that is a failure, and not diagnostics alone."""
        return self.outcome == self.Outcome.ERROR or bool(failures(self.modes))


class KeptJudgement(models.Model):
    """A model's accepted annotation under the hash of prompt, model and parameters: a repeated run asks nothing."""

    key = models.CharField(max_length=64, primary_key=True)
    model = models.TextField()
    value = models.JSONField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "kept_judgements"
        ordering: ClassVar[list[str]] = ["-created_at", "key"]

    def __str__(self) -> str:
        return f"{self.model} {self.key[:12]}"


class RunScoreQuerySet(models.QuerySet["RunScore"]):
    def sampled(self) -> RunScoreQuerySet:
        """Of live traffic, without what somebody asked for."""
        return self.filter(reason="sampled")

    def since(self, moment: datetime) -> RunScoreQuerySet:
        return self.filter(asked_at__gte=moment)

    def without_texts(self) -> RunScoreQuerySet:
        """Rows for a table: context, answer and marks stay in the database."""
        return self.defer("context", "answer", "answer_sentences", "annotation", "contributions", "details")


class RunScore(Scored):
    """What a judge says of one stored run that no golden question stands behind: sampled traffic, or on request.

    reason: "sampled" or "asked".
    """

    golden: ClassVar[dict[str, Any]] = {}

    query_run = models.UUIDField(primary_key=True)
    collection_name = models.TextField(db_collation="C")
    reason = models.CharField(max_length=10, default="asked")
    judge = models.CharField(max_length=20)
    judge_version = models.TextField(default="", blank=True)
    outcome = models.CharField(max_length=10)
    asked_at = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now)

    objects = RunScoreQuerySet.as_manager()

    class Meta:
        db_table = "run_scores"
        ordering: ClassVar[list[str]] = ["-asked_at", "-query_run"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["collection_name", "-asked_at"], name="run_scores_of_coll")
        ]

    @property
    def judge_identity(self) -> str:
        """Name and version of the judge, "none" without one."""
        return f"{self.judge} {self.judge_version}".rstrip()


class Sampling(LeasedWork):
    """Which share of a collection's answers is scored while it serves. rate: 0 to 1; per_day: at most so many.

    enabled_at: what was asked before is left alone. looked_until: what began before was looked at.
    """

    collection_name = models.TextField(db_collation="C", primary_key=True)
    enabled = models.BooleanField(default=False)
    rate = models.FloatField(default=0.1)
    per_day = models.IntegerField(default=500)
    judge = models.CharField(max_length=20, default="embedded")
    judge_model = models.TextField(default="", blank=True)
    enabled_at = models.DateTimeField(null=True, blank=True)
    looked_until = models.DateTimeField(null=True, blank=True)
    updated_by = models.TextField(default="", blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "evaluation_samplings"
        ordering: ClassVar[list[str]] = ["collection_name"]

    def __str__(self) -> str:
        return self.collection_name

    @property
    def share(self) -> str:
        """The rate in words: "12.5 %"."""
        return f"{100 * self.rate:.4g} %"


class RunComparison(models.Model):
    """One run against its base, computed once: both are finished.

    key: of all that decides the figures (`stored_comparisons.key_of`); a row with another key is computed anew. p: of
    the primary measure, two-sided, not adjusted; None without one. The rows of one base are the looks that its verdicts
    are corrected for. figures: `PairFigures` as JSON.
    """

    id = models.BigAutoField(primary_key=True)
    base = models.ForeignKey("evaluation_app.EvaluationRun", on_delete=models.CASCADE, related_name="comparisons")
    other = models.ForeignKey("evaluation_app.EvaluationRun", on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=64)
    p = models.FloatField(null=True, blank=True)
    figures = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "evaluation_comparisons"
        ordering: ClassVar[list[str]] = ["base", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["base", "other"], name="evaluation_comparison_once")
        ]

    def __str__(self) -> str:
        return f"{self.other_id} against {self.base_id}"


class GapDismissal(models.Model):
    """A question, by the SHA-256 of its text, is no content gap until it is asked again after `dismissed_at`."""

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(
        "collections_app.Collection", on_delete=models.CASCADE, db_constraint=False, related_name="+"
    )
    digest = models.CharField(max_length=64)
    dismissed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "gap_dismissals"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["collection", "digest"], name="gap_dismissals_key")
        ]

    def __str__(self) -> str:
        return self.digest[:12]


class Experiment(models.Model):
    """Variants of a plan or an index, asked the same questions. The run of each has its `place` among the variants.

    kind: what varies. grid: what was asked for: of PLANS field -> values, of MODELS nothing, of FIX {"mode", "fix"},
    keys of the table of modes. variants: of PLANS and FIX `RetrievePlan.as_dict()`, of MODELS `Candidate.as_dict()`,
    the one that serves first. settings: the same for all runs, `RunSettings.as_dict()`; of MODELS {"mode", "k",
    "documents_total", "chunks_total"}. measure: by whose mean PLANS are ranked.

    questions: `Golden.as_dict()` of MODELS, fixed at the start; doc_ids: their sample. set_name: "" where the questions
    were made from the documents.

    outcome: what a person decided. saved_as: the preset that a variant became, "" for none.
    """

    class Kind(models.TextChoices):
        PLANS = "plans", gettext_lazy("Retrieval settings")
        MODELS = "models", gettext_lazy("Embedding models")
        FIX = "fix", gettext_lazy("Fix")
        JUDGE = "judge", gettext_lazy("Judge calibration")

    class Outcome(models.TextChoices):
        OPEN = "open", gettext_lazy("Open")
        KEPT = "kept", gettext_lazy("Kept")
        DISCARDED = "discarded", gettext_lazy("Discarded")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=10, choices=Kind)
    golden_set = models.ForeignKey(
        "evaluation_app.GoldenSet", null=True, blank=True, on_delete=models.SET_NULL, related_name="experiments"
    )
    set_name = models.CharField(max_length=200, default="", blank=True)
    set_version = models.IntegerField(default=0)
    set_digest = models.CharField(max_length=64, default="", blank=True)
    collection_name = models.TextField(db_collation="C")
    name = models.TextField(default="", blank=True)
    base = models.ForeignKey(
        "evaluation_app.EvaluationRun", null=True, blank=True, on_delete=models.SET_NULL, related_name="fixes"
    )
    grid: models.JSONField[Any, Any] = models.JSONField(default=dict)
    variants: models.JSONField[Any, Any] = models.JSONField(default=list)
    measure = models.CharField(max_length=60, default="", blank=True)
    settings: models.JSONField[Any, Any] = models.JSONField(default=dict)
    questions: models.JSONField[Any, Any] = models.JSONField(default=list)
    doc_ids: models.JSONField[Any, Any] = models.JSONField(default=list)
    outcome = models.CharField(max_length=10, choices=Outcome, default=Outcome.OPEN)
    saved_as = models.TextField(default="", blank=True)
    is_default = models.BooleanField(default=False)
    decided_by = models.TextField(default="", blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "experiments"
        ordering: ClassVar[list[str]] = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name or f"{self.get_kind_display()}, {self.set_name or self.collection_name}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:experiment", args=[self.pk])
