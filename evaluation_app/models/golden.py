"""Golden questions by set with the versions of it, what people say of answers, and what they do about failures."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy


class GoldenSet(models.Model):
    """Questions with known answers over one collection, where its name is unique. `version` grows with every change.

    digest: of its questions (`golden.versions.digest_of`), "" until the first version is kept. baseline: the
    evaluation run that later ones are held against. bands: measure -> [good, poor] instead of the server's.
    primary_measure, guardrails and relevant_effect: how its runs are judged better or worse (`golden.criteria`).
    rubrics: `rubrics.definitions.Rubric.as_dict()` of each of its own, which runs score beside the measures.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=200)
    description = models.TextField(default="", blank=True)
    collection_name = models.TextField(db_collation="C")
    version = models.IntegerField(default=1)
    digest = models.CharField(max_length=64, default="", blank=True)
    baseline = models.ForeignKey(
        "evaluation_app.EvaluationRun", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    bands = models.JSONField(default=dict, blank=True)
    primary_measure = models.CharField(max_length=60, default="", blank=True)
    guardrails = models.JSONField(default=dict, blank=True)
    relevant_effect = models.FloatField(default=0.02)
    rubrics = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "golden_sets"
        ordering: ClassVar[list[str]] = ["name", "collection_name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["collection_name", "name"], name="golden_set_name_once")
        ]

    def __str__(self) -> str:
        return self.name


class GoldenSetVersion(models.Model):
    """What a set held at one version. questions: [`Golden.as_dict()`], in order. made_by: a user or a key's label."""

    id = models.BigAutoField(primary_key=True)
    golden_set = models.ForeignKey(GoldenSet, on_delete=models.CASCADE, related_name="versions")
    version = models.IntegerField()
    digest = models.CharField(max_length=64)
    questions = models.JSONField(default=list, blank=True)
    reason = models.TextField(default="", blank=True)
    made_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "golden_set_versions"
        ordering: ClassVar[list[str]] = ["golden_set", "-version"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["golden_set", "version"], name="golden_set_version_once")
        ]

    def __str__(self) -> str:
        return f"version {self.version}"


class GoldenQuestion(models.Model):
    """One question. expected_chunks: "doc_id#chunk_index", where known. match: whether any or all of what is expected
    is needed; rows from before the column are "all", as they were measured.

    thresholds: measure name -> the least that passes, over those of the set's run. weight: in means, not negative.
    source_run: the run that it was made of. suggested: made by a machine and not looked at yet; never evaluated.
    chunk_marks: expected chunk -> SHA-256 of its text when it was chosen, by which it is told that another text stands
    under its number now. by_construction: it was suggested because a search had found its document in the top 10.
    """

    class Match(models.TextChoices):
        ANY = "any", gettext_lazy("Any of them")
        ALL = "all", gettext_lazy("All of them")

    id = models.BigAutoField(primary_key=True)
    golden_set = models.ForeignKey(GoldenSet, on_delete=models.CASCADE, related_name="questions")
    position = models.IntegerField(default=0)
    question = models.TextField()
    expected_doc_ids = models.JSONField(default=list, blank=True)
    expected_chunks = models.JSONField(default=list, blank=True)
    expected_answer = models.TextField(default="", blank=True)
    category = models.CharField(max_length=60, default="factual")
    weight = models.FloatField(default=1.0)
    thresholds = models.JSONField(default=dict, blank=True)
    notes = models.TextField(default="", blank=True)
    match = models.CharField(max_length=3, choices=Match, default=Match.ALL)
    suggested = models.BooleanField(default=False)
    by_construction = models.BooleanField(default=False, editable=False)
    source_run = models.UUIDField(null=True, blank=True)
    chunk_marks = models.JSONField(default=dict, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "golden_questions"
        ordering: ClassVar[list[str]] = ["golden_set", "position", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["golden_set", "question"], name="golden_question_once")
        ]

    def __str__(self) -> str:
        return self.question


