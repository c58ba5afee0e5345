"""Backups of a real PostgreSQL, restored into new ones: equal, as of any moment, and never half."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyrage import decrypt_file, x25519

from ragd_site import embedded
from ragd_site.backup import programs, server_restore, table_facts, wal_archive
from ragd_site.backup.operations import keep_newest
from ragd_site.backup.programs import BackupError, DamagedError
from ragd_site.backup.repository import AGE, BACKUPS, Backup, FolderStore, Repository
from ragd_site.backup.server_restore import Restored, restore_server
from ragd_site.backup.streams import Key
from ragd_site.backup.wal_archive import back_up_server, end_archive, find_reach, segment_of, ship_wal
from tests.fakes.s3_server import S3Server
from tests.refusals import raises_with
from tests.server import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = Key.generate()
TEXTS = "INSERT INTO texts SELECT n, repeat(md5(n::text), 20) FROM generate_series(%s::int, %s::int) n"
KILLED_DRILL = """
import os, pathlib, signal, sys
import django
django.setup()
from ragd_site.backup import server_restore
from ragd_site.backup.repository import Repository
from ragd_site.backup.repository import FolderStore
server_restore._compare = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
repository = Repository.open(FolderStore(pathlib.Path(sys.argv[2])), sys.argv[3])
server_restore.run_drill(repository, pathlib.Path(sys.argv[1]), sys.argv[4], print)
"""
VECTORS = "CREATE TABLE vectors AS SELECT n, array_fill(n, ARRAY[3])::vector v FROM generate_series(1, 9) n"
KILLED = """
import os, pathlib, signal, sys
from ragd_site.backup.repository import Repository
from ragd_site.backup.wal_archive import back_up_server
from ragd_site.backup.repository import FolderStore
Repository.put_json = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
back_up_server(pathlib.Path(sys.argv[1]), Repository.open(FolderStore(pathlib.Path(sys.argv[2])), sys.argv[3]))
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher is tested on Linux")


@pytest.fixture(autouse=True)
def no_tables_of_ragd(monkeypatch: pytest.MonkeyPatch) -> None:
    """These servers hold no ragd: its own checks are tried with the commands."""
    monkeypatch.setattr(server_restore, "CHECKS", ())


