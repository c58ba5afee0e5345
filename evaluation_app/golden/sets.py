"""Golden sets: made, renamed, described, deleted; their versions, and what differs between two.

How runs of a set are judged better or worse: its primary measure, its guardrails, the smallest relevant effect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Q, QuerySet

from collections_app.access.context import system_access
from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.collections.services import get_collection
from collections_app.documents.revisions.differences import Part, mark_words
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError, UnknownError
from evaluation_app.golden.questions import Golden, clean_description, clean_name
from evaluation_app.judges.rubrics import clean_rubrics
from evaluation_app.measures.catalogue import CUTS, MEASURES, find, is_share
from evaluation_app.models import EvaluationRun, GoldenQuestion, GoldenSet, GoldenSetVersion
from ragd.errors import InvalidInput
from ragd.identity import can_be_stored
from ragd.types import canonical_json

if TYPE_CHECKING:
    from evaluation_app.models import EvaluationRun, GoldenSet

# xmin changes with every write of a row
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
    with system_access():
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
    alike = [(_shared_words(words_before[one], words_after[two]), one, two) for one in gone for two in come]
    result: dict[int, int] = {}
    taken: set[int] = set()
    for share, one, two in sorted(alike, key=lambda item: (-item[0], item[1], item[2])):
        if share >= ALIKE and one not in result and two not in taken:
            result[one] = two
            taken.add(two)
    return result


def _words(text: str) -> frozenset[str]:
    return frozenset(text.lower().split())


def _shared_words(one: frozenset[str], other: frozenset[str]) -> float:
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


CORRECTNESS, HIT = "correctness", "hit"
RELEVANT_EFFECT = 0.02
GUARDRAILS: Mapping[str, float] = {"recall": 0.05, "right_outcome": 0.05}  # of a set that states none
GUARDRAILS_MAX = 20
CRITERIA = ("primary_measure", "guardrails", "relevant_effect")


@dataclass(frozen=True, slots=True)
class Criteria:
    """primary_measure: "" for `CORRECTNESS` where all runs scored it, else `HIT` at the cut. guardrails: measure ->
    the largest drop of its mean that is allowed, {} for `GUARDRAILS`. relevant_effect: a difference of the primary
    measure's mean that is smaller is none. A measure with a cut may leave the cut out: then it is that of the runs."""

    primary_measure: str = ""
    guardrails: Mapping[str, float] = field(default_factory=dict)
    relevant_effect: float = RELEVANT_EFFECT

    @classmethod
    def of(cls, golden_set: GoldenSet | None) -> Criteria:
        """The defaults for a set that is gone."""
        if golden_set is None:
            return cls()
        return cls(golden_set.primary_measure, golden_set.guardrails, golden_set.relevant_effect)

    def primary_for(self, runs: Sequence[EvaluationRun]) -> str:
        """The primary measure by the name under which all of these runs scored it, "" where one of them did not."""
        if self.primary_measure:
            return _scored_by_all(self.primary_measure, runs)
        return _scored_by_all(CORRECTNESS, runs) or _scored_by_all(HIT, runs)

    def guardrails_for(self, runs: Sequence[EvaluationRun]) -> dict[str, float]:
        """The guardrails by the names under which all of these runs scored them; the primary measure is none."""
        primary = self.primary_for(runs)
        named = {_scored_by_all(name, runs): drop for name, drop in (self.guardrails or GUARDRAILS).items()}
        return {name: drop for name, drop in named.items() if name not in ("", primary)}


def clean_criteria(values: Mapping[str, Any]) -> dict[str, Any]:
    """The stated ones of the three fields, checked. Raises InvalidInput that names the field.

    guardrails: measure -> a finite number from 0 to 1. relevant_effect: the same.
    """
    cleaned: dict[str, Any] = {}
    if "primary_measure" in values:
        name = values["primary_measure"]
        cleaned["primary_measure"] = _named(name, "primary_measure") if name else ""
    if "guardrails" in values:
        cleaned["guardrails"] = _clean_guardrails(values["guardrails"])
    if "relevant_effect" in values:
        cleaned["relevant_effect"] = _share(values["relevant_effect"], "relevant_effect", "relevant_effect")
    return cleaned


