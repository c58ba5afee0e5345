from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.scoring import live_page, pages

urlpatterns: list[URLPattern] = [
    path("runs/<uuid:run_id>/score/", pages.show_score, name="run-score"),
    path("runs/<uuid:run_id>/judge/", pages.judge, name="judge-run"),
    path("evaluation/live/", live_page.live, name="live"),
    path("evaluation/live/<str:name>/", live_page.live_collection, name="live-collection"),
]
