from __future__ import annotations

import pytest

from retrieval_app.answers.contradictions import find_contradictions, lead_of, unstated
from retrieval_app.answers.readings import read

AGREE = [
    ("Water boils at 100 degrees [1].", "The kettle boils water at 100 degrees."),
    ("Two years.", "The warranty lasts 24 months."),
    ("Bei maximal 25 Grad.", "Es ist bei höchstens 25 °C zu lagern."),
    ("Nicht über 25 Grad Celsius.", "Bei höchstens 25 °C."),
    ("No more than 30 s.", "It may run dry for at most half a minute."),
    ("By the third day of illness.", "No later than the third day of illness."),
    ("Telnet is not enabled.", "Telnet is disabled by default."),
    ("It came out on May 3, 2023.", "Version 2 was released on 03.05.2023."),
    ("Every endpoint but /health.", "All endpoints except /health."),
    ("Only small pets are allowed.", "Pets are not allowed, except small pets."),
    ("Within two weeks.", "No later than 14 days."),
    ("At least 20 minutes before the ship leaves.", "No later than 20 minutes before departure."),
    ("Mindestens zwei Tage vorher.", "Spätestens 48 Stunden im Voraus."),
    ("All pets apart from guide dogs travel in the hold.", "In the hold, with the exception of guide dogs."),
    ("From 12:00 to 16:00.", "It is open from 12 to 4 pm."),
    ("Ab 50 Prozent.", "Wer weniger als 50 Prozent erreicht, hat nicht bestanden."),
    ("Every 20 min, except on Sundays, when every 40 min.", "On Sundays every 40 minutes, else every 20 minutes."),
    ("Opening at half past seven on weekdays.", "Monday to Friday at 7:30 am."),
    ("Every 20 minutes.", "Three times an hour."),
    ("Alle sechs Monate.", "Zweimal im Jahr."),
    ("Halbjährlich.", "Zweimal im Jahr."),
    ("Zweimal, vorbestellte Medien ausgenommen.", "Zweimal, außer bei vorbestellten Medien."),
    ("Nur Lawinenhunde dürfen hinein, andere Hunde nicht.", "Keine Hunde, bis auf Lawinenhunde."),
    ("Außer am Reformationstag gibt es keine Probe.", "Es gibt keine Probe, mit Ausnahme des Reformationstags."),
    ("Roughly 12 m².", "About 12 square metres."),
    ("Guests train for nothing.", "Guests may train free of charge."),
    ("Flour (500 g) and salt (10 g).", "10 g salt and 500 g flour."),
    ("Text recognition is needed first.", "Where text recognition is not installed, the file fails."),
    ("Ein Schlüssel ist nötig.", "Der Schlüssel ist noch nicht vorhanden."),
    ("Use citric acid.", "Use citric acid at 3 percent; never use vinegar, because it attacks the seals."),
]
DIFFER = [
    ("number", "It boils at 250 degrees [1].", "The kettle boils water at 100 degrees.", "250 degrees", "100 degrees"),
    ("number", "1.200 mg am Tag.", "Die Höchstdosis beträgt 1.200 g am Tag.", "1.200 mg", "1.200 g"),
    ("number", "It uses port 8081.", "The server uses port 8080.", "8081", "8080"),
    ("number", "4 men work in Oslo.", "3 men work in Oslo.", "4", "3"),
    ("number", "保修期为12个月。", "保修期为24个月。", "12", "24"),
    ("number", "The limit is 3 %.", "The limit is 5 percent.", "3 %", "5 percent"),
    ("number", "Use 192.168.0.1 as the address.", "The address is 192.168.1.1.", "192.168.0.1", "192.168.1.1"),
    ("date", "It was signed on 9 July 2012.", "It was signed on July 9, 2021.", "9 July 2012", "July 9, 2021"),
    ("date", "Geöffnet am Montag.", "Geöffnet am Dienstag.", "Montag", "Dienstag"),
    ("period", "30 requests per minute.", "30 requests per hour.", None, None),
    ("name", "It was built by John Marlowe.", "It was built by Ann Marlowe.", "John", "Ann"),
    ("number", "78 Euro Nebenkosten, 14 Euro Miete.", "78 Euro Miete und 14 Euro Nebenkosten.", "78 Euro", "14 Euro"),
    ("date", "Monday to Saturday.", "Monday to Friday.", "Monday to Saturday", "Monday to Friday"),
    ("date", "At half past eight.", "It opens at half past seven.", "half past eight", "half past seven"),
    ("number", "Half of them.", "A third of them.", "Half of", "A third of"),
    ("number", "It costs £5.", "It is free of charge.", "£5", "free of charge"),
    ("number", "Every 30 minutes.", "Three times an hour.", "30 minutes", "Three times"),
    ("opposite", "Dogs are allowed, guide dogs excepted.", "Dogs are not allowed, guide dogs excepted.", None, None),
    ("opposite", "Only members.", "Members and guests.", None, None),
    ("opposite", "No, except small pets.", "No, not even small pets.", None, None),
    ("number", "Drei Stimmen.", "Eine Stimme.", None, None),
    ("opposite", "After 14 days.", "Within 14 days.", None, None),
    ("opposite", "Nach dem 15.09.2023.", "Bis zum 15. September 2023.", None, None),
    ("opposite", "People allergic to ibuprofen or with an ulcer.", "Only people allergic to ibuprofen.", None, None),
    ("opposite", "If they were locked.", "Even if they were not locked.", None, None),
    ("opposite", "Never use citric acid.", "Use citric acid; it is safe.", None, None),
    ("opposite", "No earlier than the third day.", "No later than the third day.", None, None),
    ("opposite", "At least 14 days in advance.", "At most 14 days in advance.", None, None),
    ("opposite", "Haustiere sind erlaubt.", "Haustiere sind nicht erlaubt.", None, None),
    ("opposite", "Text recognition is needed.", "Text recognition is not needed.", None, None),
    ("opposite", "Telnet is enabled by default.", "Telnet is disabled by default.", None, None),
    ("opposite", "The doors are unlocked at night.", "The doors are locked at night.", None, None),
]


