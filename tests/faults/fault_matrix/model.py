"""The model endpoint of the fault matrix: slow, silent or lying for as long as it is told to be."""

from __future__ import annotations

import random
import time

from tests.fakes import faults
from tests.fakes.openai_server import OpenAIServer, Request

MODEL, DIMS = "text-embedding-3-small", 64
THINKS_S = 0.15
SLOW_S, SILENT_S = 6.0, 75.0
ANSWER = "It says so in the first source [1]."
EMBEDDING_LIES = (
    faults.bad_json(),
    faults.not_json(),
    faults.fewer_vectors(),
    faults.repeated_index(),
    faults.reversed_rows(),
    faults.without("data"),
    faults.with_vectors([0.5] * (DIMS - 1)),
    faults.with_vectors([float("nan")] * DIMS),
    faults.with_vectors("vector"),
    faults.with_vectors(None),
    faults.cut_short(40),
    faults.connection_reset(),
    faults.failing(500),
)
CHAT_LIES = (faults.bad_json(), faults.not_json(), faults.without("choices"), faults.cut_short(40), faults.failing(500))


class Model(OpenAIServer):
    """mode: "" (well), "slow", "silent" (answers after longer than anybody waits) or "lying"."""

    def __init__(self, seed: int, host: str) -> None:
        super().__init__(dims=DIMS, host=host)
        self.mode, self.draw = "", random.Random(seed)
        self.chat_reply = lambda messages: ANSWER
        self._server.handle_error = lambda *_: None  # who is killed breaks off its requests

    def receive(self, request: Request) -> faults.Fault:
        if self.mode == "slow":
            return faults.slow(SLOW_S)
        if self.mode == "silent":
            return faults.slow(SILENT_S)
        if self.mode == "lying":
            return self.draw.choice(EMBEDDING_LIES if request.path.endswith("/embeddings") else CHAT_LIES)
        return faults.slow(THINKS_S)

    def be(self, mode: str, seconds: float) -> None:
        """For so long, then well again; what it holds back by then stays held back."""
        self.mode = mode
        try:
            time.sleep(seconds)
        finally:
            self.mode = ""
