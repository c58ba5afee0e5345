"""The model of one document, and the auditor that explains answers by an order of the calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

ROOT, PEOPLE = "root", ("ada", "bob")
REFUSED = {404: "not found", 409: "conflict"}
NOT_FOUND, CONFLICT, DONE = REFUSED[404], REFUSED[409], "done"
AGAIN = "index version changed"  # nothing was written: twice in one call another one began to serve


class Document(NamedTuple):
    """texts: of each revision, the first being 1; () for a document that is not there. trash: the texts and state of
    each deletion. readers: the people on its access list beside `root`, None without a list; it outlives the document.
    """

    texts: tuple[str, ...] = ()
    state: str = "enabled"
    trash: tuple[tuple[tuple[str, ...], str], ...] = ()
    readers: frozenset[str] | None = None

    def is_visible_to(self, reader: str) -> bool:
        return bool(self.texts) and (reader == ROOT or self.readers is None or reader in self.readers)


class Action(NamedTuple):
    """doc_id: "" for what concerns all documents. value: the text, state, revision or readers of a write; the revision
    of `past`. reader: who makes the call."""

    name: str
    doc_id: str = ""
    value: Any = None
    reader: str = ROOT


class Call(NamedTuple):
    """An action, its answer, and the seconds when it was sent and answered."""

    action: Action
    answer: Any
    began: float
    ended: float

    def of(self, doc_id: str) -> Call | None:
        """The part of the call that concerns the document, None without one."""
        if self.action.name in ("search", "list"):
            return self._replace(action=self.action._replace(doc_id=doc_id), answer=self.answer.get(doc_id))
        return self if self.action.doc_id == doc_id else None


def outcomes(document: Document, action: Action) -> Iterator[tuple[Any, Document]]:
    """Each right answer at one moment, with the document as it is afterwards."""
    name, value = action.name, action.value
    if name not in READS:
        yield AGAIN, document
    if name in READS:
        yield (READS[name](document, value) if document.is_visible_to(action.reader) else None), document
    elif name == "put" and not document.texts:
        yield 1, document._replace(texts=(value,), state="enabled")
    elif name == "restore":
        if document.texts:  # a restore at the same time may have emptied the trash
            yield from ((CONFLICT, document), (NOT_FOUND, document))
        elif not document.trash:
            yield NOT_FOUND, document
        else:
            for entry in document.trash:
                rest = list(document.trash)
                rest.remove(entry)
                yield DONE, document._replace(texts=entry[0], state=entry[1], trash=tuple(rest))
    elif not document.texts:
        yield NOT_FOUND, document
    elif name in ("put", "roll_back"):
        yield _write(document, name, value)
    elif name == "set_state":
        yield DONE, document._replace(state=value)
    elif name == "set_access":
        yield DONE, document._replace(readers=value)
        yield NOT_FOUND, document._replace(readers=value)  # deleted before it was read again for the answer
    else:
        entry = (document.texts, document.state)
        trash = (*document.trash, entry) if name == "trash" else document.trash
        yield DONE, document._replace(texts=(), state="enabled", trash=trash)


def _write(document: Document, name: str, value: Any) -> tuple[Any, Document]:
    if document.state == "archived":
        return CONFLICT, document
    if name == "roll_back" and value >= len(document.texts):  # the present one is none to return to
        return NOT_FOUND, document
    text = document.texts[value - 1] if name == "roll_back" else value
    if text != document.texts[-1]:
        document = document._replace(texts=(*document.texts, text))
    return (len(document.texts) if name == "put" else DONE), document


READS: dict[str, Callable[[Document, Any], Any]] = {
    "search": lambda document, _: document.texts[-1] if document.state == "enabled" else None,
    "read": lambda document, _: (document.texts[-1], len(document.texts), document.state),
    "list": lambda document, _: (len(document.texts), document.state),
    "past": lambda document, number: document.texts[number - 1] if number <= len(document.texts) else None,
}


def explain(documents: Iterable[Document], calls: Sequence[Call]) -> set[Document]:
    """What the document may be after the calls, by every order of them that gives their answers and in which a call
    that ended before another one began comes first (linearizability). Empty: no order explains the answers."""
    ends: set[Document] = set()
    todo = [(document, frozenset(range(len(calls)))) for document in documents]
    seen = set(todo)
    while todo:
        document, left = todo.pop()
        if not left:
            ends.add(document)
            continue
        first_end = min(calls[number].ended for number in left)
        for number in left:
            if calls[number].began > first_end:
                continue
            for answer, after in outcomes(document, calls[number].action):
                step = (after, left - {number})
                if answer == calls[number].answer and step not in seen:
                    seen.add(step)
                    todo.append(step)
    return ends
