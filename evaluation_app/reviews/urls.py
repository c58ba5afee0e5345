from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.reviews import pages

urlpatterns: list[URLPattern] = [
    path("evaluation/review/", pages.queue, name="review"),
    path("evaluation/review/next/", pages.go_on, name="review-next"),
    path("evaluation/review/agreement/", pages.agreement, name="review-agreement"),
    path("evaluation/review/reviews.jsonl", pages.download, name="review-export"),
    path("evaluation/review/<int:pk>/", pages.judge, name="review-task"),
    path("evaluation/review/<int:pk>/skip/", pages.skip, name="review-skip"),
    path("evaluation/review/<int:pk>/aside/", pages.aside, name="review-aside"),
]
