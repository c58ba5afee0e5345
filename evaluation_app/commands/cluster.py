"""`manage.py ragd cluster`: the nodes of a Citus cluster, where collections are on it, and moving them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from collections_app.domain.formats import size as format_size
from collections_app.models import Collection
from collections_app.services.cluster.rebalance import rebalance, recover
from collections_app.services.cluster.state import AWAY, as_dict, read_cluster
from collections_app.services.generations.generations import start_generation
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from ragd.types import Placement

DO = ("status", "spread", "place", "rebalance", "recover")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "do", choices=DO, nargs="?", default="status",
        help="status: nodes, sizes, lag of replicas, what moves; spread: the chunks of a collection over all nodes;"
        " place: all on one; rebalance: even out the nodes; recover: end what nodes prepared and heard no more of",
    )  # fmt: skip
    parser.add_argument("collection", nargs="?", default="", help="of spread and place")
    parser.add_argument("--dry-run", action="store_true", help="of rebalance: tell the moves and make none")


def run(options: Options) -> Answer:
    do = options["do"]
    if bool(options["collection"]) != (do in ("spread", "place")):
        raise UsageError("name a collection with spread and place, and none with the others")
    if do == "status":
        return {"do": do} | as_dict(read_cluster())
    if do == "rebalance":
        moves = rebalance(None, is_dry=options["dry_run"])
        return {"do": do, "dry_run": options["dry_run"], "moves": [move.as_dict() for move in moves]}
    if do == "recover":
        return {"do": do, "recovered": recover(None)}
    return {"do": do} | _move(options["collection"], "spread" if do == "spread" else "node")


def _move(name: str, placement: Placement) -> dict[str, Any]:
    """By a new index version, which takes over the vectors of the one that serves and then its place."""
    collection = Collection.objects.live().filter(name=name).first()
    if collection is None:
        raise UsageError(f"there is no collection {name!r}; `manage.py ragd cluster` lists them")
    generation = start_generation(collection, {"placement": placement})
    return {"collection": name, "placement": placement, "index_version": generation.number}


def show(answer: Answer) -> str:
    if answer["do"] == "rebalance":
        word = "would move" if answer["dry_run"] else "moved"
        lines = [f"{word} {each['table']} ({_size(each['bytes'])}) from {each['from']} to {each['to']}"
                 for each in answer["moves"]]  # fmt: skip
        return "\n".join(lines) or "The nodes are even: nothing to move."
    if answer["do"] == "recover":
        return f"{answer['recovered']} prepared transactions ended."
    if answer["do"] != "status":
        return (
            f"Index version {answer['index_version']} of {answer['collection']} is built with placement"
            f" {answer['placement']!r} and then serves; its page *Chunking and index* shows how far it is."
        )
    return _show_status(answer)


def _show_status(answer: Answer) -> str:
    if answer["citus"] is None:
        return "One PostgreSQL, no cluster: docs/scaling.md says how to make one."
    lines = [f"Citus {answer['citus']}"]
    for node in answer["nodes"]:
        state = "answers" if node["answers"] else "DOES NOT ANSWER"
        lines.append(f"{node['role']:12} {node['address']:24} {state}, {node['shards']} shards, {_size(node['bytes'])}")
        lines += [f"{'':12} {_replica(each)}" for each in node["replicas"] or ()]
        if node["replicas"] == []:
            lines.append(f"{'':12} no replica")
        if node["prepared_transactions"]:
            lines.append(f"{'':12} {node['prepared_transactions']} prepared transactions wait: ragd cluster recover")
    for each in answer["index_versions"]:
        where = ", ".join(each["nodes"])
        lines.append(
            f"{each['collection']} version {each['number']}{' (serves)' if each['serving'] else ''}:"
            f" {each['placement']}, {each['chunks']:,} chunks, {_size(each['bytes'])}, on {where}"
            + ("; A NODE OF IT DOES NOT ANSWER" if each["away"] else "")
        )
    lines += [f"moving {each['table']} to {each['to']}: {each['percent']} %" for each in answer["moving"]]
    return "\n".join(lines)


def _replica(replica: Mapping[str, Any]) -> str:
    state = "DOES NOT STREAM" if replica["state"] == AWAY else replica["state"] or "state unknown"
    if replica["lag_bytes"] is None:
        return f"replica {replica['name']} {state}, lag unknown"
    since = f" ({replica['lag_s']:.1f} s)" if replica["lag_s"] else ""
    return f"replica {replica['name']} {state}, {_size(replica['lag_bytes'])} behind{since}"


def _size(size: int | None) -> str:
    return "size unknown" if size is None else format_size(size)


def has_passed(answer: Answer) -> bool:
    """False where a node does not answer."""
    return all(node["answers"] for node in answer.get("nodes", ()))
