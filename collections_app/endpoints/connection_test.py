"""One real call of a model endpoint: whether it answers as it is set up, and otherwise what failed and what to do."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
from django.utils import timezone

from collections_app.endpoints.endpoints import ModelEndpoint
from collections_app.endpoints.model_presets import EMBEDDINGS, KEY, RERANK
from collections_app.models import Status
from ragd.errors import RerankerError
from ragd.models import openai_client
from ragd.models.rerank_endpoint import EndpointReranker

TIMEOUT_S = 20.0
SAMPLE = "A model answers a test of its connection."
CHAT_TOKENS = 16
MODELS_MAX, MODEL_CHARS_MAX = 2000, 200
MISSING_MODEL = re.compile(
    r"model.{0,80}(not found|not exist|unknown|invalid|not supported)|DeploymentNotFound", re.I | re.S
)

# kind -> what to do. {host}, {needs}: of the endpoint.
ADVICE = {
    "unknown_host": "Check how the host {host} is spelled, and that this server's name server knows it.",
    "refused": "Nothing listens there. Start the model's server, or correct host and port. In a container, 127.0.0.1 is"
    " the container itself: name the machine, such as host.docker.internal. {needs}",
    "tls": "Use http:// where the server has no TLS; else its certificate must be valid for {host} and trusted here.",
    "timeout": "The server is busy, is still loading the model, or a firewall drops the request. Try again, then check"
    " the port.",
    "connection": "Check the address and that the server runs. {needs}",
    "auth": "Enter a key that is valid for this provider and may use this model.",
    "forbidden": "The provider knows the key and does not let it use this. Check its permissions and its balance.",
    "model_missing": "Check the model's name as the provider lists it. {needs}",
    "not_found": "Check the address: most servers want a path such as /v1 at its end. Check the model's name too.",
    "redirect": "Enter the address that it leads to, most often the same with https://.",
    "rate_limited": "The endpoint works and is at its limit. Try again later, or raise the limit.",
    "quota": "The account has no credit left. Add some with the provider.",
    "rejected": "The provider does not take the request. Check that the model is one for this purpose. {needs}",
    "server": "The server failed. Look into its log, or try again later.",
    "malformed": "Something else answers at this address, such as a web page. Check host, port and path.",
    "count": "The server does not answer with one result for each text. Use a model for this purpose.",
    "invalid_vector": "The model gave no usable vector. Use another model, or another version of the server.",
    "wrong_dimensions": "Enter the number of dimensions that the model gives, or request it where the model can shorten"
    " its vectors.",
    "key_unreadable": "Enter the model's key again.",
}


@dataclass(frozen=True, slots=True)
class TestResult:
    """kind: "" when it passed, else a key of ADVICE. model: as the endpoint says, "" where it says nothing. dims: of
    the vector that came. status: of the HTTP answer where it failed with one."""

    passed: bool
    kind: str
    message: str
    advice: str
    took_ms: float
    model: str
    dims: int | None
    status: int | None
    tested_at: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.tested_at)


@dataclass(frozen=True, slots=True)
class _Answer:
    model: str = ""
    dims: int | None = None


def run_test(endpoint: ModelEndpoint, *, timeout_s: float = TIMEOUT_S) -> TestResult:
    """Ask the endpoint once, without retries, and keep the result. Nothing is raised for what fails there."""
    started = time.monotonic()
    if endpoint.problem:
        return _failed(endpoint, "key_unreadable", endpoint.problem, started)
    try:
        answer = _ask(endpoint, timeout_s)
    except openai_client.EndpointError as error:
        result = _failed(endpoint, _kind(error), f"It {error.message}.", started, error.status)
    except ValueError as error:  # the key or the address cannot be written into a request
        result = _failed(endpoint, "malformed", f"The request cannot be written ({type(error).__name__}).", started)
    else:
        result = _judge(endpoint, answer, started)
    Status.objects.keep(Status.Kind.RESULT, _status_name(endpoint), result.as_dict())
    return result


def list_models(endpoint: ModelEndpoint, *, timeout_s: float = TIMEOUT_S) -> tuple[list[str], TestResult | None]:
    """(the names of the models that the server lists, by name; what went wrong, if anything). Asked once, nothing is
    kept; no model is called."""
    started = time.monotonic()
    if endpoint.problem:
        return [], _failed(endpoint, "key_unreadable", endpoint.problem, started)
    preset = endpoint.preset
    headers = {name: endpoint.api_key or "" if value == KEY else value for name, value in preset.models_headers}
    try:
        with openai_client.endpoint_errors(timeout_s):
            client = openai_client.open_client(endpoint.address, endpoint.api_key, preset.key_header)
            options: Any = {"timeout": openai_client.request_timeout(timeout_s), "headers": headers}
            address = urljoin(f"{endpoint.address}/", preset.models_path)
            answer = client.get(address, cast_to=httpx2.Response, options=options)
        read = json.loads(answer.content)
        rows = read["data"] if "data" in read else read["models"]
        names = {str(row["id"] if "id" in row else row["name"])[:MODEL_CHARS_MAX] for row in rows[:MODELS_MAX]}
    except openai_client.EndpointError as error:
        return [], _failed(endpoint, _kind(error), f"It {error.message}.", started, error.status)
    except (ValueError, TypeError, KeyError):
        return [], _failed(endpoint, "malformed", "It gave an answer that is no list of models.", started)
    return sorted(names, key=str.lower), None


def last_tests(endpoints: list[ModelEndpoint]) -> list[TestResult | None]:
    """What the last test of each model at its address found, in one query."""
    names = [_status_name(endpoint) for endpoint in endpoints]
    rows = dict(Status.objects.results().filter(name__in=names).values_list("name", "values"))
    return [TestResult(**rows[name]) if name in rows else None for name in names]


def _ask(endpoint: ModelEndpoint, timeout_s: float) -> _Answer:
    if endpoint.purpose == EMBEDDINGS:
        return _embed(endpoint, timeout_s)
    if endpoint.purpose == RERANK:
        return _rerank(endpoint, timeout_s)
    return _chat(endpoint, timeout_s)


def _server(endpoint: ModelEndpoint) -> openai_client.Server:
    return openai_client.Server(endpoint.address, endpoint.api_key or None, endpoint.preset.key_header)


def _embed(endpoint: ModelEndpoint, timeout_s: float) -> _Answer:
    preset = endpoint.preset
    asked = openai_client.OpenAIEndpoint(
        endpoint.model,
        endpoint.dims or 1,
        _server(endpoint),
        openai_client.RetryPolicy(0, 0, timeout_s, timeout_s),
        send_dimensions=bool(endpoint.send_dimensions and endpoint.dims),
        form=preset.form,
    )
    answer = asked.ask_once([SAMPLE], timeout_s)
    return _Answer(answer.model or "", len(answer.vectors[0]))


def _rerank(endpoint: ModelEndpoint, timeout_s: float) -> _Answer:
    preset = endpoint.preset
    reranker = EndpointReranker(
        _server(endpoint),
        endpoint.model,
        policy=openai_client.RetryPolicy(0, 0, timeout_s, timeout_s),
        gives_logits=preset.gives_logits,
        wants_texts=preset.wants_texts,
    )
    try:
        reranker.score("What is tested?", [SAMPLE, "Rivers carry water to the sea."])
    except RerankerError as error:
        if isinstance(error.__cause__, openai_client.EndpointError):
            raise error.__cause__ from error
        raise openai_client.EndpointError("malformed", error.message, retryable=False) from error
    return _Answer()


def _chat(endpoint: ModelEndpoint, timeout_s: float) -> _Answer:
    """With the fields that answers are requested with."""
    preset = endpoint.preset
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": "Reply with the word ready."}],
        "temperature": 0,
        preset.seed_name: 7,
        preset.limit_name: CHAT_TOKENS,
    }
    options: Any = {"timeout": openai_client.request_timeout(timeout_s)}
    with openai_client.endpoint_errors(timeout_s):
        client = openai_client.open_client(endpoint.address, endpoint.api_key, preset.key_header)
        answer = client.post("/chat/completions", cast_to=httpx2.Response, body=body, options=options)
    try:
        read = json.loads(answer.content)
        read["choices"][0]["message"]
    except (ValueError, TypeError, KeyError, IndexError) as error:
        message = "gave an answer that is no chat completion"
        raise openai_client.EndpointError("malformed", message, retryable=False) from error
    return _Answer(str(read.get("model") or ""))


def _judge(endpoint: ModelEndpoint, answer: _Answer, started: float) -> TestResult:
    """An answer that came; vectors of another length than is set up are a failure."""
    took_ms = _elapsed_ms(started)
    passed = endpoint.dims is None or answer.dims in (None, endpoint.dims)
    message = advice = kind = ""
    if not passed:
        kind, advice = "wrong_dimensions", ADVICE["wrong_dimensions"]
        message = f"The model gave {answer.dims} dimensions; {endpoint.dims} are set up."
    return TestResult(passed, kind, message, advice, took_ms, answer.model[:200], answer.dims, None, _now())


def _failed(endpoint: ModelEndpoint, kind: str, message: str, started: float, status: int | None = None) -> TestResult:
    host = urlsplit(endpoint.address).hostname or ""
    advice = ADVICE.get(kind, ADVICE["rejected"]).format(host=host, needs=endpoint.preset.needs).strip()
    return TestResult(False, kind, message[:1000], advice, _elapsed_ms(started), "", None, status, _now())


def _kind(error: openai_client.EndpointError) -> str:
    if error.kind == "connection":
        return _connection_kind(error)
    if error.kind == "auth":
        return "forbidden" if error.status == 403 else "auth"
    if error.kind != "rejected" or error.status is None:
        return error.kind
    if 300 <= error.status < 400:
        return "redirect"
    if MISSING_MODEL.search(error.body):
        return "model_missing"
    return "not_found" if error.status in (404, 405) else "rejected"


def _connection_kind(error: BaseException) -> str:
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return "unknown_host"
        if isinstance(cause, ConnectionRefusedError):
            return "refused"
        if isinstance(cause, ssl.SSLError):
            return "tls"
    return "connection"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _status_name(endpoint: ModelEndpoint) -> str:
    about = json.dumps([endpoint.purpose, endpoint.address, endpoint.model])
    return f"model test {hashlib.sha256(about.encode()).hexdigest()[:32]}"


def _elapsed_ms(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 1)


def _now() -> str:
    return timezone.now().isoformat()
