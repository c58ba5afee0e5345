"""Golden questions: added, changed, moved, deleted; suggestions accepted or thrown away; older versions brought back.

Each change is one transaction that holds the set, writes the audit log and keeps the version that came of it.

Whoever changes a set may be kept from some of its questions. These stay, and count where places and words are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from collections_app.access.context import system_access
from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.errors import ServiceError, UnknownError
from evaluation_app.golden.questions import FIELDS, Golden, choose_marks, clean_golden, find_drifts, read_marks
from evaluation_app.golden.sets import hold_set, keep_version
from evaluation_app.models import GoldenQuestion, GoldenSet, GoldenSetVersion

TOLD_CHARS = 80
WRITTEN = (*FIELDS, "position", "suggested", "source_run", "chunk_marks", "updated_at")
WRITTEN_AT_ONCE = 500


@dataclass(slots=True)
class Change:
    """What one transaction does to a set. summary: for the audit log and the reason of the version; "" for nothing."""

    golden_set: GoldenSet
    actor: services.Actor
    summary: str = ""


@contextmanager
def changing(golden_set: GoldenSet, actor: services.Actor) -> Iterator[Change]:
    """Hold the set; afterwards keep its version and note what was told. The given object follows the version."""
    require_in(Permission.EVALUATE, golden_set.collection_name)
    with transaction.atomic():
        change = Change(hold_set(golden_set), actor)
        before = {"version": change.golden_set.version, "digest": change.golden_set.digest}
        yield change
        if change.summary:
            golden_set_version = keep_version(change.golden_set, reason=change.summary, actor=actor)
            services.record(
                actor,
                [change.golden_set],
                services.CHANGE,
                f"{change.summary}, in {change.golden_set.name} version {golden_set_version.version}",
                before=before,
                after={"version": golden_set_version.version, "digest": golden_set_version.digest},
            )
            GoldenSet.objects.filter(pk=golden_set.pk).update(updated_at=timezone.now())
    golden_set.version, golden_set.digest = change.golden_set.version, change.golden_set.digest


def add_question(
    golden_set: GoldenSet,
    explicit: Mapping[str, Any],
    *,
    source_run: UUID | None = None,
    suggested: bool = False,
    actor: services.Actor = None,
) -> GoldenQuestion:
    """One more question, behind the others. A suggestion of the same words becomes it.

    stated: fields of `Golden`. Raises InvalidInput, and ServiceError 409 when the set has the question already.
    """
    golden = clean_golden(explicit)
    with changing(golden_set, actor) as change:
        row = golden_set.questions.filter(question=golden.question).first()
        if row is not None and (not row.suggested or suggested):
            raise question_taken(golden.question)
        row = row or GoldenQuestion(golden_set=change.golden_set)
        row.position, row.suggested, row.source_run = next_position(golden_set), suggested, source_run
        write_golden(row, golden)
        change.summary = f"{'suggested' if suggested else 'added'} “{_short(golden.question)}”"
    return row


def change_question(
    question: GoldenQuestion,
    explicit: Mapping[str, Any],
    *,
    position: int | None = None,
    seen: datetime | None = None,
    actor: services.Actor = None,
) -> GoldenQuestion:
    """Change the stated fields and, with `position` (from 0), its place among the accepted questions.

    seen: `updated_at` as it was when the change was thought of; ServiceError 409 when somebody changed it since. A
    change of the question itself to one that the set has is 409 too.
    """
    with changing(question.golden_set, actor) as change:
        row = _hold_question(question)
        if seen is not None and row.updated_at != seen:
            raise ServiceError(
                "somebody changed this question since you opened it; look at it again and repeat your change",
                type="changed_meanwhile",
            )
        before = Golden.of(row)
        golden = clean_golden(explicit, before)
        moved = position is not None and not row.suggested and _move(row, position)
        if golden != before:
            write_golden(row, golden)
        if moved or golden != before:
            change.summary = f"{'changed' if golden != before else 'moved'} “{_short(golden.question)}”"
    question.refresh_from_db()
    return question


def move_question(question: GoldenQuestion, by: int, *, actor: services.Actor = None) -> None:
    """Move an accepted question up (by below 0) or down among those that whoever asks sees, at most to an end."""
    require_in(Permission.EVALUATE, question.golden_set.collection_name)
    ids = list(question.golden_set.questions.filter(suggested=False).values_list("pk", flat=True))
    if question.pk in ids:
        place = min(max(ids.index(question.pk) + by, 0), len(ids) - 1)
        position = _accepted_ids(question.golden_set_id).index(ids[place])
        change_question(question, {}, position=position, actor=actor)


def delete_questions(golden_set: GoldenSet, ids: Sequence[int], *, actor: services.Actor = None) -> int:
    """How many went. Ids that the set does not have are passed over."""
    with changing(golden_set, actor) as change:
        rows = list(golden_set.questions.filter(pk__in=ids))
        _delete(rows)
        _close_gaps(golden_set)
        change.summary = _tell("deleted", rows)
    return len(rows)


def accept_suggestions(golden_set: GoldenSet, ids: Sequence[int], *, actor: services.Actor = None) -> int:
    """Suggestions become questions, behind the others, in their order; how many. From then on runs ask them."""
    with changing(golden_set, actor) as change:
        rows = list(golden_set.questions.filter(pk__in=ids, suggested=True).order_by("position", "id"))
        for index, row in enumerate(rows, next_position(golden_set)):
            row.position, row.suggested, row.updated_at = index, False, timezone.now()
        fields = ["position", "suggested", "updated_at"]
        GoldenQuestion.objects.bulk_update(rows, fields, batch_size=WRITTEN_AT_ONCE)
        change.summary = _tell("accepted", rows)
    return len(rows)


def discard_suggestions(golden_set: GoldenSet, ids: Sequence[int], *, actor: services.Actor = None) -> int:
    """Throw suggestions away; how many. Accepted questions are left alone."""
    with changing(golden_set, actor) as change:
        rows = list(golden_set.questions.filter(pk__in=ids, suggested=True))
        _delete(rows)
        change.summary = _tell("rejected", rows)
    return len(rows)


def follow_moved_chunks(golden_set: GoldenSet, *, actor: services.Actor = None) -> int:
    """Let questions expect the chunks that have the texts that were chosen, where others stand under their numbers.

    How many expectations changed. A text that no chunk of its document has any more is left as it is: somebody has to
    choose another.
    """
    with changing(golden_set, actor) as change:
        rows = list(golden_set.questions.exclude(chunk_marks={}).order_by("position", "id"))
        all_drifts = find_drifts(golden_set.collection_name, [row.chunk_marks for row in rows])
        followed, written = 0, []
        for row, drifts in zip(rows, all_drifts, strict=True):
            moved = {key: drift.now for key, drift in drifts.items() if drift.now}
            if moved:
                chunks = tuple(dict.fromkeys(moved.get(key, key) for key in row.expected_chunks))
                row.chunk_marks = {moved.get(key, key): mark for key, mark in row.chunk_marks.items()}
                written.append((row, replace(Golden.of(row), expected_chunks=chunks)))
                followed += len(moved)
        write_goldens(golden_set, written)
        change.summary = f"followed {followed} chunks that moved" if followed else ""
    return followed


def keep_present_chunks(question: GoldenQuestion, *, actor: services.Actor = None) -> None:
    """Take the texts that stand under its expected chunks now for those that are meant."""
    with changing(question.golden_set, actor) as change:
        row = _hold_question(question)
        row.chunk_marks = read_marks(row.golden_set.collection_name, row.expected_chunks)
        row.save(update_fields=["chunk_marks", "updated_at"])
        change.summary = f"accepted the current chunks of “{_short(row.question)}”"


def bring_back(golden_set: GoldenSet, version: int, *, actor: services.Actor = None) -> int:
    """Make the set hold what it held at a version, as a new version, whose number is given; suggestions stay, and what
    whoever asks may not see. ServiceError 404.

    A question that is there in both keeps its row, and so its earlier results.
    """
    with changing(golden_set, actor) as change:
        golden_set_version = find_version(golden_set, version)
        replace_questions(golden_set, [Golden.from_dict(item) for item in golden_set_version.questions])
        change.summary = f"restored version {version}"
    return golden_set.version


def replace_questions(golden_set: GoldenSet, questions: Sequence[Golden]) -> None:
    """Let the set's accepted questions be these, in this order, around those that whoever asks may not see. In the
    caller's transaction."""
    rows = {row.question: row for row in golden_set.questions.all()}
    with system_access():
        places = dict(golden_set.questions.filter(suggested=False).values_list("pk", "position"))
    hidden = {places[pk] for pk in places.keys() - {row.pk for row in rows.values()}}
    written = []
    for index, golden in zip((place for place in count() if place not in hidden), questions, strict=False):
        row = rows.get(golden.question) or GoldenQuestion(golden_set=golden_set)
        same = row.pk is not None and Golden.of(row) == golden and (row.position, row.suggested) == (index, False)
        if not same:
            row.position, row.suggested = index, False
            written.append((row, golden))
    write_goldens(golden_set, written)
    stored = {golden.question for golden in questions}
    _delete([row for text, row in rows.items() if text not in stored and not row.suggested])
    if hidden:
        _close_gaps(golden_set)


