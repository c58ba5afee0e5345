"""The embedded judge against RAGBench's labels, on sets that it was not fitted on, and how fast it judges.

Run: python -m tests.benchmarks.bench_judge [--vectors FILE]     (needs RAGD_DATA/ragbench, with pyarrow)

For each of the seven validation sets a judge is fitted on the other six by the code of `fit_judge`, then compared with
the labels (those are GPT-4's):
- adherence: AUROC of its highest probability of an unsupported sentence, beside the word-overlap floor (the share of
  the answer's words that stand in the documents) and beside GPT-3.5's predictions, on the rows that ship them;
- relevance and utilization: RMSE of its expected share of sentences, beside always saying the other sets' mean.
Intervals are 95 % bootstrap intervals; those of the means draw rows within each set. Speed: rows judged per second from
texts alone, embedding included, by a judge that has kept nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation_app.judges.embedded_judge import EmbeddedJudge
from evaluation_app.judges.protocol import Numbers
from evaluation_app.measures.statistics import RESAMPLES, SEED, auroc, rmse
from ragd.models.embedding import LocalEmbedder
from tests.benchmarks.fit_judge import fit_model
from tests.benchmarks.judge_rows import LabelledRow, load_rows
from tests.benchmarks.ragbench import SETS

FLOOR_MARGIN, RELEVANCE_TARGET, UTILIZATION_TARGET = 0.03, 0.17, 0.12
SPEED_ROWS = 140


@dataclass(frozen=True, slots=True)
class Predicted:
    """Of one set, one entry per row: what a judge that was fitted on the other sets says, and what is published.

    truth and guess: per share name; constant: the mean of the other sets. gpt: NaN where none is shipped."""

    hallucinated: np.ndarray
    suspicion: Numbers
    floor: Numbers
    gpt: Numbers
    called: np.ndarray
    truth: dict[str, Numbers]
    guess: dict[str, Numbers]
    constant: dict[str, float]


SHARES = {"relevance": "relevance_score", "utilization": "utilization_score", "completeness": "completeness_score"}


def predict_set(rows: Sequence[LabelledRow], left_out: str) -> Predicted:
    own, others = ([row for row in rows if (row.set_name == left_out) is inside] for inside in (True, False))
    model = fit_model(others)
    guess: dict[str, list[float]] = {name: [] for name in SHARES}
    for row in own:
        features = row.features
        likely = {name: head.predict(features.context, features.documents) for name, head in model.heads.items()}
        complete = model.complete(likely, features.context)
        values = (float(likely["relevant"].mean()), float(likely["utilized"].mean()), complete)
        for name, value in zip(SHARES, values, strict=True):
            guess[name].append(value)
    suspicion = np.array([model.unsupported.predict(row.features.answer).max(initial=0.0) for row in own])
    shipped = [row.published["gpt3_adherence"] for row in own]
    return Predicted(
        hallucinated=np.array([not row.is_adherent for row in own]),
        suspicion=suspicion,
        floor=np.array([-row.floor for row in own]),
        gpt=np.array([np.nan if value is None else 1.0 - float(value) for value in shipped]),
        called=suspicion >= model.thresholds["adherence"],
        truth={name: np.array([row.published[column] for row in own]) for name, column in SHARES.items()},
        guess={name: np.array(values) for name, values in guess.items()},
        constant={name: float(np.mean([row.published[column] for row in others])) for name, column in SHARES.items()},
    )


Figure = Callable[[Predicted, np.ndarray], float]


def judge_auroc(one: Predicted, rows: np.ndarray) -> float:
    return _auroc(one.suspicion, one, rows)


def floor_auroc(one: Predicted, rows: np.ndarray) -> float:
    return _auroc(one.floor, one, rows)


def above_floor(one: Predicted, rows: np.ndarray) -> float:
    return judge_auroc(one, rows) - floor_auroc(one, rows)


def gpt_auroc(one: Predicted, rows: np.ndarray) -> float:
    return _auroc(one.gpt, one, rows[~np.isnan(one.gpt[rows])])


def judge_rmse(name: str) -> Figure:
    return lambda one, rows: rmse(one.guess[name][rows], one.truth[name][rows]) or 0.0


def constant_rmse(name: str) -> Figure:
    return lambda one, rows: rmse(np.full(len(rows), one.constant[name]), one.truth[name][rows]) or 0.0


def interval(sets: Sequence[Predicted], figure: Figure) -> tuple[float, float, float]:
    """(the mean over the sets, and its interval). A draw in which a set has one kind of row alone is left out."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    value = float(np.mean([figure(one, np.arange(len(one.floor))) for one in sets]))
    means = []
    for _ in range(RESAMPLES // 2):
        drawn = [figure(one, generator.integers(0, len(one.floor), len(one.floor))) for one in sets]
        means.append(np.mean(drawn))
    low, high = np.nanquantile(means, [0.025, 0.975])
    return value, float(low), float(high)


def measure_speed(rows: Sequence[LabelledRow]) -> None:
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
        f"speed: {len(chosen)} rows with {count} sentences of context: {len(chosen) / cold:.1f} rows a second with "
        f"embedding, {len(chosen) / warm:.0f} when every sentence was met before"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path)
    rows = load_rows(parser.parse_args().vectors)
    sets = {name: predict_set(rows, name) for name in SETS}
    print("Adherence, AUROC (each set judged by what was fitted on the other six)")
    print(
        "set         rows  unsupported  judge                 floor                 GPT-3.5  called rightly (balanced)"
    )
    for name, one in sets.items():
        gpt = "-" if np.isnan(one.gpt).all() else f"{gpt_auroc(one, np.arange(len(one.gpt))):.3f}"
        rates = [float((one.called == kind)[one.hallucinated == kind].mean()) for kind in (True, False)]
        cells = "  ".join(f"{_show(interval([one], figure)):<20}" for figure in (judge_auroc, floor_auroc))
        print(f"{name:<11} {len(one.gpt):>4}  {one.hallucinated.sum():>11}  {cells}  {gpt:>7}  {np.mean(rates):.3f}")
    everything = list(sets.values())
    print(f"mean: judge {_show(interval(everything, judge_auroc))}, floor {_show(interval(everything, floor_auroc))}")
    above = interval(everything, above_floor)
    print(f"adherence AUROC above the floor: {_show(above)}, target at least {FLOOR_MARGIN}: {_met(above[0] >= 0.03)}")
    shipped = [one for one in everything if not np.isnan(one.gpt).all()]
    print(
        f"on the {len(shipped)} sets with GPT-3.5's predictions: judge {_show(interval(shipped, judge_auroc))}, "
        f"GPT-3.5 {_show(interval(shipped, gpt_auroc))}, floor {_show(interval(shipped, floor_auroc))}"
    )
    print("\nShares of sentences, RMSE\nset         " + "".join(f"{name + ' (constant)':>38}" for name in SHARES))
    for name, one in sets.items():
        cells = [
            f"{_show(interval([one], judge_rmse(share)))} ({constant_rmse(share)(one, np.arange(len(one.gpt))):.3f})"
            for share in SHARES
        ]
        print(f"{name:<11} " + "".join(f"{cell:>38}" for cell in cells))
    targets = {"relevance": RELEVANCE_TARGET, "utilization": UTILIZATION_TARGET}
    for share in SHARES:
        value, constant = interval(everything, judge_rmse(share)), interval(everything, constant_rmse(share))
        wanted = f", target at most {targets[share]}: {_met(value[0] <= targets[share])}" if share in targets else ""
        print(f"{share} RMSE, mean of the sets: {_show(value)}, constant {_show(constant)}{wanted}")
    measure_speed(rows)
    return 0


def _auroc(values: Numbers, one: Predicted, rows: np.ndarray) -> float:
    found = auroc(values[rows], one.hallucinated[rows])
    return float("nan") if found is None else found


def _show(values: tuple[float, float, float]) -> str:
    return f"{values[0]:.3f} [{values[1]:.3f}, {values[2]:.3f}]"


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


if __name__ == "__main__":
    sys.exit(main())
