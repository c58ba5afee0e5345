from __future__ import annotations

from django.urls import path
from django.views.generic.base import RedirectView

from evaluation_app.analysis.comparison import urls as comparison_urls
from evaluation_app.analysis.diagnosis import urls as diagnosis_urls
from evaluation_app.analysis.sweeps import urls as sweeps_urls
from evaluation_app.curation import urls as curation_urls
from evaluation_app.golden.pages import urls as golden_urls
from evaluation_app.pages.dashboard import urls as dashboard_urls
from evaluation_app.pages.explorer import pages as explorer
from evaluation_app.pages.live import urls as scoring_urls
from evaluation_app.pages.overview import home, model_prices, upkeep
from evaluation_app.pages.overview import pages as overview_page
from evaluation_app.pages.traces import views as trace_views
from evaluation_app.reviews import urls as reviews_urls
from evaluation_app.runs import urls as runs_urls
from evaluation_app.runs.calibration import urls as calibration_urls
from evaluation_app.spans.evidence import pages as evidence_pages
from evaluation_app.spans.exports import downloads

app_name = "evaluation"
urlpatterns = [
    path("", home.home, name="home"),
    path("operations/", home.operations, name="operations"),
    path("operations/retry/", home.retry_failed, name="retry-failed"),
    path("operations/prices/", model_prices.prices_page, name="prices"),
    path("operations/upkeep/", upkeep.upkeep, name="upkeep"),
    path("status/", home.status, name="status"),
    path("status/try/", home.try_rules, name="try-rules"),
    path("traces/", overview_page.show_overview, name="traces"),
    path("traces/list/", explorer.traces, name="trace-list"),
    path("traces/spans/", explorer.spans, name="spans"),
    path("traces/evidence/", evidence_pages.evidence, name="evidence"),
    path("traces/export/", downloads.selection, name="spans-export"),
    path("traces/<str:trace_id>/export/", downloads.trace, name="trace-export"),
    path("runs/<uuid:run_id>/export/", downloads.run, name="run-export"),
    path("traces/<str:trace_id>/", trace_views.trace, name="trace"),
    path("traces/<str:trace_id>/validity/", trace_views.validity_of_trace, name="trace-validity"),
    path("traces/<str:trace_id>/spans/<str:span_id>/", trace_views.span, name="span"),
    path("traces/<str:trace_id>/spans/<str:span_id>/documents/", trace_views.documents, name="span-documents"),
    path("evidence/", RedirectView.as_view(pattern_name="evaluation:evidence", query_string=True)),
    path("runs/<uuid:run_id>/waterfall/", trace_views.waterfall_of_run, name="run-waterfall"),
    path("runs/<uuid:run_id>/validity/", trace_views.validity_of_run, name="run-validity"),
    path("jobs/<uuid:job_id>/waterfall/", trace_views.waterfall_of_job, name="job-waterfall"),
    path("collections/<str:name>/ingests/<path:doc_id>/", trace_views.document_traces, name="document-traces"),
    *dashboard_urls.urlpatterns,
    *golden_urls.urlpatterns,
    *runs_urls.urlpatterns,
    *scoring_urls.urlpatterns,
    *comparison_urls.urlpatterns,
    *sweeps_urls.urlpatterns,
    *diagnosis_urls.urlpatterns,
    *reviews_urls.urlpatterns,
    *curation_urls.urlpatterns,
    *calibration_urls.urlpatterns,
    path("go/", home.palette, name="palette"),
    path("style/", home.style, name="style"),
]
