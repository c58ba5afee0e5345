"""How well noise sensitivity tells that a text states a claim, against the support labels of RAGBench.

Run: python -m tests.benchmarks.bench_noise [--rows N]     (needs RAGD_DATA/ragbench, with pyarrow)

Claims are the answers' sentences that the labels (GPT-4's) call fully supported by sentences of the context. Of N
validation rows per set (the first with a claim): `states` is asked of each claim and its supporting sentences, where it
should say yes, and of the claim and as many sentences of the same context that support nothing of the answer, those
nearest to it in meaning, where it should say no. Printed for several limits; balanced accuracy is the mean of the two
shares. The labels are coarse (a sentence may support a part of a claim only), so that no limit reaches 1; there is no
target, the limits in use are chosen among the best rows.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation_app.scoring.statements import STATES, Limits, states
from ragd.models.embedding import LocalEmbedder
from tests.benchmarks.ragbench import SETS, read_rows
from tests.evaluation.ragbench_rows import row_answer, row_context

COSINES = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
WORDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True)
class Claim:
    set_name: str
    text: str
    supporting: tuple[str, ...]
    others: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=30)
    rows = parser.parse_args().rows
    claims = [claim for name in SETS for claim in read_claims(name, rows)]
    texts = list(dict.fromkeys(text for claim in claims for text in (claim.text, *claim.supporting, *claim.others)))
    made = LocalEmbedder().embed(texts)
    vectors = {text: np.asarray(vector, dtype=np.float32) for text, vector in zip(texts, made, strict=True)}
    pairs = [(claim, nearest(claim, vectors)) for claim in claims]
    print(f"{len(claims)} claims of {rows} rows per set, {len(texts)} sentences")
    print("cosine  words  supported told  unsupported told  balanced")
    found = {}
    in_use = (STATES.cosine, STATES.words)
    for cosine, words in itertools.product(COSINES, WORDS):
        found[cosine, words] = yes, no = measure(pairs, vectors, Limits(cosine, words))
        mark = "  in use" if (cosine, words) == in_use else ""
        print(f"{cosine:6.2f} {words:6.2f} {yes:15.3f} {no:17.3f} {(yes + no) / 2:9.3f}{mark}")
    best = max(found, key=lambda limits: sum(found[limits]))
    print(f"best: cosine {best[0]:g}, words {best[1]:g}; in use: cosine {in_use[0]:g}, words {in_use[1]:g}")
    for name in SETS:
        own = [pair for pair in pairs if pair[0].set_name == name]
        yes, no = measure(own, vectors, STATES)
        print(
            f"{name:12} {len(own):5} claims  supported {yes:.3f}  unsupported {no:.3f}  balanced {(yes + no) / 2:.3f}"
        )


def read_claims(name: str, rows: int) -> list[Claim]:
    claims: list[Claim] = []
    taken = 0
    for row in read_rows(name):
        found = list(_claims_of(name, row))
        claims += found
        taken += bool(found)
        if taken == rows:
            break
    return claims


def _claims_of(name: str, row: Mapping[str, Any]) -> list[Claim]:
    texts = {sentence.key: sentence.text for document in row_context(row) for sentence in document}
    answer = {sentence.key: sentence.text for sentence in row_answer(row)}
    named = {key for entry in row["sentence_support_information"] for key in entry["supporting_sentence_keys"] or ()}
    others = tuple(text for key, text in texts.items() if key not in named and text.strip())
    claims = []
    for entry in row["sentence_support_information"]:
        keys = [key for key in entry["supporting_sentence_keys"] or () if key in texts and texts[key].strip()]
        text = answer.get(entry["response_sentence_key"] or "", "")
        if keys and text.strip() and others and entry["fully_supported"] is not False:
            claims.append(Claim(name, text, tuple(dict.fromkeys(texts[key] for key in keys)), others))
    return claims


def nearest(claim: Claim, vectors: Mapping[str, Any]) -> tuple[str, ...]:
    """As many of the sentences that support nothing as support the claim, the nearest first."""
    ordered = sorted(claim.others, key=lambda text: -float(vectors[text] @ vectors[claim.text]))
    return tuple(ordered[: len(claim.supporting)])


def measure(
    pairs: list[tuple[Claim, tuple[str, ...]]], vectors: Mapping[str, Any], limits: Limits
) -> tuple[float, float]:
    """(share of claims that their supporting sentences state, share that the nearest others do not)."""
    yes = [states(claim.supporting, claim.text, vectors, limits) for claim, _ in pairs]
    no = [not states(others, claim.text, vectors, limits) for claim, others in pairs]
    return float(np.mean(yes)), float(np.mean(no))


if __name__ == "__main__":
    main()
