from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragd.models.embedding import LocalEmbedder
from ragd.models.multilingual_e5 import MultilingualE5Embedder
from ragd.types import Candidate, Embedder
from retrieval_app.answers.extractive_answerer import (
    ExtractiveAnswerer,
    choose_sentences,
    extend,
    quote,
    read_sentences,
    stems,
)
from retrieval_app.answers.protocol import WEAK_EVIDENCE, declines
from retrieval_app.answers.question import Matcher, content_words, read_question, split_questions
from retrieval_app.answers.question_match import LACKING, ORDER, Sentence, Weighing
from tests.builders import WordEmbedder

PUMP = (
    "# Pumps\n\nThe main pump of the station was built in 1987. It moves 400 litres of water per minute. "
    "Before the pump is cleaned, it must be switched off and locked with the red key. The manual lists spare parts [3]."
)
GARDEN = "The garden behind the station is open to everybody. Roses are cut in March, and the hedge in late summer."
PUMP_AGAIN = (
    "Before the pump is cleaned, it must be switched off and locked with the red key. Nobody may enter the room."
)


def source(doc_id: str, content: str, start: int = 0, chunk_index: int = 0, **attributes: object) -> Candidate:
    return Candidate(doc_id, chunk_index, content, 1.0, start=start, end=start + len(content), attributes=attributes)


@cache
def local() -> LocalEmbedder:
    return LocalEmbedder()


def test_quotes_the_sentence_that_answers_with_its_exact_place() -> None:
    sources = [source("garden", GARDEN), source("pump", PUMP, start=50, page_label="4")]
    draft = ExtractiveAnswerer(local()).answer("What must be done before cleaning the pump?", sources)
    assert not draft.abstained
    first = draft.checked.citations[0]
    assert (first.doc_id, first.marker, first.page, first.match) == ("pump", 2, "4", "quote")
    assert first.quote == "Before the pump is cleaned, it must be switched off and locked with the red key."
    assert PUMP[first.start - 50 : first.end - 50] == first.quote
    assert draft.checked.answer.startswith(f"{first.quote} [2]")


def test_abstains_when_nothing_found_is_evidence() -> None:
    draft = ExtractiveAnswerer(local()).answer("Who won the football world cup in 2014?", [source("pump", PUMP)])
    assert (draft.abstained, draft.checked.citations, draft.usage.generation_tokens) == (True, (), 0)
    assert declines(draft.checked.answer) and not any(map(str.isdigit, draft.checked.answer))
    assert draft.evidence is not None and draft.evidence < 0.4


def test_quotes_the_sentence_right_below_a_heading() -> None:
    content = (
        "# Boiler\n## Maintenance\nThe boiler must be descaled every 90 days. Use citric acid at 3 percent, because "
        "vinegar attacks the seals.\n## Warranty\nThe warranty lasts 24 months from the date of sale."
    )
    sentences = read_sentences([source("boiler", content)])
    assert [(each.heading, each.opens) for each in sentences] == [
        ("Maintenance", True), ("Maintenance", False), ("Warranty", True),
    ]  # fmt: skip
    assert all(content[each.start : each.end] == each.text for each in sentences)
    for question, start in (
        ("How often must the boiler be descaled?", "The boiler must"),
        ("How long does the warranty last?", "The warranty lasts"),
    ):
        draft = ExtractiveAnswerer(local()).answer(question, [source("boiler", content)])
        assert draft.checked.citations[0].quote.startswith(start)


@pytest.mark.fault("UX-F16")
@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("What is the pager number of the on-call engineer?", "The pager number is 0800 555 0199."),
        ("What was the serial number of the boiler that we replaced?", "The serial number is KX-2291."),
        ("Which door code opens the archive in Hamburg?", "The door code is 4711."),
        ("What is the PIN of the safe?", "The PIN is 4711."),
        ("the PIN of the safe", "The PIN of the safe is 4711."),
    ],
)
def test_a_short_factual_sentence_answers_a_longer_question(question: str, sentence: str) -> None:
    draft = ExtractiveAnswerer(local()).answer(question, [source("garden", GARDEN), source("note", sentence)])
    assert (draft.abstained, [each.quote for each in draft.checked.citations]) == (False, [sentence])


@pytest.mark.fault("UX-F16")
@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("What is the fax number of the branch office?", "The pager number is 0800 555 0199."),
        ("How much does the pager of the engineer weigh?", "The pager number is 0800 555 0199."),
        ("Who painted the door of the archive?", "The door code is 4711."),
        ("When does the cafeteria open on Sunday?", "The night shift starts at 22:00."),
    ],
)
def test_a_short_sentence_about_something_else_answers_nothing(question: str, sentence: str) -> None:
    draft = ExtractiveAnswerer(local()).answer(question, [source("note", sentence)])
    assert (draft.abstained, draft.checked.citations) == (True, ())


@pytest.mark.parametrize("missing", ["", "who painted the ceiling of the opera in Vienna?"])
def test_every_part_of_a_question_is_answered_or_named_as_missing(missing: str) -> None:
    query = f"When was the main pump of the station built, and {missing or 'when are roses cut?'}"
    checked = ExtractiveAnswerer(local()).answer(query, [source("pump", PUMP), source("garden", GARDEN)]).checked
    assert checked.citations[0].quote == "The main pump of the station was built in 1987."
    assert ("garden" in {each.doc_id for each in checked.citations}) == (not missing)
    assert checked.answer.endswith(missing) and (checked.sentences[-1].markers == ()) == bool(missing)


