"""`manage.py ragd bake-off`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from collections_app.services.collections.collections import get_collection
from evaluation_app.bake_offs.candidates import parse_candidate
from evaluation_app.bake_offs.lifecycle import K, process_bake_off, start_bake_off
from evaluation_app.bake_offs.sample import SAMPLE_CHUNKS
from evaluation_app.bake_offs.standings import rank, winner_of
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.golden.sets import find_set
from evaluation_app.models import BakeOff


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", metavar="COLLECTION")
    parser.add_argument("models", nargs="+", metavar="MODEL[:DIMENSIONS][:halfvec]", help="beside the collection's own")
    parser.add_argument("--set", dest="golden_set", metavar="SET", help="the golden set; default: made from documents")
    parser.add_argument("--sample", type=int, default=SAMPLE_CHUNKS, metavar="CHUNKS", help="about so many chunks")
    parser.add_argument("-k", type=int, default=K, help="documents that count")


def run(options: Options) -> Answer:
    """{"standings": [`Standing.as_dict()`], best first, "winner": one of them or None, ...}, tried in this process."""
    golden_set = find_set(options["golden_set"]) if options["golden_set"] else None
    bake_off = start_bake_off(
        get_collection(options["collection"]),
        [parse_candidate(text) for text in options["models"]],
        golden_set=golden_set,
        k=options["k"],
        sample=options["sample"],
        send=False,
    )
    process_bake_off(bake_off.pk)
    bake_off.refresh_from_db()
    if bake_off.state != BakeOff.State.SUCCEEDED:
        raise UsageError(bake_off.error or f"the bake-off was {bake_off.state}")
    standings = rank(bake_off)
    winner = winner_of(standings)
    return {
        "collection": bake_off.collection_name,
        "questions": len(bake_off.questions),
        "documents": len(bake_off.doc_ids),
        "mode": bake_off.mode,
        "k": bake_off.k,
        "standings": [each.as_dict() for each in standings],
        "winner": winner.as_dict() if winner else None,
    }


def show(answer: Answer) -> str:
    k, winner = answer["k"], answer["winner"]
    lines = [
        f"{answer['questions']} questions over {answer['documents']} documents, mode {answer['mode']}",
        f"{'model':44} {'nDCG@' + str(k):>22} {'recall@' + str(k):>10} {'gain':>8} {'ms/chunk':>9} {'MB':>8}",
        *(_line(each) for each in answer["standings"]),
        f"{_name(winner)} is better than the model in use"
        if winner
        else "No model is better than the one in use by more than chance.",
    ]
    return "\n".join(lines)


def _name(standing: Mapping[str, Any]) -> str:
    suffix = ":halfvec" if standing["vector_type"] == "halfvec" else ""
    return f"{standing['embed_model']}:{standing['embed_dims']}{suffix}"


def _line(standing: Mapping[str, Any]) -> str:
    ndcg, gain = standing["ndcg"], standing["gain"]
    interval = f"{ndcg['mean']:.3f} [{ndcg['low']:.3f}, {ndcg['high']:.3f}]"
    moved = f"{gain['mean']:+.3f}" if gain else "in use"
    megabytes = standing["index_bytes"] / 1e6
    return (
        f"{_name(standing):44} {interval:>22} {standing['recall']['mean']:>10.3f} {moved:>8} "
        f"{standing['ms_per_chunk']:>9.1f} {megabytes:>8.1f}"
    )
