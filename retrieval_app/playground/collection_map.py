"""The map of a collection as it is drawn: its chunks by folder, tag or document, a question and its hits.

The directions come from the last measurement; the places are read as whoever looks, so that nothing of a document that
they may not read is drawn or counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from collections_app.index.stores import embedder_for, read_store
from collections_app.models import Collection, IndexVersion
from ragd.errors import RagdError
from ragd.insight.chunk_map import ChunkPlace, find_axes, place_chunks, place_vector
from ragd.store.store import Store
from retrieval_app.models import QueryRun

WIDTH, HEIGHT, EDGE = 1000, 560, 24
GROUPS = 7  # with a colour of their own; the rest is one more
HITS = 10
UNMEASURED_MAX = 2000  # chunks whose directions are found here; of more the worker finds them (`index.measurements`)


@dataclass(frozen=True, slots=True)
class MapGroup:
    """Chunks of one colour. name: "" for the rest. path: a dot for each place, as SVG. hits: of the question."""

    name: str
    chunks: int
    path: str
    hits: int = 0


@dataclass(frozen=True, slots=True)
class MapHit:
    rank: int
    doc_id: str
    chunk_index: int
    href: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class CollectionMap:
    """question: where it lies, None without one. by: what the colours mean: folder, tag or document."""

    groups: list[MapGroup]
    by: str
    chunks: int
    question: tuple[int, int] | None
    hits: list[MapHit]


def draw_map(collection: Collection, run: QueryRun | None) -> CollectionMap | None:
    """None where there is too little to draw. run: a search of the collection, whose question is drawn in."""

    def read(store: Store) -> tuple[list[list[float]], list[ChunkPlace]]:
        rows = IndexVersion.objects.filter(collection=collection, number=store.collection.index_version)
        axes = rows.values_list("map_axes", flat=True).first() or []
        if not axes and store.state().chunk_count <= UNMEASURED_MAX:
            axes = find_axes(store)
        return axes, place_chunks(store, axes) if axes else []

    axes, places = read_store(collection, read)
    if not places:
        return None
    spot = _place_question(collection, run, axes) if run else None
    spots = [(place.x, place.y) for place in places] + ([spot] if spot else [])
    to_x, to_y = _scale([x for x, _ in spots], WIDTH), _scale([-y for _, y in spots], HEIGHT)
    by, name_of = _choose_groups(places)
    common = [name for name, _ in Counter(map(name_of, places)).most_common(GROUPS)]
    ranks = {(item["doc_id"], item["chunk_index"]): item["rank"] for item in run.results[:HITS]} if run else {}
    dots: dict[str, list[tuple[int, int]]] = {name: [] for name in [*common, ""]}
    tally, hits = Counter[str](), list[MapHit]()
    for place in places:
        group = name_of(place) if name_of(place) in dots else ""
        dots[group].append((to_x(place.x), to_y(-place.y)))
        if rank := ranks.get((place.doc_id, place.chunk_index)):
            tally[group] += 1
            href = reverse("collections:chunk", args=[collection.name, place.chunk_index, place.doc_id])
            hits.append(MapHit(rank, place.doc_id, place.chunk_index, href, *dots[group][-1]))
    # one SVG path; what lies on the same spot is one dot
    paths = {name: "".join(f"M{x} {y}h0" for x, y in sorted(set(each))) for name, each in dots.items()}
    groups = [MapGroup(name, len(each), paths[name], tally[name]) for name, each in dots.items() if each]
    question = (to_x(spot[0]), to_y(-spot[1])) if spot else None
    return CollectionMap(groups, by, len(places), question, sorted(hits, key=lambda hit: hit.rank))


def _place_question(collection: Collection, run: QueryRun, axes: list[list[float]]) -> tuple[float, float] | None:
    try:
        vector = embedder_for(collection.embed_model, collection.embed_dims).embed_query(run.query)
    except RagdError:  # its hits are drawn without it
        return None
    return place_vector(vector, axes)


def _scale(values: Sequence[float], size: int) -> Callable[[float], int]:
    low, high = min(values), max(values)
    share = (size - 2 * EDGE) / ((high - low) or 1.0)
    return lambda value: EDGE + round((value - low) * share)


def _choose_groups(places: Sequence[ChunkPlace]) -> tuple[str, Callable[[ChunkPlace], str]]:
    """By folders where there are several, else by first tags, else by documents."""
    ways: dict[str, Callable[[ChunkPlace], str]] = {
        "folder": lambda place: place.doc_id.partition("/")[0] + "/" if "/" in place.doc_id else "",
        "tag": lambda place: place.tag,
        "document": lambda place: place.doc_id,
    }
    several = (each for each in ways.items() if len({each[1](place) for place in places}) > 1)
    return next(several, ("document", ways["document"]))


def map_of_request(collection: Collection, run_id: Any) -> dict[str, Any]:
    """The context of the map. run_id: a run of that collection, else there is no question in it."""
    run = QueryRun.objects.filter(pk=run_id, collection=collection).first() if run_id else None
    return {"collection": collection, "map": draw_map(collection, run), "map_run": run, "tab": "playground"}
