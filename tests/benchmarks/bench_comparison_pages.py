"""How long the comparison of two runs and the failure analysis take, with 300 questions and the scores of a full run.

Run: python -m tests.benchmarks.bench_comparison_pages [QUESTIONS]      (300)

Two stored runs with every measure of the catalogue, contexts, marks and three failure modes a question, in a database
of their own. Printed are milliseconds of the whole answer through Django's test client, and of this process's
processor, which tells how busy the machine was: of a comparison at its first load, when it is computed and kept, and at
later ones, and of the failure analysis; the median of nine.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ragd_site import embedded

TARGET_MS = 300
ROUNDS = 9
MODES = ("low_completeness", "low_context_relevance", "wrong_answer", "low_context_utilization")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL may run as another user
        os.environ["RAGD_VAR"] = folder
        embedded.ensure_running(Path(folder), fsync=False)
        try:
            import django
            from django.conf import settings
            from django.core.management import call_command

            settings.ALLOWED_HOSTS = ["*"]
            backend = "django.contrib.staticfiles.storage.StaticFilesStorage"
            settings.STORAGES = {**settings.STORAGES, "staticfiles": {"BACKEND": backend}}
            django.setup()
            call_command("migrate", verbosity=0)
            measure(count)
        finally:
            embedded.stop(Path(folder))


def make(generator: np.random.Generator, count: int, **values: Any) -> Any:
    """A stored run with everything that a question of a full run holds."""
    from evaluation_app.measures.catalogue import CUTS, MEASURES
    from tests.evaluation.made_runs import make_run

    names = [f"{name}@10" if name in CUTS else name for name in MEASURES] + [f"chunk_{name}@10" for name in CUTS]
    text = " ".join(f"word{number}" for number in range(20))
    context = [{"key": f"d{n}#0", "sentences": [[f"{n}.{s}", text] for s in range(8)]} for n in range(12)]
    scores = [{name: float(generator.random()) for name in names} for _ in range(count)]
    items = {
        place: {
            "context": context,
            "answer": f"{text} {text}",
            "retrieved_ids": [each["key"] for each in context],
            "details": {"store_state": {"chunks": 20_000}, "probabilities": dict.fromkeys(map(str, range(96)), 0.5)},
            "modes": [str(mode) for mode in generator.choice(MODES, 3, replace=False)],
            "golden": {"question": f"Question {place}?", "expected_doc_ids": ["d1"], "expected_answer": text},
        }
        for place in range(count)
    }
    return make_run(scores, items=items, **values)


def measure(count: int) -> None:
    from django.contrib.auth import get_user_model
    from django.test import Client

    from evaluation_app.models import GoldenSet

    generator = np.random.default_rng(20240716)
    golden_set = GoldenSet.objects.create(name="birds", collection_name="nature")
    base, other = (make(generator, count, golden_set=golden_set) for _ in range(2))
    client = Client()
    client.force_login(get_user_model()._default_manager.create(username="bench"))
    client.get("/evaluation/runs/")  # opens the addresses
    slowest = 0.0
    for name, address in (
        ("comparison", f"/evaluation/compare/?base={base.pk}&other={other.pk}"),
        ("failure analysis", f"/evaluation/board/?run={base.pk}"),
    ):
        took = [_ask(client, address) for _ in range(ROUNDS + 1)]
        later, busy = (statistics.median(each[part] for each in took[1:]) for part in (0, 1))
        slowest = max(slowest, later)
        first = f"first load {took[0][0]:6.0f} ms ({took[0][1]:.0f} ms of the processor)"
        print(f"{name:18} {first}, later ones {later:4.0f} ms ({busy:.0f} ms)")
    met = "met" if slowest <= TARGET_MS else "missed"
    print(f"target pages of {count} questions: {slowest:.0f} ms, at most {TARGET_MS} ms wanted: {met}")


def _ask(client: Any, address: str) -> tuple[float, float]:
    """(milliseconds, of them at work in this process)"""
    began, worked = time.perf_counter(), time.process_time()
    response = client.get(address)
    assert response.status_code == 200, address
    return (time.perf_counter() - began) * 1000, (time.process_time() - worked) * 1000


if __name__ == "__main__":
    main()
