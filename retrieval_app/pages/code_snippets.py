"""The search of a page as a call from elsewhere: curl, Python, MCP. Each runs as it stands, with a key in RAGD_KEY."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

PYTHON = """\
import json
import urllib.request
from os import environ

request = urllib.request.Request(
    {url!r},
    data=json.dumps({payload}).encode(),
    headers={{"Authorization": f"Bearer {{environ['RAGD_KEY']}}", "Content-Type": "application/json"}},
)
with urllib.request.urlopen(request) as answer:
    for result in json.load(answer)["results"]:
        print(result["rank"], result["score"], result["doc_id"], result["chunk_index"])
"""


def search_payload(query: str, plan_name: str, explicit: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /v1/collections/NAME/search. plan_name "" names none; stated: the fields of the plan."""
    return {"query": query} | ({"plan": plan_name} if plan_name else {}) | dict(explicit)


def write_calls(base: str, collection: str, payload: Mapping[str, Any]) -> list[dict[str, str]]:
    """[{name, title, text}]: the same search for a shell, for Python's standard library and for an MCP client.

    base: the server's address without a slash at the end.
    """
    url = f"{base}/v1/collections/{quote(collection, safe='')}/search"
    return [
        {"name": "curl", "title": "curl", "text": _curl(url, payload)},
        {"name": "python", "title": "Python", "text": PYTHON.format(url=url, payload=dict(payload))},
        {"name": "mcp", "title": "MCP call", "text": _mcp(collection, payload)},
    ]


def _curl(url: str, payload: Mapping[str, Any]) -> str:
    body = shlex.quote(json.dumps(payload, ensure_ascii=False))
    return (
        f"curl -s {shlex.quote(url)} \\\n"
        '  -H "Authorization: Bearer $RAGD_KEY" -H "Content-Type: application/json" \\\n'
        f"  -d {body}"
    )


def _mcp(collection: str, payload: Mapping[str, Any]) -> str:
    call = {"name": "collections-search", "arguments": {"collection": collection} | dict(payload)}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return json.dumps(message, indent=2, ensure_ascii=False)
