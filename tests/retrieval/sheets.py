"""Generated sheets with questions whose counts are known, and questions that have to be declined."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

DEPARTMENTS = ("Sales", "IT", "Human Resources", "R&D", "Legal")
CITIES = ("Berlin", "St. Gallen", "Paris", "New York")
STATUSES = ("open", "closed", "in progress")
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Question:
    """rows: the numbers of the rows that it asks for."""

    text: str
    rows: tuple[int, ...]


def make_staff(count: int = 240, seed: int = 1) -> Rows:
    chance = random.Random(seed)
    return [
        {
            "Name": f"Person {number}",
            "Department": chance.choice(DEPARTMENTS[:4]),
            "City": chance.choice(CITIES),
            "Hired": f"{chance.randint(2015, 2024)}-0{chance.randint(1, 9)}-1{chance.randint(0, 9)}",
            "Salary": str(chance.randrange(30, 120) * 1000),
            "unit_number": str(chance.randint(1, 9)),
        }
        for number in range(count)
    ]


def make_tickets(count: int = 180, seed: int = 2) -> Rows:
    chance = random.Random(seed)
    return [
        {
            "Ticket": f"T-{number:04}",
            "Status": chance.choice(STATUSES),
            "Priority": str(chance.randint(1, 5)),
            "From": chance.choice(CITIES[:2]),
            "To": chance.choice(CITIES[1:]),
            "Note": chance.choice(("", "call back", "x | y")),
        }
        for number in range(count)
    ]


def as_markdown(rows: Rows) -> str:
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    written = ["| " + " | ".join(value.replace("|", "\\|") for value in line) + " |" for line in lines]
    return "\n".join([written[0], "|" + " --- |" * len(rows[0]), *written[1:]])


def questions(staff: Rows, tickets: Rows) -> tuple[list[Question], list[Question]]:
    """(over the staff, over the tickets)."""
    return _staff_questions(staff), _ticket_questions(tickets)


def _which(rows: Rows, test: Callable[[dict[str, str]], bool]) -> tuple[int, ...]:
    return tuple(number for number, row in enumerate(rows) if test(row))


def _staff_questions(rows: Rows) -> list[Question]:
    found = [Question("How many staff are there?", _which(rows, lambda row: True))]
    for name in DEPARTMENTS[:4]:
        chosen = _which(rows, lambda row, name=name: row["Department"] == name)  # type: ignore[misc]
        forms: Sequence[str] = (
            "How many staff are in the {} department?", "How many rows have department {}?",
            "Count all staff where Department is {}.", "What is the number of staff with department = {}?",
            "List all staff in {}", "Wie viele Zeilen haben Department {}?", 'Show me all rows with department "{}"',
        )  # fmt: skip
        found += [Question(form.format(name), chosen) for form in forms]
    for city in CITIES:
        chosen = _which(rows, lambda row, city=city: row["City"] == city)  # type: ignore[misc]
        found.append(Question(f"How many staff are from {city}?", chosen))
        found.append(Question(f"Liste alle Zeilen mit City {city} auf", chosen))
    for limit in (50000, 90000, 500000):
        above = _which(rows, lambda row, limit=limit: int(row["Salary"]) > limit)  # type: ignore[misc]
        found.append(Question(f"How many staff have a salary over {limit}?", above))
        found.append(Question(f"Wie viele Zeilen haben Salary mehr als {limit}?", above))
    found += [
        Question("How many staff were hired after 2020-01-01?", _which(rows, lambda row: row["Hired"] > "2020-01-01")),
        Question("How many staff have unit number 3?", _which(rows, lambda row: row["unit_number"] == "3")),
        Question("How many staff have unit number at least 3 and city Paris?",
                 _which(rows, lambda row: row["unit_number"] >= "3" and row["City"] == "Paris")),
        Question("How many staff are in Sales or IT?", _which(rows, lambda row: row["Department"] in ("Sales", "IT"))),
        Question("How many names have city Paris?", _which(rows, lambda row: row["City"] == "Paris")),
    ]  # fmt: skip
    return found


def _ticket_questions(rows: Rows) -> list[Question]:
    found = []
    for status in STATUSES:
        chosen = _which(rows, lambda row, status=status: row["Status"] == status)  # type: ignore[misc]
        found += [
            Question(f"How many {status} tickets are there?", chosen),
            Question(f"How many tickets have status {status}?", chosen),
            Question(f"Wie viele Zeilen haben Status {status}?", chosen),
            Question(f"List all tickets with status = {status} and priority >= 3",
                     tuple(n for n in chosen if int(rows[n]["Priority"]) >= 3)),
        ]  # fmt: skip
    found += [
        Question("How many tickets have from Berlin?", _which(rows, lambda row: row["From"] == "Berlin")),
        Question("How many tickets have note x | y?", _which(rows, lambda row: row["Note"] == "x | y")),
        Question("How many tickets have priority 5?", _which(rows, lambda row: row["Priority"] == "5")),
    ]
    return found


# each would be answered wrongly, or by a guess, from some rows
TRAPS = (
    "How many staff are not in Sales?", "How many different cities are there?", "How many staff per department?",
    "How many people from Berlin like tea?", "How many staff are in the Marketing department?",
    "How many cities have department Sales?", "How many staff earn the highest salary?",
    "How many tickets are from St. Gallen to Narnia?", "How many tickets mention St. Gallen?",
    "How many rows have 3?", "How many staff have salary about 50000?", "How many staff in Sales and IT?",
    "How many staff have department Sales or city Paris?", "List all staff except Sales",
    "List all staff with the same department", "How many staff are on average in Sales?",
    "How many staff were hired before the pandemic?", "How many tickets have priority over medium?",
    "How many opens are there?", "How many staff have no city?", "How many staff have salary between 1 and 2?",
    "How many units did Person 3 sell?", "Wie viele Zeilen haben nicht Department Sales?",
)  # fmt: skip
# what a text says, and no table of these
ELSEWHERE = ("How many litres does the pump move per minute?", "List all keys of the warden", "How does the pump work?")
