"""What the languages of filters share: their tokens, reading with errors that say where, and what may come next."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Generic, TypeVar

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args

from ragd.errors import InvalidInput

DEPTH_MAX = 40
OFFERED_MAX = 40
TOKENS = r"""
    TEXT: /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/s
    NUMBER.2: /-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])/
    SIGN: /==|!=|<>|>=|<=|[=<>]/
    LPAR: "("
    RPAR: ")"
    LSQB: "["
    RSQB: "]"
    COMMA: ","
    %ignore /\s+/
"""
PUNCTUATION = {"LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "COMMA": "','"}
BEHIND_NAME = frozenset({"SIGN", "IN", "NOT", "IS", "STARTS", "CONTAINS", "LSQB"})
WHOLE_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
BEGUN = re.compile(r"['\"].*$|[<>=!]+$|[\w.@:/\-]*$", re.DOTALL)  # the word at the end, which may be incomplete
Result = TypeVar("Result")
Literal = str | int | float | bool


@v_args(inline=True)
class Builder(Transformer[Token, Result]):
    """Makes the result while the text is parsed: one method for each rule of the grammar; these are in all of them."""

    def start(self, result: Result) -> Result:
        return result

    def grouped(self, _open: Token, result: Result, _close: Token) -> Result:
        return result

    def values(self, *values: Literal) -> list[Literal]:
        return list(values[::2])  # every other one is a comma

    def value(self, token: Token) -> Literal:
        if token.type == "TEXT":
            return unquote(token)
        if token.type == "NUMBER":
            return float(token) if re.search(r"[.eE]", token) else int(token)
        return token.type == "TRUE" if token.type in ("TRUE", "FALSE") else str(token)


class Language(Generic[Result]):
    """A language of filters. grammar: its rules and what TOKENS lacks, NAME among it. labels: what messages call
    terminals. keywords: names that are terminals, in either case. field: of the errors."""

    def __init__(
        self,
        grammar: str,
        builder: Builder[Result],
        *,
        keywords: frozenset[str],
        labels: Mapping[str, str],
        field: str,
        length_max: int,
        hint: str = "",
    ) -> None:
        self.keywords, self.field, self.length_max, self.hint = keywords, field, length_max, hint
        words = {word.upper(): f"'{word}'" for word in sorted(keywords - {"attributes", "null"})}
        self.labels = {"NAME": "a name", **labels, "NUMBER": "a number", **PUNCTUATION, **words, "$END": "the end"}
        self.parser = Lark(
            grammar + TOKENS, parser="lalr", lexer="basic", transformer=builder,
            lexer_callbacks={"NAME": self._keyword}, maybe_placeholders=True,
        )  # fmt: skip

    def read(self, text: str) -> Result:
        """Raises InvalidInput that says what was expected and at which character, counted from 1."""
        if len(text) > self.length_max:
            raise self.wrong(f"a filter has at most {self.length_max} characters, not {len(text)}")
        try:
            self._check_depth(text)
            result: Result = self.parser.parse(text)  # type: ignore[assignment]  # the builder makes it of the tree
        except UnexpectedCharacters as error:
            at = error.pos_in_stream or 0
            raise self.wrong(
                f"{text[at : at + 12]!r} at position {at + 1} is no name, value or operator{self.hint}"
            ) from None
        except UnexpectedToken as error:
            expected = ", ".join(label for terminal, label in self.labels.items() if terminal in error.accepts)
            at_end = error.token.type == "$END"
            position = len(text) + 1 if at_end else (error.token.start_pos or 0) + 1
            actual = "the filter ends" if at_end else f"there is {str(error.token)!r}"
            raise self.wrong(f"expected {expected} at position {position}, but {actual}") from None
        return result

    def complete(self, text: str, offer: Callable[[set[str], str, str], Sequence[str]]) -> list[str]:
        """The expression with each word that may stand next, or that the last word may become; at most OFFERED_MAX.

        offer: the words for the terminals that may come, the field before them, and the word that was begun. [] where
        the text is wrong already.
        """
        begun = BEGUN.search(WHOLE_TEXT.sub(lambda whole: " " * len(whole[0]), text))
        before = text[: begun.start()] if begun else text
        word = text[len(before) :]
        try:
            tokens = list(self.parser.lex(before))
            parser = self.parser.parse_interactive(before)
            parser.exhaust_lexer()
            accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]  # lark has no type for it
        except (UnexpectedInput, InvalidInput):
            return []
        words = offer(accepted, field_before(tokens), word)
        fitting = [each for each in words if _begins(each, word) and each != word]
        return [f"{before}{each}" for each in dict.fromkeys(fitting)][:OFFERED_MAX]

    def wrong(self, message: str) -> InvalidInput:
        """The error of a filter that cannot be read, to be raised."""
        return InvalidInput(message, field=self.field)

    def _keyword(self, token: Token) -> Token:
        """A name that is a word of the language becomes its terminal."""
        return token.update(type=token.upper()) if token.lower() in self.keywords else token

    def _check_depth(self, text: str) -> None:
        """Raises InvalidInput where parentheses or negations nest deeper than the database should be asked."""
        depth = negations = 0
        for token in self.parser.lex(text):
            depth += (token.type == "LPAR") - (token.type == "RPAR")
            negations = negations + 1 if token.type == "NOT" else 0 if token.type != "LPAR" else negations
            if max(depth, negations) > DEPTH_MAX:
                raise self.wrong(f"a filter nests at most {DEPTH_MAX} deep")


def field_before(tokens: Sequence[Token]) -> str:
    """The field whose operator or value comes at the end; with a text in brackets behind it, `field.text`."""
    named = ""
    for token, behind in zip_longest(tokens, tokens[1:]):
        if token.type == "NAME" and (behind is None or behind.type in BEHIND_NAME):
            named = str(token)
        elif token.type == "LSQB" and named and behind is not None and behind.type == "TEXT":
            named = f"{named}.{unquote(behind)}"
    return named


def _begins(each: str, word: str) -> bool:
    """A text in quotes fits a word without them; nothing else fits a quotation mark."""
    if word[:1] in ("'", '"') and not each.startswith("'"):
        return False
    return each.lstrip("'").casefold().startswith(word.lstrip("'\"").casefold())


def unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def quote(text: str) -> str:
    """What `unquote` reads as the text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def words_of(accepted: set[str], *keywords: str) -> list[str]:
    """Those of the keywords that may come next."""
    return [word for word in keywords if word.upper() in accepted]