def write_golden(row: GoldenQuestion, golden: Golden) -> None:
    """The fields of the question into its row, with marks of the chunks that are expected anew, and save it."""
    write_goldens(row.golden_set, [(row, golden)])


def write_goldens(golden_set: GoldenSet, pairs: Sequence[tuple[GoldenQuestion, Golden]]) -> None:
    """The same of many rows of one set, new and stored ones, in a number of queries that does not grow with them.

    Raises ServiceError 409 where the set has another question of the words, be it hidden from whoever asks.
    """
    with system_access():
        words = golden_set.questions.filter(question__in=[golden.question for _, golden in pairs])
        holders = dict(words.values_list("question", "pk"))
    for row, golden in pairs:
        if holders.get(golden.question, row.pk) != row.pk:
            raise question_taken(golden.question)
    new = {key for row, golden in pairs for key in golden.expected_chunks if key not in row.chunk_marks}
    result = read_marks(golden_set.collection_name, new) if new else {}
    now = timezone.now()
    for row, golden in pairs:
        for name, value in golden.as_dict().items():
            setattr(row, name, value)
        row.chunk_marks = choose_marks(golden.expected_chunks, row.chunk_marks, result)
        row.updated_at = now
    GoldenQuestion.objects.bulk_create([row for row, _ in pairs if row.pk is None], batch_size=WRITTEN_AT_ONCE)
    stored = [row for row, _ in pairs if row.pk is not None]
    GoldenQuestion.objects.bulk_update(stored, WRITTEN, batch_size=WRITTEN_AT_ONCE)


