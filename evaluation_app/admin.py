"""Golden sets, evaluation runs, scores, spans and the gate in the admin: checked and changed as everywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from collections_app.admin.base import ERASE, Base, ReadOnlyAdmin, page_link, row_action
from collections_app.admin.readable import column, display_of
from collections_app.models import Collection
from collections_app.views.forms.fields import LinesField, PlaceField
from evaluation_app.analysis.sweeps.lifecycle import cancel_sweep
from evaluation_app.conformance import request_run
from evaluation_app.curation.gate import remove_gate
from evaluation_app.golden import edits, sets
from evaluation_app.golden.criteria import CRITERIA, clean_criteria
from evaluation_app.golden.pages.forms import ThresholdsField
from evaluation_app.golden.questions import FIELDS, Golden, clean_description, clean_golden, clean_name
from evaluation_app.golden.versions import keep_version
from evaluation_app.models import (
    ConformanceResult,
    EvaluationItem,
    EvaluationRun,
    GoldenQuestion,
    GoldenSet,
    GoldenSetVersion,
    KeptJudgement,
    PromotionGate,
    ReviewTask,
    RunScore,
    Sampling,
    Span,
    SpanWriter,
    Sweep,
)
from evaluation_app.runs import lifecycle
from evaluation_app.runs.requests import ITEM_DEFERRED
from evaluation_app.scoring.judge_selection import clear_stored
from ragd.errors import InvalidInput

if TYPE_CHECKING:
    Inline = admin.TabularInline[GoldenQuestion, GoldenSet]
    QuestionModelForm = forms.ModelForm[GoldenQuestion]
    SetModelForm = forms.ModelForm[GoldenSet]
else:
    Inline = admin.TabularInline
    QuestionModelForm = SetModelForm = forms.ModelForm

CHANGED_HERE = "changed in the admin"


@admin.register(Span)
class SpanAdmin(ReadOnlyAdmin):
    list_display = ("started_at", "name", "kind", "collection", "took", "status_code", "trace_id")
    list_filter = ("status_code", "kind", "service", "collection")
    search_fields = ("name__startswith", "=trace_id", "=span_id")
    ordering = ("-started_at", "-id")
    list_deferred = ("attributes", "events", "links", "words")
    took = column("duration_ms", "duration")


@admin.register(SpanWriter)
class SpanWriterAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("name", "written", "lost", "last_error", "updated_at")
    search_fields = ("name",)
    deletable = True


@admin.register(ConformanceResult)
class ConformanceResultAdmin(ReadOnlyAdmin):
    list_display = ("started_at", "state", "spec_version", "database_version", "cases", "failed_rules", "started_by")
    list_filter = ("passed", "spec_version")
    ordering = ("-started_at", "-id")
    actions = ("try_again",)
    deletable = True

    @admin.action(description="Run the checks again", permissions=["view"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[Model]) -> None:
        request_run(request.user)
        self.message_user(request, "Check started; reload in a moment.")


class GoldenQuestionForm(QuestionModelForm):
    """Holds a question to the same rules as pages and API. What is expected stands one to a line."""

    position = PlaceField(min_value=0, initial=0, help_text=gettext_lazy("From 1."))
    expected_doc_ids = LinesField(required=False, help_text=gettext_lazy("One document per line."))

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        explicit = {name: data[name] for name in FIELDS if name in data and data[name] is not None}
        if "question" not in explicit:
            return data
        try:
            golden = clean_golden(explicit, Golden.of(self.instance) if self.instance.pk else None)
        except InvalidInput as error:
            raise refusal_of(error, self) from None
        values = golden.as_dict()
        for name in values.keys() - data.keys():  # what follows from the fields of the form
            setattr(self.instance, name, values[name])
        return data | {name: value for name, value in values.items() if name in data}


class WholeQuestionForm(GoldenQuestionForm):
    expected_chunks = LinesField(required=False, help_text=gettext_lazy("One chunk per line, such as guide.md#3."))
    thresholds = ThresholdsField(
        required=False, help_text=gettext_lazy("Pass criteria, such as recall@10=1; adherence=1.")
    )


class GoldenSetForm(SetModelForm):
    guardrails = ThresholdsField(
        required=False, help_text=gettext_lazy("Metrics that must not drop by more, such as recall=0.05.")
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        checks = {"name": clean_name, "description": clean_description}
        try:
            cleaned = {name: check(data[name]) for name, check in checks.items() if name in data}
            return data | cleaned | clean_criteria({name: data[name] for name in CRITERIA if name in data})
        except InvalidInput as error:
            raise refusal_of(error, self) from None


def refusal_of(error: InvalidInput, form: forms.BaseForm) -> ValidationError:
    """The same beside the field that it names, where the form has it."""
    return ValidationError({error.field: error.message} if error.field in form.fields else error.message)


class GoldenQuestionInline(Inline):
    model = GoldenQuestion
    form = GoldenQuestionForm
    fields = ("position", "question", "expected_doc_ids", "expected_answer", "category")
    extra = 0


@admin.register(GoldenSet)
class GoldenSetAdmin(Base):
    form = GoldenSetForm
    list_display = ("name", "collection_name", "version", "questions_count", "updated_at")
    search_fields = ("name", "collection_name")
    exclude = ("baseline", "rubrics")
    readonly_fields = ("version", "digest", display_of(GoldenSet, "baseline"), display_of(GoldenSet, "rubrics"))
    inlines = (GoldenQuestionInline,)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Its questions expect documents of its collection, so that stays."""
        return (*self.readonly_fields, "collection_name") if obj else self.readonly_fields

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(questions_total=Count("questions"))

    @admin.display(description="questions", ordering="questions_total")
    def questions_count(self, golden_set: GoldenSet) -> int:
        return int(getattr(golden_set, "questions_total", 0))

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        super().save_formset(request, form, formset, change)
        changed = [*formset.new_objects, *(row for row, _ in formset.changed_objects)]
        edits.write_goldens(form.instance, [(row, Golden.of(row)) for row in changed])

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        keep_version(form.instance, reason=CHANGED_HERE, actor=request.user)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Versions go with their set, although nobody may delete one alone."""
        shown, counts, refused, protected = super().get_deleted_objects(objs, request)
        return shown, counts, refused - {str(GoldenSetVersion._meta.verbose_name)}, protected

    def delete_model(self, request: HttpRequest, obj: GoldenSet) -> None:
        sets.delete_set(obj, actor=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[GoldenSet]) -> None:
        for golden_set in queryset:
            sets.delete_set(golden_set, actor=request.user)


@admin.register(GoldenQuestion)
class GoldenQuestionAdmin(Base):
    form = WholeQuestionForm
    list_display = ("question", "golden_set", "category", "expected_doc_ids", "weight", "suggested")
    list_filter = ("golden_set", "category", "suggested")
    list_select_related = ("golden_set",)
    search_fields = ("question", "expected_answer")
    readonly_fields = ("source_run",)
    actions = ("accept", "discard")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """A question stays in its set, whose versions hold it."""
        return (*self.readonly_fields, "golden_set") if obj else self.readonly_fields

    def save_model(self, request: HttpRequest, obj: GoldenQuestion, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        edits.write_golden(obj, Golden.of(obj))
        keep_version(obj.golden_set, reason=CHANGED_HERE, actor=request.user)

    def delete_model(self, request: HttpRequest, obj: GoldenQuestion) -> None:
        edits.delete_questions(obj.golden_set, [obj.pk], actor=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[GoldenQuestion]) -> None:
        self._by_set(request, queryset, edits.delete_questions)

    @admin.action(description="Accept the selected generated questions", permissions=["change"])
    def accept(self, request: HttpRequest, queryset: QuerySet[GoldenQuestion]) -> None:
        count = self._by_set(request, queryset, edits.accept_suggestions)
        self.message_user(request, f"{count} questions accepted.")

    @admin.action(description="Reject the selected generated questions", permissions=["delete"])
    def discard(self, request: HttpRequest, queryset: QuerySet[GoldenQuestion]) -> None:
        count = self._by_set(request, queryset, edits.discard_suggestions)
        self.message_user(request, f"{count} questions rejected.")

    def _by_set(self, request: HttpRequest, queryset: QuerySet[GoldenQuestion], act: Any) -> int:
        ids: dict[int, list[int]] = {}
        for pk, set_id in queryset.values_list("pk", "golden_set_id"):
            ids.setdefault(set_id, []).append(pk)
        records = GoldenSet.objects.in_bulk(ids)
        return sum(act(records[set_id], chosen, actor=request.user) for set_id, chosen in ids.items())


@admin.register(GoldenSetVersion)
class GoldenSetVersionAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("golden_set", "version", "reason", "made_by", "created_at")
    list_filter = ("golden_set",)
    list_select_related = ("golden_set",)


@admin.register(EvaluationRun)
class EvaluationRunAdmin(ReadOnlyAdmin):
    list_display = (
        "__str__", "set_name", "collection_name", "state", "progress", "failed", "passed", "judge", "purpose",
        "created_by", "created_at", "page",
    )  # fmt: skip
    list_filter = ("state", "passed", "purpose", "judge", "set_name")
    search_fields = ("name", "set_name", "collection_name", "plan_hash", "=id")
    date_hierarchy = "created_at"
    ordering = ("-created_at", "-id")
    actions = ("cancel", "resume", "retry_failed", "delete_runs")
    list_deferred = ("summary", "plan")

    @admin.display(description="questions")
    def progress(self, run: EvaluationRun) -> str:
        return f"{run.done} of {run.total}"

    @admin.display(description="page")
    def page(self, run: EvaluationRun) -> SafeString:
        return page_link("open", "evaluation:evaluation-run", run.pk)

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        return [("Open", reverse("evaluation:evaluation-run", args=[obj.pk]))]

    cancel = row_action("Cancel the selected runs", lifecycle.cancel_run, "cancelled")
    resume = row_action("Resume the selected runs", lifecycle.resume_run, "queued again")
    retry_failed = row_action("Retry what failed in the selected runs", lifecycle.retry_failed, "queued again")
    delete_runs = row_action(
        "Delete the selected runs with their results", lifecycle.delete_run, "deleted", permission=ERASE
    )


@admin.register(EvaluationItem)
class EvaluationItemAdmin(ReadOnlyAdmin):
    list_display = ("question_text", "run", "place", "category", "outcome", "error_type", "took", "created_at")
    list_filter = ("outcome", "category", "error_type")
    list_select_related = ("run",)
    search_fields = ("question_text", "answer", "=run__id", "=query_run")
    ordering = ("-created_at", "-id")
    list_deferred = (*ITEM_DEFERRED, "scores", "golden", "run__summary", "run__plan", "run__settings")
    place = column("position", "position")
    took = column("took_ms", "duration")

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        return [("Open", reverse("evaluation:evaluation-item", args=[obj.run_id, obj.position]))]


@admin.register(Sweep)
class SweepAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "set_name", "collection_name", "measure", "plans_count", "created_by", "created_at")
    list_filter = ("measure", "collection_name")
    search_fields = ("name", "set_name", "collection_name")
    ordering = ("-created_at", "-id")
    list_deferred = ("grid", "settings")
    actions = ("cancel",)

    @admin.display(description="plans")
    def plans_count(self, sweep: Sweep) -> int:
        return len(sweep.plans)

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        return [("Open", reverse("evaluation:sweep", args=[obj.pk]))]

    cancel = row_action("Cancel the selected sweeps", cancel_sweep, "cancelled")


@admin.register(ReviewTask)
class ReviewTaskAdmin(ReadOnlyAdmin):
    list_display = (
        "question_text", "set_name", "collection_name", "state", "reviews_count", "wanted", "created_by", "created_at",
    )  # fmt: skip
    list_filter = ("state", "set_name", "collection_name")
    search_fields = ("question_text", "answer", "reason", "=query_run")
    list_deferred = ("context", "answer_sentences", "judged", "answer", "expected_answer")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(reviews_total=Count("reviews"))

    @admin.display(description="reviews", ordering="reviews_total")
    def reviews_count(self, task: ReviewTask) -> int:
        return int(getattr(task, "reviews_total", 0))

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        return [("Open", reverse("evaluation:review-task", args=[obj.pk]))]


@admin.register(RunScore)
class RunScoreAdmin(ReadOnlyAdmin):
    list_display = ("question_text", "collection_name", "outcome", "reason", "judge", "asked_at")
    list_filter = ("reason", "outcome", "judge", "collection_name")
    search_fields = ("question_text", "=query_run")
    list_deferred = ("context", "annotation", "details", "answer_sentences")


@admin.register(Sampling)
class SamplingAdmin(ReadOnlyAdmin):
    list_display = ("collection_name", "enabled", "rate", "per_day", "judge", "looked_until", "updated_by")
    list_filter = ("enabled", "judge")
    search_fields = ("collection_name",)


@admin.register(KeptJudgement)
class KeptJudgementAdmin(ReadOnlyAdmin):
    internal = True
    list_display = ("key", "model", "created_at")
    list_filter = ("model",)
    search_fields = ("=key", "model")
    actions = ("forget_models",)
    deletable = True

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Without deleting row by row, which the audit log of the server would not tell of."""
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}

    @admin.action(description="Forget every judgement of these models", permissions=["delete"])
    def forget_models(self, request: HttpRequest, queryset: QuerySet[KeptJudgement]) -> None:
        chosen = sorted(set(queryset.values_list("model", flat=True)))
        gone = sum(clear_stored(model, actor=request.user) for model in chosen)
        self.message_user(request, f"{gone} judgements of {', '.join(chosen)} were forgotten.")


@admin.register(PromotionGate)
class PromotionGateAdmin(ReadOnlyAdmin):
    list_display = ("collection_name", "set_name", "measure", "k", "margin", "updated_by", "updated_at")
    search_fields = ("collection_name", "set_name")
    actions = ("take_away",)

    @admin.action(description="Delete the quality gates", permissions=[ERASE])
    def take_away(self, request: HttpRequest, queryset: QuerySet[PromotionGate]) -> None:
        names = list(queryset.values_list("collection_name", flat=True))
        for collection in Collection.objects.live().filter(name__in=names):
            remove_gate(collection, actor=request.user)
        self.message_user(request, f"{len(names)} deleted.")
