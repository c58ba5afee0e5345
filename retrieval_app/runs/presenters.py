"""What the pages show of a run.

What is shown of a source: the part of its text that holds most of the question's words, which are marked.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode
from zlib import crc32

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext

from collections_app.collections.models import name_file
from collections_app.models import Collection, Document
from ragd.search.hops import list_weights
from ragd.text.chunking import split_sentences
from ragd.types import HOP_LISTS
from retrieval_app.answers.answer_html import HEADING, render_answer
from retrieval_app.answers.citations import count_support, is_written, mark_support, path_of
from retrieval_app.answers.extractive_answerer import DASHES, ExtractiveAnswerer, list_stems, stems
from retrieval_app.answers.question import WORD
from retrieval_app.models import QueryRun
from retrieval_app.plans.views import describe_correction

EXCERPT_CHARS = 420
SEEN_CHARS = 180  # about what two lines show
EMPHASIS = re.compile(r"\*\*|__|`|^\s*[>#*+-]+\s+")
LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
CELLS = re.compile(r"\s*(?<!\\)\|\s*")
SPACES = re.compile(r"\s+")
LEFT_OUT, BETWEEN_CELLS = "… ", " · "


def mark_words(text: str, question: str) -> SafeString:
    """At most EXCERPT_CHARS of the text in one line, each word that the question has in a <mark>.

    It begins with the sentence or row behind which, within SEEN_CHARS, stand most different words of the question: with
    the first such place, as near to the words as it can. An ellipsis says that something stands before. Headings at the
    beginning and marks of Markdown are left out, and the cells of a row stand between points.
    """
    plain, starts = _in_one_line(text)
    requested = stems(question)
    words = ((word.start(), requested.intersection(list_stems(word[0]))) for word in WORD.finditer(plain))
    start = _best_start(starts, [(at, found) for at, found in words if found])
    shown = Truncator(plain[start:]).chars(EXCERPT_CHARS)
    pieces: list[tuple[str, str, str]] = [("", LEFT_OUT if start else "", "")]
    position = 0
    for word in WORD.finditer(shown):
        is_asked = not requested.isdisjoint(list_stems(word[0]))
        pieces.append(("", shown[position : word.start()], ""))
        pieces.append(("<mark>", word[0], "</mark>") if is_asked else ("", word[0], ""))
        position = word.end()
    pieces.append(("", shown[position:], ""))
    return format_html_join("", "{}{}{}", ((SafeString(a), text, SafeString(b)) for a, text, b in pieces))


def _best_start(starts: Sequence[int], held: Sequence[tuple[int, frozenset[str]]]) -> int:
    """held: (where a word of the question stands, its stems), ascending."""
    places = [at for at, _ in held]

    def found_in(first: int, last: int) -> set[str]:
        within = held[bisect_left(places, first) : bisect_right(places, last)]
        return {stem for _, found in within for stem in found}

    first = max(starts, key=lambda start: len(found_in(start, start + SEEN_CHARS)), default=0)
    most = found_in(first, first + SEEN_CHARS)
    last = next((at for at, _ in held if at >= first and found_in(first, at) == most), first)
    if found_in(0, SEEN_CHARS) == most:
        return 0
    return max((start for start in starts if first <= start <= last and found_in(start, last) == most), default=first)


def _in_one_line(text: str) -> tuple[str, list[int]]:
    """The text without marks, and where in it sentences and rows begin."""
    body = text.lstrip()
    while match := HEADING.match(body):
        body = body[match.end() :].lstrip()
    plain, starts = "", []
    for line in (body or text).splitlines():
        if DASHES.fullmatch(line.strip()):
            continue
        if line.lstrip().startswith("|") or line.count(" | ") > 1:  # a cited row stands without its outer bars
            line = CELLS.sub(BETWEEN_CELLS, line.strip().strip("|").strip())
        line = SPACES.sub(" ", EMPHASIS.sub("", LINK.sub(r"\1", line))).strip()
        begin = len(plain) + bool(plain)
        starts += [begin + first for first, _ in split_sentences(line)]
        plain += f" {line}" if plain and line else line
    return plain, starts


UNCITED_SHOWN = 3
FOLLOW_UPS = 3  # questions that are suggested below an answer
STAGES = ("embed_query", "vector", "lexical", "fuse", "hops", "rerank", "compress", "first_token", "answer", "total")


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One result as it is shown. ranks: (list name, rank or None, raw score or None) in the order of the lists.

    excerpt: what was cited of it, else its text. marker: of the answer, None where it is
    not cited. before: its rank before it was reranked. collection, place_query: where the pages of documents show it;
    href, chunk_href: "" where its document is gone. evidence_href: where the page of the run does, "" for a run that
    is not stored.
    """

    result: dict[str, Any]
    title: str
    excerpt: str
    href: str
    chunk_href: str
    cited: bool
    ranks: list[tuple[str, int | None, float | None]]
    arithmetic: str
    place: str | None
    marker: int | None = None
    before: int | None = None
    question: str = ""
    collection: str = ""
    place_query: str = ""
    evidence_href: str = ""

    @property
    def excerpt_html(self) -> SafeString:
        """The excerpt in short, with the words of the question marked."""
        return mark_words(self.excerpt, self.question)

    @property
    def gain(self) -> int | None:
        return None if self.before is None else self.before - int(self.result["rank"])


