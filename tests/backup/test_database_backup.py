"""Dumps of a PostgreSQL of one's own: of one moment, restored as a server that is equal, or as a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from ragd_site import embedded
from ragd_site.backup import server_restore
from ragd_site.backup.operations import keep_newest
from ragd_site.backup.programs import BackupError, DamagedError, feed_program, read_program, split_password
from ragd_site.backup.repository import Backup, FolderStore, Repository
from ragd_site.backup.server_restore import back_up_database, restore_file, restore_server
from ragd_site.backup.streams import Key
from ragd_site.backup.table_facts import differences, read_facts
from ragd_site.runtime.programs import find_wheel_binaries
from tests.refusals import raises_with

SECRET = Key.generate()
TABLES = """
CREATE TYPE passing AS ENUM ('so that the object identifiers are others than in a new server');
CREATE EXTENSION vector;
CREATE ROLE ragd_reader NOLOGIN;
CREATE SCHEMA aside;
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TABLE empty ();
CREATE TABLE aside.odd ("a column" text, gone int, words text[], feeling mood, at timestamptz, wide sparsevec(5));
ALTER TABLE aside.odd DROP COLUMN gone;
INSERT INTO aside.odd VALUES ('', '{}', 'glad', '2026-01-01', '{1:0.1}/5'), (NULL, '{a,NULL}', NULL, NULL, NULL);
CREATE TABLE chunks (n int, body jsonb, v vector(3), words tsvector) PARTITION BY LIST (n);
CREATE TABLE chunks_1 PARTITION OF chunks FOR VALUES IN (1);
CREATE TABLE chunks_2 PARTITION OF chunks FOR VALUES IN (2);
INSERT INTO chunks SELECT 1 + n % 2, jsonb_build_object('n', n), array_fill(n / 7.0, ARRAY[3])::vector,
       to_tsvector('english', 'whales and number ' || n) FROM generate_series(1, 500) n;
ALTER TABLE chunks_1 ENABLE ROW LEVEL SECURITY;
CREATE POLICY reading ON chunks_1 TO ragd_reader USING (n > 0);
GRANT SELECT ON chunks_1 TO ragd_reader;
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher is tested on Linux")


@pytest.fixture(autouse=True)
def no_tables_of_ragd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_restore, "CHECKS", ())


@pytest.fixture(scope="module")
def top() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ragd-dumps-"))
    folder.chmod(0o755)
    yield folder
    embedded.stop(folder / "own")
    embedded.stop(folder / "restored")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def url(top: Path) -> str:
    """The database of somebody's own server."""
    address = embedded.ensure_running(top / "own", fsync=False).url
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in TABLES.split(";"):
            connection.execute(statement)  # type: ignore[arg-type]
    return address


@pytest.fixture(scope="module")
def repository(top: Path) -> Repository:
    return Repository.open(FolderStore(top / "backups"), SECRET, create=True)


@pytest.fixture(scope="module")
def backup(top: Path, url: str, repository: Repository) -> Backup:
    (top / "var").mkdir()
    (top / "var" / "receipt_key").write_text("signs receipts")
    return back_up_database(url, top / "var", repository, keeps_secret_key=False)


