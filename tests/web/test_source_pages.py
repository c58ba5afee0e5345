"""The pages of sources that a collection is kept in step with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestJob, Operation, Source
from collections_app.sources.kinds.registry import BUILT_IN
from collections_app.tasks import run_operation
from evaluation_app.telemetry.alerts.rules import evaluate_alerts
from tests.web.pages import attribute, has, is_empty, numbers, states, texts, wrong_fields

pytestmark = pytest.mark.usefixtures("bound")

SOURCES = "/collections/nature/sources/"


@pytest.fixture
def nature(fill: Callable[..., Collection], tmp_path: Path, settings: Any) -> Collection:
    settings.RAGD_SOURCE_FOLDERS = [str(tmp_path)]
    return fill("nature", 1)


def own_states(page: Any) -> list[str]:
    """The states below the collection's own."""
    return states(page)[1:]


def work() -> Operation:
    """The newest sync and its jobs, as the worker does them."""
    run = Operation.objects.latest("created_at")
    run_operation(str(run.pk))
    run.refresh_from_db()
    for job in IngestJob.objects.filter(batch=run.report.get("batch_id")):
        run_job(job.pk)
    return run


def test_a_source_from_the_form_to_its_documents(visitor: Client, nature: Collection, tmp_path: Path) -> None:
    assert is_empty(visitor.get(SOURCES))
    assert len(texts(visitor.get(f"{SOURCES}?view=new"), "tbody th a")) == len(BUILT_IN)
    form = f"{SOURCES}?view=new&kind=folder"
    assert has(visitor.get(form), "input[name=path]")
    answer = visitor.post(
        form, {"name": "share", "path": "/etc", "schedule": "60", "enabled": "on", "include": "*.txt"}
    )
    assert (answer.status_code, wrong_fields(answer)) == (422, ["path"])
    assert attribute(answer, "input[name=path]", "value") == "/etc"
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"About {name}.")
    values = {"name": "share", "path": str(tmp_path), "schedule": "60", "enabled": "on", "do": "preview"}
    answer = visitor.post(form, values)
    source = Source.objects.get()
    assert (source.schedule, source.enabled, source.created_by) == (60, True, "ada")
    page = visitor.get(answer["Location"])
    assert own_states(page) == ["running"] and has(page, "#source-run[hx-get]")
    assert visitor.post(f"{SOURCES}{source.pk}/", {"do": "sync"})["Location"] == f"{SOURCES}{source.pk}/"
    work()
    page = visitor.get(answer["Location"])
    assert numbers(page) == ["3", "0", "0", "0"]
    assert not Document.objects.filter(doc_id="a.txt").exists()
    answer = visitor.post(f"{SOURCES}{source.pk}/", {"do": "sync"})
    run = work()
    assert texts(visitor.get(answer["Location"]), "[data-change=added] th a") == ["a.txt", "b.txt", "c.txt"]
    page = visitor.get(f"{SOURCES}{source.pk}/")
    assert own_states(page) == ["succeeded"] * 3
    assert own_states(visitor.get(SOURCES)) == ["succeeded"]
    for name in "bc":
        (tmp_path / f"{name}.txt").unlink()
    visitor.post(f"{SOURCES}{source.pk}/", {"do": "sync"})
    run = work()
    at = f"/collections/nature/syncs/{run.pk}/"
    assert texts(visitor.get(at), "[data-change=held] th") == ["b.txt", "c.txt"]
    for address in ("/", "/collections/nature/"):
        assert attribute(visitor.get(address), ".banner[data-source]", "data-source") == str(source.pk)
    visitor.post(f"{SOURCES}{source.pk}/", {"do": "agree", "run": str(run.pk)})
    assert work().report["deleted"] == 2
    assert not has(visitor.get("/collections/nature/"), ".banner[data-source]")
    visitor.post(f"{SOURCES}{source.pk}/", {"do": "delete", "with_documents": "on"})
    assert not Source.objects.exists()
    assert not Document.objects.filter(doc_id__endswith=".txt").exists()


def test_a_failing_source_raises_the_alarm_and_can_be_changed(
    visitor: Client, admin_client: Client, nature: Collection, tmp_path: Path
) -> None:
    visitor.post(
        f"{SOURCES}?view=new&kind=folder",
        {"name": "share", "path": str(tmp_path / "none"), "schedule": "0", "do": "sync"},
    )
    source = Source.objects.get()
    run = work()
    assert (run.state, source.enabled) == ("failed", False)
    Source.objects.update(enabled=True)
    evaluate_alerts()
    assert has(admin_client.get("/operations/"), ".banner[data-alert=failing_sources]")
    assert has(visitor.get("/"), f".banner[data-source='{source.pk}']")
    home = admin_client.get("/")
    assert has(home, f".banner[data-source='{source.pk}']") and not has(home, "[data-alert=failing_sources]")
    assert own_states(visitor.get(SOURCES)) == ["failed"]
    edit = f"{SOURCES}{source.pk}/?view=edit"
    page = visitor.get(f"/collections/nature/syncs/{run.pk}/")
    assert has(page, f"#source-run form[action='{SOURCES}{source.pk}/'] [value=sync]") and has(
        page, f"a[href='{edit}']"
    )
    assert attribute(visitor.get(edit), "input[name=path]", "value") == str(tmp_path / "none")
    answer = visitor.post(edit, {"name": "other", "path": str(tmp_path), "schedule": "1440", "do": "save"})
    assert answer["Location"] == f"{SOURCES}{source.pk}/"
    visitor.post(f"{SOURCES}{source.pk}/", {"do": "sync"})
    at = Operation.objects.latest("created_at")
    visitor.post(f"/collections/operation/{at.pk}/")
    assert own_states(visitor.get(f"/collections/nature/syncs/{at.pk}/")) == ["cancelled"]
    assert visitor.get(f"{SOURCES}?view=new&kind=none").status_code == 404
