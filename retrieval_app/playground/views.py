"""The playground: one query, every stage of its ranking, or two plans side by side. Its address gives it back.

The search of a page as a call from elsewhere: curl, Python, MCP. Each runs as it stands, with a key in RAGD_KEY.
"""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import ASK, READ, WRITE, needs
from collections_app.collections.views import find_collection
from collections_app.documents.filters import write_json
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, read_uuid, refuse, render_page
from collections_app.index.services import complete_versions
from collections_app.index.stores import open_store
from collections_app.models import Collection
from ragd import telemetry
from ragd.errors import RagdError
from ragd.insight.ranking_comparison import kendall_tau, overlap_at, rank_moves
from ragd.types import HOP_LISTS
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.plans.forms import PlaygroundForm, SavePlanForm
from retrieval_app.plans.services import save_plan
from retrieval_app.playground import ranking
from retrieval_app.playground.collection_map import map_of_request
from retrieval_app.runs.presenters import describe_run
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest

SHOWN_MIN = 10  # rows of a column, or k if that is more; rows=all shows every one
OPEN_MAX = 3
TEXT_CHARS = 80
EXPECTED = ("cut_by_k", "below_pool", "not_in_list")  # every plan loses so
TITLES = {
    "vector": gettext_lazy("Vector"),
    "lexical": gettext_lazy("Keyword"),
    "codes": gettext_lazy("Codes"),
    "hop2": gettext_lazy("Hop 2"),
    "hop3": gettext_lazy("Hop 3"),
    "fused": gettext_lazy("Fused"),
    "reranked": gettext_lazy("Reranked"),
    "final": gettext_lazy("Final"),
}
KINDS = {"cosine": "cosine", "bm25": "BM25", "rrf": "reciprocal ranks", "rerank": "reranker", "": ""}
OWN_PARAMS = ("ab", "rows", "analyze", "run")


