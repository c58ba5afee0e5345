"""The settings of the server and of the account: where each of them is."""

from __future__ import annotations

from itertools import groupby

from django.http import HttpResponse
from django.utils.translation import gettext
from django.views.decorators.http import require_GET

from collections_app.http.page_requests import PageRequest, render_page
from collections_app.http.places import SETTINGS


@require_GET
def server_settings(request: PageRequest) -> HttpResponse:
    """groups: (heading, the pages that the reader may open), in the order of the list."""
    offered = [page for page in SETTINGS.offered(request.user) if page.group]
    groups = [(gettext(group), list(pages)) for group, pages in groupby(offered, lambda page: page.group)]
    return render_page(request, "shell/settings.html", {"groups": groups})
