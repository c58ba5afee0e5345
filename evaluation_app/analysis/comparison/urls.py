from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.analysis.comparison import pages

urlpatterns: list[URLPattern] = [
    path("evaluation/compare/", pages.compare, name="compare"),
    path("evaluation/compare/questions/<int:position>/", pages.question, name="compare-question"),
]
