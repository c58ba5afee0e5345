"""Two collections with marked words that most must not see, and a key for every role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client

from tests.api.conftest import DIMS, MODEL, Api, committed
from tests.fakes.openai_server import OpenAIServer

if TYPE_CHECKING:
    from collections_app.models import Collection

__all__ = ["committed"]

FOREIGN, NARROWED = "Zanzibarium", "Quokkaberry"  # words of the other collection, and of the narrowed document
OAK = "# Oak\n\nAn oak is a tree of forty metres. When an oak is old, it is hollow."
ROLES = ("viewer", "asker", "curator", "evaluator", "administrator")


@dataclass
class World:
    """ids: the values of path parameters, of what is in notes and of what is in vault."""

    notes: Collection
    vault: Collection
    keys: dict[str, Api]
    ids: dict[str, dict[str, Any]] = field(default_factory=dict)


@pytest.fixture
def key_of(db: None) -> Callable[..., Api]:
    from collections_app.access.api_keys import NewKey, create_key

    return lambda label="tests", **values: Api(Client(), create_key(NewKey(label, **values))[1])


@pytest.fixture(scope="module")
def module_world(module_db: None) -> Iterator[World]:
    """Vectors come from a server on the loopback for all tests of the module."""
    from django.test import override_settings

    server = OpenAIServer(dims=DIMS).start()
    names = {"MODEL": MODEL, "DIMS": DIMS, "BASE_URL": server.base_url, "API_KEY": server.api_key}
    with override_settings(**{f"RAGD_EMBED_{name}": value for name, value in names.items()}):
        yield build_world()
    server.stop()


@pytest.fixture
def world(module_world: World, db: None) -> World:
    keys = {role: Api(Client(), key.secret) for role, key in module_world.keys.items()}
    return World(deepcopy(module_world.notes), deepcopy(module_world.vault), keys, module_world.ids)


@pytest.fixture
def people(world: World) -> dict[str, Any]:
    from django.contrib.auth.models import User

    return {role: User.objects.get(username=f"the-{role}") for role in ROLES}


def build_world() -> World:
    """notes: oak, ash (with the narrowed word, for its administrators), a run, a golden set, an evaluation run; vault
    the same."""
    from django.contrib.auth.models import Group, User

    from collections_app.access.api_keys import NewKey, create_key
    from collections_app.access.document_access import set_access
    from collections_app.access.permissions import Role
    from collections_app.collections.services import create_collection
    from collections_app.documents.services import ingest_text
    from collections_app.models import RoleGrant

    def key_of(label: str, **values: Any) -> Api:
        return Api(Client(), create_key(NewKey(label, **values))[1])

    notes, vault = create_collection(name="notes"), create_collection(name="vault")
    for role in ROLES:
        RoleGrant.objects.create(user=User.objects.create_user(f"the-{role}"), collection_id=notes.pk, role=role)
    robots = Group.objects.create(name="robots")
    RoleGrant.objects.create(group=robots, collection_id=notes.pk, role=Role.CURATOR)
    ingest_text(notes, "oak", OAK, title="Oak")
    ingest_text(notes, "oak", OAK + "\n\nIts acorns feed jays.", title="Oak")
    ingest_text(notes, "ash", f"An oak of {NARROWED} is a tree of forty metres.", title=f"Ash {NARROWED}")
    ingest_text(vault, "oak", f"An oak of {FOREIGN} is a tree.", title=f"Oak {FOREIGN}")
    set_access(notes, ["ash"])
    keys = {role: key_of(role, acts_as=f"the-{role}") for role in ROLES}
    keys["robots"] = key_of("robots", groups=["robots"])
    made = World(notes, vault, keys)
    root = key_of("of the world")
    for collection, word in ((notes, NARROWED), (vault, FOREIGN)):
        made.ids[collection.name] = _fill(root, collection, word)
    return made


def _fill(root: Api, collection: Collection, word: str) -> dict[str, Any]:
    """A run, a golden set and an evaluation run that speak of the word; the ids of all that is there."""
    from collections_app.models import IngestJob

    name = collection.name
    run = root.post(f"/collections/{name}/ask", {"query": f"How tall is an oak of {word}?"}).json()
    golden = f"set-{name}"
    root.post("/golden-sets", {"name": golden, "collection": name})
    question = root.post(
        f"/golden-sets/{golden}/questions",
        {"question": f"How tall is {word}?", "expected_doc_ids": ["ash" if name == "notes" else "oak"]},
    ).json()
    evaluated = root.post("/evaluation-runs", {"golden_set": golden}).json()
    upload = root.upload(name, ("elm.txt", f"An elm of {name}.".encode())).json()
    plan = root.put(f"/collections/{name}/plans/fast", {"k": 3})
    assert plan.status_code == 200, plan.content
    job = IngestJob.objects.filter(collection=collection).order_by("-created_at")[0]
    assert evaluated.get("id"), evaluated
    return {
        "collection": name,
        "doc_id": "oak",
        "chunk_index": 0,
        "number": 1,
        "revision": 1,
        "run_id": run["run_id"],
        "golden_set": golden,
        "question_id": question.get("id"),
        "evaluation_run": evaluated.get("id"),
        "job_id": str(job.pk),
        "batch_id": upload["batch_id"],
        "plan": "fast",
        "model": f"ragd/{name}",
    }
