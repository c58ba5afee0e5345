"""The interface in another language: every text is marked, every mark is translated, and pages come out in it.
The visual language: contrast of the tokens, icons that exist, nothing inline, nothing from another host."""

from __future__ import annotations

import gettext
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import polib
import pytest
from django.conf import settings
from django.template import engines
from django.test import Client
from django.utils import translation
from django.utils.translation.template import templatize

from collections_app.access.people_views import ROLE_HELP
from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection
from collections_app.domain.formats import duration, language_name, round_duration
from evaluation_app.charts.score_charts import TrendPoint, draw_distribution, draw_trend
from evaluation_app.charts.series_charts import Series, Step, draw_bars, draw_lines
from evaluation_app.failures.board import CULPRITS
from evaluation_app.measures.catalogue import find, find_mode
from evaluation_app.telemetry.explorer.span_links import _title as find_title
from evaluation_app.telemetry.overview.figures import period_until
from ragd_site.operations.branding import find_shades
from retrieval_app.templatetags.queries import short_words
from tests.web.pages import text_of, tree
from tests.web.template_texts import template_texts
from tools.messages import list_data_texts

TEMPLATES = sorted((settings.BASE_DIR / "templates").rglob("*.html"))
CATALOGUE = Path(settings.LOCALE_PATHS[0]) / "de" / "LC_MESSAGES"
MARKED = re.compile(r"gettext\((?:u'[a-z ]+', )?(?:u?'((?:[^'\\]|\\.)*)'|u?\"((?:[^\"\\]|\\.)*)\")|_\(\"([^\"]*)\"\)")
PLACEHOLDER = re.compile(r"%\((\w+)\)s")


@pytest.fixture(scope="module")
def german() -> dict[str, str]:
    entries = [entry for entry in polib.pofile(str(CATALOGUE / "django.po")) if not entry.obsolete]
    plurals = {entry.msgid_plural: entry.msgstr_plural[1] for entry in entries if entry.msgid_plural}
    return plurals | {entry.msgid: entry.msgstr or entry.msgstr_plural[0] for entry in entries}


def messages_of(path: Path) -> set[str]:
    """What the template asks the catalogue for, as makemessages reads it."""
    source = templatize(path.read_text("utf-8"))
    found = {next(filter(None, groups), "") for groups in MARKED.findall(source)}
    return {text.replace("\\'", "'").replace('\\"', '"').replace("\\n", "\n") for text in found if text}


def test_every_mark_of_a_template_is_translated(german: dict[str, str]) -> None:
    missing = {(path.name, text) for path in TEMPLATES for text in messages_of(path) if not german.get(text)}
    assert missing == set()


def test_translations_keep_their_placeholders(german: dict[str, str]) -> None:
    wrong = {
        text
        for text, translated in german.items()
        if text and Counter(PLACEHOLDER.findall(text)) != Counter(PLACEHOLDER.findall(translated))
    }
    assert wrong == set()


@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_what_serves_is_what_was_translated(domain: str) -> None:
    """The compiled catalogue is made from the readable one by `make messages`."""
    with (CATALOGUE / f"{domain}.mo").open("rb") as file:
        served = gettext.GNUTranslations(file)
    entries = [entry for entry in polib.pofile(str(CATALOGUE / f"{domain}.po")) if not entry.obsolete]
    assert entries and all(entry.msgstr or entry.msgstr_plural for entry in entries)
    for entry in entries:
        if entry.msgid_plural:
            assert served.ngettext(entry.msgid, entry.msgid_plural, 2) == entry.msgstr_plural[1]
        elif entry.msgctxt:
            assert served.pgettext(entry.msgctxt, entry.msgid) == entry.msgstr
        else:
            assert served.gettext(entry.msgid) == entry.msgstr


