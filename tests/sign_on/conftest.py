"""A real OpenID Connect provider on loopback, in an environment of its own under RAGD_VAR."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from django.test import Client

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements-provider.txt"
UNREACHABLE = re.compile(r"dns error|connect|resolve host|timed out|unreachable|offline", re.IGNORECASE)
PEOPLE = {
    "grace": {"email": "grace@example.org", "email_verified": True, "groups": ["readers"], "name": "Grace Hopper"},
    "alan": {"email": "alan@example.org", "email_verified": False, "groups": []},
}


@dataclass
class Provider:
    """people: user name -> claims. faults: what its tokens get wrong; see provider/site.py."""

    issuer: str
    folder: Path

    def say(self, name: str, **claims: Any) -> None:
        people = json.loads((self.folder / "people.json").read_text())
        people[name] |= claims
        (self.folder / "people.json").write_text(json.dumps(people))

    def fail(self, **faults: Any) -> None:
        (self.folder / "faults.json").write_text(json.dumps(faults))

    def reset(self) -> None:
        (self.folder / "people.json").write_text(json.dumps(PEOPLE))
        (self.folder / "faults.json").unlink(missing_ok=True)

    def approve(self, address: str, name: str) -> str:
        """Log in there as a person does, from the address that ragd sent the browser to; where it sends back."""
        with requests.Session() as browser:
            page = browser.get(address, timeout=10)
            if "csrfmiddlewaretoken" in page.text:
                token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
                assert token is not None
                data = {"username": name, "password": "provider", "csrfmiddlewaretoken": token[1]}
                page = browser.post(page.url, data, timeout=10, allow_redirects=False)
                page = browser.get(requests.compat.urljoin(address, page.headers["Location"]), allow_redirects=False)
            assert page.status_code == 302, page.text
            return str(page.headers["Location"])


@pytest.fixture(scope="session")
def provider_python() -> Path:
    """The interpreter of the provider's environment, made at the first use and kept while its requirements stay."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = Path(os.environ["RAGD_VAR"]) / f"oidc-provider-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python, done = folder / "bin" / "python", folder / "installed"
        if not done.exists():
            venv.create(folder, clear=True)
            command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
            result = subprocess.run([*command, "--no-deps", "-r", str(REQUIREMENTS)], capture_output=True, text=True)
            if result.returncode != 0 and UNREACHABLE.search(result.stderr):
                pytest.skip("the package registry cannot be reached: no provider to log in with")
            assert result.returncode == 0, result.stderr
            done.touch()
    return python


@pytest.fixture(scope="session")
def running_provider(provider_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    folder = tmp_path_factory.mktemp("provider")
    provider = Provider("", folder)
    provider.reset()
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [str(provider_python), str(HERE / "provider" / "site.py"), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    provider.issuer = process.stdout.readline().strip()
    assert provider.issuer.startswith("http://127.0.0.1:")
    yield provider
    process.terminate()
    process.wait(10)
    process.stdout.close()


@pytest.fixture
def provider(running_provider: Provider, settings: Any, monkeypatch: pytest.MonkeyPatch, db: None) -> Provider:
    """The provider, with ragd set up for it."""
    from ragd_site.environment import read_environment
    from ragd_site.settings import derive

    running_provider.reset()
    monkeypatch.setenv("RAGD_OIDC_ISSUER", running_provider.issuer)
    monkeypatch.setenv("RAGD_OIDC_CLIENT_ID", "ragd")
    monkeypatch.setenv("RAGD_OIDC_CLIENT_SECRET", "a secret of the test")
    environment = read_environment()
    settings.RAGD_OIDC_ISSUER = environment.RAGD_OIDC_ISSUER
    values = SimpleNamespace(**environment.as_settings())
    settings.SOCIALACCOUNT_PROVIDERS = derive(values)["SOCIALACCOUNT_PROVIDERS"]
    return running_provider


@pytest.fixture
def sign_on(provider: Provider) -> Callable[..., Any]:
    """sign_on(client, "grace"): the whole way to the provider and back; ragd's answer at the end."""

    def go(client: Client, name: str, next_url: str = "") -> Any:
        began = client.get("/accounts/oidc/login/", {"next": next_url} if next_url else {})
        assert began.status_code == 302, began.content.decode()
        return client.get(provider.approve(began["Location"], name).removeprefix("http://testserver"))

    return go


def who(client: Client) -> str | None:
    """The user name of whom the client is logged in as."""
    from django.contrib.auth import get_user

    request = type("Request", (), {"session": client.session, "META": {}})()
    return get_user(request).get_username() or None  # type: ignore[arg-type]
