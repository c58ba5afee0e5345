"""Writes evaluation_app/runs/ragbench.json: how many rows of RAGBench have which score, set by set.

    python -m benchmarks.ragbench_share

The published columns of the validation rows, rounded to hundredths.
"""

from __future__ import annotations

import json

import benchmarks.without_database  # noqa: F401  (for its effect)
from benchmarks.ragbench import SETS, read_rows
from evaluation_app.runs.summaries import STEPS, TABLE
from tests.evaluation.ragbench_rows import PUBLISHED

SOURCE = "RAGBench (arXiv 2407.11005), CC BY 4.0, validation rows of seven sets, labelled by GPT-4"


def count_rows() -> dict[str, dict[str, list[int]]]:
    """measure -> set -> rows at 0.00, 0.01, ... 1.00. A row without a score is left out."""
    counts = {measure: {name: [0] * (STEPS + 1) for name in SETS} for measure in PUBLISHED}
    for name in SETS:
        for row in read_rows(name):
            for measure, column in PUBLISHED.items():
                if row[column] is not None:
                    counts[measure][name][round(min(max(float(row[column]), 0.0), 1.0) * STEPS)] += 1
    return counts


def main() -> None:
    counts = count_rows()
    lines = [
        f'    "{measure}": {{\n'
        + ",\n".join(f'      "{name}": {json.dumps(row, separators=(",", ":"))}' for name, row in sets.items())
        + "\n    }"
        for measure, sets in counts.items()
    ]
    text = f'{{\n  "source": {json.dumps(SOURCE)},\n  "measures": {{\n' + ",\n".join(lines) + "\n  }\n}\n"
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
