from __future__ import annotations

from django.urls import path

from evaluation_app import upkeep, views

app_name = "evaluation"
urlpatterns = [
    path("", views.home, name="home"),
    path("operations/", views.operations, name="operations"),
    path("operations/retry/", views.retry_failed, name="retry-failed"),
    path("operations/upkeep/", upkeep.upkeep, name="upkeep"),
    path("status/", views.status, name="status"),
    path("status/try/", views.try_rules, name="try-rules"),
    path("traces/", views.traces, name="traces"),
    path("traces/<str:trace_id>/", views.trace, name="trace"),
    path("evaluation/", views.index, name="index"),
    path("runs/<uuid:run_id>/waterfall/", views.waterfall_of_run, name="run-waterfall"),
    path("go/", views.palette, name="palette"),
    path("style/", views.style, name="style"),
]