@pytest.mark.parametrize(
    ("query", "abstained"), [("Wann werden die Rosen geschnitten?", False), ("Wer malte die Decke der Oper?", True)]
)
def test_a_language_that_the_encoder_cannot_read_is_weighed_by_its_words(query: str, abstained: bool) -> None:
    text = "Der Garten hinter der Station steht allen offen. Die Rosen werden im März geschnitten, die Hecke im August."
    draft = ExtractiveAnswerer(local()).answer(query, [source("garten", text, language="de")])
    assert draft.abstained == abstained
    assert [each.quote for each in draft.checked.citations] == ([] if abstained else [text.partition(". ")[2]])


@pytest.mark.parametrize(("embedder", "first"), [(local, 0), (MultilingualE5Embedder, 1)])
def test_the_multilingual_encoder_finds_what_is_said_in_other_words(
    embedder: Callable[[], Embedder], first: int
) -> None:
    said = (
        "In einem Stock leben eine Königin und 60.000 Arbeiterinnen.",
        "Arbeiterinnen werden im Sommer etwa sechs Wochen alt, im Winter mehrere Monate.",
    )
    query = "Wie lange leben Arbeiterinnen in der warmen Jahreszeit?"
    for _ in range(2):  # the second time from memory
        draft = ExtractiveAnswerer(embedder()).answer(query, [source("bees", " ".join(said), language="de")])
        assert draft.checked.citations[0].quote == said[first]


@pytest.mark.parametrize(
    "sources", [[], [source("blank", " \n ")], [source("scraps", "# Title\n\n| a | b |\n\n12 34 56 78")]]
)
def test_abstains_when_there_is_nothing_to_quote(sources: list[Candidate]) -> None:
    draft = ExtractiveAnswerer(local()).answer("What is this?", sources)
    assert (draft.abstained, draft.evidence, draft.checked.citations) == (True, 0.0, ())


def test_a_sentence_that_stands_in_two_sources_is_quoted_once() -> None:
    sources = [source("pump", PUMP), source("rules", PUMP_AGAIN)]
    draft = ExtractiveAnswerer(local()).answer("What must be done before cleaning the pump?", sources)
    assert draft.checked.answer.count("locked with the red key") == 1


def test_a_sentence_in_the_overlap_of_two_chunks_is_read_once() -> None:
    second = PUMP.index("Before")
    sources = [source("pump", PUMP), source("pump", PUMP[second:], start=second, chunk_index=1)]
    assert [sentence.source for sentence in read_sentences(sources)] == [0, 0, 0, 0]


def test_the_mark_of_a_list_item_is_not_quoted() -> None:
    text = "1. First switch the pump off.\n\n- Then clean the pump with cold water.\n\n> * Never use the key alone."
    read = [sentence.text for sentence in read_sentences([source("list", text)])]
    assert read == ["First switch the pump off.", "Then clean the pump with cold water.", "Never use the key alone."]


def test_what_belongs_together_is_quoted_whole() -> None:
    lead = "**A full store.** Writes stop until space is freed, see `free ... Now` for it."
    steps, code = "Then do all of this:\n\n1. Stop it.\n2. Start it.", "```sh\nstore free --all\nstore start\n```"
    text = f"- {lead}\n\n{steps}\n\nThe end is near.\n\n{code}"
    sentences = read_sentences([source("store", text)])
    assert [each.text for each in sentences] == [lead, "Then do all of this:", "The end is near.", code]
    (longer,) = extend([sentences[1], replace(sentences[1], start=text.index("1."))], [source("store", text)])
    assert (longer.text, text[longer.start : longer.end]) == (steps, steps)
    answer = ExtractiveAnswerer(local()).answer("How do I free the store?", [source("store", code)]).checked.answer
    assert answer == f"{code}\n[1]"


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("What is the difference between a plan and a run?", [("What is a plan?", ""), ("What is a run?", "")]),
        ("Who built the mill and when?", [("Who built the mill", ""), ("when?", "Who built the mill")]),
        (
            "Wer baute die Mühle und wo steht sie?",
            [("Wer baute die Mühle", ""), ("wo steht sie?", "Wer baute die Mühle")],
        ),
        ("Is it cleaned? How often?", [("How often?", "Is it cleaned?"), ("Is it cleaned?", "")]),
        ("Who pays? Which mill is old?", [("Who pays?", ""), ("Which mill is old?", "")]),
        ("How much is the rent? And the fee?", [("How much is the fee?", ""), ("How much is the rent?", "")]),
        ("Wann ist Ruhe? Was ist mit Müll?", [("Wann ist Müll?", ""), ("Wann ist Ruhe?", "")]),
        ("Who pays? And is it old?", [("And is it old?", "Who pays?"), ("Who pays?", "")]),
        ("Who built the mill?\nWhen?", [("When?", "Who built the mill?")]),  # a follow-up
        ("How much is the rent?\nAnd the fee?", [("How much is the fee?", "")]),
        ("What is the fee for pupils?\nAnd for adults?", [("What is the fee for adults?", "")]),
        ("What is the capital of Chad?\nAnd Mali?", [("And Mali?", "What is the capital of Chad?")]),
        ("Who pays?\nWhich mill is old?", [("Who pays?", ""), ("Which mill is old?", "")]),
    ],
)
def test_the_parts_of_a_question_and_what_they_are_about(query: str, parts: list[tuple[str, str]]) -> None:
    assert split_questions(query) == parts


