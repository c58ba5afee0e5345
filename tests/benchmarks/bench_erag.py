"""How well per-document labels foretell the whole answer: eRAG beside relevance judgements, on BEIR SciFact.

Run: python -m tests.benchmarks.bench_erag [CLAIMS]     (the first 100; needs RAGD_DATA/scifact)

Claims of the test split that have annotated evidence are asked of a collection of the documents that are judged for
them and OTHERS more, by a fixed draw. The SOURCES_READ best chunks by cosine are the retrieved list. The extractive
answerer answers from the whole list, and from each chunk alone. Nothing is fitted and nothing is stored; no database is
needed.

downstream  F1 between the sentences that an answer quotes and the annotated evidence sentences of the claim.
tau         Kendall's tau-b over the claims, between the labels of a list, aggregated, and the downstream figure of the
            answer from the whole list, with a 95 % bootstrap interval over claims. The higher, the better do labels of
            single documents tell which lists lead to good answers.

Labels: the downstream figure of each chunk alone ("eRAG, F1"); whether that answer quotes any evidence ("eRAG, hit");
the F1 of words between that answer and the text of the evidence, as evaluation runs label ("eRAG, words"); and whether
the chunk's document is judged relevant ("judgements"). Continuous labels have only precision and success. The answerer
may abstain or not: with its threshold an abstention quotes nothing. Both are printed. There is no target.

The data names evidence by the place of a sentence in its abstract, and abstracts are one text here: sentences are
found by the splitter of the library. Claims whose evidence lies behind the last sentence found are left out, and
counted.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import django
import numpy as np

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")
os.environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")  # nothing is read from one
os.environ.setdefault("RAGD_SECRET_KEY", "benchmark")
django.setup()

from evaluation_app.measures import downstream  # noqa: E402
from evaluation_app.measures.downstream import f1 as words_f1  # noqa: E402
from evaluation_app.measures.scores import Score  # noqa: E402
from evaluation_app.measures.statistics import kendall_tau  # noqa: E402
from evaluation_app.scoring.cases import without_markers  # noqa: E402
from ragd import Candidate  # noqa: E402
from ragd.models.caching_embedder import CachingEmbedder  # noqa: E402
from ragd.models.embedding import LocalEmbedder  # noqa: E402
from ragd.text.chunking import split_sentences  # noqa: E402
from retrieval_app.answerers.extractive_answerer import EVIDENCE_MIN, SOURCES_READ, ExtractiveAnswerer, read_sentences  # noqa: E402
from retrieval_app.answerers.protocol import Draft  # noqa: E402
from tests.benchmarks.bench_answering import embed_passages, find  # noqa: E402
from tests.benchmarks.scifact import SciFact, load_scifact  # noqa: E402
from tests.benchmarks.server import need_data  # noqa: E402

CLAIMS = 100
OTHERS = 100
RESAMPLES = 500
SEED = 7
LABELS = ("eRAG, F1", "eRAG, hit", "eRAG, words", "judgements")
Place = tuple[str, int]  # a document and one of its sentences, from 0


@dataclass(frozen=True, slots=True)
class Claim:
    text: str
    evidence: frozenset[Place]
    expected: str
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class Measured:
    """whole: of the answer from the whole list. labels: name -> label per retrieved chunk, by rank."""

    whole: float
    abstained: bool
    labels: Mapping[str, Sequence[float]]


class Texts:
    """The documents and where their sentences stand."""

    def __init__(self, data: SciFact) -> None:
        self.text = {key: text for key, _, text in data.documents}
        self._spans: dict[str, list[tuple[int, int]]] = {}

    def spans(self, doc_id: str) -> list[tuple[int, int]]:
        if doc_id not in self._spans:
            self._spans[doc_id] = list(split_sentences(self.text[doc_id]))
        return self._spans[doc_id]

    def places(self, draft: Draft) -> frozenset[Place]:
        """The sentences that the answer quotes: those in which its quotations begin. None for an abstention."""
        found = set()
        for citation in () if draft.abstained else draft.checked.citations:
            starts = [place for place, (start, _) in enumerate(self.spans(citation.doc_id)) if start <= citation.start]
            found.add((citation.doc_id, max(starts, default=0)))
        return frozenset(found)


def read_claims(data: SciFact, texts: Texts) -> tuple[list[Claim], int]:
    """The claims with evidence in order of their ids, and how many were left out."""
    evidence: dict[str, set[Place]] = {}
    with (need_data("scifact") / "claims_evidence.jsonl").open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            places = {(row["doc_id"], place) for place in row["sentences"]}
            if places and str(row["claim_id"]) in data.queries:
                evidence.setdefault(str(row["claim_id"]), set()).update(places)
    claims, left_out = [], 0
    for key in sorted(evidence, key=int):
        if any(place >= len(texts.spans(doc_id)) for doc_id, place in evidence[key]):
            left_out += 1
            continue
        said = [texts.text[doc_id][slice(*texts.spans(doc_id)[place])] for doc_id, place in sorted(evidence[key])]
        relevant = frozenset(doc_id for doc_id, grade in data.judged[key].items() if grade > 0)
        claims.append(Claim(data.queries[key], frozenset(evidence[key]), " ".join(said), relevant))
    return claims, left_out


def choose_documents(data: SciFact, claims: Sequence[Claim]) -> list[tuple[str, str, str]]:
    wanted = {doc_id for claim in claims for doc_id in claim.relevant}
    others = [document for document in data.documents if document[0] not in wanted]
    drawn = random.Random(SEED).sample(others, OTHERS)
    return [document for document in data.documents if document[0] in wanted] + drawn


def sentence_f1(quoted: frozenset[Place], evidence: frozenset[Place]) -> float:
    return 2 * len(quoted & evidence) / (len(quoted) + len(evidence))


def measure(answerer: ExtractiveAnswerer, claim: Claim, sources: Sequence[Candidate], texts: Texts) -> Measured:
    whole = answerer.answer(claim.text, sources)
    alone = [answerer.answer(claim.text, [source]) for source in sources]
    places = [texts.places(draft) for draft in alone]
    return Measured(
        sentence_f1(texts.places(whole), claim.evidence),
        whole.abstained,
        {
            "eRAG, F1": [sentence_f1(quoted, claim.evidence) for quoted in places],
            "eRAG, hit": [float(bool(quoted & claim.evidence)) for quoted in places],
            "eRAG, words": [worth(draft, claim.expected) for draft in alone],
            "judgements": [float(source.doc_id in claim.relevant) for source in sources],
        },
    )


def worth(draft: Draft, expected: str) -> float:
    """The label that an evaluation run gives by F1 of words."""
    if draft.abstained:
        return 0.0
    citations = [citation.as_dict() for citation in draft.checked.citations]
    return value_of(words_f1(without_markers(draft.checked.answer, citations)[0], [expected]))


def value_of(score: Score) -> float:
    assert score.value is not None, score.reason
    return score.value


def interval(labels: Sequence[float], whole: Sequence[float]) -> tuple[float, float] | None:
    """None where a draw has no tau: one of the sides never changes in it."""
    generator = np.random.default_rng(SEED)
    taus = []
    for _ in range(RESAMPLES):
        places = generator.integers(0, len(whole), len(whole))
        tau = kendall_tau([labels[place] for place in places], [whole[place] for place in places])
        if tau is None:
            return None
        taus.append(tau)
    low, high = np.quantile(taus, [0.025, 0.975])
    return float(low), float(high)


def print_taus(measured: Sequence[Measured]) -> None:
    whole = [item.whole for item in measured]
    print(f"{'labels':14} {'aggregate':10} {'mean':>6} {'tau':>7}  95 % interval")
    for name in LABELS:
        for aggregate in downstream.AGGREGATES:
            figures = [value_of(downstream.aggregate(item.labels[name], aggregate)) for item in measured]
            tau, reach = kendall_tau(figures, whole), interval(figures, whole)
            told = f"{reach[0]:.3f} to {reach[1]:.3f}" if reach else "-"
            print(f"{name:14} {aggregate:10} {np.mean(figures):6.3f} {'-' if tau is None else f'{tau:7.3f}'}  {told}")


def main() -> None:
    data = load_scifact()
    texts = Texts(data)
    claims, left_out = read_claims(data, texts)
    claims = claims[: int(sys.argv[1]) if len(sys.argv) > 1 else CLAIMS]
    embedder = LocalEmbedder()
    passages = embed_passages(embedder, choose_documents(data, claims))
    print(
        f"{len(claims)} claims with evidence ({left_out} left out: their evidence lies behind the last sentence), "
        f"{len(passages.candidates)} chunks, the first {SOURCES_READ} of each list",
        flush=True,
    )
    remembering = CachingEmbedder(embedder)
    lists = [find(embedder, claim.text, passages) for claim in claims]
    sentences = {item.text for sources in lists for item in read_sentences(sources)}
    remembering.embed(sorted(sentences, key=len))  # all at once: one by one they take several times as long
    for least in (EVIDENCE_MIN, 0.0):
        answerer = ExtractiveAnswerer(remembering, evidence_min=least)
        measured = [measure(answerer, claim, sources, texts) for claim, sources in zip(claims, lists, strict=True)]
        abstained = sum(item.abstained for item in measured)
        print(
            f"\nThe answerer {'abstains below ' + format(least, '.2f') if least else 'never abstains'}: "
            f"{abstained} abstentions, mean F1 of the whole answer {np.mean([item.whole for item in measured]):.3f}"
        )
        print_taus(measured)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