def test_no_text_of_a_template_is_without_a_mark() -> None:
    loose = []
    for path in TEMPLATES:
        source = re.sub(
            r"\{% blocktranslate.*?%\}.*?\{% endblocktranslate %\}", "", path.read_text("utf-8"), flags=re.S
        )
        bare = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", source, flags=re.S)
        bare = re.sub(r"<(code|kbd|pre|samp|style|script|svg)\b.*?</\1>", "", bare, flags=re.S)
        loose += [
            (path.name, text)
            for text in template_texts(bare)
            if len({word for word in text.split() if re.search("[a-z]{2}", word)}) > 1
        ]
    assert loose == []


def test_a_page_in_german(visitor: Client, fill: object) -> None:
    english = visitor.get("/collections/")
    visitor.post("/language/", {"language": "de", "next": "/collections/"})
    page = visitor.get("/collections/")
    assert '<html lang="de"' in page.content.decode() and '<html lang="en"' in english.content.decode()
    with translation.override("de"):
        title = translation.gettext("Collections")
    assert title != "Collections" and title in page.content.decode()
    assert page["Content-Language"] == "de"
    texts = visitor.get("/language/texts.js?de").content.decode()
    assert translation.trans_real.DjangoTranslation("de", domain="djangojs").gettext("Replace") in texts
    wrong = visitor.post("/language/", {"language": "xx", "next": "//evil.example/"})
    assert wrong["Location"] == "/"


def test_a_browser_that_prefers_german_gets_it_and_the_api_stays_english(client: Client, db: None) -> None:
    page = client.get("/accounts/login/", headers={"Accept-Language": "de-AT,de;q=0.9"})
    assert page["Content-Language"] == "de"
    for path in ("/v1/collections", "/mcp"):
        answer = client.get(path, headers={"Accept-Language": "de"})
        assert answer.content == client.get(path).content
        assert answer.get("Content-Language") == "en"


def test_what_python_lists_call_things_is_in_the_language_of_the_page(german: dict[str, str]) -> None:
    assert list_data_texts() <= german.keys()
    with translation.override("de"):
        assert find("recall@10").title == f"{german['Recall']}@10 ({german['documents']})"
        assert find("completeness").title == german["Completeness"] != "Completeness"
        assert find_mode("retrieval_miss").title == german["Retrieval miss"] != "Retrieval miss"
        assert (language_name("de"), language_name("")) == ("Deutsch", german["unknown"])
        assert period_until("1h").words == german["Last hour"]
    with translation.override("en"):
        assert find("completeness").title == "Completeness"


def test_numbers_follow_the_language_and_markup_does_not() -> None:
    template = engines["django"].from_string(
        "{% load interface alerts %}{{ n|number }} {{ usd|dollars }} {{ ms|alert_value:'ms' }} <rect width='{{ x }}'/>"
    )
    values = {"n": 1234567, "usd": 0.25, "ms": 1500.0, "x": 0.5}
    with translation.override("en"):
        assert template.render(values) == "1,234,567 $0.25 1.50 s <rect width='0.5'/>"
    with translation.override("de"):
        assert template.render(values) == "1.234.567 $0,25 1,50 s <rect width='0.5'/>"


