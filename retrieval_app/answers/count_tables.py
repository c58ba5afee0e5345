"""Questions that count, and the tables that they count in.

A counting question asks how many there are, or for all of them. A table holds every row of the documents' tables of
one shape; the documents themselves are the rows of one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from ragd.search.candidates import COLUMNS, passing, ranked, scope
from ragd.store.store import Store, fetch_all
from ragd.types import Candidate, RetrievePlan
from retrieval_app.answers.citations import is_written
from retrieval_app.answers.question import read_follow_up

Ask = Literal["count", "list"]

WORDS = tomllib.loads(Path(__file__).with_name("counting.toml").read_text(encoding="utf-8"))
COUNTS, LISTS = (re.compile(WORDS[name], re.IGNORECASE) for name in ("counts", "lists"))
FILLERS, ROW_WORDS, DOCUMENT_WORDS, TURNING_WORDS, TOTAL_WORDS, CONTAIN_WORDS = (
    frozenset[str](WORDS[name].split()) for name in ("fillers", "row", "document", "turning", "total", "contain")
)
# A whole value behind the first one that says the same; "average" may be a judgement there.
GROUP_TOTALS = TOTAL_WORDS - {"average", "durchschnitt"} | {"grand total", "sub total"}
OR_WORDS = frozenset(("or", "oder"))
COMPARISONS: dict[str, str] = {text: sign for sign, texts in WORDS["comparisons"].items() for text in texts}
QUOTED = r"\"[^\"]+\"|“[^”]+”|„[^“”]+[“”]|«[^»]+»|'[^']+'(?!\w)"
TOKEN = re.compile(
    rf"{QUOTED}|>=|<=|[<>=]|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|-?[0-9]+(?:[.,][0-9]+)*|[^\W_]+(?:[-'’./&+_][^\W_]+)*"
)
GERMAN = re.compile(r"\b(?:wie|zähle?|anzahl|liste|nenne|zeige?|gib)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Token:
    """question[start:end]; text without its quotation marks."""

    text: str
    start: int
    end: int
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class CountQuestion:
    """asks: for a number, or for all of them. tokens: of what follows the words that ask."""

    text: str
    asks: Ask
    tokens: tuple[Token, ...]
    is_german: bool


def read_question(question: str) -> CountQuestion | None:
    """None for a question that asks neither for a number nor for a complete list. Of a follow-up what it asks."""
    text, _ = read_follow_up(question.strip())
    kinds: tuple[tuple[Ask, re.Pattern[str]], ...] = (("count", COUNTS), ("list", LISTS))
    for asks, pattern in kinds:
        if found := pattern.match(text):
            tokens = tuple(_token(match) for match in TOKEN.finditer(text, found.end()))
            is_german = bool(GERMAN.match(text.removeprefix("Bitte ")))
            return CountQuestion(text, asks, tokens, is_german) if tokens else None
    return None


def key_of(text: str) -> str:
    """The form in which names and values are compared: one blank between words, no case, _ as a blank."""
    return " ".join(text.replace("_", " ").split()).casefold()


def stem_of(word: str) -> str:
    """A noun without the usual plural endings of English and German: for names only, never for values."""
    folded = word.casefold()
    for ending, rest in (
        ("ies", "y"),
        ("sses", "ss"),
        ("en", ""),
        ("es", "e"),
        ("er", ""),
        ("s", ""),
        ("n", ""),
        ("e", ""),
    ):
        if folded.endswith(ending) and len(folded) - len(ending) >= 3:
            return (folded[: -len(ending)] + rest).rstrip("e")
    return folded


def _token(match: re.Match[str]) -> Token:
    text = match.group()
    is_quoted = len(text) > 2 and text[0] in "\"“„«'"
    return Token(text[1:-1] if is_quoted else text, match.start(), match.end(), is_quoted)


CHARS_MAX = 20_000_000  # of the documents that hold tables

TABLE_CHUNKS = f"""
SELECT {COLUMNS}, 1 AS score FROM {{chunks}}
WHERE {{passing}} AND position('|' IN content) > 0 ORDER BY doc_id, chunk_index
"""  # noqa: S608  (constants of the library)
FIRST_CHUNKS = f"""
SELECT DISTINCT ON (doc_id) {COLUMNS}, 1 AS score FROM {{chunks}} WHERE {{passing}} ORDER BY doc_id, chunk_index
"""  # noqa: S608  (constants of the library)
CHUNKS_WITH = f"""
SELECT DISTINCT ON (doc_id) {COLUMNS}, 1 AS score FROM {{chunks}}
WHERE {{passing}} AND content ~* %(pattern)s ORDER BY doc_id, chunk_index
"""  # noqa: S608  (constants of the library)
DOCUMENTS = """
SELECT doc_id, title, tags, metadata::text FROM documents
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
ORDER BY doc_id
"""
DOCUMENTS_WITH = """
SELECT doc_id FROM documents
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) AND text ~* %(pattern)s ORDER BY doc_id
"""
SIZE = """
SELECT coalesce(sum(size_chars), 0) FROM documents
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
"""
TEXTS = """
SELECT doc_id, title, text FROM documents WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
ORDER BY doc_id
"""

RULE = re.compile(r" {0,3}(?=\S*\s*.*\|)\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*\Z")
BAR = re.compile(r"(?<!\\)\|")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
# What ends a table without an empty line between: a heading, a quotation, a list, a line across.
BLOCK = re.compile(r" {0,3}(?:#{1,6}\s|>|[-*+]\s|\d{1,9}[.)]\s|<)| {4}|\t")
HEADING = re.compile(r"#{1,6}\s+(.*)")
NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?\Z")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Declined(Exception):
    """A question that is not answered, and why; `message` says what could be asked instead."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Row:
    """cells: the values of each column. Where it stands: source.content[start:end]."""

    cells: tuple[tuple[str, ...], ...]
    source: Candidate
    start: int
    end: int


