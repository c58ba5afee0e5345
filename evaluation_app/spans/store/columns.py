"""What a span is searched by, taken from its name and attributes: the columns beside them. Knows no database."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

from ragd import telemetry
from ragd.conventions import TABLES
from ragd.telemetry import names

OWN_SCOPE = "ragd"
TYPES_BY_PREFIX = {prefix: table.type for table in TABLES.spans for prefix in table.prefixes}
TABLE_TYPES = tuple(table.type for table in TABLES.spans)
OI_KINDS = ("CHAIN", "EMBEDDING", "RETRIEVER", "RERANKER", "LLM", "EVALUATOR", "TOOL", "AGENT", "GUARDRAIL")
OTEL_KINDS = ("INTERNAL", "CLIENT", "SERVER", "PRODUCER", "CONSUMER")
STATUS_CODES = ("OK", "ERROR", "UNSET")
OWN_TYPES = (
    telemetry.LEXICAL, telemetry.VECTOR, telemetry.HOP, telemetry.FUSE, telemetry.COMPRESS,
    telemetry.INGEST, telemetry.PARSE, telemetry.CHUNK, telemetry.STORE,
    names.FETCH, names.UNPACK, names.FILL, names.BUILD_INDEX, names.PROBE,
)  # fmt: skip

VALUE_CHARS = 1000  # of one value that are looked at for words
INDEXED_CHARS = 500  # an index takes no longer value than 2,704 bytes
WORDS_MAX = 300  # distinct words of one span
WORD_CHARS = 64
WORD = re.compile(r"[^\W_]+")
# What other attributes of the same span say already, or what is a text of a document and not of the question.
WORDLESS = re.compile(
    r"(retrieval|reranker)\.\w+\.\d+\.document\.(content|metadata)"
    r"|aitf\.rag\.retrieval\.docs|gen_ai\.retrieval\.documents|gen_ai\.(input|output)\.messages"
    r"|gen_ai\.system_instructions|gen_ai\.(request\.tools|tool\.definitions)"
    r"|llm\.(input_messages|output_messages|tools)\..*|llm\.invocation_parameters|embedding\.invocation_parameters"
    r"|ragd\.environment|.*\.mime_type|network\..*|http\.request\.header\..*|user_agent\..*"
)


class SpanColumns(NamedTuple):
    """In the order of COPY_SPANS. Counts, cost (US dollars) and risk (0 to 100) are None where the span has none."""

    type: str
    oi_kind: str
    model: str
    api_key: str
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    risk_score: float | None
    environment: str
    words: str


def span_columns(name: str, scope: str, description: str, attributes: Mapping[str, Any]) -> SpanColumns:
    """The columns of one span. attributes: as they are stored, with the content switch applied."""
    model = attributes.get(telemetry.REQUEST_MODEL) or attributes.get(telemetry.RERANK_MODEL) or ""
    return SpanColumns(
        type=span_type(name, scope),
        oi_kind=str(attributes.get(telemetry.OI_KIND) or "")[:INDEXED_CHARS],
        model=str(model)[:INDEXED_CHARS],
        api_key=str(attributes.get(telemetry.API_KEY) or "")[:INDEXED_CHARS],
        input_tokens=_count(attributes.get(telemetry.USAGE_INPUT_TOKENS)),
        output_tokens=_count(attributes.get(telemetry.USAGE_OUTPUT_TOKENS)),
        cost_usd=_number(attributes.get(telemetry.COST_TOTAL)),
        risk_score=_number(attributes.get(telemetry.SECURITY_RISK_SCORE)),
        environment=str(attributes.get(telemetry.ENVIRONMENT) or telemetry.PRODUCTION)[:INDEXED_CHARS],
        words=as_tsvector(span_words(name, description, attributes)),
    )


def span_type(name: str, scope: str = OWN_SCOPE) -> str:
    """The type of the span tables ("aitf.rag.retrieve"), else the first word of the own name ("rag.lexical").

    "" for a span of another instrumentation.
    """
    if scope != OWN_SCOPE:
        return ""
    first = name.partition(" ")[0]
    return TYPES_BY_PREFIX.get(first, first)


def span_words(name: str, description: str, attributes: Mapping[str, Any]) -> list[str]:
    """Distinct words of the name, the failure and the values of attributes, in that order; WORDS_MAX at most."""
    words: dict[str, None] = {}
    for text in dict.fromkeys((name, description, *_texts(attributes))):
        for word in split_words(text[:VALUE_CHARS]):
            words[word] = None
            if len(words) >= WORDS_MAX:
                return list(words)
    return list(words)


def split_words(text: str) -> list[str]:
    """Letters and digits in a row, compatible forms as one and without case, each cut at WORD_CHARS."""
    return [word[:WORD_CHARS] for word in WORD.findall(unicodedata.normalize("NFKC", text).casefold())]


def as_tsvector(words: list[str]) -> str:
    """PostgreSQL's text form. Words hold letters and digits only, so none needs to be escaped."""
    return " ".join(f"'{word}'" for word in words)


def _texts(attributes: Mapping[str, Any]) -> Iterator[str]:
    """What is JSON repeats what other attributes say in words."""
    for name, value in attributes.items():
        if isinstance(value, str) and value and not value.startswith(("[{", "{")) and not _is_wordless(name):
            yield value


@lru_cache(4096)
def _is_wordless(name: str) -> bool:
    return WORDLESS.fullmatch(name) is not None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _number(value: Any) -> float | None:
    """A finite number that is no truth value and fits a column, else None: attributes may hold anything."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) and abs(value) < 2**53 else None