def describe_run(run: QueryRun, *, lives: bool | None = None) -> dict[str, Any]:
    """What the parts of a run's page show. A run outlives its collection; then nothing links into it.

    lives: whether its collection is there; None: that is looked up.
    """
    sentences = [sentence for sentence in run.sentences if sentence["text"].strip()]
    if lives is None:
        lives = Collection.objects.live().filter(name=run.collection_name).exists()
    rows = _source_rows(run)
    contents = {_chunk_of(result): f"{result['context']} {result['content']}" for result in run.results}
    texts = {each["marker"]: contents.get(_chunk_of(each), "") for each in run.sources}
    marks = mark_support(run.answer or "", run.sentences, texts)
    is_quoted = run.answerer == ExtractiveAnswerer.model  # quotations need no marks
    return {
        "run": run,
        "collection_lives": lives,
        "answer_html": render_answer(
            run.answer or "",
            run.citations,
            partial(draw_citation, run, lives),
            () if is_quoted else [(mark.end, draw_support(mark.support)) for mark in marks],
        ),
        "support": count_support(marks),
        "timings": sorted(run.timings_ms.items(), key=_stage_order),
        "rows": rows,
        **_fold(rows, is_search=run.kind == QueryRun.Kind.SEARCH),
        "follow_ups": suggest_questions(rows),
        "list_names": _list_names(run),
        "sentence_total": len(sentences),
        "cited_sentences": sum(bool(sentence["markers"]) for sentence in sentences),
        "quoted_sentences": sum(sentence["supported"] is True for sentence in sentences),
    } | describe_correction(run, lives)


def suggest_questions(rows: list[SourceRow]) -> list[str]:
    """What one may ask next: about what was found beside the answer, by rank, each heading once; none without a
    citation."""
    sources = {row.title for row in rows if row.cited}
    headings = (row.title.rpartition(" › ")[2] for row in rows if row.title not in sources) if sources else ()
    titles = list(dict.fromkeys(headings))[:FOLLOW_UPS]
    return [gettext("What is “%(title)s” about?") % {"title": title} for title in titles]


def _fold(rows: list[SourceRow], *, is_search: bool) -> dict[str, list[SourceRow]]:
    """first_rows: what an answer cites, else the first few, of a search all; more_rows: the others, each by rank."""
    cited = [row for row in rows if row.cited]
    first = rows if is_search else cited or rows[:UNCITED_SHOWN]
    return {"first_rows": first, "more_rows": [row for row in rows if row not in first]}


def _stage_order(timing: tuple[str, float]) -> tuple[int, str]:
    stage = timing[0]
    return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage)


def draw_citation(run: QueryRun, links: bool, citation: Mapping[str, Any]) -> SafeString:
    number = run.citations.index(citation) + 1 if citation in run.citations else 0
    evidence = _evidence_href(run, "citation", number) if number else _evidence_while_written(run, citation)
    evidence = evidence if links else ""
    values = {"citation": citation, "href": _cited_href(run, citation) if links else "", "evidence": evidence}
    return render_to_string("retrieval/parts/citation.html", values)


def _evidence_href(run: QueryRun, name: str, number: int) -> str:
    """Of the page of the run that shows what stands behind a citation or a result; "" while the run is not stored."""
    return "" if run._state.adding else f"{reverse('evaluation:query-run', args=[run.pk])}?{name}={number}"


def _evidence_while_written(run: QueryRun, citation: Mapping[str, Any]) -> str:
    """Of the page of the thread that shows the cited place; "" for a run of no thread."""
    result = cited_result(run, citation)
    if not result or not run.conversation_id or run.channel != QueryRun.Channel.PAGE:
        return ""
    name, place = cited_place(run, citation)
    passage = f"{result['start']}-{result['end']}"
    source = {"source": name, "doc_id": result["doc_id"], "passage": passage, "run": run.pk}
    return f"{reverse('retrieval:chat-thread', args=[run.conversation_id])}?{urlencode(source)}&{place}"


def draw_support(support: str) -> SafeString:
    return render_to_string("retrieval/parts/support.html", {"support": support})


def _list_names(run: QueryRun) -> list[str]:
    names = ("vector", "lexical", "codes", *HOP_LISTS)
    return [name for name in names if any(name in result["ranks"] for result in run.results)]


