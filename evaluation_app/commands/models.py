"""`manage.py ragd models`: every model that is set up, and tests of their connections."""

from __future__ import annotations

from argparse import ArgumentParser

from collections_app.services.models.connection_test import run_test
from collections_app.services.models.model_settings import renew_secrets
from collections_app.services.models.registry import ModelEntry, list_models
from evaluation_app.commands.subcommand import Answer, Options, UsageError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--test", action="store_true", help="ask each endpoint once; exit status 1 where one fails")
    parser.add_argument("--only", default=None, metavar="KEY", help="the model of this key alone")
    parser.add_argument(
        "--renew-keys", action="store_true", help="encrypt the stored keys again under the present secret key"
    )


def run(options: Options) -> Answer:
    renewed = renew_secrets(actor=None) if options["renew_keys"] else None
    entries = list_models()
    chosen = [entry for entry in entries if options["only"] in (None, entry.key)]
    if not chosen:
        known = ", ".join(entry.key for entry in entries)
        raise UsageError(f"there is no model {options['only']!r}; the keys are {known}")
    return {"renewed": renewed, "models": [_describe(entry, is_tested=options["test"]) for entry in chosen]}


def _describe(entry: ModelEntry, *, is_tested: bool) -> Answer:
    test = run_test(entry.endpoint) if is_tested and entry.can_test and entry.endpoint is not None else entry.test
    return {
        "key": entry.key,
        "purpose": entry.purpose,
        "kind": entry.kind,
        "name": entry.title,
        "identity": entry.identity,
        "where": entry.where,
        "source": entry.source,
        "state": entry.state,
        "note": entry.note,
        "dims": entry.dims,
        "window": entry.window,
        "query_prompt": entry.query_prompt,
        "passage_prompt": entry.passage_prompt,
        "size_bytes": entry.size_bytes,
        "licence": entry.licence,
        "collections": entry.collections,
        "breaker": entry.breaker.state if entry.breaker else None,
        "test": test.as_dict() if test else None,
    }


def show(answer: Answer) -> str:
    lines = [] if answer["renewed"] is None else [f"{answer['renewed']} keys encrypted again"]
    for model in answer["models"]:
        dims = f", {model['dims']} dimensions" if model["dims"] else ""
        lines.append(f"{model['key']}  {model['name']} ({model['purpose']}, {model['where']}{dims}): {model['state']}")
        if test := model["test"]:
            words = "answered" if test["passed"] else f"failed ({test['kind']}): {test['message']} {test['advice']}"
            lines.append(f"    {words}, {test['took_ms']:.0f} ms")
    return "\n".join(lines)


def has_passed(answer: Answer) -> bool:
    """False when a test that was run or kept has failed."""
    return all(model["test"] is None or model["test"]["passed"] for model in answer["models"])
