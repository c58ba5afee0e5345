"""The answer while it is written: the events of `answer_streams` with what the Chat page shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.http import JsonResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext, ngettext

from collections_app.access.rules import ASK, needs
from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, refuse
from collections_app.models import Collection
from ragd import telemetry
from ragd.errors import RagdError
from retrieval_app.answers.answer_html import close_marks, render_answer
from retrieval_app.answers.citations import Citation
from retrieval_app.answers.streams import TOO_MANY, AnswerStream, Event, event_response, frame_event, open_stream
from retrieval_app.chat.views import Question, describe_page, find_thread, read_question, show_part
from retrieval_app.models import QueryRun
from retrieval_app.runs.presenters import describe_run, draw_citation
from retrieval_app.search import query_pipeline

GROWTH = 64  # a long answer is drawn each time it has grown by one part in so many
HEARTBEAT_S = 0.5  # soon enough to notice that nobody reads any more


class DrawnStream(AnswerStream):
    """stage {"text"}: what is being done, before there are results. answer {"html"}: the answer so far, drawn. links:
    whether citations lead anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.heartbeat_s = HEARTBEAT_S
        self.text, self.citations = "", list[dict[str, Any]]()
        self.links = False
        self._drawn_chars = 0

    def reach(self, stage: str, count: int | None) -> None:
        """Tell of what takes long before there are results."""
        if stage == "rerank":
            text = ngettext("Reranking %(count)d passage…", "Reranking %(count)d passages…", count or 0)
            self.put(Event("stage", {"text": text % {"count": count or 0}}))

    def found(self, run: QueryRun, data: dict[str, Any]) -> None:
        """Tell of the results."""
        self.run, self.run_id = run, str(run.pk)
        self.put(Event("search_results", data))
        self.rest()

    def tell(self, text: str) -> None:
        self.text += text
        self._draw()

    def cite(self, citation: Citation) -> None:
        self.citations.append(citation.as_dict())
        self._draw(at_once=True)

    def restarted(self) -> None:
        self.text, self.citations = "", []
        self._draw(at_once=True)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The work inside tells its stages here."""
        with telemetry.watching_stages(self.reach):
            yield

    def _draw(self, *, at_once: bool = False) -> None:
        if not at_once and len(self.text) - self._drawn_chars <= len(self.text) // GROWTH:
            return
        self._drawn_chars = len(self.text)
        draw = partial(draw_citation, self.run, self.links)
        self.put(Event("answer", {"html": render_answer(close_marks(self.text), self.citations, draw)}))


class PageStream(DrawnStream):
    """search_results {"html", "href" of the thread, "stop": where the answer is ended}: the message as it stands while
    the answer is written. final and error {"href"}: where the thread stands. A reader that leaves changes nothing."""

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question

    def of_other(self) -> OtherAnswer | None:
        return OtherAnswer(self) if self.question.form.cleaned_data["other_model"] else None

    def reading_files(self) -> None:
        self.put(Event("stage", {"text": gettext("Reading your files…")}))

    def retrieved(self, run: QueryRun) -> None:
        self.question.keep(run)
        context = describe_run(run)
        self.links = context["collection_lives"]
        models = self.question.form.model_labels
        context |= {"message": self.question.message, "models": models if len(models) > 1 else [""]}
        html = render_to_string("retrieval/chat/answering.html", context)
        assert self.question.message is not None
        stop = reverse("retrieval:chat-stop", args=[self.question.message.pk])
        self.found(run, {"html": html, "href": self.href, "stop": stop})

    @property
    def href(self) -> str:
        """Of the message; "" before there is one."""
        return self.question.message.get_absolute_url() if self.question.message else ""


class OtherAnswer(DrawnStream):
    """The second answer, told in the events of the first: answer {"html", "column": 1}."""

    def __init__(self, main: PageStream) -> None:
        super().__init__()
        self.main = main

    def retrieved(self, run: QueryRun) -> None:
        self.run, self.links = run, True
        self.rest()

    def put(self, event: Event) -> None:
        self.main.put(Event(event.name, event.data | {"column": 1}))


@needs(ASK, methods="POST")
def stream_answer(request: PageRequest) -> HttpResponseBase:
    """Answer the form of the Chat page in events. What cannot be asked has a status and no stream.

    What failed before the first event is told by the form as the page shows it, so that nothing is tried twice. JSON
    asks the script to send the form to the page itself.
    """
    collections = list(Collection.objects.live().by_name())
    thread = find_thread(request, request.POST["thread"]) if request.POST.get("thread") else None
    question = read_question(request, collections, thread)
    if not question.form.is_valid():
        return JsonResponse({"detail": "the form has mistakes; send it to the page itself"}, status=422)
    stream = PageStream(question)

    def work(_: query_pipeline.RunListener) -> dict[str, Any]:
        with stream.watched():
            run = question.ask(stream)
        return {"href": stream.href if run.pk else ""}

    try:
        open_stream(work, stream).start(("stage", "search_results"))
    except (ServiceError, RagdError) as error:
        if getattr(error, "type", "") == TOO_MANY:
            return JsonResponse(describe(error)[1], status=503)
        status = refuse(question.form, error)
        failed = {"form": question.form, "failed_run": describe(error)[1].get("run_id"), "replaces": question.replaces}
        return show_part(request, describe_page(request, thread, collections) | failed, status=status)
    return event_response(request, stream, frame_event)
