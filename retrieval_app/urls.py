from __future__ import annotations

from django.urls import path

from retrieval_app.pages import (
    ask_stream,
    calibration,
    collection_panels,
    playground,
    receipts,
    run_list,
    run_page,
    runs,
)

app_name = "retrieval"
urlpatterns = [
    path("ask/", runs.ask, name="ask"),
    path("ask/stream/", ask_stream.stream_answer, name="ask-stream"),
    path("runs/", run_list.list_runs, name="runs"),
    path("runs/log/", run_list.download_log, name="run-log"),
    path("runs/<uuid:run_id>/", run_page.show_run, name="run"),
    path("runs/<uuid:run_id>/ranking/", run_page.show_ranking, name="run-ranking"),
    path("runs/<uuid:run_id>/pin/", run_page.pin_run, name="pin-run"),
    path("runs/<uuid:run_id>/receipt/", receipts.download_receipt, name="receipt"),
    path("runs/<uuid:run_id>/replay/", run_page.replay_run, name="replay"),
    path(
        "collections/<str:name>/retrieved/chunk/<int:index>/<path:doc_id>/",
        collection_panels.of_chunk,
        name="retrieved-chunk",
    ),
    path(
        "collections/<str:name>/retrieved/document/<path:doc_id>/",
        collection_panels.of_document,
        name="retrieved-document",
    ),
    path("collections/<str:name>/corrective/", calibration.corrective, name="corrective"),
    path("collections/<str:name>/plans/", collection_panels.plans, name="plans"),
    path("collections/<str:name>/never-retrieved/", collection_panels.never_retrieved, name="never-retrieved"),
    path("collections/<str:name>/playground/", playground.playground, name="playground"),
    path("collections/<str:name>/playground/save/", playground.save, name="playground-save"),
    # the chunk's number stands first, so that no doc_id can be mistaken for it
    path("collections/<str:name>/playground/<int:index>/<path:doc_id>/", playground.row, name="playground-row"),
]
