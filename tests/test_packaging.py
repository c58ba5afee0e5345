"""What the repository promises to somebody who installs it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from django.conf import settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from evaluation_app.sample.loading import sample_files
from ragd_site import embedded
from ragd_site.settings import describe_database
from tests.conftest import VAR

REPOSITORY = Path(__file__).resolve().parent.parent
INSTALLATION = ("Dockerfile", "docker/install.sh", "compose.yaml", "pyproject.toml", "ragd_site/prepare.py")
INSTALLED = VAR / "installed.sha256"
DATABASE = f"ragd_image_{os.getpid()}"
OFFERED = re.findall(r"^OFFERED := (.+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)[0].split()
SECRETS = {
    "POSTGRES_PASSWORD": "one",
    "RAGD_SECRET_KEY": "two",
    "RAGD_ADMIN_PASSWORD": "three",
    "REDIS_PASSWORD": "four",
}


def read_pins(name: str) -> dict[str, str]:
    """Package -> version of a lock file."""
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s\\]+)", (REPOSITORY / name).read_text(), re.MULTILINE))


def read_requirement(text: str) -> tuple[str, str]:
    """ "celery[redis]==5.6.3" -> ("celery", "5.6.3")."""
    name, version = text.split("==")
    return name.split("[")[0].lower(), version


def test_locks_hold_what_pyproject_asks_for() -> None:
    stated = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    extras = stated["project"]["optional-dependencies"]
    server = dict(map(read_requirement, extras["server"]))
    development = dict(map(read_requirement, stated["dependency-groups"]["dev"]))
    library = {re.split(r"[\[<>=]", text)[0] for text in stated["project"]["dependencies"]}
    locked, locked_for_development = read_pins("requirements.txt"), read_pins("requirements-dev.txt")
    assert library <= locked.keys() and server.items() <= locked.items()
    assert development.items() <= locked_for_development.items()
    assert locked.items() <= locked_for_development.items()
    for extra in OFFERED:
        asked = dict(map(read_requirement, extras[extra]))
        assert asked.items() <= locked_for_development.items()
        assert not asked.keys() & locked.keys()  # never by default
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text())["package"]
    assert locked_for_development.items() <= {package["name"]: package["version"] for package in lock}.items()
    assert len(list(REPOSITORY.glob("requirements*.txt"))) <= 4


LIBRARY_ALONE = """
import sys, ragd
from importlib.resources import files
assert ragd.chunk("One. Two.", ragd.ChunkPolicy()) and files("ragd").joinpath("schema.sql").is_file()
assert files("ragd").joinpath("py.typed").is_file()
folders = {str(getattr(module, "__file__", "") or "").partition("site-packages/")[2].partition("/")[0]
           for module in list(sys.modules.values())}
