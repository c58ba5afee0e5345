"""The evidence report as a page, as JSON, and over the API.

The shape of the evidence report: over the API, as the file of the page, and in the shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.translation import gettext
from ninja import Field, Schema
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, check_collection_scope, request_key
from collections_app.access.rules import ADMINISTER, needs
from collections_app.domain.formats import parse_moment
from collections_app.errors import describe
from collections_app.http.lists import AGES, Filter, ListKind, list_page, period
from collections_app.http.page_requests import PageRequest, collection_titles, render_page
from collections_app.http.schemas import IsoTime, Moment
from evaluation_app.telemetry.evidence.report import (
    LOOKED_AT,
    USUAL,
    EvidenceReport,
    FieldEvidence,
    Range,
    build_report,
    kept_report,
)
from ragd.errors import InvalidInput, RagdError

State = Literal["complete", "partly", "missing", "idle"]


class SpanExample(Schema):
    trace_id: str
    span_id: str


class FieldEvidenceOut(Schema):
    """One field on one type of span."""

    name: str
    span_type: str
    event: str = Field(description='which event of the span carries the field; "": the span itself')
    requirement: str
    spans: int = Field(description="of the type that were looked at")
    applies: int = Field(description="spans that the field applies to")
    recorded: int = Field(description="of those, how many have it")
    hidden: int = Field(description="of those, where the content switch replaced the text")
    state: State
    reason: str
    advice: str
    examples: list[SpanExample] = Field(description="spans that lack it")

    @staticmethod
    def resolve_examples(field: FieldEvidence) -> list[dict[str, str]]:
        return [{"trace_id": trace, "span_id": span} for trace, span in field.examples]


class ControlEvidenceOut(Schema):
    control: str = Field(validation_alias="control.number")
    title: str = Field(validation_alias="control.title")
    state: State
    fields: list[FieldEvidenceOut]


class FrameworkEvidenceOut(Schema):
    framework: str = Field(validation_alias="name")
    complete: int = Field(description="controls of which every field that applies is recorded")
    lacking: int
    idle: int = Field(description="controls without a span that they apply to")
    controls: list[ControlEvidenceOut]


class EvidenceOut(Schema):
    since: IsoTime = Field(validation_alias="span_range.since")
    until: IsoTime = Field(validation_alias="span_range.until")
    collections: list[str] = Field(description="[]: all")
    made_at: IsoTime
    spans: dict[str, int] = Field(validation_alias="counts", description="of each type in the range")
    looked_at: dict[str, int] = Field(validation_alias="seen", description="of each type, the newest")
    is_whole: bool
    spans_with_lost_attributes: int = Field(validation_alias="truncated")
    spans_lost: int = Field(validation_alias="lost")
    capture_content: str = Field(validation_alias="capture")
    otlp_content: str = Field(validation_alias="leaves")
    frameworks: list[FrameworkEvidenceOut]
    gaps: list[FieldEvidenceOut] = Field(description="what is missing where it applies, each field of a type once")

    @staticmethod
    def resolve_collections(report: EvidenceReport) -> list[str]:
        return [name for name, _ in report.span_range.within or ()]


DEFAULT_SINCE = USUAL["since"]
ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)

router = Router(auth=BearerAuth(), tags=["telemetry"])


def read_range(values: Mapping[str, str], within: tuple[tuple[str, datetime], ...] | None = None) -> Range:
    """since and until as in searches for spans: a time, or an age such as 7d. Raises InvalidInput."""
    since = parse_moment("since", values.get("since") or DEFAULT_SINCE)
    until = parse_moment("until", values.get("until") or "") or timezone.now() + timedelta(seconds=1)
    assert since is not None
    if until <= since:
        raise InvalidInput(f"until must be later than since; {until:%Y-%m-%d %H:%M} is not", field="until")
    return Range(since, until, within)


@needs(ADMINISTER, everywhere=True, methods="GET")
def evidence(request: PageRequest) -> HttpResponse:
    """whole=1: every span, however long that takes; again=1: counted now, else within the last minutes; format=json:
    the same as a file."""
    name = request.GET.get("collection", "").replace("\x00", "")
    filters = [
        replace(period(), choices=[("" if age == DEFAULT_SINCE else age, words) for age, words in AGES]),
        Filter("collection", gettext("Collection"), collection_titles(request).items(), free=True),
    ]
    context = {"collection": name, "limit": LOOKED_AT, "list": list_page(request, ListKind("", ""), None, filters)}
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


@router.get("/evidence", operation_id="evidence", response=EvidenceOut)
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
