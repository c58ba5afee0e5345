"""Hostile forms, headers and tokens for the pages, JSON-RPC for /mcp, and what is checked in process: the Markdown of
answers, citation marks, addresses of private machines."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator
from typing import Any

from django.test import Client
from django.utils.html import format_html

from ragd.errors import InvalidInput
from ragd.readers.fetching import FetchError, Guard, read_address
from ragd.security.links import KnownAddresses, filter_links
from ragd.types import Candidate
from retrieval_app.answers.answer_html import render_answer, render_sentence
from retrieval_app.answers.citations import check_citations
from tests.security.hostile.doors import NAME, Attempt, Doors, part
from tests.security.hostile.values import FEW, NUMBERS, ODD, TEXTS, deep

PAGE = f"/collections/{NAME}"
POSTS = (
    ("/chat/", ("query", "collection", "do", "k", "filter", "plan", "as_of", "weights")),
    ("/collections/?view=new", ("name", "description", "language", "embed_model", "embed_dims")),
    (f"{PAGE}/settings/", ("description", "language", "min_score", "action", "target_tokens", "runs_days")),
    (f"{PAGE}/upload/?view=text", ("doc_id", "title", "text", "content", "tags", "metadata", "language")),
    (f"{PAGE}/?view=change", ("action", "doc_id", "tags", "key", "value")),
    (f"{PAGE}/upload/?view=urls", ("urls", "tags", "metadata")),
    (f"{PAGE}/playground/save/", ("name", "k", "mode", "weights")),
    (f"{PAGE}/documents/pump.md/?view=edit", ("title", "tags", "metadata", "revision", "enabled")),
    ("/evaluation/sets/", ("name", "collection", "description")),
    ("/theme/", ("theme", "next")),
    ("/operations/?view=conformance", ("text",)),
)
GETS = (
    "/chat/?run={}", "/chat/?q={}", "/activity/?q={}&status={}&page={}", "/audit/?who={}&what={}&since={}", PAGE + "/?q={}&tag={}&state={}",
    PAGE + "/documents/{}/", PAGE + "/documents/pump.md/?start={}&end={}", PAGE + "/playground/?q={}&k={}&filter={}",
    "/traces/?since={}", "/activity/traces/?where={}&page={}", "/activity/spans/?type={}", "/evaluation/compare/?base={}&other={}",
    "/collections/{}/", "/go/?q={}", "/traces/{}/", "/filter-completions/?text={}&collection={}", "/operations/?cursor={}",
    PAGE + "/uploads/?state={}&page={}", PAGE + "/chunks/{}/pump.md/", PAGE + "/documents/pump.md/?view=revision&number={}", "/evaluation/live/{}/",
    "/evaluation/board/?mode={}&set={}", PAGE + "/health/?flag={}&page={}", PAGE + "/health/?view=findings&family={}&page={}",
)  # fmt: skip


def page_inputs() -> Iterator[Attempt]:
    yield from page_forms()
    yield from page_addresses()
    yield from headers()
    yield from rpc()
    yield from markdown()
    yield from guarded()


def page_forms() -> Iterator[Attempt]:
    for path, fields in POSTS:
        for text in (*FEW, "1e999", "-1", "9" * 30):
            values = dict.fromkeys(fields, text)
            yield Attempt(
                "page forms",
                f"{path} {ascii(text)[:30]}",
                lambda doors, p=path, v=values: doors.pages.post(p, v),
                "page",
            )
        for field in fields[:3]:
            values = {"collection": NAME, "query": "pump", "name": "x", "doc_id": "pump.md", field: "\x00"}
            yield Attempt(
                "page forms", f"{path} {field}", lambda doors, p=path, v=values: doors.pages.post(p, v), "page"
            )


def page_addresses() -> Iterator[Attempt]:
    for pattern in GETS:
        for text in FEW:
            path = pattern.replace("{}", part(text) or "x")
            yield Attempt("page parameters", path[:60], lambda doors, p=path: doors.pages.get(p), "page")


def headers() -> Iterator[Attempt]:
    for text in (*FEW, "documents", "../base", "x" * 5000, "content;script"):
        for path in (f"{PAGE}/", "/activity/", "/operations/", "/activity/traces/"):
            given = {
                "HX-Request": "true",
                "HX-Target": text,
                "HX-Trigger": text,
                "HX-Current-URL": text,
                "HX-Boosted": text,
            }
            yield Attempt(
                "htmx headers",
                f"{path} {ascii(text)[:30]}",
                lambda doors, p=path, g=given: doors.pages.get(p, headers=g),
                "page",
            )
    for host in ("evil.example", "localhost:99999", "a b", "[::1", "localhost@evil", "..", "x" * 400, "\u202e", ""):
        yield Attempt("Host, Origin and CSRF", f"Host {host[:20]}", lambda doors, h=host: hosted(doors, h), "page")
    for origin in (
        "null",
        "http://evil.example",
        "https://testserver.evil",
        "http://testserver@evil",
        "",
        "\x00",
        "file://",
    ):
        for path, _ in POSTS:
            yield Attempt(
                "Host, Origin and CSRF",
                f"{path} from {origin!r}",
                lambda doors, p=path, o=origin: forged(doors, p, o),
                "page",
            )


def hosted(doors: Doors, host: str) -> Any:
    answer = doors.pages.get("/", HTTP_HOST=host)
    named = [value for name, value in answer.items() if host and host in value and name != "Content-Length"]
    return f"the host is told: {named}" if named and "evil" in host else answer


def forged(doors: Doors, path: str, origin: str) -> Any:
    """A POST without a token, or from elsewhere, with the cookies of somebody who is logged in."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.cookies = doors.pages.cookies
    given = {"Origin": origin} if origin else {}
    answer = client.post(
        path, {"name": "forged", "theme": "dark", "query": "x", "csrfmiddlewaretoken": "x" * 32}, headers=given
    )
    return answer if answer.status_code == 403 else f"let in: {answer.status_code}"


