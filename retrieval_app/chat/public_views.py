"""The public page of an assistant, alone or in a frame of the sites that it names, without session and account."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext, ngettext
from django.views.decorators.csrf import csrf_exempt

from collections_app.access.limits import LimitReached
from collections_app.access.rules import needs
from collections_app.errors import ServiceError
from ragd.errors import RagdError
from retrieval_app.answers.answer_html import render_answer
from retrieval_app.answers.streams import Event, event_response, frame_event, open_stream
from retrieval_app.chat.public import (
    QUESTION_CHARS_MAX,
    PublicThread,
    ask_publicly,
    count_question,
    earlier_messages,
    find_public,
    read_thread,
)
from retrieval_app.chat.stream_views import DrawnStream
from retrieval_app.llm.chat_completion import stops_with
from retrieval_app.models import ChatAssistant, QueryRun
from retrieval_app.runs.presenters import draw_citation, mark_words
from retrieval_app.search.query_pipeline import RunListener

EXCERPTS_SHOWN = 5


class PublicStream(DrawnStream):
    """search_results {"html", "thread"}: that sources were found, and how the thread goes on. final {"html", "thread"}:
    the whole message. error {"problem"}. A reader that leaves stops the model: nobody could come back to the answer."""

    def __init__(self, assistant: ChatAssistant, thread: PublicThread) -> None:
        super().__init__()
        self.assistant, self.thread = assistant, thread
        self.left = threading.Event()

    def leave(self) -> None:
        self.left.set()
        super().leave()

    def retrieved(self, run: QueryRun) -> None:
        html = render_to_string("retrieval/chat/public_writing.html", {"total": len(run.results)})
        self.found(run, {"html": html, "thread": self.thread.with_run(run).token(self.assistant)})


class Refusal(Exception):
    """A question that is not answered: what is told, and the seconds to wait before the next, 0 for none."""

    def __init__(self, problem: str, status: int, wait_s: float = 0.0) -> None:
        super().__init__(problem)
        self.problem, self.status, self.wait_s = problem, status, wait_s

    def mark(self, response: HttpResponse) -> HttpResponse:
        if self.wait_s:
            response.headers["Retry-After"] = str(math.floor(self.wait_s) + 1)
        return response

    def as_json(self) -> HttpResponse:
        return self.mark(JsonResponse({"problem": self.problem}, status=self.status))


@needs(None, methods="GET POST")
@csrf_exempt  # no cookie says who asks; the Origin header is checked instead
@login_not_required
def public_page(request: HttpRequest, slug: str) -> HttpResponse:
    """GET: greeting and starter questions. POST: one question and its answer, below what the thread asked before."""
    assistant = _find(slug)
    context: dict[str, Any] = {"assistant": assistant, "origin": f"{request.scheme}://{request.get_host()}"}
    refusal = None
    if request.method == "POST":
        thread = read_thread(assistant, request.POST.get("thread", ""))
        context |= {"messages_shown": [_describe(each.run) for each in earlier_messages(assistant, thread) if each.run]}
        try:
            run = ask_publicly(assistant, _admit(request, assistant), thread)
        except Refusal as refused:
            refusal = refused
        except (ServiceError, RagdError):
            refusal = _unanswered()
        else:
            thread = thread.with_run(run)
            context["messages_shown"].append(_describe(run) | {"question": _question_of(request)})
        context["thread"] = thread.token(assistant)
    if refusal:
        context |= {"problem": refusal.problem, "question": _question_of(request)}
    response = render(request, "retrieval/chat/public.html", context, status=refusal.status if refusal else 200)
    response.xframe_options_exempt = True
    response._csp_replace = {"frame-ancestors": assistant.origins or ["'none'"]}  # type: ignore[attr-defined]
    response.headers["Referrer-Policy"] = "same-origin"  # with less, browsers send no Origin
    return refusal.mark(response) if refusal else response


@needs(None, methods="POST")
@csrf_exempt  # as above
@login_not_required
def stream_public_answer(request: HttpRequest, slug: str) -> HttpResponseBase:
    """The same for the page's script: the answer in events, or {"problem"} with a status."""
    assistant = _find(slug)
    try:
        question = _admit(request, assistant)
        thread = read_thread(assistant, request.POST.get("thread", ""))
        stream = PublicStream(assistant, thread)

        def work(listener: RunListener) -> dict[str, Any]:
            with stream.watched(), stops_with(stream.left):
                run = ask_publicly(assistant, question, thread, listener)
            html = render_to_string(
                "retrieval/chat/public_message.html", {"each": _describe(run) | {"question": question}}
            )
            return {"html": html, "thread": thread.with_run(run).token(assistant)}

        open_stream(work, stream).start(("stage", "search_results"))
    except Refusal as refused:
        return refused.as_json()
    except (ServiceError, RagdError) as error:
        return _unanswered(getattr(error, "retry_after_s", None) or 0.0).as_json()
    return event_response(request, stream, _frame)


