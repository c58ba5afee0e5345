"""Contradictions found by rules: precision and recall on made pairs, and what is found in the sample's documentation.

Run: python -m tests.benchmarks.bench_contradictions [--shown 12]

The pairs are those of `tests.benchmarks.contradiction_pairs`; the rules were settled on the development set. Intervals
are of 95 % (Wilson). The sample has no labels: the count and the likeliest ones are printed to be looked at.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from pathlib import Path

import ragd
from collections_app.domain.claims import find_disagreements, read_claims
from ragd.types import ChunkPolicy
from tests.benchmarks.contradiction_pairs import DEVELOPMENT, HELD_OUT, Pair, make_pairs

ROOT = Path(__file__).resolve().parents[2]
PRECISION_TARGET = 0.9
SEEDS = range(5)


def wilson(hits: int, total: int) -> str:
    if not total:
        return "-"
    share, z = hits / total, 1.96
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return f"{share:.3f} [{max(0, middle - half):.3f} {min(1, middle + half):.3f}]"


def judge(pairs: list[Pair]) -> tuple[int, int, int, Counter[str]]:
    """(right ones found, wrong ones found, right ones that there are, found or missed by kind)."""
    claims = [
        claim
        for number, pair in enumerate(pairs)
        for side, text in (("a", pair.first), ("b", pair.second))
        for claim in read_claims((f"{number:03}{side}", 0), text)
    ]
    kinds: Counter[str] = Counter()
    right = wrong = 0
    found: set[int] = set()
    for each in find_disagreements(claims):
        one, other = (int(place[0][:3]) for place in (each.first.place, each.second.place))
        if one == other and pairs[one].disagree:
            right += one not in found
            found.add(one)
        else:
            wrong += 1
            kinds[f"wrong: {pairs[one].kind}" if one == other else "wrong: two pairs"] += 1
    for number, pair in enumerate(pairs):
        if pair.disagree and number not in found:
            kinds[f"missed: {pair.kind}"] += 1
    return right, wrong, sum(pair.disagree for pair in pairs), kinds


def look_at_sample(shown: int) -> None:
    claims = []
    began = time.perf_counter()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for chunk in ragd.chunk(path.read_text(), ChunkPolicy(target_tokens=200, overlap_tokens=0)):
            claims += read_claims((path.name, chunk.chunk_index), chunk.content)
    found = find_disagreements(claims)
    kinds = Counter(each.kind for each in found)
    took = time.perf_counter() - began
    print(f"sample: {len(claims):,} claims, {len(found)} disagreements {dict(kinds)}, {took:.1f} s")
    for each in found[:shown]:
        print(f"  {each.kind} {each.score:.2f} {each.said}")
        for claim in (each.first, each.second):
            print(f"    {claim.place[0]}#{claim.place[1]}: {' '.join(claim.text.split())[:220]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shown", type=int, default=12)
    options = parser.parse_args()
    for name, templates in (("development", DEVELOPMENT), ("held out", HELD_OUT)):
        right = wrong = total = 0
        kinds: Counter[str] = Counter()
        for seed in SEEDS:
            one, two, three, four = judge(make_pairs(templates, seed))
            right, wrong, total, kinds = right + one, wrong + two, total + three, kinds + four
        aim = f" (target: at least {PRECISION_TARGET})" if name == "held out" else ""
        print(f"{name:<12} precision {wilson(right, right + wrong)}{aim}  recall {wilson(right, total)}  {dict(kinds)}")
    look_at_sample(options.shown)


if __name__ == "__main__":
    main()
