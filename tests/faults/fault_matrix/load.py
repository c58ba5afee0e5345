"""The load: one client that uploads, replaces and deletes documents, some that search and one that asks.

What was acknowledged is kept, so that it can be compared with what is stored.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import requests

from tests.faults.fault_matrix.setups import COLLECTION, PATIENCE_S, Setup
from tests.faults.kills import PLAIN

PAUSE_S = {"upload": 0.8, "search": 0.3, "ask": 0.6}
REQUEST_S = 100.0  # no answer in that time: it hangs
FILES_MAX = 3
REPLACED, DELETED = 0.2, 0.1  # share of requests
PASSING = frozenset({409, 429, 500, 502, 503, 504})  # sent again


class Load:
    """Runs from `start` to the end; between `pause` and `resume` nothing is under way.

    expected: doc_id -> its text, of what was acknowledged last; of a deleted one None. accepted: doc_id -> how often an
    upload was. run_ids: of answers. answered_at: kind -> when the last good answer came. statuses: (kind, status).
    """

    def __init__(self, setup: Setup, seed: int, searchers: int = 1) -> None:
        self.setup, self.draw = setup, random.Random(seed)
        self.expected: dict[str, str | None] = {}
        self.settled: list[str] = []  # documents that no job is under way for
        self.accepted: Counter[str] = Counter()
        self.run_ids: set[str] = set()
        self.answered_at: dict[str, float] = {}
        self.accepted_at: list[tuple[float, str]] = []  # (when it was sent, job id)
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.wrong: list[str] = []
        self.unanswered = 0
        self._made = 0
        self._going, self._ended = threading.Event(), threading.Event()
        works = [("upload", self._change), *[("search", self._search)] * searchers, ("ask", self._ask)]
        self._idle = [threading.Event() for _ in works]
        self._threads = [
            threading.Thread(target=self._run, args=(*each, idle), daemon=True, name=each[0])
            for each, idle in zip(works, self._idle, strict=True)
        ]

    def start(self) -> None:
        self._going.set()
        for thread in self._threads:
            thread.start()

    def resume(self) -> None:
        self._going.set()

    def pause(self) -> bool:
        """Whether every request that was under way has ended within PATIENCE_S."""
        self._going.clear()
        return all(idle.wait(PATIENCE_S) for idle in self._idle)

    def stop(self) -> None:
        """Whatever is under way is left."""
        self._ended.set()
        self._going.set()

    def settle(self) -> None:
        """All jobs have ended: the documents may be deleted from now on."""
        self.settled = [doc_id for doc_id, text in self.expected.items() if text is not None]

    def _run(self, kind: str, work: Callable[[requests.Session], None], idle: threading.Event) -> None:
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {self.setup.key}"
        while not self._ended.is_set():
            if not self._going.is_set():
                idle.set()
                self._going.wait()
                idle.clear()
                continue
            try:
                work(session)
            except Exception as error:  # the thread must live: what it met is part of the result
                self.wrong.append(f"{kind}: {type(error).__name__}: {error}")
            self._ended.wait(PAUSE_S[kind])

    def _send(
        self, session: requests.Session, kind: str, method: str, path: str, **values: Any
    ) -> requests.Response | None:
        """The answer, or None where there was none."""
        address = random.choice(self.setup.addresses)
        began = time.monotonic()
        try:
            answer = session.request(
                method, f"{address}/v1/collections/{COLLECTION}{path}", timeout=REQUEST_S, **values
            )
        except requests.RequestException:
            if time.monotonic() - began >= REQUEST_S:
                self.unanswered += 1
            self.statuses[kind, 0] += 1
            return None
        self.statuses[kind, answer.status_code] += 1
        is_of_model = "dimension_mismatch" in answer.text  # 400 by the specification
        is_gone = (method, answer.status_code) == ("DELETE", 404)
        if answer.status_code >= 400 and answer.status_code not in PASSING and not is_gone and not is_of_model:
            self.wrong.append(f"{kind} was answered {answer.status_code}: {answer.text[:300]}")
        return answer

    def _insist(self, kind: str, done: tuple[int, ...], send: Callable[[], requests.Response | None]) -> Any:
        """Send until it is answered with one of these statuses; None when it never was."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not self._ended.is_set():
            answer = send()
            if answer is not None and answer.status_code in done:
                return answer
            if answer is not None and answer.status_code not in PASSING:
                return None
            time.sleep(0.4)
        if not self._ended.is_set():
            self.wrong.append(f"{kind} was not accepted within {PATIENCE_S:.0f} s")
        return None

    def _change(self, session: requests.Session) -> None:
        if self.settled and self.draw.random() < DELETED:
            self._delete(session, self.settled.pop(self.draw.randrange(len(self.settled))))
            return
        texts = {}
        for _ in range(self.draw.randint(1, FILES_MAX)):
            known = [doc_id for doc_id, text in self.expected.items() if text is not None]
            if known and self.draw.random() < REPLACED:
                doc_id = self.draw.choice(known)
            else:
                self._made += 1
                doc_id = f"text-{self._made:05}.txt"
            texts[doc_id] = self._write()
        self._upload(session, texts)

    def _write(self) -> str:
        sentences = [
            f"{' '.join(self.draw.choices(PLAIN, k=9))}.".capitalize() for _ in range(self.draw.randint(3, 30))
        ]
        return "\n\n".join([f"Number {self.draw.getrandbits(40)}.", *sentences])

    def _upload(self, session: requests.Session, texts: dict[str, str]) -> None:
        """Under one Idempotency-Key however often it is sent."""
        key, sent_at = uuid.uuid4().hex, time.monotonic()
        files = [("files", (doc_id, text.encode())) for doc_id, text in texts.items()]
        for doc_id in texts:
            if doc_id in self.settled:
                self.settled.remove(doc_id)

        def send() -> requests.Response | None:
            return self._send(session, "upload", "POST", "/documents", files=files, headers={"Idempotency-Key": key})

        answer = self._insist("an upload", (202,), send)
        if answer is None:
            return
        for (doc_id, text), result in zip(texts.items(), answer.json()["results"], strict=True):
            if result["status"] == "rejected":
                self.wrong.append(f"{doc_id} was rejected: {result}")
                continue
            self.expected[doc_id] = text
            self.accepted[doc_id] += 1
            if result.get("job_id"):
                self.accepted_at.append((sent_at, result["job_id"]))

    def _delete(self, session: requests.Session, doc_id: str) -> None:
        def send() -> requests.Response | None:
            return self._send(session, "delete", "DELETE", f"/documents/{doc_id}")

        if self._insist("a deletion", (200, 404), send) is not None:
            self.expected[doc_id] = None

    def _search(self, session: requests.Session) -> None:
        self._query(session, "search", {"mode": random.choice(("vector", "lexical", "hybrid"))})

    def _ask(self, session: requests.Session) -> None:
        self._query(session, "ask", {})

    def _query(self, session: requests.Session, kind: str, more: dict[str, Any]) -> None:
        question = {"query": " ".join(random.choices(PLAIN, k=3))} | more
        answer = self._send(session, kind, "POST", f"/{kind}", json=question)
        if answer is not None and answer.status_code == 200:
            self.answered_at[kind] = time.monotonic()
            self.run_ids |= {answer.json()["run_id"]} - {None}  # null: it says itself that it is not stored
