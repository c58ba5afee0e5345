"""Which databases are refused, and in which words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from psycopg import sql

from collections_app.domain.rows import prepared
from ragd.store.store import fetch_all
from ragd_site import embedded
from ragd_site.checks import check_database, list_problems
from ragd_site.runtime import programs

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.django_db
def test_database_of_the_tests_is_accepted() -> None:
    assert check_database("default") == []


@pytest.mark.django_db
def test_a_constant_statement_that_comes_again_stays_prepared() -> None:
    for number in range(5):
        assert fetch_all(prepared, "SELECT %(number)s::int + 1", {"number": number}) == [(number + 1,)]
        fetch_all(connection, "SELECT %(number)s::int + 2", {"number": number})
    kept = [text for (text,) in fetch_all(connection, "SELECT statement FROM pg_prepared_statements")]
    assert any("+ 1" in text for text in kept) and not any("+ 2" in text for text in kept)


@pytest.mark.django_db
def test_text_folds_the_same_on_every_machine() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT lower('ÄÖÜ ΩI'), to_tsvector('english', 'Überläufe')::text")
        assert cursor.fetchone() == ("äöü ωi", "'überläuf':1")


@pytest.mark.parametrize(
    ("version", "extension", "may_create", "problems"),
    [
        (170000, ("0.8.4", True), False, []),
        (180004, ("0.10.1", False), True, []),
        (
            160014,
            ("0.8.5", True),
            True,
            ["DATABASE_URL points to PostgreSQL 16.14; ragd needs PostgreSQL 17 or newer."],
        ),
        (
            170002,
            ("0.7.4", True),
            True,
            [
                "The PostgreSQL of DATABASE_URL has pgvector 0.7.4; ragd needs pgvector 0.8.4 or newer. "
                "Run ALTER EXTENSION vector UPDATE after upgrading it."
            ],
        ),
        (
            180004,
            ("0.8.3", True),
            True,
            [
                "The PostgreSQL of DATABASE_URL has pgvector 0.8.3; ragd needs pgvector 0.8.4 or newer. "
                "Run ALTER EXTENSION vector UPDATE after upgrading it."
            ],
        ),
        (
            170002,
            None,
            True,
            [
                "The PostgreSQL of DATABASE_URL has no pgvector; "
                "ragd needs pgvector 0.8.4 or newer installed on that server."
            ],
        ),
        (
            170002,
            ("0.8.5", False),
            False,
            [
                "pgvector is not created in this database and the user of DATABASE_URL may not create it; "
                "run CREATE EXTENSION vector there as a superuser."
            ],
        ),
    ],
)
def test_each_shortcoming_is_told_with_what_is_needed(
    version: int, extension: tuple[str, bool] | None, may_create: bool, problems: list[str]
) -> None:
    assert list_problems(version, extension, may_create) == problems


@pytest.fixture
def old_postgres() -> Iterator[str]:
    """The URL of a running PostgreSQL 16, which the wheel brings too."""
    wheel = programs.find_wheel_binaries().parent.parent / "pginstall" / "bin"
    home = Path(tempfile.mkdtemp(prefix="ragd-old-"))
    home.chmod(0o755)
    account = programs.server_account(home)
    account.own(home)
    data, port = str(home / "data"), embedded.free_port()

    def run(program: str, *arguments: str) -> None:
        result = programs.run_program([str(wheel / program), "-D", data, *arguments], account)
        assert result.returncode == 0, result.stdout

    run("initdb", "-U", "ragd", "-A", "trust", "-E", "UTF8", "--locale=C")
    run("pg_ctl", "-w", "-l", str(home / "log"), "-o", f"-h 127.0.0.1 -p {port} -k '' -c fsync=off", "start")
    yield f"postgresql://ragd@127.0.0.1:{port}/postgres"
    run("pg_ctl", "-w", "-m", "immediate", "stop")
    shutil.rmtree(home)


def run_python(database_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_old_postgres_stops_every_start_with_a_sentence(old_postgres: str) -> None:
    sentence = "DATABASE_URL points to PostgreSQL 16.14; ragd needs PostgreSQL 17 or newer."
    prepared = run_python(old_postgres, "-m", "ragd_site.prepare")
    assert (prepared.returncode, prepared.stderr) == (1, sentence + "\n")
    served = run_python(old_postgres, "-c", "import ragd_site.wsgi")
    assert (served.returncode, served.stderr) == (1, f"ragd does not start.\n{sentence}\n")
    migrated = run_python(old_postgres, "manage.py", "migrate")
    assert migrated.returncode == 1
    assert sentence in migrated.stderr


def test_database_that_is_away_stops_the_preparation_with_a_sentence() -> None:
    port = embedded.free_port()
    result = run_python(f"postgresql://ragd@127.0.0.1:{port}/ragd", "-m", "ragd_site.prepare")
    assert result.returncode == 1
    assert result.stderr.startswith("The database 'default' cannot be reached: ")
    assert result.stderr.endswith(" Check DATABASE_URL.\n")


@pytest.fixture
def empty_database() -> Iterator[str]:
    database = f"two_prepares_{os.getpid()}"
    name = sql.Identifier(database)
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(name))
        yield urlsplit(settings.DATABASE_URL)._replace(path=f"/{database}").geturl()
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.mark.fault("DEP-05")
@pytest.mark.timeout(1200)
def test_two_preparations_of_an_empty_database_wait_for_each_other(empty_database: str, tmp_path: Path) -> None:
    variables = {"DATABASE_URL": empty_database, "RAGD_VAR": str(tmp_path), "RAGD_SAMPLE": "false"}
    command = [sys.executable, "-m", "ragd_site.prepare"]
    both = [
        subprocess.Popen(command, cwd=REPOSITORY, env=os.environ | variables, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[1] for process in both]
    assert ([process.returncode for process in both], said) == ([0, 0], ["", ""])
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT count(*) FROM auth_user").fetchone() == (1,)


HEALTH = """
import os
os.environ["RAGD_PROCESS"] = "web"
os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
import django; django.setup()
from django.conf import settings
settings.DATABASES["default"]["OPTIONS"]["pool"]["timeout"] = 0.5
from django.test import Client
answer = Client(SERVER_NAME="localhost").get("/v1/health")
print(answer.status_code, answer.content.decode())
"""


def test_health_names_the_database_when_it_is_away() -> None:
    result = run_python(f"postgresql://ragd@127.0.0.1:{embedded.free_port()}/ragd", "-c", HEALTH)
    status, body = result.stdout.strip().split(" ", 1)
    message = "the database does not answer or has no schema; look at its log, run the migrations"
    assert (int(status), json.loads(body)) == (
        503,
        {"error": {"type": "database_unavailable", "message": message, "field": "database"}, "detail": message},
    )


@pytest.mark.django_db
def test_health_is_open_and_short(client: Client) -> None:
    answer = client.get("/v1/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_every_page_but_the_doors_with_keys_asks_for_a_log_in(client: Client) -> None:
    for path in ("/", "/collections/", "/chat/", "/activity/", "/operations/", "/nowhere/"):
        answer = client.get(path)
        assert answer.status_code in (302, 404), path
        if answer.status_code == 302:
            assert answer["Location"] == f"/accounts/login/?next={path}"
    assert client.get("/v1/collections").status_code == 401
    assert client.post("/mcp", data="{}", content_type="application/json").status_code == 401
    assert client.get("/v1/openapi.json").status_code == 200
    assert client.get("/v1/docs").status_code == 200