def _clean_guardrails(values: Any) -> dict[str, float]:
    if not isinstance(values, Mapping) or len(values) > GUARDRAILS_MAX:
        raise InvalidInput(
            f'guardrails must be an object of at most {GUARDRAILS_MAX} measures such as {{"recall": 0.05}}, the '
            f"largest drop that is allowed of each, not {str(values)[:80]!r}",
            field="guardrails",
        )
    drops = {_named(name, "guardrails"): _share(drop, "guardrails", str(name)) for name, drop in values.items()}
    return dict(sorted(drops.items()))


def _named(name: Any, field_name: str) -> str:
    if name in CUTS:
        return str(name)
    try:
        return find(str(name)).name
    except InvalidInput:
        known = ", ".join(MEASURES)
        raise InvalidInput(
            f"{field_name}: there is no measure {name!r}; known are {known}, those of a ranking also with a cut such "
            "as recall@10",
            field=field_name,
        ) from None


def _share(value: Any, field_name: str, what: str) -> float:
    if not is_share(value):
        raise InvalidInput(f"{what} must be a number from 0 to 1, not {value!r}", field=field_name)
    return float(value)


def _scored_by_all(name: str, runs: Sequence[EvaluationRun]) -> str:
    names = {f"{name}@{run.settings.get('cut', '')}" if name in CUTS else name for run in runs}
    if len(names) != 1:
        return ""
    (known,) = names
    scored = (run.summary.get("measures", {}).get(known, {}).get("scored", 0) for run in runs)
    return known if all(scored) else ""


NAMED_CHARS = 180


def listed_sets(scope: CollectionScope = EVERYTHING) -> QuerySet[GoldenSet]:
    """By name, with questions_total and suggested_total. scope: what a key may see."""
    rows = GoldenSet.objects.annotate(
        questions_total=Count("questions", filter=Q(questions__suggested=False)),
        suggested_total=Count("questions", filter=Q(questions__suggested=True)),
    ).order_by("name", "collection_name")
    return rows if scope.names is None else rows.filter(collection_name__in=scope.names)


def set_named(sets: Sequence[GoldenSet], name: str) -> GoldenSet:
    """The one of these sets that an address names. Raises InvalidInput (field "set") that lists them."""
    named = next((golden_set for golden_set in sets if golden_set.name == name), None)
    if named is None:
        known = ", ".join(golden_set.name for golden_set in sets) or "none"
        raise InvalidInput(f"There is no test set {name!r} here. Known: {known}.", field="set")
    return named


def find_set(name: str, scope: CollectionScope = EVERYTHING) -> GoldenSet:
    """The set of that name whose collection is in the scope; where several collections have one, `COLLECTION:NAME`.

    Raises ServiceError 404, and 409 that tells how to name each of several.
    """
    collection_name, _, own_name = name.partition(":")
    records: list[GoldenSet] = []
    if can_be_stored(name):
        named = Q(name=name) | Q(collection_name=collection_name, name=own_name)
        records = list(listed_sets(scope).filter(named))
    records = [record for record in records if record.name == name] or records
    if len(records) > 1:
        choices = ", ".join(f"{record.collection_name}:{record.name}" for record in records)
        raise ServiceError(
            f"several collections have a golden set {name!r}: say which one: {choices}",
            type="ambiguous_golden_set",
            field="golden_set",
        )
    if not records:
        raise UnknownError(
            "golden_set",
            f"there is no golden set {name!r} that you may see; GET /v1/golden-sets lists those that there are",
            field="golden_set",
        )
    return records[0]


def create_set(name: str, collection_name: str, *, description: str = "", actor: services.Actor = None) -> GoldenSet:
    """An empty set over a live collection, at version 1. Raises ServiceError 409 for a name that is taken there."""
    cleaned, message = clean_name(name), clean_description(description)
    collection = get_collection(collection_name)
    try:
        with transaction.atomic():
            made = GoldenSet.objects.create(name=cleaned, description=message, collection_name=collection.name)
            keep_version(made, reason="made", actor=actor)
            services.record(actor, [made], services.ADDITION, f"made golden set {cleaned} over {collection.name}")
    except IntegrityError:
        raise _name_taken(cleaned, collection.name) from None
    return made