print(*sorted(folders - {""}))
"""


def test_the_library_installs_and_runs_alone(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    for command in (
        [sys.executable, "-m", "uv", "venv", "-q", "--python", sys.executable, tmp_path / "venv"],
        [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, REPOSITORY],
    ):
        subprocess.run(command, check=True, cwd=tmp_path)
    done = subprocess.run([python, "-c", LIBRARY_ALONE], cwd=tmp_path, check=True, capture_output=True, text=True)
    loaded = {name.removesuffix(".py").removesuffix(".libs") for name in done.stdout.split()}
    assert "ragd" in loaded
    assert not loaded & {"django", "httpx2", "openai", "py3langid", "onnxruntime", "tokenizers"}
    ours = {"ragd", "collections_app", "retrieval_app", "evaluation_app", "ragd_site", "tests"}
    listed = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "list", "-q", "--python", python, "--format", "freeze"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert len(listed.stdout.split()) <= 12, listed.stdout
    assert {path.name for path in python.parent.parent.glob("lib/*/site-packages/*")} & ours == {"ragd"}


@pytest.mark.parametrize("name", sorted(path.name for path in REPOSITORY.glob("requirements*.txt")))
def test_every_requirement_has_a_hash(name: str) -> None:
    blocks = re.split(r"^(?=[a-z0-9])", (REPOSITORY / name).read_text(), flags=re.MULTILINE)
    pinned = [block for block in blocks if "==" in block]
    assert pinned
    assert [block for block in pinned if "--hash=sha256:" not in block] == []


def test_help_lists_every_target() -> None:
    command = ["make", "--no-print-directory", "help"]
    printed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY: (.+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert [line.split()[0] for line in printed.splitlines()] == phony[1].split()


def test_image_does_not_run_as_root_and_checks_its_health() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    assert "USER ragd" in lines
    assert any(line.startswith("HEALTHCHECK ") and '"ragd_site.health"' in line for line in lines)
    assert [line for line in lines if line.startswith("RUN sh ")] == [
        "RUN sh /source/docker/install.sh /source /opt/ragd"
    ]


def test_compose_file_has_the_whole_house() -> None:
    every = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
    services = {name: service for name, service in every.items() if "profiles" not in service}
    assert set(every) - set(services) == {"cluster", "node1", "node2"}
    assert sorted(services) == ["postgres", "prepare", "proxy", "redis", "web", "worker"]
    assert services["web"]["image"] == services["worker"]["image"] == "ragd"
    assert services["worker"]["command"][:4] == ["celery", "-A", "ragd_site.worker", "worker"]
    assert services["postgres"]["image"].startswith("${RAGD_POSTGRES_IMAGE:-pgvector/pgvector:pg")
    assert every["node1"]["command"] == every["node2"]["command"] == services["postgres"]["command"]
    assert all("healthcheck" in services[name] for name in ("postgres", "proxy", "redis", "worker"))


@pytest.mark.fault("DEP-01")
def test_the_password_of_the_database_stands_in_no_url() -> None:
    services = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
    for name in ("prepare", "web", "worker"):
        environment = services[name]["environment"]
        assert describe_database(environment["DATABASE_URL"], pooled=False)["PASSWORD"] == ""
        assert environment["PGPASSWORD"].startswith("${POSTGRES_PASSWORD:?")


@pytest.mark.fault("DEP-01")
@pytest.mark.parametrize("password", ["plain", "a/b@c#d?e%41", "it's", "back\\slash", "two words"])
def test_nodes_of_the_compose_file_take_any_password(tmp_path: Path, password: str) -> None:
    services = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
    script = services["cluster"]["command"][0].replace("$$", "$")
    program = tmp_path / "psql"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PGPASSWORD": password}
    told = subprocess.run(["sh", "-c", script], env=variables, capture_output=True, text=True, check=True).stdout
    logins = [line.removeprefix("login=") for line in told.splitlines() if line.startswith("login=")]
    assert [conninfo_to_dict(login)["password"] for login in logins] == [password] * 3


def test_services_of_the_compose_file_are_closed_but_for_the_proxy() -> None:
    composed = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    services = composed["services"]
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert [name for name, service in services.items() if "cap_add" in service] == ["postgres", "node1", "node2"]
    assert composed["networks"]["store"] == {"internal": True}
    networks = {name: sorted(service["networks"]) for name, service in services.items()}
    inner = ("postgres", "redis", "prepare", "node1", "cluster")
    assert [networks[name] for name in inner] == [["store"]] * 5 and "store" not in networks["proxy"]
    [front] = composed["networks"]["front"]["ipam"]["config"]  # whose word ragd takes for where a client is
    assert services["web"]["environment"]["RAGD_TRUSTED_PROXIES"] == front["subnet"]
    assert [name for name, used in networks.items() if "front" in used] == ["proxy", "web"]


def test_redis_of_the_compose_file_wants_the_password_and_its_command_line_does_not_show_it(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    service = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]["redis"]
    port, file = embedded.free_port(), tmp_path / "redis.conf"
    script = service["command"][2].replace("$$", "$").replace("/tmp/redis.conf", str(file))
    script += f" --port {port} --bind 127.0.0.1 --dir {tmp_path}"
    environment = {**os.environ, "REDISCLI_AUTH": "marked"}
    process = subprocess.Popen(["sh", "-c", script], env=environment, stdout=subprocess.DEVNULL)
    try:
        ping = ["redis-cli", "-p", str(port), "ping"]
        try_until([*ping[:-1], "--no-auth-warning", "ping"], cwd=tmp_path, env=environment)
        with_password = subprocess.run(ping, env=environment, capture_output=True, text=True, check=True).stdout
        without = {name: value for name, value in environment.items() if name != "REDISCLI_AUTH"}
        refused = subprocess.run(ping, env=without, capture_output=True, text=True, check=False).stdout
        assert (with_password.strip(), refused.split()[0]) == ("PONG", "NOAUTH")
        assert b"marked" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        process.terminate()
        process.wait(30)


def compose_command() -> list[str]:
    """`docker compose` or the older `docker-compose`, whichever is installed."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    pytest.skip("docker compose is not installed")


