"""The critical path of a trace: of every moment, the one span that the whole was waiting for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from evaluation_app.models import Span

Stretch = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """stretches: span id -> when the trace waited for this span itself and for none of its children, by start.

    gaps: when it waited for nothing that is recorded, such as a place in a queue, by start. Stretches and gaps together
    cover the time from the first start to the last end, and no two of them overlap.
    """

    stretches: Mapping[str, Sequence[Stretch]]
    gaps: Sequence[Stretch]


def find_critical_path(children: Mapping[str | None, Sequence[Span]]) -> CriticalPath:
    """Walk back from the end: what ended last was waited for, before it began the sibling that ended last by then.

    children: span id -> the spans directly below it; None -> those at the top. Work that goes on after its parent
    ended, as behind a broker, counts from its own start. Without spans: nothing. Ties go to what started later.
    """
    tops = list(children.get(None, ()))
    if not tops:
        return CriticalPath({}, [])
    ends = _reach(children)
    stretches: dict[str, list[Stretch]] = defaultdict(list)
    gaps: list[Stretch] = []
    first, last = min(span.started_at for span in tops), max(ends[span.span_id] for span in tops)
    waiting: list[tuple[Span | None, datetime, datetime]] = [(None, first, last)]
    while waiting:
        span, low, high = waiting.pop()
        below = children.get(span.span_id if span else None, ())
        moment = high
        for child in sorted(below, key=lambda item: (ends[item.span_id], item.started_at), reverse=True):
            begin, end = max(child.started_at, low), min(ends[child.span_id], moment)
            if begin >= end:
                continue
            _note(span, (end, moment), stretches, gaps)
            waiting.append((child, begin, end))
            moment = begin
        _note(span, (low, moment), stretches, gaps)
    return CriticalPath({key: sorted(match) for key, match in stretches.items()}, sorted(gaps))


def _reach(children: Mapping[str | None, Sequence[Span]]) -> dict[str, datetime]:
    """When each span and everything below it had ended."""
    ordered: list[Span] = []
    waiting = list(children.get(None, ()))
    while waiting:
        span = waiting.pop()
        ordered.append(span)
        waiting.extend(children.get(span.span_id, ()))
    ends: dict[str, datetime] = {}
    for span in reversed(ordered):
        below = [ends[child.span_id] for child in children.get(span.span_id, ())]
        ends[span.span_id] = max([span.ended_at, *below])
    return ends


def _note(span: Span | None, stretch: Stretch, stretches: dict[str, list[Stretch]], gaps: list[Stretch]) -> None:
    """Count a stretch for its span as far as that was running, and the rest as a gap."""
    begin, end = stretch
    if begin >= end:
        return
    if span is None:
        gaps.append(stretch)
        return
    own_end = min(end, span.ended_at)
    if begin < own_end:
        stretches[span.span_id].append((begin, own_end))
    if max(begin, span.ended_at) < end:
        gaps.append((max(begin, span.ended_at), end))
