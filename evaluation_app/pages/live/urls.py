from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.pages.live import live_traffic, run_scores

urlpatterns: list[URLPattern] = [
    path("runs/<uuid:run_id>/score/", run_scores.show_score, name="run-score"),
    path("runs/<uuid:run_id>/judge/", run_scores.judge, name="judge-run"),
    path("evaluation/live/", live_traffic.live, name="live"),
    path("evaluation/live/<str:name>/", live_traffic.live_collection, name="live-collection"),
]
