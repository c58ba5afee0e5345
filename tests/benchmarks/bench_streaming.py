"""What streaming an answer costs and gives: the first word's delay, ordinary requests beside streams, who leaves.

Run: python -m tests.benchmarks.bench_streaming

A whole server of its own asks a chat model on the loopback that writes a word every PAUSE_S. Measured at a client:
when the results, the first token and the end come, against a client that asks the model itself and against the same
question without streaming; the time of searches while every place for streams is taken, against none; and whether
answers whose clients left at once are stored whole. Then the checking of citations alone, in this process.
"""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.benchmarks.server import Server, running_server
from tests.fakes.openai_server import OpenAIServer

ROUNDS = 15
PAUSE_S = 0.01
LEAVING = 24
SEARCHES = 60
SENTENCE = "A document is cut into chunks of about equal size [1]. Each one keeps its place [2][9]. "
ANSWER = SENTENCE * 5
QUESTION = "How is a document cut into chunks?"
PIECES = 1000


def main() -> None:
    model = OpenAIServer(api_key=None).start()
    model.chat_reply = lambda messages: ANSWER
    model.pause = lambda sent: time.sleep(PAUSE_S)
    with running_server(LLM_BASE_URL=model.base_url, RAGD_LLM_TIMEOUT_S="60") as server:
        for path in sorted(Path("docs").glob("*.md"))[:12]:
            _store(server, path)
        asked = {"query": QUESTION, "k": 5}
        for _ in range(3):
            read_times(server, asked)
        measure_delays(server, model, asked)
        measure_beside(server, asked)
        measure_leaving(server, asked)
    model.stop()
    measure_checking()


def _store(server: Server, path: Path) -> None:
    if not _exists(server):
        server.call("POST", "/v1/collections", {"name": "docs", "hybrid_enabled": True})
    body = {"title": path.stem, "content": path.read_text()}
    server.call("PUT", f"/v1/collections/docs/documents/{path.stem}", body)


def _exists(server: Server) -> bool:
    return any(item["name"] == "docs" for item in server.call("GET", "/v1/collections"))


