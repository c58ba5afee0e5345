"""The embedded judge against RAGBench's labels, on sets that it was not fitted on, and how fast it judges.

Run: python -m benchmarks.bench_judge [--vectors FILE] [--write]     (needs RAGD_DATA/ragbench, with pyarrow)

For each of the seven validation sets a judge is fitted on the other six by the code of `fit_judge`, which leaves out
one of those six in turn wherever it needs held-out rows, then compared with the labels (those are GPT-4's):
- adherence: AUROC of its estimate, beside the word-overlap floor (the share of the answer's words that stand in the
  documents) and beside GPT-3.5's predictions, on the rows that ship them;
- relevance, utilization, completeness and faithfulness: RMSE of its estimates and of its figures over marks, in shares
  of sentences, beside always saying the other sets' mean; and how far the mean figure is off;
- minimal edits (`judge_edits`): AUROC of P(unsupported) of a sentence with one fact changed over the same sentence
  unchanged, beside the same floor.
Calibration to a collection (`reviews.calibration`), each set as one collection: LABEL_DRAWS times 20, 40 and 80 of its
rows are drawn as labelled, and the other rows judged before and after: how far the mean is off, and single verdicts.
Then the judge that was fitted on the six sets beside emanual, on emanual's training rows, which no fit reads.
Intervals are 95 % bootstrap intervals; those of the means draw rows within each set. Speed: rows judged per second from
texts alone, embedding included, by a judge that has kept nothing. --write stores the accuracy for `accuracy_of`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from benchmarks.fit_judge import LICENCE, fit_model
from benchmarks.judge_edits import MeasuredEdit, measure_edits
from benchmarks.judge_rows import LabelledRow, load_rows, overlap
from benchmarks.ragbench import SETS
from evaluation_app.judges.embedded_judge import EmbeddedJudge
from evaluation_app.judges.feature_model import ACCURACY_FILE, Accuracy, JudgeModel, Marks, Mask, mark_case
from evaluation_app.judges.features import Features
from evaluation_app.judges.protocol import Numbers
from evaluation_app.measures.statistics import SEED, auroc, rmse
from evaluation_app.reviews import agreement
from evaluation_app.reviews.calibration import LabelledScore, fit_measure
from ragd.models.embedding import LocalEmbedder

SHARES = ("context_relevance", "context_utilization", "completeness", "faithfulness")
DRAWS = 1000
LABEL_DRAWS = 100
SPEED_ROWS = 140
UNSEEN = ("emanual", "train")


@dataclass(frozen=True, slots=True)
class Predicted:
    """Of one set, one entry per row: what a judge that was not fitted on it says, and what is published.

    truth, expected and counted: per measure the label, the estimate and the figure over marks; constant: the mean of
    the rows that it was fitted on. gpt: NaN where none is shipped."""

    hallucinated: np.ndarray
    suspicion: Numbers
    floor: Numbers
    gpt: Numbers
    truth: dict[str, Numbers]
    expected: dict[str, Numbers]
    counted: dict[str, Numbers]
    constant: dict[str, float]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Of edited sentences and their originals, in turn: how suspicious the judge and the overlap of words find them."""

    hallucinated: np.ndarray
    suspicion: Numbers
    floor: Numbers
    sources: list[str]
    kinds: list[str]


def truth_of(row: LabelledRow) -> dict[str, float]:
    return {
        "context_relevance": row.published["relevance_score"],
        "context_utilization": row.published["utilization_score"],
        "completeness": row.published["completeness_score"],
        "faithfulness": 1 - float(row.unsupported.mean()) if len(row.unsupported) else 1.0,
    }