@dataclass(slots=True)
class Table:
    """Rows under one header. words: stems of the names that it has: of its document, its sheet."""

    name: str
    header: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    words: set[str] = field(default_factory=set)
    is_documents: bool = False
    doubt: str = ""  # why its rows are not known for certain
    doc_ids: set[str] = field(default_factory=set)

    def values(self, column: int) -> dict[str, str]:
        """key -> a value as it is written, of every row."""
        return {key_of(value): value for row in self.rows for value in row.cells[column]}

    @property
    def has_clear_header(self) -> bool:
        """Whether the first row names columns: each cell once, none empty, a number, a date or one of its values."""
        keys = [key_of(name) for name in self.header]
        if len(set(keys)) < len(keys) or not all(keys) or any(number_of(key) or DAY.match(key) for key in keys):
            return False
        return self.is_documents or not any(key in self.values(column) for column, key in enumerate(keys))

    def goes_on_in(self, other: Table) -> bool:
        """Return True where the header of another table reads like a row of this one: its part on the next page."""
        if other is self or len(other.header) != len(self.header) or not self.doc_ids & other.doc_ids:
            return False
        if other.header == self.header:
            return False
        for column, key in enumerate(map(key_of, other.header)):
            values = self.values(column)
            if key in values or (number_of(key) is not None and any(number_of(each) is not None for each in values)):
                return True
        return False


def number_of(text: str) -> Decimal | None:
    return Decimal(text) if NUMBER.match(text) else None


def read_tables(plan: RetrievePlan, store: Store) -> list[Table]:
    """Every table of the documents, with the rows that stand in chunks which the plan's filters let through.

    In the order of documents and text; a row that stands alone is the header of a table without rows. Raises Declined
    where the documents are too large, or a table was edited.
    """
    by_document: dict[str, list[Candidate]] = defaultdict(list)
    for chunk in _chunks(TABLE_CHUNKS, plan, store):
        by_document[chunk.doc_id].append(chunk)
    names = {"collection_id": store.collection.id, "doc_ids": list(by_document)}
    ((size,),) = fetch_all(store.connection, SIZE, names)
    if size > CHARS_MAX:
        raise Declined(
            f"the documents with tables have {size:,} characters, and rows of at most {CHARS_MAX:,} are counted; "
            "narrow the search by a filter, such as doc_id or tags"
        )
    tables: list[Table] = []
    for doc_id, title, text in fetch_all(store.connection, TEXTS, names):
        found = _tables_of(doc_id, title, text, by_document[doc_id])
        if any(table.rows for table in found) and any(is_written(chunk.attributes) for chunk in by_document[doc_id]):
            raise Declined(f"a chunk of {doc_id} was edited by hand, so its rows cannot be counted from its text")
        tables += found
    return tables


def _chunks(sql: str, plan: RetrievePlan, store: Store, **more: Any) -> list[Candidate]:
    text = sql.format(chunks=store.collection.partition, passing=passing(plan, store))
    return ranked(fetch_all(store.connection, text, scope(plan, store) | more), "rows", "rows", 1.0)


def _tables_of(doc_id: str, title: str, text: str, chunks: Sequence[Candidate]) -> list[Table]:
    tables: list[Table] = []
    table: Table | None = None
    heading, before, fence = "", "", ""
    position = 0
    for line in text.splitlines(keepends=True):
        start, position = position, position + len(line)
        content = line.rstrip()
        if found := FENCE.match(content):
            table = None
            if not fence:
                fence = found[1]
            elif found[1].startswith(fence) and not content.strip(f" {fence[0]}"):
                fence = ""
        elif fence:
            pass
        elif table is None and _is_rule(content, before):
            if not before.startswith("|"):
                tables.append(_new_table(doc_id, title, heading, before))
            table = tables[-1]
        elif table is not None and content and (BAR.search(content) or not BLOCK.match(content)):
            # a row of the table; lines without a value, and a header that is repeated, are none
            cells = cells_of(content)
            if not BAR.search(content) or (BLOCK.match(content) and not content.lstrip().startswith("|")):
                table.doubt = f"“{content.strip()[:80]}” stands directly below its rows and may be one of them"
            elif any(cells) and tuple(cells) != table.header and not _is_rule(content, content):
                if row := _row(content, start, len(table.header), chunks):
                    table.rows.append(row)
        else:
            table = None
            if content.startswith("|"):
                tables.append(_new_table(doc_id, title, heading, content))
            elif found := HEADING.match(content):
                heading = found[1]
        before = content
    return tables


