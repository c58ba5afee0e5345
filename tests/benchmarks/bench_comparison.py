"""How often a comparison calls noise a change, and how long its arithmetic takes.

`python -m tests.benchmarks.bench_comparison` simulates pairs of runs that are equally good: of so many questions a
share moves, each as likely up as down, by one of the steps that ranking measures make. Printed are the share of such
pairs that are called improved or regressed, by the interval alone and by the verdict as the pages give it, and the same
for pairs where moving questions go down three times out of four (what should be found). Then the time for twelve
measures of 1,000 questions, and for ranking 64 plans on them.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from evaluation_app.measures.statistics import Draws, ResampledMeans, bootstrap_mean, judge_difference

PAIRS = 400
STEPS = (0.25, 0.5, 1.0)
SIZES = ((10, 0.3), (20, 0.2), (20, 0.5), (50, 0.1), (50, 0.4), (200, 0.05), (200, 0.3))
TARGET_ALARMS = 0.05
TARGET_S = 3.0


def verdicts(generator: np.random.Generator, count: int, moving: float, down: float) -> tuple[float, float]:
    """(share called changed by the interval alone, by the verdict) over PAIRS simulated pairs of runs."""
    alone = told = 0
    draws = Draws()
    for _ in range(PAIRS):
        moved = generator.random(count) < moving
        signs = np.where(generator.random(count) < down, -1.0, 1.0)
        deltas = moved * signs * generator.choice(STEPS, count)
        found = bootstrap_mean(list(deltas), weights=[1.0] * count, draws=draws)
        alone += bool(found and found.excludes_zero)
        told += judge_difference(found, int(moved.sum())) in ("improved", "regressed")
    return alone / PAIRS, told / PAIRS


def main() -> int:
    generator = np.random.default_rng(20240716)
    print(f"{PAIRS} simulated pairs each; called improved or regressed")
    print("questions  moving   equal runs: interval alone   verdict   | worse run: interval alone   verdict")
    alarms = []
    for count, moving in SIZES:
        alone, told = verdicts(generator, count, moving, 0.5)
        found_alone, found = verdicts(generator, count, moving, 0.75)
        alarms.append(told)
        print(
            f"{count:>9} {100 * moving:>6.0f} % {100 * alone:>25.1f} % {100 * told:>8.1f} %"
            f"   | {100 * found_alone:>23.1f} % {100 * found:>8.1f} %"
        )
    mean = sum(alarms) / len(alarms)
    met = "met" if mean <= TARGET_ALARMS else "missed"
    print(
        f"target false alarms, mean of the sizes: {100 * mean:.1f} %, at most {100 * TARGET_ALARMS:g} % wanted: {met}"
    )

    values = generator.random((12, 1000)) - 0.5
    began = time.perf_counter()
    draws = Draws()
    for row in values:
        bootstrap_mean(list(row), weights=[1.0] * 1000, draws=draws)
    took = time.perf_counter() - began
    plans = generator.random((1000, 64))
    began = time.perf_counter()
    drawn = ResampledMeans(plans, [1.0] * 1000, Draws())
    drawn.share_best()
    for place in range(1, 64):
        drawn.interval(place)
        drawn.difference(place, 0)
    ranked = time.perf_counter() - began
    print(f"12 measures of 1,000 questions: {took:.2f} s; 64 plans ranked on them: {ranked:.2f} s")
    met = "met" if took + ranked <= TARGET_S else "missed"
    print(f"target arithmetic of a comparison and a ranking: {took + ranked:.2f} s, at most {TARGET_S:g} s: {met}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
