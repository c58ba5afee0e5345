from __future__ import annotations

from django.urls import path

from evaluation_app.runs.calibration import pages

urlpatterns = [path("collections/<str:name>/corrective/calibrate/", pages.calibrate_page, name="calibrate")]
