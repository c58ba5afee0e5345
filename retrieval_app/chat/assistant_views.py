"""The pages of assistants: the list, the form of one, and its public page, alone or in a frame of another site."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext, gettext_lazy, ngettext
from django.views.decorators.csrf import csrf_exempt

from collections_app.access.context import current_access
from collections_app.access.limits import LimitReached
from collections_app.access.permissions import Permission
from collections_app.access.rules import ASK, WRITE, needs
from collections_app.errors import ServiceError
from collections_app.http.form_fields import LinesField
from collections_app.http.page_requests import PageRequest, field_of, find_or_404, render_page, submit_form, tell
from collections_app.models import Collection
from ragd.errors import RagdError
from retrieval_app.answers.answer_html import render_answer
from retrieval_app.answers.streams import Event, event_response, frame_event, open_stream
from retrieval_app.chat.assistants import (
    QUESTION_CHARS_MAX,
    AssistantFields,
    PublicThread,
    ask_publicly,
    collections_of_assistant,
    count_question,
    delete_assistant,
    earlier_messages,
    find_public,
    may_write,
    read_thread,
    save_assistant,
)
from retrieval_app.chat.stream_views import DrawnStream
from retrieval_app.llm.chat_model import stops_with
from retrieval_app.models import ChatAssistant, QueryRun
from retrieval_app.runs.presenters import draw_citation, mark_words
from retrieval_app.search.fallbacks import offered_models
from retrieval_app.search.query_pipeline import RunListener


class AssistantForm(forms.Form):
    """What is said of an assistant."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=80)
    collections = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Collections"), queryset=Collection.objects.none(), widget=forms.CheckboxSelectMultiple
    )
    llm_model = forms.ChoiceField(label=gettext_lazy("Chat model"), required=False)
    prompt = forms.CharField(
        label=gettext_lazy("Instructions"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy("Replaces the system prompt. The rules for citing stay."),
    )
    greeting = forms.CharField(label=gettext_lazy("Greeting"), required=False, max_length=1000)
    starters = LinesField(
        label=gettext_lazy("Starter questions"), required=False, help_text=gettext_lazy("One a line, up to 8.")
    )

    is_public = forms.BooleanField(
        label=gettext_lazy("Public page"),
        required=False,
        help_text=gettext_lazy("Anybody who knows its address may ask, without an account."),
    )
    origins = LinesField(
        label=gettext_lazy("Sites that may show it in a frame"),
        required=False,
        help_text=gettext_lazy("One a line, such as https://www.example.org. Empty: none."),
    )
    per_minute = forms.IntegerField(
        label=gettext_lazy("Questions per minute and visitor"), min_value=1, max_value=600, initial=5
    )
    per_day = forms.IntegerField(
        label=gettext_lazy("Questions per day and visitor"), min_value=1, max_value=100_000, initial=50
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        access = current_access()
        rows = Collection.objects.live().by_name()
        if not access.may(Permission.WRITE):
            own = [pk for pk, given in access.collections.items() if Permission.WRITE in given]
            rows = rows.filter(pk__in=own)
        collections = field_of(self, "collections", forms.ModelMultipleChoiceField)
        collections.queryset, collections.choices = rows, [(row.pk, row.label) for row in rows]
        models = dict([("", gettext_lazy("Default")), *offered_models()])
        if current := self.initial.get("llm_model"):
            models.setdefault(current, current)
        field_of(self, "llm_model", forms.ChoiceField).choices = list(models.items())

    def fields_of(self) -> AssistantFields:
        """As `save_assistant` takes them."""
        data = {name: self.cleaned_data[name] for name in self.fields}
        return AssistantFields(**data | {"collections": list(data["collections"])})


@needs(ASK, methods="GET")
def list_assistants(request: PageRequest) -> HttpResponse:
    rows = [
        {"assistant": each, "collections": collections_of_assistant(each), "may_write": may_write(each)}
        for each in ChatAssistant.objects.offered().by_name()
    ]
    return render_page(request, "retrieval/chat/assistants.html", {"rows": rows})


@needs(WRITE, methods="GET POST")
def edit_assistant(request: PageRequest, pk: int | None = None) -> HttpResponse:
    """pk None: a new one."""
    found = _writable(pk) if pk is not None else None
    initial = (
        {name: getattr(found, name) for name in AssistantForm.base_fields if name != "collections"} if found else {}
    )
    form = AssistantForm(
        request.POST if request.method == "POST" else None,
        initial=initial | ({"collections": collections_of_assistant(found)} if found else {}),
    )

    def save() -> HttpResponse:
        saved = save_assistant(form.fields_of(), found, actor=request.user)
        return tell(request, gettext("Assistant %(name)s saved.") % {"name": saved.name}, "retrieval:chat-assistants")

    response, status = submit_form(request, form, save)
    context = {"form": form, "assistant": found, "server": f"{request.scheme}://{request.get_host()}"}
    return response or render_page(request, "retrieval/chat/assistant.html", context, status=status)


@needs(WRITE, methods="POST")
def remove_assistant(request: PageRequest, pk: int) -> HttpResponse:
    found = _writable(pk)
    delete_assistant(found, actor=request.user)
    return tell(request, gettext("Assistant %(name)s deleted.") % {"name": found.name}, "retrieval:chat-assistants")


def _writable(pk: int) -> ChatAssistant:
    """Raises PermissionDenied for who may not write in all its collections."""
    found: ChatAssistant = find_or_404(ChatAssistant.objects.all(), pk=pk)
    if not may_write(found):
        raise PermissionDenied
    return found


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
