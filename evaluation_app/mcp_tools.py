"""The tools of MCP that evaluate, for keys that may."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field

from collections_app.access.auth import request_key
from collections_app.access.permissions import Permission
from collections_app.http.paging import DEFAULT_LIMIT
from collections_app.http.schemas import PageOf, Request
from collections_app.http.validation import SomeUuid, StrictInt
from evaluation_app.golden import api, edits
from evaluation_app.golden.api import QuestionState, question_states
from evaluation_app.golden.schemas import GoldenQuestionOut, GoldenSetOut, QuestionFields
from evaluation_app.runs import api as runs
from evaluation_app.runs.schemas import EvaluationItemOut, EvaluationRunDetail, EvaluationRunRequest, ResultQuery
from retrieval_app.mcp.tools import CURATION_TOOLS, READING_TOOLS, Tool, mcp_view

EVALUATE = Permission.EVALUATE


class SetsArguments(Request):
    collection: str | None = Field(None, description="Only the sets over this collection")
    limit: StrictInt = DEFAULT_LIMIT
    cursor: str | None = Field(None, description="next_cursor of the page before")


class SuggestionArguments(QuestionFields):
    golden_set: str = Field(description="Name of the set, as golden-sets-list gives it")
    question: str


class RunArguments(Request):
    run_id: SomeUuid = Field(description="Id of the evaluation run, as evaluation-runs-create gives it")


class ResultsArguments(RunArguments):
    mode: str | None = Field(None, description="Only questions that show this failure mode")
    outcome: Literal["answered", "abstained", "refused", "searched", "error"] | None = None
    limit: StrictInt = DEFAULT_LIMIT
    cursor: str | None = Field(None, description="next_cursor of the page before")


def list_sets(request: HttpRequest, arguments: SetsArguments) -> Any:
    return api.list_golden_sets(request, **arguments.dict())


def suggest_question(request: HttpRequest, arguments: SuggestionArguments) -> QuestionState:
    golden_set = api.find_visible(request, arguments.golden_set)
    stated = arguments.model_dump(exclude_unset=True, exclude_none=True, exclude={"golden_set"})
    question = edits.add_question(golden_set, stated, suggested=True, actor=request_key(request))
    return question_states(golden_set, [question])[0]


def create_run(request: HttpRequest, arguments: EvaluationRunRequest) -> Any:
    return runs.create_evaluation_run(request, arguments)


def get_run(request: HttpRequest, arguments: RunArguments) -> Any:
    return runs.get_evaluation_run(request, arguments.run_id, anchored=False)


def list_results(request: HttpRequest, arguments: ResultsArguments) -> Any:
    query = ResultQuery(mode=arguments.mode, outcome=arguments.outcome, content=False)
    return runs.list_evaluation_results(request, arguments.run_id, query, arguments.limit, arguments.cursor)


TOOLS = (
    Tool(
        "golden-sets-list",
        "The test sets of golden questions, by name.",
        SetsArguments,
        list_sets,
        EVALUATE,
        shape=PageOf[GoldenSetOut],
    ),
    Tool(
        "golden-questions-suggest",
        "Put a golden question into a test set as a suggestion, with what is expected. No run asks it before a person "
        "has accepted it.",
        SuggestionArguments,
        suggest_question,
        EVALUATE,
        shape=GoldenQuestionOut,
        read_only=False,
    ),
    Tool(
        "evaluation-runs-create",
        "Start an evaluation run: every question of a test set is asked, in the background. evaluation-runs-get tells "
        "when its state is succeeded.",
        EvaluationRunRequest,
        create_run,
        EVALUATE,
        read_only=False,
    ),
    Tool(
        "evaluation-runs-get",
        "State, progress and metrics of an evaluation run.",
        RunArguments,
        get_run,
        EVALUATE,
        shape=EvaluationRunDetail,
    ),
    Tool(
        "evaluation-runs-results",
        "The questions of an evaluation run with their scores and failure modes.",
        ResultsArguments,
        list_results,
        EVALUATE,
        shape=PageOf[EvaluationItemOut],
    ),
)

view = mcp_view(*READING_TOOLS, *CURATION_TOOLS, *TOOLS)
