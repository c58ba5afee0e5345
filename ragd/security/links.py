"""Addresses in what a model wrote: those that its sources do not vouch for are taken out, while it writes.

A model that follows orders of a document can carry what it read to somebody else in the address of a link or of an
image, which a reader's browser asks for. So an address stays only where it is known (`KnownAddresses`); of every other
one only its host stays, as text that no Markdown makes a link of: "(link removed: evil[.]example)".

Text is read in runs of visible ASCII characters. An address is one run, however it was disguised (character entities,
backslashes), and a run that is not complete is held back, so that the same text comes out however it was cut.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ragd.security.findings import Finding

RUN = re.compile(r"[\x21-\x7e]+")
ADDRESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]{1,20}://|(?:https?|ftp):(?=[/\\]*[\w%\[@-])|mailto:(?=\w)|www\.(?=[a-z0-9])"
    r"|(?:javascript|vbscript|blob):(?=\S)|file:(?=[/\\])|data:(?=[a-z]+/|,))",
    re.IGNORECASE,
)
BARE_END = re.compile(r"[<>\"`\[\]|]")
TRAILING = ".,;:!?*_~'"
AFTER = re.compile(r"[)\]}>\"'`*_~.,;:!?|]*(?:\Z|[\[(<])")
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
CONTROLS = re.compile(r"[\x00-\x20\x7f]")
BROWSED = re.compile(r"(https?|ftp|wss?):[/\\]*", re.IGNORECASE)
TARGET = re.compile(r"\]\(\s*<?\s*\Z")
DEFINITION = re.compile(r"\]:\s*<?\s*\Z")
ATTRIBUTE = re.compile(r"(?:=[\"']?|url\([\"']?)\Z", re.IGNORECASE)
SCHEMELESS = re.compile(r"(?:\]\(|\]:|(?:src|href|srcset|poster|action)=[\"']?)<?(?=[/\\]{2})", re.IGNORECASE)
SLASHES = re.compile(r"<?[/\\]{2}")
OPEN_TARGET = re.compile(r"\]\(<?(?:(?:https?|ftp):[/\\]?)?\Z", re.IGNORECASE)
HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?::[0-9]{1,5})?\Z", re.IGNORECASE)
LABEL_CHARS = 1_000  # as far back the bracket of a link is looked for
RUN_CHARS = 8_000  # a longer run is read in parts of so many
REMOVED = "(link removed)"
ADDRESS_CHARS = 2_000
PLAIN, CARRYING, IMAGE = "foreign_link", "foreign_link_with_data", "foreign_image"
CONFIDENCE = {PLAIN: 0.3, CARRYING: 0.7, IMAGE: 0.9}


@dataclass(frozen=True, slots=True)
class RemovedAddress:
    """What was taken out: how it would have been read, and what stands in its place."""

    rule: str
    shown: str


class KnownAddresses:
    """own: hosts (with the port where it is not the scheme's) that a collection was fetched from; everything there is
    known, images too. texts: what an answer may quote; an address that stands there word for word is known as a link,
    because it can carry nothing that was not in it before.
    """

    def __init__(self, own: Iterable[str] = (), texts: Iterable[str] = ()) -> None:
        self.own = frozenset(host.lower() for host in own if host)
        self.texts = [text for text in texts if text]

    def knows(self, address: str, *, is_image: bool) -> bool:
        if len(address) > ADDRESS_CHARS:
            return False
        if host_of(address) in self.own and BROWSED.match(address) and "%" not in (host_of(address) or "%"):
            return True
        return not is_image and any(address in text for text in self.texts)


class LinkFilter:
    """The text of one answer, fed piece by piece; `removed` in the order of the text."""

    def __init__(self, known: KnownAddresses) -> None:
        self.known = known
        self.removed: list[RemovedAddress] = []
        self._held = ""  # the run that is not complete
        self._behind = ""  # what stands before it, as it was written

    def feed(self, text: str) -> str:
        """What is settled of the text so far, and was not given out."""
        text = self._held + text
        begin = len(text)
        while begin and "\x21" <= text[begin - 1] <= "\x7e":
            begin -= 1
        if len(text) - begin >= RUN_CHARS:
            begin += (len(text) - begin) // RUN_CHARS * RUN_CHARS
        self._held = text[begin:]
        return "".join(self._read(text[:begin]))

    def finish(self) -> str:
        """The rest."""
        held, self._held = self._held, ""
        return "".join(self._read(held))

    def _read(self, text: str) -> Iterator[str]:
        position = 0
        for match in RUN.finditer(text):
            between = text[position : match.start()]
            yield self._pass(between)
            run = match.group()
            for start in range(0, len(run), RUN_CHARS):
                yield self._read_run(run[start : start + RUN_CHARS])
            position = match.end()
        yield self._pass(text[position:])

    def _pass(self, raw: str, shown: str | None = None) -> str:
        self._behind = (self._behind + raw)[-LABEL_CHARS:]
        return raw if shown is None else shown

    def _read_run(self, run: str) -> str:
        decoded = _decode(run)
        is_schemeless = self._is_schemeless(decoded)
        if not is_schemeless and not ADDRESS.search(run) and not ADDRESS.search(decoded):
            return self._without_target(run)
        pieces: list[str] = []
        seen: list[str] = []
        position = 0
        while match := ADDRESS.search(run, position):
            pieces.append(self._pass(run[position : match.start()]))
            end, is_clean = self._end_of(run, match.start())
            address = run[match.start() : end]
            seen.append(_decode(address))
            is_image = self._is_image()
            if is_clean and self.known.knows(address, is_image=is_image):
                pieces.append(self._pass(address))
            else:
                self._take_out(pieces, address, is_image)
            position = end
        rest = self._without_target(run[position:])
        if is_schemeless or _hides(decoded, seen):
            return self._replace(run, decoded)
        return "".join([*pieces, rest])

    def _is_schemeless(self, decoded: str) -> bool:
        """Whether a target in the run is a host without a scheme: a browser takes that of the page."""
        follows = TARGET.search(self._behind) or DEFINITION.search(self._behind)
        return SCHEMELESS.search(decoded) is not None or (follows is not None and SLASHES.match(decoded) is not None)

    def _replace(self, run: str, decoded: str) -> str:
        """The whole run goes: where the address in it begins as it was written is not known."""
        match = ADDRESS.search(decoded)
        shown = _shown(decoded[match.start() :] if match else "https://" + decoded.partition("//")[2])
        is_image = "![" in run or self._is_image()
        self.removed.append(RemovedAddress(IMAGE if is_image else CARRYING, shown))
        return shown

    def _take_out(self, pieces: list[str], address: str, is_image: bool) -> None:
        shown = _shown(address)
        before = "".join(pieces)
        before = before.removesuffix("<")
        if before.endswith(("](", "]:")):
            before = f"{before[:-1]} {before[-1]}"
        pieces[:] = [before, shown]
        self.removed.append(RemovedAddress(IMAGE if is_image else CARRYING if _carries(address) else PLAIN, shown))
        self._pass(address)

    def _without_target(self, run: str) -> str:
        """The rest of a run without an address. A link whose address would follow behind a blank, in angle brackets or
        in other letters than ASCII is no link any more."""
        shown = run
        if run.startswith("<") and (TARGET.search(self._behind) or DEFINITION.search(self._behind)):
            shown = run[1:]
        if OPEN_TARGET.search(run) or "](<" in run:
            shown = shown.replace("](<", "](").replace("](", "] (")
        self._pass(run)
        return shown

    def _end_of(self, run: str, start: int) -> tuple[int, bool]:
        """(where the address ends, whether no reader could take it further)."""
        is_target = TARGET.search(self._behind) is not None
        depth, end = 0, len(run)
        for index in range(start, len(run)):
            char = run[index]
            depth += (char == "(") - (char == ")")
            if depth < 0 or (not is_target and BARE_END.match(char)):
                end = index
                break
        if is_target:
            return end, run[end : end + 1] == ")" or end == len(run)
        while end > start + 1 and run[end - 1] in TRAILING:
            end -= 1
        return end, AFTER.match(run, end) is not None

    def _is_image(self) -> bool:
        """Whether what follows would be loaded without being asked for: the target of an image, of a definition, or of
        an attribute of HTML."""
        behind = self._behind
        if DEFINITION.search(behind) or ATTRIBUTE.search(behind):
            return True
        if not TARGET.search(behind):
            return False
        depth = 0
        for index in range(behind.rindex("]("), -1, -1):
            depth += (behind[index] == "]") - (behind[index] == "[")
            if depth == 0:
                return behind[index - 1 : index] == "!"
        return True  # its beginning is out of sight


def filter_links(text: str, known: KnownAddresses) -> tuple[str, list[RemovedAddress]]:
    """The whole text as a `LinkFilter` gives it out."""
    links = LinkFilter(known)
    return links.feed(text) + links.finish(), links.removed


def place_removed(answer: str, removed: Iterable[RemovedAddress]) -> list[Finding]:
    """A finding for each address that was taken out, where the answer shows that it was."""
    findings = []
    position = 0
    for item in removed:
        start = answer.find(item.shown, position)
        if start < 0:
            continue
        position = start + len(item.shown)
        findings.append(Finding("data_exfiltration", item.rule, start, position, CONFIDENCE[item.rule]))
    return findings


def host_of(address: str) -> str | None:
    """The host as a browser reads it, with a port that is not the scheme's; None for an address without one, or with
    a user name, which hides where it leads."""
    text = f"https://{address}" if address[:4].lower() == "www." else BROWSED.sub(r"\1://", address, count=1)
    try:
        parts = urlsplit(text.replace("\\", "/"))
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    if not host or "@" in parts.netloc:
        return None
    default = {"http": 80, "https": 443, "ftp": 21}.get(parts.scheme)
    return host if port in (None, default) else f"{host}:{port}"


def _decode(run: str) -> str:
    """As Markdown and a browser read it: entities, escapes, characters that are left out."""
    return CONTROLS.sub("", ESCAPED.sub(r"\1", html.unescape(run)))


def _hides(decoded: str, seen: Sequence[str]) -> bool:
    """Whether a run reads as more addresses than stand in it."""
    return len(ADDRESS.findall(decoded)) > sum(len(ADDRESS.findall(address)) for address in seen)


def _carries(address: str) -> bool:
    """Whether it can hold more than where it leads."""
    return "?" in address or "#" in address or "@" in address or len(address) > 120


def _shown(address: str) -> str:
    """What stands in place of an address: its host, as no reader of Markdown makes a link of it."""
    host = host_of(_decode(address)) or ""
    return f"(link removed: {host.replace('.', '[.]')})" if HOST.match(host) else REMOVED
