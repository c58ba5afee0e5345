from __future__ import annotations

from django.urls import path

from retrieval_app import views

app_name = "retrieval"
urlpatterns = [
    path("ask/", views.ask, name="ask"),
    path("runs/", views.list_runs, name="runs"),
    path("runs/<uuid:run_id>/", views.show_run, name="run"),
]
