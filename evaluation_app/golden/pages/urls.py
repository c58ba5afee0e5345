from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.golden.pages import questions, runs, sets, suggestions, transfers, versions

ONE = "evaluation/sets/<int:pk>"

urlpatterns: list[URLPattern] = [
    path("evaluation/sets/", sets.list_sets, name="golden-sets"),
    path("evaluation/sets/new/", sets.new_set, name="new-golden-set"),
    path("evaluation/sets/from-run/<uuid:run_id>/", runs.question_from_run, name="golden-from-run"),
    path("evaluation/sets/of-run/<uuid:run_id>/", runs.golden_of_run, name="golden-of-run"),
    path(f"{ONE}/", sets.show_set, name="golden-set"),
    path(f"{ONE}/settings/", sets.set_settings, name="golden-set-settings"),
    path(f"{ONE}/delete/", sets.delete_set, name="delete-golden-set"),
    path(f"{ONE}/change/", sets.change_questions, name="change-golden-questions"),
    path(f"{ONE}/questions/new/", questions.new_question, name="new-golden-question"),
    path(f"{ONE}/questions/<int:question_id>/", questions.edit_question, name="golden-question"),
    path(f"{ONE}/suggestions/", suggestions.suggestions, name="golden-suggestions"),
    path(f"{ONE}/versions/", versions.list_versions, name="golden-versions"),
    path(f"{ONE}/versions/<int:version>/", versions.show_version, name="golden-version"),
    path(f"{ONE}/versions/<int:version>/back/", versions.bring_back, name="bring-back-golden"),
    path(f"{ONE}/versions/<int:before>/<int:after>/", versions.show_difference, name="golden-difference"),
    path(f"{ONE}/import/", transfers.import_questions, name="import-golden"),
    path(f"{ONE}/export.<str:format>", transfers.export_questions, name="export-golden"),
]
