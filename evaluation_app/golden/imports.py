"""Import: what a file would add, change, leave and remove, told before; then carried out whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from collections_app.audit import services
from collections_app.errors import ServiceError
from evaluation_app.golden.edits import changing, next_position, replace_questions, write_goldens
from evaluation_app.golden.expectations import read_status
from evaluation_app.golden.formats import SUGGESTED, Mapped, Row
from evaluation_app.golden.questions import Golden, clean_golden
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput

Mode = Literal["merge", "replace"]
Status = Literal["added", "changed", "unchanged", "error"]
ERRORS_TOLD = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """One line and what becomes of it. before: the question as the set has it. fields: names of those that differ.
    unknown: documents and chunks that it would expect and that the collection does not have."""

    number: int
    status: Status
    golden: Golden | None = None
    before: Golden | None = None
    suggested: bool = False
    fields: tuple[str, ...] = ()
    error: str = ""
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import would do. rows: in the file's order. removed: questions that go, in replace mode alone.

    stand: the digest of the questions that it was planned over (`GoldenSet.digest`).
    """

    mode: Mode
    rows: Sequence[Planned]
    removed: Sequence[Golden] = field(default_factory=tuple)
    stand: str = ""

    @property
    def counts(self) -> dict[str, int]:
        result = dict.fromkeys(("added", "changed", "unchanged", "error"), 0)
        for row in self.rows:
            result[row.status] += 1
        return result | {"removed": len(self.removed)}

    @property
    def errors(self) -> list[Planned]:
        return [row for row in self.rows if row.status == "error"]

    @property
    def unknown_total(self) -> int:
        """How many lines expect what the collection does not have."""
        return sum(bool(row.unknown) for row in self.rows)

    @property
    def changes_anything(self) -> bool:
        counts = self.counts
        return bool(counts["added"] or counts["changed"] or counts["removed"])


def plan_import(golden_set: GoldenSet, rows: Sequence[Row], mode: Mode = "merge") -> ImportPlan:
    """Writes nothing. A line is the question of the same words; what it does not state of one that is there stays.

    mode "merge": the other questions stay. "replace": the set's accepted questions become those of the file, in its
    order. A question that stands twice in the file is an error of its second line.
    """
    stored = {row.question: row for row in golden_set.questions.order_by("position", "id")}
    planned = _with_unknown(golden_set, list(_plan_rows(rows, stored, mode)))
    named = {row.golden.question for row in planned if row.golden is not None}
    removed: tuple[Golden, ...] = ()
    if mode == "replace":
        removed = tuple(Golden.of(row) for text, row in stored.items() if text not in named and not row.suggested)
    return ImportPlan(mode, planned, removed, golden_set.digest)


def carry_out(
    golden_set: GoldenSet,
    rows: Sequence[Row],
    mode: Mode = "merge",
    *,
    expected: str | None = None,
    actor: services.Actor = None,
) -> ImportPlan:
    """Import all lines, or none: a line with an error refuses the whole with 422.

    expected: `ImportPlan.stand` of the plan that was agreed to; ServiceError 409 when the set has other questions now.
    """
    with changing(golden_set, actor) as change:
        golden_set = change.golden_set
        if expected is not None and expected != golden_set.digest:
            raise ServiceError(
                "the set was changed since this import was looked at; look at it again", type="changed_meanwhile"
            )
        plan = plan_import(golden_set, rows, mode)
        if plan.errors:
            raise InvalidInput(_tell_errors(plan), field="file")
        before = _order_of(golden_set)
        if plan.changes_anything or mode == "replace":
            _write(golden_set, plan)
        counts = plan.counts
        did = ", ".join(f"{counts[name]} {name}" for name in ("added", "changed", "removed") if counts[name])
        if did or _order_of(golden_set) != before:
            change.summary = f"imported {len(rows)} lines: {did or 'another order'}"
    return plan


def tell_import(golden_set: GoldenSet, plan: ImportPlan, columns: Mapped, *, dry_run: bool) -> dict[str, Any]:
    """What an import did or would do, as API and command line answer it; lines that change nothing are left out."""
    return {
        "dry_run": dry_run,
        "counts": plan.counts,
        "columns": columns,
        "lines": [row for row in plan.rows if row.status != "unchanged"],
        "removed": [golden.question for golden in plan.removed],
        "version": golden_set.version,
    }


def _with_unknown(golden_set: GoldenSet, planned: Sequence[Planned]) -> list[Planned]:
    """In three queries."""
    written = [row.golden for row in planned if row.golden is not None and row.status != "unchanged"]
    status = read_status(golden_set.collection_name, written)
    return [
        row
        if row.golden is None or row.status == "unchanged"
        else replace(row, unknown=tuple(item.key for item in status.of(row.golden) if item.state == "gone"))
        for row in planned
    ]


def _plan_rows(rows: Sequence[Row], stored: Mapping[str, GoldenQuestion], mode: Mode) -> Iterator[Planned]:
    seen: dict[str, int] = {}
    for row in rows:
        if row.error:
            yield Planned(row.number, "error", error=row.error)
            continue
        try:
            planned = _plan_row(row, stored)
        except InvalidInput as error:
            yield Planned(row.number, "error", error=error.message)
            continue
        assert planned.golden is not None
        first = seen.setdefault(planned.golden.question, row.number)
        if first != row.number:
            yield Planned(row.number, "error", error=f"line {first} has the same question")
        else:
            yield planned


def _plan_row(row: Row, stored: Mapping[str, GoldenQuestion]) -> Planned:
    explicit: dict[str, Any] = {name: value for name, value in row.stated.items() if name != SUGGESTED}
    message = row.stated.get(SUGGESTED)
    new = clean_golden(explicit)
    known = stored.get(new.question)
    if known is None:
        return Planned(row.number, "added", new, suggested=bool(message))
    before = Golden.of(known)
    golden = clean_golden(explicit, before)
    suggested = known.suggested if message is None else bool(message)
    fields = [name for name, value in golden.as_dict().items() if value != before.as_dict()[name]]
    if suggested != known.suggested:
        fields.append(SUGGESTED)
    status: Status = "changed" if fields else "unchanged"
    return Planned(row.number, status, golden, before, suggested, tuple(fields))


def _write(golden_set: GoldenSet, plan: ImportPlan) -> None:
    if plan.mode == "replace":
        replace_questions(golden_set, [row.golden for row in plan.rows if row.golden and not row.suggested])
    stored = {row.question: row for row in golden_set.questions.all()}
    position = next_position(golden_set)
    written = []
    for row in plan.rows:
        if row.golden is None or row.status == "unchanged":
            continue
        question = stored.get(row.golden.question) or GoldenQuestion(golden_set=golden_set)
        if question.pk is None or (question.suggested and not row.suggested):
            question.position, position = position, position + 1
        question.suggested = row.suggested
        written.append((question, row.golden))
    write_goldens(golden_set, written)


def _order_of(golden_set: GoldenSet) -> list[int]:
    rows = golden_set.questions.filter(suggested=False).order_by("position", "id")
    return list(rows.values_list("pk", flat=True))


def _tell_errors(plan: ImportPlan) -> str:
    summary = "; ".join(f"line {row.number}: {row.error}" for row in plan.errors[:ERRORS_TOLD])
    more = len(plan.errors) - ERRORS_TOLD
    rest = f"; and {more} more" if more > 0 else ""
    return f"nothing was imported, because {len(plan.errors)} of {len(plan.rows)} lines are wrong: {summary}{rest}"