def _is_rule(line: str, before: str) -> bool:
    """Return True for the line of dashes below the header of a Markdown table; before: the line above it."""
    if not RULE.match(line) or not BAR.search(before) or (BLOCK.match(before) and not before.lstrip().startswith("|")):
        return False
    return len(cells_of(line)) == len(cells_of(before))


def _new_table(doc_id: str, title: str, heading: str, header: str) -> Table:
    stem = re.sub(r"\.\w+\Z", "", doc_id.rsplit("/", 1)[-1])
    named = re.findall(r"[^\W\d_]+", f"{title} {stem} {heading}".casefold())
    words = {stem_of(word) for word in named if word not in TURNING_WORDS | FILLERS}
    return Table(heading or title or doc_id, tuple(cells_of(header)), words=words, doc_ids={doc_id})


def has_table(lines: Sequence[str]) -> bool:
    """Return True for lines most of which are rows of a table."""
    return 2 * sum(bool(BAR.search(line)) for line in lines) > len(lines)


def cells_of(line: str) -> list[str]:
    """The cells of a Markdown table's line."""
    inside = line.strip().removeprefix("|")
    inside = inside[:-1] if BAR.search(inside, len(inside) - 1) else inside
    return [part.strip().replace("\\|", "|") for part in BAR.split(inside)]


def _row(content: str, start: int, width: int, chunks: Sequence[Candidate]) -> Row | None:
    """None where the row stands in no chunk that is searched."""
    chunk = next((each for each in chunks if each.start <= start < each.end), None)
    if chunk is None:
        return None
    cells = [*cells_of(content), *[""] * width][:width]
    inside = content.strip("| ")
    first = start + content.index(inside) - chunk.start if inside else start - chunk.start
    values = tuple((value,) if value else () for value in cells)
    return Row(values, chunk, first, min(first + len(inside), len(chunk.content)))


def read_documents(plan: RetrievePlan, store: Store) -> Table:
    """The documents that have a chunk which the filters let through: title, tag and each key of metadata as columns."""
    chunks = {chunk.doc_id: chunk for chunk in _chunks(FIRST_CHUNKS, plan, store)}
    names = {"collection_id": store.collection.id, "doc_ids": list(chunks)}
    read = fetch_all(store.connection, DOCUMENTS, names)
    rows = [(doc_id, title, tags, json.loads(metadata)) for doc_id, title, tags, metadata in read]
    keys = sorted({key for *_, metadata in rows for key in metadata})
    table = Table(
        "documents", ("title", "tag", *keys), words={stem_of(word) for word in DOCUMENT_WORDS}, is_documents=True
    )
    for doc_id, title, tags, metadata in rows:
        cells = ((title,) if title else (), tuple(tags), *(tuple(_texts(metadata.get(key))) for key in keys))
        table.rows.append(Row(cells, chunks[doc_id], 0, len(chunks[doc_id].content)))
    return table


def documents_with(phrase: str, table: Table, plan: RetrievePlan, store: Store) -> list[Row]:
    """The documents whose text holds the phrase as whole words, upper and lower case alike, with the place.

    Raises Declined where it stands across chunks, or in one that is disabled or left out by a filter.
    """
    words = r"\s+".join(re.sub(r"([^\w])", r"\\\1", word) for word in phrase.split())
    pattern = (r"\m" if phrase[0].isalnum() else "") + words + (r"\M" if phrase[-1].isalnum() else "")
    found = {chunk.doc_id: chunk for chunk in _chunks(CHUNKS_WITH, plan, store, pattern=pattern)}
    doc_ids = [row.source.doc_id for row in table.rows]
    names = {"collection_id": store.collection.id, "doc_ids": doc_ids, "pattern": pattern}
    missing = [doc_id for (doc_id,) in fetch_all(store.connection, DOCUMENTS_WITH, names) if doc_id not in found]
    if missing:
        raise Declined(
            f"{missing[0]} holds “{phrase}” where no single searched chunk has it whole; ask for fewer words of it"
        )
    rows = []
    for row in table.rows:
        if chunk := found.get(row.source.doc_id):
            place = re.search(r"\s+".join(map(re.escape, phrase.split())), chunk.content, re.IGNORECASE)
            start, end = place.span() if place else (0, len(chunk.content))
            rows.append(Row(row.cells, chunk, start, end))
    return rows


def _texts(value: Any) -> list[str]:
    """A value of metadata as texts; of an object none."""
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if value is None or isinstance(value, Mapping):
        return []
    return [str(value).lower() if isinstance(value, bool) else str(value)]
