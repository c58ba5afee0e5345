"""Every kind of span once, with a word in every text that must not get out."""

from __future__ import annotations

from collections.abc import Sequence

from ragd import telemetry
from ragd.types import Candidate, Filters, ListRank

SECRET = "xylophone"
QUERY = f"where is the {SECRET}?"
MESSAGES = [{"role": "system", "content": f"never mention the {SECRET}"}, {"role": "user", "content": QUERY}]


def make_candidates(count: int) -> list[Candidate]:
    return [
        Candidate(
            doc_id=f"doc-{number}",
            chunk_index=number,
            content=f"the {SECRET} number {number} is in the cellar",
            score=0.03 - number / 100_000,
            metadata={"note": f"about a {SECRET}", "page": str(number)},
            score_kind="rrf",
            unit_score=max(0.0, 1 - number / 200),
            ranks={"vector": ListRank(number + 1, 0.5), "lexical": ListRank(number + 2, 7.25)},
            attributes={"section": [f"Part {number}"], "page": number, "cells": [[0, 1, "", "A", "1"]]},
        )
        for number in range(count)
    ]


def make_query_spans(candidates: Sequence[Candidate] = ()) -> str:
    """One answered query with all its stages; returns the trace id."""
    filters = Filters(metadata={"topic": SECRET})
    with telemetry.pipeline_span(
        "house", QUERY, telemetry.QueryOrigin("00000000-0000-0000-0000-000000000001", channel="api")
    ) as pipeline:
        with (
            telemetry.query_span("house", QUERY, "words", 32),
            telemetry.EmbeddingsCall(
                system="ragd.test", model="words", dims=32, texts=[QUERY], encoding_format="float"
            ) as call,
        ):
            call.input_tokens = 4
        with telemetry.retrieve_span(query=QUERY, top_k=12, index="house", filters=filters) as span:
            with telemetry.stage(telemetry.VECTOR, pool=50, exact=True):
                pass
            with telemetry.stage(telemetry.LEXICAL, query=QUERY, pool=50):
                pass
            with telemetry.stage(telemetry.FUSE, method="rrf", lists_count=2):
                pass
            telemetry.record_results(span, candidates)
        with telemetry.rerank_span(model="cross", query=QUERY, candidates=candidates, top_k=5) as span:
            telemetry.record_reranked(span, candidates[:5])
        with telemetry.stage(telemetry.COMPRESS, query=QUERY, input_count=5):
            pass
        with telemetry.ChatCall(
            "openai",
            "gpt-4o",
            messages=MESSAGES,
            max_tokens=100,
            temperature=0,
            seed=7,
            server_address="api.openai.com",
            server_port=443,
            tools=[{"type": "function", "function": {"name": "look_up"}}],
        ) as answer:
            answer.call_tool("look_up", "call-1", f'{{"what": "{SECRET}"}}')
            answer.return_tool("look_up", "call-1", f"a {SECRET}")
            answer.finish(f"The {SECRET} is in the cellar.", finish_reasons=["stop"], input_tokens=30, output_tokens=9)
            answer.cached_tokens, answer.reasoning_tokens = 4, 2
            answer.response_id, answer.response_model = "r-1", "gpt-4o-2024"
            answer.queue_ms, answer.inference_ms = 1.5, 20.0
            answer.cost = telemetry.Cost(0.001, 0.002, "provider")
        with telemetry.evaluate_span("house", query=QUERY) as span:
            telemetry.record_evaluation(
                span, telemetry.Evaluation("faithfulness", score=0.9, label="pass", explanation=f"a {SECRET} is there")
            )
        pipeline.finish(f"The {SECRET} is in the cellar.")
    return pipeline.trace_id
