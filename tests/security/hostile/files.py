"""Hostile files for the upload of documents and of golden questions, and hostile exports of collections."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np

from tests.parsing import builders
from tests.security.hostile.doors import NAME, Attempt, Doors
from tests.security.hostile.values import ODD, TEXTS, TIMES, deep

ENTITIES = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
LAUGHS = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY l0 "lol">{ENTITIES}]><a>&l9;</a>'.encode()
XXE = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>secret &x; end</a>'
REMOTE = b'<?xml version="1.0"?><!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><a>text</a>'
SECRET = "root:x:0"  # of /etc/passwd, which no file may bring into a document


class Explosive:
    def __reduce__(self) -> Any:
        return (open, ("/tmp/ragd-hostile-pickle", "w"))


def slip_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("../../ragd-hostile-slip.txt", "/tmp/ragd-hostile-slip.txt", "ok.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5
            archive.addfile(info, io.BytesIO(b"words"))
        for kind, target in (
            (tarfile.SYMTYPE, "/etc/passwd"),
            (tarfile.LNKTYPE, "/etc/passwd"),
            (tarfile.FIFOTYPE, ""),
        ):
            info = tarfile.TarInfo(f"link{int(kind)}.txt")
            info.type, info.linkname = kind, target
            archive.addfile(info)
        info = tarfile.TarInfo("dev.txt")
        info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 1, 5
        archive.addfile(info)
    return buffer.getvalue()


def nested_zip(levels: int) -> bytes:
    content = b"the innermost text"
    for level in range(levels):
        content = builders.make_zip({f"level{level}.zip" if level else "a.txt": content})
    return content


def link_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("link.txt")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def twice_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "first")
        archive.writestr("b.txt", "x")
    return buffer.getvalue().replace(b"b.txt", b"a.txt")


def broken(content: bytes, seed: int) -> bytes:
    chance, changed = Random(seed), bytearray(content)
    for _ in range(12):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randrange(len(changed) // 2, len(changed))])


def contents() -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of files, each of which is to be refused or read as text."""
    yield (
        "slip.zip",
        builders.make_zip({"../../ragd-hostile-slip.txt": "words", "/tmp/x.txt": "words", "C:\\x.txt": "w"}),
    )
    yield "slip.tar.gz", slip_tar()
    yield "link.zip", link_zip()
    yield "twice.zip", twice_zip()
    yield (
        "names.zip",
        builders.make_zip({"\u202egnp.exe": "a", "a\u200bb.txt": "b", "con": "c", "a/" * 200 + "x.txt": "d"}),
    )
    yield "many.zip", builders.make_zip({f"{n}.txt": "x" for n in range(3_000)})
    yield "nested.zip", nested_zip(12)
    yield "bomb.zip", builders.make_zip({"a.txt": b"\0" * 60_000_000})
    yield "bomb.gz", gzip.compress(b"a" * 60_000_000)
    yield "bomb.txt.bz2", bz2.compress(b"a" * 60_000_000)
    yield "bomb.docx", builders.make_bomb_docx(300_000_000)
    yield "liar.docx", builders.make_bomb_docx(300_000_000, lie=1000)
    yield "laughs.xml", LAUGHS
    yield "xxe.xml", XXE
    yield "remote.xml", REMOTE
    for member, name in (
        ("word/document.xml", "xxe.docx"),
        ("xl/workbook.xml", "xxe.xlsx"),
        ("content.xml", "xxe.odt"),
    ):
        yield name, builders.make_zip({"[Content_Types].xml": "<Types/>", "mimetype": "x", member: XXE})
        yield f"laughs-{name}", builders.make_zip({"[Content_Types].xml": LAUGHS, member: LAUGHS})
    yield "xxe.svg", XXE.replace(b"<a>", b'<svg xmlns="http://www.w3.org/2000/svg">').replace(b"</a>", b"</svg>")
    yield "load.pkl", pickle.dumps(Explosive())
    yield "load.txt", pickle.dumps(Explosive())
    yield "deep.json", deep(200_000)
    yield "deep.html", b"<div>" * 50_000 + b"x"
    yield "deep.xml", b"<a>" * 100_000 + b"x" + b"</a>" * 100_000
    yield "deep.md", b"> " * 20_000 + b"x\n" + b"[" * 20_000 + b"*" * 20_000
    yield "deep.rtf", rb"{\rtf1" + b"{" * 50_000 + b"x" + b"}" * 50_000
    yield "deep.pdf", b"%PDF-1.7\n1 0 obj\n" + b"[" * 50_000 + b"]" * 50_000 + b"\nendobj\ntrailer<</Root 1 0 R>>"
    yield (
        "loop.pdf",
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[2 0 R]/Count 9>>endobj\ntrailer<</Root 1 0 R>>",
    )
    yield (
        "script.pdf",
        builders.make_pdf(["text"], title="T").replace(
            b"/Catalog", b"/Catalog/OpenAction<</S/JavaScript/JS(app.alert(1))>>"
        ),
    )
    yield (
        "include.rst",
        b".. include:: /etc/passwd\n\n.. raw:: html\n   :file: /etc/passwd\n\n.. csv-table::\n   :file: /etc/passwd\n\ntext\n",
    )
    yield "macro.csv", b"=cmd|' /C calc'!A0,@SUM(1)\n+1,-2\n"
    yield "wide.csv", b"a," * 40_000 + b"\n" + b"1," * 40_000
    yield "nul.txt", b"a\0b" * 1000
    yield "utf.txt", b"\xff\xfe\x00\xd8" * 500
    yield "line.txt", b"x" * 3_000_000
    yield "marks.txt", "\u202e\u2066".encode() * 2_000 + "&#xE000;0&#xE001; \ue0000\ue001 text".encode()
    yield (
        "mail.eml",
        b"Content-Type: multipart/mixed; boundary=a\n\n" + b"--a\nContent-Type: multipart/mixed; boundary=a\n\n" * 2000,
    )
    yield (
        "name.eml",
        b'Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Disposition: attachment; filename="../../../tmp/ragd-hostile-slip.txt"\n\nwords\n--b--\n',
    )
    for name, make in (("broken.pdf", lambda: builders.make_pdf(["First page", "Second"])), ("broken.docx", builders.make_docx),
                       ("broken.xlsx", builders.make_xlsx), ("broken.pptx", builders.make_pptx)):  # fmt: skip
        for seed in range(3):
            yield f"{seed}{name}", broken(make(), seed)


