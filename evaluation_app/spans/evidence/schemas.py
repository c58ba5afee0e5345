"""The shape of the evidence report: over the API, as the file of the page, and in the shell."""

from __future__ import annotations

from typing import Literal

from ninja import Field, Schema

from collections_app.api.schemas import IsoTime
from evaluation_app.spans.evidence.report import EvidenceReport, FieldEvidence

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
