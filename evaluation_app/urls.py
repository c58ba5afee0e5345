from __future__ import annotations

from django.urls import path

from collections_app.access.rules import one_address
from collections_app.chunks import views as chunks
from evaluation_app.curation import pages
from evaluation_app.curation import pages as curation
from evaluation_app.experiments import pages as experiments
from evaluation_app.failures import views as diagnosis
from evaluation_app.failures import views as history
from evaluation_app.golden import question_views as golden_questions
from evaluation_app.golden import set_views as golden_rubrics
from evaluation_app.reviews import pages as reviews
from evaluation_app.runs import pages as calibration
from evaluation_app.runs.comparison import pages as comparison
from evaluation_app.runs.run_pages import dashboard, item_page, run_page, runs_page
from evaluation_app.scoring import views
from evaluation_app.telemetry.alerts import pages as alerts
from evaluation_app.telemetry.explorer import pages as explorer
from evaluation_app.telemetry.exports import downloads
from evaluation_app.telemetry.overview import pages as overview_page
from evaluation_app.telemetry.traces import views as trace_views
from retrieval_app.plans import views as plans
from retrieval_app.runs import views as query_runs

RUN = "evaluation/runs/<uuid:pk>"
SET = "evaluation/sets/<int:pk>"
EXPERIMENT = "evaluation/experiments/<uuid:pk>"
COLLECTION = "collections/<str:name>"
HEALTH = one_address(
    chunks.outliers, findings=chunks.findings, gaps=diagnosis.content_gaps, never_retrieved=query_runs.never_retrieved
)
ALERTS = one_address(alerts.alerts, new=alerts.new_rule, rule=alerts.edit_rule, webhook=alerts.edit_webhook)
TRACE = one_address(trace_views.trace, span=trace_views.span, documents=trace_views.documents)
RUNS = one_address(runs_page.list_runs, new=calibration.new_run)
ITEM = one_address(item_page.show_item, changes=history.show_changes)
COMPARE = one_address(comparison.compare, question=comparison.question)
GOLDEN_SET = one_address(
    golden_rubrics.show_set, settings=golden_rubrics.show_settings, thresholds=run_page.show_bands,
    rubrics=golden_rubrics.show_rubrics, new=golden_questions.new_question, question=golden_questions.edit_question,
    suggestions=golden_questions.suggestions, versions=golden_rubrics.show_versions,
    **{"import": golden_questions.import_questions},
)  # fmt: skip
EXPERIMENTS = one_address(experiments.list_experiments, new=experiments.new_plans, models=experiments.new_models)
REVIEW = one_address(reviews.queue, agreement=reviews.agreement)
PLANS = one_address(query_runs.plans, corrective=plans.corrective, calibrate=calibration.calibrate_page)

app_name = "evaluation"
urlpatterns = [
    path("alerts/", ALERTS, name="alerts"),
    # traces
    path("traces/", overview_page.show_overview, name="traces"),
    path("activity/", explorer.activity, name="activity"),
    path("activity/completions/", explorer.completions, name="span-completions"),
    path("activity/<slug:level>/", explorer.activity, name="activity"),
    path("traces/export/", downloads.selection, name="spans-export"),
    path("traces/<str:trace_id>/export/", downloads.trace, name="trace-export"),
    path("runs/<uuid:run_id>/export/", downloads.run, name="run-export"),
    path("traces/<str:trace_id>/", TRACE, name="trace"),
    path("runs/<uuid:run_id>/", views.show_run, name="query-run"),
    path("runs/<uuid:run_id>/compare/<uuid:other_id>/", trace_views.compare_query_runs, name="compare-query-runs"),
    path("jobs/<uuid:job_id>/waterfall/", trace_views.waterfall_of_job, name="job-waterfall"),
    path(f"{COLLECTION}/ingests/<path:doc_id>/", trace_views.document_traces, name="document-traces"),
    # evaluation runs
    path("evaluation/", dashboard.dashboard, name="index"),
    path("evaluation/runs/", RUNS, name="evaluation-runs"),
    path(f"{RUN}/", run_page.show_run, name="evaluation-run"),
    path(f"{RUN}/jsonl/", calibration.download_run, name="evaluation-run-jsonl"),
    path(f"{RUN}/items/<int:position>/", ITEM, name="evaluation-item"),
    path("evaluation/compare/", COMPARE, name="compare"),
    path("evaluation/last/", curation.last_evaluation, name="last-evaluation"),
    # golden sets
    path("evaluation/sets/", golden_rubrics.list_sets, name="golden-sets"),
    path("evaluation/sets/from-run/<uuid:run_id>/", golden_questions.question_from_run, name="golden-from-run"),
    path("evaluation/sets/of-run/<uuid:run_id>/", golden_questions.golden_of_run, name="golden-of-run"),
    path(f"{SET}/", GOLDEN_SET, name="golden-set"),
    path(f"{SET}/export.<str:format>", golden_questions.export_questions, name="export-golden"),
    # scores of live traffic
    path("evaluation/live/", views.live, name="live"),
    path("evaluation/live/<str:name>/", views.live_collection, name="live-collection"),
    # experiments
    path("evaluation/experiments/", EXPERIMENTS, name="experiments"),
    path("evaluation/experiments/measured/<str:name>/", experiments.measured, name="measured"),
    path(f"{EXPERIMENT}/", experiments.show_experiment, name="experiment"),
    # failure analysis
    path("evaluation/board/", diagnosis.board, name="board"),
    # human review
    path("evaluation/review/", REVIEW, name="review"),
    path("evaluation/review/next/", reviews.go_on, name="review-next"),
    path("evaluation/review/reviews.jsonl", reviews.download, name="review-export"),
    path(f"{RUN}/anchored/", reviews.anchored, name="anchored-scores"),
    path(f"{RUN}/anchored/<uuid:other>/", reviews.anchored_comparison, name="anchored-comparison"),
    path("runs/<uuid:run_id>/feedback/", reviews.feedback, name="feedback"),
    path("evaluation/review/<int:pk>/", reviews.judge, name="review-task"),
    # what golden questions say of changes to a collection
    path(f"{COLLECTION}/health/", HEALTH, name="health"),
    path(f"{COLLECTION}/impact/", pages.show_impact, name="impact"),
    path(f"{COLLECTION}/gate/", curation.gate_settings, name="gate"),
    path(f"{COLLECTION}/index-versions/<int:number>/gate/", curation.gate_report, name="gate-report"),
    path(f"{COLLECTION}/golden-chunk/<int:index>/<path:doc_id>/", curation.golden_of_chunk, name="golden-of-chunk"),
    path(f"{COLLECTION}/golden-document/<path:doc_id>/", curation.golden_of_document, name="golden-of-document"),
    path(f"{COLLECTION}/plans/", PLANS, name="plans"),
]
