"""What hostile inputs are sent through: the API with a key, the pages of somebody who is logged in, files, a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

NAME = "hostile"
DOCUMENTS = {
    "pump.md": "# Pump\n\nThe pump moves water. It is cleaned every month with a red key.",
    "a/filter.md": "A filter lasts six months. Then the filter is changed.",
    "sheet.md": "| part | price |\n|---|---|\n| pump | 30 |\n| filter | 12 |\n",
}


@dataclass
class Doors:
    """api, pages: Django's test clients that answer 500 where the product fails. collection, run, golden: what is there
    to be attacked. folder: where files of the attempts may be laid down."""

    secret: str
    folder: Path
    pages: Client
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))
    run: str = ""
    export: bytes = b""

    def send(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Any:
        """Under /v1, with the key unless headers say otherwise."""
        headers.setdefault("Authorization", f"Bearer {self.secret}")
        data = raw if raw is not None else None if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
        given = {} if data is None else {"data": data, "content_type": "application/json"}
        return self.client.generic(method, f"/v1{path}", headers=headers, **given)

    def form(self, path: str, fields: Mapping[str, Any], files: Mapping[str, Any] | None = None, **headers: str) -> Any:
        """A multipart form under /v1. files: field -> (name, content)."""
        data = dict(fields) | {key: SimpleUploadedFile(name, content) for key, (name, content) in (files or {}).items()}
        headers.setdefault("Authorization", f"Bearer {self.secret}")
        return self.client.post(f"/v1{path}", data, headers=headers)


@dataclass(frozen=True)
class Attempt:
    """One hostile input. send: sends it and returns the response, or None where something else is checked, in which
    case it returns what got through as a text. documented: answers in this shape, "api", "openai", "rpc" or "page"."""

    group: str
    label: str
    send: Callable[[Doors], Any]
    shape: str = "api"


def part(text: str) -> str:
    """A text as one part of an address."""
    return quote(text[:2000].encode("utf-8", "surrogatepass"), safe="")


def judge(attempt: Attempt, doors: Doors) -> str:
    """What got through, "" where nothing did."""
    try:
        answer = attempt.send(doors)
    except (UnicodeEncodeError, ValueError) as error:
        if "surrogates not allowed" in str(error) or "Header values can't contain newlines" in str(error):
            return ""  # the test client itself cannot write it
        return f"raised {type(error).__name__}: {error}"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    if answer is None or isinstance(answer, str):
        return answer or ""
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    if answer.status_code >= 500:
        return f"{answer.status_code} {content[:200]!r}"
    return misshapen(attempt.shape, answer, content) if answer.status_code >= 400 else ""


def misshapen(shape: str, answer: Any, content: bytes) -> str:
    """What is wrong with a refusal, "" where it has its documented shape."""
    if shape == "page":
        return "" if b"Traceback" not in content else "a traceback"
    try:
        body = json.loads(content)
    except ValueError:
        return f"{answer.status_code} without JSON: {content[:120]!r}"
    if shape == "rpc":
        is_shaped = isinstance(body, dict) and ("error" in body or "result" in body)
    elif shape == "openai":
        is_shaped = set(body.get("error", ())) >= {"type", "message"}
    else:
        error = body.get("error") if isinstance(body, dict) else None
        is_shaped = (
            isinstance(error, dict)
            and {"type", "message"} <= set(error) <= {"type", "message", "field"}
            and body.get("detail") == error["message"]
        )
    return "" if is_shaped else f"{answer.status_code} in another shape: {content[:200]!r}"
