"""Feeds, repositories, WebDAV, mailboxes and buckets, each from a real server on the loopback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dulwich import porcelain

from collections_app.models import Document, Source
from collections_app.sources.kinds.imap import _quote
from ragd.errors import InvalidInput
from tests.fakes.imap_server import ImapServer, imap_server
from tests.fakes.s3_server import S3Server, running_s3_server, s3_server
from tests.fakes.web_server import Page, WebServer
from tests.sources.servers import dav_application, git_application, serving
from tests.sources.syncing import changes, sync, totals

pytestmark = pytest.mark.django_db

__all__ = ["imap_server", "running_s3_server", "s3_server"]

Connect = Callable[..., Source]


def test_a_feed_adds_and_updates_entries_and_keeps_those_that_left(connect: Connect, web_server: WebServer) -> None:
    def feed(*entries: tuple[str, str]) -> Page:
        items = "".join(
            f"<item><title>On {name}</title><link>/posts/{name}</link><guid>{name}</guid>"
            f"<description>&lt;p&gt;{text}&lt;script&gt;x()&lt;/script&gt;&lt;/p&gt;</description></item>"
            for name, text in entries
        )
        return Page(f'<?xml version="1.0"?><rss version="2.0"><channel>{items}</channel></rss>'.encode())

    web_server.pages["/feed"] = feed(("a", "First."), ("b", "Second."))
    source = connect("feed", url=web_server.url("/feed"))
    at = f"127.0.0.1:{web_server.port}/posts/"
    assert changes(sync(source)) == {"added": [f"{at}a", f"{at}b"]}
    document = Document.objects.get(doc_id=f"{at}a")
    assert (document.title, document.source) == ("On a", web_server.url("/posts/a"))
    assert "First." in document.text and "x()" not in document.text
    web_server.pages["/feed"] = feed(("b", "Second, anew."), ("c", "Third."))
    assert changes(sync(source)) == {"added": [f"{at}c"], "updated": [f"{at}b"]}
    web_server.pages |= {"/posts/c": Page(b"<p>The whole of the third.</p>"), "/feed": feed(("c", "Third, again."))}
    Source.objects.update(settings={**source.settings, "pages": True})
    assert changes(sync(source)) == {"updated": [f"{at}c"]}
    assert Document.objects.get(doc_id=f"{at}c").text.strip() == "The whole of the third."
    web_server.pages["/feed"] = Page(b"<p>No feed.</p>")
    assert (sync(source).state, Document.objects.count()) == ("failed", 3)


def test_the_files_of_a_branch(connect: Connect, tmp_path: Path) -> None:
    def commit(files: dict[str, str | None]) -> None:
        for name, text in files.items():
            path = tmp_path / "work" / name
            path.parent.mkdir(exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        porcelain.add(repository, [str(tmp_path / "work" / name) for name in files])
        porcelain.commit(repository, message=b"x", author=b"a <a@b.c>", committer=b"a <a@b.c>")

    repository = porcelain.init(str(tmp_path / "work"))
    commit({"docs/a.md": "# A", "docs/b.md": "# B", "docs/c.txt": "Text.", "src/main.c": "int x;"})
    (tmp_path / "work" / "docs" / "link.md").symlink_to("/etc/passwd")
    porcelain.add(repository, [str(tmp_path / "work" / "docs" / "link.md")])
    commit({"docs/c.txt": "Other text."})
    with serving(git_application(repository)) as at:
        url = f"{at}/team.git"
        source = connect("git", url=url, folder="docs", include=["*.md"], username="ada", secret="token")
        assert changes(sync(source)) == {"added": ["docs/a.md", "docs/b.md"]}
        assert totals(sync(source)) == (0, 0, 0, 2, 0)
        commit({"docs/a.md": "# A2", "docs/b.md": None, "docs/d.md": "# D"})
        assert changes(sync(source)) == {"added": ["docs/d.md"], "deleted": ["docs/b.md"], "updated": ["docs/a.md"]}
        assert Document.objects.get(doc_id="docs/a.md").text == "# A2"
        for settings, kind in (({"branch": "none"}, "not_found"), ({"url": f"{at}/other.git"}, "not_found")):
            Source.objects.update(settings={**source.settings, **settings})
            run = sync(source)
            assert (run.state, run.error_type) == ("failed", kind)
            source.refresh_from_db()
            Source.objects.update(settings={**source.settings, "branch": "", "url": url})
    run = sync(source)
    assert (run.state, run.error_type, Document.objects.count()) == ("failed", "unreachable", 2)
    repository.close()


@pytest.mark.fault("SYN-06")
def test_pointers_to_large_files_are_passed_over_with_a_reason(connect: Connect, tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d" * 32 + "\nsize 12345\n"
    annexed = "/annex/objects/SHA256E-s5--" + "4d" * 32 + ".pdf\n"
    files = {"report.pdf": pointer, "notes.md": pointer, "big.csv": annexed, "a.md": "# About Git LFS\n\n" + pointer}
    repository = porcelain.init(str(tmp_path / "work"))
    for name, text in files.items():
        (tmp_path / "work" / name).write_text(text)
    porcelain.add(repository, [str(tmp_path / "work" / name) for name in files])
    porcelain.commit(repository, message=b"x", author=b"a <a@b.c>", committer=b"a <a@b.c>")
    with serving(git_application(repository)) as at:
        run = sync(connect("git", url=f"{at}/team.git", username="ada", secret="token"))
    assert changes(run) == {"added": ["a.md"], "failed": ["big.csv", "notes.md", "report.pdf"]}
    assert all(row.reason for row in run.changes.filter(kind="failed"))
    assert [row.doc_id for row in Document.objects.all()] == ["a.md"]
    repository.close()


@pytest.mark.fault("ID-03")
def test_two_keys_of_a_bucket_never_become_one_document(connect: Connect, s3_server: S3Server) -> None:
    s3_server.put("docs", "p/d/e.md", b"One.")
    keys = {"access_key": s3_server.access_key, "secret": s3_server.secret_key}
    source = connect("s3", bucket="docs", prefix="p/", endpoint=s3_server.url, **keys)
    assert changes(sync(source)) == {"added": ["p/d/e.md"]}
    s3_server.put("docs", "p/d//e.md", b"Two.")
    s3_server.put("docs", "p/d/ e.md ", b"Three.")
    assert changes(sync(source))["added"] == ["p/d//e.md"]
    texts = {row.doc_id: row.text for row in Document.objects.all()}
    assert (texts["p/d/e.md"], texts["p/d//e.md"]) == ("One.", "Two.")


def test_a_folder_of_a_webdav_server(connect: Connect, tmp_path: Path) -> None:
    share = tmp_path / "share"
    (share / "team" / "sub ä").mkdir(parents=True)
    (share / "team" / "a.txt").write_text("First.")
    (share / "team" / "sub ä" / "b.md").write_text("# B")
    (share / "team" / ".hidden").write_text("no")
    (share / "other.txt").write_text("Outside.")
    with serving(dav_application(share)) as at:
        source = connect("webdav", url=f"{at}/team", username="ada", secret="token")
        assert changes(sync(source)) == {"added": ["a.txt", "sub ä/b.md"]}
        assert totals(sync(source)) == (0, 0, 0, 2, 0)
        (share / "team" / "a.txt").write_text("Second, longer.")
        assert changes(sync(source)) == {"updated": ["a.txt"]}
        (share / "team" / "sub ä" / "b.md").unlink()
        assert changes(sync(source)) == {"deleted": ["sub ä/b.md"]}
        with pytest.raises(InvalidInput) as caught:
            connect("webdav", url="ftp://example.org/")
        assert caught.value.field == "url"
        source.name = "wrong"
        Source.objects.update(secret="")
        run = sync(source)
        assert (run.state, run.error_type) == ("failed", "not_allowed")

    def forbid(environ: Any, start: Any) -> list[bytes]:
        start("207 Multi-Status", [("Content-Type", "application/xml")])
        response = b"<href>/team/a.txt</href><status>HTTP/1.1 403 Forbidden</status>"
        return [b'<multistatus xmlns="DAV:"><response>' + response + b"</response></multistatus>"]

    with serving(forbid) as at:
        Source.objects.update(settings={**source.settings, "url": f"{at}/team/"})
        assert (sync(source).error_type, source.waits) == ("unexpected_answer", False)
    assert Document.objects.get().text == "Second, longer."


def test_the_messages_of_a_mail_folder(connect: Connect, imap_server: ImapServer, settings: Any) -> None:
    def mail(name: str) -> bytes:
        head = f"Message-ID: <{name}@x>\r\nSubject: On {name}\r\nFrom: a@x\r\nDate: Mon, 5 Jan 2026 10:00:00 +0000"
        return f"{head}\r\n\r\nAll about {name}.\r\n".encode()

    imap_server.folders["Arbeit &- B&APw-ro"] = {n: mail(f"m{n}") for n in (3, 5, 9)}
    assert _quote("Arbeit & Büro") == '"Arbeit &- B&APw-ro"'
    values = {"host": "127.0.0.1", "port": imap_server.port, "security": "none", "folder": "Arbeit & Büro"}
    source = connect("imap", username="ada", secret="good", **values)
    names = changes(sync(source))["added"]
    assert [name.rpartition(" ")[0] for name in names] == [f"2026-01-05 On m{n}" for n in (3, 5, 9)]
    assert Document.objects.get(doc_id=names[0]).title == "On m3"
    del imap_server.folders["Arbeit &- B&APw-ro"][3]
    imap_server.folders["Arbeit &- B&APw-ro"][10] = mail("m10")
    run = sync(source)
    assert (changes(run)["deleted"], totals(run)) == ([names[0]], (1, 0, 1, 2, 0))
    assert not any("STORE" in command or command.startswith("SELECT") for command in imap_server.commands)
    Source.objects.update(settings={**source.settings, "newest": 1})
    assert totals(sync(source)) == (0, 0, 0, 1, 0)
    for change, kind in (({"folder": "None"}, "not_found"), ({"host": "localhost.invalid"}, "unknown_host")):
        Source.objects.update(settings={**source.settings, **change})
        assert (sync(source).error_type, Document.objects.count()) == (kind, 3)
        Source.objects.update(settings={**source.settings, "newest": 1, **values})
    imap_server.password = "other"
    assert sync(source).error_type == "not_allowed"
    settings.RAGD_FETCH_ALLOWED_NETWORKS = []
    assert sync(source).error_type == "address_refused"
    for values, field in (({"host": "a b"}, "host"), ({"host": "mail.example", "username": ""}, "username")):
        with pytest.raises(InvalidInput) as caught:
            connect("imap", **{"username": "ada", "secret": "x", **values})
        assert caught.value.field == field


def test_a_prefix_of_a_bucket(connect: Connect, s3_server: S3Server, settings: Any) -> None:
    s3_server.require_keys()
    for name in ("reports/a.txt", "reports/b.txt", "other.txt"):
        s3_server.put("docs", name, f"About {name}.".encode())
    keys = {"access_key": s3_server.access_key, "secret": s3_server.secret_key}
    source = connect("s3", bucket="docs", prefix="reports", endpoint=s3_server.url, **keys)
    run = sync(source)
    assert (run.error, changes(run)) == ("", {"added": ["reports/a.txt", "reports/b.txt"]})
    assert Document.objects.get(doc_id="reports/a.txt").source == "s3://docs/reports/a.txt"
    s3_server.put("docs", "reports/a.txt", b"Anew.")
    s3_server.remove("docs", "reports/b.txt")
    assert changes(sync(source)) == {"updated": ["reports/a.txt"], "deleted": ["reports/b.txt"]}
    settings.RAGD_FETCH_ALLOWED_NETWORKS = []
    assert sync(source).error_type == "unreachable" or source.last_error
    settings.RAGD_S3_ENDPOINT, settings.RAGD_S3_BUCKETS = s3_server.url, ["other"]
    run = sync(source)
    assert (run.state, run.error_type) == ("failed", "forbidden")
