"""How long a bake-off takes, and whether the winner over a sample is the winner over the whole collection.

Run: python -m tests.benchmarks.bench_bake_off [CHUNKS] [SAMPLE]      (20000 4000)

A server of its own with about CHUNKS chunks of 80 words: abstracts of BEIR SciFact, expected ones first, then pages of
the Microsoft C++ documentation, among which nothing is expected. The model in use is one of hashed words (64
dimensions, an endpoint on the loopback); all-MiniLM-L6-v2, hashed words of 256 dimensions and the model in use with a
16-bit index are tried against it, on 150 training questions of SciFact, over a sample of SAMPLE chunks and over the
whole. Printed is each ranking with its seconds. Most of the time is embedding by all-MiniLM-L6-v2.
"""

from __future__ import annotations

import sys
import tarfile
import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.scifact import JsonClient, in_threads, load_scifact
from tests.benchmarks.server import Server, need_data, running_server
from tests.fakes.openai_server import OpenAIServer

QUESTIONS = 150
WORDS = 80  # of a chunk
NAME = "papers"
HASHED = "text-embedding-3-small"
MODELS = [
    {"embed_model": "all-MiniLM-L6-v2"},
    {"embed_model": HASHED, "embed_dims": 256},
    {"embed_model": HASHED, "embed_dims": 64, "vector_type": "halfvec"},
]


def main() -> None:
    given = [int(text) for text in sys.argv[1:3]]
    chunks, sample = given + [20_000, 4_000][len(given) :]
    fake = OpenAIServer(dims=64).start()
    with running_server(
        EMBED_BASE_URL=fake.base_url,
        EMBED_API_KEY=fake.api_key or "none",
        RAGD_EMBED_MODEL=HASHED,
        RAGD_EMBED_DIMS="64",
    ) as server:
        policy = {"kind": "words", "target_tokens": WORDS, "overlap_tokens": 0}
        server.call("POST", "/v1/collections", {"name": NAME, "chunk_policy": policy})
        fill(server, chunks)
        stored = server.call("GET", f"/v1/collections/{NAME}/statistics")
        print(f"{stored['documents']} documents, {stored['chunks']} chunks", flush=True)
        over_sample = run(server, sample)
        over_whole = run(server, 50_000)
        same = name_of(over_sample["winner"]) == name_of(over_whole["winner"])
        print(f"\nthe winner of the sample is {'' if same else 'NOT '}the winner of the whole")
        orders = [[name_of(each) for each in seen["standings"]] for seen in (over_sample, over_whole)]
        print(f"the order of all models is {'the same' if orders[0] == orders[1] else 'another'}")
    fake.stop()


def fill(server: Server, chunks: int) -> None:
    def put(client: JsonClient, document: tuple[str, str, str]) -> None:
        doc_id, title, text = document
        client.call("PUT", f"/v1/collections/{NAME}/documents/{doc_id}", {"title": title, "content": text})

    asked = questions()
    first = {doc_id for doc_ids in asked.values() for doc_id in doc_ids}
    list(in_threads(server, put, list(documents(chunks, first)), 2))
    server.call("POST", "/v1/golden-sets", {"name": NAME, "collection": NAME})
    for question, expected in asked.items():
        body = {"question": question, "expected_doc_ids": expected}
        server.call("POST", f"/v1/golden-sets/{NAME}/questions", body)


def questions() -> dict[str, list[str]]:
    """Text -> ids of the expected abstracts."""
    data = load_scifact("train")
    return {data.queries[query]: sorted(data.judged[query]) for query in sorted(data.queries)[:QUESTIONS]}


def documents(chunks: int, first: set[str]) -> Iterator[tuple[str, str, str]]:
    """About so many chunks of WORDS words, those of the documents of these ids before others."""
    made = 0
    for document in sorted(load_scifact("train").documents, key=lambda document: document[0] not in first):
        made += -(-len(document[2].split()) // WORDS)
        yield document
        if made >= chunks:
            return
    with tarfile.open(need_data("cpp-docs-md.tar.gz")) as archive:
        for number, member in enumerate(archive):
            file = archive.extractfile(member) if member.name.endswith(".md") else None
            if file is None:
                continue
            text = file.read().decode("utf-8", "replace")
            made += -(-len(text.split()) // WORDS)
            if text.strip():
                yield f"cpp-{number}", "", text
            if made >= chunks:
                return


def run(server: Server, sample: int) -> dict[str, Any]:
    """The bake-off, as it is when it has ended."""
    began = time.monotonic()
    body = {"models": MODELS, "golden_set": NAME, "sample": sample}
    started = server.call("POST", f"/v1/collections/{NAME}/bake-offs", body)
    while (seen := server.call("GET", f"/v1/bake-offs/{started['id']}"))["state"] == "running":
        time.sleep(1)
    took = time.monotonic() - began
    if seen["state"] != "succeeded":
        sys.exit(f"the bake-off {seen['state']}: {seen['error']}")
    print(f"\nsample of {sample} chunks, {seen['documents']} documents, {seen['questions']} questions: {took:.0f} s")
    print(
        f"{'model':24} {'dims':>5} {'index':>8} {'nDCG@10':>22} {'gain':>8} {'p':>7} "
        f"{'weights':>11} {'ms/chunk':>9} {'MB':>7}"
    )
    for each in seen["standings"]:
        ndcg, gain = each["ndcg"], each["gain"]
        print(
            f"{each['embed_model']:24} {each['embed_dims']:>5} {each['vector_type']:>8} "
            f"{ndcg['mean']:>6.3f} [{ndcg['low']:.3f}, {ndcg['high']:.3f}] "
            f"{gain['mean'] if gain else 0:>+8.3f} {each['p'] if gain else 1:>7.3f} "
            f"{each['weights']['vector']:>5g} : {each['weights']['lexical']:<5g} {each['ms_per_chunk']:>7.2f} "
            f"{each['index_bytes'] / 1e6:>7.1f}"
        )
    print(f"winner: {name_of(seen['winner'])}", flush=True)
    result: dict[str, Any] = seen
    return result


def name_of(standing: dict[str, Any] | None) -> str:
    if standing is None:
        return "none"
    return f"{standing['embed_model']} {standing['embed_dims']} {standing['vector_type']}"


if __name__ == "__main__":
    main()
