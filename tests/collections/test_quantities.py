from __future__ import annotations

import pytest

from collections_app.domain.quantities import read_quantities

SAME = [
    ("24 months", "two years", "twenty-four months", "24 Monate"),
    ("3 %", "3 percent", "three percent", "drei Prozent", "3%"),
    ("1.250,50 Euro im Monat", "1250.50 € per month", "EUR 1,250.50 per month"),
    ("Die Dosis ist 1.200 mg", "a dose of 1,200 mg", "1.2 g of it", "1,2 g am Tag"),
    ("half a second", "500 ms", "0.5 s", "eine halbe Sekunde"),
    ("72 m²", "72 Quadratmeter", "72 qm"),
    ("$50,000", "50000 dollars", "USD 50,000"),
    ("zweimal am Tag", "twice a day", "2x täglich", "2 times per day"),
    ("25 °C", "25 Grad", "25 degrees Celsius", "77 °F"),
    ("three days", "72 hours", "3 Tage", "72 h"),
    ("3 hours 20 minutes", "200 minutes", "drei Stunden und 20 Minuten", "12000 s"),
    ("3,400 lamps", "three thousand four hundred lamps", "3400 Lampen", "dreitausendvierhundert Lampen"),
    ("one month", "Die Frist beträgt einen Monat", "innerhalb eines Monats", "1 month", "a limit of a month"),
    ("No more than 4 a day", "up to four, each day"),
    ("a quarter of an hour", "15 minutes", "eine Viertelstunde", "900 s"),
    ("a fortnight or more", "two weeks", "14 Tage"),
    ("one and a half hours", "anderthalb Stunden", "90 minutes", "an hour and a half"),
    ("two thirds", "2/3", "zwei Drittel", "66.7 per cent"),
    ("half of it", "die Hälfte", "50 Prozent", "one in two", "50 per cent"),
    ("zwölf Euro fünfzig", "12,50 Euro", "12 Euro 50"),
    ("four pounds fifty", "£4.50"),
    ("three dozen", "drei Dutzend", "36"),
    ("120 square metres", "hundertzwanzig qm", "120 m²"),
    ("2 cubic metres", "2000 litres", "2 m³"),
    ("three times an hour", "every 20 minutes", "3 times per hour"),
    ("free of charge", "kostenlos", "Es ist gratis", "It costs nothing", "Nichts."),
]
DATES = [
    (
        "3 May 2023", "May 3, 2023", "the 3rd of May 2023", "2023-05-03", "03.05.2023", "3. Mai 2023",
        "am dritten Mai 2023",
    ),
    ("18 Uhr", "6 pm", "18:00", "6 p.m."),
    ("Mondays", "montags", "am Montag"),
    ("31 March", "March 31st", "31.03.", "31.3."),
    ("half past six in the evening", "18:30", "halb sieben abends", "6:30 pm", "18 Uhr 30"),
    ("a quarter to ten in the morning", "9:45 am", "Viertel vor zehn vormittags", "9.45 Uhr"),
    ("noon", "12:00", "12 Uhr"),
    ("Monday to Friday", "weekdays", "montags bis freitags", "werktags", "Mo-Fr"),
    ("at weekends", "am Wochenende", "samstags und sonntags"),
]  # fmt: skip
OTHER = [
    ("100 degrees", "250 degrees"),
    ("30 days", "30 hours"),
    ("$5", "€5"),
    ("3.2 kg", "3.2 g"),
    ("5 employees", "6 employees"),
    ("the third day", "three days"),
    ("three times an hour", "every 30 minutes"),
    ("twice a month", "twice a year"),
    ("a third", "a quarter"),
    ("half a year", "anderthalb Jahre"),
]
OTHER_DATES = [
    ("half past seven", "half past eight"),
    ("halb sieben", "7:30 Uhr"),
    ("a quarter past ten", "a quarter to ten"),
    ("Monday to Friday", "Monday to Saturday"),
    ("weekdays", "weekends"),
    ("at seven in the morning", "7 pm"),
]


@pytest.mark.parametrize("texts", SAME)
def test_one_amount_is_read_however_it_is_written(texts: tuple[str, ...]) -> None:
    amounts = [read_quantities(text).quantities for text in texts]
    assert {len(each) for each in amounts} == {1}, amounts
    assert all(amounts[0][0].equals(each[0]) for each in amounts), amounts
    assert all(text[each.start : each.end] == each.text for text, (each,) in zip(texts, amounts, strict=True))


@pytest.mark.parametrize("texts", DATES)
def test_one_date_is_read_however_it_is_written(texts: tuple[str, ...]) -> None:
    dates = [read_quantities(text).dates for text in texts]
    assert {len(each) for each in dates} == {1}, dates
    assert len({each[0].parts for each in dates}) == 1, dates


def test_the_hours_of_a_range_share_one_mark() -> None:
    for text in ("von 12 bis 16 Uhr", "12 to 4 pm", "between 12 pm and 4 pm", "12:00-16:00"):
        assert [date.minute for date in read_quantities(text).dates] == [720, 960], text
    assert [date.minute for date in read_quantities("10 to 5 pm").dates] == [600, 1020]


@pytest.mark.parametrize("text", ["quarterly", "vierteljährlich", "alle drei Monate", "every 3 months", "pro Quartal"])
def test_one_period_is_read_however_it_is_written(text: str) -> None:
    assert read_quantities(text).periods == {"quarter"}
    assert read_quantities(text).quantities == ()


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_other_amounts_differ(one: str, other: str) -> None:
    assert not read_quantities(one).quantities[0].equals(read_quantities(other).quantities[0])


@pytest.mark.parametrize(("one", "other"), OTHER_DATES)
def test_other_times_differ(one: str, other: str) -> None:
    (here,), (there,) = (read_quantities(text).dates for text in (one, other))
    assert here.is_like(there)
    assert not here.equals(there)


def test_a_time_in_words_is_of_either_half_of_the_day() -> None:
    spoken, early, late = (read_quantities(text).dates[0] for text in ("halb sieben", "6:30 am", "18:30 Uhr"))
    assert spoken.equals(early)
    assert spoken.equals(late)
    assert not early.equals(late)


@pytest.mark.parametrize("text", ["ten to twelve members", "zweimal am Tag", "at 5 degrees"])
def test_numbers_beside_small_words_are_no_times(text: str) -> None:
    assert read_quantities(text).dates == ()


def test_names_with_digits_are_no_amounts() -> None:
    stated = read_quantities("CVE-2026-2332 at 192.168.1.1 needs v2.10.3")
    assert ([code for code, _, _ in stated.codes], stated.quantities) == (
        ["cve-2026-2332", "192.168.1.1", "v2.10.3"],
        (),
    )
