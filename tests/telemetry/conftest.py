"""A tracer provider with the site's limits and sampler, whose spans a test can read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from ragd import telemetry
from ragd_site.observability.tracing import LIMITS, RagdSampler, build_resource
from tests.fakes.openai_server import OpenAIServer


class Recorder(SpanProcessor):
    """Keeps finished spans while `recording`, and hands them to `onward` when a test sets one."""

    def __init__(self) -> None:
        self.recording = False
        self.spans: list[ReadableSpan] = []
        self.onward: SpanProcessor | None = None

    def on_end(self, span: ReadableSpan) -> None:
        if self.recording:
            self.spans.append(span)
        if self.onward is not None:
            self.onward.on_end(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self.onward.force_flush(timeout_millis) if self.onward is not None else True

    def named(self, start: str) -> ReadableSpan:
        """The one span whose name begins so."""
        found = [span for span in self.spans if span.name.startswith(start)]
        assert len(found) == 1, [span.name for span in self.spans]
        return found[0]

    def names(self) -> list[str]:
        """By start."""
        return [span.name for span in sorted(self.spans, key=lambda span: span.start_time or 0)]

    def parent(self, span: ReadableSpan) -> str | None:
        """The name of the recorded span that it stands in."""
        wanted = span.parent.span_id if span.parent else None
        return next((other.name for other in self.spans if other.context and other.context.span_id == wanted), None)

    def tree(self) -> list[tuple[str, str | None]]:
        """(name, parent's name) by start."""
        ordered = sorted(self.spans, key=lambda span: span.start_time or 0)
        return [(span.name, self.parent(span)) for span in ordered]


RECORDER = Recorder()


@pytest.fixture(scope="session")
def provider() -> TracerProvider:
    """The one provider of the process: OpenTelemetry lets it be set once."""
    provider = TracerProvider(resource=build_resource("test"), sampler=RagdSampler(), span_limits=LIMITS)
    provider.add_span_processor(RECORDER)
    trace.set_tracer_provider(provider)
    return provider


@pytest.fixture
def recorder(provider: TracerProvider) -> Iterator[Recorder]:
    RECORDER.recording, RECORDER.spans = True, []
    telemetry.configure(capture="full")
    yield RECORDER
    RECORDER.recording, RECORDER.spans, RECORDER.onward = False, [], None
    telemetry.configure(capture="full")


@pytest.fixture
def span_table(transactional_db: None) -> Iterator[None]:
    """A database that is committed to and read over several connections; what Django does not manage is emptied."""
    yield
    from collections_app.collections.deletion import delete_collection
    from collections_app.models import ApiKey, Collection
    from evaluation_app.models import Span

    Span.objects.all().delete()
    ApiKey.objects.all().delete()
    for collection in Collection.objects.live():
        delete_collection(collection)


@pytest.fixture
def chat(openai_server: OpenAIServer, settings: Any) -> OpenAIServer:
    settings.RAGD_LLM_BASE_URL = openai_server.base_url
    settings.RAGD_LLM_API_KEY = openai_server.api_key
    settings.RAGD_LLM_MODEL = "gpt-4o-mini"
    openai_server.chat_reply = lambda messages: "The pump moves 400 litres per minute [1]."
    return openai_server