def test_compose_accepts_the_file() -> None:
    command = [*compose_command(), "--profile", "cluster", "-f", "compose.yaml", "config"]
    accepted = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **SECRETS}, capture_output=True, text=True)
    assert accepted.returncode == 0, accepted.stderr
    web = yaml.safe_load(accepted.stdout)["services"]["web"]
    assert web["environment"]["DATABASE_URL"] == "postgresql://ragd@postgres:5432/ragd"
    assert web["environment"]["PGPASSWORD"] == "one"
    assert web["environment"]["CELERY_BROKER_URL"] == "redis://:four@redis:6379/0"
    refused = subprocess.run(command, cwd=REPOSITORY, env=dict(os.environ), capture_output=True, text=True)
    assert refused.returncode != 0
    assert "POSTGRES_PASSWORD" in refused.stderr


@pytest.fixture
def empty_database() -> Iterator[str]:
    name = sql.Identifier(DATABASE)
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(name))
        yield urlsplit(settings.DATABASE_URL)._replace(path=f"/{DATABASE}").geturl()
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def try_until(command: list[str], *, cwd: Path, env: dict[str, str], patience_s: float = 120) -> None:
    """Run a health check until it is well."""
    deadline = time.monotonic() + patience_s
    while True:
        result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
        if result.returncode == 0:
            return
        assert time.monotonic() < deadline, result.stderr
        time.sleep(0.5)


def digest_installation() -> str:
    """Of everything that decides what is installed and how it is started."""
    digest = hashlib.sha256()
    for path in sorted([*REPOSITORY.glob("requirements*.txt"), *(REPOSITORY / name for name in INSTALLATION)]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@pytest.mark.timeout(1200)
def test_steps_of_the_image_give_a_working_server(tmp_path: Path, empty_database: str) -> None:
    """docker/install.sh in an empty folder; then each command of compose.yaml, with its health check.

    It takes minutes, so it rests until what it installs has changed; a fresh clone knows of no earlier success.
    """
    if INSTALLED.exists() and INSTALLED.read_text() == digest_installation():
        pytest.skip(f"passed before with the same installation; remove {INSTALLED} to run it")
    image = tmp_path / "image"
    install = ["sh", str(REPOSITORY / "docker" / "install.sh"), str(REPOSITORY), str(image)]
    subprocess.run(install, env={**os.environ, "PYTHON": sys.executable}, check=True)
    assert (image / "var" / "static" / "staticfiles.json").exists()

    app, python = image / "app", str(image / "venv" / "bin" / "python")
    assert sample_files(app).keys() == sample_files(REPOSITORY).keys()  # the sample travels along
    for path in [*sample_files(app).values()][2:]:  # all of them would be embedded for half a minute
        path.unlink()
    environment = {
        "PATH": f"{image / 'venv' / 'bin'}:/usr/bin:/bin",
        "RAGD_VAR": str(image / "var"),
        "DATABASE_URL": empty_database,
        "RAGD_SECRET_KEY": "k" * 50,
        "RAGD_ADMIN_PASSWORD": "a password of the test",
        "PORT": str(embedded.free_port()),
    }
    subprocess.run([python, "-m", "ragd_site.prepare"], cwd=app, env=environment, check=True)
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT count(*) FROM documents").fetchone() == (2,)
    web = [python, "-m", "gunicorn", "-c", "python:ragd_site.web", "ragd_site.wsgi"]
    worker = [python, "-m", "celery", "-A", "ragd_site.worker", "worker", "--pool", "prefork"]
    running = [subprocess.Popen(command, cwd=app, env=environment, start_new_session=True) for command in (web, worker)]
    try:
        try_until([python, "-m", "ragd_site.health"], cwd=app, env=environment)
        try_until([python, "-m", "ragd_site.worker"], cwd=app, env=environment)
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(60)
    INSTALLED.write_text(digest_installation())