LONG = "all that others have written in the books of the house and of the garden, on each day of the week " * 3
ROLES = f"""# House\n\nEach person has a role.\n\n## Roles\n\n| role | reads |\n|---|---|\n| guest | {LONG} |
| owner | {LONG} |\n\nRoles are given by the owner."""
FARBEN = "# Tor\n\nEine Farbe hat jedes Tor.\n\nDie Farben:\n\n- Rot\n- Grün\n- Blau\n\nDie Farbe wählt der Wärter."
KEYS = "Keys are made of iron. The keys are red, blue, green and white. A key has a number.\n\nKeys:\n\n- red\n- old"
TOR = "Am Sonntag ist der Park schön. Das Tor bleibt am Abend geschlossen. Das Tor ist aus Eisen und hat zwei Flügel."
DOCK = (
    "The pump has a red case. The pump is cleaned with cold water. The pump is cleaned every Monday. It stands there."
)
FAQ = "# Help\n\nQ: Do you send to Norway?\nA: No. We only send within the Union.\n\nQ: Who pays?\nA: The house pays."
BOILER = """# Boiler

| property | value |
|---|---|
| Weight | 38 kg |
| Height | 70 cm |

## Codes

| code | action |
|---|---|
| E04 | Refill to 1.5 bar |
| E12 | Call the service |

## Descaling the boiler

The boiler is descaled once a year. Use citric acid. Never use vinegar, which attacks the seals.

### Steps

1. Close the valve.
2. Rinse twice.
"""
RELEASES = """# Releases

## 4.2 (March 2026)
- Added export to CSV.
- Fixed a crash when the disk is full.

## 4.1 (January 2026)
- Added dark mode.
- Removed the old login page.
"""
SOUP = "# Soup\n\n- 250 g lentils\n- 2 carrots\n\nAdd carrots, lentils and stock. Simmer for 40 minutes."
LIFE = "Ada Byron was born in 1815 in London. She wrote notes on an engine. She died in 1852. A museum buys the engine."
SHOP = """# Shop

**How long does delivery take?** Two to four working days.

**Can I return goods?** Yes, within 30 days.

People often ask: how can I pay a bill? We do not know why.
"""
STATION = """## Contacts

| role | person | phone |
|---|---|---|
| Lead | Maren Holt | 4711 |
| Doctor | Jonas Beck | 4712 |

The station has 1200 books. A cook comes in summer.
"""
CLINIC = """## Opening hours

| day | open | close |
|---|---|---|
| Monday | 8:00 | 18:00 |
| Friday | 8:00 | 14:00 |

The clinic is closed on weekends. In an emergency call 020 7946 0321. Ask Anita Rao for a date.

## Fees

| treatment | price |
|---|---|
| cleaning | £65 |
| filling, per tooth | £120 |

Send claims to claims@riverside.example. To return an aligner:

1. Rinse it.
2. Post it in the box.
"""
CLUB = "Vorsitzende ist Dr. Petra Voss. Bootswart ist Ali Demir, Telefon 030 803 44 21. Der Achter heißt Spree."
LEASE = (
    "The rent is 1,150 a month, due on the third working day. The tenancy begins on 1 August 2026. "
    "Small animals such as hamsters are allowed. Dogs and cats need the landlord's consent. "
    "Two positions are vacant: an accountant and a driver."
)
WEIR = "A lock is a chamber. A lock and a dam are old. A dam holds water back; a lock lifts ships. A dam is a wall."
WEHR = "Eine Schleuse ist eine Kammer. Ein Wehr staut das Wasser, eine Schleuse hebt die Schiffe."
SHEET = "Product: Solar 5\nMaker: Helion\nCharging time: 4 hours by day\nPrice: 49 EUR\nWarranty: 24 months"
KESSEL = "Der Kessel ist rot und steht im Keller. Das Gewicht beträgt 38 kg. Der Kessel ist 12 Jahre im Betrieb."
WORLD = "The flat has a cellar. The launch is planned for 16 June. The tenant keeps a cat. Dogs are banned."
LEAFLET = """# Calmex

Calmex holds the substance norlapine. It is used to treat migraine.
Calmex must not be used when pregnant. Calmex runs in browsers. Windows is a system it lacks.

## Effects

Common (up to 1 in 10): dizziness, dry mouth
Rare (up to 1 in 1,000): rash, blurred sight
"""
COVER = "## Cover\n\nThe house is covered.\n\n## Exclusions\n\n- Sport\n- War\n"
STAFF = "| name | team | since |\n|---|---|---|\n| Lena Petrov | Sales | 2020 |\n| Omar Haddad | IT | 2021 |\n"
VITA = (
    "Nadia Feldmann (born 8 February 1921; died 30 October 1999) was a botanist. She was born in Graz. "
    "Her husband was the engineer Duarte Pinto. They met in Porto in 1950."
)
JOB = (
    "# Das Büro\n\nDas Bruttogehalt beträgt 4.350 Euro im Monat. Im Mai 1912 kam der Bildhauer Karl Brenner.\n\n"
    "Öffnungszeiten: Montag bis Freitag\nLeitung: Frau Krol"
)
HUT = (
    "The hut was put up by volunteers. It was torn down past noonday. Purging a filter happens at startup. "
    "A message is deleted after it was read three times."
)
AMT = "Das Amt wurde 1957 gegründet. Die Kündigung ist zum Quartalsende möglich. Ehrenmitglieder zahlen nichts."
CREW = (
    "The mate Pavel Novak is 27. Lina Osei (34) counts foxes. Ida Lund keeps 27 goats. "
    "Nils Aune lost his life in the storm of 1911. Anders Aune came into the world in May."
)
LAMP = "The lamp lights the channel for ships. The side door is used to enter the store."
MAPS = (
    "## 3.0 (5 May 2025)\n\nDropped Python 3.8.\n\n"
    "## 2.9 (1 March 2025)\n\nLayers can be locked. Added offline maps. Offline maps need 2 GB of disk."
)
PUMPE = "Die Pumpe ist rot. Die Pumpe wird mit kaltem Wasser gereinigt. Die Pumpe wird jeden Montag gereinigt."


