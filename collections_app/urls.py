from __future__ import annotations

from django.urls import path

from collections_app.access import key_views, people_views
from collections_app.access.rules import one_address
from collections_app.audit import views
from collections_app.chunks import views as chunks
from collections_app.collections import views as collections
from collections_app.documents import reading_views
from collections_app.documents import views as documents
from collections_app.documents.revisions import views as revisions
from collections_app.endpoints import views as models
from collections_app.http import settings_views
from collections_app.index import views as index_versions
from collections_app.jobs import views as jobs
from collections_app.sources import views as sources
from collections_app.uploads import views as uploads

DOCUMENT = one_address(
    reading_views.document, new_version=reading_views.new_version, edit_text=documents.edit_content,
    edit=documents.edit, rename=documents.rename, readers=documents.readers, preview=chunks.preview,
    overlays=chunks.overlays, history=revisions.history, revision=revisions.revision, difference=revisions.difference,
    rollback=revisions.rollback,
)  # fmt: skip
CHUNK = one_address(reading_views.chunk, neighbours=chunks.neighbours, change=chunks.change)
APPEARANCE = one_address(settings_views.appearance, connections=settings_views.connections)
DETAIL = one_address(documents.list_documents, trash=documents.trash, change=documents.change)
UPLOAD = one_address(
    uploads.upload, urls=uploads.fetch_urls, text=documents.write_text, plan=uploads.plan, members=uploads.members,
    begin=uploads.begin, finish=uploads.finish,
)  # fmt: skip
SOURCES, SOURCE = one_address(sources.list_page, new=sources.add), one_address(sources.source, edit=sources.edit)
SETTINGS = one_address(collections.settings, sharing=people_views.sharing, delete=collections.delete)
LIST = one_address(
    collections.list_collections, new=collections.create, trash=collections.trash, **{"import": collections.import_file}
)
KEYS = one_address(key_views.list_keys, new=key_views.create, rotate=key_views.rotate, revoke=key_views.revoke)
MODELS = one_address(
    models.list_page, new=models.add, edit=models.edit, delete=models.delete, choice=models.check_choice_page,
    test=models.test,
)  # fmt: skip
AUDIT = one_address(views.audit_log, event=views.audit_event, download=views.audit_download)
PEOPLE = one_address(people_views.list_people, new=people_views.new_person, groups=people_views.list_groups)

app_name = "collections"
urlpatterns = [
    path("theme/", collections.choose_theme, name="theme"),
    path("list-view/", settings_views.change_list_view, name="list-view"),
    path("settings/appearance/", APPEARANCE, name="appearance"),
    path("help/", settings_views.show_help, name="help"),
    path("help/<slug:page>/", settings_views.show_help, name="help-page"),
    path("collections/", LIST, name="list"),
    path("collection-switcher/", collections.switcher, name="switcher"),
    path("filter-builder/", documents.filter_builder, name="filter-builder"),
    path("filter-completions/", documents.filter_completions, name="filter-completions"),
    path("collections/operation/<uuid:operation_id>/", collections.operation, name="operation"),
    path("keys/", KEYS, name="keys"),
    path("models/", MODELS, name="models"),
    path("check/", collections.check, name="check"),
    path("audit/", AUDIT, name="audit"),
    path("people/", PEOPLE, name="people"),
    path("people/groups/<int:pk>/", people_views.group, name="group"),
    path("people/<int:pk>/", people_views.person, name="person"),
    path("collections/<str:name>/", DETAIL, name="detail"),
    path("collections/<str:name>/export/", collections.export, name="export"),
    path("collections/<str:name>/transfers/", collections.strip, name="transfers"),
    path("collections/<str:name>/upload/", UPLOAD, name="upload"),
    path("collections/<str:name>/sources/", SOURCES, name="sources"),
    path("collections/<str:name>/sources/<int:pk>/", SOURCE, name="source"),
    path("collections/<str:name>/syncs/<uuid:sync_id>/", sources.source_run, name="source-run"),
    path("collections/<str:name>/settings/", SETTINGS, name="settings"),
    path("collections/<str:name>/measure/", collections.measure, name="measure"),
    path("collections/<str:name>/index-versions/", index_versions.index_versions, name="index_versions"),
    path("collections/<str:name>/index-versions/<int:number>/", index_versions.change, name="index_version"),
    path("collections/<str:name>/uploads/", jobs.uploads, name="uploads"),
    path("collections/<str:name>/uploads/running/", jobs.strip, name="jobs-strip"),
    path("collections/<str:name>/uploads/lines/", jobs.lines, name="jobs-lines"),
    path("collections/<str:name>/uploads/<uuid:batch_id>/", jobs.batch, name="batch"),
    path("collections/<str:name>/uploads/files/<uuid:job_id>/", jobs.job, name="job"),
    path("collections/<str:name>/page-image/<int:number>/<path:doc_id>/", reading_views.page_image, name="page-image"),
    path("collections/<str:name>/original/<path:doc_id>/", reading_views.original, name="original"),
    path("collections/<str:name>/folders/", documents.folders, name="folders"),
    path("collections/<str:name>/documents/<path:doc_id>/", DOCUMENT, name="document"),
    # the chunk's number stands first, so that no doc_id can be mistaken for it
    path("collections/<str:name>/chunks/<int:index>/<path:doc_id>/", CHUNK, name="chunk"),
]
