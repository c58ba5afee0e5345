"""What people say of answers, and what they do about failing questions."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy


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
            models.UniqueConstraint(
                fields=["item"], name="review_task_of_item", condition=models.Q(item__isnull=False)
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["state", "-priority", "created_at"], name="review_tasks_queue"),
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