@pytest.mark.parametrize(
    ("query", "text", "headline", "quotes"),
    [
        ("Which roles are there?", ROLES, "", ["guest", "owner"]),
        ("List all roles of the house.", ROLES, "", ["guest", "owner"]),
        ("How many roles are there?", ROLES, "2 are listed:", ["guest", "owner"]),
        ("Welche Farben gibt es?", FARBEN, "", ["Rot", "Grün", "Blau"]),
        ("Wie viele Farben gibt es?", FARBEN, "Aufgeführt sind 3:", ["Rot", "Grün", "Blau"]),
        (
            "Wie viele Farben gibt es?",
            FARBEN.partition("\n\nDie Farbe w")[0],
            "Eine Farbe",
            ["Eine Farbe hat jedes Tor."],
        ),
        ("Which keys are there?", KEYS, "The keys are", ["The keys are red, blue, green and white."]),
        ("Is the case of the pump red or blue?", DOCK, "", ["The pump has a red case."]),
        ("Ist das Tor offen oder geschlossen?", TOR, "", ["Das Tor bleibt am Abend geschlossen."]),
        ("Is the pump cleaned? How often?", DOCK, "", ["The pump is cleaned every Monday."]),
        ("Wird die Pumpe gereinigt? Wie oft?", PUMPE, "", ["Die Pumpe wird jeden Montag gereinigt."]),
        ("Yes or no: has the pump a red case?", DOCK, "", ["The pump has a red case."]),
        ("Do you send to Norway?", FAQ, "No. We only", ["No. We only send within the Union."]),
        ("Who pays?", FAQ, "The house pays.", ["The house pays."]),
        ("How long does delivery take?", SHOP, "", ["**How long does delivery take?** Two to four working days."]),
        ("Can I return goods?", SHOP, "", ["**Can I return goods?** Yes, within 30 days."]),
        ("How can I pay a bill?", SHOP, WEAK_EVIDENCE, []),
        ("How many carrots do I need?", SOUP, "", ["2 carrots"]),
        ("When did she die?", LIFE, "", ["She died in 1852."]),
        ("Who bought the engine?", LIFE, "", ["A museum buys the engine."]),
        ("What is new in version 4.2?", RELEASES, "", ["Added export to CSV."]),
        ("How heavy is the boiler?", BOILER, "", ["Weight | 38 kg"]),
        ("Wie schwer ist der Kessel?", KESSEL, "", ["Das Gewicht beträgt 38 kg."]),
        ("What should I do at E12?", BOILER, "", ["E12 | Call the service"]),
        ("What should I do when E12 is displayed?", BOILER, "", ["E12 | Call the service"]),
        ("Who found out that E12 is displayed in Rome?", BOILER, WEAK_EVIDENCE, []),
        ("What acid is used to descale the boiler?", BOILER, "", ["Use citric acid."]),
        ("How do I descale the boiler?", BOILER, "1. Close the valve.", ["Close the valve.", "Rinse twice."]),
        ("When does the clinic close on Friday?", CLINIC, "", ["Friday | 8:00 | 14:00"]),
        ("What is the phone number for emergencies?", CLINIC, "", ["In an emergency call 020 7946 0321."]),
        ("What is the phone number of Anita Rao?", CLINIC, WEAK_EVIDENCE, []),
        ("What is the phone number of the doctor?", STATION, "", ["Doctor | Jonas Beck | 4712"]),
        ("What is the phone number of Maren Holt?", STATION, "", ["Lead | Maren Holt | 4711"]),
        ("What is the phone number of the cook?", STATION, WEAK_EVIDENCE, []),
        ("What is the e-mail address for claims?", CLINIC, "", ["Send claims to claims@riverside.example."]),
        ("What is the e-mail address of Anita Rao?", CLINIC, WEAK_EVIDENCE, []),
        ("What is the price of a filling?", CLINIC, "", ["filling, per tooth | £120"]),
        ("What does a room at Anker cost?", "Anker has rooms for 980 crowns.", "", ["Anker has rooms for 980 crowns."]),
        ("What is the price of a crown?", CLINIC, WEAK_EVIDENCE, []),
        ("How heavy is the filling?", CLINIC, WEAK_EVIDENCE, []),
        ("Wie ist die Telefonnummer von Petra Voss?", CLUB, WEAK_EVIDENCE, []),
        (
            "Wie ist die Telefonnummer von Petra Voss?",
            "Petra Voss hat die Zimmernummer 204 im Haus.",
            WEAK_EVIDENCE,
            [],
        ),
        ("Wie ist die Telefonnummer des Bootswarts?", CLUB, "", ["Bootswart ist Ali Demir, Telefon 030 803 44 21."]),
        ("What does the Friday cost?", CLINIC, WEAK_EVIDENCE, []),
        ("When is the rent due?", LEASE, "", ["The rent is 1,150 a month, due on the third working day."]),
        ("Who is the treasurer?", LEASE, WEAK_EVIDENCE, []),
        ("What is the salary of the accountant?", LEASE, WEAK_EVIDENCE, []),
        ("How do I return an aligner?", CLINIC, "1. Rinse it.", ["Rinse it.", "Post it in the box."]),
        ("What does the Solar 5 cost?", SHEET, "Price: 49 EUR", ["Price: 49 EUR"]),
        ("How long does charging take?", SHEET, "Charging", ["Charging time: 4 hours by day"]),
        ("What is excluded from cover?", COVER, "- Sport", ["Sport", "War"]),
        ("When does the pump start?", "The pump starts at 38 percent. The pump begins in May.", "The pump begins", []),
        ("What is Calmex used for?", LEAFLET, "It is used", ["It is used to treat migraine."]),
        ("What are the rare effects?", LEAFLET, "Rare", ["Rare (up to 1 in 1,000): rash, blurred sight"]),
        ("Does it run on Windows?", LEAFLET, "", ["Windows is a system it lacks."]),
        (
            "How old is Morag Tait?",
            "We run a ship for eleven people, said Morag Tait. She is chief.",
            WEAK_EVIDENCE,
            [],
        ),
        ("How old is Morag Tait?", "Morag Tait is 61 years old. She is chief.", "", ["Morag Tait is 61 years old."]),
        ("When was Calmex released?", "Calmex needs a stove of type 3.10 or newer.", WEAK_EVIDENCE, []),
        ("Who is the cook?", "name: Ada\nrole: lead\n\nname: Bob\nrole: cook", "", ["name: Bob\nrole: cook"]),
        ("Who works in Sales?", STAFF, "", ["Lena Petrov | Sales | 2020"]),
        ("Which version added dark mode?", RELEASES, "4.1", ["4.1 (January 2026)", "Added dark mode."]),
        ("When was 4.1 released?", RELEASES, "4.1 (January 2026)", ["4.1 (January 2026)"]),
        ("When was 4.3 released?", RELEASES, WEAK_EVIDENCE, []),
        ("When was Nadia Feldmann born?", VITA, "", [VITA.partition(" She")[0]]),
        ("Where was she born?", "Ada left in 1950. She was born in Graz.", "", ["She was born in Graz."]),
        ("When did Nadia Feldmann die?", VITA, "", [VITA.partition(" She")[0]]),
        ("When was Duarte Pinto born?", VITA, WEAK_EVIDENCE, []),
        ("When is the launch?", WORLD, "", ["The launch is planned for 16 June."]),
        ("When is the cellar opened?", WORLD, WEAK_EVIDENCE, []),
        ("May the tenant keep a dog?", WORLD, "", ["The tenant keeps a cat.", "Dogs are banned."]),
        ("Wie hoch ist das Gehalt?", JOB, "", ["Das Bruttogehalt beträgt 4.350 Euro im Monat."]),
        ("Wann ist Feiertag?", JOB, WEAK_EVIDENCE, []),
        ("Wann hat das Büro geöffnet?", JOB, "", ["Öffnungszeiten: Montag bis Freitag"]),
        ("Wann wurde Karl Brenner geboren?", JOB, WEAK_EVIDENCE, []),
        ("When was the hut torn down?", HUT, "It was torn", ["It was torn down past noonday."]),
        ("When is a filter purged?", HUT, "", ["Purging a filter happens at startup."]),
        ("When is a filter bought?", HUT, WEAK_EVIDENCE, []),
        ("Wann ist eine Kündigung möglich?", AMT, "", ["Die Kündigung ist zum Quartalsende möglich."]),
        ("How old is Pavel Novak?", CREW, "", ["The mate Pavel Novak is 27."]),
        ("How old is Lina Osei?", CREW, "", ["Lina Osei (34) counts foxes."]),
        ("How old is Ida Lund?", CREW, WEAK_EVIDENCE, []),
        ("When did Nils Aune die?", CREW, "", ["Nils Aune lost his life in the storm of 1911."]),
        ("When was Anders Aune born?", CREW, "", ["Anders Aune came into the world in May."]),
        ("What is the lamp used for?", LAMP, "", ["The lamp lights the channel for ships."]),
        ("When were offline maps added?", MAPS, "2.9 (1 March 2025)", ["2.9 (1 March 2025)", "Added offline maps."]),
        ("Since which version can layers be locked?", MAPS, "2.9", ["2.9 (1 March 2025)", "Layers can be locked."]),
        ("What is the difference between a lock and a dam?", WEIR, "", ["A dam holds water back; a lock lifts ships."]),
        ("Was ist der Unterschied zwischen einem Wehr und einer Schleuse?", WEHR, "", [WEHR.partition(". ")[2]]),
    ],
)
def test_the_answer_has_the_form_that_is_asked_for(query: str, text: str, headline: str, quotes: list[str]) -> None:
    language = "de" if text in (FARBEN, TOR, PUMPE, WEHR, KESSEL, CLUB, JOB, AMT) or "nummer" in text else "en"
    checked = ExtractiveAnswerer(local()).answer(query, [source("house", text, language=language)]).checked
    assert [each.quote for each in checked.citations][: len(quotes)] == quotes
    assert checked.answer.startswith(headline)


