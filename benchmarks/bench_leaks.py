"""The leak probe at size: people, groups and documents with random access lists, and permissions that change meanwhile.

Run: python -m benchmarks.bench_leaks [--people 60] [--groups 30] [--documents 2000] [--questions 5000]

Each question is asked as a random person on the next channel of the probe, about a document that they may not read.
After every third question something changes: an access list, a membership, a role. In the last tenth of the questions
another thread takes people out of access lists at the same time; whatever was hidden when a question began stays so.
The truth is worked out in Python from grants and lists. Runs stay stored, so that pages and logs hold what people found
before something was taken from them.

With --words N it asks instead, in every mode with explanations and for completions, for N words: half stand in hidden
documents alone, half in open ones too. The answers must be byte-equal, ids and times masked, before the hidden
documents come, while they are there and once they were open in between.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

CHANGES_EVERY = 3
AIMED = 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=60)
    parser.add_argument("--groups", type=int, default=30)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--words", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        os.environ |= {"RAGD_VAR": folder, "RAGD_LOG_LEVEL": "ERROR", "DJANGO_SETTINGS_MODULE": "ragd_site.settings"}
        from ragd_site import embedded

        embedded.ensure_running(Path(folder))
        try:
            measure(arguments)
        finally:
            embedded.stop(Path(folder))


def measure(arguments: argparse.Namespace) -> None:
    import django
    from django.conf import settings

    settings.STORAGES |= {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    django.setup()
    logging.getLogger("django.request").setLevel(logging.ERROR)  # refusals are what is asked for
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", verbosity=0)
    if arguments.words:
        ask_words(arguments.words, arguments.seed)
        return
    from ragd_site.operations import leak_probe
    from tests.access.corpus import make_corpus

    began = time.perf_counter()
    corpus = make_corpus(
        people=arguments.people, groups=arguments.groups, documents=arguments.documents, seed=arguments.seed
    )
    print(f"corpus in {time.perf_counter() - began:.0f} s", flush=True)
    chance, report = random.Random(arguments.seed), leak_probe.ProbeReport("everybody")
    people: dict[int, leak_probe.Person] = {}
    stack = ExitStack()
    names, changes, refused, began = list(leak_probe.CHANNELS), 0, 0, time.perf_counter()
    ended, meanwhile = threading.Event(), Counter[str]()

    def keep_changing() -> None:
        while not ended.is_set():
            corpus.take_something()
            meanwhile["changes"] += 1
            ended.wait(0.02)
        connections.close_all()

    beside = threading.Thread(target=keep_changing)
    for number in range(arguments.questions):
        user = chance.choice(corpus.people)
        if user.pk not in people:
            people[user.pk] = stack.enter_context(leak_probe.Person(user).opened())
        collection = chance.choice(corpus.collections)
        before = leak_probe.what_may_be_read(user, collection)
        aimed = chance.sample(sorted(before.hidden), min(AIMED, len(before.hidden)))
        target = aimed[0] if aimed else min(before.readable, default="")
        name = names[number % len(names)]
        ask, marks = leak_probe.CHANNELS[name], leak_probe.Marks(before, aimed)
        question = leak_probe.question_about(collection, target, chance)
        if number == arguments.questions * 9 // 10:
            beside.start()
        if beside.is_alive():
            told = ask(people[user.pk], collection, question, target)
            report.asked += 1
            leaked = (marks.found_in(told.body) | set(told.doc_ids or ())) & before.hidden
            meanwhile["leaks"] += len(leaked)
        else:
            leak_probe.ask_once(report, people[user.pk], marks, (name, ask), question, target)
        refused += not before.enters
        if number % CHANGES_EVERY == 0:
            corpus.change_something()
            changes += 1
        if number % 500 == 499:
            print(
                f"{number + 1:,} questions in {time.perf_counter() - began:.0f} s: {len(report.leaks)} leaks,"
                f" {len(report.missing)} missing",
                flush=True,
            )
    ended.set()
    beside.join()
    stack.close()
    connections.close_all()
    print(
        f"{arguments.people} people, {arguments.groups} groups, {arguments.documents:,} documents;"
        f" {report.asked:,} questions on {len(names)} channels, {refused:,} of them in a collection that the person may"
        f" not see; {changes:,} changes between questions and {meanwhile['changes']:,} during them"
    )
    print(f"{'leaks':30} {len(report.leaks) + meanwhile['leaks']:6,}  (target: 0)")
    print(f"{'readable results missing':30} {len(report.missing):6,}  (target: 0)")
    for leak in report.leaks[:20]:
        print(f"  {leak.channel}: {leak.doc_id} in {leak.collection}, asked {leak.question!r}")
    for channel, question in report.missing[:20]:
        print(f"  missing on {channel}: {question!r}")


def ask_words(count: int, seed: int) -> None:
    from tests.access.oracle import OTHERS, SEARCHES, Oracle

    chance = random.Random(seed)
    words = ["".join(chance.choices("bdfgklmnprstvz", k=1) + chance.choices("aeiou", k=1)) for _ in range(8 * count)]
    words = list(dict.fromkeys("".join(words[place : place + 4]) for place in range(0, len(words), 4)))[:count]
    shown = words[: len(words) // 2]

    def texts(name: str, own: list[str], documents: int) -> dict[str, str]:
        return {
            f"{name}{place}": f"The report of the harbour tells of {', '.join(own[place::documents])}."
            for place in range(documents)
        }

    began = time.perf_counter()
    oracle = Oracle(texts("open", shown, 40), texts("hidden", words, 40))
    before = oracle.told(words, SEARCHES) | oracle.told(words[:20], OTHERS)
    for change in (oracle.hide, oracle.open_and_hide_again):
        change()
        after = oracle.told(words, SEARCHES) | oracle.told(words[:20], OTHERS)
        differing = sorted({channel for channel, word in before if before[channel, word] != after[channel, word]})
        changed = sum(before[key] != after[key] for key in before)
        print(
            f"{change.__name__}: {len(words):,} words, {len(before):,} answers on {len(SEARCHES | OTHERS)} channels,"
            f" {changed:,} differ {', '.join(differing)} (target: 0); {time.perf_counter() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
