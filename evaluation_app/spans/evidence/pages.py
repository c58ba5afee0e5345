"""The evidence report as a page, as JSON, and over the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET
from ninja import Router
from ninja.params import functions as param

from collections_app.api.access import ERRORS
from collections_app.api.fields import Moment
from collections_app.errors import describe
from collections_app.http.auth import BearerAuth, check_collection_scope, request_key
from collections_app.http.page_requests import PageRequest, collection_titles, render_page
from evaluation_app.spans.evidence.kept import USUAL, kept_report
from evaluation_app.spans.evidence.report import LOOKED_AT, EvidenceReport, build_report
from evaluation_app.spans.evidence.schemas import EvidenceOut
from evaluation_app.spans.evidence.tallies import Range
from evaluation_app.spans.search.filters import parse_moment
from ragd.errors import InvalidInput, RagdError

DEFAULT_SINCE = USUAL["since"]
ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
PRESETS = (
    ("24h", gettext_lazy("24 hours")),
    ("7d", gettext_lazy("7 days")),
    ("30d", gettext_lazy("30 days")),
    ("90d", gettext_lazy("90 days")),
)

router = Router(auth=BearerAuth(), tags=["telemetry"])


def read_range(values: Mapping[str, str], within: tuple[tuple[str, datetime], ...] | None = None) -> Range:
    """since and until as in searches for spans: a time, or an age such as 7d. Raises InvalidInput."""
    since = parse_moment("since", values.get("since") or DEFAULT_SINCE)
    until = parse_moment("until", values.get("until") or "") or timezone.now() + timedelta(seconds=1)
    assert since is not None
    if until <= since:
        raise InvalidInput(f"until must be later than since; {until:%Y-%m-%d %H:%M} is not", field="until")
    return Range(since, until, within)


@require_GET
def evidence(request: PageRequest) -> HttpResponse:
    """whole=1: every span, however long that takes; again=1: counted now, else within the last minutes; format=json:
    the same as a file."""
    name = request.GET.get("collection", "").replace("\x00", "")
    context = {
        "presets": PRESETS,
        "since": request.GET.get("since") or DEFAULT_SINCE,
        "until": request.GET.get("until", ""),
        "collection": name,
        "collections": collection_titles(request),
        "limit": LOOKED_AT,
    }
    try:
        requested = read_range(request.GET.dict(), ((name, ALWAYS),) if name else None)
        limit = None if request.GET.get("whole") else LOOKED_AT
        report = kept_report(request.GET.dict(), requested, limit, again=bool(request.GET.get("again")))
    except RagdError as error:
        status, details = describe(error)
        return render_page(request, "evaluation/evidence.html", context | {"error": details["detail"]}, status=status)
    if request.GET.get("format") == "json":
        response = JsonResponse(EvidenceOut.from_orm(report).dict(), json_dumps_params={"indent": 1})
        response["Content-Disposition"] = f'attachment; filename="evidence-{report.made_at:%Y%m%d-%H%M%S}.json"'
        return response
    return render_page(request, "evaluation/evidence.html", context | {"report": report})


@router.get(
    "/evidence",
    operation_id="evidence",
    summary="Field coverage of the controls of four frameworks",
    response={200: EvidenceOut, **ERRORS},
)
def evidence_report(
    request: HttpRequest,
    since: Moment = param.Query(DEFAULT_SINCE, description="a time, or an age such as 7d"),
    until: Moment = param.Query("", description="a time, or an age; now when left out"),
    collection: str = param.Query("", description="its spans alone"),
    whole: bool = param.Query(False, description=f"look at every span, not at the newest {LOOKED_AT} of each type"),
) -> EvidenceReport:
    """Per framework and control the fields that it names, for how many spans they were recorded, and each gap."""
    key, collection = request_key(request), collection.replace("\x00", "")
    if collection:
        check_collection_scope(key, collection)
    opened = key.visible.opened
    within = None if opened is None else tuple(pair for pair in opened.values() if collection in ("", pair[0]))
    if within is None and collection:
        within = ((collection, ALWAYS),)
    requested = read_range({"since": since, "until": until}, within)
    return build_report(requested, limit=None if whole else LOOKED_AT)
