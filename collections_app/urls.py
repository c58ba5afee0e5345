from __future__ import annotations

from django.urls import path

from collections_app.access import key_views, people_views
from collections_app.audit import views
from collections_app.chunks import views as chunks
from collections_app.chunks import views as previews
from collections_app.collections import transfer_views
from collections_app.collections import views as collections
from collections_app.documents import curation_views, reading_views
from collections_app.documents import views as documents
from collections_app.documents.revisions import views as revisions
from collections_app.endpoints import views as models
from collections_app.http import settings_views
from collections_app.index import views as index_versions
from collections_app.jobs import views as jobs
from collections_app.sources import views as sources
from collections_app.uploads import views as uploads

app_name = "collections"
urlpatterns = [
    path("theme/", collections.choose_theme, name="theme"),
    path("list-view/", settings_views.change_list_view, name="list-view"),
    path("settings/appearance/", settings_views.appearance, name="appearance"),
    path("settings/connections/", settings_views.connections, name="connections"),
    path("settings/connections/mail/", settings_views.mail, name="mail"),
    path("help/", settings_views.show_help, name="help"),
    path("help/<slug:page>/", settings_views.show_help, name="help-page"),
    path("collections/", collections.list_collections, name="list"),
    path("collections/new/", collections.create, name="create"),
    path("collection-switcher/", collections.switcher, name="switcher"),
    path("filter-builder/", documents.filter_builder, name="filter-builder"),
    path("filter-completions/", documents.filter_completions, name="filter-completions"),
    path("collections/import/", transfer_views.import_file, name="import"),
    path("collections/operation/<uuid:operation_id>/", transfer_views.operation, name="operation"),
    path("keys/", key_views.list_keys, name="keys"),
    path("keys/new/", key_views.create, name="key-create"),
    path("keys/<int:pk>/rotate/", key_views.rotate, name="key-rotate"),
    path("keys/<int:pk>/revoke/", key_views.revoke, name="key-revoke"),
    path("models/", models.list_page, name="models"),
    path("models/choice/", models.check_choice_page, name="model-choice"),
    path("models/new/", models.add, name="model-add"),
    path("models/test/<str:key>/", models.test, name="model-test"),
    path("models/<int:pk>/", models.edit, name="model-edit"),
    path("models/<int:pk>/delete/", models.delete, name="model-delete"),
    path("check/", transfer_views.check, name="check"),
    path("audit/", views.audit_log, name="audit"),
    path("audit/download/", views.audit_download, name="audit-download"),
    path("audit/<int:pk>/", views.audit_event, name="audit-event"),
    path("people/", people_views.list_people, name="people"),
    path("people/new/", people_views.new_person, name="new-person"),
    path("people/groups/", people_views.list_groups, name="groups"),
    path("people/groups/<int:pk>/", people_views.group, name="group"),
    path("people/<int:pk>/", people_views.person, name="person"),
    path("collections/<str:name>/", documents.list_documents, name="detail"),
    path("collections/<str:name>/sharing/", people_views.sharing, name="sharing"),
    path("collections/<str:name>/export/", transfer_views.export, name="export"),
    path("collections/<str:name>/transfers/", transfer_views.strip, name="transfers"),
    path("collections/<str:name>/upload/", uploads.upload, name="upload"),
    path("collections/<str:name>/upload/plan/", uploads.plan, name="upload-plan"),
    path("collections/<str:name>/upload/members/", uploads.members, name="upload-members"),
    path("collections/<str:name>/upload/begin/", uploads.begin, name="upload-begin"),
    path("collections/<str:name>/upload/finish/", uploads.finish, name="upload-finish"),
    path("collections/<str:name>/urls/", uploads.fetch_urls, name="urls"),
    path("collections/<str:name>/sources/", sources.list_page, name="sources"),
    path("collections/<str:name>/sources/new/", sources.add, name="source-add"),
    path("collections/<str:name>/sources/<int:pk>/", sources.source, name="source"),
    path("collections/<str:name>/sources/<int:pk>/edit/", sources.edit, name="source-edit"),
    path("collections/<str:name>/syncs/<uuid:sync_id>/", sources.source_run, name="source-run"),
    path("collections/<str:name>/text/", documents.write_text, name="text"),
    path("collections/<str:name>/change/", curation_views.change, name="change"),
    path("collections/<str:name>/trash/", documents.trash, name="trash"),
    path("collections/<str:name>/settings/", collections.settings, name="settings"),
    path("collections/<str:name>/measure/", collections.measure, name="measure"),
    path("collections/<str:name>/index-versions/", index_versions.index_versions, name="index_versions"),
    path("collections/<str:name>/index-versions/<int:number>/", index_versions.change, name="index_version"),
    path("collections/<str:name>/delete/", collections.delete, name="delete"),
    path("collections/<str:name>/uploads/", jobs.uploads, name="uploads"),
    path("collections/<str:name>/uploads/running/", jobs.strip, name="jobs-strip"),
    path("collections/<str:name>/uploads/lines/", jobs.lines, name="jobs-lines"),
    path("collections/<str:name>/uploads/<uuid:batch_id>/", jobs.batch, name="batch"),
    path("collections/<str:name>/uploads/files/<uuid:job_id>/", jobs.job, name="job"),
    path("collections/<str:name>/outliers/", chunks.outliers, name="outliers"),
    path("collections/<str:name>/findings/", chunks.findings, name="findings"),
    path("collections/<str:name>/preview/<path:doc_id>/", previews.preview, name="preview"),
    path("collections/<str:name>/chunk-edits/<int:index>/<path:doc_id>/", chunks.change, name="chunk-change"),
    path("collections/<str:name>/overlays/<path:doc_id>/", chunks.overlays, name="overlays"),
    path("collections/<str:name>/neighbours/<int:index>/<path:doc_id>/", chunks.neighbours, name="neighbours"),
    path("collections/<str:name>/documents/<path:doc_id>/", reading_views.document, name="document"),
    path("collections/<str:name>/page-image/<int:number>/<path:doc_id>/", reading_views.page_image, name="page-image"),
    path("collections/<str:name>/original/<path:doc_id>/", reading_views.original, name="original"),
    path("collections/<str:name>/new-version/<path:doc_id>/", reading_views.new_version, name="new-version"),
    path("collections/<str:name>/edit-text/<path:doc_id>/", curation_views.edit_content, name="edit-text"),
    path("collections/<str:name>/edit/<path:doc_id>/", curation_views.edit, name="edit"),
    path("collections/<str:name>/folders/", documents.folders, name="folders"),
    path("collections/<str:name>/rename/<path:doc_id>/", curation_views.rename, name="rename"),
    path("collections/<str:name>/readers/<path:doc_id>/", curation_views.readers, name="readers"),
    path("collections/<str:name>/history/<path:doc_id>/", revisions.history, name="history"),
    path("collections/<str:name>/revision/<int:number>/<path:doc_id>/", revisions.revision, name="revision"),
    path(
        "collections/<str:name>/difference/<int:before>/<int:after>/<path:doc_id>/",
        revisions.difference,
        name="difference",
    ),
    path("collections/<str:name>/rollback/<int:number>/<path:doc_id>/", revisions.rollback, name="rollback"),
    # the chunk's number stands first, so that no doc_id can be mistaken for it
    path("collections/<str:name>/chunks/<int:index>/<path:doc_id>/", reading_views.chunk, name="chunk"),
]
