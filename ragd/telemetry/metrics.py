"""Every metric of ragd as data: names, kinds, units, bucket boundaries. Nothing else in the project spells one out.

Those of OpenTelemetry GenAI v1.41.1 and of AITF stand under their own names, the rest under `ragd.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ragd.telemetry import names

Kind = Literal["counter", "gauge", "histogram"]

# boundaries that OpenTelemetry GenAI v1.41.1 gives
TOKEN_BUCKETS = tuple(float(4**power) for power in range(14))
SECOND_BUCKETS = tuple(0.01 * 2**power for power in range(14))
# AITF gives none: milliseconds of a retrieval, numbers of documents, tokens per second
MS_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 30000.0, 60000.0)
COUNT_BUCKETS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
RATE_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@dataclass(frozen=True, slots=True, eq=False)  # each is one object, a key of dictionaries at every measurement
class Metric:
    """labels: the names of all that a measurement may have. buckets: upper bounds of a histogram, each inclusive,
    without the last one, which has no bound."""

    name: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105
STATE = "state"
LANE = "lane"
BACKUP_PART = "ragd.backup.part"
STAGE = "ragd.stage"
STATUS = "ragd.status"
SIGNAL = "signal"
STEP = "step"
RULE = "rule"
GOLDEN_SET = "ragd.golden_set"
MEASURE = "ragd.measure"
OVERFLOW = "otel.metric.overflow"  # the value of every label of the one series that takes what is too many

MODEL = (names.OPERATION_NAME, names.PROVIDER_NAME, names.REQUEST_MODEL, names.ENVIRONMENT)
CALL = (*MODEL, names.RESPONSE_MODEL, names.SERVER_ADDRESS, names.SERVER_PORT)
RETRIEVAL = (names.RETRIEVE_DATABASE, names.ENVIRONMENT)
PIPELINE = (*RETRIEVAL, names.PIPELINE_NAME)
DEGRADED_STEP = (names.COLLECTION, names.ENVIRONMENT, STEP)
QUERY = (names.COLLECTION, names.CHANNEL, names.ENVIRONMENT, STATUS)


def _counter(name: str, unit: str, description: str, *labels: str) -> Metric:
    return Metric(name, "counter", unit, description, labels)


def _gauge(name: str, unit: str, description: str, *labels: str) -> Metric:
    return Metric(name, "gauge", unit, description, labels)


def _histogram(name: str, unit: str, description: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name, "histogram", unit, description, labels, buckets)


TOKEN_USAGE = _histogram(
    "gen_ai.client.token.usage", "{token}", "Input and output tokens of one model call", TOKEN_BUCKETS,
    *CALL, TOKEN_TYPE, names.USAGE_ESTIMATED,
)  # fmt: skip
OPERATION_DURATION = _histogram(
    "gen_ai.client.operation.duration", "s", "Duration of one model call", SECOND_BUCKETS, *CALL, names.ERROR_TYPE
)
OPERATION_FIRST_CHUNK = _histogram(
    "gen_ai.client.operation.time_to_first_chunk", "s", "Time to the first chunk of a streamed answer", SECOND_BUCKETS,
    *CALL,
)  # fmt: skip
INFERENCE_REQUESTS = _counter("aitf.inference.requests", "{request}", "Model calls", *MODEL)
INFERENCE_ERRORS = _counter("aitf.inference.errors", "{error}", "Failed model calls", *MODEL, names.ERROR_TYPE)
INFERENCE_FIRST_TOKEN = _histogram(
    "aitf.inference.time_to_first_token", "ms", "Time to the first token of a streamed answer", MS_BUCKETS, *MODEL
)
INFERENCE_TOKENS_PER_SECOND = _histogram(
    "aitf.inference.tokens_per_second", "{token}/s", "Output tokens per second of a model", RATE_BUCKETS, *MODEL
)
COST = _counter(
    "aitf.cost.total", "USD", "Cost of model calls with a known price", *MODEL, names.COLLECTION, names.API_KEY
)
UNPRICED = _counter("ragd.cost.unpriced_calls", "{request}", "Remote model calls whose price is not known", *MODEL)
RETRIEVALS = _counter("aitf.rag.retrievals", "{retrieval}", "Retrievals", *PIPELINE, names.ERROR_TYPE)
RETRIEVAL_DURATION = _histogram(
    "aitf.rag.retrieval.duration", "ms", "Duration of one retrieval", MS_BUCKETS, *RETRIEVAL, names.ERROR_TYPE
)
RETRIEVAL_RESULTS = _histogram(
    "aitf.rag.retrieval.results", "{document}", "Results of one retrieval", COUNT_BUCKETS, *PIPELINE
)
THREATS = _counter(
    "aitf.security.threats_detected", "{threat}", "Findings in questions, passages and answers",
    names.SECURITY_THREAT_TYPE, names.SECURITY_OWASP,
)  # fmt: skip
PII = _counter(
    "aitf.security.pii_detected", "{detection}", "Texts in which personal data or a secret was found", names.PII_TYPES
)
BLOCKED = _counter("aitf.security.requests_blocked", "{request}", "Blocked questions", names.COLLECTION)
QUERIES = _counter("ragd.queries", "{query}", "Searches and answers", *QUERY)
DEGRADED = _counter("ragd.queries.degraded", "{query}", "Queries that went on without a part", *DEGRADED_STEP)
QUERY_DURATION = _histogram("ragd.query.duration", "ms", "Duration of a search or an answer", MS_BUCKETS, *QUERY)
STAGE_DURATION = _histogram("ragd.stage.duration", "ms", "Duration of one stage", MS_BUCKETS, STAGE, names.ENVIRONMENT)
INGESTS = _counter("ragd.ingests", "{document}", "Ingests of one document", names.COLLECTION, STATUS)
OTLP_FAILURES = _counter("ragd.otlp.failures", "{export}", "Failed exports to the collector", SIGNAL)
SPANS_WRITTEN = _counter("ragd.spans.written", "{span}", "Spans that reached the span store")
SPANS_LOST = _counter("ragd.spans.lost", "{span}", "Spans that could not be stored, and those that did not fit")
OTLP_SPANS_SENT = _counter("ragd.otlp.spans_sent", "{span}", "Spans that the collector accepted")
OTLP_SPANS_LOST = _counter("ragd.otlp.spans_lost", "{span}", "Spans that the collector did not accept")
# what processes count with `evaluation_app.telemetry.metrics.instruments`
COUNTED = (
    TOKEN_USAGE, OPERATION_DURATION, OPERATION_FIRST_CHUNK, INFERENCE_REQUESTS, INFERENCE_ERRORS,
    INFERENCE_FIRST_TOKEN, INFERENCE_TOKENS_PER_SECOND, COST, UNPRICED, RETRIEVALS, RETRIEVAL_DURATION,
    RETRIEVAL_RESULTS, THREATS, PII, BLOCKED, QUERIES, DEGRADED, QUERY_DURATION, STAGE_DURATION, INGESTS,
    OTLP_FAILURES, SPANS_WRITTEN, SPANS_LOST, OTLP_SPANS_SENT, OTLP_SPANS_LOST,
)  # fmt: skip

# read from the database at the time of a scrape
JOBS = _gauge("ragd.jobs", "{job}", "Jobs by state; ended ones until their rows are deleted", STATE)
QUEUE_DEPTH = _gauge("ragd.queue.depth", "{job}", "Queued jobs", LANE)
BACKUP_AGE = _gauge(
    "ragd.backup.age", "s", "Age of the last backup, of the end of the archived log, of the last drill that passed",
    BACKUP_PART,
)  # fmt: skip
QUEUE_OLDEST = _gauge("ragd.queue.oldest", "s", "Age of the oldest queued job, in seconds")
SOURCES = _gauge("ragd.sources", "{source}", "Sources by state of their last sync", STATE)
WORKERS = _gauge("ragd.workers", "{worker}", "Workers with a recent heartbeat")
ALERTS = _gauge("ragd.alerts", "{alert}", "Firing alerts by rule", RULE)
EVALUATION_SCORE = _gauge(
    "ragd.evaluation.score", "1", "Mean of a headline metric in the newest finished evaluation of what serves",
    names.COLLECTION, GOLDEN_SET, MEASURE,
)  # fmt: skip
