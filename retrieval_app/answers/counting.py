"""Counts and complete lists as answers: the number, every row quoted and cited, or the reason for none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragd import telemetry
from ragd.search.retrieval import Retrieval
from ragd.store.store import Store
from ragd.types import Candidate, RetrievePlan
from retrieval_app.answers.citations import CheckedAnswer, QuotedAnswer
from retrieval_app.answers.count_questions import DOCUMENT_WORDS, CountQuestion, read_question
from retrieval_app.answers.count_resolution import Match, Resolver
from retrieval_app.answers.count_tables import (
    Declined,
    Row,
    Table,
    documents_with,
    has_table,
    read_documents,
    read_tables,
)
from retrieval_app.answers.protocol import AnswerListener, Draft
from retrieval_app.llm.chat_completion import TokenUsage

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
    about = [resolver for resolver in resolvers if resolver.is_about]
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
