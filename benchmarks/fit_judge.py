"""Fits the embedded judge's coefficients on RAGBench and writes them to evaluation_app/judges/embedded.json.

Run: python -m benchmarks.fit_judge [--check] [--vectors FILE]     (needs RAGD_DATA/ragbench, with pyarrow)

--check writes nothing and ends with status 1 when the stored coefficients are not what a fit gives. --vectors keeps the
embeddings in an .npz from one call to the next. Only the validation rows are read: the other splits stay unseen.

Every row weighs the same, whatever its number of sentences. The second look of a head, completeness, adherence, the
threshold and the spreads are fitted on what models say of a set when that set was left out, since on rows that it was
fitted on a model is too sure. The threshold calls as many answers not adherent as are labelled so. One head is fitted
on minimal edits of the same rows (`judge_edits`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import benchmarks.without_database  # noqa: F401  (for its effect)
from benchmarks.judge_edits import MeasuredEdit, measure_edits
from benchmarks.judge_rows import LabelledRow, load_rows
from evaluation_app.judges.feature_model import (
    ADHERENCE_NAMES,
    CASE_NAMES,
    ESTIMATED,
    FILE,
    HEADS,
    SECOND_NAMES,
    Head,
    JudgeModel,
    Logistic,
    adherence_row,
    case_row,
    doubt,
    fit_logistic,
    fit_spread,
    second_look,
)
from evaluation_app.judges.features import ANSWER_NAMES, CONTEXT_NAMES, SUPPORT_NAMES
from evaluation_app.judges.protocol import Numbers
from ragd.models.embedding import LocalEmbedder

FIRST_RIDGE, SECOND_RIDGE, UNSUPPORTED_RIDGE, CASE_RIDGE = 3.0, 30.0, 10.0, 10.0
CLOSE = 1e-5
LICENCE = "RAGBench (arXiv 2407.11005), CC BY 4.0, validation split; labels by gpt-4-0125-preview"

ALTERED_RIDGE, NATURAL_WEIGHT = 10.0, 0.5

Rows = Sequence[LabelledRow]
Edits = Sequence[MeasuredEdit]
Model = TypeVar("Model")


def fit_model(rows: Rows, edits: Edits) -> JudgeModel:
    """At least two sets are needed, since one is left out in turn. edits: those of other sets are not read."""
    sets = {row.set_name for row in rows}
    edits = [measured for measured in edits if measured.edit.set_name in sets]
    heads, likely = {}, {}
    for name in HEADS:
        heads[name], likely[name] = fit_head(rows, name)
    cases = [{name: likely[name][place] for name in HEADS} for place in range(len(rows))]
    tables = [case_row(case, row.features.context) for case, row in zip(cases, rows, strict=True)]
    completeness, complete = fit_whole(
        rows, CASE_NAMES, tables, [float(row.published["completeness_score"]) for row in rows]
    )
    unseen = leave_out(
        rows,
        lambda some: (fit_unsupported(some), fit_altered(some, edits)),
        lambda models, row: doubt(*models, row.features.answer),
    )
    spoken = [place for place, row in enumerate(rows) if len(row.unsupported)]
    answered, chances = [rows[place] for place in spoken], [unseen[place] for place in spoken]
    adherence, adhere = fit_whole(
        answered,
        ADHERENCE_NAMES,
        [adherence_row(chance) for chance in chances],
        [float(row.is_adherent) for row in answered],
    )
    expected = {
        "context_relevance": ([case["relevant"].mean() for case in cases], [row.relevant.mean() for row in rows]),
        "context_utilization": ([case["utilized"].mean() for case in cases], [row.utilized.mean() for row in rows]),
        "completeness": (complete, [row.published["completeness_score"] for row in rows]),
        "adherence": (adhere, [row.is_adherent for row in answered]),
        "faithfulness": ([1 - chance.mean() for chance in chances], [1 - row.unsupported.mean() for row in answered]),
    }
    counts = Counter(row.set_name for row in rows)
    model = JudgeModel(
        heads,
        unsupported=fit_unsupported(rows),
        altered=fit_altered(rows, edits),
        completeness=completeness,
        adherence=adherence,
        threshold=same_share([chance.max() for chance in chances], [not row.is_adherent for row in answered]),
        spreads={name: fit_spread(*expected[name]) for name in ESTIMATED},
        version="",
        embedder=LocalEmbedder.model,
        fitted_on={"data": LICENCE, "rows": dict(sorted(counts.items()))},
    )
    digest = hashlib.sha256(json.dumps(model.as_dict(), sort_keys=True).encode()).hexdigest()[:12]
    return replace(model, version=digest)


def fit_head(rows: Rows, name: str) -> tuple[Head, list[Numbers]]:
    """The head, and what its second look says of each row when the first was fitted without the row's set."""
    labels = np.concatenate([getattr(row, name) for row in rows])
    weights = row_weights([len(row.relevant) for row in rows])

    def fit_first(some: Rows) -> Logistic:
        return fit_logistic(
            CONTEXT_NAMES,
            np.concatenate([row.features.context for row in some]),
            np.concatenate([getattr(row, name) for row in some]),
            ridge=FIRST_RIDGE,
            weights=row_weights([len(row.relevant) for row in some]),
        )

    unseen = leave_out(rows, fit_first, lambda model, row: model.predict(row.features.context))
    looks = [second_look(likely, row.features.documents) for likely, row in zip(unseen, rows, strict=True)]
    second = fit_logistic(SECOND_NAMES, np.concatenate(looks), labels, ridge=SECOND_RIDGE, weights=weights)
    return Head(fit_first(rows), second), [second.predict(look) for look in looks]