@pytest.mark.parametrize(
    ("query", "quoted"),
    [
        ("What is the allowance for dinner?", "Dinner | 25 EUR"),
        ("What does a yellow light mean?", "Yellow: updating; do not switch off"),
    ],
)
def test_what_is_named_is_quoted_alone(query: str, quoted: str) -> None:
    text = """## Meals

| meal | allowance |
|---|---|
| Breakfast | 12 EUR |
| Dinner | 25 EUR |

## Lights

- Green: connected
- Yellow: updating; do not switch off
- Red: no connection
"""
    checked = ExtractiveAnswerer(local()).answer(query, [source("house", text, language="en")]).checked
    assert [each.quote for each in checked.citations] == [quoted]


@pytest.mark.parametrize(
    ("query", "quotes"),
    [
        ("What is “House rules” about?", ["Rules keep the house quiet.", "Cats", "Noise"]),
        ("Worum geht es in „House rules“?", ["Rules keep the house quiet.", "Cats", "Noise"]),
        ("Summarize the house", ["Rules keep the house quiet.", "Cats", "Noise"]),
        ("What is “Noise” about?", ["Nobody sings at night.", "Bells are rung by day."]),
        ("What is the weather about?", []),
    ],
)
def test_an_overview_is_how_a_document_begins_and_its_headings(query: str, quotes: list[str]) -> None:
    first = "# House rules\n\nRules keep the house quiet.\n\n## Cats\n\nCats sleep outside.\n\n```\n# no heading\n```\n"
    second = "## Noise\n\nNobody sings at night. Bells are rung by day.\n\n### Bells\n\nThere are two."
    sources = [
        replace(source("docs/house.md", second, len(first), language="en"), context="House rules > Noise"),
        source("garden", GARDEN, language="en"),
        replace(source("docs/house.md", first, language="en"), context="House rules > Cats"),
    ]
    checked = ExtractiveAnswerer(local()).answer(query, sources).checked
    assert [each.quote for each in checked.citations] == quotes


