from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.runs import pages

urlpatterns: list[URLPattern] = [
    path("evaluation/runs/new/", pages.new_run, name="new-evaluation-run"),
    path("evaluation/runs/<uuid:pk>/jsonl/", pages.download_run, name="evaluation-run-jsonl"),
]
