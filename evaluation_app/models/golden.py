"""Golden questions by set, and the versions that a set has had."""

from __future__ import annotations

from typing import ClassVar

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
            models.UniqueConstraint(fields=["collection_name", "name"], name="golden_set_name_once"),
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
