"""An evaluation whose process is killed with SIGKILL in its middle goes on elsewhere and does nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.db import connection
from django.utils import timezone

from collections_app.collections.deletion import purge_collection
from evaluation_app.models import EvaluationRun
from evaluation_app.runs import lifecycle
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from tests.evaluation.made_runs import make_set
from tests.retrieval.corpus import make_collection

KILLED_AT = 2
QUESTIONS = 5
EVALUATE = """
import sys, time, django
django.setup()
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs import lifecycle, runner

def wait_to_be_killed():
    print("now", flush=True)
    time.sleep(60)

store, save = runner.RunExecutor._store, EvaluationItem.save

def stop_before(self, item, usage):
    if item.position == int(sys.argv[3]):
        wait_to_be_killed()
    store(self, item, usage)

def stop_inside(self, **values):
    save(self, **values)
    if self.position == int(sys.argv[3]):
        wait_to_be_killed()

if sys.argv[2] == "answer stored":
    runner.RunExecutor._store = stop_before
elif sys.argv[2] == "item not committed":
    EvaluationItem.save = stop_inside
run = EvaluationRun.objects.get(pk=sys.argv[1])
lifecycle.run_now(run, on_item=lambda item: item.position == int(sys.argv[3]) and wait_to_be_killed())
"""


@pytest.fixture
def run(transactional_db: None) -> Iterator[EvaluationRun]:
    collection = make_collection()
    asked = {f"Pump {place}?": "pump.md" for place in range(QUESTIONS)}
    golden_set = make_set("house questions", collection.name, asked)
    settings = RunSettings(answers=False, judge="none")
    yield lifecycle.start_run(golden_set, lifecycle.RunRequest(RetrievePlan(k=3), settings=settings), send=False)
    purge_collection(collection)


@pytest.mark.parametrize(
    ("moment", "items", "asked"), [("answer stored", 2, 3), ("item not committed", 2, 3), ("item stored", 3, 3)]
)
def test_a_killed_run_goes_on_and_does_nothing_twice(run: EvaluationRun, moment: str, items: int, asked: int) -> None:
    kept = connection.settings_dict
    address = f"postgresql://{kept['USER']}:{quote(kept['PASSWORD'])}@{kept['HOST']}:{kept['PORT']}/{kept['NAME']}"
    environment = os.environ | {"DATABASE_URL": address, "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
    command = [sys.executable, "-c", EVALUATE, str(run.pk), moment, str(KILLED_AT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "now"
        os.kill(process.pid, signal.SIGKILL)
    first = dict(QueryRun.objects.values_list("pk", "created_at"))
    run.refresh_from_db()
    assert (run.state, run.done, run.items.count(), len(first)) == ("running", items, items, asked)
    EvaluationRun.objects.update(lease_until=timezone.now() - timedelta(hours=1))
    ended = lifecycle.run_now(run)
    assert (ended.state, ended.done, ended.failed, ended.attempts) == ("succeeded", QUESTIONS, 0, 2)
    assert list(ended.items.order_by("position").values_list("position", flat=True)) == list(range(QUESTIONS))
    after = dict(QueryRun.objects.values_list("pk", "created_at"))
    assert len(after) == QUESTIONS
    assert {pk: after[pk] for pk in first} == first, "no question was asked twice"
    assert set(ended.items.values_list("query_run", flat=True)) == set(after)
