"""The Ask page's answer while it is written: the events of `answer_streams` with what the page shows of them."""

from __future__ import annotations

from typing import Any

from django.http import JsonResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.views.decorators.http import require_POST

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, refuse, render_page
from collections_app.models import Collection
from ragd.errors import RagdError
from retrieval_app.api.answer_streams import TOO_MANY, AnswerStream, Event, event_response, frame_event, open_stream
from retrieval_app.citations.citations import Citation
from retrieval_app.models import QueryRun
from retrieval_app.pages.forms import AskForm
from retrieval_app.pages.runs import ASK_PARTS, address_of_answer, describe_run, draw_citation
from retrieval_app.runs import query_pipeline


class PageStream(AnswerStream):
    """search_results {"html"}: the sources as they stand below the answer. citation {"html"}: what its marker becomes.

    token {"text"}. final {"href"}: where the whole answer stands, "" when it could not be stored. error as in the API,
    and "href" of the stored run.
    """

    def retrieved(self, run: QueryRun) -> None:
        self.run, self.run_id = run, str(run.pk)
        self.context = describe_run(run)
        self.put(Event("search_results", {"html": render_to_string("retrieval/parts/answering.html", self.context)}))
        self.rest()

    def cite(self, citation: Citation) -> None:
        html = draw_citation(self.run, self.context["collection_lives"], citation.as_dict())
        self.put(Event("citation", {"html": html}))


@require_POST
def stream_answer(request: PageRequest) -> HttpResponseBase:
    """Answer the form of the Ask page in events. What cannot be asked has a status and no stream.

    What failed before there were results is told by the form as the page shows it, so that nothing is tried twice. JSON
    asks the script to send the form to the page itself.
    """
    collections = list(Collection.objects.live().by_name())
    form = AskForm(request.POST, collections=collections)
    if not form.is_valid():
        return JsonResponse({"detail": "the form has mistakes; send it to the page itself"}, status=422)
    data, user = form.cleaned_data, request.user
    try:
        chosen = form.chosen()

        def work(listener: query_pipeline.RunListener) -> dict[str, Any]:
            run = query_pipeline.ask(
                data["collection"],
                data["query"],
                chosen.plan,
                door=QueryRun.Door.PAGE,
                plan_name=chosen.name,
                user=user,
                as_of=data["as_of"],
                listener=listener,
            )
            return {"href": address_of_answer(run) if run.pk else ""}

        stream = open_stream(work, PageStream())
        stream.start()
    except (ServiceError, RagdError) as error:
        if getattr(error, "type", "") == TOO_MANY:
            return JsonResponse(describe(error)[1], status=503)
        status = refuse(form, error)
        context = {"form": form, "collections": collections, "failed_run": describe(error)[1].get("run_id")}
        return render_page(request, "retrieval/ask.html", context, parts=ASK_PARTS, status=status)
    return event_response(request, stream, frame_event)
