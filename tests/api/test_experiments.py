from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collections_app.models import Collection
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.lifecycle import run_now
from tests.api.conftest import Api

AT = "/experiments"
TEXT = "The {name} lives by river {number}. It was seen {number} times near the {name} mill."
NAMES = ["heron", "otter", "beaver", "kestrel", "badger", "salmon", "lynx", "marten", "plover", "adder"]


def fill(api: Api) -> None:
    for number, name in enumerate(NAMES):
        assert api.put(f"/collections/notes/documents/{name}", {"content": TEXT.format(name=name, number=number)})
    questions = [{"question": f"Where lives the {name} mill", "expected_doc_ids": [name]} for name in NAMES]
    assert api.post("/golden-sets", {"name": "animals", "collection": "notes"}).status_code == 201
    for question in questions:
        assert api.post("/golden-sets/animals/questions", question).status_code == 201


def test_the_whole_way_and_what_a_limited_key_sees(api: Api, notes: Collection, make_api: Callable[..., Any]) -> None:
    fill(api)
    body = {
        "kind": "models",
        "collection": "notes",
        "models": [{"embed_model": "text-embedding-3-small", "embed_dims": 64}],
        "golden_set": "animals",
        "k": 3,
    }
    started = api.post(AT, body)
    assert started.status_code == 202, started.json()
    at = f"/experiments/{started.json()['id']}"
    assert (started.json()["state"], api.get(at).json()["standings"]) == ("queued", [])
    for run in EvaluationRun.objects.order_by("place"):
        run_now(run)
    done = api.get(at).json()
    assert (done["state"], done["total"], done["settings"]["documents_total"]) == ("succeeded", 20, 10)
    assert {each["embed_dims"] for each in done["standings"]} == {32, 64}
    assert sum(each["is_current"] for each in done["standings"]) == 1
    assert api.patch(at, {"state": "cancelled"}).status_code == 409
    assert [each["id"] for each in api.get("/experiments?kind=models").json()["items"]] == [done["id"]]
    other = make_api(collections=["else"])
    assert other.get(at).status_code == 404
    assert other.get("/experiments").json()["items"] == []
    assert other.post(AT, body).status_code in (403, 404)
    reader = make_api(scope="read")
    assert reader.post(AT, body).status_code == 403
    refused = api.post(AT, body | {"models": []})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "models")
    unnamed = api.post(AT, body | {"kind": "magic"})
    assert unnamed.status_code == 422 and "'plans', 'models' or 'fix'" in unnamed.json()["error"]["message"]