def rpc() -> Iterator[Attempt]:
    group = "MCP"
    bodies: list[bytes] = [b"", b"{", b"[]", b"null", b"1", deep(20_000), b"\xff", b'{"jsonrpc":"2.0"}' * 2]
    messages: list[Any] = [{"jsonrpc": "2.0", "id": value, "method": "tools/list"} for value in (*NUMBERS, "\x00")]
    messages += [{"jsonrpc": version, "id": 1, "method": "ping"} for version in ODD]
    messages += [{"jsonrpc": "2.0", "id": 1, "method": method} for method in (*FEW, *ODD)]
    messages += [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params} for params in ODD]
    for tool in ("collections-search", "collections-ask", "documents-get", "collections-list", "nothing", "\x00"):
        messages += [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
                     for arguments in (*ODD[:8], {"collection": NAME, "query": "\x00", "k": 10**30}, {"collection": ODD, "query": ODD},
                                       {"collection": NAME, "query": "x", "filter": {"not": {"not": []}}, "doc_id": "\ud800"})]  # fmt: skip
    messages.append([{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(2000)])
    bodies += [json.dumps(message).encode() for message in messages]
    for body in bodies:
        yield Attempt(group, repr(body[:70]), lambda doors, b=body: called(doors, b), "rpc")


def called(doors: Doors, body: bytes) -> Any:
    given = {"Authorization": f"Bearer {doors.secret}", "Accept": "application/json, text/event-stream"}
    return doors.client.post("/mcp", body, content_type="application/json", headers=given)


ANSWERS = (
    "approved.&#xE000;0&#xE001; All of it [1].", "&#xE000;7&#xE001;", "&#57344;" + "9" * 5000 + "&#57345;", "\ue0000\ue001 [1]",
    "[x](javascript:alert(1))", "[x](JaVaScRiPt&colon;alert(1))", "[x](data:text/html;base64,PHN2Zz4=)", "![x](http://evil.example/a)",
    "<img src=x onerror=alert(1)>", "<script>1</script>", "`<b>` [1]", "```\"><script>\nx\n```", "[a]: javascript:alert(1)\n\n[a]",
    "[" * 2000, "*" * 3000, "> " * 2000 + "x", "- " * 2000 + "x", "[1]" * 2000, "[1-999]", "[1][" * 500, "【1†" * 300, "[¹]",
    "[x](https://x.example/\"onmouseover=alert(1))", "[x](<javascript:alert(1)>)", "<https://x.example/\"><script>", "\x00[1]\x00",
    "|a|\n|-|\n|[1](javascript:x)|", "[x](vbscript:x) [1]", "&#106;avascript:alert(1)", "[x](\x01javascript:x)", "\u202e[1]\u202c",
)  # fmt: skip
ACTIVE = re.compile(
    r"<(?!/?(?:p|em|strong|code|pre|ul|ol|li|a|br|blockquote)\b)|\son\w+\s*=(?=[^<]*>)|javascript:(?=[^<]*>)", re.I
)
SOURCE = Candidate("pump.md", 0, "All of it is approved.", 1.0, start=0, end=22)


def markdown() -> Iterator[Attempt]:
    for answer in (*ANSWERS, *TEXTS):
        yield Attempt("Markdown of answers", ascii(answer)[:50], lambda doors, a=answer: rendered(a))


def rendered(answer: str) -> str:
    """No element, handler or script that the renderer does not make, and as many citations as the record has."""
    text, _ = filter_links(answer, KnownAddresses())
    checked = check_citations(text, [SOURCE])
    html = render_answer(
        checked.answer,
        [item.as_dict() for item in checked.citations],
        lambda item: format_html('<a class="cite">{}</a>', item["marker"]),
    )
    render_sentence(answer)
    drawn = html.count('<a class="cite">')
    if drawn > len(checked.citations):
        return f"{drawn} citations drawn of {len(checked.citations)}"
    found = ACTIVE.search(html)
    return f"active: {html[max(0, found.start() - 20) : found.end() + 40]}" if found else ""


MACHINES = (
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "169.254.169.254",
    "168.63.129.16", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "192.88.99.1", "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1",
    "3fff::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:a9fe:a9fe::",
    "2001:0:a00:1::", "::127.0.0.1", "::ffff:0:127.0.0.1", "100::1", "5f00::1",
)  # fmt: skip
SPELLINGS = (
    "http://localhost/", "http://2130706433/", "http://0x7f.1/", "http://0177.1/", "http://127.1/", "http://[::1]/", "http://[::]/",
    "http://[::ffff:127.0.0.1]/", "http://127.0.0.1.nip.invalid@127.0.0.1/", "http://①②⑦.⓪.⓪.①/", "http://user@127.0.0.1/",
    "file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/", "http://127.0.0.1:22/", "http://[fe80::1%25eth0]/",
    "http://127。0。0。1/", "http:\\\\127.0.0.1\\", "//127.0.0.1/", "http:///127.0.0.1", "http://127.0.0.1\\@example.org/",
    "http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "http://0/", "http://00000000/", "dict://x:11211/",
)  # fmt: skip


def guarded() -> Iterator[Attempt]:
    group = "addresses of private machines"
    for machine in MACHINES:
        yield Attempt(
            group,
            machine,
            lambda doors, m=machine: "" if Guard().refuse(ipaddress.ip_address(m)) else f"{m} may be reached",
        )
    for written in SPELLINGS:
        yield Attempt(group, written, lambda doors, w=written: reached(w))
        yield Attempt(
            group,
            f"sent {written}",
            lambda doors, w=written: doors.send("POST", f"/collections/{NAME}/urls", {"urls": [w], "dry_run": True}),
        )


def reached(written: str) -> str:
    """The machines that the address leads to, where they may be asked."""
    try:
        address = read_address(written)
        found = Guard().resolve(address.host, address.port)
    except (InvalidInput, FetchError):
        return ""
    return f"{written} leads to {found}"