@contextmanager
def opened(address: str, key: str, path: str, body: Any) -> Iterator[http.client.HTTPResponse]:
    """A response whose head is read and whose body comes."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
    }
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    try:
        yield response
    finally:
        response.close()
        connection.close()


def read_times(server: Server, body: Any) -> dict[str, float]:
    """Milliseconds until the first event of each name, and until the end ("whole")."""
    began, found = time.perf_counter(), {}
    with opened(server.url, server.key, "/v1/collections/docs/ask", body) as response:
        for line in response:
            if line.startswith(b"event: "):
                found.setdefault(line[7:-1].decode(), _since_ms(began))
    return found | {"whole": _since_ms(began)}


def read_model(model: OpenAIServer) -> dict[str, float]:
    """The same of the model itself: its first word and its end."""
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
    began, found = time.perf_counter(), {}
    with opened(model.base_url, "", "/v1/chat/completions", body) as response:
        for line in response:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                found.setdefault("token", _since_ms(began))
    return found | {"whole": _since_ms(began)}


def measure_delays(server: Server, model: OpenAIServer, body: Any) -> None:
    streamed = [read_times(server, body) for _ in range(ROUNDS)]
    direct = [read_model(model) for _ in range(ROUNDS)]
    plain = [_timed(lambda: server.call("POST", "/v1/collections/docs/ask", body)) for _ in range(ROUNDS)]
    words = len(ANSWER.split())
    print(f"an answer of {words} words, one every {PAUSE_S * 1000:g} ms; medians of {ROUNDS}")
    print(f"{'results':38} {_median(streamed, 'search_results'):9.1f} ms")
    first, own = _median(streamed, "token"), _median(direct, "token")
    print(f"{'first token':38} {first:9.1f} ms   the model itself {own:.1f} ms")
    print(f"{'whole answer, streamed':38} {_median(streamed, 'whole'):9.1f} ms")
    print(f"{'whole answer, the model itself':38} {_median(direct, 'whole'):9.1f} ms")
    print(f"{'whole answer, not streamed':38} {statistics.median(plain):9.1f} ms")


def measure_beside(server: Server, body: Any) -> None:
    """Searches while as many streams run as the server takes."""
    search = {"query": QUESTION, "k": 5}

    def find() -> object:
        return server.call("POST", "/v1/collections/docs/search", search)

    idle = [_timed(find) for _ in range(SEARCHES)]
    stop, taken, refused = threading.Event(), [0], [0]
    lock = threading.Lock()

    def keep_reading() -> None:
        while not stop.is_set():
            with opened(server.url, server.key, "/v1/collections/docs/ask", body) as response:
                with lock:
                    (taken if response.status == 200 else refused)[0] += 1
                response.read()
            if response.status != 200:
                stop.wait(0.2)

    readers = [threading.Thread(target=keep_reading) for _ in range(8)]
    for reader in readers:
        reader.start()
    time.sleep(1)
    busy = [_timed(find) for _ in range(SEARCHES)]
    stop.set()
    for reader in readers:
        reader.join()
    idle += [_timed(find) for _ in range(SEARCHES)]  # before and after, for the machine is not always as busy
    before, beside = statistics.median(idle), statistics.median(busy)
    print(f"{'search, nothing beside':38} {before:9.1f} ms   longest {max(idle):.0f} ms")
    print(f"{'search beside 8 who stream':38} {beside:9.1f} ms   longest {max(busy):.0f} ms")
    print(f"{'':38} {taken[0]} answers streamed, {refused[0]} times asked to come again, no search refused")


def measure_leaving(server: Server, body: Any) -> None:
    left = []
    while len(left) < LEAVING:
        with opened(server.url, server.key, "/v1/collections/docs/ask", body) as response:
            if response.status != 200:
                time.sleep(0.3)
                continue
            head = b"".join(next(response) for _ in range(2)).decode()
            left.append(json.loads(head.partition("data: ")[2])["run_id"])
    until = time.monotonic() + 60
    stored: dict[str, Any] = {}
    while len(stored) < LEAVING and time.monotonic() < until:
        time.sleep(0.5)
        for item in server.call("GET", "/v1/runs?limit=100")["items"]:
            if item["run_id"] in left:
                stored[item["run_id"]] = item["answer"]
    whole = server.call("POST", "/v1/collections/docs/ask", body)["answer"]
    kept = sum(answer == whole for answer in stored.values())
    print(f"{'clients left, answers stored whole':38} {kept:9} of {LEAVING}   target all")


def measure_checking() -> None:
    """Processor time per piece of checking citations on the way, against checking the whole once."""
    import os

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")
    os.environ["DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/none"  # nothing is asked of it
    import django

    django.setup()
    from ragd.types import Candidate
    from retrieval_app.citations.citations import check_citations
    from retrieval_app.citations.live_citations import LiveCitations

    sources = [Candidate(f"d{number}", number, "A chunk keeps its place in the text.", 1.0) for number in range(5)]
    for name, text in {"prose": SENTENCE, "paragraphs": SENTENCE + "\n\n", "code": "```py\nx = y[1]\n```\n\n"}.items():
        words = (text * PIECES).split(" ")[:PIECES]
        pieces = [f"{word} " for word in words]

        took = statistics.median(_timed_cpu(partial(_feed, LiveCitations(sources), pieces)) for _ in range(5))
        whole = partial(check_citations, "".join(pieces), sources)
        once = statistics.median(_timed_cpu(whole) for _ in range(5))
        name = f"checking {PIECES} pieces of {name}"
        print(f"{name:38} {took * 1000 / PIECES:9.0f} µs each, {took:.0f} ms in all; the whole at once {once:.0f} ms")


def _feed(live: Any, pieces: list[str]) -> None:
    for piece in pieces:
        for _ in live.feed(piece):
            pass


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return _since_ms(began)


def _timed_cpu(act: Callable[[], object]) -> float:
    """Milliseconds of this process alone, whatever runs beside it."""
    began = time.process_time()
    act()
    return (time.process_time() - began) * 1000


def _since_ms(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def _median(rounds: list[dict[str, float]], name: str) -> float:
    return statistics.median(times[name] for times in rounds)


if __name__ == "__main__":
    main()
