"""WebVTT and SubRip: the spoken text, each cue labelled with its time."""

from __future__ import annotations

import re

from ragd.readers.assembly import Assembly
from ragd.readers.text.plain import decode_into
from ragd.readers.types import Source

TIMES = re.compile(r"^\s*((?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3})\s*-->\s*((?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3})")
VOICE = re.compile(r"\s*<v(?:\.[^ >]*)?\s+([^>]+)>")
TAGS = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[\d:.]*>|\{\\[^}]*\}")
NOT_SPOKEN = ("NOTE", "STYLE", "REGION")


def read(source: Source, assembly: Assembly) -> None:
    """Add each cue's text as a line with the label "00:01:02". Notes, styles and cue numbers are left out."""
    text = decode_into(source.data, assembly).replace("\r\n", "\n").replace("\r", "\n")
    header, _, _ = text.partition("\n")
    if header.startswith("WEBVTT"):
        assembly.entitle(header.removeprefix("WEBVTT").strip(" \t-"))
    for block in re.split(r"\n[ \t]*\n", text):
        lines = block.strip("\n").split("\n")
        index = next((number for number, line in enumerate(lines[:2]) if TIMES.match(line)), None)
        if index is None or lines[0].startswith(NOT_SPOKEN):
            continue
        match = TIMES.match(lines[index])
        assert match is not None
        spoken = "\n".join(lines[index + 1 :])
        spoken = TAGS.sub("", VOICE.sub(r"\n\1: ", spoken)).strip()  # each voice on a line of its own
        assembly.add(_unescape(spoken), _label(match.group(1)), joint="\n")


def _label(start: str) -> str:
    parts = start.replace(",", ".").split(".")[0].split(":")
    return ":".join(part.zfill(2) for part in ["00", *parts][-3:])


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ").replace("&amp;", "&")
