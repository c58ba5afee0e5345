"""`manage.py ragd receipt`, `receipt-key` and `verify`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from uuid import UUID

from evaluation_app.commands.subcommand import Answer, Options, UsageError
from ragd.errors import InvalidInput
from retrieval_app.models import QueryRun
from retrieval_app.receipts.receipts import make_receipt
from retrieval_app.receipts.signing import own_key, read_key
from retrieval_app.receipts.verification import read_receipt, verify


def add_receipt_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=UUID, metavar="RUN", help="the id of a stored run")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it to this file")


def run_receipt(options: Options) -> Answer:
    run = QueryRun.objects.filter(pk=options["run"]).first()
    if run is None:
        raise UsageError(f"there is no run {options['run']}")
    receipt = make_receipt(run)
    if options["output"]:
        try:
            options["output"].write_text(show_receipt(receipt), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the receipt cannot be written: {error}") from None
    return receipt


def show_receipt(answer: Answer) -> str:
    return json.dumps(answer, ensure_ascii=False, indent=1)


def run_key(_: Options) -> Answer:
    return own_key().as_dict()


def show_key(answer: Answer) -> str:
    return f"{answer['public_key']}  ({answer['algorithm']}, key {answer['key_id']})"


def add_verify_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("receipt", metavar="RECEIPT", help="the file of a receipt")
    parser.add_argument("--export", metavar="EXPORT", help="repeat the retrieval over this export of the collection")
    parser.add_argument("--key", metavar="KEY", help="the public key to trust, base64 or a file; this server's own")


def run_verify(options: Options) -> Answer:
    """{"run_id", "passed", "signature_valid", "repeated", "problems": [{"kind", "message"}]}."""
    try:
        receipt = read_receipt(options["receipt"])
        key = own_key() if options["key"] is None else read_key(_read_text(options["key"]))
    except InvalidInput as error:
        raise UsageError(error.message) from error
    if options["export"] and not Path(options["export"]).is_file():
        raise UsageError(f"there is no file {options['export']}")
    result = verify(receipt, key, options["export"])
    return {"passed": result.passed} | asdict(result)


def _read_text(key: str) -> str:
    return Path(key).read_text(encoding="utf-8") if len(key) < 256 and Path(key).is_file() else key


def show_verification(answer: Answer) -> str:
    lines = [f"{problem['kind']}: {problem['message']}" for problem in answer["problems"]]
    if answer["signature_valid"]:
        lines.insert(0, "The signature is valid.")
    if answer["repeated"] and answer["passed"]:
        lines.append("The export gives the same results with the same scores.")
    return "\n".join(lines)


def has_verified(answer: Answer) -> bool:
    return bool(answer["passed"])
