"""How often follow-up questions become whole by the rules: cases they were made with, and cases held out.

A case passes when the rewritten question has every word that it needs and none that it must not have. Cases with
`never` alone, which are no follow-ups, must stay as they are. python -m tests.benchmarks.bench_follow_ups [--failed]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from retrieval_app.chats.follow_ups import Turn, read_words, rewrite

DATA = Path(__file__).resolve().parent.parent / "data"
SETS = {"tuned": "follow_ups_tuned.jsonl", "held out": "follow_ups_held_out.jsonl"}


@dataclass(frozen=True)
class Case:
    """One follow-up question with its history. needs, never: words in lower case."""

    language: str
    history: tuple[Turn, ...]
    question: str
    needs: frozenset[str]
    never: frozenset[str]

    @property
    def query(self) -> str:
        return rewrite(self.question, self.history).query

    @property
    def passes(self) -> bool:
        found = {token.low.removesuffix("'s") for token in read_words(self.query)}
        return found >= self.needs and not found & self.never


def read_cases(name: str) -> Iterator[Case]:
    for line in (DATA / SETS[name]).read_text("utf-8").splitlines():
        row = json.loads(line)
        history = tuple(Turn(query, answer) for query, answer in row["history"])
        yield Case(row["language"], history, row["question"], frozenset(row["needs"]), frozenset(row["never"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failed", choices=SETS, help="print the cases of this set that fail")
    chosen = parser.parse_args()
    for name in SETS:
        cases = list(read_cases(name))
        totals, passed = Counter(case.language for case in cases), Counter(c.language for c in cases if c.passes)
        whole = sum(case.needs <= {word.low for word in read_words(case.question)} for case in cases)
        shares = ", ".join(f"{language} {passed[language]} of {totals[language]}" for language in sorted(totals))
        print(f"{name}: {sum(passed.values())} of {len(cases)} ({shares}); unchanged, {whole} would pass")
    if chosen.failed:
        for case in read_cases(chosen.failed):
            if not case.passes:
                print(f"  {case.history[-1].query} | {case.question} -> {case.query}")


if __name__ == "__main__":
    main()
