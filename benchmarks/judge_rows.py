"""Rows of RAGBench as the embedded judge measures them, with their labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.ragbench import SETS, read_rows
from evaluation_app.judges.features import Features, measure_case
from evaluation_app.judges.protocol import Case, texts_of
from ragd.models.embedding import LocalEmbedder
from retrieval_app.answers.extractive_answerer import WORD
from tests.evaluation.ragbench_rows import row_answer, row_context

BATCH = 2048

Labels = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """relevant, utilized, both: per sentence of the context; unsupported: per sentence of the answer. floor: the share
    of the answer's words that stand in the documents. published: the row of the data set."""

    set_name: str
    case: Case
    features: Features
    relevant: Labels
    utilized: Labels
    unsupported: Labels
    floor: float
    published: dict[str, Any]

    @property
    def both(self) -> Labels:
        return self.relevant & self.utilized

    @property
    def is_blank(self) -> Labels:
        """Per sentence of the answer."""
        return np.array([not sentence.text.strip() for sentence in self.case.answer], dtype=bool)

    @property
    def is_adherent(self) -> bool:
        return bool(self.published["adherence_score"])


def load_rows(
    vectors_file: Path | None = None, sets: Sequence[str] = SETS, split: str = "validation"
) -> list[LabelledRow]:
    """The rows that have a context, in the order of the sets and files.

    vectors_file: where vectors are kept from one call to the next (.npz); without it some four minutes go to embedding.
    """
    rows = [(name, row) for name in sets for row in read_rows(name, split)]
    cases = [(name, row, Case(row["question"], row_context(row), row_answer(row))) for name, row in rows]
    vectors = embed_all([text for *_, case in cases for text in texts_of(case)], vectors_file)
    return [_label(name, row, case, vectors) for name, row, case in cases if any(case.context)]


def embed_all(texts: Sequence[str], vectors_file: Path | None) -> dict[str, npt.NDArray[np.float32]]:
    kept: dict[str, npt.NDArray[np.float32]] = {}
    if vectors_file and vectors_file.exists():
        stored = np.load(vectors_file)
        kept = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))
    wanted = {text: _key(text) for text in dict.fromkeys(texts)}
    missing = sorted((text for text, key in wanted.items() if key not in kept), key=len)
    embedder = LocalEmbedder()
    for start in range(0, len(missing), BATCH):
        batch = missing[start : start + BATCH]
        kept |= {wanted[text]: vector for text, vector in zip(batch, _embed(embedder, batch), strict=True)}
        print(f"  {start + len(batch)} of {len(missing)} sentences embedded", flush=True)
    if vectors_file and missing:
        np.savez(vectors_file, keys=np.array(list(kept)), vectors=np.stack(list(kept.values())))
    return {text: kept[key] for text, key in wanted.items()}


def _embed(embedder: LocalEmbedder, texts: list[str]) -> Iterator[npt.NDArray[np.float32]]:
    return (np.asarray(vector, dtype=np.float32) for vector in embedder.embed(texts))


def _key(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _label(name: str, row: dict[str, Any], case: Case, vectors: dict[str, npt.NDArray[np.float32]]) -> LabelledRow:
    keys = [sentence.key for document in case.context for sentence in document]
    relevant, utilized = set(row["all_relevant_sentence_keys"]), set(row["all_utilized_sentence_keys"])
    unsupported = {key.strip(".") for key in row["unsupported_response_sentence_keys"]}  # some end in a full stop
    return LabelledRow(
        set_name=name,
        case=case,
        features=measure_case(case, vectors),
        relevant=np.array([key in relevant for key in keys], dtype=bool),
        utilized=np.array([key in utilized for key in keys], dtype=bool),
        unsupported=np.array([sentence.key.strip(".") in unsupported for sentence in case.answer], dtype=bool),
        floor=_overlap(row["documents"], row["response"]),
        published=row,
    )


def overlap(case: Case) -> float:
    """The share of the answer's words that stand in the context."""
    return _overlap([sentence.text for document in case.context for sentence in document], case.answer_text)


def _overlap(documents: Sequence[str], answer: str) -> float:
    known = {word for text in documents for word in _words(text)}
    words = _words(answer)
    return sum(word in known for word in words) / max(1, len(words))


def _words(text: str) -> list[str]:
    return [word.casefold() for word in WORD.findall(text)]
