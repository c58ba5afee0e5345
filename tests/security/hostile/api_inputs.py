"""Hostile bodies, parameters, cursors, filters, identifiers and headers of the API."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from tests.security.hostile.doors import NAME, Attempt, Doors, part
from tests.security.hostile.values import FEW, NUMBERS, ODD, TEXTS, TIMES, deep, drawn_texts

AT = f"/collections/{NAME}"
ZERO = "00000000-0000-0000-0000-000000000000"


def sends(group: str, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Attempt:
    shown = raw[:60] if raw is not None else json.dumps(body)[:60]
    label = f"{method} {path[:80]} {shown!r}"
    shape = "openai" if path.startswith("/models") else "api"
    return Attempt(group, label, lambda doors: doors.send(method, path, body, raw=raw, **headers), shape)


def api_inputs() -> Iterator[Attempt]:
    yield from texts_in_bodies()
    yield from numbers_in_bodies()
    yield from odd_bodies()
    yield from addresses()
    yield from cursors()
    yield from filters()
    yield from span_filters()
    yield from bearers()
    yield from idempotency_keys()
    yield from chat_requests()


def texts_in_bodies() -> Iterator[Attempt]:
    group = "unicode and text in API bodies"
    for number, text in enumerate((*TEXTS, *drawn_texts(12))):
        yield sends(group, "POST", f"{AT}/search", {"query": text, "k": 2})
        yield sends(group, "PUT", f"{AT}/documents/text-{number}", {"content": f"words {text}", "title": text})
    for text in FEW:
        yield sends(group, "POST", "/collections", {"name": text})
        yield sends(group, "POST", "/collections", {"name": "b", "description": text, "language": text})
        yield sends(group, "PATCH", AT, {"description": text})
        yield sends(
            group, "PUT", f"{AT}/documents/tagged", {"content": "x", "tags": [text], "metadata": {text: [text]}}
        )
        yield sends(group, "PATCH", f"{AT}/documents/pump.md", {"metadata": {text: text}, "tags": [text, text]})
        yield sends(group, "POST", f"{AT}/ask", {"query": f"pump {text}"})
        yield sends(group, "POST", "/api-keys", {"label": text, "collections": [text]})
        yield sends(group, "PUT", f"{AT}/plans/{part(text) or 'p'}", {"k": 3})
        yield sends(group, "POST", "/golden-sets", {"name": text, "collection": NAME, "description": text})
        yield sends(group, "POST", f"{AT}/chunks", {"doc_id": "pump.md", "content": text})
        yield sends(group, "PATCH", f"{AT}/chunks/0/pump.md", {"content": text})
        yield sends(
            group, "POST", f"{AT}/documents-bulk", {"action": "add_tags", "doc_ids": ["pump.md"], "tags": [text]}
        )
        yield sends(group, "POST", f"{AT}/urls", {"urls": [text]})
        yield sends(group, "POST", f"{AT}/s3", {"bucket": text, "prefix": text, "endpoint": text})
        yield sends(
            group, "POST", f"{AT}/sync", {"manifest": [{"path": text, "sha256": text, "size": 1}], "label": text}
        )
        yield sends(group, "POST", "/golden-sets/set/questions", {"question": text, "expected_doc_ids": [text]})


def numbers_in_bodies() -> Iterator[Attempt]:
    group = "numbers and types in API bodies"
    for value in NUMBERS:
        for name in ("k", "candidate_pool", "rrf_k", "ef_search", "token_budget", "as_of"):
            yield sends(group, "POST", f"{AT}/search", {"query": "pump", name: value, "compress": "sentences"})
        yield sends(group, "POST", f"{AT}/search", {"query": "pump", "weights": {"vector": value, "lexical": 1}})
        yield sends(group, "PATCH", AT, {"retention": {"runs_days": value}, "security": {"min_score": value}})
        yield sends(group, "PATCH", AT, {"chunk_policy": {"target_tokens": value}})
        yield sends(group, "POST", "/collections", {"name": "c", "embed_model": "m", "embed_dims": value})
        yield sends(group, "PATCH", f"{AT}/chunks/0/pump.md", {"enabled": True, "revision": value})
        yield sends(group, "PATCH", f"{AT}/evaluation", {"sampling": {"enabled": True, "rate": value}})
        yield sends(group, "PATCH", f"{AT}/overlays/1", {"chunk_index": value})
        yield sends(group, "POST", "/evaluation-runs", {"collection": NAME, "golden_set": "set", "k": value})
    for moment in TIMES:
        yield sends(group, "POST", "/api-keys", {"label": "t", "expires_at": moment})
        yield sends(group, "POST", f"{AT}/search", {"query": "pump", "as_of": moment})
        yield sends(group, "PUT", f"{AT}/documents/seg", {"content": [{"text": "x", "t_start": moment}]})


def odd_bodies() -> Iterator[Attempt]:
    group = "shape and size of API bodies"
    raws = (
        b"", b"{", b"\xff\xfe", b"[]", b"1", b"null", b'"x"', b'{"query": NaN}', b'{"query": 1e999}', deep(100_000),
        deep(50_000, '{"a":', "}").replace(b"}", b"1}", 1), b'{"query":"a","query":"b"}', b'{"query": "\\ud800"}',
        b'{"query": "pump", "filter": ' + deep(3000) + b"}", b"{" + b'"x":1,' * 5000 + b'"y":1}', b"\xef\xbb\xbf{}",
        b'{"query": "pump", "k": ' + b"9" * 5000 + b"}", b'{"query": "pump", "metadata": ' + deep(900, '{"a":', "}") + b"}",
    )  # fmt: skip
    for raw in raws:
        yield sends(group, "POST", f"{AT}/search", raw=raw)
        yield sends(group, "PUT", f"{AT}/documents/odd", raw=raw)
    for value in ODD:
        for name in ("query", "tags_any", "metadata", "filter", "mode", "plan", "rerank", "exact"):
            yield sends(group, "POST", f"{AT}/search", {"query": "pump", name: value})
        for name in ("content", "title", "tags", "metadata", "ingest_mode", "language"):
            yield sends(group, "PUT", f"{AT}/documents/odd", {"content": "x", name: value})


def addresses() -> Iterator[Attempt]:
    group = "identifiers and parameters in addresses"
    for text in (*TEXTS[1:], *drawn_texts(8, seed=3)):
        one = part(text)
        yield sends(group, "GET", f"{AT}/documents/{one}")
        yield sends(group, "GET", f"{AT}/documents?q={one}&tag={one}&media_type={one}&language={one}")
        yield sends(group, "GET", f"/runs?collection={one}&plan={one}")
    for text in FEW[1:]:
        one = part(text)
        for path in (
            f"/collections/{one}", f"/jobs/{one}", f"/jobs?doc_id={one}&collection={one}&batch={one}", f"/runs/{one}",
            f"/operations?kind={one}&collection={one}", f"/golden-sets/{one}", f"/traces/{one}", f"/batches/{one}",
            f"{AT}/chunks?doc_id={one}", f"{AT}/revisions?doc_id={one}", f"{AT}/plans/{one}", f"/models/{one}",
            f"{AT}/retrieved?doc_id={one}", f"/evidence?collection={one}&since={one}", f"/comparisons?base={one}&with={one}",
            f"{AT}/documents/pump.md?limit={one}", f"/runs?limit={one}", f"/runs?since={one}&until={one}",
        ):  # fmt: skip
            yield sends(group, "GET", path)
    for number in ("-1", "0", "99999999999999999999", "true", "1.5", "1e3", "%00", "٣"):
        for path in (f"{AT}/index-versions/{number}", f"{AT}/revisions/{number}?doc_id=pump.md", f"/experiments/{number}",
                     f"{AT}/chunks/{number}/pump.md", f"{AT}/chunks/{number}/a/filter.md"):  # fmt: skip
            yield sends(group, "GET", path)
        yield sends(group, "DELETE", f"/api-keys/{number}")
        yield sends(group, "GET", f"/runs?limit={number}&min_ms={number}&min_cost={number}")
    for moment in TIMES:
        yield sends(group, "GET", f"/runs?since={part(moment)}&until={part(moment)}")
        yield sends(group, "GET", f"/spans?since={part(moment)}&until={part(moment)}")


def forged(order: Any, values: Any) -> str:
    text = json.dumps([order, values]).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def cursors() -> Iterator[Attempt]:
    lists = ("/runs", "/jobs", "/batches", "/operations", "/api-keys", "/evaluation-runs", "/experiments", "/golden-sets",
             "/collections", f"{AT}/documents", f"{AT}/plans", "/run-scores",
             f"{AT}/revisions?doc_id=pump.md")  # fmt: skip
    made = (
        "x", "=", "AAAA", base64.b64encode(b"\x80\x04.").decode(), forged([], []), forged(["-created_at", "-id"], ["x", "y"]),
        forged(["-created_at", "-id"], [{"at": "infinity"}, {"id": "0" * 32}]), forged(["id"], [10**30]),
        forged(["-created_at", "-id"], [{"at": "10000-01-01"}, 1]), forged(["place"], [-1]), forged(["password"], ["a"]),
        forged(["name"], ["\x00"]), forged(["name"], [{"at": 1}]), forged("name", {"a": 1}), "%00", "A" * 5000,
    )  # fmt: skip
    for path in lists:
        for cursor in made:
            mark = "&" if "?" in path else "?"
            yield sends("forged cursors", "GET", f"{path}{mark}limit=2&cursor={part(cursor)}")


def filters() -> Iterator[Attempt]:
    group = "typed filters"
    nested: Any = {"field": "page", "op": "eq", "value": 1}
    for _ in range(60):
        nested = {"not": nested}
    for where in (
        nested, {"and": []}, {"or": [{}] * 2000}, {"field": "page"}, {"field": "", "op": "eq", "value": 1},
        {"field": "tags", "op": "prefix", "value": "\x00"}, {"field": "metadata.a'b", "op": "eq", "value": "'"},
        {"field": "metadata." + "a." * 300, "op": "eq", "value": 1}, {"field": "created_at", "op": "gt", "value": "infinity"},
        {"field": "updated_at", "op": "lt", "value": "10000-01-01T00:00:00Z"}, {"field": "page", "op": "gt", "value": 1e308},
        {"field": "page", "op": "in", "value": list(range(20_000))}, {"field": "page", "op": "eq", "value": True},
        {"field": "page", "op": "eq", "value": 10**40}, {"field": "x; --", "op": "eq", "value": 1}, {"and": {"a": 1}},
        {"field": "language", "op": "exists", "value": "x"}, {"field": "section", "op": "prefix", "value": "%_\\"},
        {"field": ["page"], "op": ["eq"], "value": [[]]}, {"field": "page", "op": "eq", "value": {"a": 1}}, [1], "page = 1",
    ):  # fmt: skip
        yield sends(group, "POST", f"{AT}/search", {"query": "pump", "filter": where})
        yield sends(group, "PUT", f"{AT}/plans/filtered", {"filter": where})
        yield sends(
            group, "POST", f"{AT}/documents-bulk", {"action": "enable", "filter": {"where": where}, "dry_run": True}
        )
    for text in ("page = ", "(" * 400 + "page = 1" + ")" * 400, "not " * 400 + "page = 1", "tag in [" + "1," * 3000 + "1]",
                 "page = 1 or " * 2000 + "page = 1", "a.b.c = '\x00'", "metadata.a = '" + "x" * 5000 + "'", "page == 1",
                 "created_at > 'infinity'", "'", "page = 1e999", "tag starts ''", "\ud800 = 1", "x[\"'] = 1"):  # fmt: skip
        yield sends(group, "GET", f"{AT}/documents?filter={part(text)}")
        yield sends(group, "GET", f"{AT}/documents?facets=true&filter={part(text)}")


def span_filters() -> Iterator[Attempt]:
    group = "span filter language"
    for where in ("duration_ms > ", "(" * 500, "not " * 300 + "status = 'ok'", "a.b = '\x00'", "status ~ '(a+)+$'", "x in ()",
                  "duration_ms > 1e999", "status = 'ok' or " * 1000 + "status = 'ok'", "'; DROP TABLE spans; --", "\ud800",
                  "attributes['a\"]", "start > 'infinity'", "duration_ms > " + "9" * 400, "\"a\" = \"b", "1 = 1", "status"):  # fmt: skip
        yield sends(group, "GET", f"/spans?where={part(where)}")
        yield Attempt(
            group,
            f"page {where[:40]}",
            lambda doors, q=part(where): doors.pages.get(f"/activity/spans/?where={q}"),
            "page",
        )
    listed = ("type", "kind", "status", "environment", "service", "model", "api_key", "collection")
    for name in (*listed, "text", "min_ms"):
        for text in ("\x00", "'", "=", "a=b=c", "\ud800", "x" * 3000):
            yield sends(group, "GET", f"/spans?{name}={part(text)}")


def bearers() -> Iterator[Attempt]:
    group = "forms of bearer"
    forms = ("", "Bearer", "Bearer ", "bearer\tx", "Basic YTpi", "Bearer ragd_", "Bearer " + "a" * 8000, "Bearer ragd_\xff",
             "Bearer null", "Bearer a b c", "Token x", "Bearer,Bearer x", "Bearer ragd_' OR 1=1 --", "Bearer \x7f")  # fmt: skip
    for form in forms:
        for method, path in (("GET", "/collections"), ("POST", f"{AT}/search"), ("DELETE", AT)):
            yield Attempt(
                group, f"{method} {form[:30]!r}", lambda doors, m=method, p=path, f=form: _refused(doors, m, p, f)
            )


def _refused(doors: Doors, method: str, path: str, form: str) -> Any:
    answer = doors.send(method, path, {"query": "pump"} if method == "POST" else None, Authorization=form)
    return answer if answer.status_code in (400, 401, 403) else f"let in: {answer.status_code}"


def idempotency_keys() -> Iterator[Attempt]:
    for key in (*TEXTS[:40], "k" * 300, "k" * 5000, "a,b", "\x7f"):
        body = {"question": "Where is the pump?", "expected_doc_ids": ["pump.md"]}
        yield sends("idempotency keys", "POST", "/golden-sets/set/questions", body, **{"Idempotency-Key": key})


def chat_requests() -> Iterator[Attempt]:
    group = "chat facade"
    model, asked = f"ragd/{NAME}", [{"role": "user", "content": "Who cleans the pump?"}]
    bodies: list[Any] = [{"model": model, "messages": value} for value in ODD]
    bodies += [{"model": value, "messages": asked} for value in ODD]
    bodies += [{"model": f"ragd/{text}", "messages": asked} for text in FEW]
    bodies += [{"model": model, "messages": [{"role": "user", "content": text}]} for text in (*FEW, *TEXTS[40:])]
    bodies += [
        {"model": model, "messages": [{"role": role, "content": "x"}, *asked]} for role in ("", "tool", "root", 7, None)
    ]
    bodies += [{"model": model, "messages": asked, name: value} for value in (-1, 10**30, "x", [], True)
               for name in ("temperature", "max_tokens", "n", "stream", "stop", "seed", "top_p")]  # fmt: skip
    bodies += [
        {"model": model, "messages": asked * 3000},
        {"model": model, "messages": asked, "metadata": {"k": deep(5).decode()}},
    ]
    for body in bodies:
        shown = json.dumps(body)[:70]
        yield Attempt(group, shown, lambda doors, b=body: doors.send("POST", "/chat/completions", b), "openai")
