"""Questions made from documents without a model, for experiments without a golden set.

English definitions and instructions are turned round. Where these are few, sentences stand for questions, with a third
of their words left out; that works in every language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models.functions import MD5

from collections_app.models import Chunk, Collection, Document
from evaluation_app.golden.questions import Golden
from ragd.text.sentences import split_sentences

QUESTIONS_MADE = 100
PER_DOCUMENT = 2
DOCUMENTS_READ = 400
CHUNKS_READ = 60  # of one document, spread over it
SENTENCE_CHARS = (40, 300)
KEPT_WORDS = 2 / 3  # of a sentence of few words
DEFINITION = re.compile(
    r"(?P<subject>[A-Z][^,;:.!?()|]{2,60}?) (?P<verb>is|are) (?:an?|the|one|any) [^|{}<>=]{12,}\.$", re.DOTALL
)
INSTRUCTION = re.compile(r"To (?P<act>[a-z][^,;:.!?|]{6,80}), [^|{}<>=]+\.$", re.DOTALL)
POINTING = frozenset(
    re.findall(
        r"\w+",
        "it its this that these those there here he she they them their we you i one which what who both each every "
        "such another other everything nothing something anything all any some many most none no if when because do",
    )
)
ARTICLE = re.compile(r"(?:An?|The)(?= )")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
MARKS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|`")
BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)]|#{1,6})\s+")


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk. headings: the path to it, the document's title first. start: of the content in its document."""

    doc_id: str
    chunk_index: int
    content: str
    headings: tuple[str, ...] = ()
    start: int = 0


def read_passages(collection: Collection, document: Document) -> list[Passage]:
    """At most CHUNKS_READ chunks of a document that are retrieved, spread evenly over it."""
    rows = Chunk.objects.of(collection).filter(doc_id=document.doc_id, enabled=True).order_by("chunk_index")
    indexes = list(rows.values_list("chunk_index", flat=True))
    step = max(1, -(-len(indexes) // CHUNKS_READ))
    columns = ("chunk_index", "content", "context", "start_char")
    return [
        Passage(document.doc_id, index, content, tuple(part for part in context.split(" > ") if part), start)
        for index, content, context, start in rows.filter(chunk_index__in=indexes[::step]).values_list(*columns)
    ]


def make_questions(collection: Collection, most: int = QUESTIONS_MADE) -> list[Golden]:
    """Questions of the documents, at most `PER_DOCUMENT` of one, in the order of a hash of the document's id.

    No search and no model chooses them, but they share words with the documents: they favour keyword search over the
    questions that people ask.
    """
    turned: list[Golden] = []
    spoken: list[Golden] = []
    documents = Document.objects.filter(collection=collection, enabled=True, chunk_count__gt=0)
    for document in documents.only("doc_id", "collection_id").order_by(MD5("doc_id"), "doc_id")[:DOCUMENTS_READ]:
        texts = [passage.content for passage in read_passages(collection, document)]
        found = dict.fromkeys(question for text in texts for question in turn_sentences(text))
        turned += [Golden(question, (document.doc_id,)) for question in list(found)[:PER_DOCUMENT]]
        spoken += [Golden(text, (document.doc_id,)) for text in _shorten_sentence(texts)]
        if len(turned) >= most:
            break
    if len(turned) < most // 2:
        turned += spoken
    return list({golden.question: golden for golden in turned}.values())[:most]


def turn_sentences(text: str) -> Iterator[str]:
    """The questions that English definitions ("A run is the ...") and instructions ("To rotate keys, ...") answer."""
    for start, end in split_sentences(text):
        sentence = plain(text[start:end])
        if match := DEFINITION.match(sentence):
            if not POINTING & set(match["subject"].lower().split()):
                subject = ARTICLE.sub(lambda article: article[0].lower(), match["subject"])
                yield f"What {match['verb']} {subject}?"
        elif (match := INSTRUCTION.match(sentence)) and not POINTING & set(match["act"].lower().split()):
            yield f"How do I {match['act']}?"


def _shorten_sentence(texts: Sequence[str]) -> list[str]:
    """One sentence of the middle of the document without every third word; [] for none of a fit length."""
    low, high = SENTENCE_CHARS
    for text in [*texts[len(texts) // 2 :], *texts[: len(texts) // 2]]:
        for start, end in split_sentences(text):
            sentence = " ".join(text[start:end].split())
            if low <= len(sentence) <= high and "|" not in sentence and sentence[0] not in "#*-`":
                words = sentence.split()
                kept = [word for number, word in enumerate(words) if number % 3 != 2]
                return [" ".join(kept) if len(words) > 5 else sentence[: int(len(sentence) * KEPT_WORDS)]]
    return []


def plain(text: str) -> str:
    """One line without Markdown's marks; links keep their words."""
    shown = LINK.sub(r"\1", BULLET.sub("", text))
    return " ".join(MARKS.sub("", shown).split())
