"""What `make security` and `make sbom` do, here and now."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.test_packaging import read_pins
from tools import security

pytestmark = pytest.mark.timeout(600)  # it starts programs, one after another
REPOSITORY = Path(__file__).resolve().parents[2]


def test_each_place_that_bandit_finds_is_explained_and_nothing_else() -> None:
    assert security.compare(security.find_places(), security.read_explained()) == []


def test_the_list_of_packages_is_valid_and_names_each_with_its_version() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    recipe = makefile.split("\nsbom:", 1)[1].split("\n\n", 1)[0]
    options = recipe.split("cyclonedx_py ", 1)[1].replace("\\\n", " ").split(" -o ")[0].split()
    locks = "".join((REPOSITORY / name).read_text() for name in ("requirements.txt", "requirements-model.txt"))
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", *options]
    made = subprocess.run(command, cwd=REPOSITORY, input=locks, capture_output=True, text=True, check=True).stdout
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made) is None
    bom = json.loads(made)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    root = bom["metadata"]["component"]
    assert (root["name"], root["version"], root["type"]) == ("ragd", project["version"], "application")
    assert {item["name"]: item["version"] for item in bom["components"]} == {
        **read_pins("requirements.txt"),
        **read_pins("requirements-model.txt"),
    }
    again = subprocess.run(command, cwd=REPOSITORY, input=locks, capture_output=True, text=True, check=True).stdout
    assert again == made