def fit_whole(
    rows: Rows, names: Sequence[str], tables: Sequence[Numbers], labels: Sequence[float]
) -> tuple[Logistic, list[float]]:
    """A model of whole rows, and what one says of each row that was fitted without the row's set. tables: one row
    each."""
    table, truth = np.concatenate(tables), np.asarray(labels)
    sets = np.array([row.set_name for row in rows])
    unseen = np.zeros(len(rows))
    for name in sorted(set(sets)):
        own = sets == name
        unseen[own] = fit_logistic(names, table[~own], truth[~own], ridge=CASE_RIDGE).predict(table[own])
    return fit_logistic(names, table, truth, ridge=CASE_RIDGE), unseen.tolist()


def fit_unsupported(rows: Rows) -> Logistic:
    said = [row for row in rows if len(row.unsupported)]
    return fit_logistic(
        SUPPORT_NAMES,
        np.concatenate([row.features.answer[:, : len(SUPPORT_NAMES)] for row in said]),
        np.concatenate([row.unsupported for row in said]),
        ridge=UNSUPPORTED_RIDGE,
    )


def fit_altered(rows: Rows, edits: Edits) -> Logistic:
    """Edited sentences against unchanged ones, and, with NATURAL_WEIGHT, against all that are labelled supported."""
    sets = {row.set_name for row in rows}
    pairs = [each.answer[0] for one in edits if one.edit.set_name in sets for each in one.measured]
    natural = np.concatenate([row.features.answer[~row.unsupported] for row in rows])
    return fit_logistic(
        ANSWER_NAMES,
        np.concatenate([np.stack(pairs), natural]),
        np.concatenate([np.tile([0.0, 1.0], len(pairs) // 2), np.zeros(len(natural))]),
        ridge=ALTERED_RIDGE,
        weights=np.concatenate([np.ones(len(pairs)), np.full(len(natural), NATURAL_WEIGHT)]),
    )


def leave_out(
    rows: Rows, fit: Callable[[Rows], Model], predict: Callable[[Model, LabelledRow], Numbers]
) -> list[Numbers]:
    """For each row what a model says of it that was fitted on the other sets."""
    models = {
        name: fit([row for row in rows if row.set_name != name]) for name in sorted({row.set_name for row in rows})
    }
    return [predict(models[row.set_name], row) for row in rows]


def row_weights(sizes: Sequence[int]) -> Numbers:
    return np.concatenate([np.full(size, 1 / size) for size in sizes])


def same_share(chances: Sequence[float], labels: Sequence[bool]) -> float:
    """The threshold from which on as many are called so as are labelled so."""
    wanted = sum(labels)
    return round(float(np.sort(chances)[::-1][max(0, wanted - 1)]), 4)


def list_differences(stored: Any, fresh: Any, place: str = "") -> list[str]:
    """Where two models differ by more than CLOSE in a number, or at all in anything else but the version."""
    if isinstance(stored, Mapping) and isinstance(fresh, Mapping):
        names = sorted(set(stored) | set(fresh))
        return [
            line
            for name in names
            if name != "version"
            for line in list_differences(stored.get(name), fresh.get(name), f"{place}/{name}")
        ]
    if isinstance(stored, float | int) and isinstance(fresh, float | int):
        return (
            [] if abs(stored - fresh) <= CLOSE * max(1.0, abs(fresh)) else [f"{place}: {stored}, a fit gives {fresh}"]
        )
    return [] if stored == fresh else [f"{place}: {stored!r}, a fit gives {fresh!r}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--vectors", type=Path)
    given = parser.parse_args()
    rows = load_rows(given.vectors)
    fresh = fit_model(rows, measure_edits(rows, given.vectors)).as_dict()
    if not given.check:
        FILE.write_text(json.dumps(fresh, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {FILE}, version {fresh['version']}, fitted on {sum(fresh['fitted_on']['rows'].values())} rows")
        return 0
    differences = list_differences(json.loads(FILE.read_text(encoding="utf-8")), fresh)
    print("\n".join(differences) or f"{FILE.name} is what a fit gives.")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
