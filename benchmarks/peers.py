"""The peers of bench_peers.py from the outside: their virtual environment, and a process for each."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements-peers.txt"
NAMES = {"langchain": "LangChain", "llamaindex": "LlamaIndex", "haystack": "Haystack"}


def peer_python(requirements: Path = REQUIREMENTS) -> Path:
    """The Python of a virtual environment with the peers, made when the requirements have changed: minutes, once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ragd-benchmarks"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = cache / f"peers-{digest}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"installing the peers into {folder} ...", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(requirements)], check=True)
        (folder / "complete").touch()
    return python


class PeerProcess:
    """One peer in a process of its own. `ask` sends a request of peer_stores.Worker and waits for the answer."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.name = name
        command = [str(peer_python()), str(HERE / "peer_stores.py"), name, url, str(folder)]
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "HAYSTACK_TELEMETRY_ENABLED": "False"}
        self.log = (folder / f"{name}.log").open("wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True
        )

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            sys.exit(f"{self.name} ended:\n{Path(self.log.name).read_text()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.log.close()
