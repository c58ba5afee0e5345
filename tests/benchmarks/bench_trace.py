"""RAGBench's own annotations through our TRACe: how many rows get the published scores.

`python -m tests.benchmarks.bench_trace` reads the validation rows of all seven sets and prints, for each set and
measure, how many rows agree to 1e-9 with the published column; completeness also over the rows with something relevant.
The rows that differ are listed. Then the figures that judges give: of ANSWERS answers how many have, in all five
figures, what is counted here over the marks that are shown; by the embedded judge on RAGBench, and by the judge that
asks a model, which a fake server answers. --vectors keeps the embeddings in an .npz from one call to the next.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluation_app.judges.embedded_judge import EmbeddedJudge
from evaluation_app.judges.protocol import Case, Judgement
from tests.benchmarks.bench_llm_judge import scored_judgements
from tests.benchmarks.judge_rows import KeptEmbedder
from tests.benchmarks.ragbench import SETS, read_rows
from tests.evaluation.ragbench_rows import PUBLISHED, row_answer, row_context, row_scores

CLOSE = 1e-9
ANSWERS = 300
TARGETS = {"context_relevance": 1.0, "context_utilization": 1.0, "adherence": 1.0, "completeness": 0.999}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path)
    vectors_file = parser.parse_args().vectors
    print_published()
    print()
    cases = _spread_cases()
    print_marks("embedded judge", cases, EmbeddedJudge(KeptEmbedder(vectors_file)).judge_many(cases))
    pairs = scored_judgements(ANSWERS)
    print_marks("judge that asks a model", [case for case, _ in pairs], [judged for _, judged in pairs])
    return 0


def print_published() -> None:
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


def print_marks(name: str, cases: Sequence[Case], judgements: Sequence[Judgement]) -> None:
    figures, agreed, same_answers = 0, 0, 0
    for case, judged in zip(cases, judgements, strict=True):
        assert judged.annotation is not None
        counted = count_marks(case, judged.annotation.as_dict())
        compared = [
            abs(value - counted[measure]) <= CLOSE
            for measure in counted
            if (value := judged.scores[measure].value) is not None
        ]
        figures += len(compared)
        agreed += sum(compared)
        same_answers += all(compared)
    met = "met" if same_answers == len(cases) else "missed"
    print(
        f"{name}: {same_answers} of {len(cases)} answers have the figures of the marks that are shown "
        f"({agreed} of {figures} figures), 100 % wanted: {met}"
    )


def count_marks(case: Case, marks: dict[str, Any]) -> dict[str, float]:
    """TRACe in words and faithfulness, counted from what is stored of an annotation."""
    words = {sentence.key: len(sentence.text.split()) for document in case.context for sentence in document}
    relevant, utilized = set(marks["relevant_keys"]), set(marks["utilized_keys"])
    total, requested = sum(words.values()), sum(words[key] for key in relevant)
    both = sum(words[key] for key in relevant & utilized)
    supported = [entry["fully_supported"] and bool(entry["supporting_keys"]) for entry in marks["support"]]
    return {
        "context_relevance": requested / total,
        "context_utilization": sum(words[key] for key in utilized) / total,
        "completeness": both / requested if requested else 1.0,
        "adherence": float(all(supported)),
        "faithfulness": sum(supported) / len(supported),
    }


def _spread_cases() -> list[Case]:
    """ANSWERS answers with context, spread evenly over all sets."""

    def cases() -> Iterator[Case]:
        for name in SETS:
            for row in read_rows(name):
                yield Case(row["question"], row_context(row), row_answer(row))

    kept = [case for case in cases() if any(case.context) and case.answer_text.strip()]
    return [kept[place * len(kept) // ANSWERS] for place in range(ANSWERS)]


if __name__ == "__main__":
    sys.exit(main())
