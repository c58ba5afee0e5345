"""Telemetry of ragd: every span and attribute name, the one content switch, and the helpers that open spans.

One span carries three vocabularies: AITF decides its name and kind, OpenInference and OpenTelemetry GenAI v1.41.1 add
their attributes. Needs only opentelemetry-api; without an SDK every helper costs next to nothing and records nothing.

    with telemetry.pipeline_span("handbook", query, telemetry.QueryOrigin(run_id=run_id)) as pipeline:
        with telemetry.query_span("handbook", query, model, dims):
            with telemetry.EmbeddingsCall(system="ragd.local", model=model, dims=dims, texts=[query]) as call:
                call.input_tokens = 12
        with telemetry.retrieve_span(index="handbook", query=query, top_k=12) as span:
            telemetry.record_results(span, candidates)
        with telemetry.ChatCall("openai", "gpt-4o", messages=messages, input_tokens=900) as answer:
            answer.finish("...", finish_reasons=["stop"], input_tokens=911, output_tokens=87)
    run.trace_id = pipeline.trace_id
"""

from __future__ import annotations

from ragd.telemetry.content import CAPTURES as CAPTURES
from ragd.telemetry.content import REDACTED as REDACTED
from ragd.telemetry.content import Capture as Capture
from ragd.telemetry.content import capture_mode as capture_mode
from ragd.telemetry.content import captured as captured
from ragd.telemetry.content import captured_status as captured_status
from ragd.telemetry.content import captured_text as captured_text
from ragd.telemetry.content import configure as configure
from ragd.telemetry.content import redacted_text as redacted_text
from ragd.telemetry.content import redacting as redacting
from ragd.telemetry.documents import Evaluation as Evaluation
from ragd.telemetry.documents import Guardrail as Guardrail
from ragd.telemetry.documents import PersonalData as PersonalData
from ragd.telemetry.documents import Threat as Threat
from ragd.telemetry.documents import evaluate_later_span as evaluate_later_span
from ragd.telemetry.documents import evaluate_span as evaluate_span
from ragd.telemetry.documents import rating as rating
from ragd.telemetry.documents import record_evaluation as record_evaluation
from ragd.telemetry.documents import record_finding as record_finding
from ragd.telemetry.documents import record_reranked as record_reranked
from ragd.telemetry.documents import record_results as record_results
from ragd.telemetry.documents import record_risk as record_risk
from ragd.telemetry.documents import rerank_span as rerank_span
from ragd.telemetry.documents import retrieve_span as retrieve_span
from ragd.telemetry.model_calls import ChatCall as ChatCall
from ragd.telemetry.model_calls import EmbeddingsCall as EmbeddingsCall
from ragd.telemetry.model_calls import PromptTemplate as PromptTemplate
from ragd.telemetry.model_calls import hash_prompt as hash_prompt
from ragd.telemetry.model_calls import provider_of as provider_of
from ragd.telemetry.model_calls import waited as waited
from ragd.telemetry.names import *  # noqa: F403
from ragd.telemetry.pricing import Cost as Cost
from ragd.telemetry.pricing import Pricer as Pricer
from ragd.telemetry.pricing import Spending as Spending
from ragd.telemetry.pricing import is_local as is_local
from ragd.telemetry.pricing import spending as spending
from ragd.telemetry.records import record_names as record_names
from ragd.telemetry.spans import ENVIRONMENTS as ENVIRONMENTS
from ragd.telemetry.spans import EVALUATION as EVALUATION
from ragd.telemetry.spans import INTERFACE as INTERFACE
from ragd.telemetry.spans import PLAYGROUND as PLAYGROUND
from ragd.telemetry.spans import PRODUCTION as PRODUCTION
from ragd.telemetry.spans import JobAttempt as JobAttempt
from ragd.telemetry.spans import Pipeline as Pipeline
from ragd.telemetry.spans import QueryOrigin as QueryOrigin
from ragd.telemetry.spans import add_event as add_event
from ragd.telemetry.spans import attached as attached
from ragd.telemetry.spans import current_environment as current_environment
from ragd.telemetry.spans import current_trace_id as current_trace_id
from ragd.telemetry.spans import current_traceparent as current_traceparent
from ragd.telemetry.spans import environment as environment
from ragd.telemetry.spans import fetch_span as fetch_span
from ragd.telemetry.spans import ingest_span as ingest_span
from ragd.telemetry.spans import pipeline_span as pipeline_span
from ragd.telemetry.spans import query_span as query_span
from ragd.telemetry.spans import record_counts as record_counts
from ragd.telemetry.spans import record_error as record_error
from ragd.telemetry.spans import set_attributes as set_attributes
from ragd.telemetry.spans import silenced as silenced
from ragd.telemetry.spans import stage as stage
from ragd.telemetry.spans import watching_stages as watching_stages

RECORDS = (ChatCall, EmbeddingsCall, PromptTemplate, Cost, Threat, PersonalData, Guardrail, Evaluation)
