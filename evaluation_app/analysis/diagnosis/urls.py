from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.analysis.diagnosis import pages

urlpatterns: list[URLPattern] = [
    path("evaluation/board/", pages.board, name="board"),
    path("evaluation/board/modes/", pages.modes, name="failure-modes"),
    path("evaluation/board/sets/<int:pk>/cards/", pages.decide_card, name="board-decide"),
    path("evaluation/board/runs/<uuid:pk>/fix/", pages.start_fix, name="board-fix"),
    path("evaluation/board/fixes/<uuid:pk>/", pages.tried_fix, name="tried-fix"),
    path("evaluation/board/fixes/<uuid:pk>/keep/", pages.keep_fix, name="keep-fix"),
    path("evaluation/sets/<int:pk>/bands/", pages.bands, name="golden-set-bands"),
]