class PromotionGate(models.Model):
    """An index version of the collection serves only if the set's mean of the measure is not lower by more than
    `margin`.

    measure: a name of `measures.ranking.MEASURES`, over documents, at the cut k. set_name: stays when the set is
    deleted, so that it can be said which one is missing. No row: every index version may serve.
    """

    collection_name = models.TextField(db_collation="C", primary_key=True)
    golden_set = models.ForeignKey(
        "evaluation_app.GoldenSet", null=True, blank=True, on_delete=models.SET_NULL, related_name="gates"
    )
    set_name = models.CharField(max_length=200)
    measure = models.CharField(max_length=20, default="recall")
    k = models.IntegerField(default=10)
    margin = models.FloatField(default=0.02)
    updated_by = models.TextField(default="", blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "promotion_gates"
        ordering: ClassVar[list[str]] = ["collection_name"]

    def __str__(self) -> str:
        return f"{self.measure}@{self.k} of {self.set_name} for {self.collection_name}"


class ReviewTask(models.Model):
    """One answer that people are to judge. It keeps what is shown, so that it outlives its run.

    item: the evaluation item it is of, None for a run of live traffic. judged: the judge's scores, as the item's
    scores; people do not see them before they have judged. reason: why it is in the queue; FEEDBACK: it never was, who
    asked said something of the answer.
    """

    FEEDBACK = "feedback"

    class State(models.TextChoices):
        OPEN = "open", gettext_lazy("Open")
        DONE = "done", gettext_lazy("Done")
        SKIPPED = "skipped", gettext_lazy("Excluded")

    id = models.BigAutoField(primary_key=True)
    item = models.ForeignKey(
        "evaluation_app.EvaluationItem", null=True, blank=True, on_delete=models.SET_NULL, related_name="review_tasks"
    )
    query_run = models.UUIDField(null=True, blank=True)
    set_name = models.CharField(max_length=200, default="", blank=True)
    collection_name = models.TextField(db_collation="C")
    question_text = models.TextField()
    expected_answer = models.TextField(default="", blank=True)
    answer = models.TextField(default="", blank=True)
    context = models.JSONField(default=list, blank=True)
    answer_sentences = models.JSONField(default=list, blank=True)
    judge = models.CharField(max_length=20, default="", blank=True)
    judged = models.JSONField(default=dict, blank=True)
    reason = models.TextField(default="", blank=True)
    priority = models.FloatField(default=0.0)
    wanted = models.IntegerField(default=1)
    state = models.CharField(max_length=10, choices=State, default=State.OPEN)
    created_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "review_tasks"
        ordering: ClassVar[list[str]] = ["-priority", "created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["item"], name="review_task_of_item", condition=models.Q(item__isnull=False))
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["state", "-priority", "created_at"], name="review_tasks_queue")
        ]

    def __str__(self) -> str:
        return self.question_text


class Review(models.Model):
    """What one person says of one task. verdicts: measure -> number 0 to 1, or None for "cannot tell".

    unsupported: keys of the answer's sentences that nothing supports. correction: the right answer, where they gave it.
    reason: what is wrong with the answer, of who asked; "" where they did not say.
    """

    class Reason(models.TextChoices):
        FACTS = "facts", gettext_lazy("Wrong facts")
        INCOMPLETE = "incomplete", gettext_lazy("Incomplete")
        SOURCES = "sources", gettext_lazy("Wrong or missing sources")
        OUTDATED = "outdated", gettext_lazy("Outdated")
        OTHER_QUESTION = "other_question", gettext_lazy("Answers another question")

    id = models.BigAutoField(primary_key=True)
    task = models.ForeignKey(ReviewTask, on_delete=models.CASCADE, related_name="reviews")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    reviewer_name = models.TextField()
    verdicts = models.JSONField(default=dict)
    unsupported = models.JSONField(default=list, blank=True)
    note = models.TextField(default="", blank=True)
    correction = models.TextField(default="", blank=True)
    reason = models.CharField(max_length=20, choices=Reason, default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "reviews"
        ordering: ClassVar[list[str]] = ["-created_at", "-id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["task", "reviewer_name"], name="review_once")
        ]

    def __str__(self) -> str:
        return f"{self.reviewer_name} on {self.task}"


class BoardCard(models.Model):
    """What people decided about one failing question of a set in one mode. No row: nothing was decided."""

    class State(models.TextChoices):
        OPEN = "open", gettext_lazy("Open")
        SNOOZED = "snoozed", gettext_lazy("Dismissed")
        RESOLVED = "resolved", gettext_lazy("Resolved")

    id = models.BigAutoField(primary_key=True)
    golden_set = models.ForeignKey("evaluation_app.GoldenSet", on_delete=models.CASCADE, related_name="cards")
    question_text = models.TextField()
    mode = models.CharField(max_length=40)
    state = models.CharField(max_length=10, choices=State, default=State.OPEN)
    assignee = models.TextField(default="", blank=True)
    until = models.DateField(null=True, blank=True)
    note = models.TextField(default="", blank=True)
    changed_by = models.TextField(default="", blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "board_cards"
        ordering: ClassVar[list[str]] = ["golden_set", "mode", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["golden_set", "question_text", "mode"], name="board_card_once")
        ]

    def __str__(self) -> str:
        return f"{self.mode}: {self.question_text}"
