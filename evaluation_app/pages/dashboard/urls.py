from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.pages.dashboard import actions, dashboard, document_trial, item_page, run_page, runs_page

urlpatterns: list[URLPattern] = [
    path("evaluation/", dashboard.dashboard, name="index"),
    path("evaluation/sets/<int:pk>/no-baseline/", actions.no_baseline, name="no-baseline"),
    path("evaluation/runs/", runs_page.list_runs, name="evaluation-runs"),
    path("evaluation/runs/<uuid:pk>/", run_page.show_run, name="evaluation-run"),
    path("evaluation/runs/<uuid:pk>/cancel/", actions.cancel, name="cancel-evaluation-run"),
    path("evaluation/runs/<uuid:pk>/resume/", actions.resume, name="resume-evaluation-run"),
    path("evaluation/runs/<uuid:pk>/retry/", actions.retry, name="retry-evaluation-run"),
    path("evaluation/runs/<uuid:pk>/baseline/", actions.baseline, name="make-baseline"),
    path("evaluation/runs/<uuid:pk>/delete/", actions.delete, name="delete-evaluation-run"),
    path("evaluation/runs/<uuid:pk>/without/", document_trial.run_without, name="run-without"),
    path("evaluation/runs/<uuid:pk>/items/<int:position>/", item_page.show_item, name="evaluation-item"),
]