@pytest.mark.parametrize(
    ("query", "doc_id", "quotes"),
    [
        ("How heavy is the EcoHeat 24?", "manual", ["Weight | 38 kg"]),
        ("How loud is the EcoHeat 24?", "manual", ["Sound level | 47 dB"]),
        ("What is the weight of the boiler?", "boiler-manual.md", ["Weight | 38 kg"]),
        ("What is the weight of the boiler?", "manual", []),
        ("What is the weight of the valve?", "boiler-manual.md", []),
    ],
)
def test_a_key_with_what_the_title_names_is_an_answer(query: str, doc_id: str, quotes: list[str]) -> None:
    rows = "| property | value |\n|---|---|\n| Output | 24 kW |\n| Weight | 38 kg |\n| Sound level | 47 dB |\n"
    text = f"{rows}\nOpen the valve of the boiler."
    given = replace(source(doc_id, text, language="en"), context="EcoHeat 24 > Technical data")
    checked = ExtractiveAnswerer(local()).answer(query, [given]).checked
    assert [each.quote for each in checked.citations] == quotes


@pytest.mark.parametrize(
    ("query", "quotes"),
    [
        ("How should Ontrel be stored?", ["Store in the refrigerator at 2 to 8 degrees."]),
        ("What is the dose of Ontrel for adults?", ["Adults take ten drops three times a day."]),
        ("How should Calmexin be stored?", ["Store below 25 degrees, away from light."]),
        ("Who wrote fastgrid?", ["Written by Jonas Petit in 2019 and kept by volunteers since."]),
        ("Who designed the logo of fastgrid?", []),
        ("What is the price of Ontrel?", []),
    ],
)
def test_what_is_asked_of_a_thing_stands_below_a_title_with_its_name(query: str, quotes: list[str]) -> None:
    texts = {
        "Calmexin leaflet": "Calmexin 20 mg tablets\n\nStore below 25 degrees, away from light.\n\n"
        "Adults take one tablet in the morning with water.",
        "Ontrel leaflet": "Ontrel 5 mg drops\n\nStore in the refrigerator at 2 to 8 degrees. "
        "Use within four weeks after opening.\n\nAdults take ten drops three times a day.",
        "fastgrid": "A small library that draws tables in a terminal, called fastgrid. "
        "Written by Jonas Petit in 2019 and kept by volunteers since.",
    }
    sources = [replace(source(title, text, language="en"), context=title) for title, text in texts.items()]
    checked = ExtractiveAnswerer(local()).answer(query, sources).checked
    assert [each.quote for each in checked.citations][:1] == quotes


CHANGES = (
    "# Changelog\n\n## 3.3.1 (2 February 2026)\n\n- Fixed a crash on empty messages.\n\n## 3.3.0 (20 January 2026)\n\n"
    "- Messages can be scheduled 35 days ahead instead of 7.\n- New templates for invoices.\n"
)
SURGEON = (
    "# Dr. Signe Lind\n\nHead of the department of orthopaedics since 2022. Born in Lund in 1981. She implants knees."
)
LOCKERS = (
    "# Lockers\n\nThe deposit for locker 17 is 5 pounds. The deposit for locker 42 is 10 pounds. There are 24 beds."
)


@pytest.mark.parametrize(
    ("query", "text", "quotes"),
    [
        ("When was version 3.3.0 released?", CHANGES, ["3.3.0 (20 January 2026)"]),
        ("What is new in version 3.3.0?", CHANGES, ["Messages can be scheduled 35 days ahead instead of 7."]),
        ("What is new in version 3.5.0?", CHANGES, []),
        ("Who heads orthopaedics?", SURGEON, ["Dr. Signe Lind"]),
        ("Which doctor implants knees?", SURGEON, ["Dr. Signe Lind"]),
        ("When was Signe Lind born?", SURGEON, ["Born in Lund in 1981."]),
        ("What is the deposit for locker 42?", LOCKERS, ["The deposit for locker 42 is 10 pounds."]),
        ("What is the deposit for locker 24?", LOCKERS, []),  # 24 is a number of beds
    ],
)
def test_a_heading_names_the_version_or_the_person_and_a_number_its_thing(
    query: str, text: str, quotes: list[str]
) -> None:
    title = text.partition("\n")[0].strip("# ")
    given = replace(source("page", text, language="en"), context=title)
    checked = ExtractiveAnswerer(local()).answer(query, [given]).checked
    assert [each.quote for each in checked.citations][:1] == quotes


