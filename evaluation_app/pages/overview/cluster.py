"""The page of a Citus cluster: its nodes, where collections are, what moves, and evening out."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext, ngettext
from django.views.decorators.http import require_http_methods

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, render_page
from collections_app.services.cluster.rebalance import plan_moves, rebalance, recover
from collections_app.services.cluster.state import read_cluster


@require_http_methods(["GET", "POST"])
def cluster(request: PageRequest) -> HttpResponse:
    """POST with do=rebalance or do=recover."""
    if request.method == "POST":
        try:
            _change(request)
        except ServiceError as error:
            messages.error(request, str(error))
        return redirect("evaluation:cluster")
    state = read_cluster()
    context = {"state": state, "moves": plan_moves(state.shards, state.nodes)}
    context["rows"] = [(each, [state.address_of(group) for group in each.groups]) for each in state.versions]
    return render_page(request, "evaluation/cluster.html", context)


def _change(request: PageRequest) -> None:
    if request.POST.get("do") == "recover":
        count = recover(request.user)
        text = ngettext("%(count)d prepared transaction ended.", "%(count)d prepared transactions ended.", count)
    else:
        count = len(rebalance(request.user))
        text = ngettext("%(count)d shard moved.", "%(count)d shards moved.", count)
    messages.success(request, text % {"count": count} if count else gettext("Nothing to do."))
