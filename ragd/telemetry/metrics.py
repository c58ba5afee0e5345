"""Every metric of ragd as data: names, kinds, units, bucket boundaries. Nothing else in the project spells one out.

Those of OpenTelemetry GenAI v1.41.1 and of AITF stand under their own names, the rest under `ragd.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

# boundaries that OpenTelemetry GenAI v1.41.1 gives
TOKEN_BUCKETS = tuple(float(4**power) for power in range(14))
SECOND_BUCKETS = tuple(0.01 * 2**power for power in range(14))
# AITF gives none: milliseconds of a retrieval, numbers of documents, tokens per second
MS_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 30000.0, 60000.0)
COUNT_BUCKETS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
RATE_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """buckets: upper bounds of a histogram, each inclusive, without the last one, which has no bound."""

    name: str
    kind: Kind
    unit: str
    description: str
    buckets: tuple[float, ...] = ()


def _counter(name: str, unit: str, description: str) -> Metric:
    return Metric(name, "counter", unit, description)


def _histogram(name: str, unit: str, description: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name, "histogram", unit, description, buckets)


TOKEN_USAGE = _histogram(
    "gen_ai.client.token.usage", "{token}", "Tokens that one model call read or wrote", TOKEN_BUCKETS
)
OPERATION_DURATION = _histogram(
    "gen_ai.client.operation.duration", "s", "How long one model call took, in seconds", SECOND_BUCKETS
)
OPERATION_FIRST_CHUNK = _histogram(
    "gen_ai.client.operation.time_to_first_chunk",
    "s",
    "Until the first piece of a streamed answer, in seconds",
    SECOND_BUCKETS,
)

INFERENCE_REQUESTS = _counter("aitf.inference.requests", "{request}", "Model calls")
INFERENCE_ERRORS = _counter("aitf.inference.errors", "{error}", "Model calls that failed")
INFERENCE_FIRST_TOKEN = _histogram(
    "aitf.inference.time_to_first_token",
    "ms",
    "Until the first token of a streamed answer, in milliseconds",
    MS_BUCKETS,
)
INFERENCE_TOKENS_PER_SECOND = _histogram(
    "aitf.inference.tokens_per_second", "{token}/s", "Tokens that a model wrote per second", RATE_BUCKETS
)
COST = _counter("aitf.cost.total", "USD", "What model calls with a known price cost, in US dollars")
RETRIEVALS = _counter("aitf.rag.retrievals", "{retrieval}", "Retrievals, failed ones among them")
RETRIEVAL_DURATION = _histogram(
    "aitf.rag.retrieval.duration", "ms", "How long one retrieval took, in milliseconds", MS_BUCKETS
)
RETRIEVAL_RESULTS = _histogram(
    "aitf.rag.retrieval.results", "{document}", "How many passages one retrieval gave", COUNT_BUCKETS
)
THREATS = _counter("aitf.security.threats_detected", "{threat}", "Findings in questions, passages and answers")
PII = _counter("aitf.security.pii_detected", "{detection}", "Texts in which personal data or a secret was found")
BLOCKED = _counter("aitf.security.requests_blocked", "{request}", "Questions that were refused for what was found")

QUERIES = _counter("ragd.queries", "{query}", "Searches and answers by how they ended")
QUERY_DURATION = _histogram(
    "ragd.query.duration", "ms", "How long a search or an answer took as a whole, in milliseconds", MS_BUCKETS
)
STAGE_DURATION = _histogram("ragd.stage.duration", "ms", "How long one stage took, in milliseconds", MS_BUCKETS)
INGESTS = _counter("ragd.ingests", "{document}", "Ingests of one document by how they ended")
UNPRICED = _counter("ragd.cost.unpriced_calls", "{request}", "Model calls elsewhere whose price is not known")
SPANS_WRITTEN = _counter("ragd.spans.written", "{span}", "Spans that reached the span store")
SPANS_LOST = _counter("ragd.spans.lost", "{span}", "Spans that could not be stored, and those that did not fit")
OTLP_SPANS_SENT = _counter("ragd.otlp.spans_sent", "{span}", "Spans that the collector took")
OTLP_SPANS_LOST = _counter("ragd.otlp.spans_lost", "{span}", "Spans that the collector did not take")
OTLP_FAILURES = _counter("ragd.otlp.failures", "{export}", "Exports to the collector that failed")

# read from the database when somebody asks
JOBS = Metric("ragd.jobs", "gauge", "{job}", "Jobs by state; those that ended count while their rows are kept")
QUEUE_DEPTH = Metric("ragd.queue.depth", "gauge", "{job}", "Jobs that wait, by lane")
QUEUE_OLDEST = Metric("ragd.queue.oldest", "gauge", "s", "How long the oldest job has waited, in seconds")
WORKERS = Metric("ragd.workers", "gauge", "{worker}", "Workers that gave a sign of life lately")

TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105
STATE = "state"
LANE = "lane"
STAGE = "ragd.stage"
STATUS = "ragd.status"
SIGNAL = "signal"
OVERFLOW = "otel.metric.overflow"  # marks the one series that takes what is too many to tell apart
