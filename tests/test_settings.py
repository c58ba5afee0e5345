from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from pydantic import SecretStr

from ragd_site.embedded import make_private_folder
from ragd_site.environment import Environment, SettingError, local_address, read_environment
from ragd_site.runtime.machine import tune_postgres

REPOSITORY = Path(__file__).resolve().parent.parent


def show_default(name: str) -> str:
    """A default as README writes it."""
    default = Environment.model_fields[name].default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, Path):
        default = default.relative_to(REPOSITORY)
    if isinstance(default, bool):
        default = str(default).lower()
    if isinstance(default, float):
        default = f"{default:g}"
    return f"`{default}`" if default not in ("", []) else "unset"


def test_readme_lists_every_setting_with_its_default_and_meaning() -> None:
    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| (.*?) \| (.*?) \|$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert rows == [(name, show_default(name), field.description) for name, field in Environment.model_fields.items()]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "PORT",
            "eighty",
            "PORT='eighty' is not accepted: expected a whole number of at least 1 and of at most 65535.",
        ),
        ("PORT", "70000", "PORT='70000' is not accepted: expected a whole number of at least 1 and of at most 65535."),
        ("RAGD_DEBUG", "maybe", "RAGD_DEBUG='maybe' is not accepted: expected true or false."),
        (
            "RAGD_CAPTURE_CONTENT",
            "All",
            "RAGD_CAPTURE_CONTENT='All' is not accepted: expected one of full, hash, none.",
        ),
        ("RAGD_EMBED_TIMEOUT_S", "0", "RAGD_EMBED_TIMEOUT_S='0' is not accepted: expected a number above 0."),
        (
            "DATABASE_URL",
            "mysql://localhost/x",
            "DATABASE_URL='mysql://localhost/x' is not accepted: "
            "expected a URL that starts with postgresql:// or postgres://.",
        ),
        (
            "CELERY_BROKER_URL",
            "sqs://me:secret@queue",
            "CELERY_BROKER_URL=(hidden) is not accepted: "
            "expected a URL that starts with pgmq:// or redis:// or rediss:// or amqp:// or amqps://.",
        ),
    ],
)
def test_wrong_value_is_named_with_what_is_accepted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError) as caught:
        read_environment()
    assert str(caught.value) == f"{sentence} Correct the variable or unset it."


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


def test_pages_load_nothing_from_another_host() -> None:
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    assert directives["default-src"] == ["'self'"]
    assert {source for sources in directives.values() for source in sources} == {"'self'", "'none'", "data:"}


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
