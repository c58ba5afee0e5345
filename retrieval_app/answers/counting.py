"""Counts and complete lists as answers: the number, every row quoted and cited, or the reason for none.

The question becomes exact conditions on the columns of a table, or the reason why it cannot.

Every word must be accounted for: it asks, names the rows, a column or a value of the table, compares, or says nothing.
One that does not, a value that stands in several columns, a column without a value: each is declined, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from ragd import telemetry
from ragd.search.retrieval import Retrieval
from ragd.store.store import Store
from ragd.types import Candidate, RetrievePlan
from retrieval_app.answers.citations import CheckedAnswer, QuotedAnswer
from retrieval_app.answers.count_tables import (
    COMPARISONS,
    CONTAIN_WORDS,
    DAY,
    DOCUMENT_WORDS,
    FILLERS,
    GROUP_TOTALS,
    OR_WORDS,
    ROW_WORDS,
    TOTAL_WORDS,
    TURNING_WORDS,
    CountQuestion,
    Declined,
    Row,
    Table,
    Token,
    documents_with,
    has_table,
    key_of,
    number_of,
    read_documents,
    read_question,
    read_tables,
    stem_of,
)
from retrieval_app.answers.protocol import AnswerListener, Draft
from retrieval_app.answers.question import NO, NOT, YES
from retrieval_app.llm.chat_model import TokenUsage

NAME_TOKENS_MAX = 8
SHOWN = 8
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": lambda a, b: bool(a > b), "gte": lambda a, b: bool(a >= b), "lt": lambda a, b: bool(a < b),
    "lte": lambda a, b: bool(a <= b), "eq": lambda a, b: bool(a == b),
}  # fmt: skip
SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "eq": "="}


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of the question. kind: noun, column, value, number, day, sign, or, phrase, unclear.

    columns: of a column or value. text: of what is unclear, the reason to decline.
    """

    kind: str
    text: str
    columns: tuple[int, ...] = ()
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """What a question selects of a table, and the conditions in words."""

    table: Table
    rows: tuple[Row, ...]
    conditions: tuple[str, ...]


@dataclass(slots=True)
class _Reading:
    items: list[Item] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    nearly: int = 0  # words that are another form of a value

    @property
    def score(self) -> int:
        """How much of the question speaks of this table: rows, columns, values. A word that stands in every question,
        such as "in" or "does", speaks of none."""
        said = [item for item in self.items if item.is_quoted or item.text.casefold() not in FILLERS]
        named = (item.kind in ("noun", "column", "value", "phrase") or bool(item.columns) for item in said)
        return self.nearly + sum(named)


def sums_up(row: Row, values: Mapping[str, Any]) -> bool:
    """Whether a row sums up others, as "Total", "Total EU" with one of the table's values, or a total of a group."""
    keys = [key_of(value).rstrip(":") for cell in row.cells for value in cell]
    first, _, rest = keys[0].partition(" ") if keys else ("", "", "")
    if first in TOTAL_WORDS and (not rest or rest in values or number_of(rest) is not None):
        return True
    return bool(keys) and (keys[0].split(" ")[-1] in TOTAL_WORDS or any(key in GROUP_TOTALS for key in keys[1:]))


def is_between(row: Row) -> bool:
    """Whether a row only divides others: one value in all of the columns, or alone in a table of three or more."""
    filled = [value for cell in row.cells for value in cell]
    if len(filled) == 1:
        return len(row.cells) > 2
    return (
        len(filled) == len(row.cells) and len({key_of(value) for value in filled}) == 1 and number_of(filled[0]) is None
    )


