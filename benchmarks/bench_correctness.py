"""How far right answers are separated from wrong, unsupported and declined ones, where the truth is known.

Run: python -m benchmarks.bench_correctness [--cases N] [--tuned] [--written]     (RAGD_DATA: ragbench, scifact)

Answers are made by rules (`correctness_rows`) from N cases of each of seven sets of RAGBench, 3 N of SciFact, and the
questions of the sample. The limits of `statements` were chosen on the even rows of RAGBench's validation split and of
SciFact's supported claims (`--tuned` shows those); what is reported are the odd rows, and the sample, which no limit
was chosen on.

First the answers that people wrote (`written_answers`), part by part: the share of right answers below 0.5, that of
wrong ones from 0.5 on, and the mean score of both groups. No rule was made on the untuned part, the last one.

With expected answers: AUROC of `correctness` for right answers against all others, and the share of right answers that
fail by it. Without: the same for the failure flag (`failures` of the modes that are found) of a run that the embedded
judge judges, whose questions expect documents alone. Intervals are 95 %, by resampling answers. No language model.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import benchmarks.without_database  # noqa: F401  (for its effect)
from benchmarks.correctness_rows import KINDS, KnownAnswer, known_answers
from benchmarks.written_answers import PARTS, UNTUNED, read_answers
from evaluation_app.golden.questions import Golden
from evaluation_app.judges.protocol import Case, is_refusal
from evaluation_app.measures.catalogue import failures
from evaluation_app.measures.scores import Score, scored
from evaluation_app.measures.statistics import auroc
from evaluation_app.scoring.contributions import sentences_of
from evaluation_app.scoring.correctness import measure_correctness
from evaluation_app.scoring.modes import find_modes
from evaluation_app.scoring.scorer import stated_share
from ragd.models.embedding import CachingEmbedder, LocalEmbedder

CASES = 20
RESAMPLES = 1000
SEED = 7
TARGET, RED_TARGET = 0.85, 0.05
RIGHT_FROM, WRITTEN_TARGETS = 0.5, {True: 0.01, False: 0.03}


@dataclass(frozen=True, slots=True)
class Decided:
    """What is decided of one answer: shapes as of a scored run."""

    known: KnownAnswer
    scores: Mapping[str, Score]
    outcome: str
    fails_with: bool
    fails_without: bool
    context: Sequence[Mapping[str, Any]] = ()
    annotation: Mapping[str, Any] = field(default_factory=dict)
    contributions: Sequence[Mapping[str, Any]] = ()


def decide(known: KnownAnswer, embedder: CachingEmbedder) -> Decided:
    """By the functions that score evaluation runs."""
    case = Case.of(known.case.question, known.case.context, known.text)
    outcome = "abstained" if is_refusal(case) else "answered"
    answer = sentences_of(case.answer)
    context = [{"key": f"{number}#0", "sentences": sentences_of(each)} for number, each in enumerate(case.context)]
    expecting = Golden(known.case.question, expected_doc_ids=("0",), expected_answer=known.case.expected)
    silent = Golden(known.case.question, expected_doc_ids=("0",))
    correctness = measure_correctness(answer, outcome, expecting, embedder).score
    stated = stated_share(answer, context, known.case.question, embedder) if outcome == "answered" else scored(0.0)
    expected = Decided(known, {"correctness": correctness}, outcome, fails_with=False, fails_without=False)
    rules = Decided(known, {"stated": stated}, outcome, fails_with=False, fails_without=False)
    return Decided(
        known,
        {"correctness": correctness, "stated": stated},
        outcome,
        fails_with=bool(failures(find_modes(expected, expecting, {}, judge="none"))),
        fails_without=bool(failures(find_modes(rules, silent, {}, judge="embedded"))),
    )


def with_interval(right: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """(AUROC, low, high)."""
    generator, first, second = np.random.default_rng(SEED), np.asarray(right), np.asarray(others)
    is_right = [True] * len(first) + [False] * len(second)

    def measure(*parts: np.ndarray) -> float:
        return auroc(np.concatenate(parts), is_right) or 0.0

    drawn = [
        measure(generator.choice(first, len(first)), generator.choice(second, len(second))) for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return measure(first, second), float(low), float(high)


def share_with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    generator, found = np.random.default_rng(SEED), np.asarray(values, dtype=float)
    low, high = np.quantile([generator.choice(found, len(found)).mean() for _ in range(RESAMPLES)], [0.025, 0.975])
    return float(found.mean()), float(low), float(high)


def show(decided: Sequence[Decided]) -> None:
    right = [item for item in decided if item.known.kind == "right"]
    others = [item for item in decided if item.known.kind != "right"]
    answered = [item for item in others if item.known.kind != "declined"]

    def line(name: str, value: Any, against: Sequence[Decided], target: str = "") -> None:
        figure, low, high = with_interval([value(item) for item in right], [value(item) for item in against])
        print(f"{name:66} {figure:.3f} [{low:.3f}, {high:.3f}]{target}")

    def red(name: str, values: Sequence[bool]) -> None:
        figure, low, high = share_with_interval(values)
        print(f"{name:66} {figure:.3f} [{low:.3f}, {high:.3f}]  target at most {RED_TARGET}")

    goal = f"  target at least {TARGET}"
    print("with expected answers")
    line("AUROC of correctness, right against all others", lambda item: item.scores["correctness"].value, others, goal)
    line("AUROC of correctness, declined left out", lambda item: item.scores["correctness"].value, answered)
    line("AUROC of the failure flag", lambda item: float(not item.fails_with), others)
    red("share of right answers that fail (red)", [item.fails_with for item in right])
    print("without expected answers")
    line(
        "AUROC of the failure flag, right against all others", lambda item: float(not item.fails_without), others, goal
    )
    line("AUROC of the failure flag, declined left out", lambda item: float(not item.fails_without), answered)
    line("AUROC of `stated`", lambda item: item.scores["stated"].value, others)
    red("share of right answers that fail (red)", [item.fails_without for item in right])


def show_kinds(decided: Sequence[Decided]) -> None:
    groups: dict[tuple[str, str], list[Decided]] = defaultdict(list)
    for item in decided:
        groups[item.known.kind, item.known.how].append(item)
    for item in decided:
        groups[item.known.case.source, item.known.kind].append(item)
    print(f"{'':14} {'':18} {'count':>6} {'correctness':>12} {'fail with':>10} {'without':>9}")
    for (name, part), items in groups.items():
        values = [item.scores["correctness"].value or 0.0 for item in items]
        fails = [np.mean([getattr(item, name) for item in items]) for name in ("fails_with", "fails_without")]
        print(f"{name:14} {part:18} {len(items):6} {np.mean(values):12.3f} {fails[0]:10.3f} {fails[1]:9.3f}")


def show_written(embedder: CachingEmbedder, *, verbose: bool) -> None:
    """verbose: with every answer that is on the wrong side, besides those of the untuned part."""
    for part in PARTS:
        values: dict[bool, list[float]] = {True: [], False: []}
        for item in read_answers(part):
            case = Case.of(item.question, [item.context], item.text)
            outcome = "abstained" if is_refusal(case) else "answered"
            golden = Golden(item.question, expected_answer=item.expected)
            score = measure_correctness(sentences_of(case.answer), outcome, golden, embedder).score.value or 0.0
            values[item.is_right].append(score)
            if verbose and part != UNTUNED and item.is_right != (score >= RIGHT_FROM):
                print(f"{score:.2f} {item.question} = {item.expected} | {item.text}")
        name = f"{part}, untuned" if part == UNTUNED else part
        print(f"written answers, {name}: {len(values[True])} right, {len(values[False])} wrong")
        for is_right, name in ((True, "right answers below 0.5"), (False, "wrong answers from 0.5 on")):
            missed = [(score >= RIGHT_FROM) != is_right for score in values[is_right]]
            share, low, high = share_with_interval(missed)
            target = WRITTEN_TARGETS[is_right]
            print(f"{name:66} {share:.3f} [{low:.3f}, {high:.3f}]  target at most {target}")
        for is_right, name in ((True, "mean score of right answers"), (False, "mean score of wrong answers")):
            mean, low, high = share_with_interval(values[is_right])
            print(f"{name:66} {mean:.3f} [{low:.3f}, {high:.3f}]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--written", action="store_true", help="the written answers alone, with what is missed")
    options = parser.parse_args()
    embedder = CachingEmbedder(LocalEmbedder())
    show_written(embedder, verbose=options.written)
    if options.written:
        return
    known = known_answers("tuned" if options.tuned else "reported", options.cases)
    counts = ", ".join(f"{sum(item.kind == kind for item in known)} {kind}" for kind in KINDS)
    print(f"{len(known)} answers of {len({item.case.source for item in known})} sources: {counts}", flush=True)
    decided = [decide(item, embedder) for item in known]
    show(decided)
    show_kinds(decided)


if __name__ == "__main__":
    main()