def predict(model: JudgeModel, rows: Sequence[LabelledRow], fitted: Sequence[LabelledRow]) -> Predicted:
    """rows: judged; fitted: those that the model was fitted on."""
    marked = [_mark(model, row.features, row.is_blank) for row in rows]
    truth, others = [truth_of(row) for row in rows], [truth_of(row) for row in fitted]
    counted = []
    for marks in marked:
        both, relevant = int((marks.relevant & marks.utilized).sum()), int(marks.relevant.sum())
        shares = (float(mask.mean()) for mask in (marks.relevant, marks.utilized))
        supported = float(marks.supported.mean()) if len(marks.supported) else 1.0
        counted.append(dict(zip(SHARES, (*shares, both / relevant if relevant else 1.0, supported), strict=True)))
    shipped = [row.published["gpt3_adherence"] for row in rows]
    return Predicted(
        hallucinated=np.array([not row.is_adherent for row in rows]),
        suspicion=np.array([1 - marks.expected.get("adherence", 1.0) for marks in marked]),
        floor=np.array([-row.floor for row in rows]),
        gpt=np.array([np.nan if value is None else 1.0 - float(value) for value in shipped]),
        truth={name: np.array([one[name] for one in truth]) for name in SHARES},
        expected={name: np.array([marks.expected.get(name, 1.0) for marks in marked]) for name in SHARES},
        counted={name: np.array([one[name] for one in counted]) for name in SHARES},
        constant={name: float(np.mean([one[name] for one in others])) for name in SHARES},
    )


def split_rows(rows: Sequence[LabelledRow], name: str) -> tuple[list[LabelledRow], list[LabelledRow]]:
    """(those of the set, those of the others)."""
    own, others = ([row for row in rows if (row.set_name == name) is inside] for inside in (True, False))
    return own, others


def _mark(model: JudgeModel, features: Features, is_blank: Mask) -> Marks:
    return mark_case(model, features, np.ones(len(features.context)), is_blank)


def judge_pairs(model: JudgeModel, edits: Sequence[MeasuredEdit]) -> Pairs:
    return Pairs(
        np.tile([False, True], len(edits)),
        np.concatenate([_mark(model, it, np.zeros(1, bool)).unsupported for one in edits for it in one.measured]),
        np.array([-overlap(case) for one in edits for case in (one.edit.original, one.edit.edited)]),
        [one.edit.source for one in edits for _ in range(2)],
        [one.edit.kind for one in edits for _ in range(2)],
    )


Judged = Predicted | Pairs
J = TypeVar("J", Predicted, Pairs)
Figure = Callable[[Predicted, np.ndarray], float]


def judge_auroc(one: Judged, rows: np.ndarray) -> float:
    return _auroc(one.suspicion, one, rows)


def floor_auroc(one: Judged, rows: np.ndarray) -> float:
    return _auroc(one.floor, one, rows)


def above_floor(one: Judged, rows: np.ndarray) -> float:
    return judge_auroc(one, rows) - floor_auroc(one, rows)


def gpt_auroc(one: Predicted, rows: np.ndarray) -> float:
    return _auroc(one.gpt, one, rows[~np.isnan(one.gpt[rows])])


def rmse_of(kind: Literal["expected", "counted"], name: str) -> Figure:
    return lambda one, rows: rmse(getattr(one, kind)[name][rows], one.truth[name][rows]) or 0.0


def counted_bias(name: str) -> Figure:
    return lambda one, rows: float((one.counted[name][rows] - one.truth[name][rows]).mean())


def constant_rmse(name: str) -> Figure:
    return lambda one, rows: rmse(np.full(len(rows), one.constant[name]), one.truth[name][rows]) or 0.0


