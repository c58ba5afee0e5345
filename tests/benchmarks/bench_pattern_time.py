"""Searches for the text that costs most for each character: over every regular expression, the rules and readers.

Run: python -m tests.benchmarks.bench_pattern_time [SEED]

Every pattern that is compiled while the modules are imported (and every rule of ragd/security) is tried on texts that
repeat pieces of the pattern's own characters, with and without an end that fails, from every place of the text. Many
are asked only of a whole cell, a line or an attribute, which are short: what is steep here is to be looked at. For each
the processor seconds for a character are printed, with how they grow from 1,000 characters to 4,000: 1 is linear, 2
quadratic. Then the whole scan and the readers of text formats on the same pieces. A search ends after its seconds; what
was not tried is told.
"""

from __future__ import annotations

import importlib
import math
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tools.structure import module_name, product_files

SEARCH_S = 240.0
ONE_S = 2.0
SHORT, LONG = 1_000, 4_000
SHOWN = 15
LINEAR_TARGET = 1.5
PIECES = [
    "a",
    " ",
    "\n",
    "\t ",
    "a ",
    "1",
    "-",
    ".",
    "#",
    "[",
    "](",
    "<",
    "</",
    "<a ",
    "&",
    "```\n",
    "|",
    "|-",
    "> ",
    "* ",
    '"',
    "[INST]",
]
ENDS = ["", "\x00", "!", "\n"]


class OutOfTimeError(Exception):
    """One try took longer than its seconds."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def compiled_patterns() -> dict[str, tuple[str, re.Pattern[str]]]:
    """pattern -> (the first module that compiled it, compiled), of text, as all modules of the product are imported."""
    found: dict[str, tuple[str, re.Pattern[str]]] = {}
    real = re.compile

    def recording(pattern: Any, flags: Any = 0) -> Any:
        made = real(pattern, flags)
        module = sys._getframe(1).f_globals.get("__name__", "")
        if isinstance(made.pattern, str) and module.partition(".")[0] in ("ragd", "ragd_site", *APPS):
            found.setdefault(made.pattern, (module, made))
        return made

    re.compile = recording  # type: ignore[assignment]
    try:
        importlib.import_module("django").setup()
        for path in product_files():
            if "management" not in path.parts and module_name(path) not in STARTING:
                importlib.import_module(module_name(path))
    finally:
        re.compile = real
    return found


APPS = ("collections_app", "retrieval_app", "evaluation_app")
# they start a server when they are imported
STARTING = {"ragd_site.wsgi", "ragd_site.web", "ragd_site.worker"}


def texts(pattern: str, chance: random.Random) -> Iterator[tuple[str, str]]:
    """(piece, end) of texts: usual pieces, and pieces of the characters that the pattern itself is made of."""
    own = re.findall(r"[A-Za-z]{2,}|[^\w\s\\()\[\]{}?*+|^$]", pattern)[:60] or ["a"]
    made = [" ".join(chance.choices(own, k=chance.randint(1, 3))) + chance.choice(["", " ", "\n"]) for _ in range(8)]
    for piece in dict.fromkeys([*chance.sample(PIECES, 10), *made]):
        yield piece, chance.choice(ENDS)


def seconds_of(act: Callable[[str], object], text: str) -> float:
    """Of the processor; infinite where it was stopped."""
    began = time.process_time()
    try:
        with at_most(ONE_S):
            act(text)
    except OutOfTimeError:
        return math.inf
    except Exception:  # a reader refuses what is no document
        return time.process_time() - began
    return time.process_time() - began


def try_out(act: Callable[[str], object], piece: str, end: str) -> tuple[float, float]:
    """(seconds for a character of the long text, how they grow)."""
    short, long = (seconds_of(act, piece * (size // len(piece)) + end) for size in (SHORT, LONG))
    grown = math.log(long / short, LONG / SHORT) if short > 1e-6 and 0 < long < math.inf else 0.0
    return (long if math.isfinite(long) else ONE_S) / LONG, grown if math.isfinite(long) else 9.0


def all_matches(pattern: re.Pattern[str]) -> Callable[[str], object]:
    return lambda text: sum(1 for _ in pattern.finditer(text))


def readers() -> dict[str, Callable[[str], object]]:
    assembly = importlib.import_module("collections_app.parsing.assembly")
    kinds = importlib.import_module("collections_app.parsing.types")
    security = importlib.import_module("ragd.security")
    acts: dict[str, Callable[[str], object]] = {"the scan for orders and secrets": security.scan_once}
    for suffix in ("txt", "md", "html", "csv", "json", "xml", "rst", "eml", "vtt"):

        def read(text: str, name: str = f"a.{suffix}") -> object:
            return assembly.read_document(kinds.Source(text.encode(), name, "", kinds.ParseLimits()))

        acts[f"the reader of .{suffix}"] = read
    return acts


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    os.environ |= {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "RAGD_SECRET_KEY": "bench"}
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")
    patterns = compiled_patterns()
    acts = {f"{module}: {text[:60]!r}": all_matches(made) for text, (module, made) in patterns.items()} | readers()
    chance, until = random.Random(seed), time.monotonic() + SEARCH_S
    names = chance.sample(sorted(acts), len(acts))
    worst: dict[str, tuple[float, float, str]] = {}
    for name in names:
        if time.monotonic() > until:
            break
        for piece, end in texts(name, chance):
            cost, grown = try_out(acts[name], piece, end)
            worst[name] = max(worst.get(name, (0.0, 0.0, "")), (cost, grown, repr(piece + end)))
    print(f"{len(worst)} of {len(acts)} patterns, rules and readers tried, seed {seed}")
    print("  ns a character  growth  worst text, where")
    ranked = sorted(worst.items(), key=lambda item: item[1], reverse=True)
    for name, (cost, grown, text) in ranked[:SHOWN]:
        print(f"{cost * 1e9:16,.0f}  {grown:6.2f}  {text[:40]}  {name}")
    steep = [name for name, (cost, grown, _) in worst.items() if grown > LINEAR_TARGET and cost > 1e-6]
    print(f"steeper than linear and above 1,000 ns a character: {len(steep)} (target 0)")
    for name in steep:
        print(f"  {name}")


if __name__ == "__main__":
    main()
