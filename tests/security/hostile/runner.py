"""All hostile inputs through all doors, and the pages and lists that must still work afterwards."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.urls import NoReverseMatch, get_resolver, reverse

from collections_app.models import Collection, Document
from retrieval_app.models import QueryRun
from tests.addresses import URLS
from tests.security.hostile import api_inputs, files, page_inputs
from tests.security.hostile.doors import NAME, Attempt, Doors, judge

SWEPT = "pages and lists afterwards"
LISTS = ("/collections", "/runs", "/jobs", "/batches", "/operations", "/api-keys", "/golden-sets", "/experiments", "/evaluation-runs",
         "/spans", "/run-scores", "/queue", "/models", "/runs?format=jsonl", "/evidence", "/golden-sets/set/questions")  # fmt: skip
PAGES = ("", "settings/", "?show=statistics", "uploads/", "uploads/?state=all", "index-versions/", "health/",
         "health/?view=findings", "playground/?q=pump", "upload/", "plans/", "health/?view=never-retrieved")  # fmt: skip


@dataclass
class Row:
    """inputs: of a group. through: what got through, with the input."""

    inputs: int = 0
    seconds: float = 0.0
    through: list[str] = field(default_factory=list)


def all_inputs() -> Iterator[Attempt]:
    yield from api_inputs.api_inputs()
    yield from page_inputs.page_inputs()
    yield from files.uploads()
    yield from files.forms()
    yield from files.golden_files()
    yield from files.imports()


def run(doors: Doors, most: int | None = None, *, seed: int = 1) -> dict[str, Row]:
    """Every input, or a sample of so many of each class, then the sweep."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in all_inputs():
        groups.setdefault(attempt.group, []).append(attempt)
    chance = random.Random(seed)
    rows = {}
    for name, attempts in groups.items():
        selected = attempts if most is None or len(attempts) <= most else chance.sample(attempts, most)
        rows[name] = row = Row(len(selected))
        began = time.perf_counter()
        for attempt in selected:
            if through := judge(attempt, doors):
                row.through.append(f"{attempt.label}: {through}")
        row.seconds = time.perf_counter() - began
    rows[SWEPT] = sweep(doors, most)
    return rows


def sweep(doors: Doors, most: int | None = None) -> Row:
    """Every list and page, pages of what was stored (the latest, at most so many), no file outside of the server's
    folder."""
    row = Row()
    began = time.perf_counter()
    for path in addresses(most):
        row.inputs += 1
        get = doors.send("GET", path.removeprefix("/v1")) if path.startswith("/v1") else doors.pages.get(path)
        content = b"".join(get.streaming_content) if get.streaming else get.content
        if get.status_code not in (200, 302):
            row.through.append(f"GET {path}: {get.status_code} {content[:100]!r}")
    row.through += [f"{path} was written" for path in outside() if path.exists()]
    for document in Document.objects.filter(text__contains=files.SECRET):
        row.through.append(f"{document.doc_id} holds a file of the machine")
    row.seconds = time.perf_counter() - began
    return row


def addresses(most: int | None) -> Iterator[str]:
    yield from (f"/v1{path}" for path in LISTS)
    yield from plain_pages()
    for collection in Collection.objects.live().by_name()[:most]:
        for page in PAGES if collection.name == NAME else ("", "?show=statistics"):
            yield reverse("collections:detail", args=[collection.name]) + page
    for document in Document.objects.filter(collection__name=NAME).order_by("-pk")[:most]:
        yield reverse("collections:document", args=[NAME, document.doc_id])
        yield reverse("collections:document", args=[NAME, document.doc_id], query={"view": "edit"})
    for run in QueryRun.objects.order_by("-created_at")[:most]:
        yield f"/runs/{run.pk}/"
        yield f"/chat/?run={run.pk}"
        yield f"/v1/runs/{run.pk}"


def plain_pages() -> Iterator[str]:
    """Every page that takes no arguments and is no form for a script."""
    for namespace in URLS:
        for pattern in get_resolver(URLS[namespace]).url_patterns:
            if pattern.name in NO_PAGES:
                continue
            try:
                yield reverse(f"{namespace}:{pattern.name}")
            except NoReverseMatch:
                continue


NO_PAGES = ("theme", "check", "ask-stream", "switcher", "filter-builder", "filter-completions",
            "span-completions", "spans-export", "evidence", "model-add", "chat-files", "chat-stream", "list-view", "guide")  # fmt: skip


def outside() -> list[Path]:
    names = ("ragd-hostile-slip.txt", "ragd-hostile-pickle")
    return [Path(folder) / name for folder in ("/tmp", "/", "..", "../..") for name in names]


def print_table(rows: dict[str, Row]) -> None:
    print(f"{'class':42}{'inputs':>8}{'through':>9}{'seconds':>9}")
    for name, row in sorted(rows.items()):
        print(f"{name:42}{row.inputs:8}{len(row.through):9}{row.seconds:9.1f}")
        for line in row.through:
            print(f"    {line[:300]}")
    print(f"{'all':42}{sum(row.inputs for row in rows.values()):8}{sum(len(row.through) for row in rows.values()):9}")
