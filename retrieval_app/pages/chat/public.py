"""The public page of an assistant, alone or in a frame of the sites that it names, without session and account."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from collections_app.errors import ServiceError
from collections_app.services.governance.limits import LimitReached
from ragd.errors import RagdError
from retrieval_app.chats.public import QUESTION_CHARS_MAX, ask_publicly, count_question, find_public
from retrieval_app.citations.answer_html import render_answer
from retrieval_app.models import ChatAssistant, QueryRun
from retrieval_app.pages.excerpts import mark_words
from retrieval_app.pages.runs import draw_citation

EXCERPTS_SHOWN = 5


@csrf_exempt  # no cookie says who asks; the Origin header is checked instead
@login_not_required
@require_http_methods(["GET", "POST"])
def public_page(request: HttpRequest, slug: str) -> HttpResponse:
    """GET: greeting and starter questions. POST: one question and its answer; each stands by itself."""
    assistant = find_public(slug)
    if assistant is None:
        raise Http404("no public assistant has this name")
    context, status, wait_s = _answer(request, assistant) if request.method == "POST" else ({}, 200, 0.0)
    response = render(request, "retrieval/chat/public.html", {"assistant": assistant} | context, status=status)
    if wait_s:
        response.headers["Retry-After"] = str(int(wait_s) + 1)
    response.xframe_options_exempt = True
    response._csp_replace = {"frame-ancestors": assistant.origins or ["'none'"]}  # type: ignore[attr-defined]
    response.headers["Referrer-Policy"] = "same-origin"  # with less, browsers send no Origin
    return response


def _answer(request: HttpRequest, assistant: ChatAssistant) -> tuple[dict[str, Any], int, float]:
    """(what is shown, the status, seconds to wait before the next question)."""
    question = " ".join((request.POST.get("starter") or request.POST.get("query") or "").split())
    shown: dict[str, Any] = {"question": question}
    if request.headers.get("Origin") != f"{request.scheme}://{request.get_host()}":
        return shown | {"problem": gettext("This form was sent from another site. Ask on this page.")}, 403, 0.0
    if not question or len(question) > QUESTION_CHARS_MAX:
        text = gettext("A question has 1 to %(most)d characters.") % {"most": QUESTION_CHARS_MAX}
        return shown | {"problem": text}, 422, 0.0
    try:
        count_question(assistant, request.META.get("REMOTE_ADDR", ""))
    except LimitReached as reached:
        text = gettext("Too many questions were asked. Ask again later.")
        return shown | {"problem": text}, 429, reached.usage.reset_s
    try:
        run = ask_publicly(assistant, question)
    except (ServiceError, RagdError):
        return shown | {"problem": gettext("This question cannot be answered now. Try again later.")}, 503, 0.0
    return shown | _describe(run), 200, 0.0


def _describe(run: QueryRun) -> dict[str, Any]:
    """The answer and what it quotes: no link into the product, no id of the run."""
    cited = [source for source in run.sources if source["cited"]][:EXCERPTS_SHOWN]
    return {
        "abstained": run.status == QueryRun.Status.ABSTAINED,
        "answer_html": render_answer(run.answer or "", run.citations, lambda item: draw_citation(run, False, item)),
        "sources": [
            {"marker": each["marker"], "title": each["title"] or each["doc_id"], "place": each.get("place"),
             "excerpt": mark_words(each["excerpt"], run.query)}
            for each in cited
        ],
    }  # fmt: skip
