from __future__ import annotations

from django.urls import path

from retrieval_app.pages import (
    calibration,
    collection_panels,
    playground,
    receipts,
    run_list,
    run_page,
)
from retrieval_app.pages.chat import assistants, public, streaming, threads

app_name = "retrieval"
urlpatterns = [
    path("chat/", threads.chat, name="chat"),
    path("chat/stream/", streaming.stream_answer, name="chat-stream"),
    path("chat/messages/<int:pk>/stop/", threads.stop_answer, name="chat-stop"),
    path("chat/assistants/", assistants.list_assistants, name="chat-assistants"),
    path("chat/assistants/new/", assistants.edit_assistant, name="chat-assistant-new"),
    path("chat/assistants/<int:pk>/", assistants.edit_assistant, name="chat-assistant"),
    path("chat/assistants/<int:pk>/delete/", assistants.remove_assistant, name="chat-assistant-delete"),
    path("chat/<uuid:thread_id>/", threads.thread, name="chat-thread"),
    path("chat/<uuid:thread_id>/rename/", threads.rename_thread, name="chat-rename"),
    path("chat/<uuid:thread_id>/share/", threads.share_thread, name="chat-share"),
    path("chat/<uuid:thread_id>/delete/", threads.delete_thread, name="chat-delete"),
    path("chat/<uuid:thread_id>/thread.md", threads.export_thread, {"extension": "md"}, name="chat-markdown"),
    path("chat/<uuid:thread_id>/thread.json", threads.export_thread, {"extension": "json"}, name="chat-json"),
    path("a/<slug:slug>/", public.public_page, name="public-assistant"),
    path("a/<slug:slug>/stream/", public.stream_public_answer, name="public-stream"),
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
    path("collections/<str:name>/playground/answer/", playground.answer, name="playground-answer"),
    path("collections/<str:name>/playground/save/", playground.save, name="playground-save"),
    # the chunk's number stands first, so that no doc_id can be mistaken for it
    path("collections/<str:name>/playground/<int:index>/<path:doc_id>/", playground.row, name="playground-row"),
]
