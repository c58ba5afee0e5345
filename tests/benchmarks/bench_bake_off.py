"""How long a bake-off takes, and whether the winner over a sample is the winner over the whole collection.

Run: python -m tests.benchmarks.bench_bake_off [CHUNKS] [SAMPLE]      (20000 4000)

A server of its own with about CHUNKS chunks: the abstracts of BEIR SciFact, then pages of the Microsoft C++
documentation among which nothing is expected, 80 words to a chunk. The model in use is one of hashed words (64
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
        EMBED_BASE_URL=fake.base_url, EMBED_API_KEY=fake.api_key or "none", EMBED_MODEL=HASHED, EMBED_DIMS="64"
    ) as server:
        policy = {"kind": "words", "target_tokens": WORDS, "overlap_tokens": 0}
        server.call("POST", "/v1/collections", {"name": NAME, "chunk_policy": policy})
        fill(server, chunks)
        stored = server.call("GET", f"/v1/collections/{NAME}/statistics")
        print(f"{stored['documents']} documents, {stored['chunks']} chunks")
        over_sample = run(server, sample)
        over_whole = run(server, 50_000)
        same = over_sample[0]["embed_model"] == over_whole[0]["embed_model"]
        print(f"the winner of the sample is {'' if same else 'NOT '}the winner of the whole")
    fake.stop()


def fill(server: Server, chunks: int) -> None:
    def put(client: JsonClient, document: tuple[str, str, str]) -> None:
        doc_id, title, text = document
        client.call("PUT", f"/v1/collections/{NAME}/documents/{doc_id}", {"title": title, "content": text})

    list(in_threads(server, put, list(documents(chunks)), 2))
    data = load_scifact("train")
    server.call("POST", "/v1/golden-sets", {"name": NAME, "collection": NAME})
    for query in sorted(data.queries)[:QUESTIONS]:
        body = {"question": data.queries[query], "expected_doc_ids": sorted(data.judged[query])}
        server.call("POST", f"/v1/golden-sets/{NAME}/questions", body)


def documents(chunks: int) -> Iterator[tuple[str, str, str]]:
    """About so many chunks of WORDS words."""
    made = 0
    for document in load_scifact("train").documents:
        made += -(-len(document[2].split()) // WORDS)
        yield document
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


def run(server: Server, sample: int) -> list[dict[str, Any]]:
    """The standings, best first."""
    began = time.monotonic()
    body = {"models": MODELS, "golden_set": NAME, "sample": sample}
    started = server.call("POST", f"/v1/collections/{NAME}/bake-offs", body)
    while (seen := server.call("GET", f"/v1/bake-offs/{started['id']}"))["state"] == "running":
        time.sleep(1)
    took = time.monotonic() - began
    if seen["state"] != "succeeded":
        sys.exit(f"the bake-off {seen['state']}: {seen['error']}")
    print(f"\nsample of {sample} chunks, {seen['documents']} documents, {seen['questions']} questions: {took:.0f} s")
    print(f"{'model':24} {'dims':>5} {'index':>8} {'nDCG@10':>22} {'gain':>8} {'p':>7} {'ms/chunk':>9} {'MB':>7}")
    for each in seen["standings"]:
        ndcg, gain = each["ndcg"], each["gain"]
        print(
            f"{each['embed_model']:24} {each['embed_dims']:>5} {each['vector_type']:>8} "
            f"{ndcg['mean']:>6.3f} [{ndcg['low']:.3f}, {ndcg['high']:.3f}] "
            f"{gain['mean'] if gain else 0:>+8.3f} {each['p'] if gain else 1:>7.3f} {each['ms_per_chunk']:>9.2f} "
            f"{each['index_bytes'] / 1e6:>7.1f}"
        )
    winner = seen["winner"]
    print(f"winner: {winner['embed_model'] + ' ' + str(winner['embed_dims']) if winner else 'none'}")
    result: list[dict[str, Any]] = seen["standings"]
    return result


if __name__ == "__main__":
    main()