def test_a_title_without_a_sentence_below_it_answers_nothing() -> None:
    sources = [
        replace(source("ontrel", "# Ontrel", language="en"), context="Ontrel"),
        replace(source("calmexin", "Adults take one tablet of it.", language="en"), context="Calmexin"),
    ]
    assert ExtractiveAnswerer(local()).answer("How should Ontrel be stored?", sources).abstained


@pytest.mark.parametrize(
    ("query", "is_answered"),
    [
        ("When does the café open?", True),
        ("When does the coffee bar open?", True),  # in other words
        ("When does the library open?", False),
        ("Who founded the clinic?", True),
        ("Who invested in the clinic?", False),
        ("Are rings allowed on the wards?", True),
        ("Are dogs allowed on the wards?", False),
    ],
)
def test_a_word_that_nothing_comes_near_to_is_not_answered_by_its_neighbour(query: str, is_answered: bool) -> None:
    text = "The clinic was founded by Jonna Aalto. The café opens at 8 am. Rings are not allowed on the wards."
    draft = ExtractiveAnswerer(local()).answer(query, [source("house", text, language="en")])
    assert draft.abstained is not is_answered


def test_a_birth_is_that_of_the_person_with_the_whole_name() -> None:
    sources = [
        replace(source("ann", "Ann Marsh is a cook. She was born in York.", language="en"), context="Ann Marsh"),
        replace(source("bob", "Bob Marsh paints. He was born in Leeds.", language="en"), context="Bob Marsh"),
    ]
    checked = ExtractiveAnswerer(local()).answer("Where was Bob Marsh born?", sources).checked
    assert [each.quote for each in checked.citations] == ["He was born in Leeds."]


@pytest.mark.parametrize(("title", "is_found"), [("RX-200 router manual", True), ("Bridge manual", False)])
def test_a_title_says_whose_weight_it_is(title: str, is_found: bool) -> None:
    text = "## Technical data\nPower: 12 V, 1.5 A. Weight: 310 g.\n\n## Reset\nTo reset the router, hold the button."
    given = replace(source("manual", text, language="en"), context=title)
    checked = ExtractiveAnswerer(local()).answer("What is the weight of the router?", [given]).checked
    assert [each.quote for each in checked.citations][:1] == ["Power: 12 V, 1.5 A. Weight: 310 g."] * is_found


@pytest.mark.parametrize(
    ("below", "quotes"),
    [
        ("Jakob ran it. It ground rye.", ["Jakob ran it.", "1850", "1900"]),
        ("| stone | age |\n|---|---|\n| upper | 9 years |", ["1850", "1900"]),
    ],
)
def test_an_overview_without_a_beginning_quotes_a_sentence_and_no_row(below: str, quotes: list[str]) -> None:
    text = f"# The Mill\n\n## 1850\n\n{below}\n\n## 1900\n\nA fire destroyed the roof."
    given = replace(source("mill", text, language="en"), context="The Mill")
    checked = ExtractiveAnswerer(local()).answer("What is the mill about?", [given]).checked
    assert [each.quote for each in checked.citations] == quotes


@pytest.mark.parametrize(
    ("query", "is_known"),
    [
        ("Who has led the band for 30 years?", True), ("Who has led the band for 50 years?", False),
        ("Does the hall close at 21:00?", True), ("Does the hall close at 9 p.m. or 22:00?", True),
        ("Is the roof repaired for 12400 euros?", True), ("Is the roof repaired for 12500 euros?", False),
        ("Is the roof repaired for 12.400 euros?", True),
    ],
)  # fmt: skip
def test_a_number_is_known_however_it_is_written(query: str, is_known: bool) -> None:
    text = (
        "Elsa Krantz has led the band for thirty years. The hall closes at 9 p.m. "
        "The roof is repaired for 12,400 euros. The laundry stays dry."
    )
    evidence = ExtractiveAnswerer(local()).answer(query, [source("band", text, language="en")]).evidence
    assert evidence is not None and (evidence > LACKING) == is_known


def test_what_follows_a_list_is_none_of_its_items() -> None:
    listed, lock = "The keys are:\n- red\n- old.", "The lock is brass."
    chosen = [Sentence(0, 0, len(listed), listed), Sentence(0, len(listed) + 1, len(listed) + 1 + len(lock), lock)]
    assert quote(chosen, [source("house", f"{listed} {lock}")]).answer.split(" [1]") == [listed, f"\n\n{lock}", ""]


@pytest.mark.parametrize(
    ("text", "language", "kind"),
    [
        ("When is it open?", "en", "date"), ("Tell me when it is open.", "en", "date"),
        ("What should I do when it rings?", "en", "way"), ("What happens when it rings?", "en", ""),
        ("What is a plan?", "en", "definition"), ("What costs a plan?", "en", ""), ("Was ist das?", "de", "definition"),
        ("¿Cómo se llamaba el caballo?", "es", ""), ("¿Cómo se abre?", "es", "way"), ("في اي فيلم ظهر؟", "ar", ""),
        ("What is the formula of BM25?", "en", "formula"),
    ],
)  # fmt: skip
def test_the_kind_of_answer_that_is_asked_for(text: str, language: str, kind: str) -> None:
    assert read_question(text, language).kind == kind


