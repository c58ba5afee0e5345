from __future__ import annotations

from django.urls import path

from collections_app.access.rules import one_address
from retrieval_app.chat import assistant_views, stream_views
from retrieval_app.chat import views as threads
from retrieval_app.playground import views as playground
from retrieval_app.runs import views
from retrieval_app.runs import views as receipts
from retrieval_app.runs import views as run_list

ASSISTANTS = one_address(assistant_views.list_assistants, new=assistant_views.edit_assistant)
ASSISTANT = one_address(assistant_views.edit_assistant, delete=assistant_views.remove_assistant)
THREAD = one_address(
    threads.thread, rename=threads.rename_thread, share=threads.share_thread, delete=threads.delete_thread
)

app_name = "retrieval"
urlpatterns = [
    path("chat/", threads.chat, name="chat"),
    path("chat/files/", threads.drop_files, name="chat-files"),
    path("chat/stream/", stream_views.stream_answer, name="chat-stream"),
    path("chat/messages/<int:pk>/stop/", threads.stop_answer, name="chat-stop"),
    path("chat/assistants/", ASSISTANTS, name="chat-assistants"),
    path("chat/assistants/<int:pk>/", ASSISTANT, name="chat-assistant"),
    path("chat/<uuid:thread_id>/", THREAD, name="chat-thread"),
    path("chat/<uuid:thread_id>/thread.<slug:extension>", threads.export_thread, name="chat-export"),
    path("a/<slug:slug>/", assistant_views.public_page, name="public-assistant"),
    path("a/<slug:slug>/stream/", assistant_views.stream_public_answer, name="public-stream"),
    path("runs/log/", run_list.download_log, name="run-log"),
    path("runs/<uuid:run_id>/receipt/", receipts.download_receipt, name="receipt"),
    path("collections/<str:name>/retrieved/chunk/<int:index>/<path:doc_id>/", views.of_chunk, name="retrieved-chunk"),
    path("collections/<str:name>/retrieved/document/<path:doc_id>/", views.of_document, name="retrieved-document"),
    path("collections/<str:name>/playground/", playground.playground, name="playground"),
    path("collections/<str:name>/playground/answer/", playground.answer, name="playground-answer"),
    path("collections/<str:name>/playground/save/", playground.save, name="playground-save"),
    # the chunk's number stands first, so that no doc_id can be mistaken for it
    path("collections/<str:name>/playground/<int:index>/<path:doc_id>/", playground.row, name="playground-row"),
]