def uploads() -> Iterator[Attempt]:
    for name, content in contents():
        yield Attempt("hostile files", name, lambda doors, n=name, c=content: upload(doors, n, c))
    for text in TEXTS:
        yield Attempt("names of files", ascii(text)[:40], lambda doors, t=text: named(doors, t))


def upload(doors: Doors, name: str, content: bytes) -> Any:
    return doors.form(f"/collections/{NAME}/documents", {}, {"files": (name, content)})


def named(doors: Doors, text: str) -> Any:
    name = f"{text[:200]}.txt"
    body = (
        b'--B\r\nContent-Disposition: form-data; name="files"; filename="'
        + name.encode("utf-8", "surrogatepass").replace(b'"', b"%22").replace(b"\r\n", b" ")
        + b'"\r\n\r\nwords\r\n--B--\r\n'
    )
    return doors.client.post(
        f"/v1/collections/{NAME}/documents", body, content_type="multipart/form-data; boundary=B",
        headers={"Authorization": f"Bearer {doors.secret}"},
    )  # fmt: skip


def forms() -> Iterator[Attempt]:
    group = "multipart forms"
    for number, (body, kind) in enumerate((
        (b"", "multipart/form-data"), (b"--B", "multipart/form-data; boundary=B"), (b"x" * 1000, "multipart/form-data; boundary="),
        (b"--B\r\n\r\nx\r\n--B--", "multipart/form-data; boundary=B"), (b"{}", "application/json"), (b"a=b", "text/plain"),
        (b"--B\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a\"\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!\r\n--B--",
         "multipart/form-data; boundary=B"),
        (b"".join(b'--B\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nx\r\n' % n for n in range(3000)) + b"--B--",
         "multipart/form-data; boundary=B"),
        (b"--B\r\nContent-Disposition: form-data; name=\"files\"\r\n\r\nno file\r\n--B--", "multipart/form-data; boundary=B"),
        (b"--\xff\r\n", "multipart/form-data; boundary=\xff"),
    )):  # fmt: skip
        yield Attempt(group, f"form {number}", lambda doors, b=body, k=kind: doors.client.post(
            f"/v1/collections/{NAME}/documents", b, content_type=k,
            headers={"Authorization": f"Bearer {doors.secret}"}))  # fmt: skip
    for value in ("[", "[]", "7", '{"a": NaN}', '{"\\u0000": 1}', '{"a": ' + "[" * 500 + "]" * 500 + "}", "x" * 70_000):
        yield Attempt(group, f"metadata {value[:20]}", lambda doors, v=value: doors.form(
            f"/collections/{NAME}/documents", {"metadata": v, "tags": v, "language": v}, {"files": ("m.txt", b"words")}))  # fmt: skip


