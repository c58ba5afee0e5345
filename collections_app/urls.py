from __future__ import annotations

from django.urls import path

from collections_app.views import collections, documents, generations, jobs, reading

app_name = "collections"
urlpatterns = [
    path("theme/", collections.choose_theme, name="theme"),
    path("collections/", collections.list_collections, name="list"),
    path("collections/new/", collections.create, name="create"),
    path("collection-switcher/", collections.switcher, name="switcher"),
    path("collections/<str:name>/", documents.list_documents, name="detail"),
    path("collections/<str:name>/upload/", documents.upload, name="upload"),
    path("collections/<str:name>/text/", documents.write_text, name="text"),
    path("collections/<str:name>/change/", documents.change_documents, name="change"),
    path("collections/<str:name>/settings/", collections.settings, name="settings"),
    path("collections/<str:name>/statistics/", collections.statistics, name="statistics"),
    path("collections/<str:name>/probe/", collections.probe, name="probe"),
    path("collections/<str:name>/generations/", generations.generations, name="generations"),
    path("collections/<str:name>/generations/<int:number>/drop/", generations.drop, name="generation-drop"),
    path(
        "collections/<str:name>/generations/<int:number>/activate/",
        generations.change,
        {"action": "activate"},
        name="generation-activate",
    ),
    path(
        "collections/<str:name>/generations/<int:number>/cancel/",
        generations.change,
        {"action": "cancel"},
        name="generation-cancel",
    ),
    path("collections/<str:name>/delete/", collections.delete, name="delete"),
    path("collections/<str:name>/jobs/", jobs.list_jobs, name="jobs"),
    path("collections/<str:name>/jobs/running/", jobs.strip, name="jobs-strip"),
    path("collections/<str:name>/jobs/lines/", jobs.lines, name="jobs-lines"),
    path("collections/<str:name>/jobs/<uuid:job_id>/", jobs.job, name="job"),
    path("collections/<str:name>/jobs/<uuid:job_id>/retry/", jobs.change_job, {"action": "retry"}, name="job-retry"),
    path("collections/<str:name>/jobs/<uuid:job_id>/cancel/", jobs.change_job, {"action": "cancel"}, name="job-cancel"),
    path("collections/<str:name>/documents/<path:doc_id>/", reading.document, name="document"),
    # the chunk's number stands first, so that no doc_id can be mistaken for it
    path("collections/<str:name>/chunks/<int:index>/<path:doc_id>/", reading.chunk, name="chunk"),
]