class Resolver:
    """One question over one table. phrase_rows: the rows that hold a phrase; None where phrases cannot be asked for."""

    def __init__(
        self, question: CountQuestion, table: Table, phrase_rows: Callable[[str], list[Row]] | None = None
    ) -> None:
        self.question, self.table, self.phrase_rows = question, table, phrase_rows
        self.columns: dict[str, list[int]] = {}
        for number, name in enumerate(table.header):
            for form in {key_of(name), " ".join(stem_of(word) for word in key_of(name).split())}:
                self.columns.setdefault(form, []).append(number)
        self.values: dict[str, list[int]] = {}
        self.written: dict[str, str] = {}
        for number in range(len(table.header)):
            for key, value in table.values(number).items():
                self.values.setdefault(key, []).append(number)
                self.written.setdefault(key, value)
        self.plurals = {key + ending for key in self.values if key.isalpha() for ending in ("s", "es", "e", "en", "n")}
        if table.is_documents:
            self.columns["tagged"] = self.columns["tag"]
        self.reading = self._read()

    @property
    def asks_for_a_cell(self) -> bool:
        """Whether one cell says how many: what is counted is the name of one row ("How many workers are there?"), or of
        a column of numbers while all values of the question stand in one row ("How many days is study leave?")."""
        if self.question.asks != "count" or self.table.is_documents:
            return False
        first = key_of(self.question.tokens[0].text)
        names = [key_of(row.cells[0][0]).strip("`*") for row in self.table.rows if row.cells and row.cells[0]]
        if len(set(names)) == len(names) and first in names:
            return True
        column = next(iter(self.columns.get(first, ())), None)
        if column is None or not self._is_numeric(column):
            return self._names_a_row_and_a_number()
        values = [item for item in self.reading.items if item.kind == "value"]
        rows = [[{key_of(value) for value in cell} for cell in row.cells] for row in self.table.rows]
        return sum(all(any(item.text in row[each] for each in item.columns) for item in values) for row in rows) == 1

    def _is_numeric(self, column: int) -> bool:
        return all(number_of(value) is not None for value in self.table.values(column))

    def _names_a_row_and_a_number(self) -> bool:
        """Whether the question names a column of numbers, and one row alone holds all of its other words: "How many
        camping stoves are in stock?"."""
        said = [key_of(token.text) for token in self.question.tokens if token.text.casefold() not in FILLERS]
        if not any(self._is_numeric(column) for word in said for column in self.columns.get(word, ())):
            return False
        rest = {stem_of(word) for word in said if word not in self.columns}
        words = [{stem_of(word) for cell in row.cells for value in cell for word in key_of(value).split()}
                 for row in self.table.rows]  # fmt: skip
        return bool(rest) and sum(rest <= of_row for of_row in words) == 1

    @property
    def is_about(self) -> bool:
        return self.reading.score > 0

    def resolve(self) -> Match:
        """Raises Declined."""
        reading = self.reading
        if unclear := next((item for item in reading.items if item.kind == "unclear"), None):
            raise Declined(unclear.text)
        if unknown := [word for word in reading.unknown if not (word.casefold() in NOT and self._says_whether())]:
            raise Declined(f"“{unknown[0]}” is no column, no value and no name of {self._where()}; {self._known()}")
        if self.table.doubt:
            raise Declined(f"the rows of {self._where()} are not certain: {self.table.doubt}")
        if not self.table.has_clear_header:
            raise Declined(f"the first row of {self._where()} does not name its columns clearly")
        conditions, noun = self._conditions()
        rows = [row for row in self.table.rows if all(test(row) for _, test in conditions)]
        for item in reading.items:
            if item.kind == "phrase":
                if self.phrase_rows is None:
                    raise Declined(f"{self._where()} has no value “{item.text}”; {self._known()}")
                passed = {(row.source.doc_id): row for row in self.phrase_rows(item.text)}
                rows = [passed[row.source.doc_id] for row in rows if row.source.doc_id in passed]
        if noun is not None:
            self._check_distinct(noun, rows)
        self._check_rows(rows)
        phrases = [f"text contains “{item.text}”" for item in reading.items if item.kind == "phrase"]
        return Match(self.table, tuple(rows), (*(text for text, _ in conditions), *phrases))

    def _read(self) -> _Reading:
        reading, tokens, at = _Reading(), self.question.tokens, 0
        while at < len(tokens):
            item, used = self._next(tokens, at)
            if item is not None:
                reading.items.append(item)
            elif tokens[at].text.casefold() not in FILLERS:
                reading.unknown.append(tokens[at].text)
                reading.nearly += tokens[at].text.casefold() in self.plurals
            at += used
        return reading

    def _next(self, tokens: Sequence[Token], at: int) -> tuple[Item | None, int]:
        token = tokens[at]
        if token.is_quoted:
            key = key_of(token.text)
            is_value = key in self.values
            return (replace(self._value(key), is_quoted=True) if is_value else Item("phrase", token.text)), 1
        word = token.text.casefold()
        if word in CONTAIN_WORDS and self.table.is_documents and at + 1 < len(tokens):
            return self._phrase(tokens, at + 1)
        for length in range(min(NAME_TOKENS_MAX, len(tokens) - at), 0, -1):
            if any(each.is_quoted for each in tokens[at : at + length]):
                continue
            if item := self._named(self.question.text[token.start : tokens[at + length - 1].end], length):
                return item, length
        if word in OR_WORDS:
            return Item("or", word), 1
        return None, 1

    def _phrase(self, tokens: Sequence[Token], at: int) -> tuple[Item | None, int]:
        """What follows a word such as "mention": one quoted phrase, or all that is left of the question."""
        while at + 1 < len(tokens) and tokens[at].text.casefold() in ("the", "word", "words", "phrase", "das", "wort"):
            at += 1
        start = at
        if tokens[at].is_quoted:
            return Item("phrase", tokens[at].text), 2
        rest = tokens[start:]
        if any(token.text.casefold() in {"and", "or", "und", "oder", "not", "nicht", "but"} for token in rest):
            return None, 1
        return Item("phrase", self.question.text[rest[0].start : rest[-1].end]), len(tokens)

    def _named(self, text: str, length: int) -> Item | None:
        key = key_of(text)
        if text in COMPARISONS or key in COMPARISONS:
            return Item("sign", COMPARISONS.get(key, key))
        stems = " ".join(stem_of(word) for word in key.split())
        column = self.columns.get(key) or self.columns.get(stems)
        held = self.values.get(key)
        if held and length == 1 and key in FILLERS and text not in self.written.values():
            held = None  # "it" is not the value IT
        if held and length == 1 and text in FILLERS:
            reason = f"“{text}” is a value of {self._where()}, or says nothing; put the value in quotation marks"
            return Item("unclear", reason)
        is_name = stem_of(text) in self.table.words or (key in ROW_WORDS and not self.table.is_documents)
        if length == 1 and is_name and not held:
            return Item("noun", text)
        if column and held:
            reason = f"“{text}” is a column and a value of {self._where()}; put the value in quotation marks"
            return Item("unclear", reason, tuple(column))
        if column:
            return Item("column", text, tuple(dict.fromkeys(column)))
        if DAY.fullmatch(text):
            return Item("day", text)
        if number_of(text) is not None:
            return Item("number", text)
        return self._value(key) if held else None

    def _value(self, key: str) -> Item:
        return Item("value", key, tuple(self.values[key]))

    def _conditions(self) -> tuple[list[tuple[str, Callable[[Row], bool]]], int | None]:
        """The conditions in words and as tests, and the column that names the rows where no word does."""
        items = [item for item in self.reading.items if item.kind != "phrase"]
        conditions: list[tuple[str, Callable[[Row], bool]]] = []
        used: set[int] = set()
        noun: int | None = None
        has_noun = any(item.kind == "noun" for item in items)
        at = 0
        while at < len(items):
            column, sign, values, at_next = self._group(items, at)
            if not values and sign is None and column is None:
                at = at_next  # a noun
                continue
            if not values and sign is None and column in self._says_whether():
                used.add(column)
                conditions.append(self._whether(column))
            elif not values:
                is_named = (
                    at > 0 and items[at - 1].kind == "noun" and column is not None and not self._is_numeric(column)
                )
                if sign is not None or column is None or (has_noun and not is_named) or noun is not None or conditions:
                    raise Declined(f"“{items[at].text}” has no value beside it; {self._known()}")
                noun = column
            else:
                column = self._column_of(column, values)
                if column in used:
                    raise Declined(f"{self.table.header[column]} has two conditions; ask for one, or join values by or")
                used.add(column)
                conditions.append(self._condition(column, sign or "eq", values))
            at = at_next
        if not has_noun and noun is None:
            raise Declined(f"the question does not say what is counted; ask for rows. {self._known()}")
        return conditions, noun

    def _says_whether(self) -> list[int]:
        """The columns of the question that hold nothing but yes and no."""
        named = {column for item in self.reading.items if item.kind == "column" for column in item.columns}
        return [each for each in named if YES.union(NO).issuperset(self.table.values(each)) and self.table.values(each)]

    def _whether(self, column: int) -> tuple[str, Callable[[Row], bool]]:
        """Of "How many groups are (not) allowed?"."""
        keys = NO if any(word.casefold() in NOT for word in self.reading.unknown) else YES
        shown = " or ".join(value for key, value in self.table.values(column).items() if key in keys)
        name = self.table.header[column]
        return f"{name} = {shown}", lambda row: any(key_of(value) in keys for value in row.cells[column])

    def _group(self, items: Sequence[Item], at: int) -> tuple[int | None, str | None, list[Item], int]:
        """(column, sign, values joined by or, where the next group begins) of the group that begins here."""
        column: int | None = None
        sign: str | None = None
        if items[at].kind == "noun":
            return None, None, [], at + 1
        if items[at].kind == "or":
            raise Declined("or joins two values of one column only")
        if items[at].kind == "column":
            column, at = self._one_column(items[at]), at + 1
        if at < len(items) and items[at].kind == "sign":
            sign, at = items[at].text, at + 1
        values: list[Item] = []
        while at < len(items) and items[at].kind in ("value", "number", "day"):
            values.append(items[at])
            at += 1
            if at + 1 < len(items) and items[at].kind == "or" and items[at + 1].kind in ("value", "number", "day"):
                at += 1
            else:
                break
        follows = at < len(items) and items[at].kind == "column"
        after = items[at + 1].kind if at + 1 < len(items) else ""
        if column is None and values and values[0].text in TURNING_WORDS and not values[0].is_quoted:
            raise Declined(f"“{values[0].text}” is a value of {self._where()}, or turns the question; name its column")
        if column is None and values and follows and after not in ("value", "number", "day", "sign"):
            column, at = self._one_column(items[at]), at + 1
        return column, sign, values, at

    def _one_column(self, item: Item) -> int:
        if len(item.columns) > 1:
            raise Declined(f"“{item.text}” names several columns of {self._where()}")
        return item.columns[0]

    def _column_of(self, column: int | None, values: Sequence[Item]) -> int:
        if column is not None:
            return column
        if any(item.kind != "value" for item in values):
            raise Declined(f"“{values[0].text}” needs the column that it belongs to; {self._known()}")
        shared = set.intersection(*(set(item.columns) for item in values))
        if len(shared) != 1:
            names = ", ".join(self.table.header[each] for each in sorted(set(values[0].columns)))
            raise Declined(f"“{values[0].text}” stands in the columns {names}; say which is meant")
        return shared.pop()

    def _condition(self, column: int, sign: str, values: Sequence[Item]) -> tuple[str, Callable[[Row], bool]]:
        name, order = self.table.header[column], ORDERS[sign]
        if sign == "eq" and all(
            item.kind == "value" or key_of(item.text) in self.table.values(column) for item in values
        ):
            keys = {key_of(item.text) for item in values}
            if lacking := sorted(keys - self.table.values(column).keys()):
                raise Declined(f"{name} has no value “{lacking[0]}”; {self._some(column)}")
            shown = " or ".join(self.table.values(column)[key_of(item.text)] for item in values)
            return f"{name} = {shown}", lambda row: any(key_of(value) in keys for value in row.cells[column])
        if len(values) > 1 or values[0].kind == "value":
            raise Declined(f"{name} {SIGNS[sign]} needs one number or date; {self._some(column)}")
        if values[0].kind == "day":
            limit: Any = values[0].text
            read: Callable[[str], Any] = lambda text: text[:10] if DAY.match(text) else None  # noqa: E731
        else:
            limit, read = Decimal(values[0].text), number_of
        held = [value for row in self.table.rows for value in row.cells[column]]
        if odd := next((value for value in held if read(value) is None), None):
            raise Declined(f"{name} holds “{odd}”, which cannot be compared with {values[0].text}")
        if sign == "eq" and not any(order(read(value), limit) for value in held):
            raise Declined(f"{name} has no value {values[0].text}; {self._some(column)}")
        return f"{name} {SIGNS[sign]} {limit}", lambda row: any(order(read(v), limit) for v in row.cells[column])

    def _check_rows(self, rows: Sequence[Row]) -> None:
        if self.table.is_documents:
            return
        if any(sums_up(row, self.values) for row in rows):
            raise Declined(
                f"{self._where()} has a row of totals among what would be counted; ask by a column and value"
            )
        if odd := next((row for row in rows if is_between(row)), None):
            value = next(value for cell in odd.cells for value in cell)
            raise Declined(f"{self._where()} has a row that holds only “{value}”, which may divide it; ask by a column")

    def _check_distinct(self, column: int, rows: Sequence[Row]) -> None:
        seen = [key_of(value) for row in rows for value in row.cells[column]]
        if len(seen) != len(rows) or len(set(seen)) != len(seen):
            name = self.table.header[column]
            raise Declined(
                f"{name} is not different in every row, so rows are not {name}; ask for the rows instead, such as "
                "“How many rows have ...?”"
            )

    def _where(self) -> str:
        return "the documents" if self.table.is_documents else f"the table “{self.table.name}”"

    def _known(self) -> str:
        if self.table.is_documents:
            return "ask for documents with a tag, a key of metadata and its value, or a phrase that they contain"
        columns = ", ".join(self.table.header[:SHOWN])
        return f"ask for rows by its columns ({columns}) and their values"

    def _some(self, column: int) -> str:
        values = sorted(self.table.values(column).values())
        return f"it has {', '.join(values[:SHOWN])}{', ...' if len(values) > SHOWN else ''}"


