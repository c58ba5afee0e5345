from __future__ import annotations

from django.urls import path

from collections_app.views import batches, chunks, collections, documents, generations, jobs, previews, reading, uploads

app_name = "collections"
urlpatterns = [
    path("theme/", collections.choose_theme, name="theme"),
    path("collections/", collections.list_collections, name="list"),
    path("collections/new/", collections.create, name="create"),
    path("collection-switcher/", collections.switcher, name="switcher"),
    path("collections/<str:name>/", documents.list_documents, name="detail"),
    path("collections/<str:name>/upload/", uploads.upload, name="upload"),
    path("collections/<str:name>/upload/plan/", uploads.plan, name="upload-plan"),
    path("collections/<str:name>/upload/members/", uploads.members, name="upload-members"),
    path("collections/<str:name>/upload/begin/", uploads.begin, name="upload-begin"),
    path("collections/<str:name>/upload/finish/", uploads.finish, name="upload-finish"),
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
    path("collections/<str:name>/jobs/retry/", jobs.change_jobs, {"action": "retry"}, name="jobs-retry"),
    path("collections/<str:name>/jobs/cancel/", jobs.change_jobs, {"action": "cancel"}, name="jobs-cancel"),
    path("collections/<str:name>/attempts/", batches.list_batches, name="batches"),
    path("collections/<str:name>/attempts/<uuid:batch_id>/", batches.batch, name="batch"),
    path(
        "collections/<str:name>/attempts/<uuid:batch_id>/retry/",
        batches.change_batch,
        {"action": "retry"},
        name="batch-retry",
    ),
    path(
        "collections/<str:name>/attempts/<uuid:batch_id>/cancel/",
        batches.change_batch,
        {"action": "cancel"},
        name="batch-cancel",
    ),
    path("collections/<str:name>/jobs/<uuid:job_id>/", jobs.job, name="job"),
    path("collections/<str:name>/jobs/<uuid:job_id>/retry/", jobs.change_job, {"action": "retry"}, name="job-retry"),
    path("collections/<str:name>/jobs/<uuid:job_id>/cancel/", jobs.change_job, {"action": "cancel"}, name="job-cancel"),
    path("collections/<str:name>/preview/", previews.preview_sample, name="preview-sample"),
    path("collections/<str:name>/preview/<path:doc_id>/", previews.preview, name="preview"),
    path("collections/<str:name>/chunk-edits/<int:index>/<path:doc_id>/", chunks.change, name="chunk-change"),
    path("collections/<str:name>/overlays/<path:doc_id>/", chunks.overlays, name="overlays"),
    path("collections/<str:name>/neighbours/<int:index>/<path:doc_id>/", chunks.neighbours, name="neighbours"),
    path("collections/<str:name>/documents/<path:doc_id>/", reading.document, name="document"),
    # the chunk's number stands first, so that no doc_id can be mistaken for it
    path("collections/<str:name>/chunks/<int:index>/<path:doc_id>/", reading.chunk, name="chunk"),
]
