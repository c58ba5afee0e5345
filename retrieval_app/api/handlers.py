"""One request, one answer: what REST, MCP and the chat facade do with the same fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from collections_app.models import ApiKey, Collection
from ragd.types import RetrievePlan
from retrieval_app.api.answer_streams import AnswerStream, open_stream
from retrieval_app.api.responses import body_of
from retrieval_app.api.schemas import AskRequest, AskResponse, SearchRequest, SearchResponse
from retrieval_app.explanations.ranking import explain
from retrieval_app.runs import query_pipeline
from retrieval_app.runs.overrides import check_overrides
from retrieval_app.runs.plans import choose_plan

SomeResponse = TypeVar("SomeResponse", bound=SearchResponse)


def run_search(
    collection: Collection, payload: SearchRequest, *, channel: str, api_key: ApiKey | None
) -> SearchResponse:
    """The answer to a search, the same for REST and MCP."""
    chosen = choose_plan(collection, payload.plan, payload.stated())
    run = query_pipeline.search(
        collection,
        payload.query,
        chosen.plan,
        channel=channel,
        plan_name=chosen.name,
        api_key=api_key,
        as_of=payload.as_of,
    )
    return explained(SearchResponse.from_orm(run), collection, payload, chosen.plan)


def run_ask(
    collection: Collection,
    payload: AskRequest,
    *,
    channel: str,
    api_key: ApiKey | None,
    history: Sequence[Mapping[str, str]] = (),
    listener: query_pipeline.RunListener | None = None,
) -> AskResponse:
    """The answer to a question, the same for REST, MCP and chat. listener: told of it while it is made.

    Raises ServiceError 403 as `check_overrides`.
    """
    check_overrides(collection, payload.llm_model, payload.system_prompt)
    chosen = choose_plan(collection, payload.plan, payload.stated())
    run = query_pipeline.ask(
        collection,
        payload.query,
        chosen.plan,
        channel=channel,
        llm_model=payload.llm_model,
        system_prompt=payload.system_prompt,
        history=history,
        parameters=payload.parameters(),
        conversation_id=payload.conversation_id,
        plan_name=chosen.name,
        api_key=api_key,
        listener=listener,
        corrective=payload.corrective,
        as_of=payload.as_of,
    )
    return explained(AskResponse.from_orm(run), collection, payload, chosen.plan)


def stream_ask(
    collection: Collection,
    payload: AskRequest,
    *,
    channel: str,
    api_key: ApiKey | None,
    history: Sequence[Mapping[str, str]] = (),
) -> AnswerStream:
    """The same answer as events, the last of which is the answer of `run_ask`. Raises ServiceError 503."""

    def work(listener: query_pipeline.RunListener) -> dict[str, Any]:
        return body_of(
            run_ask(collection, payload, channel=channel, api_key=api_key, history=history, listener=listener)
        )

    return open_stream(work)


def explained(answer: SomeResponse, collection: Collection, payload: SearchRequest, plan: RetrievePlan) -> SomeResponse:
    """The answer, with its explanation where that was asked for."""
    if payload.explain:
        answer.explanation = explain(collection, payload.query, plan, as_of=payload.as_of)
    return answer