@dataclass(frozen=True, slots=True)
class View:
    """The address of the page and its parameters: every link of the page is made here."""

    path: str
    params: QueryDict
    collection: str

    def with_values(self, **changes: str | None) -> str:
        """The page itself with some parameters changed; None removes one."""
        values = self.params.copy()
        for name, value in changes.items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        return f"{self.path}?{values.urlencode()}"

    def row_href(self, doc_id: str, chunk_index: int, side: str = "A") -> str:
        """One chunk of the ranking of a side, by its plan alone."""
        address = reverse("retrieval:playground-row", args=[self.collection, chunk_index, doc_id])
        return f"{address}?{self._plan_of(side).urlencode()}"

    def answer_href(self, side: str = "A") -> str:
        """The answer from the ranking of a side."""
        return f"{reverse('retrieval:playground-answer', args=[self.collection])}?{self._plan_of(side).urlencode()}"

    def _plan_of(self, side: str) -> QueryDict:
        """The query and the plan of a side, as those of plan A."""
        own = self.params.copy()
        for name in list(own):
            if name in OWN_PARAMS or name.startswith("b-") or (side == "B" and name != "q"):
                del own[name]
        if side == "B":
            own.update({name[2:]: str(value) for name, value in self.params.items() if name.startswith("b-")})
        return own


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One row of a column. path: the document's title and the chunk's own heading, "" when there is none. text: the
    beginning of what the chunk says below its heading.

    ranks: (list, rank or None) of a fused row. formula: the sum behind a fused result. off: it does not reach the
    results. gain: ranks won; mark: "new" or "gone" beside another plan. term: the name by which a hop found it.
    """

    row: Mapping[str, Any]
    number: int
    path: tuple[str, str]
    text: str
    href: str
    off: bool
    ranks: list[tuple[str, int | None]] = field(default_factory=list)
    formula: str = ""
    gain: int | None = None
    mark: str = ""
    term: str = ""


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """One column: its first rows, how many more there are, and the lines that lead to it from the column before.

    moves: it orders anew what the column before holds, so that a line that rises or falls means something.
    """

    name: str
    title: str
    kind: str
    size: int
    rows: list[ShownRow]
    more: int
    lines: list[ranking.RankLine]
    side: str = "A"
    moves: bool = False

    @property
    def height(self) -> int:
        return ranking.ROW_PX * max(len(self.rows), 1)

    @property
    def width(self) -> int:
        return ranking.GAP_PX


@dataclass(frozen=True, slots=True)
class Shown:
    """columns: of one plan every stage, of two plans their results. cut: rows that are left out."""

    columns: list[ShownColumn]
    height: int
    cut: bool
    losses: list[dict[str, Any]]


def show_stages(view: View, explanations: Sequence[Mapping[str, Any]]) -> Shown:
    """The columns of one explanation, or the results of two beside each other."""
    numbers: dict[str, int] = {}
    for explanation in explanations:
        for key in explanation["candidates"]:
            numbers.setdefault(key, len(numbers) + 1)
    if len(explanations) == 1:
        (explanation,) = explanations
        drawn = [("A", column, explanation) for column in explanation["columns"]]
    else:
        drawn = [(side, each["columns"][-1], each) for side, each in zip("AB", explanations, strict=True)]
    limit = max(SHOWN_MIN, *(each["plan"]["k"] for each in explanations))
    if view.params.get("rows") == "all":
        limit = max((column["size"] for _, column, _ in drawn), default=0)
    columns: list[ShownColumn] = []
    before: list[str] = []
    finals = [[row["key"] for row in each["columns"][-1]["rows"]] for each in explanations]
    for side, column, explanation in drawn:
        keys = [row["key"] for row in column["rows"]]
        other = finals[1 if side == "A" else 0] if len(finals) > 1 else None
        rows = [
            _show_row(view, row, side, column["name"], explanation, numbers[row["key"]], other)
            for row in column["rows"][:limit]
        ]
        lines = ranking.join_ranks(before, keys, limit, numbers) if columns else []
        title = gettext("Variant %(side)s") % {"side": side} if len(explanations) > 1 else str(TITLES[column["name"]])
        kind = KINDS.get(column["score_kind"], column["score_kind"])
        columns.append(
            ShownColumn(
                column["name"],
                title,
                kind,
                column["size"],
                rows,
                column["size"] - len(rows),
                lines,
                side,
                moves=column["name"] == "reranked" or side == "B",
            )
        )
        before = keys
    height = ranking.ROW_PX * max((len(column.rows) for column in columns), default=1)
    losses = [group for each in explanations for group in _group_losses(view, each)] if len(explanations) == 1 else []
    return Shown(columns, height, any(column.more for column in columns), losses)


def _show_row(
    view: View,
    row: Mapping[str, Any],
    side: str,
    column: str,
    explanation: Mapping[str, Any],
    number: int,
    other: Sequence[str] | None,
) -> ShownRow:
    """other: the results of the plan beside it, None when there is none."""
    candidate = explanation["candidates"][row["key"]]
    is_known = other is not None and row["key"] in other
    gain = row["gain"]
    if other is not None:
        gain = other.index(row["key"]) + 1 - row["rank"] if side == "B" and is_known else None
    return ShownRow(
        row=row,
        number=number,
        path=_path_of(candidate),
        text=_first_words(candidate["content"]),
        href=view.row_href(row["doc_id"], row["chunk_index"], side),
        off=all(item["key"] != row["key"] for item in explanation["columns"][-1]["rows"]),
        ranks=[(name, rank) for name, rank in row["from"].items() if rank or name not in HOP_LISTS]
        if column == "fused"
        else [],
        formula=_formula(candidate) if column == "final" and "fused" in row["from"] else "",
        gain=gain,
        mark="" if other is None or is_known else "new" if side == "B" else "gone",
        term=explanation["links"][row["key"]]["term"] if column in HOP_LISTS else "",
    )


def _path_of(candidate: Mapping[str, Any]) -> tuple[str, str]:
    """The document and the chunk's own heading."""
    title = candidate["title"] or candidate["doc_id"]
    headings, *_ = str(candidate["context"]).split("\n")  # below them the header of a table may stand
    heading = headings.rpartition(" > ")[2]
    return (title, heading if heading != title else "")


def _first_words(content: str) -> str:
    """Of the first line that is no heading; of a heading where there is nothing else."""
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith(("#", "```"))), content.strip())[:TEXT_CHARS]


def _formula(candidate: Mapping[str, Any]) -> str:
    terms = (candidate["arithmetic"]["rrf"] or {"terms": []})["terms"]
    return " + ".join(f"{term['weight']:g}/{term['rrf_k'] + term['rank']}" for term in terms)


