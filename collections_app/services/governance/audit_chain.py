"""Whether the audit log is whole: every row unchanged, none missing, none at another place, none cut off at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collections_app.domain.audit_digests import FIRST, WHAT, WHO, core_digest, group_digest, link_hash
from collections_app.models import AuditEvent, AuditHead, AuditLink

ERASE_ACTIONS = "erase."
READ_AT_ONCE = 1000
Ranges = list[list[int]]


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the end of the chain was at some time; it is kept elsewhere, signed."""

    position: int
    hash: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """problem: "" for a whole log, else what the first bad row shows: changed, missing, reordered, truncated, unlinked,
    erased (without an erasure that names it). event, position: of that row, None where there is none. checked: rows
    that were in order before it."""

    checked: int
    problem: str = ""
    position: int | None = None
    event: int | None = None
    details: str = ""
    head: Anchor = Anchor(0, FIRST)

    @property
    def is_whole(self) -> bool:
        return not self.problem

    def as_dict(self) -> dict[str, Any]:
        return {
            "whole": self.is_whole,
            "checked": self.checked,
            "problem": self.problem,
            "position": self.position,
            "event": self.event,
            "details": self.details,
            "head": {"position": self.head.position, "hash": self.head.hash},
        }


def read_head() -> Anchor:
    """The end of the chain; position 0 while it is empty."""
    row = AuditHead.objects.first()
    return Anchor(row.position, row.hash) if row else Anchor(0, FIRST)


def verify_chain(anchor: Anchor | None = None) -> Verdict:
    """Read the whole log in its order. anchor: an earlier end, which must still be there."""
    head = read_head()
    covered = _erased_rows()
    position, previous, seen = 0, FIRST, {}
    links = AuditLink.objects.filter(position__lte=head.position).order_by("position")
    for link, event in _with_events(links):
        place = link.position or 0
        if place != position + 1:
            why = f"position {position + 1} is missing; the next row has {place}"
            return Verdict(position, "missing", position + 1, None, why, head)
        if event is None:
            return Verdict(position, "missing", place, link.event_id, f"event {link.event_id} is gone", head)
        if problem := _problem_of(event, covered):
            return Verdict(position, problem[0], place, event.pk, problem[1], head)
        if link.prev_hash != previous:
            return Verdict(position, "reordered", place, event.pk, "it does not follow the row before it", head)
        if link.hash != link_hash(place, previous, event.digest):
            return Verdict(position, "changed", place, event.pk, "its hash is not that of its content", head)
        if anchor is not None and place == anchor.position:
            seen[place] = link.hash
        position, previous = place, link.hash
    return _check_end(position, previous, head, anchor, seen)


def _check_end(position: int, previous: str, head: Anchor, anchor: Anchor | None, seen: Mapping[int, str]) -> Verdict:
    if (position, previous) != (head.position, head.hash):
        why = f"the chain ends at {position}; its head says {head.position}"
        return Verdict(position, "truncated", position + 1, None, why, head)
    if anchor is not None and anchor.position > position:
        why = f"the anchor is of position {anchor.position}; the chain ends at {position}"
        return Verdict(position, "truncated", position + 1, None, why, head)
    if anchor is not None and anchor.position and seen.get(anchor.position) != anchor.hash:
        return Verdict(position, "changed", anchor.position, None, "the anchor has another hash of this position", head)
    loose = AuditEvent.objects.filter(link=None).order_by("id").values_list("id", flat=True).first()
    if loose is not None:
        return Verdict(position, "unlinked", None, loose, f"event {loose} is in no chain", head)
    return Verdict(position, head=head)


def _with_events(links: Any) -> Iterator[tuple[AuditLink, AuditEvent | None]]:
    """In batches: each link with its event."""
    batch: list[AuditLink] = []
    for link in links.iterator(chunk_size=READ_AT_ONCE):
        batch.append(link)
        if len(batch) == READ_AT_ONCE:
            yield from _pair(batch)
            batch = []
    yield from _pair(batch)


def _pair(links: list[AuditLink]) -> Iterator[tuple[AuditLink, AuditEvent | None]]:
    events = AuditEvent.objects.in_bulk([link.event_id for link in links])
    for link in links:
        yield link, events.get(link.event_id)


def _problem_of(event: AuditEvent, covered: Mapping[str, Ranges]) -> tuple[str, str] | None:
    """(problem, details) of one row, None when it is as it was written or was erased by an erasure that names it."""
    row = {field.attname: getattr(event, field.attname) for field in AuditEvent._meta.concrete_fields}
    if core_digest(row) != event.digest:
        return "changed", "its columns are not those that were written"
    for part, names in (("who", WHO), ("what", WHAT)):
        salt = row[f"{part}_salt"]
        if salt is None:
            if not is_covered(event.pk, covered[part]):
                return "erased", f"its {part} is gone and no erasure names it"
        elif group_digest(row, names, bytes(salt)) != row[f"{part}_digest"]:
            return "changed", f"its {part} is not what was written"
    return None


def _erased_rows() -> dict[str, Ranges]:
    """part -> ranges of ids, of the erasures that the log itself tells of."""
    result: dict[str, Ranges] = {"who": [], "what": []}
    for after in AuditEvent.objects.filter(action__startswith=ERASE_ACTIONS).values_list("after", flat=True):
        for part, ranges in result.items():
            ranges.extend((after or {}).get(f"erased_{part}", ()))
    return result


def is_covered(pk: int, ranges: Ranges) -> bool:
    return any(first <= pk <= last for first, last in ranges)


def as_ranges(ids: list[int]) -> Ranges:
    """[1, 2, 3, 7] as [[1, 3], [7, 7]]."""
    ranges: Ranges = []
    for pk in sorted(ids):
        if ranges and pk == ranges[-1][1] + 1:
            ranges[-1][1] = pk
        else:
            ranges.append([pk, pk])
    return ranges