def _source_rows(run: QueryRun) -> list[SourceRow]:
    names = _list_names(run)
    # a passage may have been withheld from the answerer, so a marker is no rank
    markers = {_chunk_of(citation): citation["marker"] for citation in run.citations}
    excerpts = {_chunk_of(source): source for source in run.sources if source["cited"]}
    rows, chunk_counts = [], _chunk_counts(run)
    for result in run.results:
        source = excerpts.get(_chunk_of(result))
        start, end = (source["excerpt_start"], source["excerpt_end"]) if source else (result["start"], result["end"])
        ranks = result["ranks"]
        positions = [(name, each.get("rank"), each.get("score")) for name in names for each in [ranks.get(name) or {}]]
        name = result.get("collection") or run.collection_name
        chunk = reverse("collections:chunk", args=[name, result["chunk_index"], result["doc_id"]])
        document = reverse("collections:document", args=[name, result["doc_id"]])
        is_there = result["chunk_index"] < chunk_counts.get((name, result["doc_id"]), 0)
        query = _place_query(result, {"start": start, "end": end}, source["excerpt"] if source else "")
        rows.append(
            SourceRow(
                result=result,
                title=" › ".join((path_of(result["context"]) or name_file(result["doc_id"])).split(" > ")),
                excerpt=source["excerpt"] if source else result["content"],
                href=f"{document}?{query}&chunk={result['chunk_index']}#cited" if is_there else "",
                chunk_href=f"{chunk}?{query}" if is_there else "",
                cited=_chunk_of(result) in markers,
                marker=markers.get(_chunk_of(result)),
                place=(source or result).get("place") or result["page"],
                ranks=positions,
                arithmetic=_arithmetic(run, positions) if "fused" in ranks else "",
                before=_rank_before(ranks),
                question=run.query,
                collection=name,
                place_query=f"{query}&chunk={result['chunk_index']}",
                evidence_href=_evidence_href(run, "result", result["rank"]),
            )
        )
    return rows


def _chunk_counts(run: QueryRun) -> dict[tuple[str, str], int]:
    """(collection, document) -> how many chunks it has now, of what was found and is still there. One query."""
    names = {result.get("collection") or run.collection_name for result in run.results}
    documents = Document.objects.listed().filter(
        collection__in=Collection.objects.live().filter(name__in=names),
        doc_id__in={result["doc_id"] for result in run.results},
    )
    return {row[:2]: row[2] for row in documents.values_list("collection__name", "doc_id", "chunk_count")}


def _chunk_of(record: Mapping[str, Any]) -> tuple[str, str, int]:
    return record.get("collection", ""), record["doc_id"], record["chunk_index"]


def _rank_before(ranks: Mapping[str, Mapping[str, Any]]) -> int | None:
    """Of a reranked result: its place in the list that the reranker was given."""
    if "reranked" not in ranks:
        return None
    provided = next((ranks[name] for name in ("fused", "vector", "lexical") if name in ranks), None)
    return int(provided["rank"]) if provided else None


def _arithmetic(run: QueryRun, locations: list[tuple[str, int | None, float | None]]) -> str:
    """The sum that fused the ranks."""
    rrf_k, weights = run.plan.get("rrf_k"), list_weights(run.lists, run.plan.get("weights", {}))
    terms = [f"{weights[name]:g} / ({rrf_k} + {rank})" for name, rank, _ in locations if rank is not None]
    return " + ".join(terms)


def _cited_href(run: QueryRun, citation: Mapping[str, Any]) -> str:
    name, place = cited_place(run, citation)
    return f"{reverse('collections:document', args=[name, citation['doc_id']])}?{place}#cited"


def cited_place(run: QueryRun, citation: Mapping[str, Any]) -> tuple[str, str]:
    """(collection, the place as the page of the document takes it) of a citation."""
    result = cited_result(run, citation)
    name = result.get("collection") or run.collection_name
    return name, f"{_place_query(result, citation, citation['quote'])}&chunk={citation['chunk_index']}"


def cited_result(run: QueryRun, citation: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result that a citation quotes; {} where the run has none."""
    source: Mapping[str, Any] = next((item for item in run.sources if item["marker"] == citation["marker"]), {})
    chunk = (citation["doc_id"], citation["chunk_index"])
    matches = [item for item in run.results if _chunk_of(item)[1:] == chunk]
    own = [item for item in matches if item.get("collection", "") == source.get("collection", "")]
    return next(iter(own or ([] if run.sources else matches)), {})  # while it is written there are no sources yet


def _place_query(result: Mapping[str, Any], place: Mapping[str, Any], quote: str) -> str:
    """The cited place as the pages of documents and chunks take it. quoted: where it stands in a chunk that a person
    wrote, whose text the document does not have."""
    query = f"start={place['start']}&end={place['end']}&revision={result.get('revision', 1)}"
    if quote and is_written(result.get("attributes", {})) and (at := result["content"].find(quote)) >= 0:
        query += f"&quoted={at}-{at + len(quote)}-{crc32(quote.encode()):08x}"
    return query
