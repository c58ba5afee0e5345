"""`manage.py ragd api`: one request to the API of this process. The verbs of backups are in `backup.commands`."""

from __future__ import annotations

import codecs
import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit

from django.contrib.auth.models import User
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.core.signals import request_finished
from django.db import close_old_connections

from collections_app.access.auth import LOCAL_KEY
from collections_app.access.context import current_access
from collections_app.commands.subcommand import FAILED, Options, Subcommand, UsageError, as_usage, split_pair
from collections_app.errors import ServiceError
from collections_app.models import ApiKey
from ragd_site.backup.commands import COMMANDS as BACKUP

Query = list[tuple[str, str]]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
API = "/v1/"


def add_api_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("method", type=str.upper, choices=METHODS, metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("path", metavar="PATH", help="as in /v1/docs, such as /v1/collections")
    parser.add_argument("--data", metavar="JSON|@FILE|-", help="the body; @FILE reads a file, - standard input")
    parser.add_argument("--query", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--all", action="store_true", help="GET every page of a list and print them as one")
    parser.add_argument("--stream", action="store_true", help="ask for server-sent events, as of an answer")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the answer into this file")
    parser.add_argument("--force", action="store_true", help="take the place of a file that is there")


def run_api(options: Options) -> None:
    """Print what the API answers as it comes; JSON is laid out unless --json. Exit status 1 from 400 on."""
    target = urlsplit(options["path"])
    if not target.path.startswith(API):
        raise UsageError(f"PATH must begin with {API}; it is {options['path']!r}")
    if options["all"] and (options["method"] != "GET" or options["output"]):
        raise UsageError("--all goes with GET, and not with --output")
    output: Path | None = options["output"]
    if output is not None and output.exists() and not options["force"]:
        raise UsageError(f"{output} is there already; --force writes over it")
    with as_usage():
        query = parse_qsl(target.query) + [split_pair("query", pair) for pair in options["query"]]
    accept = "text/event-stream" if options["stream"] else "*/*"
    send = partial(_send, options["method"], target.path, body=_read_body(options["data"]), accept=accept)
    with _one_connection(), closing(send(query)) as response:
        if response.status_code < 400 and output is not None:
            _write(response, output)
        elif response.status_code < 400 and options["all"]:
            _print_json(_read_all(response, send, query), options)
        elif "json" in response.headers.get("Content-Type", "") and not response.streaming:
            _print_json(json.loads(response.content), options)
        else:
            _print_pieces(response, options)
    if response.status_code >= 400:
        sys.exit(FAILED)


def _read_body(data: str | None) -> bytes:
    if data is None:
        return b""
    try:
        if data == "-":
            body = sys.stdin.buffer.read()
        else:
            body = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()
        json.loads(body)
    except OSError as error:
        raise UsageError(f"{data[1:]} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--data must be JSON: {error}") from None
    return body


def _send(method: str, path: str, query: Query, *, body: bytes, accept: str) -> Any:
    """Pass the middlewares and URLs that a request of the network passes, as whom the command runs as."""
    user_id = current_access().user_id
    user = None if user_id is None else User.objects.get(pk=user_id)
    environment = {
        "REQUEST_METHOD": method,
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": urlencode(query),
        "HTTP_ACCEPT": accept,
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "443",
        "wsgi.url_scheme": "https",
        "wsgi.input": BytesIO(body),
        LOCAL_KEY: ApiKey(user=user),
    }
    if body:
        environment |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body))}
    handler = BaseHandler()
    handler.load_middleware()
    return handler.get_response(WSGIRequest(environment))


@contextmanager
def _one_connection() -> Iterator[None]:
    """The end of a request does not close the connection, with which the command goes on."""
    is_connected = request_finished.disconnect(close_old_connections)
    try:
        yield
    finally:
        if is_connected:
            request_finished.connect(close_old_connections)


def _read_all(response: Any, send: Callable[[Query], Any], query: Query) -> Any:
    """The page with the items of all that follow it."""
    page = json.loads(response.content)
    if not isinstance(page, dict) or "items" not in page:
        raise UsageError("--all goes with a list that comes in pages, and this does not")
    following = page.get("next_cursor")
    while following:
        with closing(send([pair for pair in query if pair[0] != "cursor"] + [("cursor", following)])) as response:
            further = json.loads(response.content)
            if response.status_code >= 400:
                raise ServiceError(further["detail"], type=further["error"]["type"], status=response.status_code)
        page["items"] += further["items"]
        following = further["next_cursor"]
    return page


def _pieces(response: Any) -> Iterator[bytes]:
    return iter(response.streaming_content if response.streaming else [response.content])


def _write(response: Any, path: Path) -> None:
    """The file appears when it is complete."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.writelines(_pieces(response))
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _print_json(value: Any, options: Options) -> None:
    _print(json.dumps(value, ensure_ascii=False, indent=None if options["as_json"] else 1) + "\n", options)


def _print_pieces(response: Any, options: Options) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in _pieces(response):
        _print(decoder.decode(piece), options)


def _print(text: str, options: Options) -> None:
    """What the terminal cannot show is replaced."""
    out = options.get("stdout") or sys.stdout
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.write(text.encode(encoding, "replace").decode(encoding))
    out.flush()


COMMANDS = BACKUP | {
    "api": Subcommand(
        "send one request to the API of this process: whatever the other verbs do not do", add_api_arguments, run_api
    )
}