def test_charts_are_captioned_in_the_language_of_the_page() -> None:
    """Numbers with its separators, days with its names of months."""
    measure, begin = find("completeness"), datetime(2026, 12, 1, 14, 30, tzinfo=UTC)
    points = [TrendPoint("a", "a", "", 0.5, 0.25, 0.75), TrendPoint("b", "b", "", 0.55)]
    with translation.override("de"):
        assert find_title(begin, timedelta(minutes=1)) == "1. Dez 14:30 bis 14:31"
        assert find_title(begin, timedelta(days=2)) == "1. Dez bis 3. Dez"
        drawn = draw_distribution(measure, [0.9] * 30, mean=0.9)
        assert (
            drawn.title == f"{measure.title}: 30 Werte, Mittel 0,90" and drawn.bars[-2].readout == "0,90 bis 0,95: 30"
        )
        trend = draw_trend(measure, points)
        assert trend.title == f"{measure.title} über 2 Läufe, älteste zuerst"
        assert {"." in tick.text for tick in trend.ticks} == {False} and trend.rows[-1][3] == "0,25 bis 0,75"
        bars = draw_bars("t", [Step("a", "a")], [Series("s", (1234.5,))], spell="{:,.1f}".format)
        lines = draw_lines("t", [Step("a", "a")], [Series("s", (1500.0,))], spell=duration, spell_tick=round_duration)
        assert [bars.columns[0].readout, lines.columns[0].readout] == ["a: s 1.234,5", "a: s 1,50 s"]
        short = {"asked": 12, "got": 8, "reason": "collection_small", "message": "asked for 12"}
        assert short_words(short).startswith("12 angefordert, 8 erhalten: ")
        assert [str(word) for word in CULPRITS["first retrieved"]] == [
            "zuerst gefundenes Dokument",
            "zuerst gefundener Chunk",
        ]


@pytest.mark.fault("UX-F39")
@pytest.mark.parametrize("path", ["/operations/?view=field-coverage", "/evaluation/board/?view=modes"])
def test_pages_of_tables_show_no_english_text_of_them(visitor: Client, german: dict[str, str], path: str) -> None:
    sentences = {text for text in list_data_texts() if len(text.split()) > 2 and german[text] != text}
    english = text_of(visitor.get(path))
    visitor.cookies[settings.LANGUAGE_COOKIE_NAME] = "de"
    page = unescape(text_of(visitor.get(path)))
    assert {text for text in sentences if text in page} == set() != {text for text in sentences if text in english}


@pytest.mark.fault("UX-F7")
def test_roles_have_names_of_their_own_in_german_and_the_help_uses_them(visitor: Client) -> None:
    labels = ["Darf lesen", "Darf fragen", "Darf bearbeiten", "Darf evaluieren", "Darf verwalten"]
    with translation.override("de"):
        assert [str(role.label) for role in Role] == labels
        assert all(label in str(ROLE_HELP) for label in labels)
    create_collection(name="nature")
    visitor.cookies[settings.LANGUAGE_COOKIE_NAME] = "de"
    page = tree(visitor.get("/collections/nature/settings/?view=sharing"))
    offered = [option.text(strip=True) for option in page.css("select[name=role] option")]
    assert sorted(offered) == sorted(labels) and offered[0] == "Darf fragen"


ROOT = Path(__file__).resolve().parents[2]
TOKENS = (ROOT / "static" / "css" / "tokens.css").read_text()
GROUNDS = ("ground", "surface", "sunken", "raised", "hover")


def colours() -> dict[str, tuple[str, str]]:
    return {
        name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", TOKENS)
    }


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("accent", ["", "#000000", "#ffffff", "#ff0000", "#ffff00", "#00ff00", "#0000ff", "#808080"])
def test_text_has_contrast_on_every_ground(theme: int, accent: str) -> None:
    """Also in the shades of an accent colour that an administrator enters."""
    known = colours() | (find_shades(accent) if accent else {})
    for text in ("text", "muted", "accent", "accent-strong", "good", "watch", "bad", "neutral"):
        for ground in GROUNDS:
            assert contrast(known[text][theme], known[ground][theme]) >= 4.5, (text, ground)
    for meaning in ("good", "watch", "bad", "neutral"):
        assert contrast(known[meaning][theme], known[f"{meaning}-soft"][theme]) >= 4.5, meaning
    for mark in ("mark-cited", "mark-overlap", "mark-active", "accent-soft"):
        assert contrast(known["text"][theme], known[mark][theme]) >= 4.5, mark
    assert contrast(known["accent-strong"][theme], known["accent-soft"][theme]) >= 4.5
    assert contrast(known["on-accent"][theme], known["accent"][theme]) >= 4.5
