"""Questions that need two documents, made: from a generated corpus, and from documents that share an identifier.

A generated corpus has people, places, companies and products, one document each, and as many documents that say other
things of them. The development set and the held-out set differ in their names, in how documents say things and in how
questions ask.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ragd.text.sentences import split_sentences


@dataclass(frozen=True, slots=True)
class Made:
    """documents: id -> (title, text). questions: (question, the ids of the documents that it needs)."""

    documents: Mapping[str, tuple[str, str]]
    questions: Sequence[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Words:
    """What a set is made of. Templates take {product}, {company}, {person}, {place}, {region} and other facts."""

    syllables: Sequence[str]
    company_ends: Sequence[str]
    product_ends: Sequence[str]
    product: Sequence[str]
    company: Sequence[str]
    person: Sequence[str]
    place: Sequence[str]
    noise: Sequence[str]
    two: Sequence[tuple[str, str, str]]
    one: Sequence[tuple[str, str]]


DEVELOPMENT = Words(
    syllables=["ba", "ker", "lo", "min", "dar", "vel", "tos", "ri", "han", "gur", "pel", "sa", "mor", "ten", "li"],
    company_ends=("Works", "Industries", "Group", "Brothers"),
    product_ends=("Engine", "Pump", "Lamp", "Scale"),
    product=(
        "The {product} is a {use} that {company} has built since {year}. It weighs {number} kilograms and runs on"
        " {fuel}.",
        "{company} makes the {product}, a {use}. Buyers praise its {trait}; the first one was delivered in {year}.",
    ),
    company=(
        "{company} is a manufacturer with {number} employees. It was founded by {person} in {year} and has its seat in"
        " {place}.",
        "The firm {company} was started in {year}, when {person} bought an old mill in {place}. It employs {number}"
        " people today.",
    ),
    person=(
        "{person} was born in {place} in {year} and studied {subject}. Colleagues describe a quiet person who likes"
        " {hobby}.",
        "{person}, who grew up in {place}, taught {subject} for years. In the evenings {person} enjoys {hobby}.",
    ),
    place=(
        "{place} is a town of {number} thousand inhabitants on the river {region}. Its market square dates from"
        " {year}.",
        "The town of {place} lies on the river {region}. It has {number} thousand inhabitants and a museum opened in"
        " {year}.",
    ),
    noise=(
        "At the fair of {year} the {product} was shown beside many other machines, and visitors asked for its price.",
        "A strike at {company} in {year} lasted {number} days.",
        "The library keeps letters of {person} about {subject}.",
        "Trains to {place} run every {number} minutes since {year}.",
    ),
    two=(
        ("Who founded the company that makes the {product}?", "product", "company"),
        ("In which town does the maker of the {product} have its seat?", "product", "company"),
        ("What did the founder of {company} study?", "company", "person"),
        ("On which river lies the town where {company} has its seat?", "company", "place"),
        ("How many inhabitants has the town in which {person} was born?", "person", "place"),
    ),
    one=(
        ("What does the {product} run on?", "product"),
        ("When was {company} founded?", "company"),
        ("What is the hobby of {person}?", "person"),
        ("When was the market square of {place} built?", "place"),
    ),
)
HELD_OUT = Words(
    syllables=["zu", "fel", "cor", "nya", "wes", "tal", "bri", "ox", "hem", "dra", "pin", "qua", "jo", "sten", "ulm"],
    company_ends=("Holding", "Labs", "& Sons", "Systems"),
    product_ends=("Drill", "Kettle", "Loom", "Drone"),
    product=(
        "Introduced in {year}, the {product} serves as a {use}. Its design came from engineers at {company}, and it"
        " needs {fuel}.",
        "Among the goods sold by {company}, the {product} stands out for its {trait}. As a {use} it was launched in"
        " {year}.",
    ),
    company=(
        "Headquartered in {place}, {company} goes back to {year}. {person} runs it as chief executive and oversees"
        " {number} workers.",
        "With {number} workers on its payroll, {company} is led by {person}. The head office moved to {place} in"
        " {year}.",
    ),
    person=(
        "As a child in {place}, {person} collected clocks. A degree in {subject} followed in {year}, and later a"
        " passion for {hobby}.",
        "{hobby_start} takes up the weekends of {person}, who holds a degree in {subject} from {year} and comes from"
        " {place}.",
    ),
    place=(
        "In the hills of {region}, the city of {place} counts {number} thousand residents. Its cathedral was finished"
        " in {year}.",
        "{place} belongs to the province of {region}. A census in {year} found {number} thousand residents.",
    ),
    noise=(
        "Reviewers in {year} compared the {product} with {number} rivals and found the manual hard to read.",
        "Shares of {company} fell by {number} percent after the report of {year}.",
        "A portrait of {person} hangs in the town hall since {year}.",
        "The airport near {place} closed for {number} weeks in {year}.",
    ),
    two=(
        ("Name the chief executive of the business behind the {product}.", "product", "company"),
        ("Where is the head office of the firm whose engineers designed the {product}?", "product", "company"),
        ("Which degree does the person who leads {company} hold?", "company", "person"),
        ("To which province does the city with the headquarters of {company} belong?", "company", "place"),
        ("How many residents are there in the city where {person} spent childhood?", "person", "place"),
    ),
    one=(
        ("In what year was the {product} launched?", "product"),
        ("How many workers does {company} have?", "company"),
        ("What is {person} passionate about at weekends?", "person"),
        ("When was the cathedral of {place} finished?", "place"),
    ),
)
FACTS = {
    "use": ["water pump for farms", "measuring device", "machine for bakeries", "tool for workshops", "heater"],
    "fuel": ["diesel", "mains electricity", "wood pellets", "solar power", "compressed air"],
    "trait": ["low noise", "long life", "small size", "simple repair", "even heat"],
    "subject": ["chemistry", "law", "geology", "music theory", "architecture", "statistics", "botany"],
    "hobby": ["sailing", "chess", "beekeeping", "mountain walks", "old radios", "choir singing"],
}  # fmt: skip


def make_corpus(words: Words, size: int, seed: int) -> Made:
    """`size` products, companies, people and places, each with a document and some noise, and questions about them."""
    draw = random.Random(seed)
    names = _names(words, size, draw)
    # every product has a company of its own, every company a person and a place, every person a place
    linked = {
        kind: draw.sample(range(size), size) for kind in ("maker", "head", "seat", "home", "river")
    }  # fmt: skip
    documents: dict[str, tuple[str, str]] = {}
    facts: dict[tuple[str, int], dict[str, str]] = {}
    for number in range(size):
        company, place = linked["maker"][number], linked["home"][number]
        facts["product", number] = {"product": names["product"][number], "company": names["company"][company]}
        facts["company", number] = {
            "company": names["company"][number], "person": names["person"][linked["head"][number]],
            "place": names["place"][linked["seat"][number]],
        }  # fmt: skip
        facts["person", number] = {"person": names["person"][number], "place": names["place"][place]}
        facts["place", number] = {"place": names["place"][number], "region": names["region"][linked["river"][number]]}
    for kind in ("product", "company", "person", "place"):
        for number in range(size):
            text = _fill(draw.choice(getattr(words, kind)), facts[kind, number], draw)
            documents[f"{kind}-{number:03}"] = ("", text)
            own = next(each for each in words.noise if f"{{{kind}}}" in each)
            documents[f"{kind}-{number:03}-more"] = ("", _fill(own, {kind: names[kind][number]}, draw))
    questions: list[tuple[str, tuple[str, ...]]] = []
    after = {("product", "company"): "maker", ("company", "person"): "head", ("company", "place"): "seat",
             ("person", "place"): "home"}  # fmt: skip
    for number in range(size):
        template, first, second = words.two[number % len(words.two)]
        other = linked[after[first, second]][number]
        asked = template.format(**{first: names[first][number]})
        questions.append((asked, (f"{first}-{number:03}", f"{second}-{other:03}")))
    for number in range(size):
        template, kind = words.one[number % len(words.one)]
        questions.append((template.format(**{kind: names[kind][number]}), (f"{kind}-{number:03}",)))
    return Made(documents, questions)


def _names(words: Words, size: int, draw: random.Random) -> dict[str, list[str]]:
    used: set[str] = set()

    def fresh(parts: int) -> str:
        while True:
            name = "".join(draw.choice(words.syllables) for _ in range(parts)).capitalize()
            if name not in used:
                used.add(name)
                return name

    return {
        "company": [f"{fresh(3)} {draw.choice(words.company_ends)}" for _ in range(size)],
        "product": [f"{fresh(2)} {draw.choice(words.product_ends)}" for _ in range(size)],
        "person": [f"{fresh(2)} {fresh(3)}" for _ in range(size)],
        "place": [fresh(3) for _ in range(size)],
        "region": [fresh(3) for _ in range(size)],
    }


def _fill(template: str, facts: Mapping[str, str], draw: random.Random) -> str:
    made = {name: draw.choice(values) for name, values in FACTS.items()}
    made |= {"year": str(draw.randrange(1850, 2020)), "number": str(draw.randrange(11, 990))}
    made["hobby_start"] = made["hobby"].capitalize()
    return template.format(**made | dict(facts))


# words that say nothing of what a sentence is about
_PLAIN = re.compile(r"[a-z]{4,}")
_CODE_SPAN = re.compile(r"`([A-Za-z][A-Za-z0-9_.:-]{4,40})`")
TEMPLATES = {
    "development": "What is said about {second} of the thing that {first}?",
    "held out": "{first}: which one is it, and what about {second}?",
}


def document_questions(documents: Mapping[str, tuple[str, str]], kind: str) -> list[tuple[str, tuple[str, ...]]]:
    """Two-document questions about identifiers that exactly two documents write as code.

    Each asks by the four rarest words of a sentence of the first document and the two most frequent ones of a sentence
    of the second, without the identifier. Of the identifiers in order, every other one is of the development set.
    """
    holders: dict[str, dict[str, str]] = defaultdict(dict)
    counts: Counter[str] = Counter()
    for doc_id in sorted(documents):
        text = documents[doc_id][1]
        counts.update(set(_PLAIN.findall(text.lower())))
        for start, end in split_sentences(text):
            sentence = text[start:end]
            for name in _CODE_SPAN.findall(sentence):
                holders[name].setdefault(doc_id, sentence)
    shared = sorted(name for name, where in holders.items() if len(where) == 2)
    questions: list[tuple[str, tuple[str, ...]]] = []
    for number, name in enumerate(shared):
        if (number % 2 == 0) != (kind == "development"):
            continue
        first, second = holders[name]
        parts = []
        for doc_id in (first, second):
            bare = holders[name][doc_id].replace(name, " ").lower()
            words = sorted(set(_PLAIN.findall(bare)) - set(_PLAIN.findall(name.lower())), key=lambda w: (counts[w], w))
            parts.append(words)
        common = [word for word in parts[1] if counts[word] <= len(documents) / 2]
        if len(parts[0]) >= 4 and len(common) >= 2:
            asked = TEMPLATES[kind].format(first=" ".join(parts[0][:4]), second=" ".join(common[-2:]))
            questions.append((asked, (first, second)))
    return questions
