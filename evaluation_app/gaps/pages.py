"""The page of a collection's content gaps."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_http_methods

from collections_app.domain.formats import counted
from collections_app.http.page_requests import PageRequest, render_page
from collections_app.views.collections import find_collection
from evaluation_app.gaps.gaps import LOW_CONFIDENCE, NO_ANSWER, NO_RESULTS, WRONG, dismiss, find_gaps
from ragd.errors import InvalidInput

DAYS = (7, 30, 90, 365)
USUAL_DAYS = 30
SHOWN = 100
REASON_WORDS = {
    NO_ANSWER: ("bad", gettext_lazy("No answer")),
    NO_RESULTS: ("bad", gettext_lazy("No results")),
    WRONG: ("watch", gettext_lazy("Feedback: not correct")),
    LOW_CONFIDENCE: ("watch", gettext_lazy("Low confidence")),
}


@require_http_methods(["GET", "POST"])
def content_gaps(request: PageRequest, name: str) -> HttpResponse:
    """What was asked and not answered, by ?days= and ?state=dismissed; a POST dismisses a group, or brings it back."""
    collection = find_collection(name)
    dismissed = request.GET.get("state") == "dismissed"
    stated = request.GET.get("days", "")
    days = int(stated) if stated.isdecimal() and int(stated[:6]) in DAYS else USUAL_DAYS
    if request.method == "POST":
        try:
            count = dismiss(collection, request.POST.getlist("question"), dismissed=not dismissed, actor=request.user)
        except InvalidInput as error:
            messages.error(request, error.message)
        else:
            questions = counted(count, gettext("question,questions"))
            text = gettext("%(questions)s returned.") if dismissed else gettext("%(questions)s dismissed.")
            messages.success(request, text % {"questions": questions})
        return redirect(f"{reverse('evaluation:content-gaps', args=[name])}?{request.GET.urlencode()}")
    found = find_gaps(collection, days=days, dismissed=dismissed)
    context = {
        "collection": collection,
        "tab": "gaps",
        "rows": [(gap, [REASON_WORDS[reason] for reason in gap.reasons]) for gap in found.rows[:SHOWN]],
        "more": max(0, len(found.rows) - SHOWN) + found.left_out,
        "asked": sum(gap.count for gap in found.rows),
        "problem": found.problem,
        "dismissed": dismissed,
        "days": days,
        "choices": DAYS,
    }
    return render_page(request, "evaluation/gaps/gaps.html", context)