def interval(sets: Sequence[J], figure: Callable[[J, np.ndarray], float]) -> tuple[float, float, float]:
    """(the mean over the sets, and its interval). A draw in which a set has one kind of row alone is left out."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    value = float(np.mean([figure(one, np.arange(len(one.floor))) for one in sets]))
    means = []
    for _ in range(DRAWS):
        drawn = [figure(one, generator.integers(0, len(one.floor), len(one.floor))) for one in sets]
        means.append(np.mean(drawn))
    low, high = np.nanquantile(means, [0.025, 0.975])
    return value, float(low), float(high)


def print_adherence(sets: dict[str, Predicted]) -> None:
    print("Adherence, AUROC (each set judged by what was fitted on the other six)")
    print("set         rows  unsupported  judge                 floor                 GPT-3.5")
    for name, one in sets.items():
        gpt = "-" if np.isnan(one.gpt).all() else f"{gpt_auroc(one, np.arange(len(one.gpt))):.3f}"
        cells = "  ".join(f"{_show(interval([one], figure)):<20}" for figure in (judge_auroc, floor_auroc))
        print(f"{name:<11} {len(one.gpt):>4}  {one.hallucinated.sum():>11}  {cells}  {gpt:>7}")
    everything = list(sets.values())
    figures = {"judge": judge_auroc, "floor": floor_auroc, "above the floor": above_floor}
    print("mean: " + ", ".join(f"{name} {_show(interval(everything, each))}" for name, each in figures.items()))
    shipped = [one for one in everything if not np.isnan(one.gpt).all()]
    print(
        f"on the {len(shipped)} sets with GPT-3.5's predictions: judge {_show(interval(shipped, judge_auroc))}, "
        f"GPT-3.5 {_show(interval(shipped, gpt_auroc))}, floor {_show(interval(shipped, floor_auroc))}"
    )


def print_shares(sets: Sequence[Predicted]) -> None:
    print("\nShares of sentences, RMSE, mean of the sets")
    print("measure              estimate              figure over marks     its bias                constant")
    for name in SHARES:
        figures = (rmse_of("expected", name), rmse_of("counted", name), counted_bias(name), constant_rmse(name))
        values = [interval(sets, figure) for figure in figures]
        cells = "  ".join(f"{_show(value):<20}" for value in values[:3])
        print(f"{name:<20} {cells}  {values[3][0]:>8.3f}")


def print_edits(sets: Sequence[Pairs]) -> None:
    print("\nMinimal edits, AUROC of the edited sentence over the unchanged one (sets left out, pairs together)")
    pooled = Pairs(
        np.concatenate([one.hallucinated for one in sets]),
        np.concatenate([one.suspicion for one in sets]),
        np.concatenate([one.floor for one in sets]),
        [source for one in sets for source in one.sources],
        [kind for one in sets for kind in one.kinds],
    )
    for names in (pooled.sources, pooled.kinds):
        for name in sorted(set(names)):
            print_pairs(name, pooled, np.array([other == name for other in names]))
    print_pairs("all", pooled, np.ones(len(pooled.floor), dtype=bool))


def print_pairs(name: str, pairs: Pairs, chosen: np.ndarray) -> None:
    kept = Pairs(pairs.hallucinated[chosen], pairs.suspicion[chosen], pairs.floor[chosen], [], [])
    judged, floor = interval([kept], judge_auroc), interval([kept], floor_auroc)
    print(f"{name:<10} {len(kept.floor) // 2:>5} pairs: judge {_show(judged)}, floor {_show(floor)}")


def labelled(one: Predicted, name: str) -> list[LabelledScore]:
    """The rows of a set with the judge's score and estimate of the measure."""
    columns = (one.counted["faithfulness"] == 1, 1 - one.suspicion, ~one.hallucinated)
    if name in SHARES:
        columns = (one.counted[name], one.expected[name], one.truth[name])
    return [LabelledScore(*map(float, row)) for row in zip(*columns, strict=True)]


def calibrated(name: str, rows: Sequence[LabelledScore], number: int, draw: int) -> list[float]:
    """Of the rows that were not drawn: |mean - people's mean| before and after, agreement (of a number RMSE) before and
    after, balanced accuracy before and after (of a number the interval's coverage, twice), whether the fit is used."""
    order = np.random.default_rng([SEED, draw]).permutation(len(rows))
    fit = fit_measure(name, [rows[place] for place in order[:number]])
    rest = [rows[place] for place in order[number:]]
    truth = np.array([row.label for row in rest])
    both = np.array([row.score for row in rest]), np.array([fit.value(row.score, row.estimate) for row in rest])
    means = [abs(float((figures - truth).mean())) for figures in both]
    if name not in SHARES:
        balanced = [auroc(figures, truth > 0) or 0.5 for figures in both]
        return [*means, *(float((figures == truth).mean()) for figures in both), *balanced, float(fit.changes)]
    covered = float((np.abs(truth - both[1]) <= (fit.reach or 0) + 1e-9).mean())
    return [*means, *(rmse(figures, truth) or 0.0 for figures in both), covered, covered, float(fit.changes)]


