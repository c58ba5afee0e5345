from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings
from pydantic import SecretStr

from ragd_site.embedded import make_private_folder
from ragd_site.environment import (
    PAGE,
    Environment,
    SettingError,
    describe_variables,
    local_address,
    read_environment,
    secret_names,
    write_variables,
)
from ragd_site.runtime.processes import tune_postgres
from ragd_site.settings import describe_database

REPOSITORY = Path(__file__).resolve().parent.parent


def test_the_table_of_the_documentation_is_the_one_of_the_code(tmp_path: Path) -> None:
    page = tmp_path / "configuration.md"
    page.write_text(PAGE.read_text())
    write_variables(page)
    assert page.read_text() == PAGE.read_text(), "`make settings` writes it"
    row = "| `PORT` | `8000` | TCP port of the web server |"
    assert row in describe_variables().splitlines()
    assert describe_variables().count("\n| `") == len(Environment.model_fields)


def test_every_variable_is_a_setting_of_its_name() -> None:
    assert Environment.model_fields["RAGD_JOB_LEASE_S"].default == settings.RAGD_JOB_LEASE_S
    assert {name for name in Environment.model_fields if not hasattr(settings, name)} == set()
    assert type(settings.RAGD_METRICS_KEY) is str


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PORT", "eighty", "a whole number of at least 1 and of at most 65535"),
        ("PORT", "70000", "a whole number of at least 1 and of at most 65535"),
        ("RAGD_DEBUG", "maybe", "true or false"),
        ("RAGD_CAPTURE_CONTENT", "All", "one of full, hash, none"),
        ("RAGD_FETCH_PAUSE_S", "-1", "a number of at least 0"),
        ("RAGD_TRASH_DAYS", "3", "on the page"),
        ("DATABASE_URL", "mysql://localhost/x", "a URL that starts with postgresql:// or postgres://"),
        ("CELERY_BROKER_URL", "sqs://me:secret@queue", "or redis:// or rediss:// or amqp:// or amqps://"),
    ],
)
def test_wrong_value_is_named_with_what_is_accepted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError) as caught:
        read_environment()
    sentence = str(caught.value)
    assert sentence.startswith(f"{name}=") and expected in sentence
    assert (value in sentence) != ("secret" in value)


UNREADABLE = [
    "postgresql://ragd:secret1/secret2@127.0.0.1/ragd", "postgresql://ragd:secret1#secret2@127.0.0.1/ragd",
    "postgresql://ragd:secret1?secret2@127.0.0.1/ragd", "postgresql://ragd:12?secret2@127.0.0.1/ragd",
    "postgresql://ragd:12/secret2@127.0.0.1/ragd", "postgresql://ragd:#secret2@127.0.0.1/ragd",
    "postgresql://ragd:secret1[secret2@127.0.0.1/ragd", "postgresql://ragd:secret1]secret2@127.0.0.1/ragd",
    "postgresql://ragd:secret1/secret2@c#d%41@127.0.0.1/ragd",
    "postgresql://ragd:secret1\u2100secret2@127.0.0.1/ragd", "postgresql://ragd:secret1/secret2",
    "ragd:secret1@127.0.0.1/ragd",
]  # fmt: skip


@pytest.mark.fault("DEP-01")
@pytest.mark.parametrize("name", ["DATABASE_URL", "DATABASE_REPLICA_URL"])
@pytest.mark.parametrize("url", UNREADABLE)
def test_a_url_that_cannot_be_read_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, name: str, url: str) -> None:
    monkeypatch.setenv(name, url)
    with pytest.raises(SettingError) as caught:
        read_environment()
    sentence = str(caught.value)
    assert sentence.startswith(f"{name}=(hidden) is not accepted: ") and "\n" not in sentence
    assert "secret" not in sentence and caught.value.__cause__ is None


