"""How often a comparison claims what is not so, and how much of what is so it finds.

`python -m tests.benchmarks.bench_verdicts` simulates pairs of runs of 22 to 300 questions and puts each through the
comparison as pages and API do, with the criteria of a set that states none. A question's scores come from a population
with ties: correctness is mostly 0 or 1, else a third, a half, two thirds; hit and the outcome are 0 or 1; recall steps
by halves; shares of the context lie between. Of two equal runs a third of the questions are asked with another outcome,
drawn from the same population, so that either may be the better one. A better run has some failed questions right, so
many that correctness rises by the stated effect; a worse one the other way round. Then runs that differ in k alone,
whose shares of the context rise or fall, whose ranking finds more or less, and whose answers are equal; searches
alone, where hit decides; and families of five equal runs against one base. No database.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")
os.environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
os.environ.setdefault("RAGD_SECRET_KEY", "bench")

import django

django.setup()

# ruff: noqa: E402
from evaluation_app.analysis.comparison.run_comparison import PairFigures, compare_pair
from evaluation_app.analysis.comparison.run_reader import Asked, RunItem
from evaluation_app.analysis.comparison.verdicts import judge
from evaluation_app.measures.scores import scored
from evaluation_app.measures.statistics import Draws, holm
from evaluation_app.models import EvaluationRun
from ragd.types import RetrievePlan

PAIRS = 400
SIZES = (22, 50, 100, 300)
EFFECTS = (0.05, 0.1, 0.2, 0.3)
TARGET = 0.05
REASKED = 0.33
FAMILY = 5
CORRECTNESS = ((0.0, 0.2), (1 / 3, 0.06), (0.5, 0.1), (2 / 3, 0.09), (1.0, 0.55))
RATIOS = ("context_relevance", "context_utilization", "completeness")

Rows = dict[str, np.ndarray]
Change = Callable[[np.random.Generator, Rows], Rows]


def ask(generator: np.random.Generator, count: int) -> Rows:
    """Scores of so many questions."""
    values, shares = zip(*CORRECTNESS, strict=True)
    return {
        "correctness": generator.choice(values, count, p=shares),
        "hit@10": (generator.random(count) < 0.9).astype(float),
        "recall@10": generator.choice((0.0, 0.5, 1.0), count, p=(0.1, 0.2, 0.7)),
        "right_outcome": (generator.random(count) < 0.95).astype(float),
        **{name: generator.beta(2, 5, count) for name in RATIOS},
    }


def equal(generator: np.random.Generator, rows: Rows) -> Rows:
    """Some questions go otherwise, by chance alone."""
    count = len(rows["correctness"])
    other, moved = ask(generator, count), generator.random(count) < REASKED
    return {name: np.where(moved, other[name], values) for name, values in rows.items()}


def shifted(effect: float) -> Change:
    """Correctness rises by the effect in the mean (falls below 0): failed questions become right, or the reverse."""

    def change(generator: np.random.Generator, rows: Rows) -> Rows:
        after = equal(generator, rows)
        values = after["correctness"]
        room = (1 - values).mean() if effect > 0 else values.mean()
        moved = generator.random(len(values)) < min(1.0, abs(effect) / max(room, 1e-9))
        return after | {"correctness": np.where(moved, float(effect > 0), values)}

    return change


def other_k(grows: bool, *, searched: bool = False) -> Change:
    """k alone: with more results shares of the context fall and the ranking finds more; answers are equal."""

    def change(generator: np.random.Generator, rows: Rows) -> Rows:
        after = dict(rows) if searched else equal(generator, rows)
        moved = generator.random(len(rows["hit@10"])) < 0.15
        for name in ("hit@10", "recall@10"):
            limit = np.maximum(rows[name], 1.0) if grows else np.minimum(rows[name], 0.5)
            after[name] = np.where(moved, limit, rows[name])
        return after | {name: rows[name] * (0.6 if grows else 1.5) for name in RATIOS}

    return change


def run_of(rows: Rows, k: int) -> EvaluationRun:
    measures = {name: {"scored": len(values)} for name, values in rows.items()}
    return EvaluationRun(plan=RetrievePlan(k=k).as_dict(), settings={"cut": 10}, summary={"measures": measures})


def items_of(rows: Rows) -> dict[int, RunItem]:
    asked = Asked("answered", (), None, "", True)
    count = len(next(iter(rows.values())))
    return {
        place: RunItem(
            place, "?", "", 1.0, {name: scored(float(values[place])) for name, values in rows.items()}, asked, None
        )
        for place in range(count)
    }


def pair(rows: Rows, after: Rows, k: tuple[int, int], draws: Draws) -> PairFigures:
    base, other = run_of(rows, k[0]), run_of(after, k[1])
    return compare_pair(base, other, items_of(rows), items_of(after), ("", ""), draws)


def kinds(
    generator: np.random.Generator,
    count: int,
    change: Change,
    *,
    k: tuple[int, int] = (10, 10),
    looks: int = 1,
    searched: bool = False,
) -> Counter[str]:
    """What is said of PAIRS pairs; with several looks, whether any of a family of so many runs is called better."""
    draws, found = Draws(), Counter[str]()
    for _ in range(PAIRS if looks == 1 else PAIRS // looks):
        rows = ask(generator, count)
        if searched:
            rows = {name: rows[name] for name in ("hit@10", "recall@10", *RATIOS)}
        pairs = [pair(rows, change(generator, rows), k, draws) for _ in range(looks)]
        values = [each.decisive.primary.p if each.decisive.primary else 1.0 for each in pairs]
        verdicts = [judge(each.decisive, p, looks).kind for each, p in zip(pairs, holm(values), strict=True)]
        found["better" if "better" in verdicts else verdicts[0]] += 1
    return found


def share(found: Counter[str], *names: str) -> float:
    return sum(found[name] for name in names) / sum(found.values())


def main() -> int:
    generator = np.random.default_rng(20240716)
    print(
        f"{PAIRS} pairs a cell, correctness primary, guardrails and relevant effect as a set has them that states none"
    )
    print("questions   equal: better   worse | " + " | ".join(f"+{e:g} found  -{e:g} found" for e in EFFECTS))
    wins = []
    for count in SIZES:
        none = kinds(generator, count, equal)
        wins.append(share(none, "better"))
        cells = []
        for effect in EFFECTS:
            up, down = (kinds(generator, count, shifted(sign * effect)) for sign in (1, -1))
            cells.append(f"{100 * share(up, 'better'):>8.1f} % {100 * share(down, 'worse'):>10.1f} %")
        print(
            f"{count:>9} {100 * share(none, 'better'):>13.1f} % {100 * share(none, 'worse'):>5.1f} % | "
            + " | ".join(cells)
        )
    print("k alone, called better:")
    for count in SIZES:
        cells = []
        for before, after in ((5, 10), (12, 5)):
            for searched in (False, True):
                found = kinds(
                    generator, count, other_k(after > before, searched=searched), k=(before, after), searched=searched
                )
                wins.append(share(found, "better"))
                what = "searched" if searched else "answered"
                cells.append(f"k {before} to {after}, {what}: {100 * share(found, 'better'):.1f} %")
        print(f"{count:>9}   " + "   ".join(cells))
    print(f"any of {FAMILY} equal runs against one base called better:")
    for count in SIZES:
        found = kinds(generator, count, equal, looks=FAMILY)
        wins.append(share(found, "better"))
        print(f"{count:>9} {100 * share(found, 'better'):>6.1f} %")
    met = "met" if max(wins) <= TARGET else "missed"
    print(f"target false wins, most in any row: {100 * max(wins):.1f} %, at most {100 * TARGET:g} % wanted: {met}")
    return 0 if max(wins) <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
