"""Anchored scores on RAGBench: how often their intervals hold the true mean, and how long they are, by labels.

Run: python -m tests.benchmarks.bench_anchored [--vectors FILE]     (needs RAGD_DATA/ragbench, with pyarrow)

The published labels stand for people. Each of the seven validation sets is judged by what was fitted on the other six.
Of each set as many answers are drawn by chance and labelled, 500 times for each number of labels. An interval holds
when the mean of all published labels of the set lies in it. Beside its length stands that of the same labels without a
judge.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evaluation_app.measures.anchored import anchored_mean
from evaluation_app.measures.statistics import SEED
from tests.benchmarks.bench_judge import Predicted, predict, split_rows
from tests.benchmarks.fit_judge import fit_model
from tests.benchmarks.judge_edits import measure_edits
from tests.benchmarks.judge_rows import load_rows
from tests.benchmarks.ragbench import SETS

LABELS = (10, 20, 40, 80)
SAMPLES = 500
COVERAGE_TARGET = 0.93


def figures(one: Predicted) -> dict[str, tuple[list[float], list[float]]]:
    """Measure -> what the judge says of each answer, and its label."""
    adherence = (np.clip(1 - one.suspicion, 0, 1).tolist(), (~one.hallucinated).astype(float).tolist())
    shares = {name: (np.clip(one.expected[name], 0, 1).tolist(), one.truth[name].tolist()) for name in one.truth}
    return {"adherence": adherence, **shares}


def sample(judged: Sequence[float], truth: Sequence[float], number: int) -> tuple[float, float, float]:
    """(share of intervals that hold, their mean length, that without a judge)."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    goal, constant = float(np.mean(truth)), [0.0] * len(truth)
    held, lengths, alone = [], [], []
    for _ in range(SAMPLES):
        labels = {int(index): truth[index] for index in generator.permutation(len(truth))[:number]}
        found, plain = anchored_mean(judged, labels), anchored_mean(constant, labels)
        assert found is not None
        assert plain is not None
        held.append(found.low <= goal <= found.high)
        lengths.append(found.high - found.low)
        alone.append(plain.high - plain.low)
    return float(np.mean(held)), float(np.mean(lengths)), float(np.mean(alone))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path)
    vectors_file = parser.parse_args().vectors
    rows = load_rows(vectors_file)
    edits = measure_edits(rows, vectors_file)
    results: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    lowest = 1.0
    print(
        "set         measure              answers  "
        + "  ".join(f"{number:>3} labels: held length alone" for number in LABELS)
    )
    for name in SETS:
        own, others = split_rows(rows, name)
        for measure, (judged, truth) in figures(predict(fit_model(others, edits), own, others)).items():
            cells = []
            for number in LABELS:
                found = sample(judged, truth, number)
                results.setdefault((measure, number), []).append(found)
                lowest = min(lowest, found[0])
                cells.append(f"{found[0]:>16.3f} {found[1]:>6.3f} {found[2]:>5.3f}")
            print(f"{name:<11} {measure:<20} {len(truth):>7}  {'  '.join(cells)}", flush=True)
    print("mean over the sets")
    for measure in dict.fromkeys(measure for measure, _ in results):
        means = [np.mean(results[measure, number], axis=0) for number in LABELS]
        print(
            f"{measure:<41} "
            + "  ".join(f"{held:>16.3f} {length:>6.3f} {alone:>5.3f}" for held, length, alone in means)
        )
    everything = np.mean([found[0] for each in results.values() for found in each])
    print(f"intervals that hold the mean: {everything:.3f} (target {COVERAGE_TARGET}), lowest of a set {lowest:.3f}")


if __name__ == "__main__":
    main()
