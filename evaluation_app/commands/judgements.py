"""`manage.py ragd judgements`: what chat models said as judges and is kept, and to forget it."""

from __future__ import annotations

from argparse import ArgumentParser

from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.scoring.judgement_store import clear_stored, count_stored


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="forget them; the next run asks the model again")
    parser.add_argument("--model", default=None, help="with --clear: those of this model alone")


def run(options: Options) -> Answer:
    if options["model"] and not options["clear"]:
        raise UsageError("--model goes with --clear: it says whose judgements are forgotten")
    cleared = clear_stored(options["model"], actor=None) if options["clear"] else None
    stored = [
        {"model": each.model, "count": each.count, "oldest": each.oldest.isoformat(), "newest": each.newest.isoformat()}
        for each in count_stored()
    ]
    return {"cleared": cleared, "kept": stored}


def show(answer: Answer) -> str:
    lines = [] if answer["cleared"] is None else [f"{answer['cleared']} judgements forgotten."]
    lines += [
        f"{each['count']} judgements of {each['model']}, {each['oldest'][:10]} to {each['newest'][:10]}"
        for each in answer["kept"]
    ]
    return "\n".join(lines) or "No judgement is kept."