CITED_MAX = 1000
ROW_CHARS = 300
UNITS = {  # of one, of several, and behind "of"
    ("en", False): ("row", "rows", "rows"), ("en", True): ("document", "documents", "documents"),
    ("de", False): ("Zeile", "Zeilen", "Zeilen"), ("de", True): ("Dokument", "Dokumente", "Dokumenten"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Count:
    """The answer to a question for a number or a list. matches: one for each table; declined: why there is none."""

    question: CountQuestion
    matches: tuple[Match, ...] = ()
    declined: str = ""

    @property
    def rows(self) -> list[Row]:
        return [row for match in self.matches for row in match.rows]


def count(query: str, plan: RetrievePlan, store: Store, *, is_past: bool = False) -> Count | None:
    """The count over everything that the plan's filters let through; None for a question that asks for none.

    None too where nothing of it is in the tables or documents of the collection: then it asks what a text says.
    is_past: the store is of an earlier time, whose texts are not read: declined.
    """
    question = read_question(query)
    if question is None:
        return None
    try:
        matches = _resolve(question, plan, store)
    except Declined as refusal:
        return Count(question, declined=refusal.message)
    if matches is None:
        return None
    if is_past:
        return Count(question, declined="rows are counted in what serves now; leave as_of and index_version out")
    rows = sum(len(match.rows) for match in matches)
    if rows > CITED_MAX:
        reason = f"{rows:,} match, and an answer cites at most {CITED_MAX:,}; narrow the question, or use a filter"
        return Count(question, declined=reason)
    return Count(question, tuple(matches))


def declined_by(query: str, retrieval: Retrieval) -> Count | None:
    """A question for a number or a list whose best result is a table, though it names nothing of one: declined."""
    question = read_question(query)
    if question is None or not retrieval.candidates:
        return None
    if not has_table(retrieval.candidates[0].content.splitlines()):
        return None
    return Count(question, declined="the best result is a table, and the question names no column or value of it")


def _resolve(question: CountQuestion, plan: RetrievePlan, store: Store) -> list[Match] | None:
    if any(token.text.casefold() in DOCUMENT_WORDS for token in question.tokens):
        documents = read_documents(plan, store)
        resolver = Resolver(question, documents, lambda phrase: documents_with(phrase, documents, plan, store))
        asks_more = resolver.reading.score > 1 or not resolver.reading.unknown
        return [resolver.resolve()] if asks_more else None
    tables = read_tables(plan, store)
    resolvers = [Resolver(question, table) for table in merge([table for table in tables if table.rows])]
    about = [resolver for resolver in resolvers if resolver.is_about and not resolver.asks_for_a_cell]
    if not about:
        return None
    matches, reasons = [], []
    for resolver in about:
        try:
            matches.append(resolver.resolve())
        except Declined as reason:
            reasons.append((resolver.reading.score, reason))
    if not matches:
        raise max(reasons, key=lambda pair: pair[0])[1]
    if len(matches) > 1:
        names = ", ".join(f"“{match.table.name}”" for match in matches[:5])
        raise Declined(f"the question fits several tables with other columns: {names}; name the table, or its document")
    if any(matches[0].table.goes_on_in(table) for table in tables):
        raise Declined(f"the table “{matches[0].table.name}” seems to go on in rows without its header")
    return matches


def merge(tables: Sequence[Table]) -> list[Table]:
    """Tables of one header as one."""
    merged: dict[tuple[str, ...], Table] = {}
    for table in tables:
        if (first := merged.get(table.header)) is None:
            merged[table.header] = replace(
                table, rows=list(table.rows), words=set(table.words), doc_ids=set(table.doc_ids)
            )
        else:
            first.rows += table.rows
            first.words |= table.words
            first.doc_ids |= table.doc_ids
            first.doubt = first.doubt or table.doubt
            if table.name not in first.name.split(", "):
                first.name += f", {table.name}"
    return list(merged.values())


def retrieve_counted(counted: Count, query: str, plan: RetrievePlan, store: Store) -> Retrieval:
    """What a count read, as a retrieval with its span: the chunks that hold its rows, in the order of documents."""
    chunks = list({row.source.key: row.source for row in counted.rows}.values())
    with telemetry.retrieve_span(
        query=query, top_k=len(chunks), index=store.collection.name, filters=plan.filters if plan.filters else None,
        metadata={"counted_rows": len(counted.rows)},
    ) as span:  # fmt: skip
        telemetry.record_results(span, chunks)
    return Retrieval(chunks, {}, chunks, chunks, [], None, None, None, {}, None, 0)


class CountingAnswerer:
    """Answers with a count that was made; needs no model."""

    name = "counting"
    system = "ragd.counting"
    model = "counting"
    instructions = ""

    def __init__(self, counted: Count) -> None:
        self.counted = counted

    def answer(
        self,
        query: str,
        sources: Sequence[Candidate],
        spans: Sequence[Mapping[str, Any]] = (),
        *,
        listener: AnswerListener | None = None,
    ) -> Draft:
        """Declined where a source of the count is missing from `sources`: then it would not be complete."""
        question = [{"role": "user", "content": query}]
        with telemetry.ChatCall(self.system, self.model, messages=question) as call:
            checked, declined = self._write(sources)
            call.finish(checked.answer, finish_reasons=["stop"], output_tokens=0)
        return Draft(checked, declined, TokenUsage(0, 0, estimated=True), len(sources))

    def _write(self, sources: Sequence[Candidate]) -> tuple[CheckedAnswer, bool]:
        markers = {source.key: number for number, source in enumerate(sources, 1)}
        reason = self.counted.declined
        if not reason and any(row.source.key not in markers for row in self.counted.rows):
            reason = "passages that hold some of it are withheld by the collection's security settings"
        if reason:
            return CheckedAnswer(f"Not counted: {reason}."), True
        by_key = {source.key: source for source in sources}
        answer = QuotedAnswer(self._headline())
        for row in self.counted.rows:
            source = by_key[row.source.key]
            shown = source.content[row.start : row.end]
            shown = shown if len(shown) <= ROW_CHARS else shown[:ROW_CHARS].rstrip()
            answer.add("\n- ", " ".join(shown.split()), source, markers[source.key], row.start, row.end)
        return answer.checked(), False

    def _headline(self) -> str:
        counted = self.counted
        language = "de" if counted.question.is_german else "en"
        number = len(counted.rows)
        match = counted.matches[0]
        units, of = UNITS[language, match.table.is_documents], len(match.table.rows)
        where = "" if match.table.is_documents else f" ({match.table.name})"
        if not match.conditions:
            return f"{number} {units[number != 1]}{where}."
        condition = (" und " if language == "de" else " and ").join(match.conditions)
        words = "von" if language == "de" else "of"
        return f"{number} {words} {of} {units[0 if of == 1 else 2]}{where}: {condition}."
