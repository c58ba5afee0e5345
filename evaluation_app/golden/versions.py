"""The versions of a golden set, and what differs between two of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db import connection, transaction

from collections_app.access.context import system_access
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.documents.revisions.differences import Part, mark_words
from evaluation_app.golden.questions import Golden
from evaluation_app.models import GoldenQuestion, GoldenSet, GoldenSetVersion
from ragd.types import canonical_json

# xmin changes with every write of a row; who may not see a question has a state of their own
READ_STATE = """
SELECT md5(coalesce(string_agg(id || ' ' || xmin::text, ',' ORDER BY position, id), '')) FROM golden_questions
WHERE golden_set_id = %s AND NOT suggested
"""
DIGESTS_KEPT = 200  # of sets, in each process
_DIGESTS: dict[int, tuple[str, str]] = {}  # set -> (the state of its rows, their digest)
ALIKE = 0.5  # share of words from which a question that went and one that came are one that was reworded
PAIRS_MAX = 40_000
Kind = Literal["added", "removed", "changed"]


def digest_of(questions: Sequence[Golden]) -> str:
    """SHA-256 (hex) of the questions in order: what decides a figure decides the digest."""
    selected = [item.deciding() for item in questions]
    return hashlib.sha256(canonical_json(selected).encode()).hexdigest()


def current_digest(golden_set: GoldenSet) -> str:
    """The digest of what a run would ask now. Computed anew only when a row of them was written since."""
    with connection.cursor() as cursor:
        cursor.execute(READ_STATE, [golden_set.pk])
        (state,) = cursor.fetchone()
    known = _DIGESTS.get(golden_set.pk)
    if known is None or known[0] != state:
        known = state, digest_of([golden for _, golden in asked_questions(golden_set)])
        if len(_DIGESTS) >= DIGESTS_KEPT:
            _DIGESTS.clear()
        _DIGESTS[golden_set.pk] = known
    return known[1]


def asked_questions(golden_set: GoldenSet) -> list[tuple[GoldenQuestion, Golden]]:
    """Those that a run asks, by place: suggestions that nobody has accepted are left out."""
    rows = golden_set.questions.filter(suggested=False).order_by("position", "id")
    return [(row, Golden.of(row)) for row in rows]


@transaction.atomic
def keep_version(golden_set: GoldenSet, *, reason: str = "", actor: services.Actor = None) -> GoldenSetVersion:
    """The version of what the set holds now: a new one when that differs from the last, else the last.

    The set's `version` and `digest` follow, on the given object too. A set that had none begins at its own number.
    """
    with system_access():  # a version is of all questions, also of those that who asks may not see
        return _keep(golden_set, reason, actor)


def _keep(golden_set: GoldenSet, reason: str, actor: services.Actor) -> GoldenSetVersion:
    locked = GoldenSet.objects.select_for_update().get(pk=golden_set.pk)
    questions = [golden for _, golden in asked_questions(locked)]
    digest = digest_of(questions)
    last = locked.versions.order_by("-version").first()
    if last is not None and last.digest == digest:
        stored = last
    else:
        stored = GoldenSetVersion.objects.create(
            golden_set=locked,
            version=locked.version if last is None else max(locked.version, last.version + 1),
            digest=digest,
            questions=[golden.as_dict() for golden in questions],
            reason=reason,
            made_by=name_actor(actor),
        )
    if (locked.version, locked.digest) != (stored.version, stored.digest):
        locked.version, locked.digest = stored.version, stored.digest
        locked.save(update_fields=["version", "digest", "updated_at"])
    golden_set.version, golden_set.digest = locked.version, locked.digest
    return stored


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field that differs, as texts. parts: the words of both in order, as marked pieces."""

    name: str
    before: str
    after: str

    @property
    def parts(self) -> list[Part]:
        return mark_words(self.before, self.after)


@dataclass(frozen=True, slots=True)
class QuestionDifference:
    """One question that differs. fields: [] where it came or went. place: from 1, in the version that has it."""

    kind: Kind
    place: int
    golden: Golden
    fields: Sequence[FieldDifference] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """changes: by place. moved: questions that stand elsewhere among those that both have. same: those untouched."""

    changes: Sequence[QuestionDifference]
    same: int
    moved: int

    @property
    def counts(self) -> dict[str, int]:
        result = dict.fromkeys(("added", "removed", "changed"), 0)
        for change in self.changes:
            result[change.kind] += 1
        return result | {"same": self.same, "moved": self.moved}

    @property
    def is_same(self) -> bool:
        return not self.changes and not self.moved


def compare_versions(before: Sequence[Golden], after: Sequence[Golden]) -> VersionDifference:
    """Questions are one by their words; what is left over is one when it shares at least half of its words."""
    old = {golden.question: index for index, golden in enumerate(before)}
    new = {golden.question: index for index, golden in enumerate(after)}
    pairs = {old[text]: new[text] for text in old if text in new}
    pairs |= _reworded(
        [index for text, index in old.items() if text not in new],
        [index for text, index in new.items() if text not in old],
        before,
        after,
    )
    changes = [QuestionDifference("removed", index + 1, before[index]) for index in old.values() if index not in pairs]
    taken = set(pairs.values())
    changes += [QuestionDifference("added", index + 1, after[index]) for index in new.values() if index not in taken]
    same = 0
    for first, second in pairs.items():
        if fields := _fields(before[first].as_dict(), after[second].as_dict()):
            changes.append(QuestionDifference("changed", second + 1, after[second], fields))
        else:
            same += 1
    return VersionDifference(sorted(changes, key=lambda change: (change.place, change.kind)), same, _moved(pairs))


def _reworded(gone: list[int], come: list[int], before: Sequence[Golden], after: Sequence[Golden]) -> dict[int, int]:
    """Of questions that went the one that came with most words in common, each once. {} for very many of both."""
    if len(gone) * len(come) > PAIRS_MAX:
        return {}
    words_before = {position: _words(before[position].question) for position in gone}
    words_after = {position: _words(after[position].question) for position in come}
    alike = [(_share(words_before[one], words_after[two]), one, two) for one in gone for two in come]
    result: dict[int, int] = {}
    taken: set[int] = set()
    for share, one, two in sorted(alike, key=lambda item: (-item[0], item[1], item[2])):
        if share >= ALIKE and one not in result and two not in taken:
            result[one] = two
            taken.add(two)
    return result


def _words(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / ((len(one) + len(other)) or 1)


def _moved(pairs: Mapping[int, int]) -> int:
    """How many of the questions that both have stand at another place among themselves."""
    order = [second for _, second in sorted(pairs.items())]
    return sum(here != there for here, there in zip(order, sorted(order), strict=True))


def _fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[FieldDifference]:
    return [
        FieldDifference(name, format_value(before[name]), format_value(after[name]))
        for name in before
        if before[name] != after[name]
    ]


def format_value(value: Any) -> str:
    """A field's value as a text for people: lists by line, thresholds as "recall@10 = 1"."""
    if isinstance(value, Mapping):
        return "\n".join(f"{name} = {least:g}" for name, least in value.items())
    if isinstance(value, (list, tuple)):
        return "\n".join(str(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
