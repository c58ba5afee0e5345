"""Sequences of calls, some of them at the same time, by library, REST and MCP: the model explains every answer."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from django.db import connection
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from pytest_django import Settings

from collections_app.collections.deletion import purge_collection
from tests.model.channels import Library, Mcp, Rest
from tests.model.model import CONFLICT, DONE, PEOPLE, READS, ROOT, Action, Call, Document, explain

pytestmark = pytest.mark.django_db(transaction=True)
CHANNELS = (Library, Rest, Mcp)
DOC_IDS = ("a", "b/c")
EXAMPLES, MANY, STEPS = 7, 70, 12  # sequences of each channel, and the rules of one at most
NUMBERS = itertools.count()

NOTHING, NO_VALUE, AS_ROOT = st.just(""), st.none(), st.just(ROOT)
ids, readers = st.sampled_from(DOC_IDS), st.sampled_from((ROOT, *PEOPLE))
# several chunks, fewer in every other index version: an answer that mixes two texts or two versions is seen
texts = st.integers(1, 6).map(lambda n: " ".join(f"The heron number {n} stands in pond {n} at {h}." for h in range(4)))


def actions(name: st.SearchStrategy[str], doc_id: Any = NOTHING, value: Any = NO_VALUE, reader: Any = AS_ROOT) -> Any:
    return st.builds(Action, name, doc_id, value, reader)


writes = st.one_of(
    actions(st.just("put"), ids, texts),
    actions(st.just("set_state"), ids, st.sampled_from(("enabled", "disabled", "archived"))),
    actions(st.just("roll_back"), ids, st.integers(1, 3)),
    actions(st.sampled_from(("trash", "restore", "delete")), ids),
    actions(st.just("set_access"), ids, st.none() | st.frozensets(st.sampled_from(PEOPLE), max_size=1)),
    actions(st.sampled_from(("build_index", "switch_back"))),
)
reads = st.one_of(
    actions(st.sampled_from(("search", "list")), reader=readers),
    actions(st.just("read"), ids, reader=readers),
    actions(st.just("past"), ids, st.integers(1, 3), reader=readers),
)
scripts = st.lists(st.lists(writes | reads, min_size=1, max_size=4), min_size=2, max_size=4)


class Machine(RuleBasedStateMachine):
    """Keeps, for each document, every state that explains the answers so far. No call is under way between two rules.

    `busy`: a call for another index version met one that was under way, so that its work may be left to maintenance.
    """

    channel: ClassVar[type[Library]]

    @initialize()
    def begin(self) -> None:
        self.driver = self.channel(f"pond-{next(NUMBERS)}")
        self.documents = {doc_id: {Document()} for doc_id in DOC_IDS}
        self.busy = False

    @rule(action=writes)
    def write(self, action: Action) -> None:
        self.run([[action]])

    @rule(action=reads)
    def read(self, action: Action) -> None:
        self.run([[action]])

    @rule(doc_id=ids, text=texts)
    def fill(self, doc_id: str, text: str) -> None:
        """A put more, so that most calls meet a document."""
        self.run([[Action("put", doc_id, text)]])

    @rule(scripts=scripts)
    def at_once(self, scripts: list[list[Action]]) -> None:
        """Run each script in a thread of its own."""
        self.run(scripts)

    def run(self, scripts: Sequence[Sequence[Action]]) -> None:
        gate = threading.Barrier(len(scripts))

        def play(script: Sequence[Action]) -> list[Call]:
            calls = []
            gate.wait()
            try:
                for action in script:
                    began = time.monotonic()
                    calls.append(Call(action, self.driver.answer(action), began, time.monotonic()))
            finally:
                if len(scripts) > 1:
                    connection.close()
            return calls

        if len(scripts) == 1:
            self.check(play(scripts[0]))
        else:
            with ThreadPoolExecutor(len(scripts)) as pool:
                self.check([call for calls in pool.map(play, scripts) for call in calls])

    def check(self, calls: Sequence[Call]) -> None:
        for doc_id, before in self.documents.items():
            own = [part for call in calls if (part := call.of(doc_id))]
            self.documents[doc_id] = explain(before, own)
            if not self.documents[doc_id]:
                raise AssertionError(
                    f"no order of the calls explains the answers about {doc_id!r}:\n" + tell(before, own)
                )
        swaps = [call for call in calls if call.action.name in ("build_index", "switch_back")]
        self.busy = self.busy or len(swaps) > 1
        assert {call.answer for call in swaps} <= ({DONE, CONFLICT} if self.busy else {DONE}), tell((), swaps)
        foreign = [call for call in calls if isinstance(call.answer, dict) and not set(call.answer) <= set(DOC_IDS)]
        assert not foreign, tell((), foreign)

    def teardown(self) -> None:
        """Whoever reads, in whatever way, gets what the model says."""
        if hasattr(self, "driver"):
            try:
                if all(self.documents.values()):
                    self.check(list(self.everything()))
            finally:
                purge_collection(self.driver.collection)

    def everything(self) -> Iterator[Call]:
        for name, reader in itertools.product(READS, (ROOT, *PEOPLE)):
            for doc_id in DOC_IDS if name in ("read", "past") else ("",):
                action = Action(name, doc_id, 1, reader)
                began = time.monotonic()
                yield Call(action, self.driver.answer(action), began, time.monotonic())


def tell(before: Any, calls: Sequence[Call]) -> str:
    """The states before, and each call with its times in milliseconds from the first."""
    start = min((call.began for call in calls), default=0.0)
    lines = [f"before: {state}" for state in before]
    for action, answer, began, ended in sorted(calls, key=lambda call: call.began):
        lines.append(
            f"{(began - start) * 1000:8.1f} to {(ended - start) * 1000:8.1f} ms: {tuple(action)} -> {answer!r}"
        )
    return "\n".join(lines)


def try_channel(channel: type[Library], examples: int, steps: int, **more: Any) -> None:
    """Without shrinking: calls are slow, and the message shows those of one rule and the states before."""
    machine = type(f"{channel.__name__}Machine", (Machine,), {"channel": channel})
    kept = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate], **more,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=kept)


@pytest.fixture(autouse=True)
def keep_all_revisions(settings: Settings) -> None:
    """The model forgets none, and a long sequence makes more than are kept."""
    settings.RAGD_REVISIONS_KEPT = 1000


@pytest.mark.parametrize("channel", CHANNELS)
def test_answers_are_explained(channel: type[Library]) -> None:
    try_channel(channel, EXAMPLES, STEPS, derandomize=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("channel", CHANNELS)
def test_many_sequences(channel: type[Library]) -> None:
    try_channel(channel, MANY, STEPS)