def _group_losses(view: View, explanation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """[{title, rows, open}] by reason; each loss with the chunk's path and its link. Long lists of what every plan
    loses are folded."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for loss in explanation["losses"]:
        candidate = explanation["candidates"][loss["key"]]
        href = view.row_href(loss["doc_id"], loss["chunk_index"])
        groups.setdefault(loss["reason"], []).append({**loss, "path": _path_of(candidate), "href": href})
    return [
        {"title": gettext(title), "rows": rows, "open": reason not in EXPECTED or len(rows) <= OPEN_MAX}
        for reason, title in ranking.REASONS.items()
        if (rows := groups.get(reason))
    ]


def describe_row(explanation: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """One chunk: its place in every column, its arithmetic, its losses, its text in marked pieces. None if unknown."""
    candidate = explanation["candidates"].get(key)
    if candidate is None:
        return None
    positions = [
        (TITLES[column["name"]], next((row for row in column["rows"] if row["key"] == key), None))
        for column in explanation["columns"]
    ]
    return {
        **candidate,
        "key": key,
        "ranks": positions,
        "losses": [loss for loss in explanation["losses"] if loss["key"] == key],
        "link": explanation.get("links", {}).get(key),
        "spans": [span for span in explanation["spans"] if f"{span['doc_id']}#{span['chunk_index']}" == key],
        "content_pieces": ranking.mark_pieces(candidate["content"], candidate["highlights"]["content"]),
        "context_pieces": ranking.mark_pieces(candidate["context"], candidate["highlights"]["context"]),
    }


def compare_finals(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What the results of two plans share: overlap at the larger k, Kendall's tau-b, moves, how the plans differ."""
    first, second = ([row["key"] for row in each["columns"][-1]["rows"]] for each in (before, after))
    k = max(before["plan"]["k"], after["plan"]["k"])
    moves = rank_moves(first, second)
    gains = [move.gain for move in moves]
    return {
        "k": k,
        "overlap": overlap_at(first, second, k).as_dict(),
        "tau": kendall_tau(first, second),
        "up": sum(gain is not None and gain > 0 for gain in gains),
        "down": sum(gain is not None and gain < 0 for gain in gains),
        "level": sum(gain == 0 for gain in gains),
        "new": sum(move.before is None for move in moves),
        "gone": sum(move.after is None for move in moves),
        "plans": plan_differences(before["plan"], after["plan"]),
    }


def plan_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(field, before, after) of every field that differs; the parts of weights and filters by themselves."""
    one, other = ({"hops": 1} | _flat(plan) for plan in (before, after))
    return [(name, one.get(name), other.get(name)) for name in {**one, **other} if one.get(name) != other.get(name)]


def _flat(plan: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in plan.items():
        if name == "weights":
            flat |= {f"weight of {part}": weight for part, weight in value.items()}
        elif name == "filters":
            flat |= {part: write_json(held) if part == "where" else held for part, held in value.items()}
        else:
            flat[name] = value
    return flat


def same_as_run(run_id: str, explanation: Mapping[str, Any]) -> dict[str, Any] | None:
    """The stored run that the page was opened from, and whether the ranking is still that of then. None without one."""
    try:
        run = QueryRun.objects.filter(pk=uuid.UUID(run_id)).first()
    except ValueError:
        return None
    if run is None:
        return None
    now = [(row["key"], row["score"]) for row in explanation["columns"][-1]["rows"]]
    then = [(f"{item['doc_id']}#{item['chunk_index']}", item["score"]) for item in run.results]
    same_plan = run.query == explanation["query"] and run.plan_hash == explanation["plan_hash"]
    same_order = [key for key, _ in now] == [key for key, _ in then]
    return {"run": run, "same_plan": same_plan, "same": now == then, "same_order": same_order}


PYTHON = Path(__file__).with_name("search.py.txt").read_text(encoding="utf-8")


def search_payload(query: str, plan_name: str, explicit: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /v1/collections/NAME/search. plan_name "" names none; stated: the fields of the plan."""
    return {"query": query} | ({"plan": plan_name} if plan_name else {}) | dict(explicit)


def write_calls(base: str, collection: str, payload: Mapping[str, Any]) -> list[dict[str, str]]:
    """[{name, title, text}]: the same search for a shell, for Python's standard library and for an MCP client.

    base: the server's address without a slash at the end.
    """
    url = f"{base}/v1/collections/{quote(collection, safe='')}/search"
    return [
        {"name": "curl", "title": "curl", "text": _curl(url, payload)},
        {"name": "python", "title": "Python", "text": PYTHON.format(url=url, payload=dict(payload))},
        {"name": "mcp", "title": "MCP call", "text": _mcp(collection, payload)},
    ]


def _curl(url: str, payload: Mapping[str, Any]) -> str:
    body = shlex.quote(json.dumps(payload, ensure_ascii=False))
    return (
        f"curl -s {shlex.quote(url)} \\\n"
        '  -H "Authorization: Bearer $RAGD_KEY" -H "Content-Type: application/json" \\\n'
        f"  -d {body}"
    )


def _mcp(collection: str, payload: Mapping[str, Any]) -> str:
    call = {"name": "collections-search", "arguments": {"collection": collection} | dict(payload)}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return json.dumps(message, indent=2, ensure_ascii=False)


RECENT = 6
RECENT_READ = 60
PREFIXES = {"A": None, "B": "b"}


@dataclass
class Side:
    """One plan and, when there is a query and the plan is sound, what it made of it."""

    name: str
    form: PlaygroundForm
    run: QueryRun | None = None
    explanation: dict[str, Any] | None = None
    answer_href: str = ""


@needs(ASK, methods="GET")
def playground(request: PageRequest, name: str) -> HttpResponse:
    """?q= and the fields of the plan; ab=on and b-* for a second plan; rows=all, analyze=on; run= a stored run.

    map: the map of the collection instead, with the question and the hits of that run."""
    collection = find_collection(name)
    if "map" in request.GET:
        context = map_of_request(collection, read_uuid(request.GET["map"]))
        return render_page(request, "retrieval/map.html", context, parts={"map": "retrieval/parts/map.html"})
    if (query := _without_blanks(request.GET)) is not None:
        return redirect(f"{request.path}?{query.urlencode()}" if query else request.path)
    return _render(request, collection, request.GET)


@needs(READ, WRITE, methods="POST")
def save(request: PageRequest, name: str) -> HttpResponse:
    """Keep plan A of the address that the form came from under a name; back to it, or to the form with its error."""
    collection = find_collection(name)
    params = QueryDict(request.POST.get("address", ""))
    form = SavePlanForm(request.POST, collection=collection)
    side = _sides(collection, params)[0]
    if form.is_valid() and side.form.is_valid():
        data = form.cleaned_data
        try:
            stored = save_plan(
                collection, data["name"], side.form.chosen().plan, is_default=data["is_default"] or None,
                actor=request.user,
            )  # fmt: skip
        except (ServiceError, RagdError) as error:
            refuse(form, error)
        else:
            messages.success(request, gettext("The preset %(name)s was saved.") % {"name": stored.name})
            return redirect(f"{_address(collection)}?{urlencode({'q': params.get('q', ''), 'plan': stored.name})}")
    return _render(request, collection, params, save_form=form, status=422)


@needs(ASK, methods="GET")
def row(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """One chunk of the ranking: its text with the query's words, and the arithmetic of every stage. Keeps no run."""
    collection = find_collection(name)
    (side, *_), query = _sides(collection, request.GET), request.GET.get("q", "").strip()
    back = f"{_address(collection)}?{request.GET.urlencode()}"
    if not query or not side.form.is_valid():
        return redirect(back)
    try:
        explanation = ranking.explain(collection, query, side.form.chosen().plan, **side.form.over)
    except (ServiceError, RagdError):
        return redirect(back)
    detail = describe_row(explanation, f"{doc_id}#{index}")
    if detail is None:
        raise Http404("the chunk is in no list of this ranking, and none lost it")
    context = {"collection": collection, "query": query, "back": back, "row": detail, "explanation": explanation}
    return render_page(request, "retrieval/playground_row.html", context)


@needs(ASK, methods="GET")
def answer(request: PageRequest, name: str) -> HttpResponse:
    """The answer from plan A of the address, beside its ranking. Keeps a run of its own."""
    collection = find_collection(name)
    (side, *_), query = _sides(collection, request.GET), request.GET.get("q", "").strip()
    back = f"{_address(collection)}?{request.GET.urlencode()}"
    if not query or not side.form.is_valid():
        return redirect(back)
    context: dict[str, Any] = {"collection": collection, "query": query, "back": back}
    try:
        with telemetry.environment(telemetry.PLAYGROUND):
            run = query_pipeline.ask(_request(request, collection, query, side))
        context |= describe_run(run)
    except (ServiceError, RagdError) as error:
        context["error"] = str(error)
    return render_page(request, "retrieval/playground_answer.html", context)


def _request(request: PageRequest, collection: Collection, query: str, side: Side) -> QueryRequest:
    chosen = side.form.chosen()
    return QueryRequest(
        collection, query, chosen.plan, QueryRun.Channel.PAGE, plan_name=chosen.name, user=request.user,
        quotes_on_failure=True, **side.form.over,
    )  # fmt: skip


def _address(collection: Collection) -> str:
    return reverse("retrieval:playground", args=[collection.name])


def _without_blanks(params: QueryDict) -> QueryDict | None:
    """The parameters that say something; None when all do."""
    stored = params.copy()
    for name in [name for name, value in params.items() if not str(value).strip()]:
        del stored[name]
    return stored if len(stored) < len(params) else None


def _sides(collection: Collection, params: QueryDict) -> list[Side]:
    saved = list(SavedPlan.objects.of(collection).by_name())
    rerankers = sorted(open_store(collection).rerankers)
    versions = complete_versions(collection)
    return [
        Side(
            name,
            PlaygroundForm(
                params, collection=collection, saved=saved, rerankers=rerankers, versions=versions,
                prefix=PREFIXES[name],
            ),
        )
        for name in (("A", "B") if params.get("ab") else ("A",))
    ]  # fmt: skip


def _render(
    request: PageRequest,
    collection: Collection,
    params: QueryDict,
    *,
    save_form: SavePlanForm | None = None,
    status: int = 200,
) -> HttpResponse:
    sides = _sides(collection, params)
    query = params.get("q", "").strip()
    if query:
        for side in sides:
            status = _look(request, collection, query, side, bool(params.get("analyze"))) or status
    view = View(_address(collection), params, collection.name)
    for side in sides:
        side.answer_href = view.answer_href(side.name)
    context = {
        "collection": collection,
        "tab": "playground",
        "q": params.get("q", ""),
        "params": params,
        "sides": sides,
        "view": view,
        "address": params.urlencode(),
        "exact_href": view.with_values(exact="always"),
        "index_href": view.with_values(exact="never"),
        "all_rows_href": view.with_values(rows="all"),
        "save_form": save_form or SavePlanForm(collection=collection),
        "saving": save_form is not None,
        "plan_open": bool(params.get("ab")) and not any(name.startswith("b-") for name in params),
    }
    if all(side.explanation for side in sides) and query:
        context |= _show(request, view, sides)
    elif not query:
        context["recent"] = _asked_lately(collection)
    return render_page(request, "retrieval/playground.html", context, status=status)


def _asked_lately(collection: Collection) -> list[QueryRun]:
    """The last queries of the collection, newest first, each once: a link opens the query, not the run's plan."""
    by_query: dict[str, QueryRun] = {}
    rows = QueryRun.objects.filter(collection=collection, collection_name=collection.name)  # the name has the index
    for run in rows.for_lists()[:RECENT_READ]:
        by_query.setdefault(run.query, run)
    return list(by_query.values())[:RECENT]


def _look(request: PageRequest, collection: Collection, query: str, side: Side, analyze: bool) -> int | None:
    """Search by the side's plan, keep the run, explain it. The status of a refusal, which the form then shows."""
    if not side.form.is_valid():
        return 422
    recorder = ranking.RetrievalRecorder()
    try:
        with telemetry.environment(telemetry.PLAYGROUND):
            side.run = query_pipeline.search(_request(request, collection, query, side), retrieve=recorder)
        side.explanation = recorder.explain(collection, analyze=analyze)
    except (ServiceError, RagdError) as error:
        return refuse(side.form, error)
    return None


def _show(request: PageRequest, view: View, sides: list[Side]) -> dict[str, Any]:
    first = sides[0]
    explanations = [side.explanation or {} for side in sides]
    shown = show_stages(view, explanations)
    base = request.build_absolute_uri("/").rstrip("/")
    moment = first.form.cleaned_data["as_of"]
    as_of = {"as_of": moment.isoformat()} if moment else {}
    payload = search_payload(explanations[0]["query"], first.form.cleaned_data["plan"], first.form.stated() | as_of)
    return {
        "shown": shown,
        "explanation": explanations[0],
        "run": first.run,
        "comparison": compare_finals(*explanations) if len(explanations) == 2 else None,
        "calls": write_calls(base, first.form.collection.name, payload),
        "origin": same_as_run(view.params.get("run", ""), explanations[0]),
    }
