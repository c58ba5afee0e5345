"""Home, the palette, and the pages of who keeps the server."""

from __future__ import annotations

from django.urls import path

from evaluation_app.telemetry.metrics import pages as metrics_pages
from ragd_site.operations import palette, retention_page, settings_page, views

app_name = "operations"
urlpatterns = [
    path("", views.home, name="home"),
    path("operations/", views.operations, name="operations"),
    path("operations/cluster/", views.cluster, name="cluster"),
    path("operations/leak-probe/", views.leak_probe, name="leak-probe"),
    path("status/", views.status, name="status"),
    path("go/", palette.palette, name="palette"),
    path("settings/retention/", retention_page.retention, name="retention"),
    path("settings/retention/<slug:period>/", retention_page.change_period, name="retention-period"),
    path("settings/server/", settings_page.server_settings, name="server-settings"),
    path("settings/connections/collector/", metrics_pages.collector, name="collector"),
]