def test_a_new_server_holds_the_same_and_says_so(top: Path, repository: Repository, backup: Backup) -> None:
    tables = backup.manifest["tables"]
    assert {name: facts["rows"] for name, facts in tables.items()} == {
        "aside.odd": 2,
        "public.chunks_1": 250,
        "public.chunks_2": 250,
        "public.empty": 0,
    }
    restored = restore_server(repository, top / "restored")
    assert (restored.is_compared, restored.differences, restored.rows) == (True, [], 502)
    assert (top / "restored" / "receipt_key").read_text() == "signs receipts"
    with psycopg.connect(embedded.ensure_running(top / "restored", fsync=False).url) as connection:
        assert connection.execute("SELECT count(*) FROM chunks WHERE words @@ 'whale'").fetchone() == (500,)
        assert connection.execute("SELECT polname FROM pg_policy").fetchall() == [("reading",)]
    assert backup.manifest["keeps_secret_key"] is False
    keep_newest(repository, 1)
    assert [each.id for each in repository.backups()] == [backup.id]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunks SET v = '[1,2,3.0001]' WHERE body->>'n' = '7'",
        "UPDATE aside.odd SET words = '{NULL,a}' WHERE feeling IS NULL",
        'UPDATE aside.odd SET "a column" = \'\' WHERE "a column" IS NULL',
        "UPDATE aside.odd SET feeling = 'sad' WHERE feeling = 'glad'",
        "DELETE FROM chunks WHERE body->>'n' = '7'",
        "INSERT INTO aside.odd DEFAULT VALUES",
        "DROP TABLE empty",
        "CREATE TABLE more ()",
    ],
)
def test_every_change_is_found(url: str, change: str) -> None:
    with psycopg.connect(url) as connection:
        before = read_facts(connection)
        assert read_facts(connection) == before
        connection.execute(change)  # type: ignore[arg-type]
        assert len(differences(before, read_facts(connection))) == 1
        connection.rollback()
        assert differences(before, read_facts(connection)) == []


def test_a_dump_beside_writers_is_of_one_moment(top: Path, url: str, repository: Repository) -> None:
    ended = threading.Event()

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not ended.is_set():
                connection.execute("INSERT INTO chunks VALUES (1, '{}', '[1,1,1]', '')")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = back_up_database(url, top / "var", repository)
    finally:
        ended.set()
        writer.join()
    restored = restore_server(repository, top / "beside", backup_id=made.id)
    server_restore.remove_server(top / "beside")
    assert (restored.is_compared, restored.differences) == (True, [])
    repository.remove(made.manifest_name, made.content)


def test_the_dump_as_a_file_is_what_pg_restore_reads(top: Path, repository: Repository, backup: Backup) -> None:
    file = top / "ragd.dump"
    assert restore_file(repository, file).id == backup.id
    program = str(find_wheel_binaries() / "pg_restore")
    listed = subprocess.run([program, "--list", file], capture_output=True, text=True, check=True).stdout
    assert "TABLE DATA public chunks_1" in listed
    assert "ACL" not in listed
    with raises_with(BackupError, type="file_exists"):
        restore_file(repository, file)
    stored = top / "backups" / f"{backup.content}.age"
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    stored.write_bytes(content)
    try:
        with pytest.raises(DamagedError):
            restore_file(repository, top / "other.dump")
        with pytest.raises(DamagedError):
            restore_server(repository, top / "damaged")
        assert not (top / "damaged" / "postgres.json").exists()
    finally:
        content[len(content) // 2] ^= 1
        stored.write_bytes(content)
    assert not list(top.glob("*other.dump*"))


def test_a_dump_that_fails_leaves_nothing(top: Path, url: str, repository: Repository, backup: Backup) -> None:
    names = repository.names("")
    with pytest.raises(BackupError):
        back_up_database(url.replace(":" + url.split(":")[2].split("@")[0], ":wrong"), top / "var", repository)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE weak LOGIN PASSWORD 'w'")
        weak = url.replace(url.split("//")[1].split("@")[0], "weak:w")
        with pytest.raises(BackupError, match="permission denied"):
            back_up_database(weak, top / "var", repository)
    assert repository.names("") == names


def test_programs_say_why_they_failed_and_show_no_password() -> None:
    with pytest.raises(BackupError, match="status 3: out of luck"):
        list(read_program(["/bin/sh", "-c", "echo some; echo out of luck >&2; exit 3"], {}, {}))
    with pytest.raises(BackupError, match="status 4: no"):
        feed_program(["/bin/sh", "-c", "echo no >&2; exit 4"], {}, [b"x" * 100_000] * 10)
    assert list(read_program(["/bin/sh", "-c", "printf $PGPASSWORD"], {"PGPASSWORD": "p"}, {})) == [b"p"]
    target, secret = split_password("postgresql://ragd:s%20cret@db.example.org:5433/ragd?sslmode=require")
    assert "cret" not in target
    assert secret == {"PGPASSWORD": "s cret"}
    assert psycopg.conninfo.conninfo_to_dict(target)["sslmode"] == "require"
