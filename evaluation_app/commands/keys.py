"""`manage.py ragd create-key`."""

from __future__ import annotations

from argparse import ArgumentParser

from collections_app.services.governance.api_keys import create_key, expiry_after
from evaluation_app.commands.subcommand import Answer, Options


def add_key_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--label", required=True, help="what the key is for")
    parser.add_argument("--scope", choices=("read", "write"), default="write")
    parser.add_argument(
        "--collection", action="append", default=[], help="limit the key to this collection; repeatable"
    )
    parser.add_argument(
        "--expires-days", type=int, default=None, help="days until the key ends, at most 3652; never when left out"
    )


def run_create_key(options: Options) -> Answer:
    days = options["expires_days"]
    key, secret = create_key(
        options["label"],
        scope=options["scope"],
        collections=options["collection"],
        expires_at=None if days is None else expiry_after(days),
    )
    expires_at = key.expires_at.isoformat() if key.expires_at else None
    limits = list(key.collections)
    return {
        "label": key.label,
        "scope": key.scope,
        "collections": limits,
        "expires_at": expires_at,
        "secret_once": secret,
    }


def show_key(answer: Answer) -> str:
    return f"{answer['secret_once']}\nThis is the only time that the secret of {answer['label']!r} is shown."
