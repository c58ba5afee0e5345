"""The bytes between the caller and the parser process: JSON with lengths, nothing that could run.

Control socket (caller to server), one message per document: a JSON object {"wall_s", "limits", "fresh"} with the
descriptor of that document's own socket attached. Document socket: a request frame from the caller, a result frame
from the child, then a trailer from the server when the child is gone; a child that waits for another document leaves
none. A request with "members" (whether their bytes are wanted) is for an archive: a frame for each member comes back,
then one with "end", or with the error that ended it. A frame is the length of its JSON head, the length of its body,
the head, the body.
"""

from __future__ import annotations

import codecs
import json
import socket
import struct
from collections.abc import Callable
from typing import Any

from collections_app.parsing.types import Attachment, Member, ParsedDocument, ParseError

FRAME = struct.Struct("!4sIQ")
FRAME_MAGIC = b"RGDF"
TRAILER = struct.Struct("!4sBiQ")
TRAILER_MAGIC = b"RGDT"
ENDED, OUT_OF_TIME, NOT_STARTED = 0, 1, 2
HEAD_LIMIT_BYTES = 1024 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
TEXT_PIECE_BYTES = 64 * 1024  # small, because one character of another plane makes all of a piece four times as wide


class DisconnectedError(Exception):
    """The other side closed the socket in the middle of a frame. received is what came of that part."""

    def __init__(self, received: bytes = b"") -> None:
        super().__init__("the other side closed the socket in the middle of a frame")
        self.received = received


def pack_frame(head: dict[str, Any], bodies: list[bytes]) -> list[bytes]:
    """A frame as pieces to send. Lone surrogates do not occur: text is normalized and names are cleaned before."""
    packed = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return [FRAME.pack(FRAME_MAGIC, len(packed), sum(len(body) for body in bodies)), packed, *bodies]


def send_pieces(connection: socket.socket, pieces: list[bytes]) -> None:
    for piece in pieces:
        connection.sendall(piece)


def read_exactly(connection: socket.socket, count: int, before_each: Callable[[], None] | None = None) -> bytearray:
    """`count` bytes. before_each runs before every receive, to set the remaining time. Raises DisconnectedError."""
    received = bytearray()
    while len(received) < count:
        if before_each is not None:
            before_each()
        piece = connection.recv(min(PIECE_BYTES, count - len(received)))
        if not piece:
            raise DisconnectedError(bytes(received))
        received += piece
    return received


def read_frame(
    connection: socket.socket, body_limit: int, before_each: Callable[[], None] | None = None
) -> tuple[dict[str, Any], bytes] | tuple[None, bytes]:
    """A frame's head and body; (None, the first bytes) when a trailer came instead. Raises DisconnectedError.

    The text of a result comes as head["text"] and is not part of the body.
    """
    start = read_exactly(connection, FRAME.size, before_each)
    magic, head_size, body_size = FRAME.unpack(start)
    if magic != FRAME_MAGIC:
        return None, bytes(start)
    if head_size > HEAD_LIMIT_BYTES or body_size > body_limit:
        raise DisconnectedError
    packed = read_exactly(connection, head_size, before_each)
    try:
        head = json.loads(packed)
    except ValueError as error:
        raise DisconnectedError(bytes(packed)) from error
    if "text_bytes" in head:
        body_size -= head["text_bytes"]
        head["text"] = _read_text(connection, head["text_bytes"], before_each)
    return head, bytes(read_exactly(connection, body_size, before_each))


def _read_text(connection: socket.socket, count: int, before_each: Callable[[], None] | None) -> str:
    """`count` bytes of UTF-8, decoded as they come: of a large text its bytes never stand beside its characters."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    sizes = (min(TEXT_PIECE_BYTES, count - index) for index in range(0, count, TEXT_PIECE_BYTES))
    text = "".join([decoder.decode(read_exactly(connection, size, before_each)) for size in sizes])
    return text + decoder.decode(b"", final=True)


def pack_result(document: ParsedDocument) -> list[bytes]:
    head: dict[str, Any] = {
        "title": document.title,
        "media_type": document.media_type,
        "page_map": document.page_map,
        "metadata": document.metadata,
        "warnings": document.warnings,
        "is_partial": document.is_partial,
        "attachments": [[item.name, item.media_type, item.size_bytes, len(item.data)] for item in document.attachments],
    }
    text = document.text.encode("utf-8")
    head["text_bytes"] = len(text)
    return pack_frame(head, [text, *(item.data for item in document.attachments if item.data)])


def pack_error(error: ParseError) -> list[bytes]:
    return pack_frame({"error": error.kind, "message": error.message, "media_type": error.media_type}, [])


def unpack_result(head: dict[str, Any], body: bytes) -> ParsedDocument:
    """The document of a result frame as `read_frame` gives it. Raises its ParseError when the frame holds one."""
    if "error" in head:
        raise ParseError(head["error"], head["message"], media_type=head.get("media_type", ""))
    position = 0
    attachments = []
    for name, media_type, size_bytes, held in head["attachments"]:
        attachments.append(Attachment(name, media_type, size_bytes, body[position : position + held]))
        position += held
    return ParsedDocument(
        text=head["text"],
        title=head["title"],
        media_type=head["media_type"],
        page_map=tuple((start, end, label) for start, end, label in head["page_map"]),
        metadata=head["metadata"],
        warnings=tuple(head["warnings"]),
        attachments=tuple(attachments),
        is_partial=head["is_partial"],
    )


def pack_member(member: Member, *, with_data: bool) -> list[bytes]:
    head: dict[str, Any] = {
        "name": member.name,
        "size_bytes": member.size_bytes,
        "sha256": member.sha256,
        "media_type": member.media_type,
    }
    if member.error is not None:
        head["refused"] = [member.error.kind, member.error.message]
    return pack_frame(head, [member.data] if with_data and member.data else [])


def pack_end() -> list[bytes]:
    return pack_frame({"end": True}, [])


def unpack_member(head: dict[str, Any], body: bytes) -> Member | None:
    """The member of a frame, None at the end. Raises the ParseError of an archive that could not be read on."""
    if "error" in head:
        raise ParseError(head["error"], head["message"])
    if "end" in head:
        return None
    refused = head.get("refused")
    return Member(
        name=head["name"].encode("utf-8", "replace").decode(),
        data=body,
        error=ParseError(refused[0], refused[1]) if refused else None,
        size_bytes=head["size_bytes"],
        sha256=head["sha256"],
        media_type=head["media_type"],
    )
