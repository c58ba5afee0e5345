"""RAGBench's own annotations through our TRACe: how many rows get the published scores.

`python -m tests.benchmarks.bench_trace` reads the validation rows of all seven sets and prints, for each set and
measure, how many rows agree to 1e-9 with the published column; completeness also over the rows with something relevant.
The rows that differ are listed.
"""

from __future__ import annotations

import sys

from tests.benchmarks.ragbench import SETS, read_rows
from tests.evaluation.ragbench_rows import PUBLISHED, row_scores

CLOSE = 1e-9
TARGETS = {"context_relevance": 1.0, "context_utilization": 1.0, "adherence": 1.0, "completeness": 0.999}


def main() -> int:
    names = list(TARGETS)
    print("set         rows " + "".join(f"{name:>22}" for name in names))
    agreed, counted, rows_count, different = dict.fromkeys(names, 0), dict.fromkeys(names, 0), 0, []
    for set_name in SETS:
        own, rows = dict.fromkeys(names, 0), list(read_rows(set_name))
        for row in rows:
            scores = row_scores(row)
            for name in names:
                value, published = scores[name].value, float(row[PUBLISHED[name]])
                same = value is not None and abs(value - published) <= CLOSE
                own[name] += same
                if name != "completeness" or row["all_relevant_sentence_keys"]:
                    agreed[name] += same
                    counted[name] += 1
                if not same:
                    different.append(f"{set_name} {row['id']} {name}: {value}, published {published}")
        rows_count += len(rows)
        print(f"{set_name:<11} {len(rows):>4} " + "".join(f"{own[name]:>22}" for name in names))
    for name in names:
        share = agreed[name] / counted[name]
        met = "met" if share >= TARGETS[name] else "missed"
        print(f"target {name}: {100 * share:.2f} % of {counted[name]} rows, {100 * TARGETS[name]:g} % wanted: {met}")
    print("\n".join(different) or f"No row of {rows_count} differs.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
