"""One fault on one set-up, so many times: load, fault, recovery, verification; and the table of all of them."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.faults.fault_matrix.faults import Fault
from tests.faults.fault_matrix.full import Full
from tests.faults.fault_matrix.load import Load
from tests.faults.fault_matrix.setups import PATIENCE_S, Embedded, Setup
from tests.faults.fault_matrix.verify import ENDED, RUNNING, UNDER_WAY, Verdict, verify

SETUPS: dict[str, type[Setup]] = {"embedded": Embedded, "full": Full}
PAUSE_S = (1.0, 5.0)
LOOK_EVERY_S = 0.2


@dataclass
class Result:
    """cut_off: jobs that ran when the fault struck. answers_s, work_s: one per time, from the end of the fault."""

    fault: str
    setup: str
    times: int = 0
    cut_off: int = 0
    lost: int = 0
    doubled: int = 0
    hanging: int = 0
    checks: int = 0
    other: int = 0
    answers_s: list[float] = field(default_factory=list)
    work_s: list[float] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.hanging or self.checks or self.other)

    def add(self, verdict: Verdict) -> None:
        for name in ("lost", "doubled", "hanging", "checks", "other"):
            setattr(self, name, getattr(self, name) + len(getattr(verdict, name)))
        self.words += verdict.all()


def run(
    faults: Sequence[Fault], name: str, times: int, seed: int, searchers: int = 1, **options: str
) -> Iterator[Result]:
    """One result per fault. Faults with the same needs share a set-up, which a fault that left something wrong ends."""
    with ExitStack() as stack:
        setup, load = None, None
        for fault in faults:
            if setup is None or setup.needs != fault.needs:
                stack.close()
                setup = stack.enter_context(SETUPS[name](fault.needs, seed, **options))
                load = Load(setup, seed, searchers)
                stack.callback(load.stop)
                load.start()
            assert load is not None
            draw, result = random.Random(f"{seed} {fault.name} {name}"), Result(fault.name, name)
            load.statuses = result.statuses
            for _ in range(times):
                play(fault, setup, load, draw, result)
            yield result
            if not result.is_good:
                print(setup.tails(), file=sys.stderr)
                setup = None


def play(fault: Fault, setup: Setup, load: Load, draw: random.Random, result: Result, *, checks: bool = True) -> None:
    load.resume()
    time.sleep(draw.uniform(*PAUSE_S))
    deadline = time.monotonic() + 20
    while not (cut_off := setup.ask(RUNNING)) and time.monotonic() < deadline:
        time.sleep(0.02)
    waiting = [row[0] for row in setup.ask(UNDER_WAY)]
    wrong = fault.strike(setup, draw)
    result.times += 1
    result.cut_off += len(cut_off)
    recover(setup, load, waiting, result, wrong)
    if not load.pause():
        wrong.append(f"a request was under way for {PATIENCE_S:.0f} s more")
    verdict = verify(setup, load, checks=checks)
    verdict.other += wrong
    result.add(verdict)


def recover(setup: Setup, load: Load, waiting: list[str], result: Result, wrong: list[str]) -> None:
    """Until searches and answers are good again; and until what was under way has ended and a new upload is stored."""
    began = time.monotonic()
    answers_s = work_s = None
    while (answers_s is None or work_s is None) and time.monotonic() - began < PATIENCE_S:
        time.sleep(LOOK_EVERY_S)
        passed_s = time.monotonic() - began
        if answers_s is None and all(load.answered_at.get(kind, 0.0) > began for kind in ("search", "ask")):
            answers_s = passed_s
        if work_s is None and (probe := next((job for at, job in load.accepted_at if at > began), None)):
            if setup.ask(ENDED, [*waiting, probe]) == [(len(set(waiting)) + 1,)]:
                work_s = passed_s
    if answers_s is None:
        wrong.append(f"no good answer within {PATIENCE_S:.0f} s")
    if work_s is None:
        wrong.append(f"the work was not done within {PATIENCE_S:.0f} s")
    result.answers_s.append(answers_s or PATIENCE_S)
    result.work_s.append(work_s or PATIENCE_S)


HEAD = (
    f"{'fault':<17}{'set-up':<10}{'times':>6}{'cut off':>9}{'lost':>6}{'doubled':>9}{'hanging':>9}{'checks':>8}"
    f"{'other':>7}{'answers again, s':>18}{'all work done, s':>18}"
)


def row(result: Result) -> str:
    checks = f"{result.times - result.checks}/{result.times}" if result.checks else "ok"
    return (
        f"{result.fault:<17}{result.setup:<10}{result.times:>6}{result.cut_off:>9}{result.lost:>6}{result.doubled:>9}"
        f"{result.hanging:>9}{checks:>8}{result.other:>7}{spread(result.answers_s):>18}{spread(result.work_s):>18}"
    )


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} / {max(values):.1f}" if values else "-"


def statuses(result: Result) -> str:
    """What the load was answered; 0 is no answer."""
    kinds = sorted({kind for kind, _ in result.statuses})
    told = []
    for kind in kinds:
        counts = {status: count for (each, status), count in sorted(result.statuses.items()) if each == kind}
        told.append(f"{kind} " + ", ".join(f"{count} x {status or 'none'}" for status, count in counts.items()))
    return "; ".join(told)
