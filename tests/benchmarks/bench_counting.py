"""Counting: exact counts and complete lists over generated sheets, and traps that have to be declined.

Run: RAGD_VAR=/tmp/counting python -m tests.benchmarks.bench_counting [--seeds 3]

An answer is exact when its rows are those that were asked for, no more and no fewer. Any other answer is
wrong; target 0. Then the same of questions that were not written together with the code.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import psycopg

from ragd import chunk, index
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.types import ChunkPolicy, RetrievePlan
from retrieval_app.counting.answers import Count, count
from tests.benchmarks.bench_peers import running_database
from tests.benchmarks.counting_questions import QUESTIONS, make_tables
from tests.builders import WordEmbedder
from tests.retrieval.sheets import TRAPS, Rows, as_markdown, make_staff, make_tickets, questions

OUTCOMES = ("exact", "declined", "asked of the texts", "WRONG")
SET_TEXT = "UPDATE documents SET text = %s, title = %s, size_chars = %s WHERE collection_id = %s AND doc_id = %s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    outcomes: Counter[str] = Counter()
    took_ms: list[float] = []
    with running_database() as (url, _), psycopg.connect(url) as connection:
        for seed in range(arguments.seeds):
            staff, tickets = make_staff(seed=10 + seed), make_tickets(seed=20 + seed)
            store = load(
                connection,
                f"sheets{seed}",
                ("hr/staff.csv", "Staff", as_markdown(staff)),
                ("tickets.xlsx", "", f"## Tickets\n\n{as_markdown(tickets)}"),
            )
            for rows, asked in zip((staff, tickets), questions(staff, tickets), strict=True):
                for question in asked:
                    outcomes[ask(store, question.text, rows, question.rows, took_ms)] += 1
            for text in TRAPS:
                found = count(text, RetrievePlan(), store)
                outcomes["trap declined" if found and found.declined else "trap ANSWERED"] += 1
        others = ask_others(connection)
    asked_count = outcomes["exact"] + outcomes["declined"] + outcomes["WRONG"]
    print(f"{asked_count} questions: {outcomes['exact']} exact ({outcomes['exact'] / asked_count:.1%}), "
          f"{outcomes['declined']} declined, {outcomes['WRONG']} wrong (target 0)")  # fmt: skip
    print(
        f"{outcomes['trap declined'] + outcomes['trap ANSWERED']} traps: "
        f"{outcomes['trap ANSWERED']} answered (target 0)"
    )
    print(f"{others.total()} others: " + ", ".join(f"{others[name]} {name}" for name in OUTCOMES) + " (target 0 wrong)")
    print(f"median {sorted(took_ms)[len(took_ms) // 2]:.0f} ms, slowest {max(took_ms):.0f} ms")


def ask_others(connection: psycopg.Connection[Any]) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    tables = make_tables()
    store = load(
        connection,
        "others",
        ("sales/orders_2023.csv", "Orders 2023", as_markdown(tables["orders"])),
        ("verein/mitglieder.csv", "Mitgliederliste", as_markdown(tables["members"])),
        ("library.xlsx", "", f"## Books\n\n{as_markdown(tables['books'])}"),
    )
    for text, name, test in QUESTIONS:
        found = count(text, RetrievePlan(), store)
        if found is None or found.declined:
            outcomes["declined" if found else "asked of the texts"] += 1
        elif name is None or test is None:
            outcomes["WRONG"] += 1
        else:
            rows = tables[name]
            expected = tuple(number for number, row in enumerate(rows) if test(row))
            outcomes["exact" if numbers_of(found, rows) == expected else "WRONG"] += 1
    return outcomes


def load(connection: psycopg.Connection[Any], name: str, *documents: tuple[str, str, str]) -> Store:
    """documents: (doc_id, title, text)."""
    create_collection(connection, name=name, embed_model="words", embed_dims=32)
    store = Store(connection, name, WordEmbedder(32))
    for doc_id, title, text in documents:
        index(
            [replace(piece, doc_id=doc_id) for piece in chunk(text, ChunkPolicy(target_tokens=160, overlap_tokens=32))],
            store,
        )
        connection.execute(SET_TEXT, [text, title, len(text), store.collection.id, doc_id])
    connection.commit()
    return store


def ask(store: Store, text: str, rows: Rows, expected: tuple[int, ...], took_ms: list[float]) -> str:
    began = time.perf_counter()
    found = count(text, RetrievePlan(), store)
    took_ms.append((time.perf_counter() - began) * 1000)
    if found is None or found.declined:
        print(f"  declined: {text} ({found and found.declined})")
        return "declined"
    got = numbers_of(found, rows)
    if got != expected:
        print(f"  WRONG: {text}: {len(got)} instead of {len(expected)}")
    return "exact" if got == expected else "WRONG"


def numbers_of(found: Count, rows: Rows) -> tuple[int, ...]:
    """Which rows of the sheet a count holds, by what it quotes."""
    places = {" | ".join(v.replace("|", "\\|") for v in row.values()).strip("| "): n for n, row in enumerate(rows)}
    return tuple(places.get(row.source.content[row.start : row.end], -1) for row in found.rows)


if __name__ == "__main__":
    main()