@pytest.fixture(scope="module")
def top() -> Iterator[Path]:
    """A folder that the server's user can enter; what runs below it is stopped afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ragd-backup-"))
    folder.chmod(0o755)
    yield folder
    for login in folder.glob("*/postgres.json"):
        embedded.stop(login.parent)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(top: Path) -> embedded.Cluster:
    """With a few tables and files beside them."""
    cluster = embedded.ensure_running(top / "var", fsync=False)
    (top / "var" / "secret_key").write_text("the server's secret key")
    (top / "var" / "erasures.jsonl").write_text("{}\n")
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute("CREATE TABLE texts (n int PRIMARY KEY, content text)")
        connection.execute(VECTORS)
        connection.execute("CREATE UNLOGGED TABLE passing AS SELECT 1 AS n")
        connection.execute(TEXTS, [1, 1000])
    return cluster


@pytest.fixture
def connection(server: embedded.Cluster) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def repository(top: Path) -> Repository:
    return Repository.open(FolderStore(top / "backups"), SECRET, create=True)


@pytest.fixture(scope="module")
def backup(top: Path, server: embedded.Cluster, repository: Repository) -> Backup:
    """With an archive of the write-ahead log that began before it."""
    assert ship_wal(top / "var", repository).has_begun
    return back_up_server(top / "var", repository)


@pytest.fixture
def place(top: Path) -> Iterator[Path]:
    """Where a server may be restored."""
    folder = Path(tempfile.mkdtemp(dir=top))
    folder.rmdir()
    yield folder
    if folder.exists():
        embedded.stop(folder)
        server_restore.remove_server(folder)


@pytest.fixture
def copy(top: Path, repository: Repository, backup: Backup) -> Iterator[Repository]:
    """The repository once more, to be damaged."""
    folder = Path(tempfile.mkdtemp(dir=top))
    shutil.copytree(top / "backups", folder, dirs_exist_ok=True)
    yield Repository.open(FolderStore(folder), SECRET)
    shutil.rmtree(folder)


def ask(folder: Path, statement: str) -> object:
    with psycopg.connect(embedded.ensure_running(folder, fsync=False).url) as connection:
        row = connection.execute(statement).fetchone()  # type: ignore[arg-type]
    return row[0] if row else None


def now(connection: psycopg.Connection[Any]) -> datetime:
    ((moment,),) = connection.execute("SELECT clock_timestamp()").fetchall()
    return datetime.fromisoformat(str(moment))


def names_of_slots(connection: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in connection.execute("SELECT slot_name FROM pg_replication_slots ORDER BY 1")]


def damage(repository: Repository, name: str, change: Callable[[bytearray], object]) -> None:
    name += AGE
    store = repository.store
    assert isinstance(store, FolderStore)
    content = bytearray((store.folder / name).read_bytes())
    change(content)
    (store.folder / name).write_bytes(content)


def flip_a_bit(content: bytearray) -> None:
    content[len(content) // 2] ^= 4


def test_restored_server_is_equal_to_the_manifest_and_has_the_files(
    repository: Repository, backup: Backup, place: Path
) -> None:
    restored = restore_server(repository, place)
    assert restored.backup.id == backup.id
    assert (restored.is_compared, restored.differences, restored.has_passed) == (True, [], True)
    assert backup.manifest["tables"].keys() == {"public.texts", "public.vectors"}
    assert backup.manifest["tables"]["public.texts"]["rows"] == 1000
    assert restored.rows == 1009
    assert ask(place, "SELECT count(*) FROM texts") == 1000
    assert ask(place, "SELECT v::text FROM vectors WHERE n = 7") == "[7,7,7]"
    assert (place / "secret_key").read_text() == "the server's secret key"
    assert (place / "secret_key").stat().st_mode & 0o777 == 0o600
    assert [*backup.manifest["files"]] == ["postgres.json", "secret_key", "erasures.jsonl"]
    with psycopg.connect(embedded.ensure_running(place).url) as connection:
        assert names_of_slots(connection) == []
        connection.execute(TEXTS, [5000, 5001])


def test_nothing_of_the_content_can_be_read_without_the_key(repository: Repository, backup: Backup, top: Path) -> None:
    stored = b"".join(path.read_bytes() for path in (top / "backups").rglob("*") if path.is_file())
    assert b"CREATE TABLE" not in stored
    assert b"texts" not in stored
    assert b"the server's secret key" not in stored
    assert b"PG_VERSION" not in stored


def test_a_row_that_was_deleted_later_comes_back(
    top: Path, repository: Repository, backup: Backup, connection: psycopg.Connection[Any], place: Path
) -> None:
    connection.execute("INSERT INTO texts VALUES (7001, 'kept until noon')")
    noon = now(connection)
    connection.execute("DELETE FROM texts WHERE n = 7001")
    connection.execute("INSERT INTO texts VALUES (7002, 'after noon')")
    shipped = ship_wal(top / "var", repository)
    assert shipped.until > noon
    restored = restore_server(repository, place, until=noon)
    assert (restored.moment, restored.is_compared, restored.has_passed) == (noon, False, True)
    assert ask(place, "SELECT string_agg(content, ',') FROM texts WHERE n > 7000") == "kept until noon"


def test_latest_is_all_that_was_carried_away(
    top: Path, repository: Repository, backup: Backup, connection: psycopg.Connection[Any], place: Path
) -> None:
    connection.execute("INSERT INTO texts VALUES (8001, 'carried away')")
    shipped = ship_wal(top / "var", repository)
    connection.execute("INSERT INTO texts VALUES (8002, 'not yet')")
    restored = restore_server(repository, place, until="latest")
    assert restored.moment == shipped.until
    assert ask(place, "SELECT string_agg(content, ',') FROM texts WHERE n > 8000") == "carried away"


def test_complete_files_of_the_log_are_stored_once(
    top: Path, repository: Repository, backup: Backup, connection: psycopg.Connection[Any], place: Path
) -> None:
    for number in range(3):
        connection.execute("INSERT INTO texts VALUES (%s, 'x')", [9000 + number])
        connection.execute("SELECT pg_switch_wal()")
    assert ship_wal(top / "var", repository).segments >= 3
    assert ship_wal(top / "var", repository).segments == 0
    reach = find_reach(repository, backup)
    assert reach is not None
    assert [name.endswith(".partial.gz") for name in reach.names] == [False] * (len(reach.names) - 1) + [True]
    assert sum(name.endswith(".partial.gz") for name in repository.names("wal/")) == 1
    restore_server(repository, place, until="latest")
    assert ask(place, "SELECT count(*) FROM texts WHERE n BETWEEN 9000 AND 9002") == 3


def test_a_log_that_ends_with_a_file_leaves_no_gap(
    top: Path,
    repository: Repository,
    backup: Backup,
    connection: psycopg.Connection[Any],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody else may end a file of the log just before it is looked at."""
    connection.execute("INSERT INTO texts VALUES (9500, 'before')")
    with monkeypatch.context() as patch:
        patch.setattr(wal_archive, "MARK", "SELECT clock_timestamp(), pg_switch_wal()")
        ship_wal(top / "var", repository)
    connection.execute("INSERT INTO texts VALUES (9501, 'after')")
    ship_wal(top / "var", repository)
    restore_server(repository, place, until="latest")
    assert ask(place, "SELECT count(*) FROM texts WHERE n IN (9500, 9501)") == 2


