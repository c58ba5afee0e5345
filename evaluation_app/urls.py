from __future__ import annotations

from django.urls import path

from evaluation_app.curation import impact_page
from evaluation_app.curation import pages as curation
from evaluation_app.experiments import pages as experiments
from evaluation_app.failures import bisect_views as history
from evaluation_app.failures import views as diagnosis
from evaluation_app.golden import question_views as golden_questions
from evaluation_app.golden import set_views as golden_rubrics
from evaluation_app.reviews import pages as reviews
from evaluation_app.runs import pages as calibration
from evaluation_app.runs.comparison import pages as comparison
from evaluation_app.runs.run_pages import bands_page, dashboard, item_page, run_page, runs_page
from evaluation_app.scoring import live_views, views
from evaluation_app.telemetry.alerts import pages as alerts
from evaluation_app.telemetry.evidence import pages as evidence_pages
from evaluation_app.telemetry.explorer import pages as explorer
from evaluation_app.telemetry.exports import downloads
from evaluation_app.telemetry.overview import pages as overview_page
from evaluation_app.telemetry.traces import conversations
from evaluation_app.telemetry.traces import views as trace_views

RUN = "evaluation/runs/<uuid:pk>"
SET = "evaluation/sets/<int:pk>"
EXPERIMENT = "evaluation/experiments/<uuid:pk>"
COLLECTION = "collections/<str:name>"

app_name = "evaluation"
urlpatterns = [
    path("alerts/", alerts.alerts, name="alerts"),
    path("alerts/rules/new/<str:kind>/", alerts.new_rule, name="new-alert-rule"),
    path("alerts/rules/<int:pk>/", alerts.edit_rule, name="alert-rule"),
    path("alerts/webhooks/<int:pk>/", alerts.edit_webhook, name="webhook"),
    # traces
    path("traces/", overview_page.show_overview, name="traces"),
    path("activity/", explorer.activity, name="activity"),
    path("activity/completions/", explorer.completions, name="span-completions"),
    path("traces/evidence/", evidence_pages.evidence, name="evidence"),
    path("activity/<slug:level>/", explorer.activity, name="activity"),
    path("traces/export/", downloads.selection, name="spans-export"),
    path("traces/<str:trace_id>/export/", downloads.trace, name="trace-export"),
    path("runs/<uuid:run_id>/export/", downloads.run, name="run-export"),
    path("traces/<str:trace_id>/", trace_views.trace, name="trace"),
    path("traces/<str:trace_id>/spans/<str:span_id>/", trace_views.span, name="span"),
    path("traces/<str:trace_id>/spans/<str:span_id>/documents/", trace_views.documents, name="span-documents"),
    path("runs/<uuid:run_id>/", views.show_run, name="query-run"),
    path("runs/<uuid:run_id>/compare/<uuid:other_id>/", conversations.compare_query_runs, name="compare-query-runs"),
    path("jobs/<uuid:job_id>/waterfall/", trace_views.waterfall_of_job, name="job-waterfall"),
    path(f"{COLLECTION}/ingests/<path:doc_id>/", trace_views.document_traces, name="document-traces"),
    # evaluation runs
    path("evaluation/", dashboard.dashboard, name="index"),
    path("evaluation/runs/", runs_page.list_runs, name="evaluation-runs"),
    path("evaluation/runs/new/", calibration.new_run, name="new-evaluation-run"),
    path(f"{RUN}/", run_page.show_run, name="evaluation-run"),
    path(f"{RUN}/jsonl/", calibration.download_run, name="evaluation-run-jsonl"),
    path(f"{RUN}/items/<int:position>/", item_page.show_item, name="evaluation-item"),
    path(f"{RUN}/items/<int:position>/changes/", history.show_changes, name="item-changes"),
    path("evaluation/compare/", comparison.compare, name="compare"),
    path("evaluation/compare/questions/<int:position>/", comparison.question, name="compare-question"),
    path("evaluation/last/", curation.last_evaluation, name="last-evaluation"),
    # golden sets
    path("evaluation/sets/", golden_rubrics.list_sets, name="golden-sets"),
    path("evaluation/sets/from-run/<uuid:run_id>/", golden_questions.question_from_run, name="golden-from-run"),
    path("evaluation/sets/of-run/<uuid:run_id>/", golden_questions.golden_of_run, name="golden-of-run"),
    path(f"{SET}/", golden_rubrics.show_set, name="golden-set"),
    path(f"{SET}/settings/", bands_page.change_settings, name="golden-set-settings"),
    path(f"{SET}/questions/new/", golden_questions.new_question, name="new-golden-question"),
    path(f"{SET}/questions/<int:question_id>/", golden_questions.edit_question, name="golden-question"),
    path(f"{SET}/suggestions/", golden_questions.suggestions, name="golden-suggestions"),
    path(f"{SET}/versions/", golden_rubrics.show_versions, name="golden-versions"),
    path(f"{SET}/import/", golden_questions.import_questions, name="import-golden"),
    path(f"{SET}/export.<str:format>", golden_questions.export_questions, name="export-golden"),
    # scores of live traffic
    path("evaluation/live/", live_views.live, name="live"),
    path("evaluation/live/<str:name>/", live_views.live_collection, name="live-collection"),
    # experiments
    path("evaluation/experiments/", experiments.list_experiments, name="experiments"),
    path("evaluation/experiments/new/plans/", experiments.new_plans, name="new-plans-experiment"),
    path("evaluation/experiments/new/models/", experiments.new_models, name="new-models-experiment"),
    path("evaluation/experiments/measured/<str:name>/", experiments.measured, name="measured"),
    path(f"{EXPERIMENT}/", experiments.show_experiment, name="experiment"),
    # failure analysis
    path("evaluation/board/", diagnosis.board, name="board"),
    # human review
    path("evaluation/review/", reviews.queue, name="review"),
    path("evaluation/review/next/", reviews.go_on, name="review-next"),
    path("evaluation/review/agreement/", reviews.agreement, name="review-agreement"),
    path("evaluation/review/reviews.jsonl", reviews.download, name="review-export"),
    path(f"{RUN}/anchored/", reviews.anchored, name="anchored-scores"),
    path(f"{RUN}/anchored/<uuid:other>/", reviews.anchored_comparison, name="anchored-comparison"),
    path("runs/<uuid:run_id>/feedback/", reviews.feedback, name="feedback"),
    path("evaluation/review/<int:pk>/", reviews.judge, name="review-task"),
    # what golden questions say of changes to a collection
    path(f"{COLLECTION}/gaps/", diagnosis.content_gaps, name="content-gaps"),
    path(f"{COLLECTION}/impact/", impact_page.show_impact, name="impact"),
    path(f"{COLLECTION}/gate/", curation.gate_settings, name="gate"),
    path(f"{COLLECTION}/index-versions/<int:number>/gate/", curation.gate_report, name="gate-report"),
    path(f"{COLLECTION}/golden-chunk/<int:index>/<path:doc_id>/", curation.golden_of_chunk, name="golden-of-chunk"),
    path(f"{COLLECTION}/golden-document/<path:doc_id>/", curation.golden_of_document, name="golden-of-document"),
    path(f"{COLLECTION}/corrective/calibrate/", calibration.calibrate_page, name="calibrate"),
]
