"""Pairs of passages that disagree, and pairs that only look so, made of templates: one set to develop on, one held out.

Each set is a list of (text of a document, text of another, whether they disagree). Every pair is about a subject of its
own, and the documents of all pairs are looked through together, so that a disagreement between two pairs is a mistake.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    first: str
    second: str
    disagree: bool
    kind: str


@dataclass(frozen=True, slots=True)
class Templates:
    """Of each: (first, second). {s} is the subject, {a} and {b} two numbers that differ, {x} and {y} two years."""

    subjects: Sequence[str]
    disagree: Sequence[tuple[str, str, str]]  # kind, first, second
    agree: Sequence[tuple[str, str, str]]


DEVELOPMENT = Templates(
    subjects=tuple(
        f"{one} {other}"
        for one in ("travel", "parking", "laptop", "canteen", "visitor", "training", "overtime", "library")
        for other in ("allowance", "permit", "contract", "locker", "badge", "budget", "form", "voucher")
    ),
    disagree=(
        (
            "number",
            "The {s} is valid for {a} days after it was issued.",
            "After it was issued, the {s} is valid for {b} days.",
        ),
        (
            "number",
            "Employees get a {s} worth {a} euros per month.",
            "Every month employees get a {s} worth {b} euros.",
        ),
        (
            "number",
            "A request for the {s} is answered within {a} hours by the office.",
            "The office answers a request for the {s} within {b} hours.",
        ),
        ("number", "At most {a} people may share one {s}.", "One {s} may be shared by at most {b} people."),
        ("date", "The rules of the {s} were last changed in {x}.", "The {s} rules were last changed in {y}."),
        ("date", "Applications for the {s} close on 3 May {x}.", "For the {s}, applications close on 9 June {x}."),
        ("negation", "The {s} can be transferred to a colleague.", "The {s} cannot be transferred to a colleague."),
        (
            "negation",
            "Managers must sign the {s} before it is used.",
            "Managers must not sign the {s} before it is used.",
        ),
    ),
    agree=(
        (
            "same",
            "The {s} is valid for {a} days after it was issued.",
            "After it was issued, the {s} is valid for {a} days.",
        ),
        (
            "converted",
            "A request for the {s} is answered within 48 hours by the office.",
            "The office answers a request for the {s} within 2 days.",
        ),
        (
            "other thing",
            "Employees get a {s} worth {a} euros per month.",
            "Contractors of partner firms get no {s}, but a flat {b} euros per project.",
        ),
        ("other part", "The {s} has {a} pages and a red cover.", "The appendix to the {s} has {b} pages and no cover."),
        ("both denied", "The {s} is not refunded after the trip.", "After the trip the {s} is not refunded."),
        ("other event", "The {s} was introduced in {x}.", "The {s} was abolished in {y}."),
        ("other bound", "The {s} takes at least {a} days to arrive.", "The {s} takes at most {b} days to arrive."),
        ("other unit", "The {s} costs {a} euros.", "The {s} is {b} millimetres wide and costs little."),
    ),
)
HELD_OUT = Templates(
    subjects=tuple(
        f"{one} {other}"
        for one in ("pump", "boiler", "scanner", "drone", "freezer", "turbine", "camera", "sensor")
        for other in ("filter", "gasket", "cable", "licence", "firmware", "valve", "adapter", "warranty")
    ),
    disagree=(
        ("other words", "The {s} lasts {a} years.", "Its maker gives the {s} a service life of {b} years."),
        ("other words", "Nobody may open the {s}.", "Customers are free to open the {s} by themselves."),
        ("number", "Replace the {s} every {a} months.", "The {s} should be replaced every {b} months."),
        ("number", "The maximum load of the {s} is {a} kg.", "The {s} carries a maximum load of {b} kg."),
        (
            "number",
            "A {s} ships in {a} working days and comes with a manual.",
            "A {s} comes with a manual and ships in {b} working days.",
        ),
        (
            "number",
            "Before storage the {s} must cool down to {a} °C.",
            "The {s} must cool down to {b} °C before storage.",
        ),
        ("date", "Support for the {s} ends on {x}-06-30.", "On {x}-09-30 support for the {s} ends."),
        (
            "date",
            "Production of the {s} began in {x} in our plant.",
            "In our plant, production of the {s} began in {y}.",
        ),
        (
            "negation",
            "The {s} is covered by the insurance of the customer.",
            "The {s} is not covered by the insurance of the customer.",
        ),
        ("negation", "Never open the {s} while the machine runs.", "Open the {s} while the machine runs."),
    ),
    agree=(
        (
            "other condition",
            "The {s} is delivered to the site within {a} days.",
            "Outside the country the {s} is delivered to the site within {b} days.",
        ),
        (
            "other thing",
            "The {s} of the small model weighs {a} kg.",
            "The {s} of the large model weighs {b} kg.",
        ),
        ("same", "The maximum load of the {s} is {a} kg.", "The {s} carries a maximum load of {a} kg."),
        ("converted", "The pipe behind the {s} is 1.5 m long.", "Behind the {s}, the pipe is 150 cm long."),
        ("other thing", "Replace the {s} every {a} months.", "Clean the housing around the {s} every {b} months."),
        ("other condition", "In summer the {s} runs {a} hours a day.", "In winter the {s} runs {b} hours a day."),
        ("both denied", "The {s} is not sold in shops.", "Shops do not sell the {s}, it is not sold there."),
        ("other event", "The {s} was patented in {x}.", "The {s} went on sale in {y}."),
        ("list", "Step 1: loosen {a} screws of the {s}.", "Step 2: tighten {b} screws of the {s} again."),
        ("other bound", "Leave at least {a} cm around the {s}.", "Leave at most {b} cm around the {s}."),
    ),
)


def make_pairs(templates: Templates, seed: int) -> list[Pair]:
    """One pair for each subject: half of them disagree."""
    draw = random.Random(seed)
    subjects = list(templates.subjects)
    draw.shuffle(subjects)
    pairs = []
    for number, subject in enumerate(subjects):
        disagree = number % 2 == 0
        options = templates.disagree if disagree else templates.agree
        kind, first, second = options[number // 2 % len(options)]
        a, b = draw.sample(range(3, 60), 2)
        x, y = draw.sample(range(1990, 2024), 2)
        values = {"s": subject, "a": a, "b": b, "x": x, "y": y}
        pairs.append(Pair(first.format(**values), second.format(**values), disagree, kind))
    return pairs
