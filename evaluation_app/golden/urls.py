from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.golden import pages, question_pages, run_pages, suggestion_pages, transfer_pages, version_pages

ONE = "evaluation/sets/<int:pk>"

urlpatterns: list[URLPattern] = [
    path("evaluation/sets/", pages.list_sets, name="golden-sets"),
    path("evaluation/sets/new/", pages.new_set, name="new-golden-set"),
    path("evaluation/sets/from-run/<uuid:run_id>/", run_pages.question_from_run, name="golden-from-run"),
    path("evaluation/sets/of-run/<uuid:run_id>/", run_pages.golden_of_run, name="golden-of-run"),
    path(f"{ONE}/", pages.show_set, name="golden-set"),
    path(f"{ONE}/settings/", pages.set_settings, name="golden-set-settings"),
    path(f"{ONE}/delete/", pages.delete_set, name="delete-golden-set"),
    path(f"{ONE}/change/", pages.change_questions, name="change-golden-questions"),
    path(f"{ONE}/questions/new/", question_pages.new_question, name="new-golden-question"),
    path(f"{ONE}/questions/<int:question_id>/", question_pages.edit_question, name="golden-question"),
    path(f"{ONE}/suggestions/", suggestion_pages.suggestions, name="golden-suggestions"),
    path(f"{ONE}/versions/", version_pages.list_versions, name="golden-versions"),
    path(f"{ONE}/versions/<int:version>/", version_pages.show_version, name="golden-version"),
    path(f"{ONE}/versions/<int:version>/back/", version_pages.bring_back, name="bring-back-golden"),
    path(f"{ONE}/versions/<int:before>/<int:after>/", version_pages.show_difference, name="golden-difference"),
    path(f"{ONE}/import/", transfer_pages.import_questions, name="import-golden"),
    path(f"{ONE}/export.<str:format>", transfer_pages.export_questions, name="export-golden"),
]