def golden_files() -> Iterator[Attempt]:
    group = "golden CSV and JSON Lines"
    formulas = ["=1+1", "+1", "-1", "@A1", "\t=1", '=HYPERLINK("http://x")', "=cmd|' /C calc'!A0"]
    rows = [b"question,expected_doc_ids\n" + json.dumps(text).encode() + b",pump.md\n" for text in formulas]
    rows += [
        f'question,note,expected_doc_ids\n"{text}","{text}","{text}"\n'.encode("utf-8", "replace")
        for text in TEXTS[:40]
    ]
    rows += [b"question\n" * 3, b"\xff\xfe\x00", b"a,a,a\n1,2,3\n", b"question,weight\nq,1e999\n", b"question,weight\nq,nan\n",
             b"question\n" + b'"' * 100_001, b"question" + b",x" * 5000 + b"\nq\n", b""]  # fmt: skip
    for number, content in enumerate(rows):
        yield Attempt(group, f"csv {number}", lambda doors, c=content: golden(doors, "q.csv", c))
    lines: list[Any] = [{"question": value} for value in ODD]
    lines += [{"question": "q", name: value} for name in ("expected_doc_ids", "weight", "thresholds", "metadata", "reference")
              for value in ODD[:12]]  # fmt: skip
    for number, line in enumerate(lines):
        yield Attempt(group, f"jsonl {number}", lambda doors, c=json.dumps(line).encode(): golden(doors, "q.jsonl", c))
    for content in (
        b"{",
        deep(50_000),
        b"[1]\nnull\n",
        b'{"question": "\\ud800"}',
        b'{"question": NaN}',
        b'{"question":"x"}\x00',
    ):
        yield Attempt(group, f"jsonl {content[:20]!r}", lambda doors, c=content: golden(doors, "q.jsonl", c))
    yield Attempt(group, "formulas in the export", exported_formulas)


def golden(doors: Doors, name: str, content: bytes) -> Any:
    return doors.form("/golden-sets/set/import", {}, {"file": (name, content)})


def exported_formulas(doors: Doors) -> str:
    """No cell of an exported table begins like a formula."""
    answer = doors.send("GET", "/golden-sets/set/questions?format=csv")
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    lines = content.decode("utf-8-sig").splitlines()
    bad = [line[:60] for line in lines if line.lstrip('"')[:1] in ("=", "+", "-", "@", "\t")]
    return f"a formula: {bad[:3]}" if bad or answer.status_code != 200 else ""


Change = Callable[[dict[str, bytes]], None]


def sealed(members: dict[str, bytes]) -> None:
    """The manifest agrees with the members again, as somebody would have it who changes both."""
    manifest = json.loads(members["manifest.json"])
    for name, member in manifest["members"].items():
        member["sha256"], member["bytes"] = hashlib.sha256(members[name]).hexdigest(), len(members[name])
    members["manifest.json"] = json.dumps(manifest).encode()


def with_row(member: str, **values: Any) -> Change:
    def change(members: dict[str, bytes]) -> None:
        first, rest = members[member].split(b"\n", 1)
        members[member] = json.dumps(json.loads(first) | values).encode() + b"\n" + rest
        sealed(members)

    return change


