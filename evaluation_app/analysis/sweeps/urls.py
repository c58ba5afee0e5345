from __future__ import annotations

from django.urls import URLPattern, path

from evaluation_app.analysis.sweeps import pages

urlpatterns: list[URLPattern] = [
    path("evaluation/sweeps/", pages.sweeps, name="sweeps"),
    path("evaluation/sweeps/new/", pages.new_sweep, name="new-sweep"),
    path("evaluation/sweeps/<int:pk>/", pages.sweep, name="sweep"),
    path("evaluation/sweeps/<int:pk>/cancel/", pages.cancel, name="sweep-cancel"),
    path("evaluation/sweeps/<int:pk>/delete/", pages.delete, name="sweep-delete"),
    path("evaluation/sweeps/<int:pk>/save/", pages.save, name="sweep-save"),
]
