from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.curation import impact_page, pages

ONE = "collections/<str:name>"

urlpatterns: list[URLPattern] = [
    path(f"{ONE}/impact/", impact_page.show_impact, name="impact"),
    path(f"{ONE}/gate/", pages.gate_settings, name="gate"),
    path(f"{ONE}/generations/<int:number>/gate/", pages.gate_report, name="gate-report"),
    path(f"{ONE}/golden-chunk/<int:index>/<path:doc_id>/", pages.golden_of_chunk, name="golden-of-chunk"),
    path(f"{ONE}/golden-document/<path:doc_id>/", pages.golden_of_document, name="golden-of-document"),
    path("evaluation/last/", pages.last_evaluation, name="last-evaluation"),
]
