"""Where everything is mounted. Log-in is required (LoginRequiredMiddleware) but where API keys are taken."""

from __future__ import annotations

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils.module_loading import import_string
from django.views.decorators.cache import cache_control
from django.views.decorators.csrf import csrf_exempt
from django.views.i18n import JavaScriptCatalog, set_language

from evaluation_app.telemetry.metrics.pages import metrics_page
from ragd_site.access.middleware import page_not_found, page_refused
from ragd_site.api import api_urls
from ragd_site.operations.branding import brand_file
from ragd_site.sign_on.views import admin_logout_page, admin_password_page

# the admin has no way in of its own: all log-ins go through the one page, and a second factor where there is one
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]


@csrf_exempt
def mcp(request: HttpRequest) -> HttpResponse:
    """The view of all tools. The SDK is loaded at its first request: it takes an eighth of a start."""
    answer: HttpResponse = import_string("evaluation_app.mcp_tools.view")(request)
    return answer


handler403, handler404 = page_refused, page_not_found
urlpatterns = [
    path("admin/logout/", admin.site.admin_view(admin_logout_page)),
    path("admin/password_change/", admin.site.admin_view(admin_password_page)),
    path("admin/", admin.site.urls),
    path("accounts/", include("ragd_site.sign_on.urls")),
    path("language/", login_not_required(set_language), name="set_language"),
    path(
        "language/texts.js",
        cache_control(private=True, max_age=3600)(login_not_required(JavaScriptCatalog.as_view())),
        name="language-texts",
    ),
    path("v1/", api_urls()),
    path("brand/<str:name>", brand_file, name="brand"),
    path("widget.js", brand_file, {"name": "widget.js"}, name="widget"),
    path("metrics", metrics_page, name="metrics"),
    path("mcp", login_not_required(mcp), name="mcp"),
    path("", include("collections_app.urls")),
    path("", include("retrieval_app.urls")),
    path("", include("evaluation_app.urls")),
    path("", include("ragd_site.operations.urls")),
]