def update_set(
    golden_set: GoldenSet,
    *,
    name: str | None = None,
    description: str | None = None,
    criteria: Mapping[str, Any] | None = None,
    rubrics: Sequence[Mapping[str, Any]] | None = None,
    actor: services.Actor = None,
) -> GoldenSet:
    """Rename, describe, state `criteria` (see `clean_criteria`) or all `rubrics` (see `clean_rubrics`); None leaves a
    value. None makes a new version.

    Runs that were made keep the name and the rubrics that the set had then. Raises ServiceError 409 for a taken name,
    InvalidInput.
    """
    require_in(Permission.EVALUATE, golden_set.collection_name)
    cleaned_criteria = clean_criteria(criteria or {})
    changes = {field: value for field, value in cleaned_criteria.items() if value != getattr(golden_set, field)}
    if rubrics is not None and (cleaned_rubrics := clean_rubrics(rubrics)) != golden_set.rubrics:
        changes["rubrics"] = cleaned_rubrics
    if name is not None and (cleaned := clean_name(name)) != golden_set.name:
        changes["name"] = cleaned
    if description is not None and (message := clean_description(description)) != golden_set.description:
        changes["description"] = message
    if not changes:
        return golden_set
    before = golden_set.name
    previous = {field: getattr(golden_set, field) for field in changes}
    try:
        with transaction.atomic():
            locked = hold_set(golden_set)
            for field, value in changes.items():
                setattr(locked, field, value)
                setattr(golden_set, field, value)
            locked.save(update_fields=[*changes, "updated_at"])
            if "name" in changes:
                summary = f"renamed golden set {before} to {locked.name}"
            elif "rubrics" in changes:
                names = ", ".join(rubric["name"] for rubric in locked.rubrics) or "none"
                summary = f"changed the rubrics of {locked.name}: {names}"
            elif changes.keys() & cleaned_criteria.keys():
                summary = f"changed by what runs of {locked.name} are compared"
            else:
                summary = f"described {locked.name}"
            services.record(actor, [locked], services.CHANGE, summary, before=previous, after=changes)
    except IntegrityError:
        golden_set.name = before
        raise _name_taken(changes["name"], golden_set.collection_name) from None
    return golden_set


def delete_set(golden_set: GoldenSet, *, actor: services.Actor = None) -> dict[str, int]:
    """With its questions and versions; how many of each went. Evaluation runs stay, under the set's name."""
    require_in(Permission.EVALUATE, golden_set.collection_name)
    with system_access(), transaction.atomic():  # also what who asks may not see of it
        locked = hold_set(golden_set)
        counts = what_goes(locked)
        services.record(
            actor,
            [locked],
            services.DELETION,
            f"deleted golden set {locked.name} with {counted(counts['questions'], 'question')}",
            before={"version": locked.version, "digest": locked.digest} | counts,
        )
        locked.delete()
    return counts


def what_goes(golden_set: GoldenSet) -> dict[str, int]:
    """What a deletion takes along (questions, versions) and what it leaves without its set (runs)."""
    return {
        "questions": golden_set.questions.count(),
        "versions": golden_set.versions.count(),
        "runs": EvaluationRun.objects.filter(golden_set=golden_set).count(),
    }


def free_name(name: str, collection_name: str) -> str:
    """The name if no set of the collection has it, else with the collection's name behind it, and a number at need."""
    requested = f"{name} ({collection_name})"[:NAMED_CHARS]
    number, result = 1, name
    while GoldenSet.objects.filter(collection_name=collection_name, name=result).exists():
        result = requested if number == 1 else f"{requested} {number}"
        number += 1
    return result


def hold_set(golden_set: GoldenSet) -> GoldenSet:
    """The set as it is now, held until the transaction ends: changes of one set take turns. ServiceError 404."""
    locked = GoldenSet.objects.select_for_update().filter(pk=golden_set.pk).first()
    if locked is None:
        raise UnknownError("golden_set", f"the golden set {golden_set.name!r} was deleted", field="golden_set")
    return locked


def _name_taken(name: str, collection_name: str) -> ServiceError:
    return ServiceError(
        f"there is a golden set {name!r} already in the collection {collection_name!r}; choose another name",
        type="name_taken",
        field="name",
    )
