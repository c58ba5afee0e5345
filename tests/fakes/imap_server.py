"""A mail server on the loopback that speaks as much of IMAP as reading one folder takes.

def test_mail(imap_server):
    imap_server.folders["INBOX"] = {1: b"Subject: Hello\\r\\n\\r\\nText."}
"""

from __future__ import annotations

import re
import socketserver
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.serving import Serving


class ImapServer(Serving):
    """folders: name as it is written on the wire -> UID -> message. password: of anybody. commands: what was sent."""

    def __init__(self) -> None:
        self.folders: dict[str, dict[int, bytes]] = {"INBOX": {}}
        self.password = "good"
        self.commands: list[str] = []
        server = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                server.serve(self)

        super().__init__(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session))

    def serve(self, session: Any) -> None:
        chosen: dict[int, bytes] = {}
        session.wfile.write(b"* OK ready\r\n")
        while line := session.rfile.readline().decode().rstrip("\r\n"):
            tag, _, command = line.partition(" ")
            self.commands.append(command)
            word = command.partition(" ")[0].upper()
            answer = "OK done"
            if word == "CAPABILITY":
                session.wfile.write(b"* CAPABILITY IMAP4rev1\r\n")
            elif word == "LOGIN":
                answer = answer if command.endswith(f'"{self.password}"') else "NO wrong"
            elif word in ("SELECT", "EXAMINE"):
                name = command.partition(" ")[2].strip('"')
                if name in self.folders:
                    chosen = self.folders[name]
                    session.wfile.write(f"* {len(chosen)} EXISTS\r\n".encode())
                else:
                    answer = "NO there is no such folder"
            elif command.upper().startswith("UID SEARCH"):
                session.wfile.write(f"* SEARCH {' '.join(map(str, sorted(chosen)))}\r\n".encode())
            elif command.upper().startswith("UID FETCH"):
                self._fetch(session, command, chosen)
            session.wfile.write(f"{tag} {answer}\r\n".encode())
            if word == "LOGOUT":
                return

    def _fetch(self, session: Any, command: str, chosen: dict[int, bytes]) -> None:
        wanted = [int(uid) for uid in re.findall(r"\d+", command.split(" ")[2])]
        for place, uid in enumerate(sorted(chosen), 1):
            if uid in wanted:
                message = chosen[uid]
                is_header = "HEADER" in command
                part = message.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if is_header else message
                name = "BODY[HEADER.FIELDS (MESSAGE-ID SUBJECT DATE)]" if is_header else "BODY[]"
                facts = f"* {place} FETCH (UID {uid} RFC822.SIZE {len(message)} {name} {{{len(part)}}}\r\n"
                session.wfile.write(facts.encode() + part + b")\r\n")


@pytest.fixture
def imap_server() -> Iterator[ImapServer]:
    with ImapServer() as server:
        yield server
