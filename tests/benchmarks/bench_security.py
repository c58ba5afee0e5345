"""What the rules for harmful texts find, what they find wrongly, and what looking costs.

Run: python -m tests.benchmarks.bench_security      (RAGD_DATA/scifact and cpp-docs-md.tar.gz for the false alarms)

Precision and recall count pairs of item and family on two labelled sets: tests/security/labelled.jsonl, with which the
rules were written, and tests/security/held_out.jsonl, written by somebody who did not know them and never read for
them. False alarms are counted on the harmless half of both and on two corpora of technical prose in which nobody
attacks anything: passages of 1,200 characters of the C++ reference and whole abstracts of SciFact. The cost is that of
the passages of one query: ten passages and a question, each seen for the first time.
"""

from __future__ import annotations

import json
import statistics
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from ragd.security import scan
from tests.benchmarks.injections import show_injections
from tests.benchmarks.server import need_data
from tests.security.labelled_sets import judge, read_set, table

PASSAGE_CHARS = 1_200
PASSAGES_PER_QUERY = 10
ALARMS_TARGET = 0.5  # per cent of passages
QUERY_TARGET_MS = 3.0


def passages() -> Iterator[tuple[str, str]]:
    """(corpus, passage)."""
    with tarfile.open(need_data("cpp-docs-md.tar.gz")) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and member.name.endswith(".md") else None
            text = file.read().decode("utf-8", "replace") if file else ""
            for start in range(0, len(text), PASSAGE_CHARS):
                yield "cpp-docs", text[start : start + PASSAGE_CHARS]
    with (need_data("scifact") / "corpus.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield "scifact", f"{row['title']}\n{' '.join([row['text']])}"


def show_sets() -> None:
    for name in ("labelled", "held_out"):
        items = read_set(name)
        harmless = sum(not item["labels"] for item in items)
        print(f"\n{name}: {len(items)} items, {harmless} harmless")
        result = judge(items)
        print("\n".join(table(result)))
        print(
            f"{name}: precision {result.overall.precision:.3f} (target 0.95), "
            f"recall {result.overall.recall:.3f} (target 0.90)"
        )


def show_corpora() -> None:
    total: Counter[str] = Counter()
    alarmed: Counter[str] = Counter()
    rules: Counter[tuple[str, str, str]] = Counter()
    took: list[float] = []
    for corpus, text in passages():
        began = time.perf_counter()
        found = scan(text)
        took.append((time.perf_counter() - began) * 1000)
        total[corpus] += 1
        alarmed[corpus] += bool(found)
        rules.update({(corpus, finding.family, finding.rule) for finding in found})
    print()
    for corpus in total:
        share = 100 * alarmed[corpus] / total[corpus]
        print(
            f"{corpus}: {alarmed[corpus]} of {total[corpus]} passages with a finding, {share:.2f} % "
            f"(target at most {ALARMS_TARGET} %)"
        )
    for (corpus, family, rule), count in rules.most_common():
        print(f"  {corpus} {family}.{rule}: {count} passages")
    show_cost(took)


def show_cost(took: Sequence[float]) -> None:
    groups = [sum(took[at : at + PASSAGES_PER_QUERY + 1]) for at in range(0, len(took), PASSAGES_PER_QUERY + 1)]
    cuts = statistics.quantiles(took, n=100)
    print(f"scan of one passage: median {statistics.median(took):.3f} ms, p99 {cuts[98]:.3f} ms")
    print(
        f"scan of a query's {PASSAGES_PER_QUERY} passages, seen for the first time: median "
        f"{statistics.median(groups):.2f} ms (target at most {QUERY_TARGET_MS:g} ms)"
    )


def main() -> None:
    show_sets()
    show_injections()
    show_corpora()


if __name__ == "__main__":
    main()
