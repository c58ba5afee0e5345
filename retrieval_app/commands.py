"""`manage.py ragd search`, `ask` and `check receipt`."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from django.utils import timezone

from collections_app.collections.services import get_collection
from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError, as_usage, split_pair
from collections_app.documents.filters import read_filter
from collections_app.models import Collection
from ragd.errors import InvalidInput
from ragd.types import COMPRESS_KINDS, EXACT_CHOICES, FINAL_K, MODES
from retrieval_app.answers.streams import body_of
from retrieval_app.plans.services import OFF, PLAN_FIELDS, ChosenPlan, choose_plan
from retrieval_app.runs.receipts import own_key, read_key, read_receipt, verify
from retrieval_app.search import query_pipeline as retrieval_services
from retrieval_app.search.query_pipeline import QueryRequest
from retrieval_app.search.schemas import AskResponse, SearchResponse

SHOWN_CHARS = 300


def add_search_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("query")
    add_plan_arguments(parser)
    parser.add_argument("--as-of", type=read_time, metavar="TIME", help="search the collection as it was then")


def read_time(text: str) -> datetime:
    """ISO 8601; without a zone it is the server's. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def add_plan_arguments(parser: ArgumentParser) -> None:
    """A saved plan and every field over it."""
    parser.add_argument("--plan", help="a saved plan to begin from; server: the server's defaults")
    parser.add_argument("-k", type=int, help=f"results wanted; {FINAL_K} when no plan says otherwise")
    parser.add_argument("--mode", choices=MODES, help="hybrid where keyword search is enabled")
    parser.add_argument("--candidate-pool", type=int)
    parser.add_argument("--rrf-k", type=int)
    parser.add_argument("--weight", action="append", metavar="LIST=NUMBER", help="vector=2; repeatable")
    parser.add_argument("--exact", choices=EXACT_CHOICES)
    parser.add_argument("--ef-search", type=int)
    parser.add_argument("--rerank", help="a reranker's name, or none")
    parser.add_argument("--compress", choices=(*COMPRESS_KINDS, OFF), help="spans of the results")
    parser.add_argument("--token-budget", type=int, help="words that --compress keeps")
    parser.add_argument("--hops", type=int, help="2 or 3: also look for the names that the results bring in")
    parser.add_argument("--tag-any", action="append", help="at least one of these tags; repeatable")
    parser.add_argument("--tag-all", action="append", help="every one of these tags; repeatable")
    parser.add_argument("--metadata", action="append", metavar="KEY=VALUE", help="equal text; repeatable")
    parser.add_argument("--filter", help="a typed filter, such as 'page >= 3 and language = de' (docs/search.md)")


def add_ask_arguments(parser: ArgumentParser) -> None:
    add_search_arguments(parser)
    parser.add_argument("--llm-model", default=None, help="chat model, when an endpoint is set")
    parser.add_argument("--corrective", action=BooleanOptionalAction, default=None, help="as the collection says")


def run_search(options: Options) -> Answer:
    collection, chosen = _choose_plan(options)
    request = QueryRequest(
        collection, options["query"], chosen.plan, "cli", plan_name=chosen.name, as_of=options["as_of"]
    )
    return body_of(SearchResponse.from_orm(retrieval_services.search(request)))


def run_ask(options: Options) -> Answer:
    collection, chosen = _choose_plan(options)
    request = QueryRequest(
        collection, options["query"], chosen.plan, "cli", plan_name=chosen.name, as_of=options["as_of"],
        llm_model=options["llm_model"], corrective=options["corrective"],
    )  # fmt: skip
    return body_of(AskResponse.from_orm(retrieval_services.ask(request)))


def _choose_plan(options: Options) -> tuple[Collection, ChosenPlan]:
    collection = get_collection(options["collection"])
    return collection, read_plan(collection, options)


def read_plan(collection: Collection, options: Options) -> ChosenPlan:
    """The plan of `add_plan_arguments`. Raises what `choose_plan` raises, and InvalidInput for a pair that is none."""
    explicit = {name: options[name] for name in PLAN_FIELDS if name in options} | {
        "weights": _read_weights(options["weight"]),
        "tags_any": options["tag_any"],
        "tags_all": options["tag_all"],
        "metadata": dict(split_pair("metadata", pair) for pair in options["metadata"] or ()) or None,
        "filter": read_filter(options["filter"]) if options["filter"] else None,
    }
    return choose_plan(collection, options["plan"], explicit)


def _read_weights(pairs: Sequence[str] | None) -> dict[str, float] | None:
    try:
        return {name: float(value) for name, value in (split_pair("weight", pair) for pair in pairs or ())} or None
    except ValueError as error:
        raise InvalidInput(f"--weight takes LIST=NUMBER: {error}", field="weights") from None


def show_results(answer: Answer) -> str:
    lines = [_show_result(result) for result in answer["results"]]
    lines += answer["as_of_notes"]
    if answer["short_result"]:
        lines.append(answer["short_result"]["message"])
    return "\n".join([*lines, f"run {answer['run_id']}, {answer['timings_ms'].get('total', 0):.0f} ms"])


def _show_result(result: Mapping[str, Any]) -> str:
    position = f"{result['rank']:>3}. {result['doc_id']}#{result['chunk_index']}"
    text = " ".join(result["content"].split())[:SHOWN_CHARS]
    return f"{position}  {result['score_kind']} {result['score']:.4f}\n     {text}"


def show_answer(answer: Answer) -> str:
    cited = [f"[{source['marker']}] {source['doc_id']}#{source['chunk_index']}" for source in answer["sources"]]
    return "\n".join([answer["answer"] or "", "", *cited, f"run {answer['run_id']}, {answer['answerer']}"])


def add_receipt_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("receipt", metavar="RECEIPT", help="the file of a receipt")
    parser.add_argument("--export", metavar="EXPORT", help="repeat the retrieval over this export of the collection")
    parser.add_argument("--key", metavar="KEY", help="the public key to trust, base64 or a file; this server's own")


def run_receipt(options: Options) -> Answer:
    """{"run_id", "passed", "signature_valid", "repeated", "problems": [{"kind", "message"}]}."""
    with as_usage():
        receipt = read_receipt(options["receipt"])
        key = own_key() if options["key"] is None else read_key(_read_text(options["key"]))
    if options["export"] and not Path(options["export"]).is_file():
        raise UsageError(f"there is no file {options['export']}")
    result = verify(receipt, key, options["export"])
    return {"passed": result.passed} | asdict(result)


def _read_text(key: str) -> str:
    return Path(key).read_text(encoding="utf-8") if len(key) < 256 and Path(key).is_file() else key


COMMANDS = {
    "ask": Subcommand("answer a question from a collection", add_ask_arguments, run_ask, show_answer),
    "check receipt": Subcommand(
        "check a receipt's signature, and repeat its retrieval over an export; exit status 1 when something differs",
        add_receipt_arguments,
        run_receipt,
        needs_server=lambda options: False,
    ),
    "search": Subcommand("find the best chunks of a collection", add_search_arguments, run_search, show_results),
}