@pytest.mark.fault("DEP-01")
@pytest.mark.parametrize("password", ["a/b", "c#d", "e?f", "g@h", "i%41", "j:k", "l[m]", " n'o\"", "ü"])
def test_every_password_can_be_written_into_the_url(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    url = f"postgresql://ragd:{quote(password, safe='')}@127.0.0.1:5433/ragd"
    monkeypatch.setenv("DATABASE_URL", url)
    assert url == read_environment().DATABASE_URL
    described = describe_database(url, pooled=False)
    assert (described["PASSWORD"], described["HOST"], described["PORT"]) == (password, "127.0.0.1", "5433")


SECRETS = [
    "DATABASE_URL", "DATABASE_REPLICA_URL", "CELERY_BROKER_URL", "RAGD_SECRET_KEY", "RAGD_SECRET_KEY_FALLBACKS",
    "EMBED_API_KEY", "RAGD_RERANK_API_KEY", "OPENAI_API_KEY", "RAGD_BACKUP_KEY", "RAGD_JUDGE_API_KEY",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS",
    "RAGD_METRICS_KEY", "RAGD_ADMIN_PASSWORD", "RAGD_OIDC_CLIENT_SECRET", "RAGD_MAIL_PASSWORD",
]  # fmt: skip


def test_every_secret_may_stand_in_a_file_and_the_documentation_names_each() -> None:
    assert sorted(secret_names()) == sorted(SECRETS)
    text = (REPOSITORY / "docs" / "configuration.md").read_text()
    assert sorted(re.findall(r"`([A-Z0-9_]+)_FILE`", text)) == sorted(SECRETS)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_comes_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    scheme = {"DATABASE": "postgresql://", "CELERY": "redis://"}.get(name.split("_")[0], "")
    value = f"{scheme}ada:pass%20word@host/x"
    (tmp_path / "secret").write_text(f"\n {value}\r\n")
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(f"{name}_FILE", str(tmp_path / "secret"))
    found = getattr(read_environment(), name)
    assert (found.get_secret_value() if isinstance(found, SecretStr) else found) in (value, [value])
    monkeypatch.setenv(f"{name}_FILE", "")  # empty: unset
    assert getattr(read_environment(), name) == Environment.model_fields[name].default


def test_earlier_keys_stand_in_lines_of_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("first\nsecond, third\n")
    monkeypatch.setenv("RAGD_SECRET_KEY_FALLBACKS_FILE", str(tmp_path / "keys"))
    assert read_environment().RAGD_SECRET_KEY_FALLBACKS == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file or directory"),
        (b" \n", "it is empty"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"x" * 65_537, "it is larger"),
        (b"a\0b", "it holds a NUL"),
    ],
)
def test_a_file_without_a_value_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(path))
    monkeypatch.setenv("PORT", "x")
    with pytest.raises(SettingError) as caught:
        read_environment()
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"OPENAI_API_KEY_FILE='{path}' is not accepted: expected a text file of at most 64 kB")
    assert f", but {said}." in first
    assert second.startswith("PORT=")


def test_a_secret_is_given_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter-two")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("OPENAI_API_KEY", "hunter-one")
    with pytest.raises(SettingError) as caught:
        read_environment()
    assert str(caught.value) == (
        "OPENAI_API_KEY and OPENAI_API_KEY_FILE are both set: expected one of them. Unset the other."
    )


def test_a_wrong_value_of_a_file_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter-two")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "secret"))
    with pytest.raises(SettingError) as caught:
        read_environment()
    assert str(caught.value).startswith("DATABASE_URL=(hidden) is not accepted: expected a URL that starts with")
    assert "hunter" not in str(caught.value)


def test_every_wrong_value_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "x")
    monkeypatch.setenv("RAGD_WEB_THREADS", "0")
    with pytest.raises(SettingError) as caught:
        read_environment()
    assert [line.split("=")[0] for line in str(caught.value).splitlines()] == ["PORT", "RAGD_WEB_THREADS"]


def test_empty_value_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "")
    assert read_environment().PORT == 8000


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGD_ALLOWED_HOSTS", "rag.example.org, other.example.org")
    assert read_environment().RAGD_ALLOWED_HOSTS == ["rag.example.org", "other.example.org"]


def test_wrong_value_stops_every_command_without_a_traceback() -> None:
    result = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=REPOSITORY,
        env={**os.environ, "RAGD_JOB_LEASE_S": "soon"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "ragd does not start.\n"
        "RAGD_JOB_LEASE_S='soon' is not accepted: expected a whole number of at least 1. "
        "Correct the variable or unset it.\n"
    )


def test_help_starts_no_database(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "manage.py", "help"],
        cwd=REPOSITORY,
        env={**os.environ, "RAGD_VAR": str(tmp_path / "var"), "DATABASE_URL": "", "RAGD_SECRET_KEY": ""},
        capture_output=True,
        check=True,
    )
    assert [path.name for path in (tmp_path / "var").iterdir()] == ["secret_key"]


def test_others_see_no_names_in_the_folder_that_ragd_makes(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "var"
    make_private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
    folder.chmod(0o755)
    make_private_folder(folder)  # a folder that is there stays as its owner wants it
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_secret_key_is_generated_once_for_its_owner_only() -> None:
    path = settings.RAGD_VAR / "secret_key"
    assert path.read_text() == settings.SECRET_KEY
    assert len(settings.SECRET_KEY) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("memory_mb", "cores", "shared_memory_mb", "expected"),
    [
        (512, 1, 64, ("128MB", "64MB", "256MB", "1", "mmap")),
        (24_000, 2, 12_000, ("3000MB", "1500MB", "12000MB", "1", "posix")),
        (24_000, 8, 64, ("3000MB", "1500MB", "12000MB", "7", "mmap")),
        (1_000_000, 64, 500_000, ("8192MB", "2048MB", "65536MB", "63", "posix")),
    ],
)
def test_postgres_is_tuned_from_the_size_of_the_machine(
    memory_mb: int, cores: int, shared_memory_mb: int, expected: tuple[str, ...]
) -> None:
    tuned = tune_postgres(memory_mb, cores, shared_memory_mb)
    assert expected == (
        tuned["shared_buffers"],
        tuned["maintenance_work_mem"],
        tuned["effective_cache_size"],
        tuned["max_parallel_maintenance_workers"],
        tuned["dynamic_shared_memory_type"],
    )


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:80/"),
        ("0.0.0.0", "http://127.0.0.1:80/"),
        ("::", "http://[::1]:80/"),
        ("fe80::1", "http://[fe80::1]:80/"),
        ("rag.local", "http://rag.local:80/"),
    ],
)
def test_printed_address_is_one_that_answers(host: str, address: str) -> None:
    assert local_address(host, 80) == address
