"""An evaluation run of 1,000 golden questions with 12 contexts each, end to end, its worker killed with -9 on the way.

A server of its own under the real supervisor, with the default settings: SciFact's abstracts are the collection, its
claims (of the train and the test split, in the order of their ids) the questions, the documents that are judged
relevant what they expect. Every claim is searched by the hybrid plan with k = 12, answered by quotations and judged by
the embedded judge. When half of the questions are done, all processes of the worker get SIGKILL; the supervisor starts
it again and the run goes on. Then every question must have one item, and one stored run must stand behind each.

The time is from the request that starts the run to its end, the pause after the kill included.

Run: python -m tests.benchmarks.bench_evaluation [questions] [documents]     (default: 1000, all 5,183)

With fewer documents it is those that the questions expect, and others by their order; the figures then are easier ones,
because the judge meets the same sentences more often.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from typing import Any

from tests.benchmarks.scifact import COLLECTION, SciFact, ingest, load_scifact
from tests.benchmarks.server import Server, running_server
from tests.faults.kills import ask, kill_all

QUESTIONS, CONTEXTS = 1000, 12
TARGET_MIN = 15
SET = "claims"
LOOK_EVERY_S = 1.0
PATIENCE_S = 3600.0

ITEMS = """
SELECT count(*), count(DISTINCT position), count(DISTINCT query_run), avg(took_ms),
       percentile_cont(0.95) WITHIN GROUP (ORDER BY took_ms), avg(jsonb_array_length(context))
FROM evaluation_items WHERE run_id = %s
"""
ASKED = """
SELECT count(*), avg((timings_ms->>'total')::float) FROM retrieval_app_queryrun
WHERE door = 'worker' AND collection_name = %s
"""
UNKNOWN = """
SELECT count(*) FROM evaluation_items i WHERE run_id = %s
AND NOT EXISTS (SELECT 1 FROM retrieval_app_queryrun q WHERE q.id = i.query_run)
"""


def choose_questions(count: int) -> list[tuple[str, list[str]]]:
    """(claim, relevant documents), of both splits by id; a claim that stands there twice counts once."""
    splits: list[SciFact] = [load_scifact("train"), load_scifact("test")]
    claims: dict[str, list[str]] = {}
    for data in splits:
        for number, text in sorted(data.queries.items(), key=lambda pair: int(pair[0])):
            claims.setdefault(text, sorted(doc for doc, grade in data.judged[number].items() if grade > 0))
    return list(claims.items())[:count]


def choose_documents(data: SciFact, questions: list[tuple[str, list[str]]], most: int | None) -> SciFact:
    """The corpus with at most so many documents, those that are expected first; None: all."""
    if most is None:
        return data
    wanted = {doc for _, docs in questions for doc in docs}
    ordered = sorted(data.documents, key=lambda document: document[0] not in wanted)
    return replace(data, documents=ordered[:most])


def add_questions(server: Server, questions: list[tuple[str, list[str]]]) -> None:
    """A golden set of them, by the import of JSON Lines."""
    server.call("POST", "/v1/golden-sets", {"name": SET, "collection": COLLECTION})
    lines = [json.dumps({"question": text, "expected_doc_ids": docs}) for text, docs in questions]
    raw = "\n".join(lines).encode()
    server.call("POST", f"/v1/golden-sets/{SET}/import", raw=raw, kind="application/jsonl")


def follow(server: Server, run_id: str, until: int) -> dict[str, Any]:
    """The run, once so many questions are done or it has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        run: dict[str, Any] = server.call("GET", f"/v1/evaluation-runs/{run_id}")
        if run["done"] >= until or run["state"] not in ("queued", "running"):
            return run
        time.sleep(LOOK_EVERY_S)
    sys.exit("the run did not come to its end")


def main(count: int = QUESTIONS, documents: int | None = None) -> None:
    questions = choose_questions(count)
    corpus = choose_documents(load_scifact("test"), questions, documents)
    print(
        f"{len(questions)} claims, {len(corpus.documents)} documents of SciFact, {CONTEXTS} contexts each\n", flush=True
    )
    with running_server() as server:
        print(f"ingest                        {ingest(server, corpus):8.0f} s", flush=True)
        add_questions(server, questions)
        body = {"golden_set": SET, "k": CONTEXTS, "settings": {"judge": "embedded", "cut": CONTEXTS}}
        began = time.monotonic()
        run_id = server.call("POST", "/v1/evaluation-runs", body)["id"]
        half = follow(server, run_id, len(questions) // 2)
        family = [pid for pid, line in server.processes().items() if "celery" in line]
        killed_at = time.monotonic()
        kill_all(random.Random(0).sample(family, len(family)))
        print(f"killed after                  {killed_at - began:8.0f} s, {half['done']} questions done", flush=True)
        follow(server, run_id, half["done"] + 2)
        resumed = time.monotonic() - killed_at
        ended = follow(server, run_id, len(questions) + 1)
        took = time.monotonic() - began
        report(server, ended, len(questions), took, resumed)


def report(server: Server, run: dict[str, Any], count: int, took: float, resumed: float) -> None:
    ((items, positions, query_runs, mean_ms, p95_ms, contexts),) = ask(server, ITEMS, run["id"])
    ((asked, query_ms),) = ask(server, ASKED, COLLECTION)
    ((unknown,),) = ask(server, UNKNOWN, run["id"])
    print(f"resumed after                 {resumed:8.1f} s")
    print(f"state                         {run['state']}, {run['failed']} failed, {run['attempts']} attempts")
    print(f"time at work                  {run['took_ms'] / 60000:8.2f} min")
    print(f"per question                  {mean_ms:8.0f} ms, p95 {p95_ms:.0f} ms; search and answer {query_ms:.0f} ms")
    print(f"contexts per question         {float(contexts):8.2f}")
    for name in ("recall@12", "context_relevance", "adherence"):
        mean = run["summary"]["measures"][name]
        print(f"{name:<29} {mean['value']:8.3f}, {mean['scored']} of {mean['total']} scored")
    once = items == positions == query_runs == asked == count and not unknown and run["state"] == "succeeded"
    quick = "met" if took < TARGET_MIN * 60 else "MISSED"
    print(f"\ntarget: end to end in under {TARGET_MIN} min: {took / 60:.2f} min: {quick}")
    counted = f"{items} items, {positions} places, {asked} stored runs"
    print(f"target: each question once after a kill -9: {counted}: {'met' if once else 'MISSED'}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]))