class Meddler:
    """A connection before whose restore points something else happens, the next of `deeds` each time."""

    def __init__(self, connection: psycopg.Connection[Any], deeds: list[Callable[[], object]]) -> None:
        self._connection, self._deeds = connection, deeds

    def execute(self, statement: str, values: Sequence[object]) -> Any:
        if "pg_create_restore_point" in statement and self._deeds:
            self._deeds.pop(0)()
        return self._connection.execute(statement, values)  # type: ignore[call-overload]


def test_a_point_that_something_was_written_beside_does_not_count(
    server: embedded.Cluster, connection: psycopg.Connection[Any]
) -> None:
    """Ended between the snapshot and the point, or under way at the point: its end may be in the log already."""
    with (
        embedded.connect(server) as admin,
        psycopg.connect(server.url, autocommit=True) as reader,
        psycopg.connect(server.url) as writer,
    ):
        deeds: list[Callable[[], object]] = [
            lambda: connection.execute("INSERT INTO texts VALUES (30001, 'x')"),
            lambda: writer.execute("INSERT INTO texts VALUES (30002, 'x')"),
            lambda: None,
            writer.commit,
            lambda: None,
        ]
        meddler: Any = Meddler(admin, deeds)
        with table_facts.moment_with_facts(reader, meddler, "meddled") as (_, point):
            ((seen,),) = reader.execute("SELECT count(*) FROM texts WHERE n IN (30001, 30002)").fetchall()
        assert (point, seen, deeds) == ("meddled-4", 2, [])


def test_moments_outside_of_what_is_kept_are_refused(
    repository: Repository, backup: Backup, copy: Repository, place: Path
) -> None:
    for wrong in (backup.moment - timedelta(seconds=1), datetime.now(UTC) + timedelta(hours=1)):
        with raises_with(BackupError, type="moment_not_there"):
            restore_server(repository, place, until=wrong)
    reach = find_reach(copy, backup)
    assert reach is not None
    copy.remove(reach.names[0])
    with pytest.raises(BackupError) as caught:
        restore_server(copy, place, until="latest")
    assert reach.names[0].partition(".")[0] in str(caught.value)
    assert not place.exists()


