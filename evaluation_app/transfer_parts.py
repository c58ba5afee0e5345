"""What this app stores of a collection and exports with it: golden sets, the sampling of live traffic, the gate, the
calibrations of judges."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Model, QuerySet
from django.utils import timezone

from collections_app.collections.export_parts import Part, Row, check_time, register
from collections_app.models import Collection
from evaluation_app.curation.gate import check_gate
from evaluation_app.golden.questions import FIELDS, Golden, clean_golden
from evaluation_app.golden.sets import CRITERIA, NAMED_CHARS, clean_criteria, digest_of, free_name
from evaluation_app.judges.rubrics import clean_rubrics
from evaluation_app.models import Experiment, GoldenQuestion, GoldenSet, GoldenSetVersion, PromotionGate, Sampling
from evaluation_app.reviews.calibration import JudgeFit, fit_rows
from evaluation_app.scoring.sampling import JUDGES, check_sampling
from ragd.errors import InvalidInput

SET_LOOKUPS = {
    "set": "golden_set__name",
    "set_description": "golden_set__description",
    "set_version": "golden_set__version",
    "set_bands": "golden_set__bands",
}
SET_SETTINGS = {f"set_{name}": f"golden_set__{name}" for name in (*CRITERIA, "rubrics")}


def _question(collection: Collection, row: Row, sets: dict[str, GoldenSet]) -> GoldenQuestion:
    """In the set of its name; a name that another collection's set has gets the collection's name behind it."""
    name = str(row["set"])
    if name not in sets:
        sets[name] = _make_set(collection, row)
    clean_golden({field: row[field] for field in FIELDS})
    if not isinstance(row["suggested"], bool) or not isinstance(row["chunk_marks"], dict):
        raise InvalidInput(
            "suggested of a golden question is true or false, chunk_marks an object", field="golden_questions"
        )
    return GoldenQuestion(golden_set=sets[name], **_without_set(row))


def _version(collection: Collection, row: Row, sets: dict[str, GoldenSet]) -> GoldenSetVersion:
    """Of the set that the questions were restored into; a set without questions is made."""
    check_time(row["created_at"])
    if digest_of([Golden.from_dict(item) for item in row["questions"]]) != row["digest"]:
        raise InvalidInput(
            f"version {row['version']} of the golden set {row['set']!r} does not have the digest that is said of it",
            field="golden_versions",
        )
    bands, name = _bands(row), str(row["set"])
    settings = clean_criteria({name: row[f"set_{name}"] for name in CRITERIA}) | {
        "bands": bands,
        "rubrics": clean_rubrics(row["set_rubrics"], installed=False),
    }
    if name not in sets:
        sets[name] = _find_set(collection, name, sets) or _make_set(collection, row)
    if row["version"] == sets[name].version:
        GoldenSet.objects.filter(pk=sets[name].pk).update(digest=row["digest"], **settings)
    return GoldenSetVersion(golden_set=sets[name], **_without_set(row))


def _bands(row: Row) -> dict[str, list[float]]:
    """The set's own bands, as they are stored. Raises InvalidInput for what are none."""
    try:
        return {name: [float(good), float(poor)] for name, (good, poor) in row["set_bands"].items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidInput(
            f"the thresholds of the golden set {row['set']!r} are none: {row['set_bands']!r}", field="golden_versions"
        ) from None


def _find_set(collection: Collection, name: str, sets: dict[str, GoldenSet]) -> GoldenSet | None:
    """The set that was restored under this name, or under the one it got where that was taken."""
    claimed = [item.pk for item in sets.values()]
    free = GoldenSet.objects.filter(collection_name=collection.name).exclude(pk__in=claimed).order_by("id")
    renamed = f"{name} ({collection.name})"[:NAMED_CHARS]
    return free.filter(name=name).first() or free.filter(name__startswith=renamed).first()


def _make_set(collection: Collection, row: Row) -> GoldenSet:
    return GoldenSet.objects.create(
        name=free_name(str(row["set"]), collection.name),
        description=str(row["set_description"]),
        version=int(row["set_version"]),
        collection_name=collection.name,
    )


def _without_set(row: Row) -> Row:
    return {field: value for field, value in row.items() if not field.startswith("set")}


def _sampling(collection: Collection, row: Row, _: dict[str, Sampling]) -> Sampling:
    """A chat model costs money where it is asked, so that judge comes disabled."""
    check_sampling(row["rate"], row["per_day"], row["judge"])
    enabled = bool(row["enabled"]) and row["judge"] == JUDGES[0]
    now = timezone.now() if enabled else None
    return Sampling(collection_name=collection.name, **row | {"enabled": enabled}, enabled_at=now, looked_until=now)


def _gate(collection: Collection, row: Row, _: dict[str, PromotionGate]) -> PromotionGate:
    """Over the imported set that has the name, or had it before the import found it taken."""
    check_gate(row["measure"], row["k"], row["margin"])
    name = str(row["set_name"])
    sets = GoldenSet.objects.filter(collection_name=collection.name)
    record = sets.filter(name=name).first() or sets.filter(name__startswith=f"{name} (").order_by("pk").first()
    values = row | {"set_name": record.name if record else name, "golden_set": record}
    return PromotionGate(collection_name=collection.name, **values)


def _judge_fit(collection: Collection, row: Row, _: dict[str, Experiment]) -> Experiment:
    """Of this collection from now on, also where it was made before the collection was imported."""
    check_time(row["created_at"])
    made_at = max(datetime.fromisoformat(row["created_at"]), collection.created_at)
    values = row | {"created_at": made_at, "kind": Experiment.Kind.JUDGE, "collection_name": collection.name}
    if row["decided_at"] is not None:
        check_time(row["decided_at"])
    result = Experiment(**values)
    try:
        fit = JudgeFit.of(result)
        sound = isinstance(fit.number, int) and bool(fit.measures) and row["outcome"] in Experiment.Outcome.values
    except (AttributeError, KeyError, TypeError):
        sound = False
    if not sound:
        raise InvalidInput(f"the calibration of a judge cannot be read: {row['settings']!r}", field="judge_fits")
    return result


class JudgeFits(Part):
    """Experiments of other kinds stay here when their collection goes."""

    def rows(self, collection: Collection) -> QuerySet[Model]:
        rows: QuerySet[Model] = fit_rows(collection)
        return rows

    def attached(self, collection: Collection) -> QuerySet[Model] | None:
        return self.rows(collection).order_by()


QUESTIONS = Part(
    "golden_questions",
    "golden question",
    GoldenQuestion,
    "golden_set__collection_name",
    (
        "set", "set_description", "set_version", "position", "question", "expected_doc_ids", "expected_chunks",
        "expected_answer", "category", "weight", "thresholds", "notes", "match", "by_construction", "suggested",
        "chunk_marks",
    ),
    _question,
    lookups=SET_LOOKUPS,
    order=("golden_set__name", "position", "id"),
    forgets=GoldenSet,
)  # fmt: skip
VERSIONS = Part(  # restored after the questions: parts are restored by name
    "golden_versions",
    "version of a golden set",
    GoldenSetVersion,
    "golden_set__collection_name",
    (*SET_LOOKUPS, *SET_SETTINGS, "version", "digest", "questions", "reason", "made_by", "created_at"),
    _version,
    lookups=SET_LOOKUPS | SET_SETTINGS,
    order=("golden_set__name", "version"),
    forgets=GoldenSet,
)
SAMPLINGS = Part(
    "samplings",
    "sampling",
    Sampling,
    "collection_name",
    ("enabled", "rate", "per_day", "judge", "judge_model"),
    _sampling,
    single=True,
    forgets=Sampling,
)
GATES = Part(
    "promotion_gates",
    "quality gate",
    PromotionGate,
    "collection_name",
    ("set_name", "measure", "k", "margin"),
    _gate,
    single=True,
    forgets=PromotionGate,
)
JUDGE_FITS = JudgeFits(
    "judge_fits",
    "calibration of a judge",
    Experiment,
    "collection_name",
    ("settings", "grid", "outcome", "created_by", "created_at", "decided_by", "decided_at"),
    _judge_fit,
    order=("created_at", "id"),
)
register(QUESTIONS, VERSIONS, SAMPLINGS, GATES, JUDGE_FITS)
