"""The fixed corpus: short texts on everyday things in ten languages, market lists, and documents of equal texts.

Written for this suite. Every character that is not ASCII is a letter without a capital form or in lower case, and
every punctuation mark is ASCII: what is a letter and what its lower case is comes from the locale of the database,
so that anything else would be split into other words on another server. Chinese and Japanese have spaces between
words for the same reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ragd.types import ChunkPolicy, Filters, RetrievePlan, Segment

FOLDER = Path(__file__).parent
LANGUAGES = ("ar", "de", "el", "en", "es", "fr", "hi", "ja", "ru", "zh")
POLICY = ChunkPolicy(kind="structure", target_tokens=36, overlap_tokens=6, max_chars=400)
TEXT_SEARCH = "simple"  # no stemmer: their rules grow with versions of PostgreSQL
EQUAL_DOCUMENTS = ("equal/B", "equal/a", "equal/é", "equal/日")  # in the order of their UTF-8 bytes
EQUAL_TEXT = """# Equal

The same words stand in several documents, so that nothing but the name of the document can tell them apart.

## Second

A second paragraph is the same in all of them as well, which makes their ties last through every list there is.
"""


@dataclass(frozen=True, slots=True)
class CorpusDocument:
    doc_id: str
    title: str
    text: str
    tags: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CorpusQuery:
    language: str
    text: str


PLANS: dict[str, RetrievePlan] = {
    "vector": RetrievePlan(mode="vector", exact="always"),
    "lexical": RetrievePlan(mode="lexical"),
    "hybrid": RetrievePlan(mode="hybrid", exact="always"),
    "filtered": RetrievePlan(
        mode="hybrid",
        exact="always",
        filters=Filters(tags_any=("kitchen", "nature"), tags_all=("facts",), metadata={"edition": 1}),
    ),
    "weighted": RetrievePlan(
        mode="hybrid", exact="always", k=8, candidate_pool=30, rrf_k=20, weights={"vector": 0.5, "lexical": 1.5}
    ),
}


@cache
def documents() -> tuple[CorpusDocument, ...]:
    """Every document, by doc_id in UTF-8 bytes. `facts/LANGUAGE/THEME`, `market/LANGUAGE`, `equal/...`."""
    made = [document for language in LANGUAGES for document in (*_facts(language), _market(language))]
    made += [CorpusDocument(name, "Equal", EQUAL_TEXT, ("equal",), {"edition": 1}) for name in EQUAL_DOCUMENTS]
    return tuple(sorted(made, key=lambda document: document.doc_id.encode()))


@cache
def queries() -> tuple[CorpusQuery, ...]:
    lines = (FOLDER / "queries.tsv").read_text(encoding="utf-8").splitlines()
    return tuple(CorpusQuery(*line.split("\t")) for line in lines if line)


def _facts(language: str) -> list[CorpusDocument]:
    """The themes of one file, each a document; editions 1 and 2 take turns."""
    text = (FOLDER / f"{language}.md").read_text(encoding="utf-8")
    sections = text.removeprefix("# ").split("\n# ")
    turn = LANGUAGES.index(language)
    return [
        CorpusDocument(
            doc_id=f"facts/{language}/{theme}",
            title=section.split("\n", 1)[0],
            text=f"# {section.strip()}\n",
            tags=("facts", language, theme),
            metadata={"language": language, "edition": 1 + (turn + index) % 2, "checked": index == 0},
        )
        for index, (theme, section) in enumerate(zip(("kitchen", "nature", "machines"), sections, strict=True))
    ]


def _market(language: str) -> CorpusDocument:
    """A week of prices, a section a day: seeded by the place of day and language alone."""
    words = json.loads((FOLDER / "markets.json").read_text(encoding="utf-8"))
    values = words["languages"][language]
    turn = LANGUAGES.index(language)
    days = [f"## {day}\n\n{_prices(words['line'], values, day, turn * 7 + n)}" for n, day in enumerate(values["days"])]
    return CorpusDocument(
        doc_id=f"market/{language}",
        title=values["place"],
        text="\n\n".join(days) + "\n",
        tags=("market", language),
        metadata={"language": language, "edition": 1},
    )


def _prices(line: str, values: Mapping[str, Any], day: str, seed: int) -> str:
    goods: Sequence[str] = values["goods"]
    picked = [goods[(seed * 3 + step * 2) % len(goods)] for step in range(3)]
    amounts = [1 + (seed * 5 + step * 11) % 9 for step in range(6)]
    return line.format(
        day=day, place=values["place"], unit=values["unit"],
        a=picked[0], x=amounts[0], p=amounts[1],
        b=picked[1], y=amounts[2], q=amounts[3],
        c=picked[2], z=amounts[4], r=amounts[5],
    )  # fmt: skip


# Texts that chunking must cut at the same places everywhere: odd line ends, marks, scripts, code, tables, long words.
HARD_TEXTS: dict[str, str] = {
    "line ends": "One line.\r\nTwo lines.\rThree\x85four\u2028five\u2029six.\x0cSeven.\n\n\n\nEight after a gap.",
    "marks": "Cafe\u0301, A\u030angstro\u0308m, \ufeffno mark of order, tab\tstays, bell\x07 goes, nul\x00 goes.",
    "sentences": "Dr. Smith paid 3.50 euros. He left! Did he? Yes... e.g. by train at 8 p.m. on Monday. The end.",
    "cjk": "茶の湯は静かに始まる。客は庭を通り、手を清める。亭主は湯を沸かす。「どうぞ」と言う。" * 4,
    "arabic": "بدأ الصباح هادئا. هل تسمع المطر؟ نعم، إنه يسقط على السطح؛ والريح تهب من البحر. " * 3,
    "code": "# Code\n\nBefore it.\n\n```python\n"
    + "\n".join(f"value_{n} = {n}" for n in range(30))
    + "\n```\n\nAfter it.",
    "table": "| name | price |\n|---|---|\n" + "\n".join(f"| thing {n} | {n * 3} |" for n in range(25)),
    "list": "Shopping:\n\n" + "\n".join(f"- item number {n} with a few words to it" for n in range(20)),
    "long word": "short " + "x" * 500 + " short again",
    "headings": "Title\n=====\n\nIntro.\n\nPart\n----\n\nText of part.\n\n### Deep\n\nDeep text.\n\n# Next\n\nOther.",
}
HARD_SEGMENTS: tuple[Segment, ...] = tuple(
    Segment(f"Speaker {n % 2} says sentence number {n}, and then a little more.", float(n * 4), float(n * 4 + 3))
    for n in range(20)
)
HARD_POLICIES: dict[str, ChunkPolicy] = {
    "default": ChunkPolicy(),
    "structure": ChunkPolicy(kind="structure", target_tokens=24, overlap_tokens=6, max_chars=200),
    "words": ChunkPolicy(kind="words", target_tokens=10, overlap_tokens=3, max_chars=120),
}


def hard_texts() -> Iterator[tuple[str, str | Sequence[Segment], ChunkPolicy]]:
    """(name, text or segments, policy): every hard text under every policy."""
    for policy_name, policy in HARD_POLICIES.items():
        for name, text in HARD_TEXTS.items():
            yield f"{name}, {policy_name}", text, policy
        yield f"segments, {policy_name}", HARD_SEGMENTS, policy