def test_a_folder_that_holds_anything_is_left_as_it_is(repository: Repository, backup: Backup, place: Path) -> None:
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    for folder in (place, place / "notes.txt"):
        with raises_with(BackupError, type="folder_not_empty"):
            restore_server(repository, folder)
    assert [path.name for path in place.iterdir()] == ["notes.txt"]
    assert (place / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("change", [flip_a_bit, lambda content: content.pop(), lambda content: content.append(0)])
def test_an_altered_byte_is_found(
    copy: Repository, backup: Backup, place: Path, change: Callable[[bytearray], object]
) -> None:
    assert copy.verify(backup) == backup.manifest["bytes"]
    damage(copy, backup.content, change)
    with pytest.raises(DamagedError) as caught:
        copy.verify(backup)
    assert backup.content in str(caught.value)
    with pytest.raises(DamagedError):
        restore_server(copy, place)
    assert [*place.iterdir()] == [], "another try is not refused"


def test_missing_and_exchanged_files_are_found(
    top: Path, copy: Repository, backup: Backup, connection: psycopg.Connection[Any], place: Path
) -> None:
    """Each is a good file under the right key."""
    newer = back_up_server(top / "var", copy)
    connection.execute("SELECT pg_switch_wal()")
    connection.execute("SELECT pg_logical_emit_message(false, 'ragd', 'a second file has something to hold')")
    connection.execute("SELECT pg_switch_wal()")
    ship_wal(top / "var", copy)
    reach = find_reach(copy, newer)
    assert reach is not None
    first, second = reach.names[:2]
    exchange(copy, first, second)
    with pytest.raises(DamagedError, match="another part"):
        restore_server(copy, place, until="latest")
    exchange(copy, newer.content, backup.content)
    with pytest.raises(DamagedError, match=newer.id):
        copy.verify(newer)
    exchange(copy, newer.manifest_name, backup.manifest_name)
    with pytest.raises(DamagedError, match=backup.id):
        copy.find(newer.id)
    copy.remove(backup.content)
    with pytest.raises(DamagedError, match="missing"):
        copy.verify(backup)


def exchange(repository: Repository, first: str, second: str) -> None:
    contents = [b"".join(repository.store.get(name + AGE)) for name in (first, second)]
    repository.store.put(first + AGE, [contents[1]])
    repository.store.put(second + AGE, [contents[0]])


def test_plain_tools_read_it(top: Path, repository: Repository, backup: Backup, tmp_path: Path) -> None:
    """An age file of a tar, in which PostgreSQL's data folder lies whole with the log that it needs."""
    identity = x25519.Identity.from_str(SECRET.splitlines()[-1])
    tar = tmp_path / "base.tar.gz"
    decrypt_file(str(top / "backups" / f"{backup.content}.age"), str(tar), [identity])
    subprocess.run(["tar", "xzf", tar, "-C", tmp_path], check=True)
    assert (tmp_path / "PG_VERSION").read_text().strip() == embedded.MAJOR_VERSION
    assert (tmp_path / "pg_wal" / backup.manifest["last_segment"]).stat().st_size == 16 << 20


def test_an_altered_manifest_is_found_and_stands_in_no_others_way(
    top: Path, copy: Repository, backup: Backup, place: Path
) -> None:
    newer = back_up_server(top / "var", copy)
    damage(copy, newer.manifest_name, flip_a_bit)
    with pytest.raises(DamagedError):
        copy.backups()
    found: list[DamagedError] = []
    assert [each.id for each in copy.backups(damaged=found)] == [backup.id]
    assert newer.id in str(found[0])
    with pytest.raises(DamagedError) as caught:
        restore_server(copy, place)
    assert newer.id in str(caught.value), "an older one is no answer to a wish for the newest"
    assert "--backup" in str(caught.value)
    assert keep_newest(copy, 1) == []
    assert newer.content in copy.names(BACKUPS)
    assert restore_server(copy, place, backup_id=backup.id).has_passed


def test_tables_that_are_not_equal_are_named_and_the_server_does_not_start(
    copy: Repository, backup: Backup, place: Path
) -> None:
    tables = {name: dict(facts) for name, facts in backup.manifest["tables"].items()}
    tables["public.texts"]["rows"] += 1
    tables["public.vectors"]["hash"] = "1"
    tables["public.gone"] = {"rows": 0, "hash": "0"}
    copy.put_json(backup.manifest_name, backup.manifest | {"tables": tables})
    restored = restore_server(copy, place)
    assert [each.split()[0] for each in restored.differences] == ["public.gone", "public.texts", "public.vectors"]
    assert not restored.has_passed
    with pytest.raises(embedded.EmbeddedError):
        embedded.ensure_running(place)
    server_restore.remove_server(place)


def test_a_wrong_key_is_refused(top: Path, repository: Repository, backup: Backup) -> None:
    with raises_with(BackupError, type="wrong_backup_key"):
        Repository.open(FolderStore(top / "backups"), Key.generate())
    with raises_with(BackupError, type="wrong_backup_key"):
        Repository.open(FolderStore(top / "backups"), Key.generate(), create=True)
    with raises_with(BackupError, type="backup_missing"):
        Repository.open(FolderStore(top / "elsewhere"), SECRET)
    assert not (top / "elsewhere").exists()


def test_a_backup_that_is_killed_looks_like_none(
    top: Path, copy: Repository, backup: Backup, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, slots = [each.id for each in copy.backups()], names_of_slots(connection)
    names = {*copy.names(BACKUPS)}
    script = [sys.executable, "-c", KILLED, str(top / "var"), copy.store.address, SECRET]
    variables = os.environ | {"DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
    done = subprocess.run(script, cwd=REPOSITORY, env=variables, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = {*copy.names(BACKUPS)} - names
    assert [each.id for each in copy.backups()] == before
    with pytest.raises(BackupError):
        copy.find(left.removeprefix(BACKUPS).partition(".")[0])
    wait_for(lambda: names_of_slots(connection) == slots, "slots as before", 10)
    keep_newest(copy, 0)
    assert left in copy.names(BACKUPS), "another process may still be at it"
    assert isinstance(copy.store, FolderStore)
    half = copy.store.folder / ".drafts" / "half"
    half.write_bytes(b"of a killed process")
    keep_newest(copy, 0)
    assert half.exists()
    monkeypatch.setattr("ragd_site.backup.operations.ABANDONED_AFTER", timedelta(seconds=-5))
    keep_newest(copy, 0)
    assert not half.exists()
    assert {*copy.names(BACKUPS)} == names


def test_a_killed_drill_stands_in_no_later_ones_way(
    top: Path, copy: Repository, backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [sys.executable, "-c", KILLED_DRILL, str(top / "var"), copy.store.address, SECRET, backup.id]
    variables = os.environ | {"DJANGO_SETTINGS_MODULE": "ragd_site.settings", "RAGD_PROCESS": "restore"}
    killed = subprocess.run(script, cwd=REPOSITORY, env=variables, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    data = embedded.home_folder(top / "var" / "drill") / "data"
    left = embedded.postmaster_pid(data)
    assert left is not None
    recorded: list[bool] = []
    monkeypatch.setattr(server_restore, "record_drill", lambda values, passed: recorded.append(passed))
    with programs.only_one(top / "var", server_restore.LOCK_FILE), pytest.raises(BackupError, match="another process"):
        server_restore.run_drill(copy, top / "var", backup.id, print)
    assert server_restore.run_drill(copy, top / "var", backup.id, print)["passed"] is True
    assert recorded == [True]
    assert str(data) not in embedded.read_command(left), "ended; an init that reaps no orphans may still list it"
    assert not (top / "var" / "drill").exists()


def test_a_backup_that_fails_leaves_nothing(
    top: Path, copy: Repository, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = copy.names("")
    put = FolderStore.put

    def full(store: FolderStore, name: str, content: Iterable[bytes]) -> int:
        if ".json" in name:
            raise BackupError("the disk is full")
        return put(store, name, content)

    with monkeypatch.context() as patch, pytest.raises(BackupError, match="the disk is full"):
        patch.setattr(FolderStore, "put", full)
        back_up_server(top / "var", copy)
    assert copy.names("") == names
    connection.execute("BEGIN")
    connection.execute("INSERT INTO texts VALUES (6000, 'open for long')")
    monkeypatch.setattr(table_facts, "QUIET_WITHIN_S", 0.2)
    with pytest.raises(BackupError, match="pg_stat_activity"):
        back_up_server(top / "var", copy)
    connection.execute("ROLLBACK")
    assert copy.names("") == names


def test_a_backup_beside_writers_is_of_one_moment(
    top: Path, server: embedded.Cluster, copy: Repository, place: Path
) -> None:
    """The manifest counts in the very moment that the restore stops at."""
    ended = threading.Event()

    def write(first: int) -> None:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            while not ended.is_set():
                connection.execute(
                    "INSERT INTO texts SELECT max(n) + %s, repeat('x', 2000) FROM texts ON CONFLICT DO NOTHING", [first]
                )
                connection.execute("UPDATE vectors SET v = (SELECT array_fill(random(), ARRAY[3])::vector)")
                ended.wait(0.001)

    writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for writer in writers:
        writer.start()
    try:
        backup = back_up_server(top / "var", copy)
    finally:
        ended.set()
        for writer in writers:
            writer.join()
    restored = restore_server(copy, place, backup_id=backup.id)
    assert backup.manifest["tables"]["public.texts"]["rows"] > 1000
    assert (restored.is_compared, restored.differences) == (True, [])


def test_only_the_newest_stay_with_the_log_that_they_need(
    top: Path, copy: Repository, backup: Backup, connection: psycopg.Connection[Any], place: Path
) -> None:
    slots = names_of_slots(connection)
    for number in range(2):
        connection.execute("INSERT INTO texts VALUES (%s, 'x')", [1_000_000 + number])
        connection.execute("SELECT pg_switch_wal()")
    ship_wal(top / "var", copy)
    newer = back_up_server(top / "var", copy)
    connection.execute("INSERT INTO texts VALUES (1000002, 'x')")
    ship_wal(top / "var", copy)
    assert slots == names_of_slots(connection)
    others = [each.id for each in copy.backups()][1:]
    removed = keep_newest(copy, 1)
    assert sorted(each.id for each in removed) == sorted(others)
    assert [each.id for each in copy.backups()] == [newer.id]
    kept = sorted(segment_of(name) for name in copy.names("wal/") if "end" not in name)
    assert kept[0] == newer.manifest["first_segment"]
    restored = restore_server(copy, place, until="latest")
    assert restored.backup.id == newer.id
    assert ask(place, "SELECT count(*) FROM texts WHERE n BETWEEN 1000000 AND 1000002") == 3
    with pytest.raises(BackupError):
        keep_newest(copy, -1)


def test_an_archive_that_the_server_did_not_wait_for_begins_anew(top: Path, place: Path) -> None:
    cluster = embedded.ensure_running(place, fsync=False)
    repository = Repository.open(FolderStore(top / "small"), SECRET, create=True)
    first = ship_wal(place, repository)
    backup = back_up_server(place, repository)
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        connection.execute("ALTER SYSTEM SET max_wal_size = '32MB'")
        connection.execute("SELECT pg_reload_conf()")
        for _ in range(6):
            connection.execute("CREATE TABLE t ()")
            connection.execute("DROP TABLE t")
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
        second = ship_wal(place, repository)
        assert (second.has_begun, second.archive != first.archive) == (True, True)
        assert names_of_slots(connection) == [second.archive]
        reach = find_reach(repository, backup)
        assert reach is None or reach.until <= first.until, "what came after the gap follows no backup"
        keep_newest(repository, 0)
        assert {name.split("/")[1] for name in repository.names("wal/")} == {first.archive, second.archive}
        assert end_archive(place, repository)
        assert names_of_slots(connection) == []
        assert not end_archive(place, repository)


@pytest.mark.parametrize("prefix", ["", "ragd/nightly/"])
def test_a_bucket_serves_as_well_as_a_folder(
    top: Path, server: embedded.Cluster, s3_server: S3Server, place: Path, prefix: str
) -> None:
    store = bucket_store(s3_server, prefix)
    with raises_with(BackupError, type="backup_missing"):
        Repository.open(store, SECRET)
    s3_server.client().make_bucket("backups")
    repository = Repository.open(store, SECRET, create=True)
    ship_wal(top / "var", repository)
    backup = back_up_server(top / "var", repository)
    assert repository.verify(backup) > 0
    restored: Restored = restore_server(repository, place)
    assert (restored.backup.id, restored.differences) == (backup.id, [])
    stored = {each.object_name for each in s3_server.client().list_objects("backups", recursive=True)}
    assert f"{prefix}{backup.manifest_name}.age" in stored
    assert all(name and name.startswith(prefix) for name in stored)

    def broken() -> Iterator[bytes]:
        yield os.urandom(40 << 20)  # more than one part of an upload
        raise BackupError("pg_basebackup ended")

    with pytest.raises(BackupError, match="pg_basebackup ended"):
        repository.put(f"{BACKUPS}half", broken())
    assert repository.names(f"{BACKUPS}half") == []
    repository.remove(backup.manifest_name)
    assert repository.backups() == []
    end_archive(top / "var", repository)


def bucket_store(server: S3Server, prefix: str) -> Any:
    from ragd.readers.fetching.buckets import BucketKeys
    from ragd_site.backup.repository import BucketStore

    keys = BucketKeys(server.access_key, server.secret_key)
    return BucketStore(server.url, "backups", prefix, keys=keys, region="us-east-1", timeout_s=20)
