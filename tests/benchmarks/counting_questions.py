"""Three made tables with questions for numbers and lists that were not written together with the code."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.retrieval.sheets import Rows

Test = Callable[[dict[str, str]], bool]


def make_tables(seed: int = 4711) -> dict[str, Rows]:
    chance = random.Random(seed)

    def day(first: int, last: int) -> str:
        return f"{chance.randint(first, last)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"

    orders = [
        {
            "Order": f"{10000 + number}",
            "Customer": chance.choice(["Acme GmbH", "Nordwind AG", "Blue Lake Ltd", "Zhao & Co"]),
            "Country": chance.choice(["Germany", "France", "Japan", "Brazil"]),
            "Product": chance.choice(["Pump", "Valve", "Filter", "Hose"]),
            "Quantity": str(chance.randint(1, 40)),
            "Unit price": f"{chance.randint(5, 500)}.{chance.randint(10, 99)}",
            "Shipped": chance.choice(["yes", "no"]),
            "Order date": day(2023, 2023),
        }
        for number in range(150)
    ]
    members = [
        {
            "Mitgliedsnummer": f"M{number:03}",
            "Nachname": chance.choice(["Müller", "Schäfer", "Yılmaz", "Weiß", "Nowak"]),
            "Ort": chance.choice(["Köln", "Bonn", "Aachen", "Düren"]),
            "Sparte": chance.choice(["Tennis", "Fußball", "Turnen", "Schwimmen"]),
            "Beitrag": chance.choice(["60", "90", "120"]),
            "Eintritt": day(1990, 2024),
            "Status": chance.choice(["aktiv", "passiv", "gekündigt"]),
        }
        for number in range(120)
    ]
    books = [
        {
            "Title": f"Book {number}",
            "Author": chance.choice(["Le Guin", "Lem", "Eco", "Woolf"]),
            "Genre": chance.choice(["novel", "essay", "science fiction"]),
            "Year": str(chance.randint(1920, 2010)),
            "Pages": str(chance.randint(90, 700)),
            "Language": chance.choice(["English", "Polish", "Italian"]),
            "Available": chance.choice(["yes", "no"]),
        }
        for number in range(90)
    ]
    return {"orders": orders, "members": members, "books": books}


# (question, its table, the rows that it asks for); None, None: what no rows of these answer
QUESTIONS: list[tuple[str, str | None, Test | None]] = [
    ("How many orders came from Germany?", "orders", lambda r: r["Country"] == "Germany"),
    ("How many orders did Nordwind AG place?", "orders", lambda r: r["Customer"] == "Nordwind AG"),
    ("How many orders have not been shipped?", "orders", lambda r: r["Shipped"] == "no"),
    ("How many orders were shipped?", "orders", lambda r: r["Shipped"] == "yes"),
    ("How many orders with quantity above 30 are there?", "orders", lambda r: int(r["Quantity"]) > 30),
    ("How many pumps were ordered by Acme GmbH?", None, None),
    ("How many orders are for a valve?", "orders", lambda r: r["Product"] == "Valve"),
    (
        "Count the orders from Japan with product Filter",
        "orders",
        lambda r: r["Country"] == "Japan" and r["Product"] == "Filter",
    ),
    (
        "List all orders from Brazil placed after 2023-09-30",
        "orders",
        lambda r: r["Country"] == "Brazil" and r["Order date"] > "2023-09-30",
    ),
    ("How many orders were placed in March 2023?", "orders", lambda r: r["Order date"].startswith("2023-03")),
    ("How many customers do we have?", None, None),
    ("How many countries are in the orders?", None, None),
    ("How many orders had a unit price of at least 250?", "orders", lambda r: float(r["Unit price"]) >= 250),
    ("What is the total quantity of pumps?", None, None),
    ("How many orders from Germany or France are there?", "orders", lambda r: r["Country"] in ("Germany", "France")),
    ("How many orders from Germany and France are there?", "orders", lambda r: r["Country"] in ("Germany", "France")),
    (
        "How many orders has Zhao & Co made since 2023-06-01?",
        "orders",
        lambda r: r["Customer"] == "Zhao & Co" and r["Order date"] >= "2023-06-01",
    ),
    ("Show all orders of Blue Lake Ltd", "orders", lambda r: r["Customer"] == "Blue Lake Ltd"),
    ("How many orders are there in 2023?", "orders", lambda r: True),
    ("How many orders?", "orders", lambda r: True),
    ("How many books are there in the library?", "books", lambda r: True),
    ("How many books by Lem do we own?", "books", lambda r: r["Author"] == "Lem"),
    ("How many novels were published before 1950?", "books", lambda r: r["Genre"] == "novel" and int(r["Year"]) < 1950),
    ("How many books have more than 400 pages?", "books", lambda r: int(r["Pages"]) > 400),
    (
        "How many books in Polish are available?",
        "books",
        lambda r: r["Language"] == "Polish" and r["Available"] == "yes",
    ),
    ("How many pages does Book 7 have?", None, None),
    (
        "How many books are science fiction and available yes?",
        "books",
        lambda r: r["Genre"] == "science fiction" and r["Available"] == "yes",
    ),
    ("How many English books are there?", "books", lambda r: r["Language"] == "English"),
    ("List all essays", "books", lambda r: r["Genre"] == "essay"),
    ("How many books with year 1984?", "books", lambda r: r["Year"] == "1984"),
    ("Wie viele Mitglieder hat der Verein?", "members", lambda r: True),
    ("Wie viele Mitglieder wohnen in Köln?", "members", lambda r: r["Ort"] == "Köln"),
    ("Wie viele Mitglieder sind passiv?", "members", lambda r: r["Status"] == "passiv"),
    ("Wie viele aktive Mitglieder gibt es?", "members", lambda r: r["Status"] == "aktiv"),
    ("Wie viele Mitglieder zahlen einen Beitrag von 120?", "members", lambda r: r["Beitrag"] == "120"),
    ("Wie viele Mitglieder spielen Tennis?", "members", lambda r: r["Sparte"] == "Tennis"),
    (
        "Wie viele Zeilen mit Sparte Turnen und Ort Bonn gibt es?",
        "members",
        lambda r: r["Sparte"] == "Turnen" and r["Ort"] == "Bonn",
    ),
    ("Wie viele Mitglieder sind nach 2015 eingetreten?", "members", lambda r: r["Eintritt"] >= "2016"),
    ("Wie viele Mitglieder sind seit 2015-01-01 eingetreten?", "members", lambda r: r["Eintritt"] >= "2015-01-01"),
    ("Nenne alle Mitglieder mit Nachname Yılmaz", "members", lambda r: r["Nachname"] == "Yılmaz"),
    ("Wie viele Orte gibt es?", None, None),
    (
        "Wie viele Mitglieder haben Beitrag über 60 und Status aktiv?",
        "members",
        lambda r: int(r["Beitrag"]) > 60 and r["Status"] == "aktiv",
    ),
    ("Zähle alle Mitglieder aus Aachen", "members", lambda r: r["Ort"] == "Aachen"),
    ("Wie viele Mitglieder kommen nicht aus Köln?", "members", lambda r: r["Ort"] != "Köln"),
    ("Wie viele Tennisspieler hat der Verein?", None, None),
    ("Wie viele Mitglieder mit Ort Köln oder Bonn gibt es?", "members", lambda r: r["Ort"] in ("Köln", "Bonn")),
    (
        "Liste alle Mitglieder aus Düren auf, die gekündigt sind",
        "members",
        lambda r: r["Ort"] == "Düren" and r["Status"] == "gekündigt",
    ),
    ("How many members are from Bonn?", "members", lambda r: r["Ort"] == "Bonn"),
    ("How many orders have no valve?", None, None),
    ("How many orders from Germany have no pump?", None, None),
    ("How many orders have shipped no?", "orders", lambda r: r["Shipped"] == "no"),
    ('How many orders have "no"?', "orders", lambda r: r["Shipped"] == "no"),
    (
        "How many orders with shipped = no and country Japan?",
        "orders",
        lambda r: r["Shipped"] == "no" and r["Country"] == "Japan",
    ),
    ("How many orders are no pumps?", None, None),
    ("How many orders are there by country?", None, None),
    ("How many orders over 30?", None, None),
    ("How many orders with quantity 5 to 10?", None, None),
    ("How many orders have quantity 5-10?", None, None),
    ("How many orders have quantity 30 or more?", None, None),
    ("How many orders with quantity under 5 or over 30?", None, None),
    ("How many books by author?", None, None),
    ("How many more orders are from Germany than from France?", None, None),
    ("How many orders are from Germany only?", None, None),
    ("How many orders except Germany?", None, None),
    ("How many customers from Germany have product Valve?", None, None),
    ("How many authors are there in the library?", None, None),
    ("How many novels does the library have?", None, None),
    ("List all orders from Germany with the product", None, None),
    ("How many orders are from the customer with country Germany?", "orders", lambda r: r["Country"] == "Germany"),
    ("How many orders have order date 2023?", None, None),
    ("How many orders have order date before 2023-02-01?", "orders", lambda r: r["Order date"] < "2023-02-01"),
    ("How many orders have unit price under 20.50?", "orders", lambda r: float(r["Unit price"]) < 20.5),
    ("How many orders have unit price over 1,000?", None, None),
    ("Wie viele Mitglieder haben keinen Ort?", None, None),
    ("Wie viele Mitglieder sind nicht aktiv?", None, None),
    ("Wie viele Mitglieder haben Status aktiv oder passiv?", "members", lambda r: r["Status"] in ("aktiv", "passiv")),
    ("Wie viele Mitglieder haben Ort Köln und Bonn?", None, None),
    ("Wie viele Mitglieder pro Ort gibt es?", None, None),
    ("Wie viele verschiedene Orte gibt es?", None, None),
    ("Wie viele Mitglieder haben einen Beitrag unter 90?", "members", lambda r: int(r["Beitrag"]) < 90),
    ("Wie viele Mitglieder haben Beitrag bis 90?", "members", lambda r: int(r["Beitrag"]) <= 90),
    ("Wie viele Mitglieder haben Eintritt nach 2015-12-31?", "members", lambda r: r["Eintritt"] > "2015-12-31"),
    ("Wie viele Mitglieder haben Eintritt vor 2000?", None, None),
    ("Wie viel Beitrag zahlt M003?", None, None),
    ("Nenne alle Sparten", None, None),
    ("Nenne alle Mitgliedsnummern", "members", lambda r: True),
    ("How many books have language English or genre novel?", None, None),
    ("How many books have 400 pages?", "books", lambda r: r["Pages"] == "400"),
    ("How many books have 100 or 200 pages?", None, None),
    ("How many books were not available?", None, None),
    ("How many books have available no?", "books", lambda r: r["Available"] == "no"),
    ("How many available books are there?", None, None),
    ("How many unavailable books are there?", None, None),
    ("How many books with title Book 7?", "books", lambda r: r["Title"] == "Book 7"),
    ("How many titles have author Eco?", "books", lambda r: r["Author"] == "Eco"),
]