def next_position(golden_set: GoldenSet) -> int:
    """Behind the last accepted question."""
    with system_access():
        last = golden_set.questions.filter(suggested=False).aggregate(last=Max("position"))["last"]
    return 0 if last is None else int(last) + 1


def find_version(golden_set: GoldenSet, version: int) -> GoldenSetVersion:
    """Raises ServiceError 404."""
    record = golden_set.versions.filter(version=version).first() if 0 <= version < 2**31 else None
    if record is None:
        raise UnknownError(
            "version",
            f"the golden set {golden_set.name!r} has no version {version}; its newest is {golden_set.version}",
            field="version",
        )
    return record


def find_question(golden_set: GoldenSet, pk: int) -> GoldenQuestion:
    """Raises ServiceError 404."""
    record = golden_set.questions.filter(pk=pk).select_related("golden_set").first() if 0 <= pk < 2**63 else None
    if record is None:
        raise UnknownError("question", f"the golden set {golden_set.name!r} has no question {pk}")
    return record


def question_taken(text: str) -> ServiceError:
    return ServiceError(
        f"the set has the question “{_short(text)}” already; change that one, or word this one differently",
        type="question_taken",
        field="question",
    )


def _hold_question(question: GoldenQuestion) -> GoldenQuestion:
    record = GoldenQuestion.objects.select_for_update().filter(pk=question.pk).first()
    if record is None:
        raise UnknownError("question", "this question was deleted meanwhile")
    return record


def _move(row: GoldenQuestion, position: int) -> bool:
    """Give the row this place and the others those around it; whether anything moved."""
    ids = _accepted_ids(row.golden_set_id)
    requested = [pk for pk in ids if pk != row.pk]
    requested.insert(min(max(position, 0), len(requested)), row.pk)
    if requested == ids:
        return False
    _place(requested)
    row.refresh_from_db()
    return True


def _close_gaps(golden_set: GoldenSet) -> None:
    _place(_accepted_ids(golden_set.pk))


def _accepted_ids(set_id: int) -> list[int]:
    with system_access():
        rows = GoldenQuestion.objects.filter(golden_set=set_id, suggested=False)
        return list(rows.order_by("position", "id").values_list("pk", flat=True))


def _place(ids: Iterable[int]) -> None:
    positions = {pk: index for index, pk in enumerate(ids)}
    with system_access():
        rows = [row for row in GoldenQuestion.objects.filter(pk__in=positions) if row.position != positions[row.pk]]
        for row in rows:
            row.position = positions[row.pk]
        GoldenQuestion.objects.bulk_update(rows, ["position"], batch_size=500)


def _delete(rows: Iterable[GoldenQuestion]) -> None:
    with system_access():  # results that whoever asks may not see point at them too
        GoldenQuestion.objects.filter(pk__in=[row.pk for row in rows]).delete()


def _tell(did: str, rows: Sequence[GoldenQuestion]) -> str:
    """ "" for no rows, so that nothing is noted."""
    if len(rows) == 1:
        return f"{did} “{_short(rows[0].question)}”"
    return f"{did} {len(rows)} questions" if rows else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TOLD_CHARS else f"{line[: TOLD_CHARS - 1]}…"
