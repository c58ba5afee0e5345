"""The server's secret key changed for another: what was signed or encrypted before holds until the end and after."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings as configured
from django.db import connection
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.key_api import derive_secret, repeat_secret
from collections_app.endpoints.model_settings import begin_rotation, finish_rotation
from collections_app.errors import ServiceError
from ragd_site import embedded
from tests.refusals import raises_with

pytestmark = pytest.mark.timeout(600)  # it starts programs, one after another
REPOSITORY = Path(__file__).resolve().parents[2]
MODEL_KEY = "marked-key-of-a-model"
DATABASE = f"ragd_rotation_{os.getpid()}"

MAKE = """
from django.contrib.auth import get_user_model
from django.test import Client
from collections_app.endpoints.model_settings import save_setting
user = get_user_model().objects.create_user("ada", password="a long password")
client = Client(); client.force_login(user)
from collections_app.models import ModelSetting
from collections_app.endpoints.secrets import encrypt
values = {"purpose": "chat", "name": "Ours", "model": "ours-1", "base_url": "http://127.0.0.1:1/v1"}
ModelSetting.objects.create(**values, secret=encrypt("KEY"))
from retrieval_app.runs.receipts import own_key
print("COOKIE", client.cookies["sessionid"].value, own_key().id)
""".replace("KEY", MODEL_KEY)
LOOK = """
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from collections_app.models import ModelSetting
from collections_app.endpoints.secrets import decrypt, UnreadableSecretError
from retrieval_app.runs.receipts import own_key
request = HttpRequest(); request.session = SessionStore("COOKIE")
user = get_user(request); request.session.save()
try:
    key = decrypt(ModelSetting.objects.get().secret)
except UnreadableSecretError:
    key = "unreadable"
print("SEEN", user.username or "nobody", request.session.session_key, key, own_key().id)
"""


@pytest.fixture
def var(tmp_path: Path, db: None) -> Iterator[Path]:
    """A RAGD_VAR with a secret key of its own, over a migrated database of its own."""
    template = connection.settings_dict["TEST"]["TEMPLATE"]
    with psycopg.connect(configured.DATABASE_URL, autocommit=True) as maintenance:
        maintenance.execute(f"CREATE DATABASE {DATABASE} TEMPLATE {template}")  # type: ignore[call-overload]
        folder = tmp_path / "var"
        embedded.make_private_folder(folder)
        yield folder
        maintenance.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")  # type: ignore[call-overload]


def manage(var: Path, *arguments: str, script: str = "", **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "RAGD_SECRET_KEY"}
    environment |= {
        "RAGD_VAR": str(var),
        "DATABASE_URL": urlsplit(configured.DATABASE_URL)._replace(path=f"/{DATABASE}").geturl(),
    }
    done = subprocess.run(
        [sys.executable, "manage.py", *(arguments or ("shell", "--no-imports"))],
        cwd=REPOSITORY,
        env=environment | variables,
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def look(var: Path, cookie: str, **variables: str) -> list[str]:
    """[who is logged in, their cookie from now on, the model's key, the id of the receipts' key] of a new process."""
    printed = manage(var, script=LOOK.replace("COOKIE", cookie), **variables)
    [line] = [line for line in printed.splitlines() if line.startswith("SEEN ")]
    return line.split()[1:]


def make(var: Path, **variables: str) -> tuple[str, str]:
    printed = manage(var, script=MAKE, **variables)
    [line] = [line for line in printed.splitlines() if line.startswith("COOKIE ")]
    _, cookie, receipts = line.split()
    return cookie, receipts


def test_a_key_that_ragd_keeps_is_changed_in_two_steps(var: Path) -> None:
    cookie, receipts = make(var)
    first = (var / "secret_key").read_text()

    begun = json.loads(manage(var, "ragd", "rotate-secret-key", "--json"))
    assert (begun["state"], len(begun["steps"])) == ("begun", 3)
    second = (var / "secret_key").read_text()
    assert second != first and len(second) >= 50
    assert (var / "secret_key_earlier").read_text().split() == [first]
    for name in ("secret_key", "secret_key_earlier"):
        assert stat.S_IMODE((var / name).stat().st_mode) == 0o600
    assert first not in json.dumps(begun) and second not in json.dumps(begun)
    user, renewed, *rest = look(var, cookie)  # under both keys; a session is renewed when it is used
    assert (user, rest) == ("ada", [MODEL_KEY, receipts])

    finished = json.loads(manage(var, "ragd", "rotate-secret-key", "--finish", "--json"))
    assert (finished["state"], finished["renewed"]) == ("finished", 1)
    assert not (var / "secret_key_earlier").exists()
    assert look(var, renewed) == ["ada", renewed, MODEL_KEY, receipts]  # all under the new key alone
    (var / "secret_key").write_text(first)
    user, _, key, _ = look(var, renewed)
    assert (user, key) == ("nobody", "unreadable")  # nothing is left under the earlier one


def test_a_key_of_the_environment_is_changed_there(var: Path) -> None:
    old, new = "o" * 50, "n" * 50
    cookie, receipts = make(var, RAGD_SECRET_KEY=old)
    told = json.loads(manage(var, "ragd", "rotate-secret-key", "--json", RAGD_SECRET_KEY=old))
    assert (told["state"], len(told["steps"])) == ("unchanged", 3)
    assert not (var / "secret_key").exists()
    both = {"RAGD_SECRET_KEY": new, "RAGD_SECRET_KEY_FALLBACKS": old}
    user, renewed, *rest = look(var, cookie, **both)
    assert (user, rest) == ("ada", [MODEL_KEY, receipts])
    finished = json.loads(manage(var, "ragd", "rotate-secret-key", "--finish", "--json", **both))
    assert (finished["state"], finished["renewed"]) == ("finished", 1)
    assert look(var, renewed, RAGD_SECRET_KEY=new) == ["ada", renewed, MODEL_KEY, receipts]


def test_a_second_rotation_waits_for_the_end_of_the_first(tmp_path: Path, db: None) -> None:
    (tmp_path / "secret_key").write_text("first")
    begin_rotation(tmp_path)
    with raises_with(ServiceError, status=409, type="rotation_under_way"):
        begin_rotation(tmp_path)
    assert (tmp_path / "secret_key_earlier").read_text() == "first\n"
    assert finish_rotation(tmp_path) == 0
    begin_rotation(tmp_path)


def test_the_secret_of_a_repeated_request_is_the_one_that_was_made(db: None, settings: Any) -> None:
    create_key(NewKey("made before"), secret=derive_secret("nonce"))
    made, settings.SECRET_KEY_FALLBACKS = derive_secret("nonce"), [settings.SECRET_KEY]
    settings.SECRET_KEY = "another" * 10
    assert derive_secret("nonce") != made
    assert repeat_secret("nonce") == made
    settings.SECRET_KEY_FALLBACKS = []
    with raises_with(ServiceError, status=409):
        repeat_secret("nonce")
    assert Client().get("/v1/collections", headers={"Authorization": f"Bearer {made}"}).status_code == 200
