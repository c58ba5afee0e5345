"""Prints the modules on the three ways through the tree it runs in: an upload, a question, an evaluation item.

    python -m tools.walks [--list]

Each way is walked once to warm up, then again while every function that runs is noted. A module is on a way when one
of its functions ran there; class bodies and imports do not count, nor what a plain GET of a collection runs too, such
as the check of the key. An upload goes from the HTTP request to the stored
chunks of a PDF, the worker's part and the parser's included; a question goes from POST ask to the stored run, and an
evaluation item from POST evaluation-runs to the scored item. Needs an embedded PostgreSQL (RAGD_VAR, default
var/walks), and starts and stops it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
APPS = ("collections_app", "retrieval_app", "evaluation_app", "ragd", "ragd_site")
COLLECTION = "walks"


def pdf_of(sentence: str) -> bytes:
    """A PDF of one page that says this sentence (ASCII, without brackets)."""
    stream = f"BT /F1 12 Tf 40 700 Td ({sentence}) Tj ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        " /Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body, offsets = "%PDF-1.4\n", []
    for number, written in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{written}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return f"{body}xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


class Trace:
    """The modules of this project whose functions ran while `noting`."""

    def __init__(self) -> None:
        self.modules: set[str] = set()

    @contextmanager
    def noting(self) -> Iterator[None]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_flags & 0x2:  # a module's or a class's body has no fast locals
            return
        name = frame.f_globals.get("__name__", "")
        if name.split(".")[0] in APPS:
            self.modules.add(name)

    def of(self, app: str) -> list[str]:
        return sorted(name for name in self.modules if name.split(".")[0] == app)


class Walker:
    """A client of the HTTP interface of this process; tasks run where they are sent."""

    def __init__(self) -> None:
        from django.core.management import call_command
        from django.test import Client

        self.client = Client()
        out = StringIO()
        call_command("ragd", "access", "create-key", "--label", "walks", "--json", stdout=out)
        self.headers = {"Authorization": f"Bearer {json.loads(out.getvalue())['secret_once']}"}

    def post(self, path: str, body: Any) -> Any:
        answer = self.client.post(f"/v1{path}", json.dumps(body), content_type="application/json", headers=self.headers)
        assert answer.status_code < 300, (path, answer.content)
        return answer.json()

    def get(self, path: str) -> Any:
        return self.client.get(f"/v1{path}", headers=self.headers).json()

    def upload(self, name: str, content: bytes) -> None:
        from django.core.files.uploadedfile import SimpleUploadedFile

        answer = self.client.post(
            f"/v1/collections/{COLLECTION}/documents",
            {"files": [SimpleUploadedFile(name, content)]},
            headers=self.headers,
        )
        assert answer.status_code == 202, answer.content

    def check_documents(self, count: int) -> None:
        stored = self.get(f"/collections/{COLLECTION}/documents")["items"]
        assert len(stored) == count and all(each["chunk_count"] for each in stored), stored

    def ask(self, question: str) -> None:
        self.post(f"/collections/{COLLECTION}/ask", {"query": question})

    def evaluate(self) -> None:
        self.post("/evaluation-runs", {"golden_set": "walks", "k": 3})

    def check_runs(self, count: int) -> None:
        runs = self.get("/evaluation-runs")["items"]
        assert len(runs) == count and all(run["state"] == "succeeded" for run in runs), runs


def parse_here(content: bytes) -> None:
    """What the parser's process does with a document, which cannot be seen from this one."""
    assembly = importlib.import_module("ragd.readers.assembly")
    types = importlib.import_module("ragd.readers.types")
    assembly.read_document(types.Source(data=content, name="parsed.pdf", media_type="", limits=types.ParseLimits()))


def walk() -> dict[str, Trace]:
    walker = Walker()
    walker.post("/collections", {"name": COLLECTION})
    walker.post("/golden-sets", {"name": "walks", "collection": COLLECTION})
    question = {"question": "How long is a key valid?", "expected_doc_ids": ["first.pdf"]}
    walker.post("/golden-sets/walks/questions", question)
    traces: dict[str, Trace] = {}

    def both(name: str, first: Callable[[], None], *steps: Callable[[], None]) -> None:
        first()
        traces[name] = Trace()
        with traces[name].noting():
            for step in steps:
                step()

    def look() -> None:
        walker.get(f"/collections/{COLLECTION}")

    first, second = pdf_of("A key is valid for ninety days."), pdf_of("A lost key is replaced within one day.")
    parse_here(first)
    both(
        "upload",
        lambda: walker.upload("first.pdf", first),
        lambda: walker.upload("second.pdf", second),
        lambda: parse_here(second),
    )
    both("ask", lambda: walker.ask("How long is a key valid?"), lambda: walker.ask("Who replaces a lost key?"))
    both("evaluation item", walker.evaluate, walker.evaluate)
    both("any request", look, look)
    walker.check_documents(2)
    walker.check_runs(2)
    every = traces.pop("any request").modules
    for trace in traces.values():
        trace.modules -= every
    return traces


def show(traces: dict[str, Trace], *, is_listed: bool) -> None:
    for name, trace in traces.items():
        counts = Counter(module.split(".")[0] for module in trace.modules)
        own = sum(counts[app] for app in APPS[:3])
        shares = ", ".join(f"{app} {counts[app]}" for app in APPS if counts[app])
        print(f"{name:16} {own:4} application modules   ({shares})")
        if is_listed:
            for app in APPS:
                for module in trace.of(app):
                    print(f"    {module}")


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
    os.environ.setdefault("RAGD_VAR", str(ROOT / "var" / "walks"))
    os.environ.setdefault("RAGD_LOG_LEVEL", "ERROR")
    var = Path(os.environ["RAGD_VAR"])
    embedded = importlib.import_module("ragd_site.embedded")
    embedded.ensure_running(var, fsync=False)
    try:
        import django
        from django.conf import settings
        from django.test.runner import DiscoverRunner
        from django.test.utils import setup_test_environment

        settings.CELERY_TASK_ALWAYS_EAGER = True
        django.setup()
        setup_test_environment()
        runner = DiscoverRunner(verbosity=0, interactive=False)
        databases = runner.setup_databases()
        try:
            show(walk(), is_listed="--list" in sys.argv)
        finally:
            runner.teardown_databases(databases)
    finally:
        embedded.stop(var)


if __name__ == "__main__":
    main()
