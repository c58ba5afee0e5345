"""One reader over a list of files in this process: a JSON line {"path", "seconds", "chars", "error"} for each.

Run by bench_markitdown.py: `python markitdown_round.py markitdown|ragd FOLDER LIMIT_S < paths`. A file that takes
longer than the limit is given up. The reader is imported and set up before the first clock starts.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

Reader = Callable[[Path, str], str]


def markitdown_reader() -> Reader:
    from markitdown import MarkItDown

    converter = MarkItDown(enable_plugins=False)
    return lambda path, _: str(converter.convert_local(path).text_content or "")


def ragd_reader() -> Reader:
    """ragd's readers in this process, without the child process and its limits."""
    from collections_app.parsing import assembly
    from collections_app.parsing.archives import expand_archive
    from collections_app.parsing.sniffing import archive_type
    from collections_app.parsing.types import ParseError, ParseLimits, Source

    assembly.import_readers()
    limits = ParseLimits()

    def read(path: Path, name: str) -> str:
        data = path.read_bytes()
        if not archive_type(data):
            return assembly.read_document(Source(data, name, "", limits)).text
        texts = []
        for member in expand_archive(data, limits):
            try:
                texts.append(assembly.read_document(Source(member.data, member.name, "", limits)).text)
            except ParseError:
                continue
        return "\n".join(texts)

    return read


class TooLongError(BaseException):
    """The file's time is over. No Exception, so that no reader takes it for damage."""


def give_up(*_: object) -> None:
    raise TooLongError


def main() -> None:
    kind, folder, limit_s = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    read = markitdown_reader() if kind == "markitdown" else ragd_reader()
    signal.signal(signal.SIGALRM, give_up)
    for path in sys.stdin.read().splitlines():
        text, error = "", ""
        signal.alarm(limit_s)
        began = time.perf_counter()
        try:
            text = read(folder / path, path)
        except TooLongError:
            error = "timeout"
        except (Exception, MemoryError) as failure:
            error = type(failure).__name__
        took_s = time.perf_counter() - began
        signal.alarm(0)
        print(json.dumps({"path": path, "seconds": took_s, "chars": len(text.strip()), "error": error}), flush=True)
    print(json.dumps({"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}), flush=True)


if __name__ == "__main__":
    main()
