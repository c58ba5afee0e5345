"""`manage.py ragd backup` and `ragd restore` on a server of their own, as an operator runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from collections_app.collections.services import create_collection, get_collection
from collections_app.documents.services import ingest_text
from collections_app.models import Status
from ragd_site import embedded
from ragd_site.backup import commands
from ragd_site.backup.programs import BackupError
from ragd_site.backup.repository import FolderStore, Repository
from ragd_site.backup.streams import Key
from ragd_site.backup.wal_archive import Shipped
from ragd_site.environment import read_environment
from ragd_site.run import StartError, check_archiving, make_children
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.s3_server import S3Server
from tests.refusals import raises_with

REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = Key.generate()
REPORTS = "SELECT name, values FROM statuses WHERE name LIKE 'backup%'"
EVENTS = "SELECT action, subject_name, channel FROM audit_events WHERE action LIKE 'backup.%' ORDER BY id"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher is tested on Linux")


class Server:
    """A new server with the tables of ragd, and a place for its backups."""

    def __init__(self, top: Path) -> None:
        self.top, self.var, self.place, self.key = top, top / "var", top / "place", top / "key"
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RAGD_", "DATABASE_", "AWS_", "CELERY_"))
        } | {"RAGD_VAR": str(self.var), "RAGD_LOG_LEVEL": "WARNING"}

    def manage(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *map(str, arguments)],
            cwd=REPOSITORY,
            env=self.variables | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def ragd(self, *arguments: object, status: int = 0, **variables: str) -> Any:
        """The JSON that a command of ragd prints."""
        done = self.manage("ragd", *arguments, "--json", **variables)
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    top = Path(tempfile.mkdtemp(prefix="ragd-backups-"))
    top.chmod(0o755)
    server = Server(top)
    migrated = server.manage("migrate", "--verbosity", "0")
    assert migrated.returncode == 0, migrated.stderr
    yield server
    for login in top.glob("*/postgres.json"):
        embedded.stop(login.parent)
    shutil.rmtree(top)


def refused(*arguments: object) -> str:
    """What a command that the command line is wrong for says."""
    with raises_with(CommandError, returncode=2) as caught:
        call_command("ragd", *map(str, arguments))
    return str(caught.value)


def test_place_and_key_must_be_said(settings: Any, tmp_path: Path) -> None:
    key = tmp_path / "key"
    settings.RAGD_BACKUP_TO = settings.RAGD_BACKUP_KEY = ""
    assert "RAGD_BACKUP_TO" in refused("backup", "list")
    assert "RAGD_BACKUP_KEY_FILE" in refused("backup", "list", "--at", tmp_path)
    assert "backup key" in refused("backup", "key")
    call_command("ragd", "backup", "key", str(key))
    assert key.stat().st_mode & 0o777 == 0o600
    made = key.read_text()
    Key(made)
    assert str(key) in refused("backup", "key", key)
    assert key.read_text() == made, "a second one would lose the first"
    inside = Path(settings.RAGD_VAR) / "backups"
    assert "RAGD_VAR" in refused("backup", "--at", inside, "--key-file", key)
    assert not inside.exists()
    assert "gone" in refused("backup", "list", "--at", tmp_path, "--key-file", tmp_path / "gone")
    key.write_text("sixteen characters and more")
    with pytest.raises(CommandError, match="AGE-SECRET-KEY"):
        call_command("ragd", "backup", "list", "--at", str(tmp_path), "--key-file", str(key))


def test_the_log_of_a_server_of_ones_own_is_not_archived(db: None, settings: Any, tmp_path: Path) -> None:
    settings.RAGD_BACKUP_KEY = SECRET
    settings.DATABASE_URL = "postgresql://somebody@db.example.org/ragd"
    assert "DATABASE_URL" in refused("backup", "wal", "--at", tmp_path / "place")
    assert not (tmp_path / "place").exists()


@pytest.mark.parametrize("wrong", ["noon", "2026-11-26T14:30:00", "14:30", ""])
def test_a_moment_has_its_offset(settings: Any, tmp_path: Path, wrong: str) -> None:
    """A time that could be meant in two ways restores the wrong one."""
    settings.RAGD_BACKUP_KEY = SECRET
    Repository.open(FolderStore(tmp_path / "place"), settings.RAGD_BACKUP_KEY, create=True)
    assert "--to" in refused("restore", tmp_path / "new", "--at", tmp_path / "place", "--to", wrong)
    assert not (tmp_path / "new").exists()


def test_a_collection_is_kept_encrypted_and_imported_again(
    committed: None, embeddings: OpenAIServer, settings: Any, tmp_path: Path
) -> None:
    settings.RAGD_BACKUP_KEY, settings.RAGD_BACKUP_TO = SECRET, str(tmp_path / "place")
    notes = create_collection(name="notes")
    for number, text in enumerate(("Whales eat krill.", "Redwoods are tall.")):
        ingest_text(notes, f"{number}.md", text)
    assert "--collection" in refused("backup", "drill", "--collection", notes.name)
    assert "--keep" in refused("backup", "--collection", notes.name, "--keep", -1)
    made = [told("backup", "--collection", notes.name, "--keep", 2) for _ in range(3)]
    assert (made[0]["documents"], made[0]["chunks"], made[0]["removed"]) == (2, 2, [])
    assert made[2]["removed"] == [made[0]["backup"]]
    listed = told("backup", "list")
    assert listed["backups"] == []
    assert {each["backup"] for each in listed["collections"]} == {made[1]["backup"], made[2]["backup"]}
    assert len(told("backup", "verify")["backups"]) == 2
    assert not any(b"krill" in path.read_bytes() for path in (tmp_path / "place").rglob("*") if path.is_file())

    file = tmp_path / "back.ragd.zip"
    assert "gone" in refused("restore", tmp_path / "gone" / "x", "--collection", notes.name)
    assert "--to" in refused("restore", file, "--collection", notes.name, "--to", "latest")
    assert told("restore", file, "--collection", notes.name)["backup"] == made[2]["backup"]
    content = file.read_bytes()
    for arguments in ((file, "--collection", notes.name), (tmp_path / "x", "--collection", "others")):
        with raises_with(CommandError, returncode=1):
            call_command("ragd", "restore", *map(str, arguments))
    assert file.read_bytes() == content
    call_command("ragd", "import", "collection", str(file), "--name", "again", "--json", stdout=StringIO())
    again = get_collection("again")
    assert [row.text for row in again.documents.order_by("doc_id")] == ["Whales eat krill.", "Redwoods are tall."]

    stored = tmp_path / "place" / "backups" / f"{made[1]['backup']}.zip.age"
    damaged = bytearray(stored.read_bytes())
    damaged[-30] ^= 1
    stored.write_bytes(damaged)
    with pytest.raises(CommandError):
        call_command("ragd", "restore", str(tmp_path / "y"), "--collection", notes.name, "--backup", made[1]["backup"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.ragd.zip", "place"]


def test_a_bucket_is_named_as_an_address(
    committed: None, embeddings: OpenAIServer, s3_server: S3Server, settings: Any
) -> None:
    settings.RAGD_BACKUP_KEY, settings.RAGD_BACKUP_TO = SECRET, "s3://vault/ragd/"
    settings.RAGD_S3_ENDPOINT, settings.AWS_REGION = s3_server.url, "us-east-1"
    settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY = s3_server.access_key, s3_server.secret_key
    s3_server.client().make_bucket("vault")
    notes = create_collection(name="notes")
    ingest_text(notes, "one.md", "Whales eat krill.")
    made = told("backup", "--collection", "notes")
    assert [each["backup"] for each in told("backup", "list")["collections"]] == [made["backup"]]
    stored = s3_server.client().list_objects("vault", recursive=True)
    assert all(str(each.object_name).startswith("ragd/") for each in stored)
    s3_server.require_keys()  # from here on: moto does not take the signature of any list below a prefix
    with pytest.raises(CommandError) as caught:
        call_command("ragd", "backup", "list")
    assert "vault" in str(caught.value)


def test_only_administrators_of_the_server_back_it_up(committed: None, settings: Any, tmp_path: Path) -> None:
    """The whole content leaves with it, whatever roles say of single collections."""
    settings.RAGD_BACKUP_KEY, settings.RAGD_BACKUP_TO = SECRET, str(tmp_path / "place")
    User.objects.create_user("ada")
    for action in ("server", "wal", "list", "verify", "drill"):
        with pytest.raises(CommandError, match="administer"):
            call_command("ragd", "--as", "ada", "backup", action)
    assert not (tmp_path / "place").exists()


def test_the_log_goes_on_after_a_failure(
    committed: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.RAGD_BACKUP_KEY, settings.RAGD_BACKUP_TO = SECRET, str(tmp_path / "place")
    until, waits = datetime(2026, 1, 1, tzinfo=UTC), []
    outcomes: list[Any] = [BackupError("the bucket is away"), Shipped("archive", until, 3, False)]

    def ship(*_: object) -> Shipped:
        if isinstance(outcomes[0], BackupError):
            raise outcomes.pop(0)
        return outcomes.pop(0)  # type: ignore[no-any-return]

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if not outcomes:
            raise KeyboardInterrupt

    monkeypatch.setattr(commands, "ship_wal", ship)
    monkeypatch.setattr(commands, "is_embedded", lambda: True)
    monkeypatch.setattr(commands.time, "sleep", wait)
    with pytest.raises(SystemExit) as caught:
        call_command("ragd", "backup", "wal", "--every", "7")
    assert (caught.value.code, waits) == (130, [7, 7])
    assert Status.objects.get(name="backup_archive").values["until"] == until.isoformat()
    assert "the bucket is away" in capsys.readouterr().err


def told(*arguments: object) -> Any:
    printed = StringIO()
    try:
        call_command("ragd", *map(str, arguments), "--json", stdout=printed)
    except SystemExit:
        pytest.fail(printed.getvalue())
    return json.loads(printed.getvalue())


@pytest.fixture(scope="module")
def made(server: Server) -> Any:
    """The first backup of the server, with an archive that began before it."""
    server.key.write_text(SECRET)
    server.variables |= {"RAGD_BACKUP_TO": str(server.place), "RAGD_BACKUP_KEY_FILE": str(server.key)}
    assert server.ragd("backup", "wal")["has_begun"] is True
    return server.ragd("backup", "--keep", 1)


def test_a_drill_proves_the_backup_and_is_remembered(server: Server, made: Any) -> None:
    assert (made["removed"], made["keeps_secret_key"], made["tables"] > 50) == ([], True, True)
    assert {"secret_key", "postgres.json"} <= set(made["files"])
    drilled = server.ragd("backup", "drill")
    assert (drilled["passed"], drilled["compared"], drilled["differences"]) == (True, True, [])
    assert drilled["checks"] == {"consistency": True, "conformance": True}
    assert drilled["rows"] == made["rows"]
    assert not (server.var / "drill").exists()
    cluster = embedded.read_cluster(server.var)
    assert cluster is not None
    with psycopg.connect(cluster.url) as connection:
        reports = dict(connection.execute(REPORTS).fetchall())
        events = connection.execute(EVENTS).fetchall()
    assert events == [("backup.create", made["backup"], "cli"), ("backup.drill", made["backup"], "cli")]
    assert reports["backup"]["backup"] == reports["backup_drill"]["backup"] == made["backup"]
    assert reports["backup_drill"]["passed"] is True
    assert reports["backup_archive"]["until"]


def test_a_restore_needs_no_server_and_makes_one(server: Server, made: Any) -> None:
    restored = server.top / "restored"
    answer = server.ragd("restore", restored, "--no-check", RAGD_VAR=str(server.top / "gone" / "var"))
    assert (answer["passed"], answer["compared"], answer["checks"]) == (True, False, {})
    assert not (server.top / "gone").exists()
    assert (restored / "secret_key").read_text() == (server.var / "secret_key").read_text()
    before, after = embedded.read_cluster(server.var), embedded.ensure_running(restored, fsync=False)
    assert before is not None
    assert after.port != before.port
    with psycopg.connect(after.url) as connection:
        assert connection.execute("SELECT count(*) FROM collections").fetchone() == (0,)


def test_what_there_is_and_whether_it_is_as_written(server: Server, made: Any, db: None, settings: Any) -> None:
    settings.RAGD_BACKUP_TO, settings.RAGD_BACKUP_KEY = str(server.place), SECRET
    assert server.ragd("backup", "wal")["has_begun"] is False
    (listed,) = told("backup", "list")["backups"]
    assert listed["backup"] == made["backup"]
    assert listed["until"] > listed["moment"] == made["moment"]
    (verified,) = told("backup", "verify", made["backup"])["backups"]
    assert 0 < verified["bytes"] < made["bytes"], "without what encryption adds"
    manifest = server.place / "backups" / f"{made['backup']}.json.age"
    content = manifest.read_bytes()
    manifest.write_bytes(b"something else")
    try:
        for action in ("list", "drill", "verify"):
            with pytest.raises((CommandError, SystemExit)):
                call_command("ragd", "backup", action, stdout=StringIO())
    finally:
        manifest.write_bytes(content)
    report = Status.objects.get(name="backup_drill")
    assert (report.values["passed"], bool(report.values["error"])) == (False, True)
    assert not (Path(settings.RAGD_VAR) / "drill").exists()


def test_make_run_carries_the_log_away_where_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "RAGD_BACKUP_TO", "RAGD_BACKUP_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert [child.name for child in make_children(read_environment(), {})] == ["web server", "worker"]
    monkeypatch.setenv("RAGD_BACKUP_WAL_S", "30")
    with pytest.raises(StartError, match="RAGD_BACKUP_KEY"):
        check_archiving(read_environment())
    monkeypatch.setenv("RAGD_BACKUP_TO", "/mnt/backups")
    monkeypatch.setenv("RAGD_BACKUP_KEY", SECRET)
    check_archiving(read_environment())
    archive = make_children(read_environment(), {"RAGD_VAR": "/srv/ragd"})[2]
    assert archive.command[2:] == ["ragd", "backup", "wal", "--every", "30", "--json"]
    assert archive.environment == {"RAGD_VAR": "/srv/ragd"}
    monkeypatch.setenv("DATABASE_URL", "postgresql://db.example.org/ragd")
    with pytest.raises(StartError, match="DATABASE_URL"):
        check_archiving(read_environment())