def print_calibration(sets: Sequence[Predicted]) -> None:
    agreement.RESAMPLES = 2  # the intervals of a fit are not looked at
    print(f"\nCalibration to one set, mean of the sets over {LABEL_DRAWS} draws, [95 % of draws]\n"
          "measure             labels  mean off before        after                  single before          after"
          "                  balanced accuracy before, after; numbers: coverage                 fit used")  # fmt: skip
    for name in ("adherence", *SHARES):
        rows = [labelled(one, name) for one in sets]
        for number in (20, 40, 80):
            draws = [np.mean([calibrated(name, each, number, draw) for each in rows], axis=0)
                     for draw in range(LABEL_DRAWS)]  # fmt: skip
            edges = [(float(np.mean(column)), *np.quantile(column, [0.025, 0.975])) for column in np.transpose(draws)]
            print(f"{name:<20}{number:>5}   " + "   ".join(map(_show, edges[:6])), f" {edges[6][0]:.2f}")


def print_unseen(one: Predicted) -> None:
    print(f"\n{len(one.floor)} rows that no fit reads ({' '.join(UNSEEN)}), adherence AUROC: ", end="")
    print(f"judge {_show(interval([one], judge_auroc))}, floor {_show(interval([one], floor_auroc))}")


def print_speed(rows: Sequence[LabelledRow]) -> None:
    chosen = rows[:: max(1, len(rows) // SPEED_ROWS)][:SPEED_ROWS]
    embedder = LocalEmbedder()
    embedder.embed(["the model is opened"])
    judge = EmbeddedJudge(embedder)
    began = time.monotonic()
    for start in range(0, len(chosen), 20):
        judge.judge_many([row.case for row in chosen[start : start + 20]])
    cold = time.monotonic() - began
    began = time.monotonic()
    judge.judge_many([row.case for row in chosen])
    warm = time.monotonic() - began
    count = sum(len(row.relevant) for row in chosen)
    print(
        f"\nspeed: {len(chosen)} rows with {count} sentences of context: {len(chosen) / cold:.1f} rows a second with "
        f"embedding, {len(chosen) / warm:.0f} when every sentence was met before"
    )


def write_accuracy(sets: Sequence[Predicted]) -> None:
    rows = sum(len(one.floor) for one in sets)
    found = {"adherence": _accuracy("auroc", interval(sets, judge_auroc), rows, interval(sets, floor_auroc)[0])}
    for name in SHARES:
        constant = interval(sets, constant_rmse(name))[0]
        found[name] = _accuracy("rmse", interval(sets, rmse_of("expected", name)), rows, constant)
    stored = {"embedded": {"data": f"{LICENCE}; sets left out", "measures": found}}
    ACCURACY_FILE.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {ACCURACY_FILE}")


def _accuracy(statistic: str, values: tuple[float, float, float], rows: int, beside: float) -> dict[str, object]:
    value, low, high = (round(number, 4) for number in values)
    return Accuracy(statistic, value, low, high, rows, round(beside, 4)).as_dict()  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = load_rows(given.vectors)
    edits = measure_edits(rows, given.vectors)
    sets, pairs = {}, []
    unseen = load_rows(given.vectors, (UNSEEN[0],), UNSEEN[1])
    for name in SETS:
        own, others = split_rows(rows, name)
        model = fit_model(others, edits)
        sets[name] = predict(model, own, others)
        pairs.append(judge_pairs(model, [measured for measured in edits if measured.edit.set_name == name]))
        if name == UNSEEN[0]:
            never_read = predict(model, unseen, others)
    print_adherence(sets)
    print_shares(list(sets.values()))
    print_edits(pairs)
    print_calibration(list(sets.values()))
    print_unseen(never_read)
    if given.write:
        write_accuracy(list(sets.values()))
    print_speed(rows)
    return 0


def _auroc(values: Numbers, one: Judged, rows: np.ndarray) -> float:
    found = auroc(values[rows], one.hallucinated[rows])
    return float("nan") if found is None else found


def _show(values: tuple[float, float, float]) -> str:
    return f"{values[0]:.3f} [{values[1]:.3f}, {values[2]:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