def with_vectors(make: Callable[[Any], Any]) -> Change:
    def change(members: dict[str, bytes]) -> None:
        buffer = io.BytesIO()
        np.save(buffer, make(np.load(io.BytesIO(members["vectors.npy"]))), allow_pickle=True)
        members["vectors.npy"] = buffer.getvalue()
        sealed(members)

    return change


def with_manifest(path: str, value: Any) -> Change:
    def change(members: dict[str, bytes]) -> None:
        manifest = target = json.loads(members["manifest.json"])
        *parents, last = path.split(".")
        for parent in parents:
            target = target[parent]
        target[last] = value
        members["manifest.json"] = json.dumps(manifest).encode()

    return change


def with_member(name: str, content: bytes) -> Change:
    return lambda members: members.update({name: content})


def exports() -> Iterator[tuple[str, Change]]:
    for name in ("title", "tags", "metadata", "page_map", "segments", "warnings", "chunk_policy", "revision", "text"):
        for value in (None, True, -1, "\x00", [[]], {"a": [1]}, [1, "x"], 2**70):
            yield f"documents {name}={value!r}", with_row("documents.jsonl", **{name: value})
    for name in ("content", "tags", "metadata", "start_char", "end_char", "context", "chunk_index", "enabled"):
        for value in (None, -1, "\x00x", [1], {"a": 1}, 10**12):
            yield f"chunks {name}={value!r}", with_row("chunks.jsonl", **{name: value})
    for moment in TIMES:
        yield f"created_at={moment}", with_row("documents.jsonl", created_at=moment)
        yield f"updated_at={moment}", with_row("documents.jsonl", updated_at=moment)
    yield "another text", with_row("chunks.jsonl", content="What the document does not say.")
    yield "a moved chunk", with_row("chunks.jsonl", start_char=3, end_char=7)
    for label, make in (("zero", lambda rows: rows * 0), ("nan", lambda rows: rows * np.nan), ("inf", lambda rows: rows / 0.0),
                        ("objects", lambda rows: np.array([Explosive() for _ in rows], dtype=object)), ("few", lambda rows: rows[:1]),
                        ("text", lambda rows: rows.astype("U")), ("wide", lambda rows: np.hstack([rows, rows]))):  # fmt: skip
        yield f"vectors {label}", with_vectors(make)
    for path, value in (
        ("format", 7),
        ("format_version", "x"),
        ("collection.name", "../x"),
        ("collection.name", "\x00"),
        ("collection.embed_dims", 10**9),
        ("collection.embed_dims", True),
        ("collection", []),
        ("members", {}),
        ("members", [1]),
        ("index_version", None),
        ("spec_version", {}),
        ("collection.security", {"action": "x"}),
    ):
        yield f"manifest {path}={value!r}", with_manifest(path, value)  # fmt: skip
    for name in ("../../ragd-hostile-slip.txt", "/tmp/ragd-hostile-slip.txt", "documents.jsonl/x", "\u202e"):
        yield f"member {name!r}", with_member(name, b"x")
    for content in (b"", b"{", deep(100_000), b"null\n", b"\xff\n", b'{"doc_id": NaN}\n'):
        yield (
            f"documents {content[:10]!r}",
            lambda members, c=content: (members.update({"documents.jsonl": c}), sealed(members))[0],
        )


def imports() -> Iterator[Attempt]:
    group = "exports of collections"
    for number, (label, change) in enumerate(exports()):
        yield Attempt(group, label, lambda doors, n=number, c=change: imported(doors, n, c))
    for content in (
        b"",
        b"PK\x03\x04",
        b"x" * 1000,
        builders.make_zip({}),
        builders.make_zip({"manifest.json": "[" * 50_000}),
    ):
        yield Attempt(group, f"file {content[:10]!r}", lambda doors, c=content: send_export(doors, "raw", c))


def imported(doors: Doors, number: int, change: Change) -> Any:
    with zipfile.ZipFile(io.BytesIO(doors.export)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    try:
        change(members)
    except (OverflowError, FloatingPointError):
        return ""
    return send_export(doors, f"imported{number}", builders.make_zip(members, compression=zipfile.ZIP_STORED))


def send_export(doors: Doors, name: str, content: bytes) -> Any:
    return doors.form("/collections/import", {"name": name}, {"file": ("x.zip", content)})
