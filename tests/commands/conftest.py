from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.collections.conftest import committed, embeddings, notes
from tests.fakes.openai_server import openai_server
from tests.fakes.s3_server import running_s3_server, s3_server
from tests.fakes.web_server import web_server

__all__ = ["committed", "embeddings", "notes", "openai_server", "running_s3_server", "s3_server", "web_server"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """one.txt, in/two.md, and what is passed over."""
    top = tmp_path / "papers"
    (top / "in").mkdir(parents=True)
    (top / ".git").mkdir()
    (top / "one.txt").write_text("the first text")
    (top / "in" / "two.md").write_text("# Two\n\nthe second text")
    (top / ".hidden").write_text("hidden")
    (top / ".git" / "config").write_text("hidden")
    return top


def run(*arguments: str) -> str:
    """What the command prints on standard output. It must end well."""
    out = StringIO()
    call_command("ragd", *arguments, stdout=out)
    return out.getvalue()


def run_json(*arguments: str, status: int = 0) -> Any:
    """The one JSON object on standard output of a command that ends with that status."""
    out = StringIO()
    try:
        call_command("ragd", *arguments, "--json", stdout=out)
        ended = 0
    except SystemExit as exit:
        ended = exit.code if isinstance(exit.code, int) else 1
    assert ended == status, out.getvalue()
    lines = out.getvalue().splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])
