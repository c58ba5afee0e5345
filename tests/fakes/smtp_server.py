"""A mail server on the loopback that takes messages.

def test_mail(smtp_server):
    assert smtp_server.messages[0]["Subject"] == "Hello"
"""

from __future__ import annotations

import base64
import email
import email.policy
import socketserver
import ssl
from collections.abc import Iterator
from contextlib import suppress
from email.message import EmailMessage
from typing import Any

import pytest

from tests.fakes.serving import Serving


class SmtpServer(Serving):
    """login: (user, password) that it asks for; None: it asks for none. refused: recipients that it does not take.
    certificate: a context for encrypted connections; begins_encrypted: from the first byte, else by STARTTLS.
    messages: what came, with the headers X-Recipient and X-Encrypted."""

    def __init__(self) -> None:
        self.login: tuple[str, str] | None = None
        self.refused: set[str] = set()
        self.certificate: ssl.SSLContext | None = None
        self.begins_encrypted = False
        self.messages: list[EmailMessage] = []
        server = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(ssl.SSLError, ConnectionError):  # a client that trusts no such certificate hangs up
                    if server.begins_encrypted:
                        server.encrypt(self)
                    server.serve(self)

        super().__init__(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session))

    def encrypt(self, session: Any) -> None:
        assert self.certificate is not None
        session.connection = self.certificate.wrap_socket(session.connection, server_side=True)
        session.rfile, session.wfile = session.connection.makefile("rb"), session.connection.makefile("wb", 0)

    def serve(self, session: Any) -> None:
        recipient = ""

        def say(line: str) -> None:
            session.wfile.write(f"{line}\r\n".encode())

        say("220 ready")
        while line := session.rfile.readline().decode().rstrip("\r\n"):
            word = line.partition(" ")[0].upper()
            is_encrypted = isinstance(session.connection, ssl.SSLSocket)
            if word == "EHLO":
                offered = ["8BITMIME"]
                offered += ["AUTH PLAIN"] if self.login else []
                offered += ["STARTTLS"] if self.certificate and not is_encrypted else []
                for each in offered:
                    say(f"250-{each}")
                say("250 HELP")
            elif word == "STARTTLS":
                say("220 go on")
                self.encrypt(session)
            elif word == "AUTH":
                said = base64.b64decode(line.split()[2]).decode().split("\0")[1:]
                say("235 good" if self.login and tuple(said) == self.login else "535 wrong user or password")
            elif word == "RCPT":
                recipient = line.partition("<")[2].partition(">")[0]
                say("550 no such mailbox" if recipient in self.refused else "250 good")
            elif word == "DATA":
                say("354 go on")
                body = b""
                while (part := session.rfile.readline()) != b".\r\n":
                    body += part
                message = email.message_from_bytes(body, policy=email.policy.default)
                message["X-Recipient"], message["X-Encrypted"] = recipient, str(is_encrypted)
                self.messages.append(message)  # type: ignore[arg-type]  # that of the policy
                say("250 taken")
            elif word == "QUIT":
                say("221 bye")
                return
            else:
                say("250 good")


@pytest.fixture
def smtp_server(settings: Any) -> Iterator[SmtpServer]:
    """Set up as the server that mails are sent through, without encryption."""
    server = SmtpServer()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    settings.DEFAULT_FROM_EMAIL = "ragd <ragd@example.org>"
    with server:
        yield server
