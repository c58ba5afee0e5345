"""`manage.py ragd audit verify`, `anchor` and `export`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from collections_app.http.audit_downloads import FORMATS, audit_lines
from collections_app.services.governance.audit_chain import verify_chain
from collections_app.services.governance.audit_log import AuditFilter
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.erasure.anchors import make_anchor, read_anchor


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("verify", "anchor", "export"))
    parser.add_argument("file", nargs="?", type=Path, help="where an anchor or an export is written")
    parser.add_argument("--anchor", type=Path, metavar="FILE", help="verify: an earlier end that must still be there")
    parser.add_argument("--format", choices=tuple(FORMATS), default="jsonl", help="export: jsonl or ocsf")
    parser.add_argument("--since", default="", help="export: a day or a time")
    parser.add_argument("--until", default="", help="export: a day, included, or a time, not included")


def run(options: Options) -> Answer:
    """Exit status 1 where the log is not whole."""
    if options["action"] == "verify":
        anchor = read_anchor(options["anchor"]) if options["anchor"] else None
        return {"action": "verify"} | verify_chain(anchor).as_dict()
    if options["file"] is None:
        raise UsageError(f"audit {options['action']} needs the file that it writes")
    try:
        if options["action"] == "anchor":
            made = make_anchor()
            options["file"].write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            return {"action": "anchor", "file": str(options["file"]), "position": made["position"]}
        return _export(options)
    except OSError as error:
        raise UsageError(f"{options['file']} cannot be written: {error}") from None


def _export(options: Options) -> Answer:
    audit_filter = AuditFilter(since=options["since"], until=options["until"])
    rows = 0
    with options["file"].open("wb") as file:
        for piece in audit_lines(audit_filter, options["format"], None):
            rows += piece.count(b"\n")
            file.write(piece)
    return {"action": "export", "file": str(options["file"]), "rows": rows}


def show(answer: Answer) -> str:
    if answer["action"] == "anchor":
        return f"{answer['file']}: the end of the audit log at position {answer['position']}"
    if answer["action"] == "export":
        return f"{answer['file']}: {answer['rows']:,} events"
    return _show_verdict(answer)


def _show_verdict(answer: dict[str, Any]) -> str:
    if answer["whole"]:
        return f"the audit log is whole: {answer['checked']:,} events"
    where = f"position {answer['position']}" if answer["position"] is not None else "outside of the chain"
    event = f", event {answer['event']}" if answer["event"] is not None else ""
    return f"the audit log is not whole: {answer['problem']} at {where}{event}: {answer['details']}"


def has_passed(answer: Answer) -> bool:
    return bool(answer.get("whole", True))
