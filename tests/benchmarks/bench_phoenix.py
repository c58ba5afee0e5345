"""A real collector: spans that a running ragd sends over OTLP, compared in Arize Phoenix with what ragd itself stored.

A server of its own with the sample collection, a language model on the loopback, and Phoenix from the package registry
in a virtual environment of its own (RAGD_PHOENIX_PYTHON names one that is there) answer a search by words, a hybrid
search with reranking, an answer with a language model, one that fails, and one without a model. Each span that ragd
stored must be in Phoenix with the same parent, status, OpenInference kind, documents (id, score, content) and token
counts; Phoenix is asked over its API. --screenshot FOLDER also keeps pictures of its pages.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.peers import peer_python
from tests.benchmarks.server import Server, free_port, running_server
from tests.fakes.faults import failing
from tests.fakes.openai_server import OpenAIServer

REQUIREMENTS = Path(__file__).parent / "requirements-phoenix.txt"
COLLECTION = "ragd-docs"
WAIT_S = 120
MODEL = "gpt-4o-mini"
COUNTS = ("llm.token_count.prompt", "llm.token_count.completion", "llm.token_count.total")
LISTS = ("retrieval.documents", "reranker.input_documents", "reranker.output_documents")
QUESTIONS = ("How are citations checked?", "What is a generation?", "How does reranking work?")


@contextmanager
def running_phoenix() -> Iterator[str]:
    """Phoenix on the loopback with an empty database; its address."""
    python = Path(os.environ.get("RAGD_PHOENIX_PYTHON") or peer_python(REQUIREMENTS))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ragd-phoenix-") as folder, (Path(folder) / "log").open("wb") as log:
        environment = os.environ | {
            "PHOENIX_WORKING_DIR": folder,
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        command = [str(python.with_name("phoenix")), "serve"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            until = time.monotonic() + WAIT_S
            while not _answers(url):
                if process.poll() is not None or time.monotonic() > until:
                    sys.exit(f"Phoenix did not start:\n{(Path(folder) / 'log').read_text()[-3000:]}")
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=30)


def _answers(url: str) -> bool:
    try:
        _get(f"{url}/v1/projects")
    except OSError:
        return False
    return True


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def ask_everything(server: Server, model: OpenAIServer) -> list[str]:
    """The ids of the runs. A call that is meant to fail leaves a run too."""
    runs = []
    for question in QUESTIONS:
        for path, fields in (
            ("search", {"mode": "lexical", "k": 5}),
            ("search", {"mode": "hybrid", "k": 5, "rerank": "builtin", "candidate_pool": 20}),
            ("ask", {"llm_model": MODEL}),
        ):
            answer = server.call("POST", f"/v1/collections/{COLLECTION}/{path}", {"query": question} | fields)
            runs.append(answer["run_id"])
    model.script(*[failing(401)] * 4, model=MODEL)
    try:
        server.call("POST", f"/v1/collections/{COLLECTION}/ask", {"query": QUESTIONS[0], "llm_model": MODEL})
    except RuntimeError:
        pass
    newest = server.call("GET", "/v1/runs?limit=1")["items"][0]
    runs.append(newest.get("run_id") or newest["id"])
    return runs


def stored_spans(server: Server, runs: list[str]) -> dict[str, dict[str, Any]]:
    spans = {}
    for run in runs:
        for span in server.call("GET", f"/v1/runs/{run}/spans")["spans"]:
            spans[span["span_id"]] = span
    return spans


def phoenix_spans(url: str, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """By span id, once all that are wanted are there, or what there is after two minutes."""
    until = time.monotonic() + WAIT_S
    while True:
        found: dict[str, dict[str, Any]] = {}
        cursor = ""
        while cursor is not None:
            try:
                page = _get(f"{url}/v1/projects/ragd/spans?limit=1000" + (f"&cursor={cursor}" if cursor else ""))
            except urllib.error.HTTPError:
                break
            found |= {span["context"]["span_id"]: span for span in page["data"]}
            cursor = page["next_cursor"]
        if wanted <= set(found) or time.monotonic() > until:
            return found
        time.sleep(1)


def documents(attributes: Mapping[str, Any], prefix: str) -> list[tuple[Any, ...]]:
    """(id, score, content) by place, whether the attributes are flat or nested."""
    rows = []
    while True:
        base = f"{prefix}.{len(rows)}.document"
        values = tuple(attributes.get(f"{base}.{name}") for name in ("id", "score", "content"))
        if values[0] is None:
            return rows
        rows.append(values)


def differences(sent: Mapping[str, Any], there: Mapping[str, Any] | None) -> Iterator[str]:
    """The names of what is not the same."""
    if there is None:
        yield "spans"
        return
    yield "spans found"
    ours, theirs = sent["attributes"], there["attributes"]
    kind = ours.get("openinference.span.kind", "UNKNOWN")
    if kind != there["span_kind"]:
        yield "kinds"
    if (sent["parent_span_id"] or None) != (there["parent_id"] or None):
        yield "parents"
    if sent["status"]["code"] != there["status_code"]:
        yield "statuses"
    if any(ours.get(name) != theirs.get(name) for name in COUNTS):
        yield "token counts"
    for prefix in LISTS:
        if documents(ours, prefix) != documents(theirs, prefix):
            yield "documents"


def compare(sent: Mapping[str, dict[str, Any]], there: Mapping[str, dict[str, Any]]) -> tuple[Counter[str], list[str]]:
    wrong: Counter[str] = Counter()
    told = []
    for span_id, span in sent.items():
        for what in differences(span, there.get(span_id)):
            if what != "spans found":
                wrong[what] += 1
                told.append(f"  {what}: {span['name']} {span_id}")
    return wrong, told


def take_pictures(url: str, folder: Path, trace_id: str) -> None:
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    project = next(each["id"] for each in _get(f"{url}/v1/projects")["data"] if each["name"] == "ragd")
    with sync_playwright() as play:
        path = os.environ.get("RAGD_CHROMIUM") or None
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        for name, address in (("spans", "spans"), ("trace", f"traces/{trace_id}")):
            page.goto(f"{url}/projects/{project}/{address}")
            page.wait_for_timeout(5000)
            page.screenshot(path=folder / f"phoenix-{name}.png")
        for name in ("rag.retrieve", "chat "):
            page.get_by_text(name).first.click()
            page.wait_for_timeout(2000)
            page.screenshot(path=folder / f"phoenix-{name.strip()}.png")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshot", type=Path, help="a folder for pictures of Phoenix's pages")
    options, _ = parser.parse_known_args()
    model = OpenAIServer().start()
    model.models = [MODEL]
    model.chat_reply = lambda messages: "Every citation is checked against what was retrieved [1]."
    with running_phoenix() as phoenix:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": phoenix,
            "RAGD_OTLP_CONTENT": "full",
            "LLM_BASE_URL": model.base_url,
            "OPENAI_API_KEY": model.api_key or "",
            "RAGD_SAMPLE": "on",
        }
        with running_server(**variables) as server:
            began = time.monotonic()
            runs = ask_everything(server, model)
            time.sleep(2)  # a batch is written each second
            sent = stored_spans(server, runs)
            there = phoenix_spans(phoenix, set(sent))
            took = time.monotonic() - began
            wrong, told = compare(sent, there)
            if options.screenshot:
                root = next(span for span in sent.values() if span["name"].startswith("chat "))
                take_pictures(phoenix, options.screenshot, root["trace_id"])
    model.stop()
    print_table(sent, there, wrong, told, len(runs), took)


def print_table(
    sent: Mapping[str, dict[str, Any]],
    there: Mapping[str, dict[str, Any]],
    wrong: Counter[str],
    told: list[str],
    runs: int,
    took: float,
) -> None:
    listed = sum(len(documents(span["attributes"], prefix)) for span in sent.values() for prefix in LISTS)
    counted = sum(span["attributes"].get(COUNTS[0]) is not None for span in sent.values())
    failed = sum(span["status"]["code"] == "ERROR" for span in sent.values())
    kinds = Counter(there[span_id]["span_kind"] for span_id in sent if span_id in there)
    print(f"{runs} runs, {len(sent)} spans of theirs stored here, asked and compared in {took:.0f} s")
    print(f"kinds in Phoenix: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}")
    rows = (
        ("spans", "spans of ragd found in Phoenix", len(sent)),
        ("kinds", "with the same OpenInference kind", len(sent)),
        ("parents", "with the same parent", len(sent)),
        ("statuses", f"with the same status ({failed} failed)", len(sent)),
        ("token counts", f"with the same token counts ({counted} model calls)", len(sent)),
        ("documents", f"with the same documents ({listed} in lists)", len(sent)),
    )
    for what, title, total in rows:
        print(f"{title:<50} {total - wrong[what]:>5} of {total}   target: all")
    print("\n".join(told[:20]))


if __name__ == "__main__":
    main()