@pytest.mark.parametrize(
    ("query", "offers"),
    [
        (
            "What is a run?",
            {
                "A run is the record of all.": 1.0, "**Query run** (`run`). One record.": 1.0, "A run is kept.": 0.0,
                "Each run is an entry.": 0.0, "A long test run of mine is an entry.": 0.0, "A plan is a table.": 0.0,
            },
        ),
        (
            "What is the formula of fusion?",
            {"It adds `w / (k + r)`.": 2.0, "E = mc": 2.0, "**Fusion** with k = 60.": 0.0, "See docs/fusion.": 0.0},
        ),
    ],
)  # fmt: skip
def test_what_a_sentence_offers(query: str, offers: dict[str, float]) -> None:
    places = [Sentence(0, 0, 0, text) for text in offers]
    weighing = Weighing(read_question(query), [source("p", " ".join(offers))], places)
    assert weighing.order[:, ORDER.index("kind")].tolist() == list(offers.values())


def test_names_are_neither_the_first_word_nor_german_nouns() -> None:
    assert read_question("¿Qué hizo Florey en Oxford?", "es").names == ("Florey", "Oxford")
    question = read_question("Wer hat die Pumpe repariert?", "de")
    places = [Sentence(0, 0, 0, text) for text in ("Die Pumpe und der Motor.", "Es war Ada Holm.")]
    assert Weighing(question, [source("p", "Es")], places).order[:, ORDER.index("kind")].tolist() == [0.0, 1.0]
    assert [read_question(text).words for text in ("Who may see it?", "Wer muss es sehen?")] == [("see",), ("sehen",)]


def test_a_marker_inside_a_quotation_is_no_citation() -> None:
    draft = ExtractiveAnswerer(local()).answer("Where are the spare parts listed?", [source("pump", PUMP)])
    assert "spare parts [3]. [1]" in draft.checked.answer
    assert {item.marker for item in draft.checked.citations} == {1}


def test_markers_stand_where_the_citations_say() -> None:
    draft = ExtractiveAnswerer(local()).answer(
        "pump cleaned key water per minute", [source("pump", PUMP), source("r", PUMP_AGAIN)]
    )
    checked = draft.checked
    assert [checked.answer[item.answer_start : item.answer_end] for item in checked.citations] == [
        f"[{item.marker}]" for item in checked.citations
    ]
    assert [item.text for item in checked.sentences] == [f"{item.quote} [{item.marker}]" for item in checked.citations]
    assert all(item.supported for item in checked.sentences)


def test_words_weigh_more_the_rarer_they_are() -> None:
    sources = [source("p", PUMP), source("g", GARDEN)]
    sentences = read_sentences(sources)
    weighing = Weighing(read_question("pump hedge"), sources, sentences)
    share = {each.text: row[ORDER.index("words")] for each, row in zip(sentences, weighing.order, strict=True)}
    hedge = next(value for text, value in share.items() if "hedge" in text)
    pump = next(value for text, value in share.items() if "main pump" in text)
    assert hedge > pump > 0


@pytest.mark.parametrize(
    ("query", "language", "text", "held"),
    [
        ("متى توفي كاتب العراق؟", "ar", "وتوفي الكاتب بالعراق", [1, 1, 1]),  # "and", "in", the article
        ("棱须蓑鲉分布在", "zh", "棱须蓑鲉主要分布于印度洋", [1, 1, 1, 0.8, 1]),  # the pair of two words
        ("棱须蓑鲉分布在", "zh", "棱须蓑鲉生活于印度洋", [1, 1, 1, 0, 0]),
        ("Wie hoch ist das Gehalt?", "de", "Das Monatsgehalt steigt.", [0, 0.8]),
        ("ปลานี้อาศัย", "th", "ปลานี้ชอบอาศัย", [1, 1, 1, 0.8, 1, 1, 1]),
    ],
)
def test_forms_of_words_and_pairs_of_characters_are_found(
    query: str, language: str, text: str, held: list[float]
) -> None:
    matcher = Matcher(read_question(query, language).words, compounds=language == "de")
    assert matcher.match(content_words(text, language)).tolist() == held


def test_pairs_of_one_name_count_as_few_words() -> None:
    matcher = Matcher(("长齿", "齿锯", "锯犁", "犁鳗", "体长"))
    held = [
        matcher.match(content_words(text, "zh")) for text in ("长齿锯犁鳗，鳗的一种", "体长可达76公分", "分布于大西洋")
    ]
    assert matcher.share(np.array(held)).tolist() == [0.5, 0.5, 0.5, 0.5, 1.0]
    assert matcher.share(np.zeros((1, 5))).tolist() == [1.0] * 5  # what no sentence holds is no name


def test_stems_drop_stop_words_and_endings() -> None:
    assert stems("What are the Collections' embedded policies?") == {"collection", "embedd", "polic"}


def test_nothing_is_chosen_from_nothing() -> None:
    assert choose_sentences([]) == []


TEXTS = st.text(alphabet=st.sampled_from("abcdefg .:!?\n[1]#`*-é天"), max_size=300)


@settings(max_examples=100)
@given(TEXTS, st.lists(TEXTS, max_size=4))
def test_every_quotation_is_an_exact_slice(query: str, contents: list[str]) -> None:
    titles = query.split() or [""]  # each source is called like a word of the question
    sources = [
        replace(source(f"d{number}", text, start=number * 1000), context=titles[number % len(titles)])
        for number, text in enumerate(contents)
    ]
    answerer = ExtractiveAnswerer(WordEmbedder(), evidence_min=0.0)
    draft = answerer.answer(query, sources)
    for item in draft.checked.citations:
        cited = sources[item.marker - 1]
        assert cited.content[item.start - cited.start : item.end - cited.start] == item.quote
    assert answerer.answer(query, sources) == draft