@pytest.mark.parametrize(("claim", "source"), AGREE)
def test_the_same_in_other_words_is_no_contradiction(claim: str, source: str) -> None:
    assert find_contradictions(claim, source) == []
    assert find_contradictions(source, claim) == []


@pytest.mark.fault("F11")
@pytest.mark.parametrize(("kind", "claim", "source", "said", "told"), DIFFER)
def test_a_contradiction_says_what_the_source_has(
    kind: str, claim: str, source: str, said: str | None, told: str | None
) -> None:
    found = find_contradictions(claim, source)
    assert [item.kind for item in found] == [kind]
    if said is not None:
        assert (found[0].said, found[0].source) == (said, told)
        assert claim[found[0].start : found[0].end] == said
    assert find_contradictions(claim, claim) == find_contradictions(source, source) == []


def test_what_the_question_gives_need_not_stand_in_the_source() -> None:
    assert (
        find_contradictions(
            "After 30 minutes, 5 litres are left.", "5 litres remain after an hour.", "After 30 minutes?"
        )
        == []
    )
    missing = unstated(read("It holds 3 cups and 5 spoons."), [read("Three cups.")], read(""))
    assert [item.value for item in missing if not isinstance(item, str) and hasattr(item, "value")] == [5.0]


@pytest.mark.parametrize(
    ("question", "answer", "lead"),
    [
        ("Are backups allowed?", "Backups are allowed.", True),
        ("Are backups allowed?", "Backups are forbidden.", False),
        ("Enthält das Brot Nüsse?", "Das Brot ist frei von Nüssen.", False),
        ("Enthält das Brot Nüsse?", "Nein.", False),
        ("Is photography allowed?", "Photography is allowed without flash.", None),
        ("Which backups are allowed?", "Backups are allowed.", None),
        ("Are backups allowed?", "The office opens at nine.", None),
    ],
)
def test_a_sentence_that_repeats_its_question_says_yes_or_no(question: str, answer: str, lead: bool | None) -> None:
    assert lead_of(read(answer), read(question)) is lead


def test_an_answer_is_read_with_its_question() -> None:
    question = "What does the warranty not cover?"
    assert find_contradictions("Damage from limescale.", "It does not cover damage from limescale.", question) == []
    found = find_contradictions("Damage from limescale.", "It covers damage from limescale.", question)
    assert [item.kind for item in found] == ["opposite"]


EXCHANGED = [
    ("Who trains the new staff?", "The lifeguards.", "The lifeguards are trained by new staff."),
    ("Who pays for the fuel?", "The company.", "The driver pays the company for the fuel."),
    ("Wer löst wen ab?", "Alois Kern löst seine Schwester ab.", "Alois Kern wird von seiner Schwester abgelöst."),
    ("Who rents the barn from whom?", "Mr Ash rents it from the parish.", "Mr Ash rents it to the parish."),
]
NOT_EXCHANGED = [
    ("Who trains the new staff?", "The lifeguards.", "New staff are trained by the lifeguards."),
    ("Who pays for the fuel?", "The company.", "Fuel costs are borne by the company."),
    ("Wer löst wen ab?", "Alois Kern löst seine Schwester ab.", "Im Sommer löst Alois Kern seine Schwester ab."),
    ("Who rents the barn from whom?", "Mr Ash rents it from the parish.", "The parish rents it to Mr Ash."),
]


@pytest.mark.parametrize("row", [*EXCHANGED, *NOT_EXCHANGED])
def test_who_acts_and_who_is_acted_upon_are_told_apart(row: tuple[str, str, str]) -> None:
    question, expected, answer = row
    assert bool(find_contradictions(expected, answer, question)) == (row in EXCHANGED)


HOSTILE = ("12 ", "[1 ", "a. ", "unless it is ", "May 3, ", "but not ", "5 per hour, ", "Aa ")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_row_of_parts_is_compared_in_its_time(piece: str) -> None:
    """Each part with each would not come back for minutes; a sentence as long is compared."""
    text = piece * (4_000 // len(piece))
    find_contradictions(text, "The oak is 40 metres high, and not on Mondays.")
    assert not find_contradictions(text, text)
    row = "The oak is 12 metres high" + ", that of 1903 is 7" * 20
    assert find_contradictions(row.replace("12", "13"), row)
