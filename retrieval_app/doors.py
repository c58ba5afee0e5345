"""One request, one answer: what REST, MCP and the chat facade do with the same fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collections_app.models import ApiKey, Collection
from ragd.types import RetrievePlan
from retrieval_app import services
from retrieval_app.explaining import explain
from retrieval_app.models import QueryRun
from retrieval_app.plans import choose_plan
from retrieval_app.responses import ask_response, search_response
from retrieval_app.schemas import AskRequest, SearchRequest


def run_search(collection: Collection, payload: SearchRequest, *, door: str, api_key: ApiKey | None) -> dict[str, Any]:
    """The answer to a search, the same for REST and MCP."""
    chosen = choose_plan(collection, payload.plan, payload.stated())
    run = services.search(collection, payload.query, chosen.plan, door=door, plan_name=chosen.name, api_key=api_key)
    return search_response(run) | explained(collection, payload, run, chosen.plan)


def run_ask(
    collection: Collection,
    payload: AskRequest,
    *,
    door: str,
    api_key: ApiKey | None,
    history: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """The answer to a question, the same for REST, MCP and chat."""
    chosen = choose_plan(collection, payload.plan, payload.stated())
    run = services.ask(
        collection,
        payload.query,
        chosen.plan,
        door=door,
        llm_model=payload.llm_model,
        system_prompt=payload.system_prompt,
        history=history,
        plan_name=chosen.name,
        api_key=api_key,
    )
    return ask_response(run) | explained(collection, payload, run, chosen.plan)


def explained(collection: Collection, payload: SearchRequest, run: QueryRun, plan: RetrievePlan) -> dict[str, Any]:
    """{"explanation": ...} where it was asked for, else {}."""
    return {"explanation": explain(collection, run.query, plan)} if payload.explain else {}
