"""The guide of the first run on Home: five steps, each ticked by what has happened, left and taken up again at will."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.views.decorators.http import require_POST

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.http.page_requests import PageRequest
from collections_app.model_endpoints.endpoints import chat_endpoint
from collections_app.models import Collection, Document
from evaluation_app.models import GoldenQuestion
from evaluation_app.sample.loading import SHIPPED
from retrieval_app.models import QueryRun

COOKIE = "guide"
YEAR_S = 365 * 24 * 3600
LEFT, WITHOUT_MODEL = "left", "without-model"  # the words of the cookie


@dataclass(frozen=True, slots=True)
class Step:
    """key: what the template adds to it. href: where it is done; "" where it is done in the guide itself."""

    key: str
    label: str
    is_done: bool
    href: str
    action: str
    is_next: bool = False


@dataclass(frozen=True, slots=True)
class Guide:
    """is_left: it is offered by a link alone. The first step that is not done is the next one."""

    steps: list[Step]
    is_left: bool

    @property
    def done(self) -> int:
        return sum(step.is_done for step in self.steps)


def read_guide(request: PageRequest) -> Guide | None:
    """None where all is done, or nothing is for the reader to do."""
    chosen = request.COOKIES.get(COOKIE, "").split()
    steps = _steps(request, goes_without=WITHOUT_MODEL in chosen)
    following = next((step for step in steps if not step.is_done), None)
    if following is None:
        return None
    return Guide([replace(step, is_next=step is following) for step in steps], LEFT in chosen)


def _steps(request: PageRequest, *, goes_without: bool) -> list[Step]:
    """Those that the reader may do, in their order."""
    access, own = current_access(), QueryRun.objects.filter(user=request.user)
    asked = own.of_production().filter(kind=QueryRun.Kind.ASK).newest_first().first()
    looked = own.filter(environment=QueryRun.Environment.PLAYGROUND)
    written = GoldenQuestion.objects.exclude(notes=SHIPPED)
    steps = []
    if request.user.has_perm("collections_app.add_modelsetting"):
        has_model = goes_without or chat_endpoint() is not None
        label = gettext("Connect a language model, or go without: answers are quotations then")
        steps.append(Step("model", label, has_model, reverse("collections:model-add"), gettext("Connect a model")))
    if access.may_make_collections:
        label = gettext("Look at the sample collection, or add your own files")
        steps.append(
            Step("files", label, Document.objects.exists(), reverse("collections:create"), gettext("New collection"))
        )
    if access.may_anywhere(Permission.ASK):
        label = gettext("Ask a question")
        steps.append(Step("ask", label, asked is not None, reverse("retrieval:chat"), gettext("Ask")))
        label = gettext("See why these sources were found, in the playground")
        steps.append(Step("why", label, looked.exists(), _playground_of(asked), gettext("Open the playground")))
    if access.may_anywhere(Permission.EVALUATE):
        label = gettext("Make a golden question of it, so that every change is measured by it")
        href = reverse("evaluation:golden-from-run", args=[asked.pk]) if asked else reverse("evaluation:golden-sets")
        steps.append(Step("golden", label, written.exists(), href, gettext("Make a golden question")))
    return steps


def _playground_of(asked: QueryRun | None) -> str:
    if asked is None or not Collection.objects.live().filter(name=asked.collection_name).exists():
        return ""
    return f"{reverse('retrieval:playground', args=[asked.collection_name])}?{urlencode({'q': asked.query})}"


@require_POST
def change_guide(request: PageRequest) -> HttpResponse:
    """do: leave, resume, without-model. Kept in the browser; back to Home."""
    words = set(request.COOKIES.get(COOKIE, "").split()) & {LEFT, WITHOUT_MODEL}
    match request.POST.get("do"):
        case "leave":
            words.add(LEFT)
        case "resume":
            words.discard(LEFT)
        case "without-model":
            words.add(WITHOUT_MODEL)
    response = redirect("evaluation:home")
    response.set_cookie(COOKIE, " ".join(sorted(words)), max_age=YEAR_S, samesite="Lax")
    return response
