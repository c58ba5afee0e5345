"""Feeds, repositories, WebDAV, mailboxes and buckets, each from a real server on the loopback.
The source of docs/sources.md, installed as a package would be.
Websites: what is found by links and by sitemaps, within which bounds, and what fails without a deletion."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from dulwich import porcelain

from collections_app.models import Document, Source
from collections_app.sources.kinds import registry
from collections_app.sources.kinds.imap import _quote
from ragd.errors import InvalidInput
from tests.fakes.imap_server import ImapServer, imap_server
from tests.fakes.s3_server import S3Server, running_s3_server, s3_server
from tests.fakes.web_server import Page, WebServer
from tests.refusals import raises_with
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
        with raises_with(InvalidInput, field="url"):
            connect("webdav", url="ftp://example.org/")
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
        with raises_with(InvalidInput, field=field):
            connect("imap", **{"username": "ada", "secret": "x", **values})


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


def page(text: str, *links: str, head: str = "") -> Page:
    listed = "".join(f'<a href="{link}">{link}</a>' for link in links)
    return Page(f"<html><head><title>T</title>{head}</head><body><p>{text}</p>{listed}</body></html>".encode())


def names(site: WebServer, *paths: str) -> list[str]:
    return [f"127.0.0.1:{site.port}{path}" for path in paths]


def test_links_are_followed_within_bounds(connect: Connect, web_server: WebServer) -> None:
    site = web_server
    site.pages |= {
        "/robots.txt": Page(b"User-agent: *\nDisallow: /docs/private"),
        "/docs/": page(
            "Start.", "a", "/docs/b?x=1#y", "/other", "http://elsewhere.example/", "private", "logo.png", "old/z"
        ),
        "/docs/a": page("One.", "deep", "b?x=1", "moved"),
        "/docs/b?x=1": page("Two.", "/docs/"),
        "/docs/deep": page("Three.", "deeper"),
        "/docs/deeper": page("Too deep."),
        "/docs/moved": Page(status=301, headers={"Location": "/docs/hidden"}),
        "/docs/hidden": page("Not to be indexed.", "shown", head='<meta name="robots" content="noindex">'),
        "/docs/shown": page("Never followed: too deep."),
        "/docs/old/z": page("Left out."),
        "/docs/private": page("Closed."),
        "/other": page("Outside."),
    }  # fmt: skip
    source = connect("website", url=site.url("/docs/"), depth=2, exclude=["/docs/old/"])
    run = sync(source)
    assert changes(run) == {"added": names(site, "/docs", "/docs/a", "/docs/b?x=1", "/docs/deep")}
    assert "/docs/private" not in site.paths()
    assert Document.objects.get(doc_id__endswith="/docs/a").title == "T"
    site.pages["/docs/a"] = page("One, anew.", "deep")
    site.pages["/docs/deep"] = Page(status=404)
    run = sync(source)
    assert changes(run) == {"updated": names(site, "/docs/a"), "deleted": names(site, "/docs/deep")}


def test_scripts_that_change_with_every_request_change_nothing(connect: Connect, web_server: WebServer) -> None:
    web_server.pages["/"] = page("Same.", head="<script>nonce=1</script>")
    source = connect("website", url=web_server.url("/"))
    sync(source)
    web_server.pages["/"] = page("Same.", head="<script>nonce=2</script>")
    assert totals(sync(source)) == (0, 0, 0, 1, 0)


def test_a_page_that_fails_for_now_deletes_nothing(connect: Connect, web_server: WebServer) -> None:
    site = web_server
    site.pages |= {"/": page("Start.", "a", "b", "c"), "/a": page("A.", "d"), "/b": page("B."), "/c": page("C."),
                   "/d": page("D.")}  # fmt: skip
    source = connect("website", url=site.url("/"))
    assert totals(sync(source))[0] == 5
    site.pages["/a"] = Page(status=503)  # /d is found over it
    site.pages["/b"] = Page(status=404)
    run = sync(source)
    assert (run.state, changes(run), Document.objects.count()) == ("succeeded", {"failed": names(site, "/a")}, 5)
    site.pages["/"] = Page(status=404)
    run = sync(source)
    assert (run.state, run.error_type, Document.objects.count()) == ("failed", "not_found", 5)


def test_the_page_limit_ends_the_crawl_and_deletes_nothing(connect: Connect, web_server: WebServer) -> None:
    web_server.pages |= {"/": page("Start.", *(f"p{n}" for n in range(9)))}
    web_server.pages |= {f"/p{n}": page(f"Page {n}.") for n in range(9)}
    assert sync(connect("website", url=web_server.url("/"), max_pages=4)).report["added"] == 4


@pytest.mark.parametrize("packed", [False, True])
def test_a_sitemap_names_pages_and_when_they_changed(connect: Connect, web_server: WebServer, packed: bool) -> None:
    site = web_server

    def sitemap(*entries: tuple[str, str]) -> Page:
        rows = "".join(f"<url><loc>{site.url(path)}</loc><lastmod>{at}</lastmod></url>" for path, at in entries)
        text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{rows}</urlset>'.encode()
        return Page(gzip.compress(text) if packed else text)

    index = f"<sitemapindex><sitemap><loc>{site.url('/pages.xml')}</loc></sitemap></sitemapindex>"
    site.pages |= {"/sitemap.xml": Page(index.encode()), "/a": page("A.", "/c"), "/b": page("B."), "/c": page("C.")}
    site.pages["/pages.xml"] = sitemap(("/a", "2026-01-01"), ("/b", "2026-01-01"))
    source = connect("website", url=site.url("/"), find="sitemap")
    assert changes(sync(source)) == {"added": names(site, "/a", "/b")}
    site.asked.clear()
    site.pages["/a"], site.pages["/pages.xml"] = page("A2."), sitemap(("/a", "2026-02-02"), ("/b", "2026-01-01"))
    assert changes(sync(source)) == {"updated": names(site, "/a")}
    assert site.paths() == ["/sitemap.xml", "/pages.xml", "/a"]
    site.pages["/pages.xml"] = Page(b'<!DOCTYPE x [<!ENTITY e "e">]><urlset/>')
    run = sync(source)
    assert (run.state, Document.objects.count()) == ("failed", 2)


def test_addresses_of_this_machine_are_refused(connect: Connect, web_server: WebServer, settings: Any) -> None:
    web_server.pages["/"] = page("Inside.")
    settings.RAGD_FETCH_ALLOWED_NETWORKS = []
    run = sync(connect("website", url=web_server.url("/")))
    assert (run.state, run.error_type, web_server.asked) == ("failed", "address_refused", [])
    for values, field in (
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "https://a.example/", "sitemap": "https://b.example/sitemap.xml"}, "sitemap"),
        ({"url": "https://a.example/", "exclude": ["old"]}, "exclude"),
        ({"url": "https://a.example/", "depth": 99}, "depth"),
        ({"url": "https://a.example/", "find": "guess"}, "find"),
        ({}, "url"),
    ):
        with raises_with(InvalidInput, field=field):
            connect("website", **values)


DOCS = (Path(__file__).resolve().parents[2] / "docs" / "sources.md").read_text()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example, and entry points that cannot be loaded or are no sources."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    (name, value) = re.findall(r'^(\S+) = "(acme_wiki:\w+)"$', DOCS, re.MULTILINE)[0]
    (tmp_path / "acme_wiki.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    values = [(name, value), ("gone", "no_such_module:Thing"), ("other", "json:loads")]
    offered = [EntryPoint(*each, registry.GROUP) for each in values]
    monkeypatch.setattr(registry, "entry_points", lambda group: offered if group == registry.GROUP else [])
    registry.source_kinds.cache_clear()
    yield
    registry.source_kinds.cache_clear()
    sys.modules.pop("acme_wiki", None)


def test_the_example_of_the_documentation_syncs(installed: None, connect: Any, web_server: WebServer) -> None:
    assert set(registry.source_kinds()) == {*(each.kind for each in registry.BUILT_IN), "acme-wiki"}

    def index(*pages: tuple[str, int]) -> Page:
        return Page(json.dumps([{"path": path, "revision": n, "title": f"On {path}"} for path, n in pages]).encode())

    web_server.pages |= {f"/wiki/{name}": Page(f"<p>All about {name}.</p>".encode()) for name in ("a", "b", "c")}
    web_server.pages["/wiki/index.json"] = index(("a", 1), ("b", 1))
    wiki = connect("acme-wiki", url=web_server.url("/wiki/"))
    assert changes(sync(wiki)) == {"added": ["a", "b"]}
    document = Document.objects.get(doc_id="a")
    assert (document.title, document.media_type) == ("On a", "text/html")
    web_server.pages["/wiki/index.json"] = index(("a", 2), ("c", 1))
    web_server.pages["/wiki/a"] = Page(b"<p>Anew.</p>")
    assert changes(sync(wiki)) == {"added": ["c"], "deleted": ["b"], "updated": ["a"]}
