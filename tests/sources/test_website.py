"""Websites: what is found by links and by sitemaps, within which bounds, and what fails without a deletion."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pytest

from collections_app.models import Document, Source
from ragd.errors import InvalidInput
from tests.fakes.web_server import Page, WebServer
from tests.sources.syncing import changes, sync, totals

pytestmark = pytest.mark.django_db

Connect = Callable[..., Source]


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
        with pytest.raises(InvalidInput) as caught:
            connect("website", **values)
        assert caught.value.field == field
