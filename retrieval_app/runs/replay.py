"""A stored run, run again: the same question by the same plan, now, beside what came back then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser, User

from collections_app.collections.services import get_collection
from collections_app.models import ApiKey
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.types import SPEC_VERSION, RetrievePlan, canonical_json
from retrieval_app.models import QueryRun
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest

APPROXIMATE = "the HNSW index was used: its order can differ after a rebuild, and exact 'always' does not"

CORRECTED = ("refined", "completed", "replaced")  # outcomes of the corrective step that change results


@dataclass(frozen=True, slots=True)
class Replayed:
    """A stored run beside the one of the same question and plan that was made again."""

    run: QueryRun
    again: QueryRun

    @property
    def same(self) -> bool:
        """Return True if both have the same results, byte for byte."""
        return canonical_json(self.run.results) == canonical_json(self.again.results)

    @property
    def store_changed(self) -> bool | None:
        """None when the run does not say."""
        return self.run.store_state != self.again.store_state if self.run.store_state else None

    @property
    def index_version_changed(self) -> bool:
        return _index_version(self.run) != _index_version(self.again)

    @property
    def notes(self) -> list[str]:
        return _notes(self.run, self.again)

    @property
    def differences(self) -> list[dict[str, Any]]:
        """See `differences`."""
        return differences(self.run.results, self.again.results)


def replay(run: QueryRun, *, channel: str, api_key: ApiKey | None = None) -> Replayed:
    """The run beside that of `search_again`."""
    return Replayed(run, search_again(run, channel=channel, api_key=api_key))


def search_again(
    run: QueryRun, *, channel: str, user: User | AnonymousUser | None = None, api_key: ApiKey | None = None
) -> QueryRun:
    """The run of the same question by the same plan, made now (`replay_of`). Of an answer only the search is repeated.

    One that was as of an earlier time is as of that time again.

    Raises UnknownCollection when the collection is gone, InvalidInput for a run without a readable plan, and what
    `services.search` raises.
    """
    if run.elsewhere:
        raise InvalidInput(
            f"run {run.pk} searched {len(run.collection_names)} collections, and a replay searches one; ask the"
            " question again in Chat",
            field="run_id",
        )
    with telemetry.environment(telemetry.PLAYGROUND):
        request = QueryRequest(
            get_collection(run.collection_name), run.query, _plan_of(run), channel, plan_name=run.plan_name, user=user,
            api_key=api_key, replay_of=run.pk, as_of=datetime.fromisoformat(run.as_of) if run.as_of else None,
        )  # fmt: skip
        return query_pipeline.search(request)


def differences(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Results whose rank or score differs, by rank now and then, for what is gone, by rank before."""
    old = {(item["doc_id"], item["chunk_index"]): item for item in before}
    new = {(item["doc_id"], item["chunk_index"]): item for item in now}
    result = []
    for key in [*new, *(key for key in old if key not in new)]:
        was, is_now = old.get(key), new.get(key)
        positions = {
            "before": was["rank"] if was else None,
            "now": is_now["rank"] if is_now else None,
            "score_before": was["score"] if was else None,
            "score_now": is_now["score"] if is_now else None,
        }
        if (positions["before"], positions["score_before"]) != (positions["now"], positions["score_now"]):
            result.append({"doc_id": key[0], "chunk_index": key[1]} | positions)
    return result


def _plan_of(run: QueryRun) -> RetrievePlan:
    try:
        return RetrievePlan.from_dict(run.plan)
    except (InvalidInput, TypeError) as error:
        raise InvalidInput(
            f"the plan of run {run.pk} cannot be read by this version: {error}; ask the question again", field="plan"
        ) from error


def _index_version(run: QueryRun) -> tuple[Any, ...]:
    return (run.store_state.get("index_version", run.index_version), run.embed_model)


def _notes(run: QueryRun, again: QueryRun) -> list[str]:
    notes = []
    if run.collection_id != again.collection_id:
        notes.append(f"{run.collection_name!r} is another collection now, under the same name")
    if run.spec_version != SPEC_VERSION:
        notes.append(f"the run was made by version {run.spec_version or 'unknown'} of the specification")
    if again.exact_used is False:
        notes.append(APPROXIMATE)
    if run.correction and run.correction.get("outcome") in CORRECTED:
        notes.append(
            "the results of the run were corrected before it was answered, and a replay repeats the search alone"
        )
    if run.status == QueryRun.Status.ERROR:
        notes.append(f"the run failed: {run.error}")
    return notes