def _find(slug: str) -> ChatAssistant:
    assistant = find_public(slug)
    if assistant is None:
        raise Http404("no public assistant has this name")
    return assistant


def _question_of(request: HttpRequest) -> str:
    return " ".join((request.POST.get("starter") or request.POST.get("query") or "").split())


def _admit(request: HttpRequest, assistant: ChatAssistant) -> str:
    """The question, counted. Raises Refusal."""
    question = _question_of(request)
    if request.headers.get("Origin") != f"{request.scheme}://{request.get_host()}":
        raise Refusal(gettext("This form was sent from another site. Ask on this page."), 403)
    if not question or len(question) > QUESTION_CHARS_MAX:
        text = gettext("A question has 1 to %(most)d characters.") % {"most": QUESTION_CHARS_MAX}
        raise Refusal(text, 422)
    try:
        count_question(assistant, request.META.get("REMOTE_ADDR", ""))
    except LimitReached as reached:
        raise Refusal(_too_many(reached.usage.reset_s), 429, reached.usage.reset_s) from None
    return question


def _too_many(wait_s: float) -> str:
    minutes = math.ceil(wait_s / 60)
    if minutes < 100:
        text = ngettext("Ask again in %(count)d minute.", "Ask again in %(count)d minutes.", minutes)
        return f"{gettext('Too many questions.')} {text % {'count': minutes}}"
    hours = math.ceil(minutes / 60)
    text = ngettext("Ask again in %(count)d hour.", "Ask again in %(count)d hours.", hours)
    return f"{gettext('Too many questions.')} {text % {'count': hours}}"


def _unanswered(wait_s: float = 0.0) -> Refusal:
    return Refusal(gettext("This question cannot be answered now. Try again in a moment."), 503, wait_s)


def _frame(event: Event) -> bytes:
    """Of an error no more is told than that there was one."""
    return frame_event(Event("error", {"problem": _unanswered().problem}) if event.name == "error" else event)


def _describe(run: QueryRun) -> dict[str, Any]:
    """The answer and what it quotes: no link into the product, no id of the run."""
    cited = [source for source in run.sources if source["cited"]][:EXCERPTS_SHOWN]
    draw: Callable[[Any], Any] = partial(draw_citation, run, False)
    return {
        "question": run.query,
        "abstained": run.status == QueryRun.Status.ABSTAINED,
        "answer_html": render_answer(run.answer or "", run.citations, draw),
        "degraded": [each["step"] for each in run.degraded if each["step"] != "replica"],
        "was_stopped": run.token_usage.get("finish_reason") == "stopped",
        "sources": [
            {"marker": each["marker"], "title": each["title"] or each["doc_id"], "place": each.get("place"),
             "excerpt": mark_words(each["excerpt"], run.query)}
            for each in cited
        ],
    }  # fmt: skip
